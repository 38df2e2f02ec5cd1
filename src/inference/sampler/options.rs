//! Algorithms of chains, and the options of a sampler.

use std::f64::consts::FRAC_PI_2;
use std::path::PathBuf;

use crate::inference::error::{InferenceError, Result};
use crate::inference::state_file::Existing;

/// The algorithm of a chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Algorithm {
    /// The No-U-Turn Sampler (Hoffman & Gelman 2014; Betancourt 2017): trajectories that end where
    /// they turn back.
    Nuts {
        /// Mean acceptance that the step size aims at, between 0 and 1.
        acceptance: f64,
        /// Maximum number of doublings of a trajectory, which has at most `2^depth` steps. A chain
        /// holds about 8 vectors for each.
        depth: u32,
    },
    /// Hamiltonian Monte Carlo (Duane et al. 1987).
    Hmc {
        /// Mean acceptance that the step size aims at, between 0 and 1.
        acceptance: f64,
        /// Mean number of steps of a trajectory; each has between 1 and `2 steps - 1`, so that none
        /// returns to its start every time.
        steps: u32,
    },
    /// Microcanonical Langevin Monte Carlo without acceptance (Robnik et al. 2023), for many latent
    /// values. Draws have a small bias that falls with `energy_variance`.
    Mclmc {
        /// Variance of the energy's error in each step, per latent value.
        energy_variance: f64,
        /// Number of steps of a draw.
        steps: u32,
        /// Distance in standard deviations after which a direction is forgotten. `None` finds it in
        /// the last window of the warm-up: 0.4 times the distance over which positions are
        /// correlated, from the root of the number of latent values as a start.
        length: Option<f64>,
    },
    /// Microcanonical trajectories whose ends are accepted or rejected (Robnik, Cohn-Gordon &
    /// Seljak 2025): draws without the bias of [`Mclmc`](Self::Mclmc).
    AdjustedMclmc {
        /// Mean acceptance that the step size aims at, between 0 and 1.
        acceptance: f64,
        /// Mean length of a trajectory in standard deviations; lengths are uniform up to twice
        /// this. `None` takes pi / 2 times the root of the number of latent values: draws of a
        /// Gaussian are then independent.
        length: Option<f64>,
    },
}

impl Algorithm {
    /// Creates the No-U-Turn Sampler with an acceptance of 0.8 and up to 10 doublings.
    #[must_use]
    pub fn nuts() -> Self {
        Algorithm::Nuts { acceptance: 0.8, depth: 10 }
    }

    /// Creates Hamiltonian Monte Carlo with an acceptance of 0.8.
    #[must_use]
    pub fn hmc(steps: u32) -> Self {
        Algorithm::Hmc { acceptance: 0.8, steps }
    }

    /// Creates microcanonical Langevin Monte Carlo with an energy variance of 5e-4, the published
    /// choice.
    #[must_use]
    pub fn mclmc(steps: u32) -> Self {
        Algorithm::Mclmc { energy_variance: 5e-4, steps, length: None }
    }

    /// Creates microcanonical Monte Carlo with an acceptance of 0.9, the published choice.
    #[must_use]
    pub fn adjusted_mclmc() -> Self {
        Algorithm::AdjustedMclmc { acceptance: 0.9, length: None }
    }

    /// Returns the length of trajectories of `count` latent values before any adaptation.
    pub(super) fn length(&self, count: f64) -> f64 {
        match *self {
            Algorithm::Mclmc { length, .. } => length.unwrap_or(count.sqrt()),
            Algorithm::AdjustedMclmc { length, .. } => length.unwrap_or(FRAC_PI_2 * count.sqrt()),
            _ => 0.0,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let wrong = |option: &str, why: String| Err(InferenceError::options(option, why));
        match *self {
            Algorithm::Nuts { acceptance, .. }
            | Algorithm::Hmc { acceptance, .. }
            | Algorithm::AdjustedMclmc { acceptance, .. }
                if !(acceptance > 0.0 && acceptance < 1.0) =>
            {
                wrong("acceptance", format!("expected a number between 0 and 1, got {acceptance}"))
            }
            Algorithm::Nuts { depth, .. } if !(1..=20).contains(&depth) => {
                wrong("depth", format!("expected 1 to 20, got {depth}"))
            }
            Algorithm::Hmc { steps, .. } | Algorithm::Mclmc { steps, .. } if !(1..=1 << 20).contains(&steps) => {
                wrong("steps", format!("expected 1 to 1048576, got {steps}"))
            }
            Algorithm::Mclmc { energy_variance, .. } if !(energy_variance > 0.0 && energy_variance.is_finite()) => {
                wrong("energy_variance", format!("expected a positive number, got {energy_variance}"))
            }
            Algorithm::Mclmc { length: Some(length), .. } | Algorithm::AdjustedMclmc { length: Some(length), .. }
                if !(length > 0.0 && length.is_finite()) =>
            {
                wrong("length", format!("expected a positive number, got {length}"))
            }
            _ => Ok(()),
        }
    }
}

/// The options of a [`Sampler`](super::Sampler), the same on all ranks of all groups.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SamplerOptions {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Number of chains of all groups.
    pub chains: u32,
    /// Number of draws of each chain that adapt it and are not draws of the posterior.
    pub warmup: u32,
    /// Number of draws of each chain after that.
    pub draws: u32,
    /// Number of draws from one that is kept to the next; `None` keeps none. Kept draws stay on
    /// the device, until [`Sampler::finish`](super::Sampler::finish) returns them.
    pub thinning: Option<u32>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Directory in which chains save their state, in one file that is whole at any time.
    pub directory: Option<PathBuf>,
    /// The use of a state that is in the directory.
    pub existing: Existing,
    /// Number of draws between two states; draws of the warm-up count. A state has all kept draws,
    /// and groups wait for each other to write it. The last draw writes a state, too.
    pub save_every: u32,
}

impl SamplerOptions {
    /// Creates the options of 4 chains with seed 0 that keep all draws.
    #[must_use]
    pub fn new(algorithm: Algorithm, warmup: u32, draws: u32) -> Self {
        SamplerOptions {
            algorithm,
            chains: 4,
            warmup,
            draws,
            thinning: Some(1),
            seed: 0,
            directory: None,
            existing: Existing::Refuse,
            save_every: 100,
        }
    }

    /// Sets the directory of the state, and what to do with a state that is there.
    #[must_use]
    pub fn state(mut self, directory: impl Into<PathBuf>, existing: Existing) -> Self {
        (self.directory, self.existing) = (Some(directory.into()), existing);
        self
    }

    /// Sets [`save_every`](Self::save_every).
    #[must_use]
    pub fn save_every(mut self, draws: u32) -> Self {
        self.save_every = draws;
        self
    }

    /// Sets [`thinning`](Self::thinning).
    #[must_use]
    pub fn thinning(mut self, thinning: impl Into<Option<u32>>) -> Self {
        self.thinning = thinning.into();
        self
    }

    /// Sets [`chains`](Self::chains).
    #[must_use]
    pub fn chains(mut self, chains: u32) -> Self {
        self.chains = chains;
        self
    }

    /// Sets [`seed`](Self::seed).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}
