//! Functions given by a table.

use std::rc::Rc;

use super::{
    Contents, Differentiable, Fingerprint, Linearized, OperatorCost, Result, Signature, Space, Vector, refuse,
};
use crate::fft::Values;
use crate::gpu::{Array, Kernel, KernelSource};
use crate::grid::Cost;
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct InterpolationParams {
        count: u32,
        nodes: u32,
    }
}

fn source(slope: bool) -> KernelSource {
    KernelSource::new("operators::interpolate", include_str!("../../shaders/operators/interpolate.wgsl"))
        .params::<InterpolationParams>()
        .flag("slope", slope)
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    [false, true].map(source).into()
}

/// The piecewise linear function through nodes, of every number of a real leaf on the device.
///
/// It is constant beyond the first and the last node, as `numpy.interp`. The derivative at a node
/// is that of the interval above it. Cost: 8 bytes per number, and 12 for the derivative.
pub struct Interpolation {
    signature: Signature,
    /// Abscissae, then ordinates.
    nodes: Array<f32>,
    kernels: [Kernel; 2],
}

impl Interpolation {
    /// Creates the function of the only leaf of `domain`, a leaf of the same name and places.
    /// Blocks.
    ///
    /// ```
    /// use meshloom::operators::{Interpolation, Leaf, Model, Space, Vector};
    ///
    /// meshloom::run(|rank| {
    ///     let space = Space::of("x", Leaf::vector(3))?;
    ///     let table = Model::new(Interpolation::new(rank, &space, &[0.0, 1.0, 3.0], &[5.0, 7.0,
    ///   3.0])?);
    ///     let mut x = Vector::new(&rank.gpu, &space)?;
    ///     x.set(&mut rank.recorder, "x", &[-1.0, 0.5, 2.0])?;
    ///     assert_eq!(table.value(rank, &x)?.get(&mut rank.recorder, "x")?, [5.0, 6.0, 5.0]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) for other spaces, fewer than two
    ///   nodes, another number of ordinates than abscissae, and numbers that are not finite and
    ///   ascending in f32.
    pub fn new(rank: &mut Rank, domain: &Space, x: &[f64], y: &[f64]) -> Result<Self> {
        const NAME: &str = "interpolation";
        match domain.only() {
            Some((_, leaf)) if leaf.values == Values::Real && !leaf.is_on_host() => {}
            _ => return refuse(NAME, format!("{domain} is not one real leaf on the device")),
        }
        if x.len() < 2 || x.len() != y.len() || u32::try_from(2 * x.len()).is_err() {
            let why = format!("expected two or more nodes, got {} abscissae and {} ordinates", x.len(), y.len());
            return refuse(NAME, why);
        }
        let nodes: Vec<f32> = x.iter().chain(y).map(|&number| number as f32).collect();
        if let Some(at) = nodes.iter().position(|number| !number.is_finite()) {
            let number = x.iter().chain(y).nth(at).copied().unwrap_or(f64::NAN);
            return refuse(NAME, format!("expected finite numbers of f32, got {number:?} at node {}", at % x.len()));
        }
        if let Some(at) = nodes[..x.len()].windows(2).position(|pair| pair[0] >= pair[1]) {
            let why = format!("expected ascending abscissae, got {:?} and {:?} at node {at}", x[at], x[at + 1]);
            return refuse(NAME, why);
        }
        let nodes = rank.recorder.uploaded("operators::nodes", &nodes)?;
        let kernels = [false, true].map(|slope| Kernel::trusted(source(slope)));
        Ok(Interpolation { signature: Signature::new(NAME, domain, domain), nodes, kernels })
    }

    /// Records the value, and the derivative where `slope` is given.
    fn record(&self, rank: &mut Rank, x: &Vector, y: &Vector, slope: Option<&Vector>) -> Result<()> {
        let (x, y, slope) = (x.single()?, y.single()?, slope.map(Vector::single).transpose()?);
        let params = InterpolationParams { count: x.len() as u32, nodes: (self.nodes.len() / 2) as u32 };
        let arrays: Vec<_> = [&self.nodes, x, y].into_iter().chain(slope).map(Array::raw).collect();
        Ok(rank.recorder.each(&self.kernels[usize::from(slope.is_some())], &arrays, &params, x.len())?)
    }
}

impl Differentiable for Interpolation {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<()> {
        self.fits(x, y)?;
        self.record(rank, x, y, None)
    }

    fn linearize(self: Rc<Self>, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Box<dyn Linearized>> {
        self.fits(x, y)?;
        let slope = Vector::new(&rank.gpu, &self.signature.domain)?;
        self.record(rank, x, y, Some(&slope))?;
        Ok(Box::new(At { slope }))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        let space = Space::of("nodes", super::leaf::Leaf::vector(self.nodes.len()))?;
        out.field(rank, &Vector::over(&space, vec![Contents::Device(self.nodes.clone())])?)
    }

    fn cost(&self) -> OperatorCost {
        let numbers = self.signature.domain.own_numbers();
        let product = Cost::kernels(1, 12 * numbers);
        OperatorCost { apply: Cost::kernels(1, 8 * numbers), jvp: product, vjp: product }
    }
}

/// The derivative: a factor for each number.
struct At {
    slope: Vector,
}

impl Linearized for At {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<()> {
        rank.vector_multiply(1.0, [&self.slope, dx], 0.0, dy)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<()> {
        rank.vector_multiply(1.0, [&self.slope, dy], 0.0, dx)
    }
}
