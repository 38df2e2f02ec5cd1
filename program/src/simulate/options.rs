//! The options of a run.

use std::fmt;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{ArgAction, Args, ValueEnum};
use meshloom::pm::Migrate;
use serde::{Deserialize, Serialize};

use crate::checked::Whole;
use crate::common::Common;
use crate::config_file::{Configured, FileOptions, defaults};
use crate::evolution::Evolution;
use crate::failure::Failure;
use crate::machine::{MachineOption, positive};
use crate::run_clock::CheckpointOptions;
use crate::universe::UniverseOptions;

#[derive(Args)]
pub struct Arguments {
    /// Directory for everything that is written; without --resume, the files of an earlier run
    /// there are replaced
    #[arg(short = 'o', long = "output", visible_alias = "out", value_name = "DIR", required_unless_present_any = ["estimate", "print_config"])]
    out: Option<PathBuf>,
    /// Print the memory, bytes and time that the run will take, and do nothing else; see --machine
    #[arg(long, conflicts_with = "print_config")]
    pub estimate: bool,
    /// With --estimate: the seconds of a step on 1, 2, 4, .. up to N ranks, as CSV, and nothing
    /// else
    #[arg(long, value_name = "N", requires = "estimate", conflicts_with_all = ["json", "ranks", "grid", "shares"], value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub scaling: Option<u32>,
    #[command(flatten)]
    pub configured: Configured<RunOptions>,
    #[command(flatten)]
    pub machine: MachineOption,
    /// Speed of the file system for all ranks together, in GB/s
    #[arg(long, value_name = "GB/s", value_parser = positive, default_value_t = 2.0, requires = "estimate")]
    pub file_speed: f64,
    #[command(flatten)]
    pub common: Common,
}

impl Arguments {
    /// Returns the directory, which `--estimate` and `--print-config` have not.
    pub fn out(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new(""))
    }
}

/// The options that a file may have, too.
#[derive(Args, Deserialize, Serialize, Clone, Debug)]
#[serde(default)]
pub struct RunOptions {
    /// Particles along each axis
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 64)]
    pub particles: i64,
    /// Cells of the force mesh along each axis [default: twice the particles]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub mesh: Option<i64>,
    /// Side of the periodic box in Mpc/h
    #[arg(long = "box", value_name = "L", allow_negative_numbers = true, default_value_t = 128.0)]
    #[serde(rename = "box")]
    pub box_size: f64,
    #[command(flatten)]
    #[serde(flatten)]
    pub universe: UniverseOptions,
    /// Seed of the white noise
    #[arg(long, value_name = "SEED", default_value = "1")]
    pub seed: Whole,
    /// Index of the seed's white noise: mode, so that more particles refine the same universe, or
    /// site
    #[arg(long, value_name = "mode|site", default_value = "mode", hide_possible_values = true)]
    pub noise_by: NoiseName,
    /// White noise of shape (n, n, n) instead of the seed's
    #[arg(long, value_name = "NOISE.npy")]
    pub white_noise: Option<PathBuf>,
    #[command(flatten)]
    #[serde(flatten)]
    pub evolution: Evolution,
    /// Scale factors of snapshots, a = 1/(1 + z): particles, spectrum and halos of each. Those of
    /// the end are always in DIR itself
    #[arg(long, value_delimiter = ',', value_name = "A,B,..", value_parser = scale_factor)]
    pub snapshots: Vec<f64>,
    /// Continue from the last whole snapshot or checkpoint in DIR; from the start where there is
    /// none
    #[arg(long, value_name = "true|false", num_args = 0..=1, action = ArgAction::Set, default_missing_value = "true", default_value_t = false, hide_default_value = true, hide_possible_values = true)]
    pub resume: bool,
    #[command(flatten)]
    #[serde(flatten)]
    pub checkpoints: CheckpointOptions,
    /// Groups by friends of friends: linking length in mean separations; 0 for no groups [default:
    /// 0.2]
    #[arg(long, value_name = "B", allow_negative_numbers = true)]
    pub linking_parameter: Option<f64>,
    /// Linking length in Mpc/h, as in fof
    #[arg(long, value_name = "L", allow_negative_numbers = true, conflicts_with = "linking_parameter")]
    pub linking_length: Option<f64>,
    /// Masses and radii of halos as spherical overdensities too: times the mean density (200m) or
    /// the critical one (500c), or vir; those of a light cone have none
    #[arg(long, value_delimiter = ',', value_name = "200m,..")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overdensity: Vec<String>,
    /// Write the particles that cross the past light cone of an observer at this place of the box,
    /// and their halos
    #[arg(long, value_name = "X,Y,Z", value_delimiter = ',', allow_negative_numbers = true)]
    pub light_cone: Option<Vec<f64>>,
    /// Reach of the light cone, in comoving Mpc/h
    #[arg(long, value_name = "L", allow_negative_numbers = true)]
    pub light_cone_distance: Option<f64>,
    /// Reach of the light cone as a redshift
    #[arg(long, value_name = "Z", allow_negative_numbers = true, conflicts_with = "light_cone_distance")]
    pub light_cone_redshift: Option<f64>,
    /// The middle of the sky that the light cone sees [default: it sees all]
    #[arg(long, value_name = "X,Y,Z", value_delimiter = ',', allow_negative_numbers = true)]
    pub light_cone_direction: Option<Vec<f64>>,
    /// The angle in degrees from there to the rim
    #[arg(long, value_name = "DEGREES", allow_negative_numbers = true)]
    pub light_cone_opening: Option<f64>,
    /// Write particles and halos in HDF5 too, the particles in one file, one per rank, or N files
    #[arg(long, value_name = "one|per-rank|N")]
    pub hdf5: Option<Hdf5>,
    /// Particles move to the ranks of their cells: auto if that saves bytes between ranks, never,
    /// or every N steps. Results do not depend on it
    #[arg(long, value_name = "auto|never|N", default_value = "never")]
    pub migrate: Moves,
    /// velocities.npy: canonical momenta a^2 dx/dt in H0 Mpc/h, or peculiar velocities in km/s
    #[arg(long, value_name = "canonical|peculiar", default_value = "canonical", hide_possible_values = true)]
    pub velocities: Velocities,
    /// Write density.npy too
    #[arg(long, value_name = "true|false", num_args = 0..=1, action = ArgAction::Set, default_missing_value = "true", default_value_t = false, hide_default_value = true, hide_possible_values = true)]
    pub save_density: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        defaults()
    }
}

