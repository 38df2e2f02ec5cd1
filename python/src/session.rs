//! A rank's device and communicator, on a thread of their own.
//!
//! Work is handed to that thread, and the caller waits without the interpreter's lock and looks for
//! signals now and then: an interrupted call returns at once, what it began ends in the background,
//! and what is called next comes after that.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use meshloom::ShareOption;
use meshloom::comm::Communicator;
use meshloom::fft::Spec;
use meshloom::gpu::primitives::{AxisReduce, Elementwise, MatrixProduct};
use meshloom::gpu::{Gpu, Options, cache_directory};
use meshloom::grid::Grid;
use meshloom::inference::SampleGroups;
use meshloom::rank::{Parts, Rank};
use pyo3::prelude::*;

use crate::custom::take_raised;
use crate::failure::{Error, Failure};
use crate::messages;

/// Time that a waiting caller sleeps between checks for signals.
const SIGNALS: Duration = Duration::from_millis(20);

/// Time for which a session's thread looks for another job before it sleeps. In a loop of small
/// jobs the next one comes within 20 us, and waking the thread would take as long.
const ATTENTION: Duration = Duration::from_micros(50);

/// Transforms that are kept: each has kernels and tables of its lengths.
const TRANSFORMS: usize = 32;

/// State of a session's thread.
pub struct Work {
    pub context: Rank,
    /// Transforms that were used last, the latest at the end.
    transforms: Vec<(Spec, Box<dyn Any>)>,
    /// Kernels of arithmetic with arrays.
    pub elementwise: Elementwise,
    pub axis_reduce: AxisReduce,
    pub matrix_product: MatrixProduct,
    /// Objects that callers hold by number, because they stay on this thread.
    pub kept: HashMap<u64, Rc<dyn Any>>,
    /// The groups of samples that this rank and others are.
    pub groups: Rc<SampleGroups>,
    /// Warnings of the present job.
    warnings: Vec<String>,
    /// Things that were ever kept.
    numbers: u64,
    watch: Watch,
}

/// Whether a job is still wanted.
#[derive(Clone)]
pub struct Watch {
    /// The rank is to end.
    interrupted: Arc<AtomicBool>,
    /// True if no caller waits for the job.
    given_up: Arc<AtomicBool>,
}

impl Watch {
    /// Fails once the caller has given the call up: for jobs of many steps.
    pub fn go_on(&self) -> Result<(), Failure> {
        let end = [&self.interrupted, &self.given_up].iter().any(|flag| flag.load(Ordering::Relaxed));
        if end { Err(Failure::Interrupted) } else { Ok(()) }
    }
}

impl Work {
    fn new(context: Rank, groups: SampleGroups, interrupted: Arc<AtomicBool>) -> Self {
        let watch = Watch { interrupted, given_up: Arc::default() };
        let (groups, kept) = (Rc::new(groups), HashMap::new());
        let (elementwise, axis_reduce, matrix_product, transforms, warnings) = Default::default();
        Work {
            context,
            transforms,
            elementwise,
            axis_reduce,
            matrix_product,
            kept,
            groups,
            warnings,
            numbers: 0,
            watch,
        }
    }

    /// Adds a warning for the caller of the job, who sees it if the job succeeds.
    pub fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Keeps something on this thread and gives its number.
    pub fn keep(&mut self, thing: impl Any) -> u64 {
        self.numbers += 1;
        self.kept.insert(self.numbers, Rc::new(thing));
        self.numbers
    }

    /// Returns `true` if ranks have called different collectives.
    pub fn is_out_of_step(&mut self) -> bool {
        self.context.is_out_of_step()
    }

    /// Returns what says whether the present job is still wanted.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Runs `body` with the transform of `spec`, created by `make` unless it is kept, and the parts
    /// of the rank for `grid`.
    pub fn with_transform<T: 'static, R>(
        &mut self,
        spec: &Spec,
        grid: Grid,
        make: impl FnOnce(&mut Rank) -> Result<T, Failure>,
        body: impl FnOnce(Parts<'_>, &T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let at = self.transforms.iter().position(|(known, transform)| known == spec && transform.is::<T>());
        let transform = match at {
            Some(at) => self.transforms.remove(at).1,
            None => Box::new(make(&mut self.context)?),
        };
        if self.transforms.len() >= TRANSFORMS {
            self.transforms.remove(0);
        }
        let result = match transform.downcast_ref::<T>() {
            Some(transform) => body(self.context.parts(grid)?, transform),
            None => Err(Failure::Panic("a transform of another type was kept".into())),
        };
        self.transforms.push((spec.clone(), transform));
        result
    }
}

