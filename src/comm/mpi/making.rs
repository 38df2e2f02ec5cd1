//! Making communicators, which MPI only does in calls that block.
//!
//! A blocking call under the lock stops all other threads of the process until the last rank has made it. So it is made
//! when that takes no time: when every rank has arrived and none of their processes is making another communicator. To
//! find out, each rank tries to take its process's turn and all reduce whether they have; where one has not, all give
//! theirs back and try again. Two threads of each of two processes that make two communicators in different order thus
//! never wait for each other inside MPI.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;
use std::time::Duration;

use ::mpi::ffi;

use super::calls::{Backoff, CALLS, Handle, is_alive, locked};
use super::reduction::Reduction;
use crate::comm::{CommError, Result};

/// The turn of this process to make a communicator.
static TURN: Mutex<()> = Mutex::new(());

/// What happened on all ranks of `comm`, the least of their numbers. Other threads may call MPI meanwhile.
fn least(rank: usize, comm: ffi::MPI_Comm, mine: u64) -> Result<u64> {
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
                return Err(CommError::Mpi { rank, call: "MPI_Test", text: "MPI is finalised".to_owned() });
            }
            if let Some(least) = reduction.poll()? {
                return Ok(least);
            }
        }
        backoff.pause();
    }
}

/// Waits until the ranks of `comm`, all of which have arrived, have their turns.
fn turn(rank: usize, comm: ffi::MPI_Comm) -> Result<MutexGuard<'static, ()>> {
    let mut longest = 1 << 13;
    loop {
        let mine = match TURN.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let all = least(rank, comm, u64::from(mine.is_some()))? == 1;
        match mine {
            Some(turn) if all => return Ok(turn),
            mine => drop(mine),
        }
        // Of different length each time, so that two communicators that are in each other's way get out of it; the same on all ranks
        // of one, since of many that pause differently some would always be in the way.
        let pause = least(rank, comm, RandomState::new().hash_one(rank))? % longest;
        longest = (longest * 2).min(1 << 20);
        thread::sleep(Duration::from_micros(pause));
    }
}

/// Duplicates a communicator twice. Collective; only this thread waits for ranks that are late.
///
/// # Safety
/// `comm` is a valid communicator.
pub unsafe fn duplicate_twice(rank: usize, comm: ffi::MPI_Comm) -> Result<(Handle, Handle)> {
    least(rank, comm, 0)?;
    let _turn = turn(rank, comm)?;
    let duplicate = || {
        // SAFETY: promised by the caller; all ranks are here.
        let made = Handle::made(rank, "MPI_Comm_dup", |new| unsafe { ffi::MPI_Comm_dup(comm, new) })?;
        made.ok_or(CommError::Mpi { rank, call: "MPI_Comm_dup", text: "it gave no communicator".to_owned() })
    };
    Ok((duplicate()?, duplicate()?))
}

/// Splits a communicator, all ranks of which have arrived. Collective; `part` is the number of this rank's part and its
/// place in it.
pub fn split(rank: usize, comm: &Handle, part: Option<(usize, usize)>) -> Result<Option<Handle>> {
    let _turn = turn(rank, comm.0)?;
    // SAFETY: the communicator is valid; all its ranks are here.
    Handle::made(rank, "MPI_Comm_split", |new| unsafe {
        let (color, key) = part.map_or((ffi::RSMPI_UNDEFINED, 0), |(number, place)| (number as i32, place as i32));
        ffi::MPI_Comm_split(comm.0, color, key, new)
    })
}
