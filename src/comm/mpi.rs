//! Ranks as MPI processes.
//!
//! - A communicator is two duplicates of MPI's: one for messages of the caller, one for collectives. So tags of the caller
//!   are MPI tags as they are, and the two never match each other.
//! - Every MPI call runs under one lock, which is all that `MPI_THREAD_SERIALIZED` asks for. Where the library gives less,
//!   calls from another thread than the one that made the communicator are an error.
//! - Nothing blocks inside MPI: waits poll, and give the processor away between polls.

use std::os::raw::c_int;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use ::mpi::ffi;

use super::communicator::Communicator;
use super::transport::{Lane, Pending, Transport};
use super::{CommError, Result};

/// A message sent before its sender left may still be on its way when the news of the leaving is there.
const GRACE: Duration = Duration::from_millis(500);
/// How long forgotten messages may take to complete when all else is done.
const LAST_CALL: Duration = Duration::from_secs(1);

const TAG_DATA: c_int = 0;
const TAG_CHECK: c_int = 1;

/// Every MPI call of this module runs under this lock.
static CALLS: Mutex<()> = Mutex::new(());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether MPI can be called: initialised and not finalised.
pub(super) fn is_alive() -> bool {
    let (mut initialized, mut finalized) = (0, 0);
    // SAFETY: both may be called at any time, from any thread.
    unsafe {
        ffi::MPI_Initialized(&mut initialized);
        ffi::MPI_Finalized(&mut finalized);
    }
    initialized != 0 && finalized == 0
}

/// The return code of an MPI call as a result, in the library's own words.
pub(super) fn ok(rank: usize, call: &'static str, code: c_int) -> Result<()> {
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

/// Waits longer and longer: ranks may share a core with the one they wait for.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
    fn pause(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            0..64 => std::hint::spin_loop(),
            64..2048 => thread::yield_now(),
            2048..8192 => thread::sleep(Duration::from_micros(20)),
            _ => thread::sleep(Duration::from_micros(200)),
        }
    }
}

/// An MPI communicator of our own.
struct Handle(ffi::MPI_Comm);

// SAFETY: a handle is an index or a pointer that MPI lets any thread use; the calls themselves run under `CALLS`.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Handle {
    /// Collective. The lock must be held.
    fn duplicate(rank: usize, comm: ffi::MPI_Comm) -> Result<Handle> {
        // SAFETY: `comm` is a valid communicator.
        unsafe {
            let mut new = ffi::RSMPI_COMM_NULL;
            ok(rank, "MPI_Comm_dup", ffi::MPI_Comm_dup(comm, &mut new))?;
            Handle(new).returning_errors(rank)
        }
    }

    fn returning_errors(self, rank: usize) -> Result<Handle> {
        // SAFETY: the communicator is valid.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(self.0, ffi::RSMPI_ERRORS_RETURN) };
        ok(rank, "MPI_Comm_set_errhandler", code).map(|()| self)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _calls = locked(&CALLS);
        // After MPI has ended there is nothing to free.
        if is_alive() {
            // SAFETY: the communicator is valid, and requests on it keep it alive.
            unsafe { ffi::MPI_Comm_free(&mut self.0) };
        }
    }
}

/// An MPI request; null once complete.
struct Request(ffi::MPI_Request);

// SAFETY: as for `Handle`.
unsafe impl Send for Request {}

impl Request {
    /// Whether it is complete; its status if so. The lock must be held.
    fn test(&mut self) -> (c_int, Option<ffi::MPI_Status>) {
        let mut done = 0;
        // SAFETY: an all-zero status is a valid one, and the request is valid or null.
        unsafe {
            let mut status: ffi::MPI_Status = std::mem::zeroed();
            let code = ffi::MPI_Test(&mut self.0, &mut done, &mut status);
            (code, (done != 0).then_some(status))
        }
    }
}

/// A message nobody waits for any more, kept until MPI lets go of its buffer.
struct Forgotten {
    request: Request,
    cancel: bool,
    _buffer: Vec<u8>,
    _comms: Arc<Comms>,
}

/// What the communicators that stem from one another share.
pub(super) struct Family {
    owner: ThreadId,
    /// Whether MPI lets any thread call it, one at a time.
    serialized: bool,
    forgotten: Mutex<Vec<Forgotten>>,
    departures: Option<Departures>,
}

