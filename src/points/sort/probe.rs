//! Counting sorted keys on the device.

use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};

crate::gpu::kernel_params! {
    struct ProbeParams {
        keys: u32,
        probes: u32,
    }
}

/// Returns the kernel that counts.
pub(super) fn kernel() -> KernelSource {
    KernelSource::new("sort::probe", include_str!("../../../shaders/points/sort/probe.wgsl")).params::<ProbeParams>()
}

/// Returns, for each of `probes`, the number of sorted `keys` that are at most as large; both are
/// high and low words. Recorded only: up to 32 halvings of 8 bytes per probe, for any number of
/// keys.
pub(crate) fn at_most(
    recorder: &mut Recorder,
    [high, low]: [&Array<u32>; 2],
    [probe_high, probe_low]: [&Array<u32>; 2],
) -> Result<Array<u32>, DeviceError> {
    let places = recorder.gpu().array("sort::places", probe_high.len())?;
    let params = ProbeParams { keys: high.len() as u32, probes: places.len() as u32 };
    let arrays = [high, low, probe_high, probe_low, &places].map(Array::raw);
    recorder.each(&Kernel::trusted(kernel()), &arrays, &params, places.len())?;
    Ok(places)
}

/// Returns the words of keys of the host, high and low. Submits.
pub(crate) fn upload(recorder: &mut Recorder, keys: &[u64]) -> Result<[Array<u32>; 2], DeviceError> {
    let mut words = |shift: u32| {
        let words: Vec<u32> = keys.iter().map(|key| (key >> shift) as u32).collect();
        recorder.uploaded("sort::probes", &words)
    };
    Ok([words(32)?, words(0)?])
}

/// Same as [`at_most`], for probes and counts on the host. Submits and waits.
pub(crate) fn count(recorder: &mut Recorder, keys: [&Array<u32>; 2], probes: &[u64]) -> Result<Vec<u64>, DeviceError> {
    let [high, low] = upload(recorder, probes)?;
    let places = at_most(recorder, keys, [&high, &low])?;
    Ok(recorder.download(&places, 0, places.len())?.into_iter().map(u64::from).collect())
}
