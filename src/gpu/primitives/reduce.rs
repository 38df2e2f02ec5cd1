//! The sum, the least and the greatest of an array.

use super::count::{COUNTED, Count, Counted, distinct, holds};
use crate::comm::Op;
use crate::gpu::{Array, DeviceElement, DeviceError, Element, Kernel, KernelSource, Profile, Recorder};

/// Elements that one level joins to one.
const BLOCK: u64 = 1024;

crate::gpu::kernel_params! {
    struct ReduceParams {
        count: u32,
        device: u32,
        /// Blocks of the input, which are the elements of the output.
        blocks: u32,
    }
}

/// A number that reductions know: `u32`, `i32` or `f32`.
pub trait Number: DeviceElement {}

impl Number for u32 {}
impl Number for i32 {}
impl Number for f32 {}

/// All pairs of an operation and an element, at the places of their kernels.
const FORMS: [(Op, Element); 9] = {
    use Element::{F32, I32, U32};
    use Op::{Max, Min, Sum};
    [(Sum, U32), (Sum, I32), (Sum, F32), (Min, U32), (Min, I32), (Min, F32), (Max, U32), (Max, I32), (Max, F32)]
};

/// Returns the bits of the value that changes nothing.
fn identity(op: Op, element: Element) -> u32 {
    match (op, element) {
        (Op::Sum, _) => 0,
        (Op::Min, Element::U32) => u32::MAX,
        (Op::Min, Element::I32) => i32::MAX as u32,
        (Op::Min, _) => f32::INFINITY.to_bits(),
        (Op::Max, Element::U32) => 0,
        (Op::Max, Element::I32) => i32::MIN as u32,
        (Op::Max, _) => f32::NEG_INFINITY.to_bits(),
    }
}

/// Reductions in a fixed tree over the index, so that sums of `f32` have the same bits in every
/// form.
///
/// The elements are cut into blocks of 1024. In a block, element `k * 64 + lane` is combined with
/// the elements of the same lane with smaller `k`, beginning with the identity; then the 64 lanes
/// are halved, lane with lane + 32, + 16, ... + 1; lanes without elements are identities. The
/// values of the blocks are reduced in the same way until one is left.
///
/// Integer sums wrap. The minimum and maximum of `f32` values with NaN among them are unspecified,
/// and so is the sign of a zero.
#[must_use = "a reduction does nothing until it is recorded"]
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

/// Returns the kernels of one form, in the order of [`FORMS`].
fn sources(profile: Profile) -> [KernelSource; 9] {
    let (text, group) = match profile {
        Profile::Gpu => (include_str!("../../../shaders/gpu/reduce/group.wgsl"), 64),
        Profile::Software => (include_str!("../../../shaders/gpu/reduce/serial.wgsl"), 8),
    };
    FORMS.map(|(op, element)| {
        let name = format!("{op:?}").to_lowercase();
        KernelSource::new(format!("primitives::reduce_{name}_{}", element.wgsl()), text)
            .params::<ReduceParams>()
            .module("gpu::counted", COUNTED)
            .module("gpu::reduce::operation", include_str!("../../../shaders/gpu/reduce/operation.wgsl"))
            .element("Value", element)
            .constant("IDENTITY", identity(op, element))
            .flag("sum", op == Op::Sum)
            .flag("min", op == Op::Min)
            .group(group)
    })
}

/// Returns all kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    [Profile::Gpu, Profile::Software].map(sources).concat()
}

impl Reduce {
    /// Reductions in the form that the device wants.
    pub fn new() -> Self {
        let [gpu, software] = [Profile::Gpu, Profile::Software].map(|profile| sources(profile).map(Kernel::trusted));
        Reduce { profile: None, gpu, software }
    }

    /// Reductions in the form for such devices, on any device.
    pub fn with(profile: Profile) -> Self {
        Reduce { profile: Some(profile), ..Self::new() }
    }

    /// Records `output[0]` = the sum, the least or the greatest of the elements of `input` that
    /// count; of none, 0, the greatest number (infinity) or the least number (minus infinity).
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when `output` is empty or `input` itself; as [`Recorder::dispatch`].
    pub fn record<T: Number>(
        &self,
        recorder: &mut Recorder,
        op: Op,
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
        let (kernels, blocks_per_group) = match profile {
            Profile::Gpu => (&self.gpu, 1),
            Profile::Software => (&self.software, 8),
        };
        let form = FORMS.iter().position(|form| *form == (op, T::ELEMENT));
        let kernel = &kernels[form.expect("numbers are u32, i32 and f32")];
        let mut input = input.clone();
        loop {
            let blocks = u64::from(counted.most).div_ceil(BLOCK).max(1);
            let target = if blocks == 1 { output.clone() } else { gpu.array("primitives::blocks", blocks)? };
            let params = ReduceParams { count: counted.most, device: counted.device, blocks: blocks as u32 };
            let arrays = [input.raw(), counted.raw(), target.raw()];
            recorder.dispatch(kernel, &arrays, &params, blocks.div_ceil(blocks_per_group))?;
            if blocks == 1 {
                return Ok(());
            }
            counted = Counted::known(&gpu, WHAT, blocks)?;
            input = target;
        }
    }
}
