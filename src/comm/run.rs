//! Running a body as one rank or as threads.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::communicator::Communicator;
use super::error::{CommError, Failure, RunError, panic_message};
use super::sync::locked;
use super::threads::{Threads, World};

/// Runs a body as the only rank, on the calling thread.
///
/// # Errors
/// What the body returned, or its panic.
pub fn run_solo<T, E>(body: impl FnOnce(Communicator) -> Result<T, E>) -> Result<T, RunError<E>> {
    caught(|| body(Communicator::solo())).map_err(|failure| RunError { rank: 0, failure })
}

/// Runs a body on `ranks` threads of this process and returns their values in rank order.
///
/// - Blocks until every rank is done. The threads are named `rank 0`, `rank 1`, ...
/// - The first rank to fail, by an error, a panic or [`abort`](Communicator::abort), ends the waits of all others with
///   [`CommError::PeerFailed`]. A rank in the middle of a computation notices at its next message.
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
/// The first failure; [`CommError::Untaken`] where no rank failed, but some called collectives that others did not.
pub fn run_threads<T, E, F>(ranks: usize, body: F) -> Result<Vec<T>, RunError<E>>
where
    T: Send,
    E: Display + Send,
    F: Fn(Communicator) -> Result<T, E> + Sync,
{
    let start = |rank, text: String| RunError { rank, failure: Failure::Comm(CommError::Start(text)) };
    if ranks == 0 {
        return Err(start(0, "0 ranks were asked for; ask for at least 1".to_owned()));
    }
    let world = Arc::new(World::new(ranks));
    let first: Mutex<Option<RunError<E>>> = Mutex::new(None);
    let fail = |message: &str, error: RunError<E>| {
        if world.fail(error.rank, message) {
            locked(&first).get_or_insert(error);
        }
    };
    let run = |rank: usize| {
        // Dropped after the rank has left or failed: others must not see that the communicator is gone before they see why.
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
    if let Some(error) = first.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    // An abort from another thread of a rank that then returned a value has left only its message.
    if let Some((rank, message)) = world.first_failure() {
        return Err(RunError { rank, failure: Failure::Panic(message) });
    }
    match world.untaken() {
        0 => Ok(values.into_iter().flatten().collect()),
        messages => Err(RunError { rank: 0, failure: Failure::Comm(CommError::Untaken { messages }) }),
    }
}

/// What a body returns, or how it fails.
fn caught<T, E>(body: impl FnOnce() -> Result<T, E>) -> Result<T, Failure<E>> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result.map_err(Failure::Error),
        Err(panic) => Err(Failure::Panic(panic_message(panic.as_ref()))),
    }
}

/// Whether this process was started as one of several MPI ranks, by `mpirun`, `srun` or the like. Reads the
/// environment only.
pub fn mpi_launched() -> bool {
    mpi_ranks().is_some()
}

/// As one of how many MPI ranks this process was started, if there are several; see [`mpi_launched`].
pub fn mpi_ranks() -> Option<usize> {
    launched(|name| std::env::var(name).ok())
}

fn launched(variable: impl Fn(&str) -> Option<String>) -> Option<usize> {
    let several =
        |name: &str| variable(name).and_then(|value| value.trim().parse::<usize>().ok()).filter(|&ranks| ranks > 1);
    let sizes = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "MPI_LOCALNRANKS"];
    // Slurm sets its own sizes in a batch script too, where nothing was launched yet: only with PMI they count.
    let pmi = ["PMI_RANK", "PMI_FD", "PMIX_RANK"].iter().any(|name| variable(name).is_some());
    sizes.into_iter().find_map(several).or_else(|| several("SLURM_STEP_NUM_TASKS").filter(|_| pmi))
}

#[cfg(test)]
mod tests {
    use super::launched;

    fn with(set: &[(&str, &str)]) -> Option<usize> {
        launched(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn a_launcher_is_known_by_its_environment() {
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("OMPI_COMM_WORLD_SIZE", "1")]), None);
        assert_eq!(with(&[("OMPI_COMM_WORLD_SIZE", "4")]), Some(4));
        assert_eq!(with(&[("PMI_SIZE", "2")]), Some(2));
        assert_eq!(with(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), None, "a batch script is not a launch");
        assert_eq!(with(&[("PMIX_RANK", "0"), ("SLURM_STEP_NUM_TASKS", "8")]), Some(8));
        assert_eq!(with(&[("PMI_SIZE", "many")]), None);
    }
}
