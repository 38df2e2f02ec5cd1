//! Running a program as ranks: alone, as threads of one process, or as MPI processes.

use std::error::Error;

#[cfg(not(feature = "mpi"))]
use crate::comm::CommError;
use crate::comm::{self, Communicator, RunError};
use crate::exchange::{Context, ExchangeError};
use crate::gpu::Options;

/// How the ranks of a program are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// One rank, in this thread.
    Solo,
    /// So many ranks, as threads of this process.
    Threads(usize),
    /// One rank per process that `mpirun`, `srun` or another MPI launcher started (feature `mpi`).
    Mpi,
}

impl Launch {
    /// Returns [`Mpi`](Self::Mpi) if a launcher started this process as one of several, else
    /// [`Solo`](Self::Solo) for one thread, else [`Threads`](Self::Threads).
    ///
    /// Without the feature `mpi`, or if the launcher's processes cannot find each other, [`launch`]
    /// then fails: each process would do the whole work and write the same files. Programs that
    /// want independent processes pass [`Solo`](Self::Solo).
    pub fn detect(threads: usize) -> Self {
        match threads {
            _ if comm::mpi_launched() => Launch::Mpi,
            1 => Launch::Solo,
            _ => Launch::Threads(threads),
        }
    }
}

/// Runs `body` once on every rank and returns the results of the ranks of *this process*, in order. Each rank gets its
/// [`Context`]: `options` choose the device, and ranks of one host take suitable adapters in turn.
///
/// A rank that fails or panics ends all ranks, and its error is returned; any error that a `Box<dyn Error>`
/// can hold will do, `anyhow::Error` too. (Under MPI it is printed and all processes end
/// with exit code 1.)
///
/// ```no_run
/// use meshloom::{Error, Launch, gpu::Options, launch};
///
/// let names = launch(Launch::detect(4), &Options::from_env()?, |context| {
///     Ok::<_, Error>(format!("rank {} works on {}", context.comm.rank(), context.gpu.info().name))
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RunError`] with the first failure; with [`CommError::Start`](comm::CommError::Start) for
/// [`Launch::Mpi`] without the
/// feature `mpi`, or if MPI did not connect the processes of the launcher.
pub fn launch<T, E>(
    how: Launch,
    options: &Options,
    body: impl Fn(Context) -> Result<T, E> + Sync,
) -> Result<Vec<T>, RunError>
where
    T: Send,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    launch_with_code(how, options, |_| 1, body)
}

/// [`launch`] with the exit code of all processes under MPI given by the error, which may be downcast:
/// to what `body` returns, or to [`DeviceError`](crate::gpu::DeviceError) if no device could be opened.
///
/// # Errors
/// As [`launch`].
pub fn launch_with_code<T, E>(
    how: Launch,
    options: &Options,
    exit_code: impl Fn(&(dyn Error + 'static)) -> u8,
    body: impl Fn(Context) -> Result<T, E> + Sync,
) -> Result<Vec<T>, RunError>
where
    T: Send,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let rank = |comm: Communicator| {
        let context = Context::open(comm, options).map_err(|error| match error {
            ExchangeError::Device(error) => Box::from(error),
            ExchangeError::Comm(error) => Box::<dyn Error + Send + Sync>::from(error),
        })?;
        let gpu = context.gpu.clone();
        let result = body(context).map_err(E::into);
        // Saved here, since a failure may end the process without dropping the device.
        gpu.save_pipelines();
        result
    };
    match how {
        Launch::Solo => comm::run_solo(rank).map(|value| vec![value]),
        Launch::Threads(ranks) => comm::run_threads(ranks, rank),
        #[cfg(feature = "mpi")]
        Launch::Mpi => comm::run_mpi_with_code(rank, exit_code).map(|value| vec![value]),
        #[cfg(not(feature = "mpi"))]
        Launch::Mpi => {
            drop(exit_code);
            let error = match comm::Launched::from_env() {
                Some(launched) => launched.without_mpi(),
                None => CommError::Start("this program was built without MPI; build it with the feature `mpi`".into()),
            };
            Err(RunError::new(0, error))
        }
    }
}
