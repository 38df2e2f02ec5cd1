//! Running a program as ranks: alone, as threads of one process, or as MPI processes.

use std::fmt::Display;

use crate::comm::{self, CommError, Communicator, RunError};
use crate::exchange::{Context, ExchangeError};
use crate::gpu::{DeviceError, Options};

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
/// A rank that fails or panics ends all ranks, and its error is returned. (Under MPI it is printed and all processes end
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
/// [`RunError`] with the first failure; with [`CommError::Start`] for [`Launch::Mpi`] without the
/// feature `mpi`, or if MPI did not connect the processes of the launcher.
pub fn launch<T, E>(
    how: Launch,
    options: &Options,
    body: impl Fn(Context) -> Result<T, E> + Sync,
) -> Result<Vec<T>, RunError<E>>
where
    T: Send,
    E: Display + Send + From<DeviceError> + From<CommError>,
{
    launch_with_code(how, options, |_| 1, body)
}

/// [`launch`] with the exit code of all processes under MPI given by the error.
///
/// # Errors
/// As [`launch`].
pub fn launch_with_code<T, E>(
    how: Launch,
    options: &Options,
    exit_code: impl Fn(&E) -> u8,
    body: impl Fn(Context) -> Result<T, E> + Sync,
) -> Result<Vec<T>, RunError<E>>
where
    T: Send,
    E: Display + Send + From<DeviceError> + From<CommError>,
{
    let rank = |comm: Communicator| {
        let context = Context::open(comm, options).map_err(|error| match error {
            ExchangeError::Device(error) => E::from(error),
            ExchangeError::Comm(error) => E::from(error),
        })?;
        let gpu = context.gpu.clone();
        let result = body(context);
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
            Err(RunError { rank: 0, failure: comm::Failure::Comm(error) })
        }
    }
}
