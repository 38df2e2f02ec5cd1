//! `meshloom simulate --estimate`: memory, bytes and time of a run before there is one.

use meshloom::Error;
use meshloom::cluster::Machine;
use meshloom::gpu::bytes;
use meshloom::grid::{Cost, Grid};
use meshloom::pm::{ConeForecast, RunForecast};
use serde_json::{Value, json};

use super::memory::Forecast;
use super::options::Arguments;
use super::options::Velocities;
use super::parameters::RunParameters;
use crate::common::shares_value;
use crate::failure::Failure;
use crate::terminal;

pub fn run(arguments: &Arguments, parameters: &RunParameters) -> Result<(), Failure> {
    let (common, machine) = (&arguments.common, arguments.machine.machine()?);
    if let Some(most) = arguments.scaling {
        return scaling(parameters, most as usize, &machine);
    }
    let shares = common.forecast_shares()?;
    let ranks = shares.ranks();
    let config = parameters.config(common.grid);
    let whole = Forecast::largest(parameters, &config, shares, &machine).map_err(Error::from)?;
    let Forecast { run, cone, groups } = &whole;
    let files = FileForecast::new(parameters, &whole, ranks, run.stepping_seconds);
    if common.json {
        let mut said = object(run, ranks);
        said["warnings"] = parameters.warnings.clone().into();
        said["memory"]["groups"] = (*groups).into();
        said["memory"]["with_light_cone"] = cone.map(|_| whole.run_memory()).into();
        said["light_cone"] = cone.map(|cone| cone_object(&cone, &machine)).into();
        said["files"] = json!({
            "seconds": files.seconds(arguments.file_speed), "bytes": files.written, "disk": files.disk,
            "checkpoint": files.checkpoint, "checkpoints": files.checkpoints,
        });
        return terminal::print_object(&said);
    }
    let mut lines = table(run, ranks);
    lines.extend(cone.map(|cone| cone_line(&cone, &machine, whole.run_memory())));
    lines.extend(
        groups.map(|groups| format!("groups: memory {}, after the steps and in place of theirs", bytes(groups))),
    );
    lines.push(format!(
        "files: {} written in {:.4} seconds at {} GB/s for all ranks, at most {} on disk",
        bytes(files.written),
        files.seconds(arguments.file_speed),
        arguments.file_speed,
        bytes(files.disk),
    ));
    if files.checkpoints > 0 {
        lines.push(format!(
            "checkpoints: {} of {} each, two on disk while one replaces the other",
            files.checkpoints,
            bytes(files.checkpoint)
        ));
    }
    lines.extend(parameters.warnings.iter().map(|said| format!("warning: {said}")));
    lines.push("seconds without compiling kernels, groups and spectra".into());
    terminal::print(&(lines.join("\n") + "\n"))
}

/// Prints the seconds of a step on 1, 2, 4, .. ranks up to `most`, with slabs, pencils of whole
/// nodes and pencils that are nearly square.
fn scaling(parameters: &RunParameters, most: usize, machine: &Machine) -> Result<(), Failure> {
    let step = |grid: Grid| {
        let config = parameters.config(Some(grid.parts()));
        let forecast = config.forecast(grid.ranks(), machine).ok()?;
        Some(forecast.stepping_seconds / forecast.steps as f64)
    };
    terminal::print(&crate::scaling::table("seconds of a step", most, machine, step))
}

/// Forecast of the files of a run: arrays of particles and cells, the rest is small.
struct FileForecast {
    /// Bytes written in the whole run, checkpoints included.
    written: u64,
    /// Maximum bytes on disk.
    disk: u64,
    /// Bytes of a checkpoint.
    checkpoint: u64,
    checkpoints: u64,
}

