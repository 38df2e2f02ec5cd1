//! `meshloom bench gradient`: the gradient of a loss of a simulation beside the simulation itself.

use clap::Args;
use meshloom::mesh::Bin;
use meshloom::pm::{Config, Gradient, Noise, Observer, Simulation, SimulationError};
use meshloom::{Error, Rank};
use serde_json::json;

use super::input;
use super::input::Settings;
use super::report::{Report, amount, range, time};
use super::session::Session;

#[derive(Args)]
pub struct Arguments {
    /// Particles along each axis; several with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "64",
        value_parser = clap::value_parser!(u64).range(1..=1 << 14))]
    size: Vec<u64>,
    /// Cells of the force mesh along each axis, for one particle
    #[arg(long, value_name = "F", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=8))]
    mesh_factor: u64,
    /// Steps of the simulation
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    steps: u64,
    /// Keep the state at every N-th force; several with commas between
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,3",
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    checkpoint_every: Vec<u64>,
    #[command(flatten)]
    pub settings: Settings,
}

const COLUMNS: [&str; 9] = [
    "particles",
    "mesh",
    "steps",
    "checkpoint every",
    "simulation",
    "gradient",
    "least .. greatest",
    "ratio",
    "memory",
];

/// Measures all that `arguments` ask for. Collective.
pub fn measure(rank: &mut Rank, arguments: &Arguments) -> Result<Report, Error> {
    let every = &arguments.checkpoint_every;
    let measurements = arguments.size.len() * (1 + every.len());
    let mut session = Session::new("gradient", &arguments.settings, rank, measurements, &COLUMNS);
    session.report.note(
        "of the power in each bin of the spectrum, by white noise and parameters; both with their set-up and initial conditions".into(),
    );
    for &particles in &arguments.size {
        let config = Config {
            particles,
            mesh: particles * arguments.mesh_factor,
            box_size: particles as f64,
            steps: arguments.steps as usize,
            grid: arguments.settings.common.grid,
            ..Config::default()
        };
        measure_one(&mut session, config, every)?;
    }
    Ok(session.finish())
}

/// Returns the logarithm of the power, summed over bins.
fn loss(observer: &mut Observer<'_>, rank: &mut Rank) -> Result<f64, SimulationError> {
    let spectrum = observer.run().power(rank)?;
    let has_power = |bin: &&Bin| bin.power > 0.0;
    let by: Vec<f64> = spectrum.iter().map(|bin| if bin.power > 0.0 { 1.0 / bin.power } else { 0.0 }).collect();
    observer.add_power(rank, &spectrum, &by)?;
    Ok(spectrum.iter().filter(has_power).map(|bin| bin.power.ln()).sum())
}

/// Measures and reports one run. Collective.
fn measure_one(session: &mut Session, config: Config, every: &[u64]) -> Result<(), Error> {
    let Session { rank, clock, report, .. } = session;
    let forward = clock.together(*rank, |rank: &mut Rank| {
        let mut simulation = Simulation::new(rank, config.clone(), Noise::Seed)?;
        simulation.run(rank, |_, _, _| Ok::<_, Error>(()))?;
        simulation.power(rank)?;
        Ok(())
    })?;
    for &every in every {
        let memory = Gradient::new(rank, config.clone(), every as usize)?.memory().clone();
        let spread = clock.together(*rank, |rank: &mut Rank| {
            Gradient::new(rank, config.clone(), every as usize)?.evaluate(rank, Noise::Seed, loss)?;
            Ok(())
        })?;
        let ratio = spread.median / forward.median;
        report.row(vec![
            config.particles.pow(3).to_string(),
            input::name(config.cells()),
            config.steps.to_string(),
            every.to_string(),
            time(forward.median),
            time(spread.median),
            range(&spread),
            format!("{ratio:.2}"),
            amount(memory.total()),
        ]);
        report.result(json!({
            "particles": config.particles.pow(3), "mesh": config.mesh, "steps": config.steps, "checkpoint_every": every,
            "simulation": { "seconds": forward }, "seconds": spread, "ratio": ratio,
            "bytes": { "device": memory.total(), "states": memory.states as u64 * memory.state },
        }));
    }
    Ok(())
}
