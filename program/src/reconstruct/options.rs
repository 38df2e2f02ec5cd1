//! The options of a reconstruction: from the command line, a TOML file and defaults, in this order of precedence.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::common::Common;
use crate::config_file;
use crate::evolution::EvolutionOptions;
use crate::failure::Failure;
use crate::sample_groups::SampleGroups;
use crate::universe::UniverseOptions;

#[derive(Args)]
pub struct Arguments {
    /// Directory for everything that is written
    #[arg(short = 'o', long = "output", visible_alias = "out", value_name = "DIR", required_unless_present_any = ["estimate", "print_config"])]
    out: Option<PathBuf>,
    /// Options from a file: their names with _ for -
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Print the options, defaults included, as a file for --config, and do nothing else
    #[arg(long)]
    pub print_config: bool,
    /// Print the device memory and the forces that it takes, and do nothing else
    #[arg(long, conflicts_with = "print_config")]
    pub estimate: bool,
    /// Go on from the state in DIR
    #[arg(long)]
    pub resume: bool,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    pub common: Common,
}

/// The options that a file may have, too.
#[derive(Args, Deserialize, Serialize, Clone, Debug, Default)]
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
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true", conflicts_with_all = ["samples", "iterations"])]
    pub map_only: Option<bool>,
    /// Mirrored pairs of samples of the posterior [default: 4]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub samples: Option<i64>,
    /// Times that samples are drawn and the mean is moved, after the most probable place was found [default: 3]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub iterations: Option<i64>,
    /// Straight samples, or bent ones in the last iteration [default: mgvi]
    #[arg(long, value_name = "mgvi|geovi")]
    pub mode: Option<String>,
    /// Groups of ranks that samples are dealt to; auto: as many as ranks, samples and memory allow, or as have the ranks of --grid [default: auto]
    #[arg(long, value_name = "G|auto")]
    pub sample_groups: Option<SampleGroups>,
    /// Particles along each axis [default: as many as cells]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub particles: Option<i64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub universe: UniverseOptions,
    /// Seed of the samples [default: 1]
    #[arg(long, value_name = "SEED")]
    #[serde(default, with = "crate::seed")]
    pub seed: Option<u64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub evolution: EvolutionOptions,
    /// Keep the state of the run at every so many forces: more take less memory and more time [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub checkpoint_every: Option<i64>,
}

impl Arguments {
    /// The directory, which `--estimate` and `--print-config` have not.
    pub fn out(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new(""))
    }

    /// Those of the command line, of the file that it names and the defaults, in this order of precedence.
    ///
    /// # Errors
    /// Those of the file.
    pub fn options(&self) -> Result<Options, Failure> {
        let mut file = match &self.config {
            None => Options::default(),
            Some(path) => config_file::options(path, &config_file::read(path)?)?,
        };
        // A command line that asks for samples has not only the most probable place.
        if self.options.samples.or(self.options.iterations).is_some() {
            file.map_only = None;
        }
        Ok(self.options.clone().or(file).or(Options::defaults()))
    }
}

impl Options {
    /// Of these options, and where there is none of the `other` ones.
    fn or(self, other: Self) -> Self {
        Options {
            density: self.density.or(other.density),
            box_size: self.box_size.or(other.box_size),
            noise: self.noise.or(other.noise),
            truth: self.truth.or(other.truth),
            map_only: self.map_only.or(other.map_only),
            samples: self.samples.or(other.samples),
            iterations: self.iterations.or(other.iterations),
            mode: self.mode.or(other.mode),
            sample_groups: self.sample_groups.or(other.sample_groups),
            particles: self.particles.or(other.particles),
            universe: self.universe.or(other.universe),
            seed: self.seed.or(other.seed),
            evolution: self.evolution.or(other.evolution),
            checkpoint_every: self.checkpoint_every.or(other.checkpoint_every),
        }
    }

    /// Those of a run are the defaults of `simulate`.
    fn defaults() -> Self {
        Options {
            map_only: Some(false),
            samples: Some(4),
            iterations: Some(3),
            mode: Some("mgvi".into()),
            sample_groups: Some(SampleGroups::auto()),
            universe: UniverseOptions::defaults(),
            seed: Some(1),
            evolution: EvolutionOptions::defaults(),
            checkpoint_every: Some(1),
            ..Options::default()
        }
    }

    /// The text of a file for `--config`.
    ///
    /// # Errors
    /// [`Failure::Usage`] for numbers and names that such a file cannot hold.
    pub fn text(&self) -> Result<String, Failure> {
        toml::to_string(self).map_err(|error| Failure::Usage(format!("these options make no file: {error}")))
    }
}
