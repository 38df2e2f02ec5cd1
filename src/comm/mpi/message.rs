//! A message under way in MPI.

use std::mem;
use std::os::raw::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::mpi::ffi;

use super::family::Detached;
use super::status::{Status, Stream};
use super::watchdog::ChainSearch;
use super::watchdog::{Reason, Verdict, Watchdog};
use super::{Buffer, Comm, Family, Request, ok};
use crate::comm::cycle::Cycle;
use crate::comm::{
    Arrived, Backoff, Blocked, BlockingOperation, Call, CommError, Did, Lane, Mismatch, Pending, Result, Side, Wait,
};

/// Returns the MPI tag of a lane.
pub(super) fn tag(lane: Lane) -> c_int {
    lane.tag() as c_int
}

/// Whether this rank sends or receives a message.
pub(super) enum Direction {
    Send,
    /// With the number of bytes asked for.
    Receive(usize),
}

/// The two ends of a message.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub rank: usize,
    pub other: usize,
    /// `other`, counted in the first communicator of the family.
    pub other_in_family: usize,
    pub lane: Lane,
}

/// A message under way. MPI reads or writes `buffer` until `is_done`.
pub(super) struct Message {
    family: Arc<Family>,
    comm: Arc<Comm>,
    ends: Ends,
    direction: Direction,
    request: Request,
    buffer: Buffer,
    /// Bytes received.
    came: usize,
    is_done: bool,
    /// Whether there was more than was asked for.
    more: bool,
    watchdog: Watchdog,
    /// The search for ranks that wait for each other, in a long wait.
    chains: Option<Box<ChainSearch>>,
}

impl Message {
    /// A message that MPI has just begun to move.
    pub fn new(
        family: Arc<Family>,
        comm: Arc<Comm>,
        ends: Ends,
        direction: Direction,
        request: Request,
        buffer: Buffer,
    ) -> Message {
        let (watchdog, chains) = (Watchdog::default(), None);
        let (came, is_done, more) = (0, false, false);
        Message { family, comm, ends, direction, request, buffer, came, is_done, more, watchdog, chains }
    }

    fn is_collective(&self) -> bool {
        self.ends.lane == Lane::Collective
    }

