//! Rows that belong to points, on all ranks: where each rank's begin, and how they move between
//! ranks.

use crate::comm::Subject;
use crate::exchange::ExchangeError;
use crate::gpu::{Array, DeviceElement, DeviceError, Kernel, KernelSource, MemoryKind, Recorder};
use crate::grid::{Transfer, Transfers};
use crate::rank::Rank;

/// Returns where each of several consecutive parts begins: the exclusive prefix sum of their
/// lengths.
pub(crate) fn offsets(counts: &[u64]) -> Vec<u64> {
    counts.iter().scan(0, |next, &count| Some(std::mem::replace(next, *next + count))).collect()
}

/// Words of the host in a new array of the device.
pub(crate) fn upload_u32(recorder: &mut Recorder, words: &[u32]) -> Result<Array<u32>, DeviceError> {
    recorder.uploaded("points::rows", words)
}

crate::gpu::kernel_params! {
    struct IotaParams {
        first: u32,
        step: u32,
        count: u32,
    }
}

/// Returns the kernel that numbers rows.
pub(super) fn kernel() -> KernelSource {
    KernelSource::new("points::iota", include_str!("../../shaders/points/iota.wgsl")).params::<IotaParams>()
}

/// Returns the numbers `first`, `first + 1`, ... in a new array. Records one dispatch.
pub(crate) fn iota(recorder: &mut Recorder, first: u64, count: u64) -> Result<Array<u32>, DeviceError> {
    every(recorder, first, 1, count)
}

/// Returns the numbers `first`, `first + step`, ... in a new array. Records one dispatch.
pub(crate) fn every(recorder: &mut Recorder, first: u64, step: u32, count: u64) -> Result<Array<u32>, DeviceError> {
    let numbers = recorder.gpu().array("points::iota", count)?;
    let params = IotaParams { first: first as u32, step, count: count as u32 };
    recorder.each(&Kernel::trusted(kernel()), &[numbers.raw()], &params, count)?;
    Ok(numbers)
}

/// Returns the elements of one array, then those of another. Recorded only.
pub(crate) fn chained<T: DeviceElement>(
    recorder: &mut Recorder,
    one: &Array<T>,
    other: &Array<T>,
) -> Result<Array<T>, DeviceError> {
    let both = recorder.gpu().array("points::chained", one.len() + other.len())?;
    recorder.copy(one, 0, &both, 0, one.len())?;
    recorder.copy(other, 0, &both, one.len(), other.len())?;
    Ok(both)
}

/// Sends the rows of `outgoing`, of `width` elements each: the first `sends[0]` to rank 0, the next
/// `sends[1]` to rank 1, and so on. Returns those received, `receives[r]` from each rank `r`, in
/// rank order. Collective, also those without rows; `what` names the rows for ranks that
/// exchange others. They travel as words, exactly, whatever the wire: the order of rows may follow
/// from their numbers.
pub(crate) fn exchange_rows<T: DeviceElement>(
    rank: &mut Rank,
    what: &str,
    outgoing: &Array<T>,
    width: u64,
    [sends, receives]: [&[u64]; 2],
) -> Result<Array<T>, ExchangeError> {
    let words = width * (T::ELEMENT.bytes() / 4);
    let transfers = Transfers { send: parts(sends, words), receive: parts(receives, words) };
    let incoming = rank.gpu.array_in("points::incoming", receives.iter().sum::<u64>() * width, MemoryKind::Incoming)?;
    let subject = Subject::new(&format!("{what}, {width} {} each", T::ELEMENT.wgsl()));
    let (out, into) = (outgoing.cast::<u32>()?, incoming.cast::<u32>()?);
    rank.exchange.start_for(subject, &mut rank.recorder, &transfers, &out, &into)?.finish(&mut rank.recorder)?;
    Ok(incoming)
}

/// Returns the part of each rank, one after the other.
fn parts(counts: &[u64], width: u64) -> Vec<Transfer> {
    let parts = offsets(counts).into_iter().zip(counts).enumerate();
    let parts = parts.map(|(peer, (first, &rows))| Transfer { peer, start: first * width, len: rows * width });
    parts.filter(|part| part.len > 0).collect()
}
