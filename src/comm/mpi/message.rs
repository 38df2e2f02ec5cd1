//! A message under way in MPI.

use std::mem;
use std::os::raw::c_int;
use std::sync::Arc;

use ::mpi::ffi;

use super::Comms;
use super::TAG_COLLECTIVE;
use super::calls::{Backoff, Request, ok};
use super::family::{Family, Forgotten};
use super::inquiries::{Answer, Stream};
use super::watch::{Verdict, Watch};
use crate::comm::Result;
use crate::comm::transport::{Arrived, Pending};

/// Which way a message goes.
pub(super) enum Way {
    Out,
    /// So many bytes were asked for.
    In(usize),
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
    pub family: Arc<Family>,
    pub comms: Arc<Comms>,
    pub ends: Ends,
    pub way: Way,
    pub request: Request,
    pub buffer: Vec<u8>,
    pub is_done: bool,
    /// Whether there was more than was asked for.
    pub more: bool,
    pub watch: Watch,
}

impl Message {
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
                // It is not this one that failed: MPI may still use its memory.
                mem::forget(mem::take(&mut self.buffer));
            }
            let mut class = 0;
            // SAFETY: MPI is alive.
            unsafe { ffi::MPI_Error_class(code, &mut class) };
            self.more = class == ffi::MPI_ERR_TRUNCATE as c_int;
            return if self.more { Ok(true) } else { ok(rank, "MPI_Test", code).map(|()| true) };
        }
        let Some(status) = status else { return Ok(false) };
        self.is_done = true;
        if let Way::In(bytes) = self.way {
            let mut count = 0;
            // SAFETY: MPI has written `count` bytes, at most the capacity it was given.
            unsafe {
                ok(rank, "MPI_Get_count", ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &mut count))?;
                self.buffer.set_len((count.max(0) as usize).min(bytes));
            }
            if self.is_collective() {
                self.family.took_of_collective();
            }
        }
        Ok(true)
    }

    /// After a look in vain: fails where the message cannot come or go any more.
    fn still_possible(&mut self) -> Result<()> {
        self.family.reap(self.ends.rank)?;
        if !self.watch.is_long() {
            return Ok(());
        }
        self.family.poll(self.ends.rank)?;
        if self.watch.asks() {
            let stream = Stream { context: self.comms.context, tag: self.ends.tag };
            self.watch.question = Some(self.family.ask(self.ends.rank, self.ends.other_in_family, stream)?);
        }
        if let Some(question) = self.watch.question
            && let Some(answer) = self.family.take_answer(question)
        {
            let verdict = self.verdict(answer);
            self.watch.weigh(verdict)?;
        }
        self.watch.still_possible()
    }

    fn verdict(&self, answer: Answer) -> Verdict {
        let Ends { rank, other, other_in_family, .. } = self.ends;
        let call = self.comms.standings.call(self.comms.context).filter(|_| self.is_collective());
        match (answer, call) {
            (Answer::Gone(gone), Some(call)) => Verdict::Late(gone.in_collective(&call, rank, other)),
            (Answer::Gone(gone), None) => Verdict::Late(match self.way {
                Way::In(_) => gone.in_wait_for_message(other_in_family),
                Way::Out => gone.in_wait_to_send(other_in_family),
            }),
            (Answer::In(theirs), Some(call)) if call.is_contradicted_by(&theirs) => {
                let error = call.mismatch(rank, other, &theirs);
                if call.is_before(&theirs) { Verdict::Late(error) } else { Verdict::Certain(error) }
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
        Ok(Arrived { data: mem::take(&mut self.buffer), more: self.more })
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(question) = self.watch.question {
            self.family.drop_question(question);
        }
        let _ = self.test();
        // A test that failed has ended the request too.
        if !self.is_done {
            let forgotten = Forgotten {
                request: mem::replace(&mut self.request, Request::null()),
                cancel: matches!(self.way, Way::In(_)),
                to: self.ends.other_in_family,
                tag: self.ends.tag,
                _buffer: mem::take(&mut self.buffer),
                comms: self.comms.clone(),
            };
            self.family.forget(self.ends.rank, forgotten);
        }
    }
}
