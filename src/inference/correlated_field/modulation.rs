//! Excitations of modes times the amplitude of their wavenumber.

use crate::exchange::{SumOrder, of_values};
use crate::gpu::{Array, DeviceError, Element, Kernel, KernelSource, RawArray, Recorder};

crate::gpu::kernel_params! {
    struct ModulateParams {
        count: u32,
        bins: u32,
    }
}

/// The kernels of the product.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pass {
    /// `y = amplitude[index] x`; arrays: `x`, `y`.
    Value,
    /// The tangent of `y`; arrays: `x`, the tangents of `x` and `y`.
    Tangent,
    /// The cotangent of `x`; arrays: `x`, the cotangents of `y` and `x`.
    Cotangent,
    /// The cotangent that also writes the terms of sums.
    CotangentAndTerms,
}

const PASSES: [Pass; 4] = [Pass::Value, Pass::Tangent, Pass::Cotangent, Pass::CotangentAndTerms];

/// Returns one of the kernels, of modes by themselves or in fours.
fn source(pass: Pass, quads: bool) -> KernelSource {
    let (label, text) = match pass {
        Pass::Value | Pass::Tangent => {
            ("inference::modulate", include_str!("../../../shaders/inference/modulate.wgsl"))
        }
        Pass::Cotangent | Pass::CotangentAndTerms => {
            ("inference::modulate_cotangent", include_str!("../../../shaders/inference/modulate_cotangent.wgsl"))
        }
    };
    of_values(KernelSource::new(label, text), quads)
        .params::<ModulateParams>()
        .module("inference::bins", include_str!("../../../shaders/inference/bins.wgsl"))
        .element("Index", if quads { Element::Words2 } else { Element::U32 })
        .flag("tangent", pass == Pass::Tangent)
        .flag("keeps_terms", pass == Pass::CotangentAndTerms)
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    [false, true].into_iter().flat_map(|quads| PASSES.map(|pass| source(pass, quads))).collect()
}

/// `y = amplitude[index] x` and its derivative.
pub(super) struct Modulation {
    /// The wavenumber of each mode of this rank.
    pub index: Array<u32>,
    /// The modes of each wavenumber, where that is faster than atomics.
    pub order: Option<SumOrder>,
    /// Number of wavenumbers.
    bins: u64,
    /// In the order of [`PASSES`]: of modes by themselves, and in fours.
    kernels: [[Kernel; 4]; 2],
}

impl Modulation {
    /// Creates the product by the wavenumber of each mode, of `bins`. Blocks.
    pub fn new(recorder: &mut Recorder, index: Array<u32>, bins: u64) -> Result<Self, DeviceError> {
        let order = SumOrder::new(recorder, &index, bins)?;
        let kernel = |quads| PASSES.map(|pass| Kernel::trusted(source(pass, quads)));
        Ok(Modulation { index, order, bins, kernels: [false, true].map(kernel) })
    }

    /// Returns the kernels of value, tangent and cotangent that vectors of a fit take.
    pub fn kernels(&self) -> [&Kernel; 3] {
        let cotangent = if self.order.is_some() { Pass::CotangentAndTerms } else { Pass::Cotangent };
        let own = &self.kernels[usize::from(RawArray::in_quads(&[self.index.raw()]).is_some())];
        [Pass::Value, Pass::Tangent, cotangent].map(|pass| &own[pass as usize])
    }

    /// Records a kernel over arrays of modes; `amplitudes` are those of all wavenumbers, with their
    /// tangents for [`Pass::Tangent`].
    pub fn record(
        &self,
        recorder: &mut Recorder,
        pass: Pass,
        (amplitudes, modes): (&RawArray, &[&Array<f32>]),
        words: Option<&Array<u32>>,
    ) -> Result<(), DeviceError> {
        let modes: Vec<&RawArray> = modes.iter().map(|modes| modes.raw()).collect();
        let quads = RawArray::in_quads(&modes);
        let (index, count) = match &quads {
            Some(_) => (self.index.raw().seen_as(Element::Words2), self.index.len() / 4),
            None => (self.index.raw().clone(), self.index.len()),
        };
        let modes = quads.as_ref().map_or(modes, |quads| quads.iter().collect());
        let arrays: Vec<_> = [&index, amplitudes].into_iter().chain(modes).chain(words.map(Array::raw)).collect();
        let params = ModulateParams { count: count as u32, bins: self.bins as u32 };
        recorder.each(&self.kernels[usize::from(quads.is_some())][pass as usize], &arrays, &params, count)
    }

    /// Records the cotangent `dx` of the excitations for the cotangent of the modes, and the bits
    /// of the largest magnitude of `dy x` in the first of `words`, which must be 0 before. Writes
    /// `dy x` to `terms` if they are given.
    pub fn vjp(
        &self,
        recorder: &mut Recorder,
        amplitude: &Array<f32>,
        x: &Array<f32>,
        [dy, dx]: [&Array<f32>; 2],
        (terms, words): (Option<&Array<f32>>, &Array<u32>),
    ) -> Result<(), DeviceError> {
        let pass = if terms.is_some() { Pass::CotangentAndTerms } else { Pass::Cotangent };
        let modes: Vec<_> = [x, dy, dx].into_iter().chain(terms).collect();
        self.record(recorder, pass, (amplitude.raw(), &modes), Some(words))
    }
}