    fn test(&mut self) -> Result<bool> {
        if self.is_done {
            return Ok(true);
        }
        let rank = self.ends.rank;
        let _calls = self.family.calls(rank)?;
        let (code, status) = self.request.test();
        if code != ffi::MPI_SUCCESS as c_int {
            self.is_done = true; // MPI frees a request that failed
            if !self.request.is_null() {
                // Another request failed: MPI may still use the memory of this one.
                mem::forget(self.buffer.take());
            }
            let mut class = 0;
            // SAFETY: MPI is alive.
            unsafe { ffi::MPI_Error_class(code, &mut class) };
            self.more = class == ffi::MPI_ERR_TRUNCATE as c_int;
            return if self.more { Ok(true) } else { ok(rank, "MPI_Test", code).map(|()| true) };
        }
        let Some(status) = status else { return Ok(false) };
        self.is_done = true;
        if let Direction::Receive(bytes) = self.direction {
            let mut count = 0;
            // SAFETY: the status is that of a receive.
            let code = unsafe { ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &mut count) };
            ok(rank, "MPI_Get_count", code)?;
            self.came = (count.max(0) as usize).min(bytes);
            // SAFETY: MPI has written this number of bytes, at most the capacity it was given.
            unsafe { self.buffer.arrived(self.came) };
            if self.is_collective() {
                self.family.untaken.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Ok(true)
    }

    /// After a test that found it under way: fails where it cannot be received or sent any more.
    fn still_possible(&mut self) -> Result<()> {
        self.family.reap(self.ends.rank)?;
        if !self.watchdog.is_long() {
            return Ok(());
        }
        self.family.poll(self.ends.rank)?;
        if let Some(call) = self.call()
            && let Some(found) = self.comm.mismatch()
            && let Some(found) = found.as_seen_by(self.ends.rank, &call)
        {
            return Err(found.error());
        }
        if self.ends.lane.is_reserved()
            && let Some(found) = self.comm.mismatch().filter(Mismatch::is_of_exchanges)
        {
            return Err(found.error());
        }
        if let Some(error) = self.comm.findings.deadlock() {
            return Err(error);
        }
        let own = self.comm.waits.check(self.side(), self.ends.other_in_family);
        if self.watchdog.query_is_due() {
            let stream = Stream { context: self.comm.context, tag: tag(self.ends.lane) };
            self.watchdog.query = Some(self.family.query(self.ends.rank, stream, own)?);
            self.chains.get_or_insert_default().set_own(own);
        }
        if let Some(answer) = self.watchdog.query.and_then(|query| self.family.protocol.take_answer(query)) {
            let verdict = self.verdict(answer.status);
            self.watchdog.take_verdict(verdict).map_err(|reason| self.error(reason))?;
            self.search(|chains| chains.begin(answer.wait))?;
        }
        let query = self.chains.as_ref().and_then(|chains| chains.query());
        if let Some(answer) = query.and_then(|query| self.family.protocol.take_answer(query)) {
            self.search(|chains| chains.follow(answer.wait))?;
        }
        self.watchdog.still_possible().map_err(|reason| self.error(reason))
    }

    /// Does a step of the search for ranks that wait for each other, and asks the next rank if
    /// there is one.
    fn search(&mut self, step: impl FnOnce(&mut ChainSearch) -> Result<Option<Wait>, Cycle>) -> Result<()> {
        let Some(chains) = &mut self.chains else { return Ok(()) };
        let next = step(chains).map_err(|cycle| self.family.announce_deadlock(self.ends.rank, &cycle))?;
        chains.unwanted().into_iter().for_each(|query| self.family.protocol.drop_query(query));
        if let Some(next) = next {
            let stream = Stream { context: next.context, tag: next.tag as c_int };
            chains.set_query(self.family.query(self.ends.rank, stream, next)?, next);
        }
        Ok(())
    }

    /// Returns the error of a message that does not come, and announces it where others need it.
    fn error(&self, reason: Reason) -> CommError {
        match reason {
            Reason::Gone(error) => error,
            Reason::Mismatch(found) => {
                self.family.announce(&self.comm, &found);
                found.error()
            }
        }
    }

    fn side(&self) -> Side {
        let sends = matches!(self.direction, Direction::Send);
        Side::of_message(self.comm.context, self.ends.lane, sends)
    }

    /// Notes that this thread blocks for the message, if it belongs to a collective.
    fn block(&self) -> Option<Blocked> {
        let (call, Side { context, sends, .. }) = (self.call()?, self.side());
        let operation = BlockingOperation::collective(context, call, self.ends.other_in_family, sends);
        Some(self.comm.waits.begin(vec![operation]))
    }

    /// Returns the collective that this rank is in, if the message belongs to one.
    fn call(&self) -> Option<Call> {
        self.comm.last_calls.get(self.comm.context).filter(|_| self.is_collective())
    }

    /// Returns what the other rank's status means for this message.
    fn verdict(&self, status: Status) -> Verdict {
        let Ends { rank, other, other_in_family, .. } = self.ends;
        let mismatch = |call, did| Reason::Mismatch(Mismatch::of_collectives(rank, call, other, did));
        match (status, self.call()) {
            (Status::Gone(gone), Some(call)) => Verdict::Suspect(mismatch(call, Did::Gone(gone))),
            (Status::Gone(gone), None) => Verdict::Suspect(Reason::Gone(match self.direction {
                Direction::Receive(_) => gone.in_wait_for_message(other_in_family),
                Direction::Send => gone.in_wait_to_send(other_in_family),
            })),
            (Status::Called(theirs), Some(call)) if call.is_contradicted_by(&theirs) => {
                let reason = mismatch(call, Did::Called(theirs));
                if call.is_before(&theirs) { Verdict::Suspect(reason) } else { Verdict::Impossible(reason) }
            }
            _ => Verdict::Possible,
        }
    }
}

impl Pending for Message {
    fn is_done(&mut self) -> Result<bool> {
        if self.test()? {
            return Ok(true);
        }
        self.still_possible().map(|()| false)
    }

    fn wait(mut self: Box<Self>) -> Result<Arrived> {
        let (mut backoff, mut blocked) = (Backoff::default(), None);
        while !self.is_done()? {
            if self.watchdog.has_become_long() {
                blocked.get_or_insert_with(|| self.block());
            }
            backoff.pause();
        }
        Ok(Arrived { bytes: self.came, more: self.more, data: self.buffer.take().into_bytes() })
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        let chains = self.chains.take().map(|chains| chains.end());
        for query in chains.into_iter().flatten().chain(self.watchdog.query) {
            self.family.protocol.drop_query(query);
        }
        let _ = self.test();
        // A test that failed has ended the request too.
        if !self.is_done {
            let detached = Detached {
                request: mem::replace(&mut self.request, Request::null()),
                cancel: matches!(self.direction, Direction::Receive(_)),
                to: self.ends.other_in_family,
                tag: tag(self.ends.lane),
                _buffer: self.buffer.take(),
                comm: self.comm.clone(),
            };
            self.family.detach(self.ends.rank, detached);
        }
    }
}
