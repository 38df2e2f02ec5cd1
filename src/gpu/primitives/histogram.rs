//! How many elements have each value.

use super::count::{COUNTED, Count, Counted, distinct, index};
use crate::gpu::{Access, Array, DeviceError, Element, Kernel, KernelSource, Profile, Recorder};

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    count: u32,
    device: u32,
    bins: u32,
    parts: u32,
}

/// Histograms of words.
///
/// Few bins (up to 2048 on GPUs, 256 on software renderers) are counted near the invocations first; more of them by one
/// atomic addition a value.
pub struct Histogram {
    profile: Option<Profile>,
    direct: Kernel,
    gpu: Kernel,
    software: Kernel,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

fn source(name: &str, body: &str) -> KernelSource {
    KernelSource::new(format!("primitives::histogram_{name}"), format!("{COUNTED}\n{body}"))
        .fields("count: u32, device: u32, bins: u32, parts: u32")
        .array("values", Element::U32, Access::Read)
        .array("count", Element::U32, Access::Read)
        .array("bins", Element::U32, Access::Atomic)
}

impl Histogram {
    /// In the form that the device wants.
    pub fn new() -> Self {
        let direct = source("direct", include_str!("../../../shaders/gpu/histogram_direct.wgsl"));
        let gpu = source("group", include_str!("../../../shaders/gpu/histogram_group.wgsl")).group(256);
        let software = source("serial", include_str!("../../../shaders/gpu/histogram_serial.wgsl")).group(8);
        let [direct, gpu, software] = [direct, gpu, software].map(Kernel::trusted);
        Histogram { profile: None, direct, gpu, software }
    }

    /// In the form for such devices, on any device.
    pub fn with(profile: Profile) -> Self {
        Histogram { profile: Some(profile), ..Self::new() }
    }

    /// Records: `bins[v]` is raised by the number of elements of `values` that count and are v, modulo 2^32. Values
    /// from `bins.len()` on are not counted. The caller clears `bins` first.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when `bins` is given twice; as [`Recorder::dispatch`].
    pub fn count(
        &self,
        recorder: &mut Recorder,
        values: &Array<u32>,
        bins: &Array<u32>,
        count: Count<'_>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Histogram::count";
        let counted = Counted::new(recorder.gpu(), WHAT, count, values.len())?;
        distinct(WHAT, bins.raw(), &[values.raw(), counted.raw()])?;
        let number = index(WHAT, bins.len())?;
        let most = u64::from(counted.most);
        let mut params = Params { count: counted.most, device: counted.device, bins: number, parts: 0 };
        let arrays = [values.raw(), counted.raw(), bins.raw()];
        match self.profile.unwrap_or(recorder.gpu().capabilities().profile) {
            Profile::Gpu if number <= 2048 => recorder.dispatch(&self.gpu, &arrays, &params, most.div_ceil(4096)),
            Profile::Software if number <= 256 => {
                params.parts = most.div_ceil(16384) as u32;
                recorder.dispatch(&self.software, &arrays, &params, u64::from(params.parts).div_ceil(8))
            }
            _ => recorder.each(&self.direct, &arrays, &params, most),
        }
    }

    /// Its kernels.
    pub(super) fn sources(&self) -> Vec<KernelSource> {
        [&self.direct, &self.gpu, &self.software].map(|kernel| kernel.source().clone()).to_vec()
    }
}
