//! What the communicators that stem from one another share: the thread that may call, messages left behind, the notes
//! between ranks, and the end.

use std::os::raw::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use ::mpi::ffi;

use super::Comms;
use super::calls::{Backoff, CALLS, Request, is_alive, locked};
use super::inquiries::{Answer, Inquiries, Standings, Stream};
use super::reduction::Reduction;
use crate::comm::{CommError, Result};

/// How long messages left behind may take to complete when all else is done.
const LAST_CALL: Duration = Duration::from_secs(1);
/// How long a failing rank lets lower ranks speak first: the end that a lower rank asks for must have come by then, also on
/// a machine that has more to do than processors.
const TURN: Duration = Duration::from_secs(2);
/// How long it lets a lower rank speak that has said it will.
const TURN_OF_LOWER: Duration = Duration::from_secs(8);

/// A message nobody waits for any more, kept until MPI lets go of its buffer.
pub(super) struct Forgotten {
    pub request: Request,
    /// A receive, to be withdrawn.
    pub cancel: bool,
    pub to: usize,
    pub tag: c_int,
    pub _buffer: Vec<u8>,
    pub comms: Arc<Comms>,
}

/// What the communicators that stem from one another share.
pub(in crate::comm) struct Family {
    owner: ThreadId,
    /// Whether MPI lets any thread call it, one at a time.
    serialized: bool,
    /// Whether the ranks [`leave`](Family::leave) together.
    ends: bool,
    forgotten: Mutex<Vec<Forgotten>>,
    inquiries: Inquiries,
    /// Messages of collectives sent less those taken; over all ranks they must come to zero.
    untaken: AtomicU64,
    communicators: AtomicU64,
}

impl Family {
    /// Of communicators made on this thread.
    pub(super) fn new(serialized: bool, ends: bool, inquiries: Inquiries) -> Family {
        Family {
            owner: thread::current().id(),
            serialized,
            ends,
            forgotten: Mutex::default(),
            inquiries,
            untaken: AtomicU64::new(0),
            communicators: AtomicU64::new(0),
        }
    }

    /// A number for a communicator that no other of the family has.
    pub(super) fn new_context(&self) -> u64 {
        let mine = self.communicators.fetch_add(1, Ordering::Relaxed) + 1;
        (self.inquiries.rank() as u64) << 40 | mine
    }

    pub(super) fn standings(&self) -> &Arc<Standings> {
        &self.inquiries.standings
    }

    /// Counts a message of a collective that is sent.
    pub(super) fn gave_to_collective(&self) {
        self.untaken.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message of a collective that has come.
    pub(super) fn took_of_collective(&self) {
        self.untaken.fetch_sub(1, Ordering::Relaxed);
    }

    /// Keeps a message nobody waits for, and withdraws it if it is a receive.
    pub(super) fn forget(&self, rank: usize, message: Forgotten) {
        locked(&self.forgotten).push(message);
        // Where MPI may not be called from here, a later wait does it.
        let _ = self.reap(rank);
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

    /// The lock, where MPI may be called and no other thread is in it.
    fn try_calls(&self) -> Option<MutexGuard<'static, ()>> {
        let may = self.serialized || thread::current().id() == self.owner;
        let calls = match CALLS.try_lock() {
            Ok(calls) => calls,
            Err(TryLockError::Poisoned(calls)) => calls.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (may && is_alive()).then_some(calls)
    }

    /// Lets go of forgotten messages that are complete; says whether none are left.
    pub(super) fn reap(&self, rank: usize) -> Result<bool> {
        if locked(&self.forgotten).is_empty() {
            return Ok(true);
        }
        let calls = self.calls(rank)?;
        let mut forgotten = locked(&self.forgotten);
        let is_over = |message: &mut Forgotten| {
            if std::mem::take(&mut message.cancel) {
                // SAFETY: an active receive.
                unsafe { ffi::MPI_Cancel(&mut message.request.0) };
            }
            // An error of another's leaves the request as it is, and MPI may still use its memory.
            let (_, status) = message.request.test();
            status.is_some() || message.request.is_null()
        };
        let over: Vec<Forgotten> = forgotten.extract_if(.., is_over).collect();
        let none = forgotten.is_empty();
        drop(forgotten);
        drop(calls);
        drop(over); // without the lock: the last message of a communicator frees it
        Ok(none)
    }

    /// Takes in and answers notes of other ranks.
    pub(super) fn poll(&self, rank: usize) -> Result<()> {
        let _calls = self.calls(rank)?;
        self.inquiries.poll(|to, stream| {
            locked(&self.forgotten).iter().any(|message| {
                let there = Stream { context: message.comms.context, tag: message.tag };
                message.to == to && there == stream
            })
        })
    }

    /// Asks a rank, counted in the first communicator, where it stands.
    pub(super) fn ask(&self, rank: usize, whom: usize, stream: Stream) -> Result<u64> {
        let _calls = self.calls(rank)?;
        self.inquiries.ask(whom, stream)
    }

    /// The answer to a question, which is over then.
    pub(super) fn take_answer(&self, question: u64) -> Option<Answer> {
        let answer = self.inquiries.answer(question)?;
        self.inquiries.forget(question);
        Some(answer)
    }

    /// No answer is wanted any more.
    pub(super) fn drop_question(&self, question: u64) {
        self.inquiries.forget(question);
    }

    /// Waits until all ranks are done, and says meanwhile that this one is. Does nothing for a caller's communicator.
    pub fn leave(&self) -> Result<()> {
        if !self.ends {
            return Ok(());
        }
        self.inquiries.leave();
        let rank = self.inquiries.rank();
        let mut backoff = Backoff::default();
        while !self.inquiries.is_answered() {
            self.reap(rank)?;
            self.poll(rank)?;
            backoff.pause();
        }
        let mut sum = {
            let _calls = self.calls(rank)?;
            // SAFETY: reads a constant.
            let op = unsafe { ffi::RSMPI_SUM };
            Reduction::start(rank, self.inquiries.comm(), self.untaken.load(Ordering::Relaxed), op)?
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
                    self.inquiries.end();
                    return Ok(());
                }
                Some(messages) => return Err(CommError::Untaken { messages }),
                None => backoff.pause(),
            }
        }
    }

    /// Returns when it is this rank's turn to say why it fails: not while a lower rank is about to, whose word ends this
    /// one before.
    pub fn wait_to_speak(&self) {
        let rank = self.inquiries.rank();
        let start = Instant::now();
        let mut told = false;
        let turn = || match rank {
            0 => Duration::ZERO,
            _ if self.inquiries.lower_rank_fails() => TURN_OF_LOWER,
            _ => TURN,
        };
        while start.elapsed() < turn() {
            thread::sleep(Duration::from_millis(5));
            // Another thread may be stuck inside MPI: this one has a word to say all the same.
            let Some(_calls) = self.try_calls() else { continue };
            if !std::mem::replace(&mut told, true) {
                // Where it does not reach them, two ranks may speak.
                let _ = self.inquiries.tell_failure();
            }
            let _ = self.inquiries.poll(|_, _| false);
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let start = Instant::now();
        loop {
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
