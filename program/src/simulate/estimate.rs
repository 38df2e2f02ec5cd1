//! `meshloom simulate --estimate`: memory, bytes and time of a run before there is one.

use meshloom::Error;
use meshloom::fft::Speeds;
use meshloom::gpu::bytes;
use meshloom::grid::Cost;
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
    let (common, shares) = (&arguments.common, arguments.common.forecast_shares()?);
    let ranks = shares.ranks();
    let speeds = arguments.speeds.speeds();
    let config = parameters.config(common.grid);
    let whole = Forecast::largest(parameters, &config, shares).map_err(Error::from)?;
    let Forecast { run, cone, groups } = &whole;
    let files = FileForecast::new(parameters, &whole, ranks, speeds.seconds(&run.stepping));
    if common.json {
        let mut said = object(run, ranks, &speeds);
        said["warnings"] = parameters.warnings.clone().into();
        said["memory"]["groups"] = (*groups).into();
        said["memory"]["with_light_cone"] = cone.map(|_| whole.run_memory()).into();
        said["light_cone"] = cone.map(|cone| cone_object(&cone, &speeds)).into();
        said["files"] = json!({
            "seconds": files.seconds(arguments.file_speed), "bytes": files.written, "disk": files.disk,
            "checkpoint": files.checkpoint, "checkpoints": files.checkpoints,
        });
        return terminal::print_object(&said);
    }
    let mut lines = table(run, ranks, &speeds);
    lines.extend(cone.map(|cone| cone_line(&cone, &speeds, whole.run_memory())));
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

fn table(forecast: &RunForecast, ranks: usize, speeds: &Speeds) -> Vec<String> {
    let mut lines = vec![format!(
        "grid {:?}, {ranks} rank(s), {} steps; of the largest rank, at {} GB/s of device memory:",
        forecast.grid,
        forecast.steps,
        speeds.memory / 1e9
    )];
    lines.push(format!(
        "memory {}: particles {}, beside them the start {} and then the force mesh {}",
        bytes(forecast.memory()),
        bytes(forecast.particle_memory),
        bytes(forecast.start.memory_bytes),
        bytes(forecast.stepping.memory_bytes)
    ));
    lines.push(format!("{:<8} {:>14} {:>12} {:>10} {:>12}", "", "device memory", "sent", "messages", "seconds"));
    for (name, cost) in [("start", &forecast.start), ("steps", &forecast.stepping)] {
        let Cost { device_bytes, sent_bytes, messages, .. } = *cost;
        let (device, sent, seconds) = (bytes(device_bytes), bytes(sent_bytes), speeds.seconds(cost));
        lines.push(format!("{name:<8} {device:>14} {sent:>12} {messages:>10} {seconds:>12.4}"));
    }
    lines
}

/// Seconds of device memory that the light cone's passes move, and of what crosses on its way to
/// the host.
fn cone_seconds(cone: &ConeForecast, speeds: &Speeds) -> f64 {
    cone.crossing.device_bytes as f64 / speeds.memory + cone.host_memory as f64 / speeds.copy
}

/// `memory` is that of the device, with the run's.
fn cone_line(cone: &ConeForecast, speeds: &Speeds, memory: u64) -> String {
    format!(
        "light cone: {} particles from {} steps, memory {} with the run's and {} on the host, {} moved, {:.4} seconds",
        cone.particles,
        cone.steps,
        bytes(memory),
        bytes(cone.host_memory),
        bytes(cone.crossing.device_bytes),
        cone_seconds(cone, speeds)
    )
}

fn cone_object(cone: &ConeForecast, speeds: &Speeds) -> Value {
    json!({
        "particles": cone.particles, "steps_made": cone.steps, "seconds": cone_seconds(cone, speeds),
        "memory": { "device": cone.crossing.memory_bytes, "host": cone.host_memory },
        "bytes": { "device": cone.crossing.device_bytes },
    })
}

fn object(forecast: &RunForecast, ranks: usize, speeds: &Speeds) -> Value {
    let phase = |cost: &Cost| {
        json!({
            "seconds": speeds.seconds(cost), "messages": cost.messages,
            "bytes": { "device": cost.device_bytes, "sent": cost.sent_bytes, "received": cost.received_bytes },
        })
    };
    json!({
        "command": "simulate", "estimate": true, "ranks": ranks, "shares": shares_value(forecast.grid.shares()), "grid": forecast.grid.parts(), "steps_made": forecast.steps,
        "memory": {
            "total": forecast.memory(), "particles": forecast.particle_memory, "start": forecast.start.memory_bytes,
            "mesh": forecast.stepping.memory_bytes,
        },
        "start": phase(&forecast.start), "steps": phase(&forecast.stepping),
    })
}
