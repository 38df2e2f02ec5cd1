//! Runs beside their forecasts: transforms, their transposes, and steps of particles.

use std::time::Instant;

use meshloom::cluster::Machine;
use meshloom::comm::{Communicator, Op};
use meshloom::exchange::GridComms;
use meshloom::fft::{Forecast, Spec, Transform, TransformOptions, TransformTuning};
use meshloom::gpu::{MemoryKind, Profile};
use meshloom::grid::{Grid, Transfers};
use meshloom::pm::{Config, Noise, Simulation, SimulationError};
use meshloom::{Error, Rank};

use super::input;
use super::measure::{Spread, WARM_UP};
use super::session::Session;

/// Cells along each axis of the meshes of transforms on a software renderer; GPUs take more.
const CELLS: [u64; 2] = [64, 128];
const CELLS_OF_GPU: [u64; 2] = [256, 512];

/// Particles along each axis, with eight cells for each.
const PARTICLES: u64 = 32;
const PARTICLES_OF_GPU: u64 = 128;

/// Steps that are measured after those of warming up.
const STEPS: usize = 5;

/// Measured work, and its time by the model.
pub struct Comparison {
    pub work: String,
    pub seconds: f64,
    pub model_seconds: f64,
}

fn is_gpu(rank: &Rank) -> bool {
    rank.gpu.common().profile == Profile::Gpu
}

fn cells(rank: &Rank) -> [u64; 2] {
    if is_gpu(rank) { CELLS_OF_GPU } else { CELLS }
}

/// Returns the number of measurements of [`compare`] that a clock counts.
pub fn measurements(rank: &Rank) -> usize {
    cells(rank).len() * if rank.comm.size() > 1 { 2 } else { 1 }
}

/// Measures transforms, transposes and a step of particles on all ranks. Collective.
pub fn compare(session: &mut Session, machine: &Machine) -> Result<Vec<Comparison>, Error> {
    let mut comparisons = Vec::new();
    for n in cells(session.rank) {
        let shape = [n; 3];
        let grid = Grid::auto(shape, session.rank.comm.shares());
        comparisons.push(transform(session, machine, shape, grid)?);
        comparisons.extend(transpose(session, machine, shape, grid)?);
    }
    let (config, ranks) = (config(session.rank), session.rank.comm.size());
    let config = Config { grid: Some(config.grid_on(ranks, machine).map_err(Error::from)?.parts()), ..config };
    let comm = session.rank.comm.clone();
    comparisons.push(Comparison {
        work: format!("step of {} particles", input::name([config.particles; 3])),
        seconds: step_seconds(session.rank, &comm, config.clone())?,
        model_seconds: step_forecast(&config, ranks, machine)?,
    });
    Ok(comparisons)
}

/// Measures a forward transform of a complex field.
fn transform(session: &mut Session, machine: &Machine, shape: [u64; 3], grid: Grid) -> Result<Comparison, Error> {
    let Session { rank, clock, .. } = session;
    let tuning = TransformTuning::of(&rank.gpu);
    let spec = Spec::of::<[f32; 2]>(shape);
    let forecast = Forecast::new(&spec, grid, rank.comm.rank(), &tuning, rank.exchange.chunk_bytes())?;
    let mut comms = GridComms::new(&rank.comm, grid)?;
    let transform = Transform::<[f32; 2]>::new(&rank.gpu, shape, grid, rank.comm.rank())?;
    let (layout, spectrum) = (transform.field_layout(), transform.spectrum(&rank.gpu)?);
    let field = transform.field(&rank.gpu, &layout)?;
    rank.recorder.clear(&field);
    let run = |recorder: &mut _| Ok(transform.forward(recorder, &mut comms, &field, &layout, &spectrum)?);
    Ok(Comparison {
        work: format!("transform of {} on {grid}", input::name(shape)),
        seconds: clock.together(&mut rank.recorder, run)?.min,
        model_seconds: forecast.seconds(machine)?[0],
    })
}

