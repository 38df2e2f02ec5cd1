//! The parameters of a run: from the command line, a TOML file and defaults, in this order of precedence.

use std::path::{Path, PathBuf};

use clap::Args;
use meshloom::Error;
use meshloom::cosmology::{
    Amplitude, Cosmology, LinearPower, LptOrder, Parameters as CosmologyParameters, Scheme, TransferKind,
};
use meshloom::mesh::Window;
use meshloom::pm::Config;
use meshloom::points::fof::Selection;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::mass_function::MassFunction;
use crate::common::Common;
use crate::config_file;
use crate::failure::Failure;

#[derive(Args)]
pub struct Arguments {
    /// Directory for everything that is written
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Options from a file: their names with _ for -
    #[arg(long, value_name = "FILE.toml")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub options: RunOptions,
    #[command(flatten)]
    pub common: Common,
}

/// The options that a file may have, too.
#[derive(Args, Deserialize, Serialize, Clone, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct RunOptions {
    /// Particles along each axis [default: 64]
    #[arg(long, allow_negative_numbers = true)]
    particles: Option<i64>,
    /// Cells of the force mesh along each axis [default: 128]
    #[arg(long, allow_negative_numbers = true)]
    mesh: Option<i64>,
    /// Side of the periodic box in Mpc/h [default: 128]
    #[arg(long = "box", value_name = "L", allow_negative_numbers = true)]
    #[serde(rename = "box")]
    box_size: Option<f64>,
    /// planck18, simple, or a TOML file with A_s (or sigma8), n_s, Omega_m, Omega_b, h [default: planck18]
    #[arg(long)]
    cosmology: Option<String>,
    /// Seed of the white noise [default: 1]
    #[arg(long)]
    seed: Option<u64>,
    /// White noise of shape (n, n, n) instead of the seed's
    #[arg(long, value_name = "NOISE.npy")]
    white_noise: Option<PathBuf>,
    /// Order of the Lagrangian start: 1 or 2 [default: 2]
    #[arg(long)]
    lpt: Option<u8>,
    /// Scale factor of the start [default: 0.0625]
    #[arg(long, allow_negative_numbers = true)]
    a_start: Option<f64>,
    /// Scale factor of the end [default: 1]
    #[arg(long, allow_negative_numbers = true)]
    a_end: Option<f64>,
    /// Steps, linear in the scale factor [default: 10]
    #[arg(long, allow_negative_numbers = true)]
    steps: Option<i64>,
    /// fastpm or bullfrog [default: fastpm]
    #[arg(long)]
    scheme: Option<String>,
    /// cic or tsc [default: cic]
    #[arg(long)]
    window: Option<String>,
    /// Scale factors of snapshots
    #[arg(long, value_delimiter = ',', value_name = "A,B,..")]
    snapshots: Option<Vec<Epoch>>,
    /// Continue from the last whole snapshot in DIR
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    resume: Option<bool>,
    /// Groups by friends of friends, in mean separations; 0 for none [default: 0.2]
    #[arg(long, value_name = "B", allow_negative_numbers = true)]
    linking_length: Option<f64>,
    /// Write snapshots in HDF5 too: in one file, or in one per rank
    #[arg(long, value_name = "one|per-rank")]
    hdf5: Option<String>,
    /// Write density.npy too
    #[arg(long, num_args = 0..=1, default_missing_value = "true")]
    save_density: Option<bool>,
}

impl RunOptions {
    /// The options of a configuration file; none without one.
    fn of_file(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(RunOptions::default()) };
        let text = config_file::read(path)?;
        let mut options: RunOptions = config_file::parse(path, &text)?;
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
        let value = f64::deserialize(deserializer)?;
        Ok(Epoch(value.to_string()))
    }
}

