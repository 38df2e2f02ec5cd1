//! Errors of requests as return codes, where an MPI library would end all processes.

use std::sync::OnceLock;

use ::mpi::ffi;

/// Error handlers of MPI's own communicators that were set to return while this lives. The caller
/// holds the lock.
///
/// MPICH and its kin raise what goes wrong with a request (a message longer than its receive) not
/// with the handler of the request's communicator but with that of `MPI_COMM_WORLD`, and since
/// version 4 of the standard of `MPI_COMM_SELF`: by default both end all processes. These
/// communicators are the caller's, so what he has set comes back at once.
pub(super) struct ErrorsReturn {
    previous: [ffi::MPI_Errhandler; 2],
}

impl ErrorsReturn {
    fn communicators() -> [ffi::MPI_Comm; 2] {
        // SAFETY: reads constants.
        unsafe { [ffi::RSMPI_COMM_WORLD, ffi::RSMPI_COMM_SELF] }
    }

    /// Sets the handlers where the MPI library needs it.
    pub fn hold() -> Option<ErrorsReturn> {
        if has_errors_by_communicator() {
            return None;
        }
        let previous = ErrorsReturn::communicators().map(|comm| {
            // SAFETY: MPI is alive, and these communicators are valid as long as it is. Any bits
            // are a handle that is overwritten.
            unsafe {
                let mut previous: ffi::MPI_Errhandler = std::mem::zeroed();
                ffi::MPI_Comm_get_errhandler(comm, &mut previous);
                ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN);
                previous
            }
        });
        Some(ErrorsReturn { previous })
    }
}

impl Drop for ErrorsReturn {
    fn drop(&mut self) {
        for (comm, mut previous) in ErrorsReturn::communicators().into_iter().zip(self.previous) {
            // SAFETY: the handles are those that `hold` was given, each to be freed once.
            unsafe {
                ffi::MPI_Comm_set_errhandler(comm, previous);
                ffi::MPI_Errhandler_free(&mut previous);
            }
        }
    }
}

/// Returns `true` if the MPI library raises what goes wrong with a request by the handler of its
/// communicator: Open MPI does.
fn has_errors_by_communicator() -> bool {
    static OPEN_MPI: OnceLock<bool> = OnceLock::new();
    *OPEN_MPI.get_or_init(|| library_version().contains("Open MPI"))
}

/// Returns the name and version of the MPI library; callable before MPI starts.
pub(in crate::comm) fn library_version() -> String {
    let mut text = vec![0u8; ffi::MPI_MAX_LIBRARY_VERSION_STRING as usize + 1];
    let mut len = 0;
    // SAFETY: the buffer has the size that MPI asks for; this may be called at any time.
    unsafe { ffi::MPI_Get_library_version(text.as_mut_ptr().cast(), &mut len) };
    String::from_utf8_lossy(&text[..(len.max(0) as usize).min(text.len())]).into_owned()
}
