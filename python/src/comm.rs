//! A rank, as Python holds it; the rank of a process that has no others; ranks as threads.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use meshloom::Rank;
use meshloom::comm::Communicator;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::failure::Failure;
use crate::session::{Session, Work, device_is_used, device_options, join, wait};

/// A rank and its device, the argument ``comm`` of functions.
///
/// `meshloom.ranks` passes one to each of its threads, and `inference.sample_groups` returns one.
/// Functions also take a communicator of mpi4py.
#[pyclass(frozen, module = "meshloom", name = "Comm")]
pub struct Comm {
    pub session: Arc<Session>,
}

#[pymethods]
impl Comm {
    /// Number of this rank, from 0 to ``size - 1``.
    #[getter]
    fn rank(&self) -> usize {
        self.session.rank()
    }

    /// Number of ranks.
    #[getter]
    fn size(&self) -> usize {
        self.session.size()
    }

    /// Name of this rank's device.
    #[getter]
    fn device(&self) -> String {
        self.session.gpu().info().name.clone()
    }

    /// True if this rank's device computes in double precision.
    #[getter]
    fn has_f64(&self) -> bool {
        self.session.gpu().capabilities().f64
    }

    /// Device memory that this process holds on the device in bytes, in use or free for reuse.
    #[getter]
    fn allocated(&self) -> u64 {
        self.session.gpu().allocated()
    }

    /// Number of buffers requested from the driver so far.
    #[getter]
    fn allocations(&self) -> u64 {
        self.session.gpu().allocations()
    }

    /// Number of compiled kernels in the cache of this process, at most 256.
    #[getter]
    fn kernels(&self) -> usize {
        self.session.gpu().kernels_kept()
    }

    /// Returns free device memory to the driver. Not collective: buffers in use stay.
    fn trim(&self) {
        self.session.gpu().trim();
    }

    /// Returns the number that distinguishes it from those of other ranks in this process.
    #[getter(_number)]
    fn number(&self) -> usize {
        Arc::as_ptr(&self.session).addr()
    }

    /// Returns the bytes of all ranks, in rank order. Collective.
    #[pyo3(name = "_allgather")]
    fn allgather(&self, py: Python<'_>, own: Vec<u8>) -> PyResult<Vec<Py<PyBytes>>> {
        self.gather(py, own, |work| work.context.comm.clone())
    }

    /// Returns the number of ranks of all groups of samples.
    #[getter(_ranks_of_all_groups)]
    fn ranks_of_all_groups(&self) -> usize {
        self.session.ranks_of_all_groups()
    }

    /// Returns the number of this rank among those of all groups of samples.
    #[getter(_rank_of_all_groups)]
    fn rank_of_all_groups(&self, py: Python<'_>) -> PyResult<usize> {
        self.session.run(py, |work| Ok(work.groups.all().rank()))
    }

    /// Returns the bytes of the ranks of all groups of samples, who all call it.
    #[pyo3(name = "_allgather_of_all_groups")]
    fn allgather_of_all_groups(&self, py: Python<'_>, own: Vec<u8>) -> PyResult<Vec<Py<PyBytes>>> {
        self.gather(py, own, |work| work.groups.all().clone())
    }

    /// Returns whether ranks have called different collectives, so that what follows fails.
    #[getter(_out_of_step)]
    fn out_of_step(&self, py: Python<'_>) -> PyResult<bool> {
        self.session.run(py, |work| Ok(work.is_out_of_step()))
    }

    /// Returns this rank in its group of samples, for `count` groups. Collective.
    #[pyo3(name = "_sample_groups")]
    fn sample_groups(&self, py: Python<'_>, count: usize) -> PyResult<Comm> {
        Ok(Comm { session: noted(self.session.sample_groups(py, count)?) })
    }

    /// Ends the device as a driver does that gives it up: what is called on it fails from then on.
    /// For tests.
    #[pyo3(name = "_lose_device")]
    fn lose_device(&self, py: Python<'_>) {
        let gpu = self.session.gpu();
        py.detach(|| {
            gpu.failure_reporter()("the device was lost (as was asked for)");
            gpu.device().destroy();
        });
    }

    fn __repr__(&self) -> String {
        format!("<meshloom.Comm: rank {} of {} on {}>", self.rank(), self.size(), self.device())
    }
}

impl Comm {
    /// Returns the bytes of all ranks of a communicator.
    fn gather(&self, py: Python<'_>, own: Vec<u8>, of: fn(&Work) -> Communicator) -> PyResult<Vec<Py<PyBytes>>> {
        let parts = self.session.run(py, move |work| {
            let parts = of(work).all_gather_v(&own)?;
            Ok(parts)
        })?;
        let bytes = |part: &[u8]| {
            PyBytes::new_with(py, part.len(), |to| {
                to.copy_from_slice(part);
                Ok(())
            })
        };
        parts.iter().map(|part| Ok(bytes(part)?.unbind())).collect()
    }
}

