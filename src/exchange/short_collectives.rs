//! Collectives of short data in existing arrays: downloaded, combined along trees of the host, and
//! uploaded again.
//!
//! All ranks of the communicator call them with ranges of one length (except [`all_gather`]). They
//! submit what was recorded before and wait for the device and for other ranks; on one rank they do
//! nothing.

use std::ops::Range;

use super::ExchangeError;
use crate::comm::{Communicator, Op, Reducible};
use crate::gpu::{Array, DeviceElement, DeviceError, Recorder};
use crate::host_memory;

/// Replaces the elements of `range` by their reduction over all ranks.
///
/// # Errors
/// [`ExchangeError`] when the device or another rank fails, or the range does not lie in the array.
pub fn all_reduce<T: DeviceElement + Reducible>(
    recorder: &mut Recorder,
    comm: &Communicator,
    array: &Array<T>,
    range: Range<u64>,
    op: Op,
) -> Result<(), ExchangeError> {
    if comm.size() == 1 {
        return Ok(());
    }
    let mut values = recorder.download(array, range.start, range.end - range.start)?;
    comm.all_reduce(&mut values, op)?;
    Ok(recorder.upload(array, range.start, &values)?)
}

/// Replaces 64-bit integers, two words each with the low one first, by their sums over all ranks.
/// `range` counts words.
///
/// # Errors
/// Same as [`all_reduce`]; [`DeviceError::Misuse`] for an odd number of words.
pub fn all_reduce_wide(
    recorder: &mut Recorder,
    comm: &Communicator,
    array: &Array<u32>,
    range: Range<u64>,
) -> Result<(), ExchangeError> {
    let len = range.end - range.start;
    let why = || format!("{len} words are no whole number of 64-bit integers");
    DeviceError::ensure(len.is_multiple_of(2), "all_reduce_wide", why)?;
    if comm.size() == 1 {
        return Ok(());
    }
    let mut sums: Vec<u64> = host_memory::zeros("sums over ranks", (len / 2) as usize)?;
    recorder.download_into(array, range.start, bytemuck::cast_slice_mut(&mut sums))?;
    comm.all_reduce(&mut sums, Op::Sum)?;
    Ok(recorder.upload(array, range.start, bytemuck::cast_slice(&sums))?)
}

/// Replaces the elements of `range` by the values of the rank `root`.
///
/// # Errors
/// Same as [`all_reduce`].
pub fn broadcast<T: DeviceElement>(
    recorder: &mut Recorder,
    comm: &Communicator,
    root: usize,
    array: &Array<T>,
    range: Range<u64>,
) -> Result<(), ExchangeError> {
    if comm.size() == 1 {
        return Ok(());
    }
    let len = range.end - range.start;
    let mut values = match comm.rank() == root {
        true => recorder.download(array, range.start, len)?,
        false => host_memory::zeros("values of another rank", len as usize)?,
    };
    comm.broadcast(root, &mut values)?;
    if comm.rank() == root { Ok(()) } else { Ok(recorder.upload(array, range.start, &values)?) }
}

/// Fills `all` with the elements of all ranks' `own` arrays, in the order of ranks. The arrays may
/// have any lengths, `all` that of their sum.
///
/// # Errors
/// Same as [`all_reduce`]; [`DeviceError::Misuse`] when `all` has another length.
pub fn all_gather<T: DeviceElement>(
    recorder: &mut Recorder,
    comm: &Communicator,
    own: &Array<T>,
    all: &Array<T>,
) -> Result<(), ExchangeError> {
    let check_room = |found: u64| {
        let why = || format!("all ranks have {found} elements, there is room for {}", all.len());
        DeviceError::ensure(found == all.len(), "all_gather", why)
    };
    if comm.size() == 1 {
        check_room(own.len())?;
        return Ok(recorder.copy(own, 0, all, 0, own.len())?);
    }
    let values = recorder.download(own, 0, own.len())?;
    let (values, _) = comm.all_gather_v(&values)?.into_raw();
    check_room(values.len() as u64)?;
    Ok(recorder.upload(all, 0, &values)?)
}