/// Measures the first transpose of that transform in one piece, if it has any.
fn transpose(
    session: &mut Session,
    machine: &Machine,
    shape: [u64; 3],
    grid: Grid,
) -> Result<Option<Comparison>, Error> {
    let Session { rank, clock, .. } = session;
    let tuning = TransformTuning { pieces: 1, ..TransformTuning::of(&rank.gpu) };
    let (spec, options) = (Spec::of::<[f32; 2]>(shape), TransformOptions::default().tuning(tuning));
    let plan = Transform::<[f32; 2]>::with(&rank.gpu, &spec, grid, rank.comm.rank(), &options)?;
    let Some(transpose) = plan.plan().forward.exchanges().next() else { return Ok(None) };
    let forecast = Forecast::new(&spec, grid, rank.comm.rank(), &tuning, rank.exchange.chunk_bytes())?;
    let [of_phases, _] = forecast.phase_seconds(machine)?;
    let mut phases = forecast.forward.phases.iter().zip(&of_phases);
    let exchange = phases.find(|(phase, _)| phase.name.starts_with("exchange"));
    let model_seconds = exchange.map_or(0.0, |(_, seconds)| *seconds);
    let (mut comms, transfers) = (GridComms::new(&rank.comm, grid)?, transpose.transfers(0));
    let exchange = comms.along(transpose.grid_axis);
    let Transfers { send, receive } = &transfers;
    let [sent, received] =
        [send, receive].map(|parts| parts.iter().map(|part| part.start + part.len).max().unwrap_or(0));
    let outgoing = rank.gpu.array_in::<[f32; 2]>("bench::outgoing", sent, MemoryKind::Outgoing)?;
    let incoming = rank.gpu.array_in::<[f32; 2]>("bench::incoming", received, MemoryKind::Incoming)?;
    rank.recorder.clear(&outgoing);
    let run = |recorder: &mut _| Ok(exchange.run(recorder, &transfers, &outgoing, &incoming)?);
    Ok(Some(Comparison {
        work: format!("transpose of {} on {grid}", input::name(shape)),
        seconds: clock.together(&mut rank.recorder, run)?.min,
        model_seconds,
    }))
}

/// Returns a run with a particle per (Mpc/h)^3.
fn config(rank: &Rank) -> Config {
    let particles = if is_gpu(rank) { PARTICLES_OF_GPU } else { PARTICLES };
    let steps = WARM_UP as usize + STEPS;
    Config { particles, mesh: 2 * particles, box_size: particles as f64, steps, ..Config::default() }
}

/// Returns the least seconds of a step of `config` on `rank`, of the slowest rank of `comm`.
fn step_seconds(rank: &mut Rank, comm: &Communicator, config: Config) -> Result<f64, Error> {
    let mut simulation = Simulation::new(rank, config, Noise::Seed)?;
    let (mut seconds, mut before) = (Vec::new(), Instant::now());
    simulation.run(rank, |_, rank, reached| {
        rank.recorder.wait().map_err(SimulationError::from)?;
        let mut slowest = [before.elapsed().as_secs_f64()];
        comm.all_reduce(&mut slowest, Op::Max)?;
        if reached.step > WARM_UP as usize {
            seconds.push(slowest[0]);
        }
        before = Instant::now();
        Ok::<(), Error>(())
    })?;
    Ok(Spread::new(seconds, 1).min)
}

fn step_forecast(config: &Config, ranks: usize, machine: &Machine) -> Result<f64, Error> {
    let forecast = config.forecast(ranks, machine)?;
    Ok(forecast.stepping_seconds / forecast.steps as f64)
}

/// Returns the number of ranks that share a device, and wait for each other.
pub fn ranks_per_device(machine: &Machine) -> f64 {
    (machine.ranks_per_node as f64 / machine.devices as f64).max(1.0)
}

/// Measures steps of particles that all ranks compute at the same time, each one its own: what they
/// take beside the passes of transforms, which are known, are those over particles.
pub fn particles(session: &mut Session, machine: &mut Machine) -> Result<(), Error> {
    let comm = session.rank.comm.clone();
    let mut alone = Rank::new(Communicator::solo(), session.rank.gpu.clone())?;
    let config = Config { grid: Some([1, 1]), ..config(session.rank) };
    let measured = step_seconds(&mut alone, &comm, config.clone())? / ranks_per_device(machine);
    // The forecast is `others + bytes / particle_rate`.
    let forecast = |particle_rate: f64| {
        let alone = Machine { ranks_per_node: 1, devices: 1, nics: 1, particle_rate, ..machine.clone() };
        step_forecast(&config, 1, &alone)
    };
    let others = forecast(1e18)?;
    let bytes = 1e9 * (forecast(1e9)? - others);
    machine.particle_rate = (bytes / (measured - others).max(1e-9)).min(1e18);
    Ok(())
}
