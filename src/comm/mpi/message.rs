//! A message under way in MPI.

use std::os::raw::c_int;
use std::sync::Arc;

use ::mpi::ffi;

use super::Comms;
use super::calls::{Backoff, Request, ok};
use super::family::Family;
use crate::comm::transport::Pending;
use crate::comm::{CommError, Result};

/// Of a receive: what was asked for.
pub(super) struct Receive {
    pub from: usize,
    /// `from`, counted in the first communicator of the family.
    pub sender: usize,
    pub bytes: usize,
}

/// A message under way. MPI reads or writes `buffer` until `is_done`.
pub(super) struct Message {
    pub family: Arc<Family>,
    pub comms: Arc<Comms>,
    pub rank: usize,
    pub request: Request,
    pub buffer: Vec<u8>,
    pub receive: Option<Receive>,
    pub is_done: bool,
}

impl Message {
    fn test(&mut self) -> Result<bool> {
        if self.is_done {
            return Ok(true);
        }
        let _calls = self.family.calls(self.rank)?;
        let (code, status) = self.request.test();
        if code != ffi::MPI_SUCCESS as c_int {
            self.is_done = true; // MPI frees a request that failed
            let mut class = 0;
            // SAFETY: MPI is alive.
            unsafe { ffi::MPI_Error_class(code, &mut class) };
            return Err(match &self.receive {
                Some(receive) if class == ffi::MPI_ERR_TRUNCATE as c_int => {
                    let bytes = receive.bytes as u64;
                    CommError::MessageSize { rank: self.rank, from: receive.from, expected: bytes, got: bytes + 1 }
                }
                _ => return ok(self.rank, "MPI_Test", code).map(|()| true),
            });
        }
        let Some(status) = status else { return Ok(false) };
        self.is_done = true;
        if let Some(receive) = &self.receive {
            let mut count = 0;
            // SAFETY: MPI has written `count` bytes, at most the capacity it was given.
            unsafe {
                ok(self.rank, "MPI_Get_count", ffi::MPI_Get_count(&status, ffi::RSMPI_UINT8_T, &mut count))?;
                self.buffer.set_len((count.max(0) as usize).min(receive.bytes));
            }
        }
        Ok(true)
    }

    /// Fails where the sender has left.
    fn still_possible(&self) -> Result<()> {
        self.family.progress(self.rank)?;
        let Some(receive) = self.receive.as_ref().filter(|receive| self.family.is_gone(receive.sender)) else {
            return Ok(());
        };
        let message = "it returned from its body while a message of it was waited for".to_owned();
        Err(CommError::PeerFailed { rank: receive.sender, message })
    }
}

impl Pending for Message {
    fn is_done(&mut self) -> Result<bool> {
        if self.test()? {
            return Ok(true);
        }
        self.still_possible().map(|()| false)
    }

    fn wait(mut self: Box<Self>) -> Result<Vec<u8>> {
        let mut backoff = Backoff::default();
        while !self.is_done()? {
            backoff.pause();
        }
        Ok(std::mem::take(&mut self.buffer))
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        let _ = self.test();
        // A test that failed has ended the request too.
        if !self.is_done {
            let (request, buffer) =
                (std::mem::replace(&mut self.request, Request::null()), std::mem::take(&mut self.buffer));
            self.family.forget(self.rank, request, self.receive.is_some(), buffer, self.comms.clone());
        }
    }
}
