//! The parameters of a reconstruction.

use std::path::PathBuf;

use clap::Args;
use meshloom::cosmology::{LptOrder, Scheme};
use meshloom::mesh::Window;
use meshloom::pm::Config;
use serde_json::{Value, json};

use crate::common::Common;
use crate::failure::Failure;
use crate::simulate::{RunOptions, Universe};

#[derive(Args)]
pub struct Arguments {
    /// The noisy density: 1 + contrast on a cubic grid, the force mesh
    #[arg(long, value_name = "D.npy")]
    density: PathBuf,
    /// Side of the periodic box in Mpc/h
    #[arg(long = "box", value_name = "L", allow_negative_numbers = true)]
    box_size: f64,
    /// Standard deviation of the density's noise in each cell
    #[arg(long, value_name = "SIGMA", allow_negative_numbers = true)]
    noise: f64,
    /// Directory for everything that is written
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
    /// Only the most probable initial conditions, without samples
    #[arg(long, conflicts_with_all = ["samples", "iterations"])]
    map_only: bool,
    /// Mirrored pairs of samples of the posterior
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,
    /// Times that samples are drawn and the mean is moved, after the most probable place was found
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: u32,
    /// The white noise that the density was made of, to compare with
    #[arg(long, value_name = "NOISE.npy")]
    truth: Option<PathBuf>,
    /// Particles along each axis [default: as many as cells]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 14))]
    particles: Option<u64>,
    /// planck18, planck18-primordial, simple, or a TOML file, as of simulate
    #[arg(long, default_value = "planck18")]
    cosmology: String,
    /// Linear power today from a table as CAMB or CLASS write it: k in h/Mpc and P in (Mpc/h)^3
    #[arg(long, value_name = "FILE")]
    power_table: Option<PathBuf>,
    /// Strength of the linear power today, also of a table's [default: the cosmology's or the table's]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    sigma8: Option<f64>,
    /// Seed of the samples
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Order of the Lagrangian start: 1 or 2
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    lpt: u8,
    /// Scale factor of the start
    #[arg(long, default_value_t = 0.0625, allow_negative_numbers = true)]
    a_start: f64,
    /// Scale factor of the density
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    a_end: f64,
    /// Steps, linear in the scale factor
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    steps: u16,
    /// fastpm or bullfrog
    #[arg(long, default_value = "fastpm", value_parser = ["fastpm", "bullfrog"])]
    scheme: String,
    /// cic or tsc
    #[arg(long, default_value = "cic", value_parser = ["cic", "tsc"])]
    window: String,
    /// Keep the state of the run at every so many forces: more take less memory and more time
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    checkpoint_every: u16,
    #[command(flatten)]
    pub common: Common,
}

/// The parameters of a reconstruction, checked as far as that needs neither files nor devices.
pub struct Parameters {
    pub density: PathBuf,
    pub noise: f64,
    pub out: PathBuf,
    /// Mirrored pairs of samples; 0 for the most probable place alone.
    pub pairs: usize,
    pub iterations: u32,
    pub truth: Option<PathBuf>,
    pub seed: u64,
    pub checkpoint_every: usize,
    particles: Option<u64>,
    box_size: f64,
    pub universe: Universe,
    lpt: u8,
    a_start: f64,
    a_end: f64,
    steps: usize,
    scheme: String,
    window: Window,
    grid: Option<[usize; 2]>,
}

impl Parameters {
    /// Checks the command line.
    ///
    /// # Errors
    /// [`Failure::Usage`] for values out of range, [`Failure::Failed`] for a bad file of the cosmology.
    pub fn gather(arguments: &Arguments) -> Result<Self, Failure> {
        let usage = |message: String| Err(Failure::Usage(message));
        let noise = arguments.noise;
        if !(noise > 0.0 && (noise as f32).is_normal()) {
            return usage(format!("--noise is {noise}; it must be a standard deviation above 0"));
        }
        for path in [Some(&arguments.density), arguments.truth.as_ref(), Some(&arguments.out)].into_iter().flatten() {
            if path.as_os_str() == "-" {
                return usage("- is refused as the name of a file or directory; ranks read and write parts".into());
            }
        }
        Ok(Parameters {
            density: arguments.density.clone(),
            noise,
            out: arguments.out.clone(),
            pairs: if arguments.map_only { 0 } else { arguments.samples as usize },
            iterations: if arguments.map_only { 0 } else { arguments.iterations },
            truth: arguments.truth.clone(),
            seed: arguments.seed,
            checkpoint_every: arguments.checkpoint_every.into(),
            particles: arguments.particles,
            box_size: arguments.box_size,
            universe: Universe::new(&RunOptions {
                cosmology: Some(arguments.cosmology.clone()),
                power_table: arguments.power_table.clone(),
                sigma8: arguments.sigma8,
                ..RunOptions::default()
            })?,
            lpt: arguments.lpt,
            a_start: arguments.a_start,
            a_end: arguments.a_end,
            steps: arguments.steps.into(),
            scheme: arguments.scheme.clone(),
            window: if arguments.window == "tsc" { Window::Tsc } else { Window::Cic },
            grid: arguments.common.grid,
        })
    }

    /// The library's configuration for a density of `mesh` cells along each axis.
    pub fn config(&self, mesh: u64) -> Config {
        Config {
            particles: self.particles.unwrap_or(mesh),
            mesh,
            box_size: self.box_size,
            cosmology: self.universe.cosmology,
            power_table: self.universe.table.clone(),
            seed: self.seed,
            lpt: if self.lpt == 1 { LptOrder::First } else { LptOrder::Second },
            a_start: self.a_start,
            a_end: self.a_end,
            steps: self.steps,
            scheme: if self.scheme == "fastpm" { Scheme::FastPm } else { Scheme::BullFrog },
            window: self.window,
            grid: self.grid,
            ..Config::default()
        }
    }

    /// All that decides the result.
    pub fn object(&self, config: &Config) -> Value {
        json!({
            "density": self.density.to_string_lossy(), "noise": self.noise, "box": self.box_size,
            "truth": self.truth.as_ref().map(|path| path.to_string_lossy()),
            "particles": config.particles, "mesh": config.mesh, "sample_pairs": self.pairs, "iterations": self.iterations,
            "cosmology": self.universe.name, "universe": self.universe.object(), "seed": self.seed, "lpt": self.lpt,
            "a_start": self.a_start, "a_end": self.a_end, "steps": self.steps, "scheme": self.scheme,
            "window": self.window.to_string(), "checkpoint_every": self.checkpoint_every,
        })
    }
}
