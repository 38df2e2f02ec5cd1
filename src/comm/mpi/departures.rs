//! Who has returned from its body.
//!
//! In builds with debug assertions each rank sends a notice to all others, so that one that waits in vain learns it. That
//! is one message for each pair of ranks; other builds only wait for each other, with a barrier that does not spin.

use std::os::raw::c_int;
use std::ptr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ::mpi::ffi;

use super::calls::{Handle, Request, locked, ok};
use super::family::Family;
use crate::comm::Result;

/// A message sent before its sender left may still be on its way when the notice is there.
const GRACE: Duration = Duration::from_millis(500);
const NOTICES: bool = cfg!(debug_assertions);
const TAG: c_int = 0;

/// Notices on a communicator of their own.
pub(super) struct Departures {
    comm: Handle,
    rank: usize,
    news: Mutex<News>,
}

struct News {
    /// The receive of the next notice from anybody, or the barrier.
    request: Request,
    left: Vec<Option<Instant>>,
}

impl Departures {
    /// Collective. The lock must be held.
    pub fn new(comm: ffi::MPI_Comm, rank: usize, size: usize) -> Result<Departures> {
        let comm = Handle::duplicate(rank, comm)?;
        let news = News { request: Request::null(), left: vec![None; size] };
        let departures = Departures { comm, rank, news: Mutex::new(news) };
        if NOTICES && size > 1 {
            ok(rank, "MPI_Irecv", departures.listen(&mut locked(&departures.news).request))?;
        }
        Ok(departures)
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    fn listen(&self, request: &mut Request) -> c_int {
        // SAFETY: an empty message needs no buffer.
        unsafe {
            let (kind, any) = (ffi::RSMPI_UINT8_T, ffi::RSMPI_ANY_SOURCE);
            ffi::MPI_Irecv(ptr::null_mut(), 0, kind, any, TAG, self.comm.0, &mut request.0)
        }
    }

    /// Takes in the notices that have come. The lock must be held.
    pub fn poll(&self) {
        let mut news = locked(&self.news);
        while !news.request.is_null() {
            let (_, Some(status)) = news.request.test() else { return };
            if !NOTICES {
                return; // the barrier is over, and its request null
            }
            if let Some(left) = usize::try_from(status.MPI_SOURCE).ok().and_then(|from| news.left.get_mut(from)) {
                left.get_or_insert_with(Instant::now);
            }
            let others = news.left.iter().enumerate().any(|(rank, left)| rank != self.rank && left.is_none());
            if others && self.listen(&mut news.request) != ffi::MPI_SUCCESS as c_int {
                return;
            }
        }
    }

    /// Tells the others that this rank is done.
    pub fn announce(&self, family: &Family) -> Result<()> {
        let calls = family.calls(self.rank)?; // before the news, as in `poll`'s callers
        let mut news = locked(&self.news);
        if !NOTICES {
            // SAFETY: the communicator is valid and the request null.
            let code = unsafe { ffi::MPI_Ibarrier(self.comm.0, &mut news.request.0) };
            return ok(self.rank, "MPI_Ibarrier", code);
        }
        news.left[self.rank] = Some(Instant::now());
        let size = news.left.len();
        drop(news);
        drop(calls);
        for step in 1..size {
            let to = (self.rank + step) % size;
            let _calls = family.calls(self.rank)?;
            // SAFETY: an empty message needs no buffer; the request is given up, MPI completes it.
            let code = unsafe {
                let mut request = ffi::RSMPI_REQUEST_NULL;
                let kind = ffi::RSMPI_UINT8_T;
                let code = ffi::MPI_Isend(ptr::null(), 0, kind, to as c_int, TAG, self.comm.0, &mut request);
                if code == ffi::MPI_SUCCESS as c_int { ffi::MPI_Request_free(&mut request) } else { code }
            };
            ok(self.rank, "MPI_Isend", code)?;
        }
        Ok(())
    }

    /// After [`announce`](Departures::announce): whether all others have announced too.
    pub fn are_complete(&self) -> bool {
        let news = locked(&self.news);
        if NOTICES { news.left.iter().all(Option::is_some) } else { news.request.is_null() }
    }

    /// Whether a rank left so long ago that no message of it can be on its way.
    pub fn is_gone(&self, rank: usize) -> bool {
        locked(&self.news).left.get(rank).copied().flatten().is_some_and(|when| when.elapsed() > GRACE)
    }
}
