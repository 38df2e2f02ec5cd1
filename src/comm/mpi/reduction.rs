//! `MPI_Iallreduce` of one number, for what must not be a collective of the library itself: making
//! and ending communicators.

use std::mem;

use ::mpi::ffi;

use super::calls::{Request, ok};
use crate::comm::Result;

/// A reduction under way, to be polled.
pub(super) struct Reduction {
    request: Request,
    /// This rank's number and the result. MPI reads and writes them until the request is complete.
    numbers: Box<[u64; 2]>,
    rank: usize,
}

impl Reduction {
    /// Starts one. The caller holds the lock; `comm` is a valid communicator, all ranks of which do
    /// the same.
    pub fn start(rank: usize, comm: ffi::MPI_Comm, mine: u64, op: ffi::MPI_Op) -> Result<Reduction> {
        let mut numbers = Box::new([mine, 0]);
        let mut request = Request::null();
        let [mine, result] = &mut *numbers;
        let (mine, result): (*const u64, *mut u64) = (mine, result);
        // SAFETY: the numbers stay in their place until the request is complete.
        let code = unsafe {
            ffi::MPI_Iallreduce(mine.cast(), result.cast(), 1, ffi::RSMPI_UINT64_T, op, comm, &mut request.0)
        };
        ok(rank, "MPI_Iallreduce", code)?;
        Ok(Reduction { request, numbers, rank })
    }

    /// Returns the result, once it is there. The caller holds the lock.
    pub fn poll(&mut self) -> Result<Option<u64>> {
        if !self.request.is_null() {
            let (code, status) = self.request.test();
            ok(self.rank, "MPI_Test", code)?;
            if status.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(self.numbers[1]))
    }
}

impl Drop for Reduction {
    fn drop(&mut self) {
        if !self.request.is_null() {
            // MPI may still write to it.
            mem::forget(mem::replace(&mut self.numbers, Box::new([0; 2])));
        }
    }
}
