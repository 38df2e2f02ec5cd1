//! Ranks as MPI processes.
//!
//! - A communicator is one of MPI's. The caller's tags are used as MPI tags; collectives have the
//!   tag above the largest.
//! - Every MPI call runs under one lock, which is all that `MPI_THREAD_SERIALIZED` requires. Where
//!   the library gives less, calls from another thread than the one that made the communicator are
//!   an error.
//! - No call blocks inside MPI for a rank that could be late: waits poll, and yield the processor
//!   between polls. The blocking calls that make communicators and finalize MPI are made once all
//!   ranks have arrived ([`calls`]).

mod buffer;
mod calls;
mod family;
mod message;
mod status;
mod watchdog;

use std::os::raw::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ::mpi::ffi;

pub(super) use calls::{CALLS, library_version, ok};
pub(super) use family::Family;

use buffer::Buffer;
use calls::{Handle, Request, is_alive};
use family::Comm;
use message::{Direction, Ends, Message, tag};
use status::StatusProtocol;

use super::error::with_rank;
use super::{
    Backoff, Call, CommError, Communicator, Group, HEADER_BYTES, Lane, Mismatch, Native, Payload, Pending, Result,
    SUBJECT_BYTES, Target, Transport, Waits,
};
use crate::host_memory;
use crate::parallel::{locked, try_locked};
use crate::printable::printable;

/// Time that a failing thread waits for another one inside MPI before it ends the process without
/// MPI.
const ABORT_WAIT: Duration = Duration::from_secs(5);

/// Time for a launcher to print what it has read of a failing rank: some (Hydra) drop their
/// unprinted output when all processes are to end.
const LAUNCHER_TIME: Duration = Duration::from_millis(100);

/// One rank's end of a communicator among MPI processes.
pub(super) struct Mpi {
    comm: Arc<Comm>,
    rank: usize,
    family: Arc<Family>,
}

impl Mpi {
    /// Duplicates a communicator. Collective. `ends` says whether the ranks will
    /// [`leave`](Family::leave) together.
    ///
    /// # Safety
    /// `comm` is a valid communicator or null.
    pub unsafe fn duplicate(comm: ffi::MPI_Comm, ends: bool) -> Result<Mpi> {
        let refuse = |text: &str| Err(CommError::Start(text.to_owned()));
        let (mut rank, mut size, mut between, mut level) = (0, 0, 0, 0);
        {
            let _calls = locked(&CALLS);
            if !is_alive() {
                return refuse(
                    "MPI is not initialized, or already finalized; initialize it before making a communicator",
                );
            }
            // SAFETY: MPI is alive, and null is handled first.
            unsafe {
                if comm == ffi::RSMPI_COMM_NULL {
                    return refuse("the MPI communicator is null; pass one only on the ranks that are part of it");
                }
                ok(0, "MPI_Comm_rank", ffi::MPI_Comm_rank(comm, &mut rank))?;
                ok(rank as usize, "MPI_Comm_size", ffi::MPI_Comm_size(comm, &mut size))?;
                ok(rank as usize, "MPI_Comm_test_inter", ffi::MPI_Comm_test_inter(comm, &mut between))?;
                if between != 0 {
                    return refuse("an MPI inter-communicator has no single order of ranks; merge it first");
                }
                ok(rank as usize, "MPI_Query_thread", ffi::MPI_Query_thread(&mut level))?;
            }
        }
        let (rank, size) = (rank as usize, size as usize);
        // SAFETY: promised by the caller, and reads a constant.
        let ((data, notes), serialized) =
            unsafe { (calls::duplicate_twice(rank, comm)?, level >= ffi::RSMPI_THREAD_SERIALIZED) };
        let family = Arc::new(Family::new(serialized, ends, StatusProtocol::new(notes, rank, size)?));
        family.protocol.last_calls.insert(0);
        let comm = family.comm(data, 0, (0..size).collect());
        Ok(Mpi { comm: Arc::new(comm), rank, family })
    }

    pub fn family(&self) -> Arc<Family> {
        self.family.clone()
    }

    /// Returns the ends of a message between this rank and the rank `other`.
    fn ends(&self, other: usize, lane: Lane) -> Ends {
        Ends { rank: self.rank, other, other_in_family: self.comm.members[other], lane }
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.comm.members.len()
    }

    fn rank_in_run(&self, rank: usize) -> usize {
        self.comm.members[rank]
    }

