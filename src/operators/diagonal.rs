//! Multiplication by fixed values at each place: masks, weights, transfer functions.

use super::error::{OperatorError, Result};
use super::fingerprint::Fingerprint;
use super::linear::{Direction, Linear};
use super::signature::Signature;
use super::space::Space;
use super::vector::Vector;
use crate::fft::Values;
use crate::gpu::{Array, Element, Kernel, KernelSource, RawArray};
use crate::grid::Cost;
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct DiagonalParams {
        count: u32,
        places: u32,
    }
}

/// Returns the kernel for real or complex values and factors.
fn source(value: Values, factor: Values, conjugate: bool) -> KernelSource {
    let element = |values: Values| if values == Values::Complex { Element::Complex32 } else { Element::F32 };
    KernelSource::new("operators::diagonal", include_str!("../../shaders/operators/diagonal.wgsl"))
        .params::<DiagonalParams>()
        .element("Value", element(value))
        .element("Factor", element(factor))
        .flag("complex_factor", factor == Values::Complex)
        .flag("conjugate", conjugate)
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    use Values::{Complex, Real};
    [(Real, Real, false), (Complex, Real, false), (Complex, Complex, false), (Complex, Complex, true)]
        .map(|(value, factor, conjugate)| source(value, factor, conjugate))
        .into()
}

/// `y = w x` with a fixed field `w`, which may be complex if `x` is. `w` has one value for each
/// place, for all components and all fields of a batch. Cost: one pass of 12 bytes per real number.
pub struct Diagonal {
    signature: Signature,
    factors: Array<f32>,
    complex: bool,
    kernels: [Kernel; 2],
}

impl Diagonal {
    /// Creates the multiplication of the only leaf of `space` by `factors`, a field of one leaf at
    /// the same places. The operator keeps a handle: later changes of the factors change the
    /// operator.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] for factors at other places, or complex factors of a real field.
    pub fn new(space: &Space, factors: &Vector) -> Result<Self> {
        const NAME: &str = "diagonal";
        let (Some((name, leaf)), Some((_, own))) = (space.only(), factors.space().only()) else {
            return Err(OperatorError::invalid(NAME, format!("{space} by {}; both have one leaf", factors.space())));
        };
        let complex = own.values == Values::Complex;
        let fits = own.support == leaf.support
            && own.fields() == 1
            && (!complex || leaf.values == Values::Complex)
            && !leaf.is_on_host();
        if !fits {
            let why = format!(
                "it is {leaf}, the factors are {own}: one for each place is needed, complex ones for complex values only"
            );
            return Err(OperatorError::Fit { operator: NAME.into(), leaf: name.into(), why });
        }
        let kernels =
            [false, true].map(|conjugate| Kernel::trusted(source(leaf.values, own.values, conjugate && complex)));
        Ok(Diagonal {
            signature: Signature::new(NAME, space, space),
            factors: factors.single()?.clone(),
            complex,
            kernels,
        })
    }
}

impl Linear for Diagonal {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        let Some((_, leaf)) = self.signature.domain.only() else { return Ok(()) };
        let seen = |array: &Array<f32>, complex: bool| -> RawArray {
            if complex { array.raw().seen_as(Element::Complex32) } else { array.raw().clone() }
        };
        let values = leaf.values == Values::Complex;
        let arrays = [seen(v.single()?, values), seen(&self.factors, self.complex), seen(out.single()?, values)];
        let count = leaf.places() * leaf.fields();
        let params = DiagonalParams { count: count as u32, places: leaf.places() as u32 };
        Ok(rank.recorder.each(&self.kernels[direction as usize], &arrays.each_ref(), &params, count)?)
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        let Some((_, leaf)) = self.signature.domain.only() else { return Ok(()) };
        out.number(u64::from(self.complex));
        out.array(rank, leaf, &self.factors)
    }

    fn costs(&self) -> [Cost; 2] {
        [Cost::kernels(1, 8 * self.signature.domain.own_numbers() + 4 * self.factors.len()); 2]
    }
}