impl FileOptions for RunOptions {}

impl RunOptions {
    /// Returns the options of a call.
    ///
    /// # Errors
    /// Same as [`Configured::options`].
    pub fn gather(arguments: &Arguments) -> Result<Self, Failure> {
        let mut options = arguments.configured.options()?;
        if options.linking_length.is_none() {
            options.linking_parameter.get_or_insert(0.2);
        }
        options.mesh.get_or_insert(options.particles.saturating_mul(2));
        // A moment has one directory.
        let all = std::mem::take(&mut options.snapshots);
        for epoch in all {
            if !options.snapshots.contains(&epoch) {
                options.snapshots.push(epoch);
            }
        }
        Ok(options)
    }
}

/// Index that the white noise is a function of.
#[derive(ValueEnum, Deserialize, Serialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseName {
    Mode,
    Site,
}

/// The kind of velocities in `velocities.npy`.
#[derive(ValueEnum, Deserialize, Serialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Velocities {
    /// Momenta a^2 dx/dt.
    Canonical,
    /// a dx/dt.
    Peculiar,
}

/// Number of files of a snapshot in HDF5.
#[derive(Deserialize, Serialize, Clone, Copy, Debug, PartialEq)]
#[serde(try_from = "Hdf5Value", into = "Hdf5Value")]
pub enum Hdf5 {
    One,
    PerRank,
    /// At most this many, and at most one per rank.
    Several(NonZero<u32>),
}

impl Hdf5 {
    /// Returns the most files of a snapshot; `None` for a single file whose name has no number.
    pub fn several(self) -> Option<NonZero<u32>> {
        match self {
            Hdf5::One => None,
            Hdf5::PerRank => Some(NonZero::<u32>::MAX),
            Hdf5::Several(most) => Some(most),
        }
    }
}

/// The number of files as it is written: `one`, `per-rank`, or a number.
#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "hdf5 must be `one`, `per-rank` or a number of files")]
enum Hdf5Value {
    Number(u32),
    Word(String),
}

impl TryFrom<Hdf5Value> for Hdf5 {
    type Error = String;

    fn try_from(value: Hdf5Value) -> Result<Self, Self::Error> {
        match value {
            Hdf5Value::Number(number) => match NonZero::new(number) {
                Some(most) => Ok(Hdf5::Several(most)),
                None => Err("expected at least 1 file, got 0".into()),
            },
            Hdf5Value::Word(word) if word == "one" => Ok(Hdf5::One),
            Hdf5Value::Word(word) if word == "per-rank" => Ok(Hdf5::PerRank),
            Hdf5Value::Word(word) => Err(format!("expected `one`, `per-rank` or a number of files, got `{word}`")),
        }
    }
}

impl From<Hdf5> for Hdf5Value {
    fn from(files: Hdf5) -> Self {
        match files {
            Hdf5::One => Hdf5Value::Word("one".into()),
            Hdf5::PerRank => Hdf5Value::Word("per-rank".into()),
            Hdf5::Several(most) => Hdf5Value::Number(most.get()),
        }
    }
}

impl FromStr for Hdf5 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let value = text.parse().map_or_else(|_| Hdf5Value::Word(text.into()), Hdf5Value::Number);
        Hdf5::try_from(value)
    }
}

/// When particles move between ranks, as options and files say it.
#[derive(Deserialize, Serialize, Clone, Copy, Debug, PartialEq)]
#[serde(try_from = "MovesValue", into = "MovesValue")]
pub struct Moves(pub Migrate);

/// The moves as they are written: `auto`, `never`, or a number.
#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "migrate must be `auto`, `never` or a number of steps")]
enum MovesValue {
    Number(usize),
    Word(String),
}

impl TryFrom<MovesValue> for Moves {
    type Error = String;

    fn try_from(value: MovesValue) -> Result<Self, Self::Error> {
        match value {
            MovesValue::Number(number) => number.to_string().parse(),
            MovesValue::Word(word) => word.parse(),
        }
    }
}

impl From<Moves> for MovesValue {
    fn from(Moves(migrate): Moves) -> Self {
        match migrate {
            Migrate::Every(steps) => MovesValue::Number(steps.get()),
            Migrate::Auto | Migrate::Never => MovesValue::Word(migrate.to_string()),
        }
    }
}

impl FromStr for Moves {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Moves)
    }
}

impl fmt::Display for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads a scale factor.
fn scale_factor(text: &str) -> Result<f64, String> {
    let number = text.trim().parse();
    number.map_err(|_| format!("`{text}` is no scale factor a = 1/(1 + z); write 0.5 for z = 1"))
}