    fn begin(&self, call: &Call) {
        self.comm.last_calls.set(self.comm.context, call);
    }

    fn announce(&self, found: &Mismatch) {
        self.family.announce(&self.comm, found);
    }

    fn is_out_of_step(&self) -> bool {
        self.comm.is_out_of_step()
    }

    fn send(&self, to: usize, lane: Lane, data: Payload) -> Result<Box<dyn Pending>> {
        let (buffer, place, bytes) = match data {
            Payload::Bytes(data) => {
                let (place, bytes) = (data.as_ptr(), data.len());
                (Buffer::Bytes(data), place, bytes)
            }
            Payload::Span(span) => {
                let bytes = span.bytes();
                let (buffer, place) = Buffer::sent(span);
                (buffer, place, bytes)
            }
        };
        self.comm.last_user.set();
        let _calls = self.family.calls(self.rank)?;
        let mut request = Request::null();
        let (count, comm) = (bytes as c_int, self.comm.handle.0);
        // SAFETY: the buffer lives in `Message` or `Detached` until the request is complete.
        let code = unsafe {
            ffi::MPI_Isend(place.cast(), count, ffi::RSMPI_UINT8_T, to as c_int, tag(lane), comm, &mut request.0)
        };
        ok(self.rank, "MPI_Isend", code)?;
        if lane == Lane::Collective {
            self.family.untaken.fetch_add(1, Ordering::Relaxed);
        }
        let (family, comm) = (self.family.clone(), self.comm.clone());
        Ok(Box::new(Message::new(family, comm, self.ends(to, lane), Direction::Send, request, buffer)))
    }

    fn receive(&self, from: usize, lane: Lane, target: Target) -> Result<Box<dyn Pending>> {
        let room = |bytes: usize| -> Result<Vec<u8>> { Ok(host_memory::reserve("a message", bytes)?) };
        let (buffer, place, bytes) = match target {
            Target::Bytes(bytes) => {
                let mut buffer = room(bytes)?;
                // What it begins with is read even if the message is longer than the buffer, and
                // then MPI does not promise to write it.
                buffer.resize(bytes.min(HEADER_BYTES.max(SUBJECT_BYTES)), 0);
                let place = buffer.as_mut_ptr();
                (Buffer::Bytes(buffer), place, bytes)
            }
            Target::Span(span) => {
                let bytes = span.bytes();
                let (buffer, place) = Buffer::received(span, || room(bytes))?;
                (buffer, place, bytes)
            }
        };
        self.comm.last_user.set();
        let _calls = self.family.calls(self.rank)?;
        let mut request = Request::null();
        let (count, comm) = (bytes as c_int, self.comm.handle.0);
        // SAFETY: as in `send`; the buffer has room for `bytes` bytes.
        let code = unsafe {
            ffi::MPI_Irecv(place.cast(), count, ffi::RSMPI_UINT8_T, from as c_int, tag(lane), comm, &mut request.0)
        };
        ok(self.rank, "MPI_Irecv", code)?;
        let (family, comm) = (self.family.clone(), self.comm.clone());
        Ok(Box::new(Message::new(family, comm, self.ends(from, lane), Direction::Receive(bytes), request, buffer)))
    }

    fn native(&self) -> Option<&dyn Native> {
        Some(self)
    }

    fn context(&self) -> u64 {
        self.comm.context
    }

    fn waits(&self) -> &Arc<Waits> {
        &self.comm.waits
    }

    fn new_context(&self) -> u64 {
        self.family.new_context()
    }

    fn split(&self, mine: Option<Group>) -> Result<Option<Box<dyn Transport>>> {
        drop(self.family.calls(self.rank)?); // may this thread call MPI?
        let part = mine.as_ref().map(|group| (group.number, group.rank));
        let split = || calls::split(self.rank, &self.comm.handle, part);
        let Some(group) = mine else { return split().map(|_| None) };
        let last_calls = self.family.protocol.last_calls.clone();
        last_calls.insert(group.context); // before another rank has the communicator and can ask about it
        let handle = match split() {
            Ok(Some(handle)) => handle,
            none => {
                last_calls.remove(group.context);
                return none.map(|_| None);
            }
        };
        let members = group.members.iter().map(|&member| self.comm.members[member]).collect();
        let comm = self.family.comm(handle, group.context, members);
        Ok(Some(Box::new(Mpi { comm: Arc::new(comm), rank: group.rank, family: self.family.clone() })))
    }

