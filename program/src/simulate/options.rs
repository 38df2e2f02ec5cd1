//! The options of a run: from the command line, a TOML file and defaults, in this order of precedence.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::common::Common;
use crate::config_file;
use crate::evolution::EvolutionOptions;
use crate::failure::Failure;
use crate::speeds::SpeedOptions;
use crate::universe::UniverseOptions;

#[derive(Args)]
pub struct Arguments {
    /// Directory for everything that is written
    #[arg(short = 'o', long = "output", visible_alias = "out", value_name = "DIR", required_unless_present_any = ["estimate", "print_config"])]
    out: Option<PathBuf>,
    /// Options from a file: their names with _ for -
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    /// Print the options of the run, defaults included, as a file for --config, and do nothing else
    #[arg(long)]
    pub print_config: bool,
    /// Print the memory, bytes and time that the run will take, and do nothing else; see --memory-speed, --copy-speed, --link-speed
    #[arg(long, conflicts_with = "print_config")]
    pub estimate: bool,
    #[command(flatten)]
    pub options: RunOptions,
    #[command(flatten)]
    pub speeds: SpeedOptions,
    #[command(flatten)]
    pub common: Common,
}

impl Arguments {
    /// The directory, which `--estimate` and `--print-config` have not.
    pub fn out(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new(""))
    }
}

/// The options that a file may have, too.
#[derive(Args, Deserialize, Serialize, Clone, Debug, Default)]
pub struct RunOptions {
    /// Particles along each axis [default: 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub particles: Option<i64>,
    /// Cells of the force mesh along each axis [default: 128]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub mesh: Option<i64>,
    /// Side of the periodic box in Mpc/h [default: 128]
    #[arg(long = "box", value_name = "L", allow_negative_numbers = true)]
    #[serde(rename = "box")]
    pub box_size: Option<f64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub universe: UniverseOptions,
    /// Seed of the white noise [default: 1]
    #[arg(long, value_name = "SEED")]
    #[serde(default, with = "crate::seed")]
    pub seed: Option<u64>,
    /// What the seed's white noise follows from: mode, so that more particles refine the same universe, or site [default: mode]
    #[arg(long, value_name = "mode|site")]
    pub noise_by: Option<String>,
    /// White noise of shape (n, n, n) instead of the seed's
    #[arg(long, value_name = "NOISE.npy")]
    pub white_noise: Option<PathBuf>,
    #[command(flatten)]
    #[serde(flatten)]
    pub evolution: EvolutionOptions,
    /// Scale factors of snapshots: particles, spectrum and halos of each
    #[arg(long, value_delimiter = ',', value_name = "A,B,..")]
    pub snapshots: Option<Vec<Epoch>>,
    /// Continue from the last whole snapshot or checkpoint in DIR; from the start where there is none
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true")]
    pub resume: Option<bool>,
    /// Groups by friends of friends: linking length in mean separations; 0 for no groups [default: 0.2]
    #[arg(long, value_name = "B", allow_negative_numbers = true)]
    pub linking_parameter: Option<f64>,
    /// The same in Mpc/h, as in fof
    #[arg(long, value_name = "L", allow_negative_numbers = true, conflicts_with = "linking_parameter")]
    pub linking_length: Option<f64>,
    /// Masses and radii of halos as spherical overdensities too: times the mean density (200m) or the critical one (500c), or vir; those of a light cone have none
    #[arg(long, value_delimiter = ',', value_name = "200m,..")]
    pub overdensity: Option<Vec<String>>,
    /// Write the particles that cross the past light cone of an observer at this place of the box, and their halos
    #[arg(long, value_name = "X,Y,Z", value_delimiter = ',', allow_negative_numbers = true)]
    pub light_cone: Option<Vec<f64>>,
    /// How far the light cone reaches, in comoving Mpc/h
    #[arg(long, value_name = "L", allow_negative_numbers = true)]
    pub light_cone_distance: Option<f64>,
    /// The same as a redshift
    #[arg(long, value_name = "Z", allow_negative_numbers = true, conflicts_with = "light_cone_distance")]
    pub light_cone_redshift: Option<f64>,
    /// The middle of the sky that the light cone sees [default: it sees all]
    #[arg(long, value_name = "X,Y,Z", value_delimiter = ',', allow_negative_numbers = true)]
    pub light_cone_direction: Option<Vec<f64>>,
    /// The angle in degrees from there to the rim
    #[arg(long, value_name = "DEGREES", allow_negative_numbers = true)]
    pub light_cone_opening: Option<f64>,
    /// Write particles and halos in HDF5 too, the particles in one file or in one per rank
    #[arg(long, value_name = "one|per-rank")]
    pub hdf5: Option<String>,
    /// velocities.npy: canonical momenta a^2 dx/dt in H0 Mpc/h, or peculiar velocities in km/s [default: canonical]
    #[arg(long, value_name = "canonical|peculiar")]
    pub velocities: Option<String>,
    /// Write density.npy too
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_missing_value = "true")]
    pub save_density: Option<bool>,
}

