//! The parameters of a reconstruction, checked.

use std::path::PathBuf;

use meshloom::pm::Config;
use serde_json::{Value, json};

use super::options::{Mode, Options};
use crate::chains::Chains;
use crate::checked::{count, sigma, usage};
use crate::failure::Failure;
use crate::sample_groups::GroupLimits;
use crate::universe::Universe;

/// The parameters of a reconstruction, checked as far as that needs neither files of data nor
/// devices.
pub struct Parameters {
    pub options: Options,
    pub density: PathBuf,
    pub noise: f64,
    box_size: f64,
    /// Mirrored pairs of samples; 0 for the most probable place alone.
    pub pairs: usize,
    /// Iterations with samples.
    pub iterations: u32,
    /// Markov chains in place of samples.
    pub chains: Option<Chains>,
    /// Groups of samples; `None` for as many as ranks, samples and memory allow.
    groups: Option<usize>,
    pub universe: Universe,
    grid: Option<[usize; 2]>,
}

impl Parameters {
    /// Checks options that have all values.
    ///
    /// # Errors
    /// [`Failure::Usage`] for values out of range and what is missing, [`Failure::Failed`] for a
    /// bad file of the cosmology.
    pub fn new(options: Options, grid: Option<[usize; 2]>) -> Result<Self, Failure> {
        let Some(density) = options.density.clone() else {
            return Err(usage("--density is missing: give the file of the noisy density, 1 + contrast"));
        };
        let Some(noise) = options.noise else {
            return Err(usage("--noise is missing: give the standard deviation of the density's noise in each cell"));
        };
        let Some(box_size) = options.box_size else {
            return Err(usage("--box is missing: give the side of the density's box in Mpc/h"));
        };
        let (pairs, iterations) = match options.map_only {
            true => (0, 0),
            false => (count("samples", options.samples, 1..=1000)?, count("iterations", options.iterations, 1..=1000)?),
        };
        count("checkpoint-every", options.checkpoint_every, 1..=1 << 16)?;
        options.particles.map(|n| count("particles", n, 1..=1 << 14)).transpose()?;
        options.evolution.check()?;
        Ok(Parameters {
            density,
            noise: sigma(noise)?,
            box_size,
            pairs: pairs as usize,
            iterations: iterations as u32,
            chains: options.chains.resolve(options.seed.0)?,
            groups: options.sample_groups.number()?,
            universe: Universe::new(&options.universe)?,
            options,
            grid,
        })
    }

    /// Forces between two kept states of the run.
    pub fn checkpoint_every(&self) -> usize {
        self.options.checkpoint_every as usize
    }

    /// Returns `true` if samples of the last iteration are curved.
    pub fn is_geovi(&self) -> bool {
        self.options.mode == Mode::Geovi
    }

    /// Returns how many groups of `ranks` samples are dealt to, where it is for them to choose as
    /// many as `fits` says yes to.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub fn sample_groups(&self, ranks: usize, fits: impl Fn(usize) -> bool) -> Result<usize, Failure> {
        GroupLimits { ranks, samples: (2 * self.pairs).max(1), grid: self.grid }.groups(self.groups, fits)
    }

    /// Returns the library's configuration for a density of `mesh` cells along each axis.
    pub fn config(&self, mesh: u64) -> Config {
        Config {
            particles: self.options.particles.map_or(mesh, |particles| particles as u64),
            mesh,
            box_size: self.box_size,
            seed: self.options.seed.0,
            grid: self.grid,
            ..self.options.evolution.config(&self.universe)
        }
    }

    /// Returns the identity of the posterior; states of other ones cannot be resumed. `fingerprint`
    /// is that of the density.
    pub fn problem(&self, config: &Config, fingerprint: u64) -> Value {
        let mut object = json!({
            "density_fingerprint": format!("{fingerprint:016x}"), "noise": self.noise, "box": self.box_size,
            "particles": config.particles, "mesh": config.mesh, "universe": self.universe.object(), "seed": self.options.seed.0,
        });
        self.options.evolution.describe(&mut object);
        object
    }

    /// Returns the sampling method.
    pub fn sampling(&self) -> Value {
        json!({ "mode": self.options.mode })
    }

    /// Returns what does not change the posterior.
    pub fn object(&self) -> Value {
        json!({
            "density": self.density.to_string_lossy(), "truth": self.options.truth.as_ref().map(|path| path.to_string_lossy()),
            "cosmology": self.universe.name, "sample_pairs": self.pairs, "iterations": self.iterations,
            "mode": self.options.mode, "checkpoint_every": self.options.checkpoint_every,
            "time_limit": self.options.limit.time_limit,
        })
    }
}