thread_local! {
    /// Warnings of the jobs that this thread has waited for.
    static WARNINGS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Returns the warnings of the calls of this thread since the last time.
#[pyfunction]
pub fn take_warnings() -> Vec<String> {
    WARNINGS.take()
}

type Job = Box<dyn FnOnce(&mut Work) + Send>;

/// Returns the next job; `None` if the session has ended.
fn next_job(queue: &Receiver<Job>) -> Option<Job> {
    let begin = Instant::now();
    while begin.elapsed() < ATTENTION {
        match queue.try_recv() {
            Ok(job) => return Some(job),
            Err(TryRecvError::Empty) => thread::yield_now(),
            Err(TryRecvError::Disconnected) => return None,
        }
    }
    queue.recv().ok()
}

/// A rank: its thread, and what is known of it outside.
pub struct Session {
    jobs: Mutex<Option<SyncSender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    interrupted: Arc<AtomicBool>,
    /// Numbers of released objects; the next job drops them.
    released: Arc<Mutex<Vec<u64>>>,
    /// Sessions of the same rank in groups of the ranks, which end with this one.
    parts: Mutex<Vec<Weak<Session>>>,
    gpu: Gpu,
    rank: usize,
    size: usize,
    /// Ranks that work together, those of other groups too.
    all: usize,
}

/// The process that has opened a device; 0 while none has.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Refuses a process that was forked from one that has used a device: what drivers and threads are
/// to it, it does not have.
pub fn not_forked() -> PyResult<()> {
    let here = std::process::id();
    let used = PROCESS.load(Ordering::Relaxed);
    if used == 0 || used == here {
        return Ok(());
    }
    Err(Error::new_err(
        "this process was forked from one that has used a device, which it cannot share; start processes with \
         multiprocessing.get_context(\"spawn\") or \"forkserver\", or fork before the first call",
    ))
}

/// Notes that this process uses devices from now on.
pub fn device_is_used() -> PyResult<()> {
    not_forked()?;
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    Ok(())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the text of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}

/// Runs `body`, and makes a panic in it a failure.
pub fn caught<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(Failure::Panic(panic_text(panic.as_ref()))))
}

impl Session {
    /// Returns the session of a rank that has this context.
    ///
    /// Arrays of Python's ranks are parts of `numpy.array_split`, which have equal shares.
    pub fn new(context: Rank) -> Result<Arc<Session>, Failure> {
        if context.size() > 1 && ShareOption::from_env()? != ShareOption::Equal {
            let why = "MESHLOOM_SHARES: expected `equal` or no value, since Python's ranks have parts of numpy.array_split; \
                       unset the variable";
            return Err(Failure::Value(why.into()));
        }
        let groups = SampleGroups::one(&context.comm);
        Self::in_groups(context, groups)
    }

    /// Returns the session of a rank whose context is that of its group of samples.
    fn in_groups(context: Rank, groups: SampleGroups) -> Result<Arc<Session>, Failure> {
        let (jobs, queue) = sync_channel::<Job>(16);
        let interrupted = Arc::new(AtomicBool::new(false));
        let (gpu, rank, size) = (context.gpu.clone(), context.comm.rank(), context.comm.size());
        let all = groups.all().size();
        let flag = interrupted.clone();
        // A main thread's usual stack, which drivers and compilers rely on.
        let builder = thread::Builder::new().name(format!("meshloom {rank}")).stack_size(8 << 20);
        let thread = builder.spawn(move || {
            let mut work = Work::new(context, groups, flag);
            while let Some(job) = next_job(&queue) {
                job(&mut work);
            }
            work.context.gpu.save_pipelines();
        });
        let thread = thread.map_err(|error| Failure::Panic(format!("no thread for rank {rank}: {error}")))?;
        let (jobs, thread) = (Mutex::new(Some(jobs)), Mutex::new(Some(thread)));
        let (released, parts) = Default::default();
        Ok(Arc::new(Session { jobs, thread, interrupted, released, parts, gpu, rank, size, all }))
    }

    /// Returns the session of this rank in its group of samples, for `count` groups. Collective.
    pub fn sample_groups(&self, py: Python<'_>, count: usize) -> PyResult<Arc<Session>> {
        let part = self.run(py, move |work| {
            let (groups, own) = SampleGroups::split(&work.context.comm, count)?;
            let mut context = Rank::new(own, work.context.gpu.clone())?;
            // Devices are shared with other groups, too.
            context.sharing = work.context.sharing;
            Self::in_groups(context, groups)
        })?;
        locked(&self.parts).push(Arc::downgrade(&part));
        Ok(part)
    }

    /// Sessions of the same rank in groups of the ranks.
    fn parts(&self) -> Vec<Arc<Session>> {
        let mut parts = locked(&self.parts);
        parts.retain(|part| part.strong_count() > 0);
        parts.iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the session of a rank of `comm`, on a device that the environment chooses. All ranks
    /// call it.
    pub fn open(comm: Communicator) -> Result<Arc<Session>, Failure> {
        Self::new(Rank::open(comm, &device_options()?)?)
    }

    /// Returns its number among [`size`](Self::size).
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of ranks that work together, those of other groups of samples too.
    pub fn ranks_of_all_groups(&self) -> usize {
        self.all
    }

    /// Returns its device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Ends what runs, where that looks for it, and makes later jobs fail.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        self.parts().iter().for_each(|part| part.interrupt());
    }