/// All sessions, to be ended before the process is.
static SESSIONS: Mutex<Vec<Weak<Session>>> = Mutex::new(Vec::new());
/// The threads that `run_ranks` has started, which end after their ranks.
static LAUNCHES: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());
/// Time that the end of the process waits for abandoned work: a rank may never return from the
/// function that it runs.
const AT_EXIT: Duration = Duration::from_secs(5);
/// The one rank of a process that works alone.
static ALONE: Mutex<Option<Arc<Session>>> = Mutex::new(None);

/// Notes a session, so that it ends before the process does.
pub fn noted(session: Arc<Session>) -> Arc<Session> {
    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    sessions.retain(|session| session.strong_count() > 0);
    sessions.push(Arc::downgrade(&session));
    session
}

/// Returns the number of processes that a launcher started together; `None` for a single process.
#[pyfunction]
pub fn launched_ranks() -> Option<usize> {
    meshloom::comm::mpi_ranks()
}

/// Returns this process as the only rank, on the device that the environment chooses; opened by the
/// first call.
#[pyfunction]
pub fn alone(py: Python<'_>) -> PyResult<Comm> {
    device_is_used()?;
    let session = py.detach(|| {
        let mut alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        match &*alone {
            // A lost device stays lost; arrays on it report the loss.
            Some(session) if session.gpu().check().is_ok() => Ok(session.clone()),
            _ => {
                let session = noted(crate::session::caught(|| Session::open(Communicator::solo()))?);
                Ok::<_, Failure>(alone.insert(session).clone())
            }
        }
    })?;
    Ok(Comm { session })
}

/// Ends the threads of all ranks, except work that is still running after [`AT_EXIT`].
#[pyfunction]
pub fn close(py: Python<'_>) {
    if crate::session::not_forked().is_err() {
        return;
    }
    py.detach(|| {
        let limit = Some(Instant::now() + AT_EXIT);
        let sessions = std::mem::take(&mut *SESSIONS.lock().unwrap_or_else(PoisonError::into_inner));
        let sessions: Vec<_> = sessions.iter().filter_map(Weak::upgrade).collect();
        ALONE.lock().unwrap_or_else(PoisonError::into_inner).take();
        sessions.iter().for_each(|session| session.interrupt());
        let launches = std::mem::take(&mut *LAUNCHES.lock().unwrap_or_else(PoisonError::into_inner));
        launches.into_iter().for_each(|launch| join(launch, limit));
        sessions.iter().for_each(|session| session.close(limit));
    });
}

/// Runs `body(comm)` on `count` ranks, each a thread, and returns their results in rank order.
#[pyfunction]
pub fn run_ranks(py: Python<'_>, count: usize, body: Py<PyAny>) -> PyResult<Py<PyList>> {
    if count == 0 {
        return Err(PyValueError::new_err("count: expected 1 or more, got 0"));
    }
    device_is_used()?;
    let options = device_options()?;
    let sessions: Arc<Mutex<Vec<Arc<Session>>>> = Arc::default();
    let (reply, results) = sync_channel(1);
    let running = sessions.clone();
    let run = move || {
        let rank = |comm: Communicator| {
            let session = noted(Session::new(Rank::open(comm, &options).map_err(Failure::from)?)?);
            running.lock().unwrap_or_else(PoisonError::into_inner).push(session.clone());
            let outcome = Python::attach(|py| {
                let comm = Comm { session: session.clone() }.into_pyobject(py)?;
                body.call1(py, (comm,))
            });
            // What the rank still does ends before the others see that it has left. After an
            // interrupt it may wait for them, and they for it, until they see that it has failed.
            if !session.is_interrupted() {
                session.close(None);
            }
            outcome.map_err(Failure::from)
        };
        let outcome = match count {
            1 => meshloom::comm::run_solo(rank).map(|value| vec![value]),
            _ => meshloom::comm::run_threads(count, rank),
        };
        let outcome = outcome.map_err(Failure::from);
        let ended = std::mem::take(&mut *running.lock().unwrap_or_else(PoisonError::into_inner));
        ended.iter().for_each(|session| session.close(None));
        // No caller waits after an interrupt.
        let _ = reply.send(outcome);
    };
    let launch = thread::Builder::new().name("meshloom ranks".into()).spawn(run)?;
    let mut launches = LAUNCHES.lock().unwrap_or_else(PoisonError::into_inner);
    launches.retain(|launch| !launch.is_finished());
    launches.push(launch);
    drop(launches);
    match wait(py, results, &AtomicBool::new(false)) {
        Ok(Some(values)) => Ok(PyList::new(py, values?)?.unbind()),
        Ok(None) => Err(Failure::Panic("the ranks have ended without a word".into()).into()),
        Err(signal) => {
            let sessions = sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.iter().for_each(|session| session.interrupt());
            Err(signal)
        }
    }
}
