//! Dependence of a simulated power spectrum on the matter density: the derivative of each
//! bin, from one gradient a bin, beside the difference of two runs.
//!
//! ```text
//! cargo run --release --example spectrum_gradient -- 2    # two ranks as threads
//! ```

use meshloom::cosmology::{Amplitude, Cosmology, CosmologyError, Parameters};
use meshloom::gpu::Options;
use meshloom::pm::{Config, Gradient, Noise, Simulation, SimulationError};
use meshloom::{Error, Launch, Rank, launch};

/// Returns the usual cosmology with another matter density.
fn cosmology(omega_m: f64) -> Result<Cosmology, CosmologyError> {
    let usual = Cosmology::planck18();
    let amplitude = Amplitude::Primordial(usual.primordial_amplitude());
    Cosmology::new(Parameters { omega_m, amplitude, ..Parameters::default() })
}

/// Returns the power in each bin at the end of a run.
fn power(rank: &mut Rank, config: Config) -> Result<Vec<f64>, SimulationError> {
    let mut simulation = Simulation::new(rank, config, Noise::Seed)?;
    simulation.run(rank, |_, _, _| Ok::<_, SimulationError>(()))?;
    Ok(simulation.power(rank)?.iter().map(|bin| bin.power).collect())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ranks = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let config = Config { particles: 32, mesh: 32, box_size: 100.0, steps: 5, ..Config::default() };
    launch(Launch::detect(ranks), &Options::from_env()?, |rank| {
        let (omega_m, step) = (config.cosmology.omega_m(), 1e-3);
        let mut run = |shift: f64| {
            let config = Config { cosmology: cosmology(omega_m + shift)?, ..config.clone() };
            Ok::<_, Error>(power(rank, config)?)
        };
        let (above, below) = (run(step)?, run(-step)?);
        let mut gradient = Gradient::new(rank, config.clone(), 1)?;
        for bin in 0..5 {
            let mut k = 0.0;
            let found = gradient.evaluate(rank, Noise::Seed, |observer, rank| {
                let spectrum = observer.run().power(rank)?;
                let by: Vec<f64> = (0..spectrum.len()).map(|other| f64::from(u8::from(other == bin))).collect();
                observer.add_power(rank, &spectrum, &by)?;
                k = spectrum[bin].k;
                Ok::<_, Error>(spectrum[bin].power)
            })?;
            if rank.index() == 0 {
                let (exact, difference) = (found.cosmology.omega_m, (above[bin] - below[bin]) / (2.0 * step));
                println!(
                    "k = {k:.3} h/Mpc   P = {:8.1}   dP/dOmega_m = {exact:9.1}   difference {difference:9.1}",
                    found.loss
                );
            }
        }
        Ok::<_, Error>(())
    })?;
    Ok(())
}