impl Family {
    /// Takes the lock for calls into MPI.
    fn calls(&self, rank: usize) -> Result<MutexGuard<'static, ()>> {
        let refuse = |text: &str| CommError::Mpi { rank, call: "a call of MPI", text: text.to_owned() };
        if !self.serialized && thread::current().id() != self.owner {
            return Err(refuse(
                "MPI was initialised without MPI_THREAD_SERIALIZED, so only the thread that made the communicator may use it",
            ));
        }
        let calls = locked(&CALLS);
        if is_alive() { Ok(calls) } else { Err(refuse("MPI is finalised")) }
    }

    /// Lets go of forgotten messages that are complete; says whether none are left. The lock must be held.
    fn reap(&self) -> bool {
        let mut forgotten = locked(&self.forgotten);
        forgotten.retain_mut(|message| {
            if std::mem::take(&mut message.cancel) {
                // SAFETY: an active receive.
                unsafe { ffi::MPI_Cancel(&mut message.request.0) };
            }
            let (code, status) = message.request.test();
            code == ffi::MPI_SUCCESS as c_int && status.is_none()
        });
        forgotten.is_empty()
    }

    /// Polls what runs besides the message waited for. The lock must be held.
    fn progress(&self) {
        self.reap();
        if let Some(departures) = &self.departures {
            departures.poll();
        }
    }

    /// Tells the others that this rank is done, then waits until all are: a rank that still waits for this one learns
    /// that it waits in vain. Without departures (release builds, callers' communicators) does nothing.
    pub fn leave(&self) -> Result<()> {
        let Some(departures) = &self.departures else { return Ok(()) };
        departures.announce(self)?;
        let mut backoff = Backoff::default();
        loop {
            let calls = self.calls(departures.rank)?;
            self.progress();
            drop(calls);
            if departures.all_left() {
                return Ok(());
            }
            backoff.pause();
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        let start = Instant::now();
        loop {
            if locked(&self.forgotten).is_empty() {
                break;
            }
            if self.calls(0).is_ok_and(|_calls| self.reap()) {
                break;
            }
            if start.elapsed() > LAST_CALL || !is_alive() {
                let left = std::mem::take(&mut *locked(&self.forgotten));
                tracing::warn!(messages = left.len(), "messages were sent or withdrawn but never completed");
                // MPI may still read or write the buffers.
                std::mem::forget(left);
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Who has returned from its body, by notices on a communicator of their own.
struct Departures {
    comm: Handle,
    rank: usize,
    news: Mutex<News>,
}

struct News {
    /// The receive of the next notice, from anybody.
    request: Request,
    left: Vec<Option<Instant>>,
}

impl Departures {
    /// Collective. The lock must be held.
    fn new(comm: ffi::MPI_Comm, rank: usize, size: usize) -> Result<Departures> {
        let comm = Handle::duplicate(rank, comm)?;
        // SAFETY: reads a constant.
        let news = News { request: Request(unsafe { ffi::RSMPI_REQUEST_NULL }), left: vec![None; size] };
        let departures = Departures { comm, rank, news: Mutex::new(news) };
        if size > 1 {
            ok(rank, "MPI_Irecv", departures.listen(&mut locked(&departures.news).request))?;
        }
        Ok(departures)
    }

    fn listen(&self, request: &mut Request) -> c_int {
        // SAFETY: an empty message needs no buffer.
        unsafe {
            let (kind, any) = (ffi::RSMPI_UINT8_T, ffi::RSMPI_ANY_SOURCE);
            ffi::MPI_Irecv(ptr::null_mut(), 0, kind, any, TAG_DATA, self.comm.0, &mut request.0)
        }
    }

    fn poll(&self) {
        let mut news = locked(&self.news);
        // SAFETY: reads a constant.
        while news.request.0 != unsafe { ffi::RSMPI_REQUEST_NULL } {
            let (_, Some(status)) = news.request.test() else { return };
            if let Some(left) = usize::try_from(status.MPI_SOURCE).ok().and_then(|from| news.left.get_mut(from)) {
                left.get_or_insert_with(Instant::now);
            }
            let others = news.left.iter().enumerate().any(|(rank, left)| rank != self.rank && left.is_none());
            if others && self.listen(&mut news.request) != ffi::MPI_SUCCESS as c_int {
                return;
            }
        }
    }

    fn announce(&self, family: &Family) -> Result<()> {
        let size = {
            let mut news = locked(&self.news);
            news.left[self.rank] = Some(Instant::now());
            news.left.len()
        };
        for step in 1..size {
            let to = (self.rank + step) % size;
            let _calls = family.calls(self.rank)?;
            // SAFETY: an empty message needs no buffer; the request is given up, MPI completes it.
            let code = unsafe {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let kind = ffi::RSMPI_UINT8_T;
                let code = ffi::MPI_Isend(ptr::null(), 0, kind, to as c_int, TAG_DATA, self.comm.0, &mut request);
                if code == ffi::MPI_SUCCESS as c_int { ffi::MPI_Request_free(&mut request) } else { code }
            };
            ok(self.rank, "MPI_Isend", code)?;
        }
        Ok(())
    }

    fn all_left(&self) -> bool {
        locked(&self.news).left.iter().all(Option::is_some)
    }

    /// Whether a rank left so long ago that no message of it can be on its way.
    fn is_gone(&self, rank: usize) -> bool {
        locked(&self.news).left.get(rank).copied().flatten().is_some_and(|when| when.elapsed() > GRACE)
    }
}

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
    /// Duplicates a communicator. Collective. `notices` says whether the ranks will tell each other when they leave.
    ///
    /// # Safety
    /// `comm` is a valid communicator or null.
    pub unsafe fn duplicate(comm: ffi::MPI_Comm, notices: bool) -> Result<Mpi> {
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
            let departures = if notices { Some(Departures::new(comm, rank, size)?) } else { None };
            let family = Family {
                owner: thread::current().id(),
                serialized: level >= ffi::RSMPI_THREAD_SERIALIZED,
                forgotten: Mutex::default(),
                departures,
            };
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
        self.family.departures.as_ref().is_some_and(|departures| departures.is_gone(self.members[rank]))
    }

    fn abort(&self, message: &str) -> ! {
        end_all(self.comms.collective.0, self.members[self.rank], message)
    }
}

/// Prints one message and ends all ranks with exit code 1.
fn end_all(comm: ffi::MPI_Comm, rank: usize, message: &str) -> ! {
    use std::io::Write;
    // One write, so that lines of several ranks do not mix; where nobody listens there is nobody to tell.
    let _ = std::io::stdout().flush();
    let _ = std::io::stderr().write_all(format!("rank {rank}: {message}\n").as_bytes());
    let _calls = locked(&CALLS);
    if is_alive() {
        // SAFETY: MPI is alive.
        unsafe { ffi::MPI_Abort(comm, 1) };
    }
    std::process::exit(1)
}

/// [`end_all`] of the world.
pub(super) fn end_world(rank: usize, message: &str) -> ! {
    // SAFETY: reads a constant.
    end_all(unsafe { ffi::RSMPI_COMM_WORLD }, rank, message)
}

struct Receive {
    from: usize,
    /// `from`, counted in the first communicator of the family.
    sender: usize,
    bytes: usize,
}

/// A message under way. MPI reads or writes `buffer` until `is_done`.
struct Message {
    family: Arc<Family>,
    comms: Arc<Comms>,
    rank: usize,
    request: Request,
    buffer: Vec<u8>,
    receive: Option<Receive>,
    is_done: bool,
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
        {
            let _calls = self.family.calls(self.rank)?;
            self.family.progress();
        }
        let (Some(receive), Some(departures)) = (&self.receive, &self.family.departures) else { return Ok(()) };
        if !departures.is_gone(receive.sender) {
            return Ok(());
        }
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
        // A failed test has ended the request too.
        if self.is_done || self.test().is_ok_and(|done| done) || self.is_done {
            return;
        }
        // SAFETY: reads a constant.
        let null = Request(unsafe { ffi::RSMPI_REQUEST_NULL });
        locked(&self.family.forgotten).push(Forgotten {
            request: std::mem::replace(&mut self.request, null),
            cancel: self.receive.is_some(),
            _buffer: std::mem::take(&mut self.buffer),
            _comms: self.comms.clone(),
        });
        if let Ok(_calls) = self.family.calls(self.rank) {
            self.family.reap();
        }
    }
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
