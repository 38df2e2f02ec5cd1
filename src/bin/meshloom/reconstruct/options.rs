//! The options of a reconstruction: from the command line, a TOML file and defaults, in this order of precedence.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::common::Common;
use crate::config_file;
use crate::failure::Failure;

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
#[serde(deny_unknown_fields)]
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
    /// Groups of ranks that samples are dealt to; auto: as many as ranks, samples and memory allow [default: auto]
    #[arg(long, value_name = "G|auto")]
    pub sample_groups: Option<Groups>,
    /// Particles along each axis [default: as many as cells]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub particles: Option<i64>,
    /// planck18, planck18-primordial, simple, or a TOML file, as of simulate [default: planck18]
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub cosmology: Option<String>,
    /// Linear power today from a table as CAMB or CLASS write it: k in h/Mpc and P in (Mpc/h)^3
    #[arg(long, value_name = "FILE")]
    pub power_table: Option<PathBuf>,
    /// Strength of the linear power today, also of a table's [default: the cosmology's or the table's]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub sigma8: Option<f64>,
    /// Dark energy's ratio of pressure to density today [default: the cosmology's, -1]
    #[arg(long, value_name = "W", allow_negative_numbers = true)]
    pub w0: Option<f64>,
    /// Its change: w(a) = w0 + wa (1 - a) [default: the cosmology's, 0]
    #[arg(long, value_name = "W", allow_negative_numbers = true)]
    pub wa: Option<f64>,
    /// Seed of the samples [default: 1]
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,
    /// Order of the Lagrangian start: 1 or 2 [default: 2]
    #[arg(long, value_name = "1|2")]
    pub lpt: Option<u8>,
    /// Scale factor of the start [default: 0.0625]
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    pub a_start: Option<f64>,
    /// Scale factor of the density [default: 1]
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    pub a_end: Option<f64>,
    /// Steps, linear in the scale factor [default: 10]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub steps: Option<i64>,
    /// How particles are moved [default: bullfrog]
    #[arg(long, value_name = "bullfrog|fastpm")]
    pub scheme: Option<String>,
    /// Window that particles are painted with [default: cic]
    #[arg(long, value_name = "cic|tsc")]
    pub window: Option<String>,
    /// Keep the state of the run at every so many forces: more take less memory and more time [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub checkpoint_every: Option<i64>,
}

/// A number of groups, or `auto`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Groups {
    Number(i64),
    Word(String),
}

impl std::str::FromStr for Groups {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Groups::Word(text.into()), Groups::Number))
    }
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
            Some(path) => config_file::parse(path, &config_file::read(path)?)?,
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
            cosmology: self.cosmology.or(other.cosmology),
            power_table: self.power_table.or(other.power_table),
            sigma8: self.sigma8.or(other.sigma8),
            w0: self.w0.or(other.w0),
            wa: self.wa.or(other.wa),
            seed: self.seed.or(other.seed),
            lpt: self.lpt.or(other.lpt),
            a_start: self.a_start.or(other.a_start),
            a_end: self.a_end.or(other.a_end),
            steps: self.steps.or(other.steps),
            scheme: self.scheme.or(other.scheme),
            window: self.window.or(other.window),
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
            sample_groups: Some(Groups::Word("auto".into())),
            cosmology: Some("planck18".into()),
            seed: Some(1),
            lpt: Some(2),
            a_start: Some(0.0625),
            a_end: Some(1.0),
            steps: Some(10),
            scheme: Some("bullfrog".into()),
            window: Some("cic".into()),
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
