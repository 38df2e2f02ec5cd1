//! Shared by all commands: options of ranks and devices, the launch, progress and reports.

use std::error::Error as _;
use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use meshloom::comm::CommError;
use meshloom::fft;
use meshloom::gpu::{AdapterSelector, DeviceError, cache_directory, unused_hardware};
use meshloom::grid::{Grid, Shares};
use meshloom::{Error, Launch, Rank, ShareOption, launch_with_code};
use meshloom_program::models::shallow_water::ShallowWaterError;
use serde::Serialize;
use serde_json::Value;

use crate::checked_files::Files;
use crate::failure::{Ended, Failure};
use crate::same_call;
use crate::{terminal, trace};

/// Parts of the process grid along the first two axes of a mesh; none: as the library chooses for
/// the mesh.
pub type GridParts = Option<[usize; 2]>;

/// Options of every command that works on a device.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Ranks as threads of this process (under mpirun or srun the MPI world is used instead)
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub ranks: u16,
    /// Adapter: auto, an index, part of a name, or a PCI address (also from MESHLOOM_DEVICE)
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Process grid, as 2x3; auto: slabs, or pencils for many ranks and for runs with many ghost
    /// cells
    #[arg(long, value_name = "P0xP1|auto", default_value = "auto", value_parser = grid)]
    pub grid: GridParts,
    /// Shares of ranks in meshes and points, in rank order: equal, measured, or a list as 4,4,1,1
    /// (also from MESHLOOM_SHARES)
    #[arg(long, value_name = "LIST|measured|equal")]
    pub shares: Option<ShareOption>,
    /// Print one JSON object about the run on standard output
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar and no messages about compiling kernels
    #[arg(long)]
    pub quiet: bool,
    /// Write a timeline of all ranks, which ui.perfetto.dev opens
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Events of a rank in the timeline at most; more are counted
    #[arg(long, value_name = "N", default_value_t = 200_000, requires = "trace")]
    pub trace_events: u64,
}

/// The numbers that a command computes with.
#[derive(ValueEnum, Serialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    F32,
    F64,
}

impl From<fft::Precision> for Precision {
    fn from(precision: fft::Precision) -> Self {
        match precision {
            fft::Precision::Single => Precision::F32,
            fft::Precision::Double => Precision::F64,
        }
    }
}

impl From<Precision> for fft::Precision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => fft::Precision::Single,
            Precision::F64 => fft::Precision::Double,
        }
    }
}

fn grid(text: &str) -> Result<GridParts, String> {
    if text == "auto" {
        return Ok(None);
    }
    let parts: Option<Vec<usize>> =
        text.split('x').map(|part| part.parse().ok().filter(|n| (1..=1 << 16).contains(n))).collect();
    parts
        .and_then(|parts| parts.try_into().ok())
        .map(Some)
        .ok_or_else(|| format!("`{text}` is no grid; write two numbers, as 2x3, or auto"))
}

/// Refuses another number of shares than of ranks.
fn check_shares(option: ShareOption, ranks: usize) -> Result<(), Failure> {
    match option {
        ShareOption::Given(shares) if shares.ranks() != ranks => {
            let error = CommError::Shares { shares: shares.ranks(), ranks };
            Err(Failure::Usage(format!("--shares or MESHLOOM_SHARES: {error}")))
        }
        _ => Ok(()),
    }
}

/// Returns shares for a report; null if they are equal.
pub fn shares_value(shares: Shares) -> Value {
    if shares.are_equal() { Value::Null } else { shares.to_string().into() }
}