    fn abort(&self, message: &str) -> ! {
        end_all(self.comm.members[self.rank], message, 1)
    }
}

/// Prints one message and ends all ranks with this exit code.
pub(super) fn end_all(rank: usize, message: &str, code: u8) -> ! {
    use std::io::Write;
    // One write, so that lines of several ranks do not mix. Nowhere else to report a
    // failure of the write.
    let _ = std::io::stdout().flush();
    let _ = std::io::stderr().write_all((printable(&with_rank(rank, message)).into_owned() + "\n").as_bytes());
    wait_for_reader();
    thread::sleep(LAUNCHER_TIME);
    let start = Instant::now();
    let mut calls = try_locked(&CALLS);
    while calls.is_none() && start.elapsed() < ABORT_WAIT {
        thread::sleep(Duration::from_millis(1));
        calls = try_locked(&CALLS);
    }
    if calls.is_some() && is_alive() {
        // SAFETY: MPI is alive, and no other thread is in it.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, c_int::from(code)) };
    }
    // Also where a thread is stuck inside MPI: the launcher ends the others when a process fails.
    std::process::exit(i32::from(code))
}

/// Waits, for [`ABORT_WAIT`] at most, until a launcher at the other end of standard error has read
/// it.
fn wait_for_reader() {
    #[cfg(unix)]
    {
        use std::os::fd::{AsFd, AsRawFd};
        use std::os::unix::fs::FileTypeExt;
        let stderr = std::io::stderr();
        let kind = stderr.as_fd().try_clone_to_owned().and_then(|fd| std::fs::File::from(fd).metadata());
        if !kind.is_ok_and(|kind| kind.file_type().is_fifo()) {
            return;
        }
        let (start, mut unread) = (Instant::now(), 0 as c_int);
        // SAFETY: it writes one integer, the bytes in a pipe.
        let ask = |unread: &mut c_int| unsafe { libc::ioctl(stderr.as_raw_fd(), libc::FIONREAD, unread) } == 0;
        while ask(&mut unread) && unread > 0 && start.elapsed() < ABORT_WAIT {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Communicator {
    /// A communicator of the ranks of a caller's MPI communicator, which is duplicated and stays
    /// the caller's. Collective over it. Needs the feature `mpi`.
    ///
    /// - MPI stays the caller's: it must outlive what this returns, and nothing here initializes or
    ///   finalizes it.
    /// - A rank that fails ends the others only if the caller calls [`abort`](Communicator::abort);
    ///   but a mismatch of collectives or exchanges that one rank finds ends the waits of all in
    ///   that communicator, whatever that rank does then, and ranks that wait for each other end
    ///   the waits of all in it and in those split from it. It [serves](Communicator::is_out_of_step)
    ///   no more; another one that all ranks make here is none the worse. A rank that has dropped
    ///   all communicators made here answers no status queries any more; ranks that wait for it
    ///   wait without an end.
    /// - Without `MPI_THREAD_SERIALIZED` only the calling thread may use it.
    ///
    /// # Errors
    /// [`CommError::Start`] if MPI is not initialized or the communicator cannot be used,
    /// [`CommError::Mpi`].
    ///
    /// # Safety
    /// `comm` is null or a valid communicator of the MPI library this crate is linked with.
    pub unsafe fn from_mpi(comm: ffi::MPI_Comm) -> Result<Communicator> {
        // SAFETY: promised by the caller.
        Ok(Communicator::new(Box::new(unsafe { Mpi::duplicate(comm, false) }?)))
    }

    /// [`from_mpi`](Communicator::from_mpi) for communicators of the crate `mpi`. Collective.
    ///
    /// # Errors
    /// Same as [`from_mpi`](Communicator::from_mpi).
    pub fn from_rsmpi(comm: &impl ::mpi::raw::AsRaw<Raw = ffi::MPI_Comm>) -> Result<Communicator> {
        // SAFETY: `AsRaw` promises a valid handle.
        unsafe { Communicator::from_mpi(comm.as_raw()) }
    }
}

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
            // If MPI has ended, it no longer uses the memory. After any other error, this loop goes
            // on waiting.
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

// MPI's own collectives of bytes, non-blocking and polled. They are started once all ranks have met
// in the same call, so that none of them waits for a rank that does something else.
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
