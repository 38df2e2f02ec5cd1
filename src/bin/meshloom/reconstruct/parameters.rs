//! The parameters of a reconstruction, checked.

use std::path::PathBuf;

use meshloom::pm::Config;
use serde_json::{Value, json};

use super::options::{Groups, Options};
use crate::evolution::Evolution;
use crate::failure::Failure;
use crate::universe::Universe;

/// The parameters of a reconstruction, checked as far as that needs neither files of data nor devices.
pub struct Parameters {
    pub density: PathBuf,
    pub noise: f64,
    pub truth: Option<PathBuf>,
    /// Mirrored pairs of samples; 0 for the most probable place alone.
    pub pairs: usize,
    /// Iterations with samples.
    pub iterations: u32,
    /// Bent samples in the last iteration.
    pub geovi: bool,
    /// None: as many as ranks, samples and memory allow.
    pub groups: Option<usize>,
    pub seed: u64,
    pub checkpoint_every: usize,
    particles: Option<u64>,
    box_size: f64,
    pub universe: Universe,
    evolution: Evolution,
    grid: Option<[usize; 2]>,
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::Usage(message.into())
}

/// A count from 1 to `most`. The command line takes any integer, so that one message covers all wrong ones.
fn count(what: &str, value: Option<i64>, most: i64) -> Result<u64, Failure> {
    match value.unwrap_or_default() {
        value if (1..=most).contains(&value) => Ok(value as u64),
        value => Err(usage(format!("--{what} is {value}; it must be a whole number from 1 to {most}"))),
    }
}

/// One of the words.
fn word(what: &str, value: Option<String>, words: [&str; 2]) -> Result<String, Failure> {
    let value = value.unwrap_or_default();
    match words.contains(&value.as_str()) {
        true => Ok(value),
        false => Err(usage(format!("--{what} is `{value}`; it must be {} or {}", words[0], words[1]))),
    }
}

fn groups(value: Option<Groups>) -> Result<Option<usize>, Failure> {
    match value {
        Some(Groups::Number(groups)) if groups > 0 => Ok(Some(groups as usize)),
        Some(Groups::Number(groups)) => {
            Err(usage(format!("--sample-groups is {groups}; it must be 1 or more, or auto")))
        }
        Some(Groups::Word(word)) if word != "auto" => {
            Err(usage(format!("--sample-groups is `{word}`; it must be a number or auto")))
        }
        _ => Ok(None),
    }
}

impl Parameters {
    /// Checks options that have all values.
    ///
    /// # Errors
    /// [`Failure::Usage`] for values out of range and what is missing, [`Failure::Failed`] for a bad file of the cosmology.
    pub fn new(options: Options, grid: Option<[usize; 2]>) -> Result<Self, Failure> {
        let Some(density) = options.density else {
            return Err(usage("--density is missing: give the file of the noisy density, 1 + contrast"));
        };
        let Some(noise) = options.noise else {
            return Err(usage("--noise is missing: give the standard deviation of the density's noise in each cell"));
        };
        let Some(box_size) = options.box_size else {
            return Err(usage("--box is missing: give the side of the density's box in Mpc/h"));
        };
        if !(noise > 0.0 && (noise as f32).is_normal()) {
            return Err(usage(format!("--noise is {noise}; it must be a standard deviation above 0")));
        }
        let (pairs, iterations) = match options.map_only {
            Some(true) => (0, 0),
            _ => (count("samples", options.samples, 1000)?, count("iterations", options.iterations, 1000)?),
        };
        Ok(Parameters {
            density,
            noise,
            truth: options.truth,
            pairs: pairs as usize,
            iterations: iterations as u32,
            geovi: word("mode", options.mode, ["mgvi", "geovi"])? == "geovi",
            groups: groups(options.sample_groups)?,
            seed: options.seed.unwrap_or_default(),
            checkpoint_every: count("checkpoint-every", options.checkpoint_every, 1 << 16)? as usize,
            particles: options.particles.map(|n| count("particles", Some(n), 1 << 14)).transpose()?,
            box_size,
            universe: Universe::new(&options.universe)?,
            evolution: Evolution::new(options.evolution)?,
            grid,
        })
    }

    /// The library's configuration for a density of `mesh` cells along each axis.
    pub fn config(&self, mesh: u64) -> Config {
        Config {
            particles: self.particles.unwrap_or(mesh),
            mesh,
            box_size: self.box_size,
            seed: self.seed,
            grid: self.grid,
            ..self.evolution.config(&self.universe)
        }
    }

    /// What the posterior is of: a state of another one is none to go on from. `fingerprint` is that of the density.
    pub fn problem(&self, config: &Config, fingerprint: u64) -> Value {
        let mut object = json!({
            "density_fingerprint": format!("{fingerprint:016x}"), "noise": self.noise, "box": self.box_size,
            "particles": config.particles, "mesh": config.mesh, "universe": self.universe.object(), "seed": self.seed,
        });
        self.evolution.describe(&mut object);
        object
    }

    fn mode(&self) -> &'static str {
        if self.geovi { "geovi" } else { "mgvi" }
    }

    /// How samples are drawn.
    pub fn sampling(&self) -> Value {
        json!({ "mode": self.mode() })
    }

    /// What does not change the posterior.
    pub fn object(&self) -> Value {
        json!({
            "density": self.density.to_string_lossy(), "truth": self.truth.as_ref().map(|path| path.to_string_lossy()),
            "cosmology": self.universe.name, "sample_pairs": self.pairs, "iterations": self.iterations,
            "mode": self.mode(), "checkpoint_every": self.checkpoint_every,
        })
    }
}