/// Converts the error of a rank's work, or of opening its device; `None` for an error of the launch
/// itself.
fn failure_of(error: &(dyn std::error::Error + 'static)) -> Option<Failure> {
    let device = || error.downcast_ref::<DeviceError>().cloned().map(Error::from);
    let model = || error.downcast_ref::<ShallowWaterError>().map(Failure::from);
    error.downcast_ref::<Error>().map(Failure::from).or_else(model).or_else(|| device().map(Failure::from))
}

impl Common {
    /// Returns the number of ranks before the launch; `None` if MPI has it.
    pub fn known_ranks(&self) -> Option<usize> {
        (Launch::detect(self.ranks.into()) != Launch::Mpi).then_some(self.ranks.into())
    }

    /// Returns these options without the process grid, for commands whose groups of ranks have it.
    pub fn without_grid(&self) -> Self {
        Common { grid: None, ..self.clone() }
    }

    /// Returns how many ranks there would be: those that the launcher has started, or that were
    /// asked for.
    pub fn ranks(&self) -> usize {
        match Launch::detect(self.ranks.into()) {
            Launch::Mpi => meshloom::comm::mpi_ranks().unwrap_or(1),
            _ => self.ranks.into(),
        }
    }

    /// Runs `body` on every rank, as threads or MPI processes, and returns its value of rank 0 if
    /// that is in this process.
    ///
    /// Before, all ranks check that they were called alike, that the process grid has as many
    /// ranks, and that they see the same `files`.
    ///
    /// # Errors
    /// The errors of the checks, of the device and of `body`.
    pub fn launch<T: Send>(
        &self,
        files: &Files,
        body: impl Fn(&mut Rank) -> Result<T, Ended> + Sync,
    ) -> Result<Option<T>, Failure> {
        let mut options = meshloom_sanitizer::options().map_err(|e| Failure::Usage(e.to_string()))?;
        options.cache = cache_directory();
        if let Some(words) = &self.device {
            let Ok(adapter) = words.parse::<AdapterSelector>();
            options.adapter = adapter;
        }
        let (how, shares) = (Launch::detect(self.ranks.into()), self.share_option()?);
        if how != Launch::Mpi {
            self.check_grid(self.ranks.into())?;
            check_shares(shares, self.ranks.into())?;
        }
        if let Some(path) = &self.trace {
            trace::prepare(path, self.trace_events, files)?;
        }
        let work = |rank: &mut Rank| -> Result<T, Ended> {
            same_call::check(&rank.comm)?;
            self.check_grid(rank.comm.size())?;
            check_shares(shares, rank.comm.size())?;
            files.check(&rank.comm)?;
            if let Some(path) = &self.trace {
                trace::start(rank, path, how != Launch::Mpi)?;
            }
            // A host of another rank may lack its driver.
            let warning = rank.comm.first_fault(unused_hardware(&options.adapter).as_deref())?;
            if let Some(warning) = warning.filter(|_| rank.comm.rank() == 0) {
                terminal::warn(&warning);
            }
            shares.apply(rank).map_err(Error::from)?;
            self.print_measured(shares, rank);
            let result = body(rank);
            if self.trace.is_some() && !matches!(result, Err(Ended::Alone(_))) {
                trace::report_losses(rank)?;
            }
            result
        };
        // Under MPI a rank that fails ends all processes with the exit code that one process has.
        let code = |error: &(dyn std::error::Error + 'static)| failure_of(error).map_or(1, |failure| failure.code());
        let ranks = launch_with_code(how, &options, code, |rank| match work(rank) {
            Ok(value) => Ok((rank.comm.rank(), Ok(value))),
            Err(Ended::Together(failure)) => Ok((rank.comm.rank(), Err(failure))),
            Err(Ended::Alone(error)) => Err(error),
        });
        let values = ranks.map_err(|error| {
            error.source().and_then(failure_of).unwrap_or_else(|| Failure::Failed(error.to_string()))
        })?;
        values.into_iter().find(|(rank, value)| *rank == 0 || value.is_err()).map(|(_, value)| value).transpose()
    }

    /// Returns the choice of shares of the call, or else of the environment.
    fn share_option(&self) -> Result<ShareOption, Failure> {
        let option = self.shares.map_or_else(ShareOption::from_env, Ok);
        option.map_err(|error| Failure::Usage(format!("MESHLOOM_SHARES: {error}")))
    }

    /// Returns the shares of all ranks for a forecast without devices.
    ///
    /// # Errors
    /// [`Failure::Usage`] for measured shares and for another number of shares than ranks.
    pub fn forecast_shares(&self) -> Result<Shares, Failure> {
        let (option, ranks) = (self.share_option()?, self.ranks());
        check_shares(option, ranks)?;
        match option {
            ShareOption::Equal => Ok(ranks.into()),
            ShareOption::Given(shares) => Ok(shares),
            ShareOption::Measured => Err(Failure::Usage(
                "--shares: a forecast has no devices to measure; give one number for each rank".into(),
            )),
        }
    }

    /// Prints measured shares on rank 0.
    fn print_measured(&self, option: ShareOption, rank: &Rank) {
        if option == ShareOption::Measured && rank.comm.rank() == 0 && !self.quiet {
            terminal::complain(&format!("meshloom: measured shares: {}", rank.comm.shares()));
        }
    }

    fn check_grid(&self, ranks: usize) -> Result<(), Failure> {
        let grid = self.grid.map(|grid| Grid::new(grid, ranks)).transpose();
        grid.map(drop).map_err(|error| Failure::Usage(format!("--grid: {error}")))
    }

    /// Returns the process grid for a mesh: the given one, or the one that suits the mesh.
    ///
    /// # Errors
    /// [`LayoutError`](meshloom::grid::LayoutError) if the grid of the call has another number of
    /// ranks.
    pub fn process_grid(&self, shape: [u64; 3], shares: Shares) -> Result<Grid, Error> {
        Ok(match self.grid {
            Some(parts) => Grid::new(parts, shares)?,
            None => Grid::auto(shape, shares),
        })
    }

    /// Refuses `--grid`, for commands about points.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub fn refuse_grid(&self) -> Result<(), Failure> {
        match self.grid {
            Some(_) => Err(Failure::Usage("--grid is for meshes; points are shared out along their curve".into())),
            None => Ok(()),
        }
    }

    /// Prints the report of a run where `--json` asks for it and rank 0 is in this process.
    ///
    /// # Errors
    /// Those of standard output.
    pub fn print(&self, report: Option<Value>) -> Result<(), Failure> {
        match report.filter(|_| self.json) {
            Some(report) => terminal::print_object(&report),
            None => Ok(()),
        }
    }

    /// A progress bar of `steps`, on rank 0 when standard error is a terminal; nothing otherwise.
    pub fn progress(&self, rank: usize, steps: u64, what: &'static str) -> ProgressBar {
        let shown = rank == 0 && !self.quiet && std::io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style =
            ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed_precise} (left: {eta_precise})");
        let bar = ProgressBar::with_draw_target(Some(steps), target).with_message(what);
        style.map(|style| bar.clone().with_style(style)).unwrap_or(bar)
    }
}
