//! A message under way in MPI.

use std::mem;
use std::os::raw::c_int;
use std::sync::Arc;

use ::mpi::ffi;

use super::buffer::Buffer;
use super::calls::{Request, ok};
use super::comm::Comm;
use super::family::{Detached, Family};
use super::status::{Status, Stream};
use super::watchdog::{Reason, Verdict, Watchdog};
use crate::comm::Result;
use crate::comm::call::Call;
use crate::comm::lane::{Lane, RESERVED_TAGS};
use crate::comm::mismatch::{Did, Mismatch};
use crate::comm::sync::Backoff;
use crate::comm::transport::{Arrived, Pending};

/// The MPI tag of collectives.
const TAG_COLLECTIVE: c_int = RESERVED_TAGS.end as c_int;

/// Returns the MPI tag of a lane.
pub(super) fn tag(lane: Lane) -> c_int {
    match lane {
        Lane::User(tag) => tag as c_int,
        Lane::Collective => TAG_COLLECTIVE,
    }
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
    pub tag: c_int,
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
        let watchdog = Watchdog::default();
        Message { family, comm, ends, direction, request, buffer, came: 0, is_done: false, more: false, watchdog }
    }

    fn is_collective(&self) -> bool {
        self.ends.tag == TAG_COLLECTIVE
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
                self.family.count_received();
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
        if RESERVED_TAGS.contains(&(self.ends.tag as u32))
            && let Some(found) = self.comm.mismatch().filter(Mismatch::is_of_exchanges)
        {
            return Err(found.error());
        }
        if self.watchdog.query_is_due() {
            let stream = Stream { context: self.comm.context, tag: self.ends.tag };
            self.watchdog.query = Some(self.family.query(self.ends.rank, self.ends.other_in_family, stream)?);
        }
        let judged = match self.watchdog.query.and_then(|query| self.family.take_answer(query)) {
            Some(status) => self.watchdog.take_verdict(self.verdict(status)),
            None => Ok(()),
        };
        judged.and_then(|()| self.watchdog.still_possible()).map_err(|reason| match reason {
            Reason::Gone(error) => error,
            Reason::Mismatch(found) => {
                self.family.announce(&self.comm, &found);
                found.error()
            }
        })
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
        let mut backoff = Backoff::default();
        while !self.is_done()? {
            backoff.pause();
        }
        Ok(Arrived { bytes: self.came, more: self.more, data: self.buffer.take().into_bytes() })
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(query) = self.watchdog.query {
            self.family.drop_query(query);
        }
        let _ = self.test();
        // A test that failed has ended the request too.
        if !self.is_done {
            let detached = Detached {
                request: mem::replace(&mut self.request, Request::null()),
                cancel: matches!(self.direction, Direction::Receive(_)),
                to: self.ends.other_in_family,
                tag: self.ends.tag,
                _buffer: self.buffer.take(),
                comm: self.comm.clone(),
            };
            self.family.detach(self.ends.rank, detached);
        }
    }
}
