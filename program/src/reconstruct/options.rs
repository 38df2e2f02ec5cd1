//! The options of a reconstruction.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::chains::ChainOptions;
use crate::checked::Whole;
use crate::common::Common;
use crate::config_file::{Configured, FileOptions, defaults};
use crate::evolution::Evolution;
use crate::run_clock::LimitOptions;
use crate::sample_groups::SampleGroups;
use crate::universe::UniverseOptions;

#[derive(Args)]
pub struct Arguments {
    /// Directory for everything that is written
    #[arg(short = 'o', long = "output", visible_alias = "out", value_name = "DIR", required_unless_present_any = ["estimate", "print_config"])]
    out: Option<PathBuf>,
    /// Print the device memory and the forces that it takes, and do nothing else
    #[arg(long, conflicts_with = "print_config")]
    pub estimate: bool,
    /// Go on from the state in DIR
    #[arg(long)]
    pub resume: bool,
    #[command(flatten)]
    pub configured: Configured<Options>,
    #[command(flatten)]
    pub common: Common,
}

/// The options that a file may have, too.
#[derive(Args, Deserialize, Serialize, Clone, Debug)]
#[serde(default)]
pub struct Options {
    /// The noisy density: 1 + contrast on a cubic grid, the force mesh
    #[arg(long, value_name = "D.npy")]
    pub density: Option<PathBuf>,
    /// Side of the periodic box in Mpc/h
    #[arg(long = "box", value_name = "L", allow_negative_numbers = true)]
    #[serde(rename = "box")]
    pub box_size: Option<f64>,
    /// Standard deviation of the density's noise in each cell
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true)]
    pub noise: Option<f64>,
    /// The white noise that the density was made of, to compare with
    #[arg(long, value_name = "NOISE.npy")]
    pub truth: Option<PathBuf>,
    /// Only the most probable initial conditions, without samples
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true", conflicts_with_all = ["samples", "iterations"], action = ArgAction::Set, default_value_t = false, hide_default_value = true, hide_possible_values = true)]
    pub map_only: bool,
    /// Mirrored pairs of samples of the posterior
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 4)]
    pub samples: i64,
    /// Times that samples are drawn and the mean is moved, after the most probable place was found
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 3)]
    pub iterations: i64,
    /// Straight samples, or curved ones in the last iteration
    #[arg(long, value_name = "mgvi|geovi", default_value = "mgvi", hide_possible_values = true)]
    pub mode: Mode,
    #[command(flatten)]
    #[serde(flatten)]
    pub chains: ChainOptions,
    #[command(flatten)]
    #[serde(flatten)]
    pub limit: LimitOptions,
    /// Groups of ranks that samples are dealt to; auto: as many as ranks, samples and memory allow,
    /// or groups of the ranks of --grid
    #[arg(long, value_name = "G|auto", default_value = "auto")]
    pub sample_groups: SampleGroups,
    /// Particles along each axis [default: as many as cells]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub particles: Option<i64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub universe: UniverseOptions,
    /// Seed of the samples
    #[arg(long, value_name = "SEED", default_value = "1")]
    pub seed: Whole,
    #[command(flatten)]
    #[serde(flatten)]
    pub evolution: Evolution,
    /// Keep the state of the run at every N-th force: larger N take less memory and more time
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1)]
    pub checkpoint_every: i64,
}

impl Arguments {
    /// Returns the directory, which `--estimate` and `--print-config` have not.
    pub fn out(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new(""))
    }
}

/// Sampling method.
#[derive(ValueEnum, Deserialize, Serialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    Mgvi,
    Geovi,
}

impl Default for Options {
    fn default() -> Self {
        defaults()
    }
}

impl FileOptions for Options {}
