//! Ranks as MPI processes.
//!
//! - A communicator is two duplicates of MPI's: one for messages of the caller, one for collectives. So tags of the caller
//!   are MPI tags as they are, and the two never match each other.
//! - Every MPI call runs under one lock, which is all that `MPI_THREAD_SERIALIZED` asks for. Where the library gives less,
//!   calls from another thread than the one that made the communicator are an error.
//! - Nothing blocks inside MPI: waits poll, and give the processor away between polls.

mod calls;
mod departures;
mod family;
mod message;

use std::os::raw::c_int;
use std::sync::Arc;

use ::mpi::ffi;

pub(super) use self::calls::ok;
use self::calls::{CALLS, Handle, Request, is_alive, locked};
use self::departures::Departures;
use self::family::Family;
use self::message::{Message, Receive};
use super::communicator::Communicator;
use super::error::said_by;
use super::transport::{Lane, Pending, Transport};
use super::{CommError, Result};
use crate::io::printable;

const TAG_DATA: c_int = 0;
const TAG_CHECK: c_int = 1;

/// The two communicators behind one of ours.
struct Comms {
    user: Handle,
    collective: Handle,
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
    /// Duplicates a communicator. Collective. `ends` says whether the ranks
    /// will [`leave`](Family::leave) together.
    ///
    /// # Safety
    /// `comm` is a valid communicator or null.
    pub unsafe fn duplicate(comm: ffi::MPI_Comm, ends: bool) -> Result<Mpi> {
        let refuse = |text: &str| Err(CommError::Start(text.to_owned()));
        let _calls = locked(&CALLS);
        if !is_alive() {
            return refuse("MPI is not initialised, or already finalised; initialise it before making a communicator");
        }
        // SAFETY: MPI is alive, and null is handled first.
        unsafe {
            if comm == ffi::RSMPI_COMM_NULL {
                return refuse("the MPI communicator is null; pass one only on the ranks that are part of it");
            }
            let (mut rank, mut size, mut between, mut level) = (0, 0, 0, 0);
            ok(0, "MPI_Comm_rank", ffi::MPI_Comm_rank(comm, &mut rank))?;
            let rank = rank as usize;
            ok(rank, "MPI_Comm_size", ffi::MPI_Comm_size(comm, &mut size))?;
            let size = size as usize;
            ok(rank, "MPI_Comm_test_inter", ffi::MPI_Comm_test_inter(comm, &mut between))?;
            if between != 0 {
                return refuse("an MPI inter-communicator has no single order of ranks; merge it first");
            }
            ok(rank, "MPI_Query_thread", ffi::MPI_Query_thread(&mut level))?;
            let departures = if ends { Some(Departures::new(comm, rank, size)?) } else { None };
            let family = Family::new(level >= ffi::RSMPI_THREAD_SERIALIZED, departures);
            let comms = Comms { user: Handle::duplicate(rank, comm)?, collective: Handle::duplicate(rank, comm)? };
            Ok(Mpi { comms: Arc::new(comms), rank, members: (0..size).collect(), family: Arc::new(family) })
        }
    }

    pub fn family(&self) -> Arc<Family> {
        self.family.clone()
    }

    fn lane(&self, lane: Lane) -> (ffi::MPI_Comm, c_int) {
        match lane {
            Lane::User(tag) => (self.comms.user.0, tag as c_int),
            Lane::Collective => (self.comms.collective.0, TAG_DATA),
            Lane::Check => (self.comms.collective.0, TAG_CHECK),
        }
    }

    fn pending(&self, request: ffi::MPI_Request, buffer: Vec<u8>, receive: Option<Receive>) -> Box<dyn Pending> {
        let (family, comms) = (self.family.clone(), self.comms.clone());
        Box::new(Message { family, comms, rank: self.rank, request: Request(request), buffer, receive, is_done: false })
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn send(&self, to: usize, lane: Lane, data: Vec<u8>) -> Result<Box<dyn Pending>> {
        let _calls = self.family.calls(self.rank)?;
        let (comm, tag) = self.lane(lane);
        // SAFETY: the buffer lives in `Message` or `Forgotten` until the request is complete.
        let request = unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let (count, kind) = (data.len() as c_int, ffi::RSMPI_UINT8_T);
            let code = ffi::MPI_Isend(data.as_ptr().cast(), count, kind, to as c_int, tag, comm, &mut request);
            ok(self.rank, "MPI_Isend", code)?;
            request
        };
        Ok(self.pending(request, data, None))
    }

