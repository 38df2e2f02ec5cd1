//! Calls into MPI, one at a time, and the handles they work on.

use std::os::raw::c_int;
use std::sync::Mutex;

use ::mpi::ffi;

use super::errors_return::ErrorsReturn;
use crate::comm::{CommError, Result};
use crate::parallel::locked;

/// Every MPI call of this module runs under this lock.
pub(in crate::comm) static CALLS: Mutex<()> = Mutex::new(());

/// Returns `true` if MPI can be called: initialized and not finalized.
pub(in crate::comm) fn is_alive() -> bool {
    let (mut initialized, mut finalized) = (0, 0);
    // SAFETY: both may be called at any time, from any thread.
    unsafe {
        ffi::MPI_Initialized(&mut initialized);
        ffi::MPI_Finalized(&mut finalized);
    }
    initialized != 0 && finalized == 0
}

/// Converts the return code of an MPI call to a result, with the MPI library's text of the error.
pub(in crate::comm) fn ok(rank: usize, call: &'static str, code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = vec![0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length = 0;
    // SAFETY: the buffer has the size that MPI asks for.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    text.truncate(length.max(0) as usize);
    Err(CommError::Mpi { rank, call, text: String::from_utf8_lossy(&text).into_owned() })
}

/// An MPI communicator that was made here, freed when it is dropped.
pub(super) struct Handle(pub ffi::MPI_Comm);

// SAFETY: a handle is an index or a pointer that MPI lets any thread use; the calls themselves run
// under `CALLS`.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Handle {
    /// Returns the communicator that `make` makes; `None` where MPI gives this rank none. `call`
    /// names the MPI function in errors.
    pub fn make(
        rank: usize,
        call: &'static str,
        make: impl FnOnce(&mut ffi::MPI_Comm) -> c_int,
    ) -> Result<Option<Handle>> {
        // SAFETY: reads a constant.
        let null = unsafe { ffi::RSMPI_COMM_NULL };
        let (mut new, mut code) = (null, ffi::MPI_SUCCESS as c_int);
        {
            let _calls = locked(&CALLS);
            ok(rank, call, make(&mut new))?;
            if new != null {
                // SAFETY: the communicator is valid.
                code = unsafe { ffi::MPI_Comm_set_errhandler(new, ffi::RSMPI_ERRORS_RETURN) };
            }
        }
        let handle = (new != null).then(|| Handle(new)); // after the lock is released: dropping a handle takes it
        ok(rank, "MPI_Comm_set_errhandler", code).map(|()| handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _calls = locked(&CALLS);
        // After MPI has ended there is nothing to free.
        if !is_alive() {
            return;
        }
        let mut waits = 0;
        // SAFETY: the communicator is valid, and the message is not needed afterwards.
        unsafe {
            let (source, tag, none) = (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG, ffi::RSMPI_STATUS_IGNORE);
            ffi::MPI_Iprobe(source, tag, self.0, &mut waits, none);
        }
        if waits != 0 {
            // Not freed: a later communicator that is given its number, as MPICH does, would be
            // given the message, too.
            tracing::warn!("a communicator was dropped with messages that nobody has received");
        } else {
            // SAFETY: the communicator is valid, and requests on it keep it alive. MPI libraries
            // free it without communication.
            unsafe { ffi::MPI_Comm_free(&mut self.0) };
        }
    }
}

/// An MPI request (a non-blocking operation under way); null once complete.
pub(super) struct Request(pub ffi::MPI_Request);

// SAFETY: as for `Handle`.
unsafe impl Send for Request {}

impl Request {
    /// No request.
    pub fn null() -> Request {
        // SAFETY: reads a constant.
        Request(unsafe { ffi::RSMPI_REQUEST_NULL })
    }

    pub fn is_null(&self) -> bool {
        self.0 == Request::null().0
    }

    /// Tests for completion: MPI's return code, and the status if it is complete. The caller holds
    /// the lock.
    pub fn test(&mut self) -> (c_int, Option<ffi::MPI_Status>) {
        let _errors_return = ErrorsReturn::hold();
        let mut done = 0;
        // SAFETY: an all-zero status is a valid one, and the request is valid or null.
        unsafe {
            let mut status: ffi::MPI_Status = std::mem::zeroed();
            let code = ffi::MPI_Test(&mut self.0, &mut done, &mut status);
            (code, (done != 0).then_some(status))
        }
    }
}