impl FileForecast {
    /// Forecasts the files of a run whose steps take `seconds`.
    fn new(parameters: &RunParameters, forecast: &Forecast, ranks: usize, seconds: f64) -> Self {
        let options = &parameters.options;
        let particles = (options.particles as u64).saturating_pow(3);
        let hdf5 = if options.hdf5.is_some() { 32 } else { 0 };
        // A snapshot has the state, too: momenta are its velocities, unless these are peculiar.
        let momenta = if options.velocities == Velocities::Peculiar { 12 } else { 0 };
        let snapshots = options.snapshots.len() as u64 * particles * (36 + momenta + hdf5);
        let cells = if options.save_density { 4 * (options.mesh.unwrap_or_default() as u64).pow(3) } else { 0 };
        let crossed = 36 * forecast.cone.map_or(0, |cone| cone.particles);
        let end = particles * (24 + hdf5) + cells + crossed;
        let checkpoint = parameters.state_bytes() + crossed;
        let every = options.checkpoints.checkpoint_every;
        // Several ranks, and runs with a limit, write one before the files of the end.
        let is_kept = options.snapshots.contains(&options.evolution.a_end);
        let last = u64::from((ranks > 1 || options.checkpoints.limit.time_limit.is_some()) && !is_kept);
        let checkpoints = every.map_or(0, |every| (seconds / every.seconds() as f64) as u64) + last;
        FileForecast {
            written: snapshots + end + checkpoints * checkpoint,
            disk: snapshots + (end + checkpoints.min(1) * checkpoint).max(checkpoints.min(2) * checkpoint),
            checkpoint,
            checkpoints,
        }
    }

    /// Returns the seconds that they take at a speed in GB/s.
    fn seconds(&self, speed: f64) -> f64 {
        self.written as f64 / (speed * 1e9)
    }
}

fn table(forecast: &RunForecast, ranks: usize) -> Vec<String> {
    let mut lines = vec![format!(
        "grid {:?}, {ranks} rank(s), {} steps, {} moves of particles; of the largest rank:",
        forecast.grid, forecast.steps, forecast.moves
    )];
    lines.push(format!(
        "memory {}: particles {}, and {} at the start or {} for the force mesh in steps",
        bytes(forecast.memory()),
        bytes(forecast.particle_memory),
        bytes(forecast.start.memory_bytes),
        bytes(forecast.stepping.memory_bytes)
    ));
    lines.push(format!("{:<8} {:>14} {:>12} {:>10} {:>12}", "", "device traffic", "sent", "messages", "seconds"));
    for (name, cost, seconds) in
        [("start", &forecast.start, forecast.start_seconds), ("steps", &forecast.stepping, forecast.stepping_seconds)]
    {
        let Cost { device_bytes, sent_bytes, messages, .. } = *cost;
        let (device, sent) = (bytes(device_bytes), bytes(sent_bytes));
        lines.push(format!("{name:<8} {device:>14} {sent:>12} {messages:>10} {seconds:>12.4}"));
    }
    lines
}

/// Seconds of device memory that the light cone's passes move, and of what crosses on its way to
/// the host.
fn cone_seconds(cone: &ConeForecast, machine: &Machine) -> f64 {
    cone.crossing.device_bytes as f64 / machine.memory_rate + cone.host_memory as f64 / machine.copy_rate
}

/// `memory` is that of the device, with the run's.
fn cone_line(cone: &ConeForecast, machine: &Machine, memory: u64) -> String {
    format!(
        "light cone: {} particles from {} steps, memory {} with the run's and {} on the host, {} moved, {:.4} seconds",
        cone.particles,
        cone.steps,
        bytes(memory),
        bytes(cone.host_memory),
        bytes(cone.crossing.device_bytes),
        cone_seconds(cone, machine)
    )
}

fn cone_object(cone: &ConeForecast, machine: &Machine) -> Value {
    json!({
        "particles": cone.particles, "steps_made": cone.steps, "seconds": cone_seconds(cone, machine),
        "memory": { "device": cone.crossing.memory_bytes, "host": cone.host_memory },
        "bytes": { "device": cone.crossing.device_bytes },
    })
}

fn object(forecast: &RunForecast, ranks: usize) -> Value {
    let phase = |cost: &Cost, seconds: f64| {
        json!({
            "seconds": seconds, "messages": cost.messages,
            "bytes": { "device": cost.device_bytes, "sent": cost.sent_bytes, "received": cost.received_bytes },
        })
    };
    json!({
        "command": "simulate", "estimate": true, "ranks": ranks, "shares": shares_value(forecast.grid.shares()), "grid": forecast.grid.parts(), "steps_made": forecast.steps, "moves": forecast.moves,
        "memory": {
            "total": forecast.memory(), "particles": forecast.particle_memory, "start": forecast.start.memory_bytes,
            "mesh": forecast.stepping.memory_bytes,
        },
        "start": phase(&forecast.start, forecast.start_seconds), "steps": phase(&forecast.stepping, forecast.stepping_seconds),
    })
}
