//! Running a program as ranks: alone, as threads of one process, or as MPI processes.

use std::fmt::Display;

use crate::comm::{self, CommError, Communicator, RunError};
use crate::exchange::{Context, ExchangeError};
use crate::gpu::{DeviceError, Gpu, Options};
use crate::hash::START;

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// One rank, in this thread.
    Solo,
    /// So many ranks as threads of this process.
    Threads(usize),
    /// One rank a process that `mpirun`, `srun` or their kin started (feature `mpi`).
    Mpi,
}

impl Launch {
    /// MPI if this process was started by an MPI launcher as one of several (and the feature is there), else threads,
    /// else alone.
    pub fn detect(threads: usize) -> Self {
        match threads {
            _ if cfg!(feature = "mpi") && comm::mpi_launched() => Launch::Mpi,
            1 => Launch::Solo,
            _ => Launch::Threads(threads),
        }
    }
}

/// Runs `body` once on every rank, each with a device chosen by `options` and its number on the host, and returns what
/// the ranks of *this process* returned, in order.
///
/// A rank that fails or panics ends all ranks; its error is returned (under MPI it is printed and all processes end
/// with exit code 1).
///
/// ```no_run
/// use meshloom::{Error, Launch, gpu::Options, launch};
///
/// let names = launch(Launch::detect(4), &Options::from_env()?, |rank| {
///     Ok::<_, Error>(format!("rank {} works on {}", rank.comm.rank(), rank.gpu.info().name))
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RunError`] with the first failure.
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

/// [`launch`] where `exit_code` says with which code an error ends all processes under MPI.
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
        let gpu = Gpu::open(options, local_rank(&comm)?)?;
        let context = Context::new(comm, gpu.clone()).map_err(|error| match error {
            ExchangeError::Device(error) => E::from(error),
            ExchangeError::Comm(error) => E::from(error),
        })?;
        let result = body(context);
        // A failure may end the process without dropping anything.
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
            // There are no processes to end.
            drop(exit_code);
            let text = "this build has no MPI; build with the feature `mpi`".into();
            Err(RunError { rank: 0, failure: comm::Failure::Comm(CommError::Start(text)) })
        }
    }
}

/// This rank's number among those on its host.
fn local_rank(comm: &Communicator) -> Result<usize, CommError> {
    // Where hosts have no names they count as one.
    let host = crate::host::number().unwrap_or(START);
    let hosts = comm.all_gather(&[host])?;
    Ok(hosts[..comm.rank()].iter().filter(|&&other| other == host).count())
}