    fn receive(&self, from: usize, lane: Lane, bytes: usize) -> Result<Box<dyn Pending>> {
        let mut buffer: Vec<u8> = Vec::new();
        let memory = |_| CommError::Memory { rank: self.rank, bytes: bytes as u64 };
        buffer.try_reserve_exact(bytes).map_err(memory)?;
        let _calls = self.family.calls(self.rank)?;
        let (comm, tag) = self.lane(lane);
        // SAFETY: as in `send`; the buffer has room for `bytes` bytes.
        let request = unsafe {
            let mut request = ffi::RSMPI_REQUEST_NULL;
            let (count, kind) = (bytes as c_int, ffi::RSMPI_UINT8_T);
            let code = ffi::MPI_Irecv(buffer.as_mut_ptr().cast(), count, kind, from as c_int, tag, comm, &mut request);
            ok(self.rank, "MPI_Irecv", code)?;
            request
        };
        let receive = Receive { from, sender: self.members[from], bytes };
        Ok(self.pending(request, buffer, Some(receive)))
    }

    fn split(&self, groups: &[Vec<usize>], mine: Option<usize>) -> Result<Option<Box<dyn Transport>>> {
        let group = mine.and_then(|mine| groups.get(mine));
        let rank = group.and_then(|group| group.iter().position(|&member| member == self.rank));
        let collective = {
            let _calls = self.family.calls(self.rank)?;
            // SAFETY: the communicator is valid; all its ranks are here, with the same groups.
            unsafe {
                let color = mine.map_or(ffi::RSMPI_UNDEFINED, |mine| mine as c_int);
                let mut new = ffi::RSMPI_COMM_NULL;
                let code = ffi::MPI_Comm_split(self.comms.collective.0, color, rank.unwrap_or(0) as c_int, &mut new);
                ok(self.rank, "MPI_Comm_split", code)?;
                new
            }
        };
        let (Some(group), Some(rank)) = (group, rank) else { return Ok(None) };
        let collective = Handle(collective).returning_errors(rank)?;
        let user = {
            let _calls = self.family.calls(self.rank)?;
            Handle::duplicate(rank, collective.0)?
        };
        let members = group.iter().map(|&member| self.members[member]).collect();
        let comms = Arc::new(Comms { user, collective });
        Ok(Some(Box::new(Mpi { comms, rank, members, family: self.family.clone() })))
    }

    fn has_left(&self, rank: usize) -> bool {
        self.family.is_gone(self.members[rank])
    }

    fn abort(&self, message: &str) -> ! {
        end_all(self.comms.collective.0, self.members[self.rank], message, 1)
    }
}

/// Prints one message and ends all ranks with an exit code.
fn end_all(comm: ffi::MPI_Comm, rank: usize, message: &str, code: u8) -> ! {
    use std::io::Write;
    // One write, so that lines of several ranks do not mix; where nobody listens there is nobody to tell.
    let _ = std::io::stdout().flush();
    let _ = std::io::stderr().write_all((printable(&said_by(rank, message)).into_owned() + "\n").as_bytes());
    let _calls = locked(&CALLS);
    if is_alive() {
        // SAFETY: MPI is alive.
        unsafe { ffi::MPI_Abort(comm, code.into()) };
    }
    std::process::exit(code.into())
}

/// [`end_all`] of the world.
pub(super) fn end_world(rank: usize, message: &str, code: u8) -> ! {
    // SAFETY: reads a constant.
    end_all(unsafe { ffi::RSMPI_COMM_WORLD }, rank, message, code)
}

impl Communicator {
    /// A communicator of the ranks of a caller's MPI communicator, which is duplicated and stays the caller's. Collective
    /// over it. Needs the feature `mpi`.
    ///
    /// - MPI stays the caller's: it must outlive what this returns, and nothing here initialises or finalises it.
    /// - A rank that fails ends the others only by [`abort`](Communicator::abort): how to end is the caller's to say.
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