    /// Releases a number: the next job drops its object.
    pub fn release(&self, number: u64) {
        locked(&self.released).push(number);
    }

    /// Returns `true` if what runs here is to end.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Ends the thread after the jobs that it has, which are left to themselves at `limit`; later
    /// calls fail.
    pub fn close(&self, limit: Option<Instant>) {
        self.parts().iter().for_each(|part| part.close(limit));
        drop(locked(&self.jobs).take());
        let thread = locked(&self.thread).take();
        thread.into_iter().for_each(|thread| join(thread, limit));
    }

    /// Refuses calls from a function that the session's own thread has called back: they would wait
    /// for themselves.
    fn not_within(&self) -> PyResult<()> {
        let own = locked(&self.thread).as_ref().map(|thread| thread.thread().id());
        if own != Some(thread::current().id()) {
            return Ok(());
        }
        Err(Error::new_err(
            "the device is at work for the call that has called this function, and takes no other one meanwhile; keep what is to \
             be done with it for a callback, or for afterwards",
        ))
    }

    /// Runs `job` on the session's thread and waits for what it returns.
    ///
    /// # Errors
    /// What the job returned, its panic as `meshloom.Error`, what a handler of a signal raised, and
    /// `KeyboardInterrupt` where the rank was [interrupted](Self::interrupt): the job may wait for
    /// other ranks, and in vain.
    pub fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        job: impl FnOnce(&mut Work) -> Result<T, Failure> + Send + 'static,
    ) -> PyResult<T> {
        not_forked()?;
        self.not_within()?;
        let (reply, result) = sync_channel(1);
        let given_up = Arc::new(AtomicBool::new(false));
        let (flag, released, ranks) = (given_up.clone(), self.released.clone(), self.all);
        let job: Job = Box::new(move |work| {
            let released = std::mem::take(&mut *locked(&released));
            released.iter().for_each(|number| drop(work.kept.remove(number)));
            work.watch.given_up = flag;
            let outcome = caught(|| work.watch.go_on().and_then(|()| job(work)));
            let outcome = match (take_raised(), outcome) {
                (Some(error), Err(failure @ Failure::Library(_))) => Err(failure.caused_by(error, ranks)),
                (_, outcome) => outcome,
            };
            let warnings = std::mem::take(&mut work.warnings);
            // No caller waits after an interrupt.
            let _ = reply.send(outcome.map(|value| (value, warnings)));
        });
        let closed = || Error::new_err("the ranks of this communicator have ended");
        let jobs = locked(&self.jobs).clone().ok_or_else(closed)?;
        py.detach(move || jobs.send(job)).map_err(|_| closed())?;
        match wait(py, result, &self.interrupted) {
            Ok(outcome) => {
                let ended = || Err(Failure::Panic("the device's thread has ended".into()));
                let (value, warnings) = outcome.unwrap_or_else(ended)?;
                WARNINGS.with_borrow_mut(|all| all.extend(warnings));
                Ok(value)
            }
            Err(signal) => {
                given_up.store(true, Ordering::Relaxed);
                if self.all > 1 {
                    // The other ranks would wait for what this one leaves out.
                    self.interrupt();
                }
                Err(signal)
            }
        }
    }
}

/// Returns the options of devices: those of the environment, and a directory of the user for
/// compiled kernels where it names none.
pub fn device_options() -> Result<Options, Failure> {
    let options = Options::from_env()?;
    let cache = options.cache.clone().or_else(cache_directory);
    Ok(Options { cache, ..options })
}

/// Waits for a thread, until `limit` if there is one. A panic there was caught already.
pub fn join(thread: JoinHandle<()>, limit: Option<Instant>) {
    while limit.is_some_and(|limit| Instant::now() < limit) && !thread.is_finished() {
        thread::sleep(SIGNALS);
    }
    if limit.is_none() || thread.is_finished() {
        let _ = thread.join();
    }
}

/// Returns what comes through a channel, `None` if it is closed.
///
/// # Errors
/// - An exception that a signal handler, or a filter of the logger, raised meanwhile.
/// - `KeyboardInterrupt` if another thread was interrupted and has set `interrupted`.
pub fn wait<T: Send>(py: Python<'_>, mut result: Receiver<T>, interrupted: &AtomicBool) -> PyResult<Option<T>> {
    loop {
        let (back, found) = py.detach(move || {
            let found = result.recv_timeout(SIGNALS);
            (result, found)
        });
        result = back;
        messages::pass_on(py)?;
        match found {
            Ok(value) => return Ok(Some(value)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if interrupted.load(Ordering::Relaxed) => {
                return Err(Failure::Interrupted.into());
            }
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
        }
    }
}
