//! What the communicators that stem from one another share: the thread that may call, and messages left behind.

use std::os::raw::c_int;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use ::mpi::ffi;

use super::Comms;
use super::calls::{Backoff, CALLS, Request, is_alive, locked};
use super::departures::Departures;
use crate::comm::{CommError, Result};

/// How long messages left behind may take to complete when all else is done.
const LAST_CALL: Duration = Duration::from_secs(1);

/// A message nobody waits for any more, kept until MPI lets go of its buffer.
struct Forgotten {
    request: Request,
    cancel: bool,
    _buffer: Vec<u8>,
    _comms: Arc<Comms>,
}

/// What the communicators that stem from one another share.
pub(in crate::comm) struct Family {
    owner: ThreadId,
    /// Whether MPI lets any thread call it, one at a time.
    serialized: bool,
    forgotten: Mutex<Vec<Forgotten>>,
    departures: Option<Departures>,
}

impl Family {
    /// Of communicators made on this thread.
    pub(super) fn new(serialized: bool, departures: Option<Departures>) -> Family {
        Family { owner: thread::current().id(), serialized, forgotten: Mutex::default(), departures }
    }

    /// Keeps a message nobody waits for, and withdraws it if it is a receive.
    pub(super) fn forget(&self, rank: usize, request: Request, cancel: bool, buffer: Vec<u8>, comms: Arc<Comms>) {
        locked(&self.forgotten).push(Forgotten { request, cancel, _buffer: buffer, _comms: comms });
        // Where MPI may not be called from here, a later wait does it.
        let _ = self.reap(rank);
    }

    /// Whether a rank, counted in the first communicator, left so long ago that no message of it can be on its way.
    pub(super) fn is_gone(&self, rank: usize) -> bool {
        self.departures.as_ref().is_some_and(|departures| departures.is_gone(rank))
    }

    /// Takes the lock for calls into MPI.
    pub(super) fn calls(&self, rank: usize) -> Result<MutexGuard<'static, ()>> {
        let refuse = |text: &str| CommError::Mpi { rank, call: "a call of MPI", text: text.to_owned() };
        if !self.serialized && thread::current().id() != self.owner {
            return Err(refuse(
                "MPI was initialised without MPI_THREAD_SERIALIZED, so only the thread that made the communicator may use it",
            ));
        }
        let calls = locked(&CALLS);
        if is_alive() { Ok(calls) } else { Err(refuse("MPI is finalised")) }
    }

    /// Lets go of forgotten messages that are complete; says whether none are left.
    fn reap(&self, rank: usize) -> Result<bool> {
        let calls = self.calls(rank)?;
        let mut forgotten = locked(&self.forgotten);
        let is_over = |message: &mut Forgotten| {
            if std::mem::take(&mut message.cancel) {
                // SAFETY: an active receive.
                unsafe { ffi::MPI_Cancel(&mut message.request.0) };
            }
            let (code, status) = message.request.test();
            code != ffi::MPI_SUCCESS as c_int || status.is_some()
        };
        let over: Vec<Forgotten> = forgotten.extract_if(.., is_over).collect();
        let none = forgotten.is_empty();
        drop(forgotten);
        drop(calls);
        drop(over); // without the lock: the last message of a communicator frees it
        Ok(none)
    }

    /// Polls what runs besides the message waited for.
    pub(super) fn progress(&self, rank: usize) -> Result<()> {
        if !locked(&self.forgotten).is_empty() {
            self.reap(rank)?;
        }
        if let Some(departures) = &self.departures {
            let _calls = self.calls(rank)?;
            departures.poll();
        }
        Ok(())
    }

    /// Waits until all ranks are done, and tells them meanwhile that this one is. Does nothing for a caller's
    /// communicator.
    pub fn leave(&self) -> Result<()> {
        let Some(departures) = &self.departures else { return Ok(()) };
        departures.announce(self)?;
        let mut backoff = Backoff::default();
        loop {
            self.progress(departures.rank())?;
            if departures.are_complete() {
                return Ok(());
            }
            backoff.pause();
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let start = Instant::now();
        loop {
            if locked(&self.forgotten).is_empty() {
                break;
            }
            if self.reap(0).is_ok_and(|none| none) {
                break;
            }
            if start.elapsed() > LAST_CALL || !is_alive() {
                let left = std::mem::take(&mut *locked(&self.forgotten));
                tracing::warn!(messages = left.len(), "messages were sent or withdrawn but never completed");
                // MPI may still read or write the buffers.
                std::mem::forget(left);
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}
