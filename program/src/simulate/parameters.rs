//! The parameters of a run, checked.

use std::path::{Path, PathBuf};

use meshloom::Error;
use meshloom::cosmology::{Halofit, LinearPower, Overdensity};
use meshloom::pm::{Cone, Config, NoiseBy, Opening};
use meshloom::points::fof::{Linking, Selection};
use serde_json::{Value, json};

use super::mass_function::MassFunction;
use super::options::{NoiseName, RunOptions, Velocities};
use crate::checked::{count, usage};
use crate::failure::Failure;
use crate::spheres;
use crate::universe::Universe;

/// The parameters of a run, checked as far as that needs no device.
pub struct RunParameters {
    pub out: PathBuf,
    pub options: RunOptions,
    pub universe: Universe,
    /// The linking length of groups; none for no groups.
    pub linking: Option<Linking>,
    /// Spherical overdensities that halos have masses of.
    pub overdensities: Vec<Overdensity>,
    pub light_cone: Option<Cone>,
    /// Warnings about the run.
    pub warnings: Vec<String>,
}

impl Velocities {
    /// Returns what it is and its unit.
    pub fn object(self) -> Value {
        match self {
            Velocities::Canonical => {
                json!({ "kind": "canonical", "definition": "a^2 dx/dt", "unit": "H0 Mpc/h = 100 km/s" })
            }
            Velocities::Peculiar => json!({ "kind": "peculiar", "definition": "a dx/dt", "unit": "km/s" }),
        }
    }
}

/// Refuses an option that needs the HDF5 library where the program has none.
fn with_hdf5(option: &str) -> Result<(), Failure> {
    if cfg!(feature = "hdf5") {
        Ok(())
    } else {
        Err(usage(format!(
            "{option}: this program was built without HDF5; build it with the feature `hdf5` \
             (cargo install --path program --features hdf5; needs the HDF5 library), or leave it out"
        )))
    }
}

/// Returns the spherical overdensities of halos, where there are groups.
fn overdensities(options: &RunOptions, groups: bool) -> Result<Vec<Overdensity>, Failure> {
    let all = spheres::overdensities(&options.overdensity).map_err(Failure::Usage)?;
    if all.is_empty() || groups {
        return Ok(all);
    }
    Err(usage("--overdensity is of halos, and a linking length of 0 finds none; leave one of them out"))
}

/// Three numbers.
fn triple(option: &str, values: Vec<f64>) -> Result<[f64; 3], Failure> {
    let have = values.len();
    values.try_into().map_err(|_| usage(format!("--{option} has {have} numbers; it must have three, one per axis")))
}

/// Returns the light cone to write, if any.
fn light_cone(options: &RunOptions, universe: &Universe) -> Result<Option<Cone>, Failure> {
    let Some(observer) = options.light_cone.clone() else {
        let others = [
            ("distance", options.light_cone_distance.is_some()),
            ("redshift", options.light_cone_redshift.is_some()),
            ("direction", options.light_cone_direction.is_some()),
            ("opening", options.light_cone_opening.is_some()),
        ];
        return match others.into_iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(usage(format!("--light-cone-{name} needs --light-cone, the place of the observer"))),
            None => Ok(None),
        };
    };
    with_hdf5("--light-cone")?;
    let distance = match (options.light_cone_distance, options.light_cone_redshift) {
        (Some(distance), None) => distance,
        (None, Some(z)) if z > 0.0 => universe
            .cosmology
            .comoving_distance(1.0 / (1.0 + z))
            .map_err(|error| usage(format!("--light-cone-redshift is {z}: {error}")))?,
        (None, Some(z)) => return Err(usage(format!("--light-cone-redshift is {z}; it must be a number above 0"))),
        _ => {
            return Err(usage(
                "--light-cone needs how far it reaches: give one of --light-cone-distance and --light-cone-redshift",
            ));
        }
    };
    let opening = match (options.light_cone_direction.clone(), options.light_cone_opening) {
        (None, None) => None,
        (Some(direction), Some(angle)) => {
            Some(Opening { direction: triple("light-cone-direction", direction)?, angle })
        }
        _ => {
            return Err(usage(
                "--light-cone-direction and --light-cone-opening go together: the middle of the sky, and the angle to the rim",
            ));
        }
    };
    Ok(Some(Cone { observer: triple("light-cone", observer)?, distance, opening }))
}

/// Returns the linking length; none for no groups.
fn linking(options: &RunOptions) -> Result<Option<Linking>, Failure> {
    let (name, value, unit) = match (options.linking_length, options.linking_parameter) {
        (Some(length), None) => ("length", length, "Mpc/h"),
        (None, Some(parameter)) => ("parameter", parameter, "mean separations"),
        _ => return Err(usage("--linking-length and --linking-parameter are the same in two units; give one")),
    };
    if !(value >= 0.0 && (value as f32).is_finite()) {
        return Err(usage(format!(
            "--linking-{name} is {value}; it must be a number from 0 (no groups) on, in {unit}"
        )));
    }
    let linking = if name == "length" { Linking::Length } else { Linking::Separations };
    Ok((value > 0.0).then(|| linking(value)))
}