impl RunOptions {
    /// Of these options, and where there is none of the `other` ones.
    ///
    /// The two that set one thing, the linking length in two units, count as one option, and so do those of a light cone's reach.
    pub fn or(self, mut other: Self) -> Self {
        if self.linking_parameter.or(self.linking_length).is_some() {
            (other.linking_parameter, other.linking_length) = (None, None);
        }
        if self.light_cone_distance.or(self.light_cone_redshift).is_some() {
            (other.light_cone_distance, other.light_cone_redshift) = (None, None);
        }
        RunOptions {
            particles: self.particles.or(other.particles),
            mesh: self.mesh.or(other.mesh),
            box_size: self.box_size.or(other.box_size),
            universe: self.universe.or(other.universe),
            seed: self.seed.or(other.seed),
            noise_by: self.noise_by.or(other.noise_by),
            white_noise: self.white_noise.or(other.white_noise),
            evolution: self.evolution.or(other.evolution),
            snapshots: self.snapshots.or(other.snapshots),
            resume: self.resume.or(other.resume),
            linking_parameter: self.linking_parameter.or(other.linking_parameter),
            linking_length: self.linking_length.or(other.linking_length),
            overdensity: self.overdensity.or(other.overdensity),
            light_cone: self.light_cone.or(other.light_cone),
            light_cone_distance: self.light_cone_distance.or(other.light_cone_distance),
            light_cone_redshift: self.light_cone_redshift.or(other.light_cone_redshift),
            light_cone_direction: self.light_cone_direction.or(other.light_cone_direction),
            light_cone_opening: self.light_cone_opening.or(other.light_cone_opening),
            hdf5: self.hdf5.or(other.hdf5),
            velocities: self.velocities.or(other.velocities),
            save_density: self.save_density.or(other.save_density),
        }
    }

    /// What holds where nothing is said.
    fn defaults() -> Self {
        RunOptions {
            particles: Some(64),
            mesh: Some(128),
            box_size: Some(128.0),
            universe: UniverseOptions::defaults(),
            seed: Some(1),
            noise_by: Some("mode".into()),
            evolution: EvolutionOptions::defaults(),
            snapshots: Some(Vec::new()),
            linking_parameter: Some(0.2),
            resume: Some(false),
            velocities: Some("canonical".into()),
            save_density: Some(false),
            ..RunOptions::default()
        }
    }

    /// Those of the command line, of the file that it names and the defaults, in this order of precedence.
    ///
    /// # Errors
    /// Those of the file.
    pub fn gather(arguments: &Arguments) -> Result<Self, Failure> {
        let file = RunOptions::of_file(arguments.config.as_deref())?;
        Ok(arguments.options.clone().or(file).or(RunOptions::defaults()))
    }

    /// The text of a file for `--config`.
    ///
    /// # Errors
    /// [`Failure::Usage`] for numbers and names that such a file cannot hold.
    pub fn text(&self) -> Result<String, Failure> {
        toml::to_string(self).map_err(|error| Failure::Usage(format!("these options make no file: {error}")))
    }

    /// The options of a configuration file; none without one.
    fn of_file(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(RunOptions::default()) };
        let text = config_file::read(path)?;
        let mut options: RunOptions = config_file::options(path, &text)?;
        options.snapshots = as_written(options.snapshots, &text);
        Ok(options)
    }
}

/// A scale factor in the digits of the call, which name a directory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Epoch(pub String);

impl std::str::FromStr for Epoch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        text.parse::<f64>().map_err(|_| format!("`{text}` is no scale factor"))?;
        Ok(Epoch(text.to_string()))
    }
}

impl<'de> Deserialize<'de> for Epoch {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a scale factor must be a number")]
        enum Written {
            Number(f64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(value) => Ok(Epoch(value.to_string())),
            Written::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

impl Epoch {
    pub fn value(&self) -> f64 {
        self.0.parse().unwrap_or(f64::NAN)
    }
}

/// The snapshots of a file in the digits of its text, since `0.50` names another directory than `0.5`.
fn as_written(snapshots: Option<Vec<Epoch>>, text: &str) -> Option<Vec<Epoch>> {
    let table = toml::de::DeTable::parse(text).ok()?;
    let written = table.get_ref().get("snapshots").and_then(|value| value.get_ref().as_array());
    let (Some(epochs), Some(written)) = (&snapshots, written) else { return snapshots };
    let spans = written.iter().map(|value| text[value.span()].trim());
    // TOML allows `_` between digits, which the parser of the command line refuses: such numbers stay as they were read.
    let epoch = |(epoch, words): (&Epoch, &str)| words.parse().unwrap_or_else(|_| epoch.clone());
    Some(epochs.iter().zip(spans).map(epoch).collect())
}
