//! Ranges of the numbers of the points of each leaf.

use super::levels::LEAF;
use crate::gpu::{Array, CountParams, DeviceError, Kernel, KernelSource, Recorder};
use crate::host_memory;

/// Invocations of a workgroup, of which four share a leaf.
const GROUP: u32 = 64;

pub(super) fn kernel() -> KernelSource {
    KernelSource::new("tree::leaf_ranges", include_str!("../../../shaders/points/tree/leaf_ranges.wgsl"))
        .params::<CountParams>()
        .constant("LEAF", LEAF as u32)
        .group(GROUP)
}

/// Returns the least and the greatest of `values`, one for each point along the curve of a tree, in
/// each leaf: two words. Waits for them, a 16th of the values.
///
/// # Errors
/// [`DeviceError`] when memory is short or the device fails.
pub(crate) fn leaf_ranges(recorder: &mut Recorder, values: &Array<u32>) -> Result<Vec<[u32; 2]>, DeviceError> {
    let count = values.len();
    let ranges = recorder.gpu().array::<u32>("tree::leaf_ranges", 2 * count.div_ceil(LEAF))?;
    let params = CountParams { count: count as u32 };
    let groups = count.div_ceil(LEAF / 4 * u64::from(GROUP));
    recorder.dispatch(&Kernel::trusted(kernel()), &[values.raw(), ranges.raw()], &params, groups)?;
    let words = recorder.download(&ranges, 0, ranges.len())?;
    Ok(host_memory::copy("ranges of leaves", words.as_chunks().0)?)
}
