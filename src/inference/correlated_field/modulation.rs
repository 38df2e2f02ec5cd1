//! Excitations of modes times the amplitude of their wavenumber.

use crate::gpu::{Array, DeviceError, Kernel, KernelSource, RawArray, Recorder};

crate::gpu::kernel_params! {
    struct ModulateParams {
        count: u32,
        bins: u32,
    }
}

/// Returns the kernels of value, tangent and cotangent.
fn sources() -> [KernelSource; 3] {
    let text = include_str!("../../../shaders/inference/modulate_cotangent.wgsl");
    let cotangent = KernelSource::new("inference::modulate_cotangent", text).params::<ModulateParams>();
    let text = include_str!("../../../shaders/inference/modulate.wgsl");
    let modulate = |tangent: bool| {
        KernelSource::new("inference::modulate", text).params::<ModulateParams>().flag("tangent", tangent)
    };
    [modulate(false), modulate(true), cotangent]
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    sources().into()
}

/// `y = amplitude[index] x` and its derivative.
pub(super) struct Modulation {
    /// The wavenumber of each mode of this rank.
    pub index: Array<u32>,
    /// Number of wavenumbers.
    bins: u64,
    /// Kernels of value, tangent and cotangent.
    pub kernels: [Kernel; 3],
}

impl Modulation {
    /// Creates the product by the wavenumber of each mode, of `bins`.
    pub fn new(index: Array<u32>, bins: u64) -> Self {
        Modulation { index, bins, kernels: sources().map(Kernel::trusted) }
    }

    fn record(&self, recorder: &mut Recorder, kernel: usize, arrays: &[&RawArray]) -> Result<(), DeviceError> {
        let count = self.index.len();
        let params = ModulateParams { count: count as u32, bins: self.bins as u32 };
        recorder.each(&self.kernels[kernel], &[&[self.index.raw()], arrays].concat(), &params, count)
    }

    /// Records `y = amplitude[index] x`.
    pub fn apply(
        &self,
        recorder: &mut Recorder,
        amplitude: &Array<f32>,
        x: &Array<f32>,
        y: &Array<f32>,
    ) -> Result<(), DeviceError> {
        self.record(recorder, 0, &[amplitude, x, y].map(Array::raw))
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
        self.record(recorder, 1, &[amplitude[0], x[0], amplitude[1], x[1], dy].map(Array::raw))
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
        self.record(recorder, 2, &[amplitude.raw(), x.raw(), dy.raw(), dx.raw(), words.raw()])
    }
}
