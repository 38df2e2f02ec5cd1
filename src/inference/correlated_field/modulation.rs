//! Excitations of modes times the amplitude of their wavenumber.

use crate::exchange::SumOrder;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, RawArray, Recorder};

crate::gpu::kernel_params! {
    struct ModulateParams {
        count: u32,
        bins: u32,
    }
}

fn source(tangent: bool) -> KernelSource {
    KernelSource::new("inference::modulate", include_str!("../../../shaders/inference/modulate.wgsl"))
        .params::<ModulateParams>()
        .flag("tangent", tangent)
}

fn cotangent_source() -> KernelSource {
    let text = include_str!("../../../shaders/inference/modulate_cotangent.wgsl");
    KernelSource::new("inference::modulate_cotangent", text).params::<ModulateParams>()
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    vec![source(false), source(true), cotangent_source()]
}

/// `y = amplitude[index] x` and its derivative.
pub(super) struct Modulation {
    /// The wavenumber of each mode of this rank.
    pub index: Array<u32>,
    /// The modes of each wavenumber, where that is faster than atomics.
    pub order: Option<SumOrder>,
    /// Number of wavenumbers.
    bins: u64,
    value: Kernel,
    tangent: Kernel,
    cotangent: Kernel,
}

impl Modulation {
    /// Creates the product by the wavenumber of each mode, of `bins`. Blocks.
    pub fn new(recorder: &mut Recorder, index: Array<u32>, bins: u64) -> Result<Self, DeviceError> {
        let order = SumOrder::new(recorder, &index, bins)?;
        let [value, tangent] = [false, true].map(|tangent| Kernel::trusted(source(tangent)));
        Ok(Modulation { index, order, bins, value, tangent, cotangent: Kernel::trusted(cotangent_source()) })
    }

    /// Returns the kernels of value, tangent and cotangent.
    pub fn kernels(&self) -> [&Kernel; 3] {
        [&self.value, &self.tangent, &self.cotangent]
    }

    fn record(&self, recorder: &mut Recorder, kernel: &Kernel, arrays: &[&RawArray]) -> Result<(), DeviceError> {
        let count = self.index.len();
        let params = ModulateParams { count: count as u32, bins: self.bins as u32 };
        recorder.each(kernel, arrays, &params, count)
    }

    /// Records `y = amplitude[index] x`.
    pub fn apply(
        &self,
        recorder: &mut Recorder,
        amplitude: &Array<f32>,
        x: &Array<f32>,
        y: &Array<f32>,
    ) -> Result<(), DeviceError> {
        let arrays = [self.index.raw(), amplitude.raw(), x.raw(), y.raw()];
        self.record(recorder, &self.value, &arrays)
    }

    /// Records the tangent `dy` for those of amplitudes and excitations, each a pair of value and
    /// tangent.
    pub fn jvp(
        &self,
        recorder: &mut Recorder,
        amplitude: [&Array<f32>; 2],
        x: [&Array<f32>; 2],
        dy: &Array<f32>,
    ) -> Result<(), DeviceError> {
        let arrays = [amplitude[0], x[0], amplitude[1], x[1], dy].map(Array::raw);
        let arrays = [&[self.index.raw()][..], &arrays].concat();
        self.record(recorder, &self.tangent, &arrays)
    }

    /// Records the cotangent `dx` of the excitations for the cotangent of the modes, and in the
    /// first of `words` the bits of the largest magnitude of `dy x`; `words` must be 0 before.
    pub fn vjp(
        &self,
        recorder: &mut Recorder,
        amplitude: &Array<f32>,
        x: &Array<f32>,
        [dy, dx]: [&Array<f32>; 2],
        words: &Array<u32>,
    ) -> Result<(), DeviceError> {
        let arrays = [self.index.raw(), amplitude.raw(), x.raw(), dy.raw(), dx.raw(), words.raw()];
        self.record(recorder, &self.cotangent, &arrays)
    }
}
