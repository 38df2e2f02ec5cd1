//! MPI's own collectives of bytes, non-blocking and polled.
//!
//! They are started once all ranks have met in the same call, so that none of them waits for a rank
//! that does something else.

use std::os::raw::{c_int, c_void};

use ::mpi::ffi;

use super::Mpi;
use super::calls::{Request, ok};
use crate::comm::Result;
use crate::comm::sync::Backoff;
use crate::comm::transport::Native;

impl Mpi {
    /// Starts a collective and returns when this rank's part is done: MPI uses the memory of the
    /// call no more. Notes of other ranks are handled meanwhile.
    fn complete(&self, name: &'static str, start: impl FnOnce(*mut ffi::MPI_Request) -> c_int) -> Result<()> {
        let mut request = Request::null();
        {
            let _calls = self.family.calls(self.rank)?;
            ok(self.rank, name, start(&mut request.0))?;
        }
        let (mut backoff, mut outcome) = (Backoff::default(), Ok(()));
        while !request.is_null() {
            // Where MPI has ended it uses the memory no more. After any other error this still
            // waits for it.
            let calls = self.family.calls(self.rank)?;
            let (code, _) = request.test();
            drop(calls);
            outcome = outcome.and(ok(self.rank, name, code));
            if !request.is_null() {
                backoff.pause();
                if backoff.is_long() {
                    let handled = self.family.reap(self.rank).and_then(|_| self.family.poll(self.rank));
                    outcome = outcome.and(handled);
                }
            }
        }
        outcome
    }
}

/// Returns what calls take for memory that is read, and the number of its bytes, which the caller
/// keeps below 2^31.
fn sent(data: &[u8]) -> (*const c_void, c_int) {
    (data.as_ptr().cast(), data.len() as c_int)
}

impl Native for Mpi {
    fn broadcast(&self, root: usize, data: &mut [u8]) -> Result<()> {
        let (comm, count) = (self.comm.handle.0, data.len() as c_int);
        // SAFETY: `complete` returns when MPI has done with the memory; so below.
        self.complete("MPI_Ibcast", |request| unsafe {
            ffi::MPI_Ibcast(data.as_mut_ptr().cast(), count, ffi::RSMPI_UINT8_T, root as c_int, comm, request)
        })
    }

    fn gather(&self, root: usize, mine: &[u8], all: &mut [u8]) -> Result<()> {
        let (comm, (mine, count)) = (self.comm.handle.0, sent(mine));
        self.complete("MPI_Igather", |request| unsafe {
            let (bytes, all) = (ffi::RSMPI_UINT8_T, all.as_mut_ptr().cast());
            ffi::MPI_Igather(mine, count, bytes, all, count, bytes, root as c_int, comm, request)
        })
    }

    fn all_gather(&self, mine: &[u8], all: &mut [u8]) -> Result<()> {
        let (comm, (mine, count)) = (self.comm.handle.0, sent(mine));
        self.complete("MPI_Iallgather", |request| unsafe {
            let (bytes, all) = (ffi::RSMPI_UINT8_T, all.as_mut_ptr().cast());
            ffi::MPI_Iallgather(mine, count, bytes, all, count, bytes, comm, request)
        })
    }

    fn all_to_all(&self, data: &[u8], all: &mut [u8]) -> Result<()> {
        let (comm, (data, whole)) = (self.comm.handle.0, sent(data));
        let count = whole / self.comm.members.len() as c_int;
        self.complete("MPI_Ialltoall", |request| unsafe {
            let (bytes, all) = (ffi::RSMPI_UINT8_T, all.as_mut_ptr().cast());
            ffi::MPI_Ialltoall(data, count, bytes, all, count, bytes, comm, request)
        })
    }
}
