//! Ranks as MPI processes.
//!
//! - A communicator is one of MPI's. Tags of the caller are MPI tags as they are, and collectives have the one above them.
//! - Every MPI call runs under one lock, which is all that `MPI_THREAD_SERIALIZED` asks for. Where the library gives less,
//!   calls from another thread than the one that made the communicator are an error.
//! - Nothing waits inside MPI for another rank that could be late: waits poll, and give the processor away between
//!   polls. Communicators are made when all their ranks have come, and MPI ends when all are done.

mod calls;
mod family;
mod inquiries;
mod making;
mod message;
mod reduction;
mod watch;

use std::os::raw::c_int;
use std::sync::{Arc, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use ::mpi::ffi;

pub(super) use self::calls::{CALLS, locked, ok};
use self::calls::{Handle, Request, is_alive};
pub(super) use self::family::Family;
use self::inquiries::{Inquiries, Standings};
use self::message::{Ends, Message, Way};
use self::watch::Watch;
use super::call::Call;
use super::communicator::{Communicator, MAX_TAG};
use super::envelope::HEAD;
use super::error::said_by;
use super::transport::{Group, Lane, Pending, Transport};
use super::{CommError, Result};
use crate::printable::printable;

const TAG_COLLECTIVE: c_int = MAX_TAG as c_int + 1;

/// How long another thread may keep a failing one from ending all ranks.
const LAST_WORD: Duration = Duration::from_secs(5);

/// The communicator behind one of ours. As long as it is there, messages of it may be under way.
struct Comms {
    handle: Handle,
    /// Its number in the family.
    context: u64,
    standings: Arc<Standings>,
}

impl Drop for Comms {
    fn drop(&mut self) {
        self.standings.drop_out(self.context);
    }
}

/// One rank's end of a communicator among MPI processes.
pub(super) struct Mpi {
    comms: Arc<Comms>,
    rank: usize,
    /// The ranks of this communicator, counted in the first of its family.
    members: Arc<[usize]>,
    family: Arc<Family>,
}

impl Mpi {
    /// Duplicates a communicator. Collective. `ends` says whether the ranks will [`leave`](Family::leave) together.
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
                    "MPI is not initialised, or already finalised; initialise it before making a communicator",
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
            unsafe { (making::duplicate_twice(rank, comm)?, level >= ffi::RSMPI_THREAD_SERIALIZED) };
        let family = Arc::new(Family::new(serialized, ends, Inquiries::new(notes, rank, size)?));
        let standings = family.standings().clone();
        standings.enter(0);
        let comms = Comms { handle: data, context: 0, standings };
        Ok(Mpi { comms: Arc::new(comms), rank, members: (0..size).collect(), family })
    }

    pub fn family(&self) -> Arc<Family> {
        self.family.clone()
    }

    fn pending(&self, request: Request, buffer: Vec<u8>, other: usize, lane: Lane, way: Way) -> Box<dyn Pending> {
        let ends = Ends { rank: self.rank, other, other_in_family: self.members[other], tag: tag(lane) };
        let (family, comms) = (self.family.clone(), self.comms.clone());
        let watch = Watch::default();
        Box::new(Message { family, comms, ends, way, request, buffer, is_done: false, more: false, watch })
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn begin(&self, call: &Call) {
        self.comms.standings.begin(self.comms.context, call);
    }

    fn send(&self, to: usize, lane: Lane, data: Vec<u8>) -> Result<Box<dyn Pending>> {
        let _calls = self.family.calls(self.rank)?;
        let mut request = Request::null();
        let (place, count, comm) = (data.as_ptr().cast(), data.len() as c_int, self.comms.handle.0);
        // SAFETY: the buffer lives in `Message` or `Forgotten` until the request is complete.
        let code =
            unsafe { ffi::MPI_Isend(place, count, ffi::RSMPI_UINT8_T, to as c_int, tag(lane), comm, &mut request.0) };
        ok(self.rank, "MPI_Isend", code)?;
        if lane == Lane::Collective {
            self.family.gave_to_collective();
        }
        Ok(self.pending(request, data, to, lane, Way::Out))
    }

    fn receive(&self, from: usize, lane: Lane, bytes: usize) -> Result<Box<dyn Pending>> {
        let mut buffer: Vec<u8> = Vec::new();
        let memory = |_| CommError::Memory { rank: self.rank, bytes: bytes as u64 };
        buffer.try_reserve_exact(bytes).map_err(memory)?;
        // The head is read even if more comes than there is room for, and then MPI does not promise to write it.
        buffer.resize(bytes.min(HEAD), 0);
        let _calls = self.family.calls(self.rank)?;
        let mut request = Request::null();
        let (place, count, comm) = (buffer.as_mut_ptr().cast(), bytes as c_int, self.comms.handle.0);
        // SAFETY: as in `send`; the buffer has room for `bytes` bytes.
        let code =
            unsafe { ffi::MPI_Irecv(place, count, ffi::RSMPI_UINT8_T, from as c_int, tag(lane), comm, &mut request.0) };
        ok(self.rank, "MPI_Irecv", code)?;
        Ok(self.pending(request, buffer, from, lane, Way::In(bytes)))
    }

    fn new_context(&self) -> u64 {
        self.family.new_context()
    }

    fn split(&self, mine: Option<Group>) -> Result<Option<Box<dyn Transport>>> {
        drop(self.family.calls(self.rank)?); // may this thread call MPI?
        let part = mine.as_ref().map(|group| (group.number, group.rank));
        let make = || making::split(self.rank, &self.comms.handle, part);
        let Some(group) = mine else { return make().map(|_| None) };
        let standings = self.family.standings().clone();
        standings.enter(group.context); // before another rank can use it, and ask
        let handle = match make() {
            Ok(Some(handle)) => handle,
            none => {
                standings.drop_out(group.context);
                return none.map(|_| None);
            }
        };
        let comms = Comms { handle, context: group.context, standings };
        let members = group.members.iter().map(|&member| self.members[member]).collect();
        Ok(Some(Box::new(Mpi { comms: Arc::new(comms), rank: group.rank, members, family: self.family.clone() })))
    }

    fn abort(&self, message: &str) -> ! {
        end_all(self.members[self.rank], message, 1)
    }
}

/// The MPI tag of a stream.
fn tag(lane: Lane) -> c_int {
    match lane {
        Lane::User(tag) => tag as c_int,
        Lane::Collective => TAG_COLLECTIVE,
    }
}

/// Prints one message and ends all ranks with this exit code.
pub(super) fn end_all(rank: usize, message: &str, code: u8) -> ! {
    use std::io::Write;
    // One write, so that lines of several ranks do not mix; where nobody listens there is nobody to tell.
    let _ = std::io::stdout().flush();
    let _ = std::io::stderr().write_all((printable(&said_by(rank, message)).into_owned() + "\n").as_bytes());
    let start = Instant::now();
    let mut calls = CALLS.try_lock();
    while matches!(calls, Err(TryLockError::WouldBlock)) && start.elapsed() < LAST_WORD {
        thread::sleep(Duration::from_millis(1));
        calls = CALLS.try_lock();
    }
    if !matches!(calls, Err(TryLockError::WouldBlock)) && is_alive() {
        // SAFETY: MPI is alive, and no other thread is in it.
        unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, c_int::from(code)) };
    }
    // Also where a thread is stuck inside MPI: the launcher ends the others when a process fails.
    std::process::exit(i32::from(code))
}

impl Communicator {
    /// A communicator of the ranks of a caller's MPI communicator, which is duplicated and stays the caller's. Collective
    /// over it. Needs the feature `mpi`.
    ///
    /// - MPI stays the caller's: it must outlive what this returns, and nothing here initialises or finalises it.
    /// - A rank that fails ends the others only by [`abort`](Communicator::abort): how to end is the caller's to say. Ranks
    ///   that wait for one that has dropped all it had from here, and so answers no more, wait without an end.
    /// - Without `MPI_THREAD_SERIALIZED` only the calling thread may use it.
    ///
    /// # Errors
    /// [`CommError::Start`] if MPI is not initialised or the communicator cannot be used, [`CommError::Mpi`].
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
    /// As [`from_mpi`](Communicator::from_mpi).
    pub fn from_rsmpi(comm: &impl ::mpi::raw::AsRaw<Raw = ffi::MPI_Comm>) -> Result<Communicator> {
        // SAFETY: `AsRaw` promises a valid handle.
        unsafe { Communicator::from_mpi(comm.as_raw()) }
    }
}