impl RunParameters {
    /// Checks options that have all values.
    ///
    /// # Errors
    /// [`Failure::Usage`] for values out of range, [`Failure::Failed`] for bad files.
    pub fn new(out: &Path, options: RunOptions) -> Result<Self, Failure> {
        if out.as_os_str() == "-" {
            return Err(usage("--out is -, which is refused; name a directory"));
        }
        let linking = linking(&options)?;
        let universe = Universe::new(&options.universe)?;
        let light_cone = light_cone(&options, &universe)?;
        let overdensities = overdensities(&options, linking.is_some())?;
        if options.hdf5.is_some() {
            with_hdf5("--hdf5")?;
        }
        count("particles", options.particles, 1..=i64::MAX)?;
        let mesh = options.mesh.unwrap_or_default();
        count("mesh", mesh, 1..=i64::MAX)?;
        options.evolution.check()?;
        let mut parameters = RunParameters {
            out: out.into(),
            options,
            universe,
            linking,
            overdensities,
            light_cone,
            warnings: Vec::new(),
        };
        let config = parameters.config(None);
        config.validate().map_err(Error::from)?;
        parameters.light_cone.iter().try_for_each(|cone| cone.validate(&config)).map_err(Error::from)?;
        let power = parameters.universe.power().map_err(Error::from)?;
        // At the end the contrast is largest.
        Halofit::new(&power, parameters.options.evolution.a_end).map_err(Error::from)?;
        if parameters.linking.is_some() {
            parameters.halos_are_possible(&power)?;
        }
        parameters.warnings = config.warnings(&power).map_err(Error::from)?;
        Ok(parameters)
    }

    /// Checks before the run that its halos will have a mass function.
    fn halos_are_possible(&self, power: &LinearPower) -> Result<(), Failure> {
        let (count, least) = ((self.options.particles as u64).pow(3), Selection::default().min_members);
        let mut epochs = self.options.snapshots.iter().copied().chain([self.options.evolution.a_end]);
        let checked = epochs.try_for_each(|a| MassFunction::check(power, self.options.box_size, count, least, a));
        checked.map_err(|error| {
            usage(format!(
                "halos of this run would have no mass function ({error}); use another --box, or --linking-parameter 0"
            ))
        })
    }

    /// Returns the library's configuration.
    pub fn config(&self, grid: Option<[usize; 2]>) -> Config {
        Config {
            particles: self.options.particles as u64,
            mesh: self.options.mesh.unwrap_or_default() as u64,
            box_size: self.options.box_size,
            seed: self.options.seed.0,
            noise_by: match self.options.noise_by {
                NoiseName::Mode => NoiseBy::Mode,
                NoiseName::Site => NoiseBy::Site,
            },
            snapshots: self.options.snapshots.clone(),
            grid,
            migrate: self.options.migrate.0,
            ..self.options.evolution.config(&self.universe)
        }
    }

    /// Returns the bytes of a checkpoint without what has crossed the light cone: displacements and
    /// momenta.
    pub fn state_bytes(&self) -> u64 {
        24 * (self.options.particles as u64).saturating_pow(3)
    }

    /// Returns all that decides the result, by contents and not by names of files: runs with equal
    /// objects give the same bits. `noise` is the fingerprint of the white noise, where it comes
    /// from a file.
    pub fn object(&self, noise: Option<u64>) -> Value {
        let seed = noise.is_none().then_some((self.options.seed.0, self.options.noise_by));
        let mut object = json!({
            "particles": self.options.particles, "mesh": self.options.mesh, "box": self.options.box_size, "cosmology": self.universe.object(),
            "seed": seed.map(|(seed, _)| seed), "noise_by": seed.map(|(_, by)| by), "white_noise_fingerprint": noise.map(|mark| format!("{mark:016x}")),
            "snapshots": self.options.snapshots, "velocities": self.options.velocities.object()["kind"],
        });
        self.options.evolution.describe(&mut object);
        // Snapshots of runs without one say nothing of it.
        if let Some(Cone { observer, distance, opening }) = &self.light_cone {
            let (direction, angle) = opening.as_ref().map(|opening| (opening.direction, opening.angle)).unzip();
            object["light_cone"] =
                json!({ "observer": observer, "distance": distance, "direction": direction, "opening": angle });
        }
        object
    }
}

#[cfg(all(test, unix))]
#[path = "../../../tests/shared/mutants.rs"]
mod mutants;

#[cfg(all(test, unix))]
mod tests {
    use clap::Parser;

    use super::super::options::Arguments;
    use super::mutants::{Random, mutate, survive};
    use super::*;
    use crate::config_file;

    #[derive(Parser)]
    struct Call {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn gather(words: &[&str]) -> Result<RunParameters, Failure> {
        let call = Call::parse_from([&["simulate"], words].concat());
        RunParameters::new(call.arguments.out(), RunOptions::gather(&call.arguments)?)
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
                Ok(parameters) => assert!(parameters.options.box_size > 0.0 && parameters.universe.cosmology.h() > 0.0),
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
