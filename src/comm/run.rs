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

/// Returns `true` if a launcher (`mpirun`, `srun`) started this process as one of several.
///
/// Reads the environment only. The processes may still be unable to find each other:
/// [`run_mpi`](super::run_mpi) checks that.
pub fn mpi_launched() -> bool {
    mpi_ranks().is_some()
}

/// Returns the number of processes that a launcher started together; `None` for a single process.
pub fn mpi_ranks() -> Option<usize> {
    Launched::from_env().map(|launched| launched.ranks)
}

/// Processes that a launcher started as the ranks of one program, by their environment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Launched {
    /// The number of processes; more than 1.
    pub ranks: usize,
    /// The variables that contain this number.
    variables: Vec<&'static str>,
    /// Whether the launcher tells processes how they find each other.
    has_pmi: bool,
}

impl Launched {
    /// The launch that this process is part of; `None` for a single process.
    pub fn from_env() -> Option<Launched> {
        Launched::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Launched> {
        let several = |name: &&str| variable(name)?.trim().parse().ok().filter(|&ranks: &usize| ranks > 1);
        let is_set = |name: &&str| variable(name).is_some();
        // Open MPI; MPICH, Intel MPI and Slurm's PMI-2; MVAPICH; MPICH and Intel MPI again.
        let sizes = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "MPI_LOCALNRANKS"];
        let mut variables: Vec<&'static str> = sizes.into_iter().filter(|name| several(name).is_some()).collect();
        let pmi = ["PMI_RANK", "PMI_FD", "PMI_PORT", "PMI_CONTROL_PORT", "PMIX_RANK", "PALS_RANKID"];
        let has_pmi = !variables.is_empty() || pmi.iter().any(is_set);
        // A batch script has SLURM_NTASKS and SLURM_PROCID, but is no task of a step.
        let step = "SLURM_STEP_NUM_TASKS";
        if (has_pmi || is_set(&"SLURM_PROCID")) && several(&step).is_some() {
            variables.push(step);
        }
        let ranks = variables.first().and_then(several)?;
        Some(Launched { ranks, variables, has_pmi })
    }

    /// Returns `true` if `srun` started the processes without a PMI.
    #[cfg(feature = "mpi")]
    pub fn is_without_pmi(&self) -> bool {
        !self.has_pmi
    }

    /// The error of a build without MPI, whose processes would each do the whole work.
    #[cfg(any(not(feature = "mpi"), test))]
    pub fn without_mpi(&self) -> CommError {
        CommError::Start(format!(
            "{}, but this program was built without MPI; build it with the feature `mpi`{}",
            self.describe(),
            self.independent_runs()
        ))
    }

    /// The error of processes that the MPI library `library` did not connect.
    #[cfg(any(feature = "mpi", test))]
    pub fn not_connected(&self, library: &str) -> CommError {
        let remedy = match self.has_pmi {
            true => "use the launcher of this MPI library, or `srun --mpi=pmix`",
            false => "use `srun --mpi=pmix` (`srun --mpi=list` shows all), or `mpirun` of this MPI library",
        };
        // The rest of the text is about its build.
        let library = library.split([',', '\n', '\0']).next().unwrap_or_default().trim();
        CommError::Start(format!(
            "{}, but the MPI library ({library}) did not connect them; {remedy}{}",
            self.describe(),
            self.independent_runs()
        ))
    }

    fn describe(&self) -> String {
        let variables: Vec<String> = self.variables.iter().map(|name| format!("{name}={}", self.ranks)).collect();
        format!("a launcher started {} processes ({})", self.ranks, variables.join(", "))
    }

    fn independent_runs(&self) -> String {
        format!("; for independent runs use `Launch::Solo` or unset {}", self.variables.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use super::Launched;

    fn with(set: &[(&str, &str)]) -> Option<Launched> {
        Launched::from_variables(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn ranks(set: &[(&str, &str)]) -> Option<usize> {
        with(set).map(|launched| launched.ranks)
    }

    #[test]
    fn a_launcher_is_known_by_its_environment() {
        assert_eq!(ranks(&[]), None);
        assert_eq!(ranks(&[("OMPI_COMM_WORLD_SIZE", "1")]), None);
        assert_eq!(ranks(&[("OMPI_COMM_WORLD_SIZE", "4")]), Some(4));
        assert_eq!(ranks(&[("PMI_SIZE", "2")]), Some(2));
        assert_eq!(ranks(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")]), Some(2));
        assert_eq!(ranks(&[("MV2_COMM_WORLD_SIZE", "3")]), Some(3));
        assert_eq!(ranks(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), None, "a batch script is not a launch");
        assert_eq!(ranks(&[("SLURM_STEP_NUM_TASKS", "8")]), None);
        assert_eq!(ranks(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(ranks(&[("PMIX_RANK", "0"), ("SLURM_STEP_NUM_TASKS", "8")]), Some(8));
        assert_eq!(ranks(&[("PALS_RANKID", "0"), ("SLURM_STEP_NUM_TASKS", "8")]), Some(8));
        assert_eq!(ranks(&[("PMI_SIZE", "many")]), None);
    }

    #[test]
    fn processes_of_a_step_without_pmi_are_told_how_to_find_each_other() {
        let step = [("SLURM_PROCID", "3"), ("SLURM_STEP_NUM_TASKS", "16")];
        let launched = with(&step).unwrap();
        assert_eq!((launched.ranks, launched.has_pmi), (16, false));
        let text = launched.not_connected("Open MPI v4.1.4, package: Debian\nmore").to_string();
        for part in ["16 processes (SLURM_STEP_NUM_TASKS=16)", "(Open MPI v4.1.4)", "`srun --mpi=pmix`"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(text.ends_with("`Launch::Solo` or unset SLURM_STEP_NUM_TASKS"), "{text}");
        assert!(with(&[("PMI_FD", "5"), step[1]]).unwrap().has_pmi);
    }

    #[test]
    fn a_build_without_mpi_names_the_feature_and_the_way_to_independent_runs() {
        for (name, value) in [("OMPI_COMM_WORLD_SIZE", "3"), ("PMI_SIZE", "3"), ("MPI_LOCALNRANKS", "3")] {
            let text = with(&[(name, value)]).unwrap().without_mpi().to_string();
            assert!(text.contains(&format!("3 processes ({name}=3)")) && text.contains("feature `mpi`"), "{text}");
            assert!(text.ends_with(&format!("`Launch::Solo` or unset {name}")), "{text}");
        }
    }
}
