//! Running a program as ranks: alone, as threads of one process, or as MPI processes.

use std::error::Error;
use std::str::FromStr;

use crate::comm::{self, CommError, Communicator, RunError};
use crate::exchange::ExchangeError;
use crate::fft::TransformError;
use crate::gpu::Options;
use crate::grid::{LayoutError, Shares};
use crate::rank::Rank;
use crate::timeline;

/// Way of running the ranks of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// One rank, in this thread.
    Solo,
    /// This number of ranks, as threads of this process.
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
    #[must_use]
    pub fn detect(threads: usize) -> Self {
        match threads {
            _ if comm::mpi_launched() => Launch::Mpi,
            1 => Launch::Solo,
            _ => Launch::Threads(threads),
        }
    }
}

/// The environment variable with the shares of ranks.
const SHARES: &str = "MESHLOOM_SHARES";

/// Way of choosing the [`Shares`] of ranks.
///
/// ```
/// use meshloom::ShareOption;
/// use meshloom::grid::Shares;
/// assert_eq!("4,1".parse(), Ok(ShareOption::Given(Shares::new(&[4.0, 1.0])?)));
/// assert_eq!("measured".parse(), Ok(ShareOption::Measured));
/// # Ok::<(), meshloom::grid::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShareOption {
    /// Equal shares.
    #[default]
    Equal,
    /// These shares, one for each rank.
    Given(Shares),
    /// Shares in proportion to the speeds of devices ([`Rank::measured_shares`]).
    Measured,
}

impl FromStr for ShareOption {
    type Err = LayoutError;

    /// Reads `equal`, `measured`, or a list of [`Shares`].
    fn from_str(text: &str) -> Result<Self, LayoutError> {
        match text.trim() {
            "equal" => Ok(ShareOption::Equal),
            "measured" => Ok(ShareOption::Measured),
            list => list.parse().map(ShareOption::Given),
        }
    }
}

impl ShareOption {
    /// Returns the value of the environment variable `MESHLOOM_SHARES`; equal shares if it is not
    /// set or empty.
    ///
    /// # Errors
    /// [`LayoutError`] if the text is not a list of shares, `equal` or `measured`.
    pub fn from_env() -> Result<Self, LayoutError> {
        match std::env::var(SHARES) {
            Ok(text) if !text.trim().is_empty() => text.parse(),
            _ => Ok(ShareOption::Equal),
        }
    }

    /// Sets the shares of `rank`. [Collective](Rank).
    ///
    /// # Errors
    /// - [`TransformError::Exchange`] if ranks choose differently or there is not one share for
    ///   each rank.
    /// - Same as [`Rank::measured_shares`].
    pub fn apply(self, rank: &mut Rank) -> Result<(), TransformError> {
        rank.comm.agree("ShareOption::apply", &[("shares", &self)])?;
        let shares = match self {
            ShareOption::Equal => Shares::from(rank.size()),
            ShareOption::Given(shares) => shares,
            ShareOption::Measured => rank.measured_shares()?,
        };
        Ok(rank.set_shares(shares)?)
    }
}

/// The environment variable with the number of ranks that [`run`] starts as threads.
const RANKS: &str = "MESHLOOM_RANKS";

/// Runs `body` once on every rank and returns the results of the ranks of *this process*, in order.
///
/// The ranks are the processes of an MPI launcher, such as `mpirun` (feature `mpi`), or else
/// threads of this process: as many as the environment variable `MESHLOOM_RANKS` says, one by
/// default. Other variables choose the device ([`Options::from_env`]). Use [`launch`] to choose in
/// the program, or to return errors of another type.
///
/// ```
/// let sums = meshloom::run(|rank| {
///     let mut sum = [rank.index() as u64];
///     rank.comm.all_reduce(&mut sum, meshloom::comm::Op::Sum)?;
///     Ok(sum[0])
/// })?;
/// assert!(sums.iter().all(|&sum| sum == sums[0]));
/// # Ok::<(), meshloom::Error>(())
/// ```
///
/// # Errors
/// - [`RunError`] with the first failure of a rank.
/// - [`RunError`] with [`CommError::Start`](crate::comm::CommError::Start) if `MESHLOOM_RANKS` is
///   not a number of at least 1, or as for [`launch`].
pub fn run<T: Send>(body: impl Fn(&mut Rank) -> crate::Result<T> + Sync) -> Result<Vec<T>, RunError> {
    let threads = match std::env::var(RANKS) {
        Err(_) => 1,
        Ok(text) => text.trim().parse().ok().filter(|&ranks| ranks > 0).ok_or_else(|| {
            let message = format!("{RANKS}: expected a number of ranks of at least 1, got `{text}`");
            RunError::new(0, CommError::Start(message))
        })?,
    };
    let options = Options::from_env().map_err(|error| RunError::new(0, error))?;
    launch(Launch::detect(threads), &options, body)
}

/// Runs `body` once on every rank and returns the results of the ranks of *this process*, in order.
/// Ranks of one host take suitable adapters of `options` in turn. The environment variable
/// `MESHLOOM_SHARES` sets their shares in meshes and points ([`ShareOption`]).
///
/// A rank that fails or panics ends all ranks, and its error is returned. The error type may be any
/// that a `Box<dyn Error>` can hold, also `anyhow::Error`. Under MPI the error is printed, and all
/// processes end with exit code 1.
///
/// ```no_run
/// use meshloom::{Error, Launch, gpu::Options, launch};
///
/// let names = launch(Launch::detect(4), &Options::from_env()?, |rank| {
///     Ok::<_, Error>(format!("rank {} works on {}", rank.index(), rank.gpu.info().name))
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
    body: impl Fn(&mut Rank) -> Result<T, E> + Sync,
) -> Result<Vec<T>, RunError>
where
    T: Send,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let shares = ShareOption::from_env().map_err(|error| RunError::new(0, error))?;
    let with_shares = |rank: &mut Rank| -> Result<T, Box<dyn Error + Send + Sync>> {
        if shares != ShareOption::Equal {
            shares.apply(rank)?;
        }
        body(rank).map_err(E::into)
    };
    launch_with_code(how, options, |_| 1, with_shares)
}

/// [`launch`] with the exit code of all processes under MPI given by the error, which may be
/// downcast: to what `body` returns, or to [`DeviceError`](crate::gpu::DeviceError) if no device
/// could be opened. Shares are equal until `body` sets them.
///
/// # Errors
/// Same as [`launch`].
pub fn launch_with_code<T, E>(
    how: Launch,
    options: &Options,
    exit_code: impl Fn(&(dyn Error + 'static)) -> u8,
    body: impl Fn(&mut Rank) -> Result<T, E> + Sync,
) -> Result<Vec<T>, RunError>
where
    T: Send,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let rank = |comm: Communicator| {
        let _rank = timeline::rank(comm.rank(), comm.size());
        let mut rank = Rank::open(comm, options).map_err(|error| match error {
            ExchangeError::Device(error) => Box::from(error),
            ExchangeError::Comm(error) => Box::<dyn Error + Send + Sync>::from(error),
        })?;
        let result = body(&mut rank).map_err(E::into);
        // Saved here, since a failure may end the process without dropping the device.
        rank.gpu.save_pipelines();
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