impl Epoch {
    pub fn value(&self) -> f64 {
        self.0.parse().unwrap_or(f64::NAN)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(non_snake_case, reason = "the field's own symbols")]
struct CosmologyFile {
    A_s: Option<f64>,
    sigma8: Option<f64>,
    n_s: f64,
    Omega_m: f64,
    Omega_b: f64,
    h: f64,
}

/// The parameters of a run, checked as far as that needs no device.
pub struct RunParameters {
    pub out: PathBuf,
    pub particles: u64,
    pub mesh: u64,
    pub box_size: f64,
    pub cosmology: Cosmology,
    pub cosmology_name: String,
    pub seed: u64,
    pub white_noise: Option<PathBuf>,
    pub lpt: u8,
    pub a_start: f64,
    pub a_end: f64,
    pub steps: usize,
    pub scheme: String,
    pub window: Window,
    pub snapshots: Vec<Epoch>,
    pub resume: bool,
    pub save_density: bool,
    /// Friends-of-friends linking length in mean separations; 0 for no groups.
    pub linking_length: f64,
    pub hdf5: Option<Hdf5>,
}

/// Number of files of a snapshot in HDF5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hdf5 {
    One,
    PerRank,
}

fn hdf5(words: Option<String>) -> Result<Option<Hdf5>, Failure> {
    let files = match words.as_deref() {
        None => return Ok(None),
        Some("one") => Hdf5::One,
        Some("per-rank") => Hdf5::PerRank,
        Some(other) => return Err(usage(format!("--hdf5 is `{other}`; it must be one or per-rank"))),
    };
    if cfg!(feature = "hdf5") {
        Ok(Some(files))
    } else {
        Err(usage(
            "--hdf5: this program was built without HDF5; build it with the feature `hdf5` \
             (cargo install --path . --features cli,hdf5; needs the HDF5 library), or leave it out",
        ))
    }
}

