//! Calls into MPI, one at a time, the handles they work on, and the making of communicators.
//!
//! MPI makes communicators only in calls that block. Such a call under the lock of MPI calls stops
//! all other threads of the process until the last rank has made it. So it is only made when it
//! cannot wait: all ranks have arrived, and no process among them is making another communicator.
//! To find out, each rank tries to lock its process's [`CREATING`] and all ranks reduce whether
//! they could; if one could not, all unlock and try again. This prevents a deadlock inside MPI when
//! two threads of each process make two communicators in different orders.

use std::hash::{BuildHasher, RandomState};
use std::os::raw::c_int;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use std::{mem, thread};

use ::mpi::ffi;

use crate::comm::{Backoff, CommError, Result};
use crate::parallel::{locked, try_locked};

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

/// Error handlers of MPI's own communicators that were set to return while this lives. The caller
/// holds the lock.
///
/// MPICH and its kin raise what goes wrong with a request (a message longer than its receive) not
/// with the handler of the request's communicator but with that of `MPI_COMM_WORLD`, and since
/// version 4 of the standard of `MPI_COMM_SELF`: by default both end all processes. These
/// communicators are the caller's, so what he has set comes back at once.
struct ErrorsReturn {
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

/// A reduction of one number under way, to be polled: `MPI_Iallreduce`, for what must not be a
/// collective of the library itself, which is making and ending communicators.
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

/// Held by the thread of this process that makes a communicator.
static CREATING: Mutex<()> = Mutex::new(());

/// Returns the minimum of the numbers of all ranks of `comm`. Other threads may call MPI meanwhile.
fn minimum(rank: usize, comm: ffi::MPI_Comm, mine: u64) -> Result<u64> {
    // SAFETY: reads a constant.
    let min = unsafe { ffi::RSMPI_MIN };
    let mut reduction = {
        let _calls = locked(&CALLS);
        Reduction::start(rank, comm, mine, min)?
    };
    let mut backoff = Backoff::default();
    loop {
        {
            let _calls = locked(&CALLS);
            if !is_alive() {
                return Err(CommError::Mpi { rank, call: "MPI_Test", text: "MPI is finalized".to_owned() });
            }
            if let Some(minimum) = reduction.poll()? {
                return Ok(minimum);
            }
        }
        backoff.pause();
    }
}

/// Locks [`CREATING`] on all ranks of `comm`, all of which have arrived.
fn lock_on_all_ranks(rank: usize, comm: ffi::MPI_Comm) -> Result<MutexGuard<'static, ()>> {
    let mut longest = 1 << 13;
    loop {
        let mine = try_locked(&CREATING);
        let all = minimum(rank, comm, u64::from(mine.is_some()))? == 1;
        match mine {
            Some(lock) if all => return Ok(lock),
            mine => drop(mine),
        }
        // A random pause, so that two communicators that block each other do not try again at the
        // same time. The ranks of one communicator pause equally long: with pauses of their own,
        // some would always hold the lock when others try.
        let pause = minimum(rank, comm, RandomState::new().hash_one(rank))? % longest;
        longest = (longest * 2).min(1 << 20);
        thread::sleep(Duration::from_micros(pause));
    }
}

/// Duplicates a communicator twice. Collective; only this thread waits for ranks that are late.
///
/// # Safety
/// `comm` is a valid communicator.
pub unsafe fn duplicate_twice(rank: usize, comm: ffi::MPI_Comm) -> Result<(Handle, Handle)> {
    minimum(rank, comm, 0)?; // all ranks have arrived
    let _creating = lock_on_all_ranks(rank, comm)?;
    let duplicate = || {
        // SAFETY: promised by the caller; all ranks are here.
        let made = Handle::make(rank, "MPI_Comm_dup", |new| unsafe { ffi::MPI_Comm_dup(comm, new) })?;
        made.ok_or(CommError::Mpi { rank, call: "MPI_Comm_dup", text: "it gave no communicator".to_owned() })
    };
    Ok((duplicate()?, duplicate()?))
}

/// Splits a communicator, all ranks of which have arrived. Collective; `part` is the number of this
/// rank's part and its place in it.
pub fn split(rank: usize, comm: &Handle, part: Option<(usize, usize)>) -> Result<Option<Handle>> {
    let _creating = lock_on_all_ranks(rank, comm.0)?;
    // SAFETY: the communicator is valid; all its ranks are here.
    Handle::make(rank, "MPI_Comm_split", |new| unsafe {
        let (color, key) = part.map_or((ffi::RSMPI_UNDEFINED, 0), |(number, place)| (number as i32, place as i32));
        ffi::MPI_Comm_split(comm.0, color, key, new)
    })
}
