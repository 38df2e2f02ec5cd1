//! Excitations of modes times the amplitude of their wavenumber.

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

/// The kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    [false, true].map(source).into()
}

/// `y = amplitude[index] x` and its derivative.
pub(super) struct Modulation {
    /// The wavenumber of each mode of this rank.
    pub index: Array<u32>,
    kernels: [Kernel; 2],
}

impl Modulation {
    /// By the wavenumber of each mode.
    pub fn new(index: Array<u32>) -> Self {
        Modulation { index, kernels: [false, true].map(|tangent| Kernel::trusted(source(tangent))) }
    }

    fn record(&self, recorder: &mut Recorder, arrays: &[&RawArray], bins: u64) -> Result<(), DeviceError> {
        let count = self.index.len();
        let params = ModulateParams { count: count as u32, bins: bins as u32 };
        recorder.each(&self.kernels[usize::from(arrays.len() > 4)], arrays, &params, count)
    }

    /// Records `y = amplitude[index] x`. With a cotangent in place of `x` it gives that of `x`.
    pub fn apply(
        &self,
        recorder: &mut Recorder,
        amplitude: &Array<f32>,
        x: &Array<f32>,
        y: &Array<f32>,
    ) -> Result<(), DeviceError> {
        self.record(recorder, &[self.index.raw(), amplitude.raw(), x.raw(), y.raw()], amplitude.len())
    }

    /// Records the tangent `dy` for those of amplitudes and excitations, each a pair of value and tangent.
    pub fn jvp(
        &self,
        recorder: &mut Recorder,
        amplitude: [&Array<f32>; 2],
        x: [&Array<f32>; 2],
        dy: &Array<f32>,
    ) -> Result<(), DeviceError> {
        let arrays = [amplitude[0], x[0], amplitude[1], x[1], dy].map(Array::raw);
        let arrays = [&[self.index.raw()][..], &arrays].concat();
        self.record(recorder, &arrays, amplitude[0].len())
    }
}