fn check_linking_length(length: f64) -> Result<(), Failure> {
    if length >= 0.0 && (length as f32).is_finite() {
        return Ok(());
    }
    Err(usage(format!("--linking-length is {length}; it must be a number from 0 (no groups) on, in mean separations")))
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::Usage(message.into())
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

/// A count above 0. The command line takes any integer, so that one message covers all wrong ones.
fn count(what: &str, value: Option<i64>, default: u64) -> Result<u64, Failure> {
    match value {
        None => Ok(default),
        Some(value) if value > 0 => Ok(value as u64),
        Some(value) => Err(usage(format!("--{what} is {value}; it must be a whole number above 0"))),
    }
}

impl RunParameters {
    /// Merges the command line, the configuration file and defaults, and checks the result.
    ///
    /// # Errors
    /// [`Failure::Usage`] for values out of range, [`Failure::Failed`] for bad files.
    pub fn gather(arguments: &Arguments) -> Result<Self, Failure> {
        let (line, file) = (arguments.options.clone(), RunOptions::of_file(arguments.config.as_deref())?);
        if arguments.out.as_os_str() == "-" {
            return Err(usage("--out is -, which is refused; name a directory"));
        }
        let linking_length = line.linking_length.or(file.linking_length).unwrap_or(0.2);
        check_linking_length(linking_length)?;
        let cosmology_name = line.cosmology.or(file.cosmology).unwrap_or_else(|| "planck18".into());
        let lpt = line.lpt.or(file.lpt).unwrap_or(2);
        if !(1..=2).contains(&lpt) {
            return Err(usage(format!("--lpt is {lpt}; it must be 1 or 2")));
        }
        let scheme = line.scheme.or(file.scheme).unwrap_or_else(|| "fastpm".into());
        if !["fastpm", "bullfrog"].contains(&scheme.as_str()) {
            return Err(usage(format!("--scheme is `{scheme}`; it must be fastpm or bullfrog")));
        }
        let window = match line.window.or(file.window).as_deref() {
            None | Some("cic") => Window::Cic,
            Some("tsc") => Window::Tsc,
            Some(other) => return Err(usage(format!("--window is `{other}`; it must be cic or tsc"))),
        };
        let parameters = RunParameters {
            out: arguments.out.clone(),
            particles: count("particles", line.particles.or(file.particles), 64)?,
            mesh: count("mesh", line.mesh.or(file.mesh), 128)?,
            box_size: line.box_size.or(file.box_size).unwrap_or(128.0),
            cosmology: cosmology(&cosmology_name)?,
            cosmology_name,
            seed: line.seed.or(file.seed).unwrap_or(1),
            white_noise: line.white_noise.or(file.white_noise),
            lpt,
            a_start: line.a_start.or(file.a_start).unwrap_or(0.0625),
            a_end: line.a_end.or(file.a_end).unwrap_or(1.0),
            steps: count("steps", line.steps.or(file.steps), 10)? as usize,
            scheme,
            window,
            snapshots: line.snapshots.or(file.snapshots).unwrap_or_default(),
            resume: line.resume.or(file.resume).unwrap_or(false),
            save_density: line.save_density.or(file.save_density).unwrap_or(false),
            linking_length,
            hdf5: hdf5(line.hdf5.or(file.hdf5))?,
        };
        parameters.config(None).validate().map_err(Error::from)?;
        if parameters.linking_length > 0.0 {
            parameters.halos_are_possible()?;
        }
        Ok(parameters)
    }

    /// Checks before the run that its halos will have a mass function.
    fn halos_are_possible(&self) -> Result<(), Failure> {
        let (count, least) = (self.particles.pow(3), Selection::default().min_members);
        let power = LinearPower::new(self.cosmology, TransferKind::Full);
        let checked = power.and_then(|power| MassFunction::check(&power, self.box_size, count, least, self.a_end));
        checked.map_err(|error| {
            usage(format!(
                "halos of this run would have no mass function ({error}); use another --box, or --linking-length 0"
            ))
        })
    }

    /// The library's configuration.
    pub fn config(&self, grid: Option<[usize; 2]>) -> Config {
        Config {
            particles: self.particles,
            mesh: self.mesh,
            box_size: self.box_size,
            cosmology: self.cosmology,
            seed: self.seed,
            lpt: if self.lpt == 1 { LptOrder::First } else { LptOrder::Second },
            a_start: self.a_start,
            a_end: self.a_end,
            steps: self.steps,
            scheme: if self.scheme == "fastpm" { Scheme::FastPm } else { Scheme::BullFrog },
            window: self.window,
            snapshots: self.snapshots.iter().map(Epoch::value).collect(),
            grid,
            ..Config::default()
        }
    }

    /// The parameters of the cosmology.
    pub fn cosmology_object(&self) -> Value {
        let c = &self.cosmology;
        json!({
            "name": self.cosmology_name, "A_s": c.primordial_amplitude(), "n_s": c.n_s(), "Omega_m": c.omega_m(),
            "Omega_b": c.omega_b(), "h": c.h(), "T_cmb": c.t_cmb(),
        })
    }

    /// All that decides the result: runs with equal objects give the same bits. `noise` is the fingerprint of the white
    /// noise, where it comes from a file.
    pub fn object(&self, noise: Option<u64>) -> Value {
        json!({
            "particles": self.particles, "mesh": self.mesh, "box": self.box_size, "cosmology": self.cosmology_object(),
            "seed": self.seed, "white_noise": self.white_noise.as_ref().map(|path| path.to_string_lossy()), "white_noise_fingerprint": noise.map(|mark| format!("{mark:016x}")),
            "lpt": self.lpt, "a_start": self.a_start,
            "a_end": self.a_end, "steps": self.steps, "scheme": self.scheme, "window": self.window.to_string(),
            "snapshots": self.snapshots,
        })
    }
}

/// A named cosmology, or that of a TOML file.
fn cosmology(name: &str) -> Result<Cosmology, Failure> {
    match name {
        "planck18" => return Ok(Cosmology::planck18()),
        "simple" => return Ok(Cosmology::simple()),
        _ => {}
    }
    let path = Path::new(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Err(usage(format!(
            "--cosmology is `{name}`; it must be planck18, simple, or a file that ends in .toml"
        )));
    }
    let file: CosmologyFile = config_file::parse(path, &config_file::read(path)?)?;
    let amplitude = match (file.A_s, file.sigma8) {
        (Some(a), None) => Amplitude::Primordial(a),
        (None, Some(s)) => Amplitude::Sigma8(s),
        _ => return Err(Failure::Failed(format!("{name}: give either A_s or sigma8"))),
    };
    let parameters = CosmologyParameters {
        amplitude,
        n_s: file.n_s,
        omega_m: file.Omega_m,
        omega_b: file.Omega_b,
        h: file.h,
        ..CosmologyParameters::default()
    };
    Cosmology::new(parameters).map_err(|e| usage(format!("{name}: {e}")))
}

#[cfg(all(test, unix))]
#[path = "../../../../tests/shared/mutants.rs"]
mod mutants;

#[cfg(all(test, unix))]
mod tests {
    use clap::Parser;

    use super::mutants::{Random, mutate, survive};
    use super::*;

    #[derive(Parser)]
    struct Call {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn gather(words: &[&str]) -> Result<RunParameters, Failure> {
        RunParameters::gather(&Call::parse_from([&["simulate"], words].concat()).arguments)
    }

    /// Configurations and cosmologies that were broken are good parameters or an error.
    #[test]
    fn broken_files_are_parameters_or_an_error() {
        let run = "# a run\nparticles = 16\nmesh = 32\nbox = 64.5\nseed = 7\nlpt = 2\na_start = 0.1\na_end = 1.0\nsteps = 5\n\
            scheme = \"bullfrog\"\nwindow = \"tsc\"\nsnapshots = [0.25, 0.5]\nresume = false\nlinking_length = 0.2\n";
        let cosmology = "A_s = 2.1e-9\nn_s = 0.9665\nOmega_m = 0.3111\nOmega_b = 0.049\nh = 0.6766\n";
        survive("simulate::parameters::tests::broken_files_are_parameters_or_an_error", 400, &[], |copy, directory| {
            let [config, universe] = ["run.toml", "universe.toml"].map(|name| directory.join(name));
            let (good, path) = if copy % 2 == 0 { (run, &config) } else { (cosmology, &universe) };
            let mut bytes = good.as_bytes().to_vec();
            let mut random = Random::new(copy);
            mutate(&mut bytes, &mut random);
            if copy % 50 == 49 {
                // As deep as a file may be long.
                bytes = [b"box = ".as_slice(), &b"[{a=".repeat(16_000)].concat();
            }
            std::fs::write(path, bytes).unwrap();
            let option = if copy % 2 == 0 { "--config" } else { "--cosmology" };
            match gather(&["--out", "out", option, path.to_str().unwrap()]) {
                Ok(parameters) => assert!(parameters.box_size > 0.0 && parameters.cosmology.h() > 0.0),
                Err(failure) => assert!(!failure.message().is_empty()),
            }
        });
    }

    #[test]
    fn a_configuration_is_a_short_text_on_disk() {
        let path = std::env::temp_dir().join(format!("meshloom-long-{}.toml", meshloom::io::token()));
        let error = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let error = gather(&["--out", "out", "--config", path.to_str().unwrap()]);
            std::fs::remove_file(&path).unwrap();
            match error {
                Err(Failure::Failed(text)) => text,
                _ => panic!("it is taken"),
            }
        };
        assert!(error(&b"#".repeat(config_file::MAX_BYTES as usize + 1)).contains("65537 bytes, of 65536 at most"));
        assert!(error(b"seed = 1\n# \xff\n").contains("line 2: is not text in UTF-8"));
        for path in ["/dev/zero", "/tmp"] {
            assert!(matches!(gather(&["--out", "out", "--cosmology", "planck18", "--config", path]),
                Err(Failure::Failed(text)) if text.contains("not a regular file")));
        }
    }
}
