//! The sum, the least and the greatest of an array.

use super::count::{COUNTED, Count, Counted, distinct, holds};
use super::number::{Number, Operation, place, table};
use crate::gpu::{Access, Array, DeviceError, Element, Kernel, KernelSource, Profile, Recorder};

/// Elements that one level joins to one.
const BLOCK: u64 = 1024;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    count: u32,
    device: u32,
    blocks: u32,
}

/// Reductions in a fixed tree over the index, so that sums of `f32` are the same bits in every form.
///
/// The tree: the elements are cut into blocks of 1024. In a block, element `k * 64 + lane` is joined to those of the
/// same lane with smaller `k`, beginning with the identity; then the 64 lanes are halved, lane with lane + 32, + 16,
/// ... + 1; lanes without elements are identities. The values of the blocks are reduced in the same way, until one is
/// left.
///
/// Integer sums wrap. The least and greatest of `f32` with NaN among them are not defined, nor is the sign of a zero.
pub struct Reduce {
    profile: Option<Profile>,
    gpu: [Kernel; 9],
    software: [Kernel; 9],
}

impl Default for Reduce {
    fn default() -> Self {
        Self::new()
    }
}

fn kernel(profile: Profile, operation: Operation, element: Element) -> Kernel {
    let (body, group) = match profile {
        Profile::Gpu => (include_str!("../../../shaders/gpu/reduce_group.wgsl"), 64),
        Profile::Software => (include_str!("../../../shaders/gpu/reduce_serial.wgsl"), 8),
    };
    let label = format!("primitives::reduce_{}_{}", operation.name(), element.wgsl());
    let source = KernelSource::new(label, format!("{COUNTED}\n{}\n{body}", operation.rule(element)))
        .fields("count: u32, device: u32, blocks: u32")
        .array("input", element, Access::Read)
        .array("count", Element::U32, Access::Read)
        .array("output", element, Access::ReadWrite)
        .group(group);
    Kernel::trusted(source)
}

impl Reduce {
    /// Reductions in the form that the device wants.
    pub fn new() -> Self {
        let [gpu, software] = [Profile::Gpu, Profile::Software]
            .map(|profile| table(|operation, element| kernel(profile, operation, element)));
        Reduce { profile: None, gpu, software }
    }

    /// Reductions in the form for such devices, on any device.
    pub fn with(profile: Profile) -> Self {
        Reduce { profile: Some(profile), ..Self::new() }
    }

    /// Records `output[0]` = the sum of the elements of `input` that count; of none, 0.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when `output` is empty or `input` itself; as [`Recorder::dispatch`].
    pub fn sum<T: Number>(
        &self,
        recorder: &mut Recorder,
        input: &Array<T>,
        output: &Array<T>,
        count: Count<'_>,
    ) -> Result<(), DeviceError> {
        self.record(recorder, Operation::Sum, input, output, count)
    }

    /// Records `output[0]` = the least element of `input` that counts; of none, the greatest number (infinity).
    ///
    /// # Errors
    /// As [`Reduce::sum`].
    pub fn min<T: Number>(
        &self,
        recorder: &mut Recorder,
        input: &Array<T>,
        output: &Array<T>,
        count: Count<'_>,
    ) -> Result<(), DeviceError> {
        self.record(recorder, Operation::Min, input, output, count)
    }

    /// Records `output[0]` = the greatest element of `input` that counts; of none, the least number (minus infinity).
    ///
    /// # Errors
    /// As [`Reduce::sum`].
    pub fn max<T: Number>(
        &self,
        recorder: &mut Recorder,
        input: &Array<T>,
        output: &Array<T>,
        count: Count<'_>,
    ) -> Result<(), DeviceError> {
        self.record(recorder, Operation::Max, input, output, count)
    }

    fn record<T: Number>(
        &self,
        recorder: &mut Recorder,
        operation: Operation,
        input: &Array<T>,
        output: &Array<T>,
        count: Count<'_>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Reduce";
        let gpu = recorder.gpu().clone();
        let mut counted = Counted::new(&gpu, WHAT, count, input.len())?;
        distinct(WHAT, output.raw(), &[input.raw(), counted.raw()])?;
        holds(WHAT, "output", output.len(), 1)?;
        let profile = self.profile.unwrap_or(gpu.capabilities().profile);
        let (kernels, a_group) = match profile {
            Profile::Gpu => (&self.gpu, 1),
            Profile::Software => (&self.software, 8),
        };
        let mut input = input.clone();
        loop {
            let blocks = u64::from(counted.most).div_ceil(BLOCK).max(1);
            let target = if blocks == 1 { output.clone() } else { gpu.array("primitives::blocks", blocks)? };
            let params = Params { count: counted.most, device: counted.device, blocks: blocks as u32 };
            let arrays = [input.raw(), counted.raw(), target.raw()];
            recorder.dispatch(&kernels[place::<T>(operation)], &arrays, &params, blocks.div_ceil(a_group))?;
            if blocks == 1 {
                return Ok(());
            }
            counted = Counted::known(&gpu, WHAT, blocks)?;
            input = target;
        }
    }

    /// Its kernels of all forms.
    pub(super) fn sources(&self) -> Vec<KernelSource> {
        self.gpu.iter().chain(&self.software).map(|kernel| kernel.source().clone()).collect()
    }
}
