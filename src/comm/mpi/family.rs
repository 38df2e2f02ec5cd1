//! State shared by a communicator and all communicators split from it.

use std::mem::ManuallyDrop;
use std::os::raw::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use ::mpi::ffi;

use super::calls::Reduction;
use super::status::{Findings, LastCalls, Stream};
use super::{Buffer, CALLS, Handle, Request, StatusProtocol, is_alive};
use crate::comm::cycle::Cycle;
use crate::comm::waits::LastUser;
use crate::comm::{Backoff, CommError, Mismatch, Result, Wait, Waits};
use crate::parallel::{locked, try_locked};

/// An MPI communicator behind a [`Communicator`](crate::comm::Communicator). As long as it exists,
/// messages on it may be under way.
pub(super) struct Comm {
    pub handle: ManuallyDrop<Handle>,
    /// Its number in the family.
    pub context: u64,
    /// Its ranks, counted in the first communicator of its family.
    pub members: Arc<[usize]>,
    pub last_calls: Arc<LastCalls>,
    pub findings: Arc<Findings>,
    pub waits: Arc<Waits>,
    pub last_user: LastUser,
}

impl Comm {
    /// Returns the first mismatch that was found in it, here or by a rank that has told this one.
    pub fn mismatch(&self) -> Option<Mismatch> {
        self.findings.mismatch(self.context)
    }

    /// Returns `true` if something was found from which its ranks are out of step.
    pub fn is_out_of_step(&self) -> bool {
        self.mismatch().is_some() || self.findings.deadlock().is_some()
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.last_calls.remove(self.context);
        self.waits.leave(self.context);
        // Messages of ranks that are out of step may still arrive. Keep the communicator then: a
        // new one could get its number, and these messages.
        if !self.is_out_of_step() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.handle) };
        }
    }
}

/// Time for detached messages to complete when the last communicator is dropped.
const DRAIN_TIME: Duration = Duration::from_secs(1);
/// Time that a failing rank waits for lower ranks to report a failure and end all. It is long
/// enough for that end to arrive on a machine with more processes than processors.
const YIELD_TIME: Duration = Duration::from_secs(2);
/// Same as [`YIELD_TIME`], after a lower rank has announced its failure.
const YIELD_TIME_ANNOUNCED: Duration = Duration::from_secs(8);
/// Minimum time that a failing rank listens for lower ones before it announces its own failure.
const LISTEN_TIME: Duration = Duration::from_millis(5);

/// Time for the notes of a finding to leave. A rank that does not receive them is stopped, or
/// ends.
const ANNOUNCE_TIME: Duration = Duration::from_secs(2);

/// A message that was dropped while it was under way, kept until MPI has done with its buffer.
pub(super) struct Detached {
    pub request: Request,
    /// Whether it is a receive that is still to be cancelled.
    pub cancel: bool,
    pub to: usize,
    pub tag: c_int,
    pub _buffer: Buffer,
    pub comm: Arc<Comm>,
}

/// State shared by a communicator and all communicators split from it: the thread that may call
/// MPI, the detached messages, the status protocol, and counters.
pub(in crate::comm) struct Family {
    owner: ThreadId,
    /// Whether MPI lets any thread call it, one at a time.
    serialized: bool,
    /// Whether the ranks [`leave`](Family::leave) together.
    ends: bool,
    detached: Mutex<Vec<Detached>>,
    pub(super) protocol: StatusProtocol,
    /// Messages of collectives sent less those received, modulo 2^64; the sum over all ranks must
    /// be zero at the end.
    pub(super) untaken: AtomicU64,
    communicators: AtomicU64,
}

impl Family {
    /// Creates the state of communicators that are created on this thread.
    pub(super) fn new(serialized: bool, ends: bool, protocol: StatusProtocol) -> Family {
        Family {
            owner: thread::current().id(),
            serialized,
            ends,
            detached: Mutex::default(),
            protocol,
            untaken: AtomicU64::new(0),
            communicators: AtomicU64::new(0),
        }
    }

    /// Returns a number for a communicator that no other of the family has.
    pub(super) fn new_context(&self) -> u64 {
        let mine = self.communicators.fetch_add(1, Ordering::Relaxed) + 1;
        (self.protocol.rank as u64) << 40 | mine
    }

