//! Making communicators, which MPI only does in calls that block.
//!
//! A blocking call under the lock of MPI calls stops all other threads of the process until the
//! last rank has made it. So it is only made when it cannot wait: all ranks have arrived, and no
//! process among them is making another communicator. To find out, each rank tries to lock its
//! process's [`CREATING`] and all ranks reduce whether they could; if one could not, all unlock and
//! try again. So two threads in each of two processes that make two communicators in different
//! order do not wait for each other inside MPI.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::Duration;

use ::mpi::ffi;

use super::calls::{CALLS, Handle, is_alive};
use super::reduction::Reduction;
use crate::comm::sync::Backoff;
use crate::comm::{CommError, Result};
use crate::parallel::locked;

/// Held by the thread of this process that makes a communicator.
static CREATING: Mutex<()> = Mutex::new(());

/// Returns the minimum of the numbers of all ranks of `comm`. Other threads may call MPI meanwhile.
fn minimum(rank: usize, comm: ffi::MPI_Comm, mine: u64) -> Result<u64> {
    // SAFETY: reads a constant.
    let min = unsafe { ffi::RSMPI_MIN };
    let mut reduction = {
        let _calls = locked(&CALLS);
        Reduction::start(rank, comm, mine, min)?
    };
    let mut backoff = Backoff::default();
    loop {
        {
            let _calls = locked(&CALLS);
            if !is_alive() {
                return Err(CommError::Mpi { rank, call: "MPI_Test", text: "MPI is finalized".to_owned() });
            }
            if let Some(minimum) = reduction.poll()? {
                return Ok(minimum);
            }
        }
        backoff.pause();
    }
}

/// Locks [`CREATING`] on all ranks of `comm`, all of which have arrived.
fn lock_on_all_ranks(rank: usize, comm: ffi::MPI_Comm) -> Result<MutexGuard<'static, ()>> {
    let mut longest = 1 << 13;
    loop {
        let mine = match CREATING.try_lock() {
            Ok(lock) => Some(lock),
            Err(TryLockError::Poisoned(lock)) => Some(lock.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let all = minimum(rank, comm, u64::from(mine.is_some()))? == 1;
        match mine {
            Some(lock) if all => return Ok(lock),
            mine => drop(mine),
        }
        // A random pause, so that two communicators that block each other do not try again at the
        // same time. The ranks of one communicator pause equally long: with pauses of their own,
        // some would always hold the lock when others try.
        let pause = minimum(rank, comm, RandomState::new().hash_one(rank))? % longest;
        longest = (longest * 2).min(1 << 20);
        thread::sleep(Duration::from_micros(pause));
    }
}

/// Duplicates a communicator twice. Collective; only this thread waits for ranks that are late.
///
/// # Safety
/// `comm` is a valid communicator.
pub unsafe fn duplicate_twice(rank: usize, comm: ffi::MPI_Comm) -> Result<(Handle, Handle)> {
    minimum(rank, comm, 0)?; // all ranks have arrived
    let _creating = lock_on_all_ranks(rank, comm)?;
    let duplicate = || {
        // SAFETY: promised by the caller; all ranks are here.
        let made = Handle::make(rank, "MPI_Comm_dup", |new| unsafe { ffi::MPI_Comm_dup(comm, new) })?;
        made.ok_or(CommError::Mpi { rank, call: "MPI_Comm_dup", text: "it gave no communicator".to_owned() })
    };
    Ok((duplicate()?, duplicate()?))
}

/// Splits a communicator, all ranks of which have arrived. Collective; `part` is the number of this
/// rank's part and its place in it.
pub fn split(rank: usize, comm: &Handle, part: Option<(usize, usize)>) -> Result<Option<Handle>> {
    let _creating = lock_on_all_ranks(rank, comm.0)?;
    // SAFETY: the communicator is valid; all its ranks are here.
    Handle::make(rank, "MPI_Comm_split", |new| unsafe {
        let (color, key) = part.map_or((ffi::RSMPI_UNDEFINED, 0), |(number, place)| (number as i32, place as i32));
        ffi::MPI_Comm_split(comm.0, color, key, new)
    })
}
