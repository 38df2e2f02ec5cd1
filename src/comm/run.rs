//! Running a body as one rank or as threads, and whether another process ends the run.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(feature = "mpi")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::error::panic_message;
use super::{CommError, Communicator, Failure, RunError, Threads, World};
use crate::parallel::locked;

/// Runs a body as the only rank, on the calling thread.
///
/// # Errors
/// What the body returned, or its panic.
pub fn run_solo<T, E>(body: impl FnOnce(Communicator) -> Result<T, E>) -> Result<T, RunError>
where
    E: Into<Box<dyn Error + Send + Sync>>,
{
    caught(|| body(Communicator::solo())).map_err(|failure| RunError { rank: 0, failure })
}

/// Runs a body on `ranks` threads of this process and returns their values in rank order.
///
/// - Blocks until every rank is done. The threads are named `rank 0`, `rank 1`, ...
/// - The first rank to fail, by an error, a panic or [`abort`](Communicator::abort), ends the waits
///   of all others with [`CommError::PeerFailed`]. A rank in the middle of a computation notices at
///   its next message.
///
/// ```
/// use meshloom::comm::{CommError, RunError, run_threads};
///
/// let ranks = run_threads(3, |comm| comm.all_gather(&[comm.rank() as u32])).unwrap();
/// assert_eq!(ranks, [[0, 1, 2]; 3]);
///
/// let error = run_threads(2, |comm| match comm.rank() {
///     1 => Err("no such file".to_owned()),
///     _ => comm.receive(1, 0, 8).and_then(|message| message.wait()).map_err(|error| error.to_string()),
/// })
/// .unwrap_err();
/// assert_eq!(error.to_string(), "rank 1: no such file");
/// ```
///
/// # Errors
/// The first failure; [`CommError::Untaken`] where no rank failed, but some called collectives that
/// others did not.
pub fn run_threads<T, E, F>(ranks: usize, body: F) -> Result<Vec<T>, RunError>
where
    T: Send,
    E: Into<Box<dyn Error + Send + Sync>>,
    F: Fn(Communicator) -> Result<T, E> + Sync,
{
    let start = |rank, text: String| RunError::new(rank, CommError::Start(text));
    if ranks == 0 {
        return Err(start(0, "0 ranks were asked for; ask for at least 1".to_owned()));
    }
    let world = Arc::new(World::new(ranks));
    let failures: Mutex<Vec<RunError>> = Mutex::new(Vec::new());
    let fail = |message: &str, error: RunError| {
        world.fail(error.rank, message);
        locked(&failures).push(error);
    };
    let run = |rank: usize| {
        // Dropped after the rank has left or failed: others must not see that the communicator is
        // gone before they see why.
        let comm = Communicator::new(Box::new(Threads::world(world.clone(), rank)));
        match caught(|| body(comm.clone())) {
            Ok(value) => {
                world.leave(rank);
                Some(value)
            }
            Err(failure) => {
                fail(&failure.to_string(), RunError { rank, failure });
                None
            }
        }
    };
    let values: Vec<Option<T>> = thread::scope(|scope| {
        let mut threads = Vec::with_capacity(ranks);
        for rank in 0..ranks {
            let run = &run;
            // A main thread's usual stack, which drivers and compilers called from a rank rely on.
            let builder = thread::Builder::new().name(format!("rank {rank}")).stack_size(8 << 20);
            match builder.spawn_scoped(scope, move || run(rank)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    let text = format!("no thread for rank {rank} of {ranks}: {error}; ask for fewer");
                    fail(&text.clone(), start(rank, text));
                    break;
                }
            }
        }
        threads.into_iter().map(|thread| thread.join().unwrap_or(None)).collect()
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = world.first_failure().and_then(|(rank, _)| first_of(failures, rank)) {
        return Err(error);
    }
    // An abort from another thread of a rank that then returned a value has left only its message.
    if let Some((rank, message)) = world.first_failure() {
        return Err(RunError { rank, failure: Failure::Panic(message) });
    }
    match world.untaken() {
        0 => Ok(values.into_iter().flatten().collect()),
        messages => Err(RunError::new(0, CommError::Untaken { messages })),
    }
}

/// Returns the failure of the rank `first` or, where it reports that of another rank, the failure
/// of that rank.
fn first_of(mut failures: Vec<RunError>, first: usize) -> Option<RunError> {
    let at = failures.iter().position(|error| error.rank == first)?;
    let text = failures[at].to_string();
    let is_origin = |error: &RunError| text.starts_with(&format!("rank {}: ", error.rank)) && error.to_string() == text;
    let origin = failures.iter().position(is_origin).unwrap_or(at);
    Some(failures.swap_remove(origin))
}

/// Returns what a body returns, or how it fails.
fn caught<T, E: Into<Box<dyn Error + Send + Sync>>>(body: impl FnOnce() -> Result<T, E>) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result.map_err(|error| Failure::Error(error.into())),
        Err(panic) => Err(Failure::Panic(panic_message(panic.as_ref()))),
    }
}

#[cfg(feature = "mpi")]
static ANNOUNCED: AtomicBool = AtomicBool::new(false);

/// Notes that another process has announced its failure.
#[cfg(feature = "mpi")]
pub(super) fn note_ending() {
    ANNOUNCED.store(true, Ordering::SeqCst);
}

/// Returns `true` if another MPI process has announced that it fails, and this one has received the
/// announcement while it waited for messages. The launcher will end all processes soon: it sends
/// SIGTERM, and SIGKILL about a second later. A handler of signals should clean up at once.
#[must_use]
pub fn is_ending() -> bool {
    #[cfg(feature = "mpi")]
    return ANNOUNCED.load(Ordering::SeqCst);
    #[cfg(not(feature = "mpi"))]
    false
}