    /// Keeps a message that was dropped while under way; a receive is cancelled.
    pub(super) fn detach(&self, rank: usize, message: Detached) {
        locked(&self.detached).push(message);
        // Where this thread may not call MPI, a later wait does it.
        let _ = self.reap(rank);
    }

    /// Takes the lock for calls into MPI.
    pub(super) fn calls(&self, rank: usize) -> Result<MutexGuard<'static, ()>> {
        let refuse = |text: &str| CommError::Mpi { rank, call: "a call of MPI", text: text.to_owned() };
        if !self.serialized && thread::current().id() != self.owner {
            return Err(refuse(
                "MPI was initialized without MPI_THREAD_SERIALIZED, so only the thread that made the communicator may use it",
            ));
        }
        let calls = locked(&CALLS);
        if is_alive() { Ok(calls) } else { Err(refuse("MPI is finalized")) }
    }

    /// Returns the lock for calls into MPI, where this thread may call it and no other holds the
    /// lock.
    fn try_calls(&self) -> Option<MutexGuard<'static, ()>> {
        let may = self.serialized || thread::current().id() == self.owner;
        let calls = try_locked(&CALLS)?;
        (may && is_alive()).then_some(calls)
    }

    /// Drops detached messages that are complete; returns whether none are left.
    pub(super) fn reap(&self, rank: usize) -> Result<bool> {
        if locked(&self.detached).is_empty() {
            return Ok(true);
        }
        let calls = self.calls(rank)?;
        let mut detached = locked(&self.detached);
        let is_over = |message: &mut Detached| {
            if std::mem::take(&mut message.cancel) {
                // SAFETY: an active receive.
                unsafe { ffi::MPI_Cancel(&mut message.request.0) };
            }
            // An error that another request caused leaves this one active, and MPI may still use
            // its memory.
            let (_, status) = message.request.test();
            status.is_some() || message.request.is_null()
        };
        let over: Vec<Detached> = detached.extract_if(.., is_over).collect();
        let none = detached.is_empty();
        drop(detached);
        drop(calls);
        drop(over); // after the lock is released: the last message of a communicator frees it, which takes the lock
        Ok(none)
    }

    /// Handles notes of the status protocol.
    pub(super) fn poll(&self, rank: usize) -> Result<()> {
        let _calls = self.calls(rank)?;
        self.protocol.poll(|to, stream| {
            locked(&self.detached).iter().any(|message| {
                let sending = Stream { context: message.comm.context, tag: message.tag };
                message.to == to && sending == stream
            })
        })
    }

    /// Asks the rank that `wait` is for, of which a message of `stream` is waited for, for its
    /// status; returns the query's number.
    pub(super) fn query(&self, rank: usize, stream: Stream, wait: Wait) -> Result<u64> {
        let _calls = self.calls(rank)?;
        self.protocol.query(stream, wait)
    }

    /// Returns the communicator of this number in it, whose last call it knows already.
    pub(super) fn comm(&self, handle: Handle, context: u64, members: Arc<[usize]>) -> Comm {
        let StatusProtocol { last_calls, findings, waits, .. } = &self.protocol;
        let (last_calls, findings, waits) = (last_calls.clone(), findings.clone(), waits.clone());
        let (handle, last_user) = (ManuallyDrop::new(handle), waits.join(context));
        Comm { handle, context, members, last_calls, findings, waits, last_user }
    }

    /// Sends the finding of this rank to all other ranks of a communicator, unless it came from one
    /// of them, and waits until the notes are on their way: from now on this rank may not call MPI.
    pub(super) fn announce(&self, comm: &Comm, found: &Mismatch) {
        let rank = found.rank;
        let sent = {
            let Ok(_calls) = self.calls(rank) else { return };
            self.protocol.announce_mismatch(comm.context, &comm.members, found)
        };
        // A failure of MPI is said elsewhere; this rank has an error to report.
        if matches!(sent, Ok(true)) {
            self.send_notes(rank);
        }
    }

    /// Returns the error of ranks that wait for each other, after it has sent it to all other
    /// ranks, unless it has come from one of them.
    pub(super) fn announce_deadlock(&self, rank: usize, cycle: &Cycle) -> CommError {
        let sent = self.calls(rank).and_then(|_calls| self.protocol.announce_deadlock(cycle));
        self.send_notes(rank);
        sent.unwrap_or_else(|error| error)
    }

    /// Waits until notes are on their way.
    fn send_notes(&self, rank: usize) {
        let (start, mut backoff) = (Instant::now(), Backoff::default());
        while start.elapsed() < ANNOUNCE_TIME && !self.protocol.is_sent() {
            if self.poll(rank).is_err() {
                return;
            }
            backoff.pause();
        }
    }

    /// Waits until all ranks have returned from their bodies, answering queries meanwhile. Does
    /// nothing for a caller's communicator.
    ///
    /// # Errors
    /// [`CommError::Untaken`] where messages of collectives were sent that no rank has received.
    pub fn leave(&self) -> Result<()> {
        if !self.ends {
            return Ok(());
        }
        self.protocol.leave();
        let rank = self.protocol.rank;
        let mut backoff = Backoff::default();
        while !self.protocol.is_answered() {
            self.reap(rank)?;
            self.poll(rank)?;
            backoff.pause();
        }
        let mut sum = {
            let _calls = self.calls(rank)?;
            // SAFETY: reads a constant.
            let op = unsafe { ffi::RSMPI_SUM };
            Reduction::start(rank, self.protocol.comm.0, self.untaken.load(Ordering::Relaxed), op)?
        };
        loop {
            self.reap(rank)?;
            self.poll(rank)?;
            let done = {
                let _calls = self.calls(rank)?;
                sum.poll()?
            };
            match done {
                Some(0) => {
                    let _calls = self.calls(rank)?;
                    self.protocol.end();
                    return Ok(());
                }
                Some(messages) => return Err(CommError::Untaken { messages }),
                None => backoff.pause(),
            }
        }
    }

    /// Announces that this rank fails, unless a lower one has, and waits for lower ranks that fail
    /// too: the lowest one reports its failure and ends all. Returns when this rank is to do so.
    pub fn yield_to_lower_ranks(&self) {
        let rank = self.protocol.rank;
        let (start, listening) = (Instant::now(), listen_time(rank));
        let mut announced = false;
        let limit = || match rank {
            0 => Duration::ZERO,
            _ if self.protocol.lower_rank_fails() => YIELD_TIME_ANNOUNCED,
            _ => YIELD_TIME,
        };
        while start.elapsed() < limit() {
            thread::sleep(LISTEN_TIME);
            // Another thread may be stuck inside MPI; this one fails nevertheless.
            let Some(_calls) = self.try_calls() else { continue };
            self.protocol.fail();
            let _ = self.protocol.poll(|_, _| false);
            // A lower rank has told all that this one would tell.
            if !announced && start.elapsed() >= listening && !self.protocol.lower_rank_fails() {
                announced = true;
                // If it does not arrive, two ranks may report.
                let _ = self.protocol.announce_failure();
            }
        }
    }
}

/// Returns how long a failing rank listens for lower ones. Of all ranks that fail together the
/// lowest announce it first, twice as many after each step, so that most have heard of it before
/// they would tell all those above them.
fn listen_time(rank: usize) -> Duration {
    LISTEN_TIME * (usize::BITS - rank.leading_zeros())
}

impl Drop for Family {
    fn drop(&mut self) {
        let start = Instant::now();
        loop {
            if self.reap(0).is_ok_and(|none| none) {
                break;
            }
            if start.elapsed() > DRAIN_TIME || !is_alive() {
                let left = std::mem::take(&mut *locked(&self.detached));
                tracing::warn!(messages = left.len(), "messages were sent or withdrawn but never completed");
                // MPI may still read or write the buffers.
                std::mem::forget(left);
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_ranks_announce_their_failure_before_most_others() {
        let steps = |rank| listen_time(rank).div_duration_f64(LISTEN_TIME);
        assert_eq!([0, 1, 2, 3, 4, 7, 8, 10_000].map(steps), [0.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 14.0]);
        assert!(listen_time(usize::MAX) < YIELD_TIME);
    }
}
