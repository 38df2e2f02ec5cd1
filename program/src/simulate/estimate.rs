//! `meshloom simulate --estimate`: memory, bytes and time of a run before there is one.

use meshloom::Error;
use meshloom::fft::Speeds;
use meshloom::gpu::bytes;
use meshloom::grid::Cost;
use meshloom::pm::{ConeForecast, RunForecast};
use serde_json::{Value, json};

use super::memory::Forecast;
use super::options::Arguments;
use super::parameters::RunParameters;
use crate::failure::Failure;
use crate::terminal;

pub fn run(arguments: &Arguments, parameters: &RunParameters) -> Result<(), Failure> {
    let (common, ranks) = (&arguments.common, arguments.common.ranks());
    let speeds = arguments.speeds.speeds();
    let config = parameters.config(common.grid);
    let whole = Forecast::new(parameters, &config, ranks, &speeds).map_err(Error::from)?;
    let Forecast { run, cone, groups } = &whole;
    if common.json {
        let mut said = object(run, ranks);
        said["warnings"] = parameters.warnings.clone().into();
        said["memory"]["groups"] = (*groups).into();
        said["memory"]["with_light_cone"] = cone.map(|_| whole.run_memory()).into();
        said["light_cone"] = cone.map(|cone| cone_object(&cone, &speeds)).into();
        return terminal::print_object(&said);
    }
    let mut lines = table(run, ranks, &speeds);
    lines.extend(cone.map(|cone| cone_line(&cone, &speeds, whole.run_memory())));
    lines.extend(
        groups.map(|groups| format!("groups: memory {}, after the steps and in place of theirs", bytes(groups))),
    );
    lines.extend(parameters.warnings.iter().map(|said| format!("warning: {said}")));
    lines.push("seconds without compiling kernels, files, groups and spectra".into());
    terminal::print(&(lines.join("\n") + "\n"))
}

const PHASES: [&str; 2] = ["start", "steps"];

fn table(forecast: &RunForecast, ranks: usize, speeds: &Speeds) -> Vec<String> {
    let mut lines = vec![format!(
        "grid {}, {ranks} rank(s), {} steps; of the largest rank, at {} GB/s of device memory:",
        forecast.grid,
        forecast.steps,
        speeds.memory / 1e9
    )];
    lines.push(format!(
        "memory {}: particles {}, beside them the start {} and then the force mesh {}",
        bytes(forecast.memory()),
        bytes(forecast.particle_memory),
        bytes(forecast.start_memory),
        bytes(forecast.mesh_memory)
    ));
    lines.push(format!("{:<8} {:>14} {:>12} {:>10} {:>12}", "", "device memory", "sent", "messages", "seconds"));
    for (number, name) in PHASES.iter().enumerate() {
        let Cost { sent, messages, .. } = forecast.exchange[number];
        let (device, sent) = (bytes(forecast.device[number]), bytes(sent));
        lines.push(format!("{name:<8} {device:>14} {sent:>12} {messages:>10} {:>12.4}", forecast.seconds[number]));
    }
    lines
}

/// Seconds of device memory that the light cone's passes move, and of what crosses on its way to the host.
fn cone_seconds(cone: &ConeForecast, speeds: &Speeds) -> f64 {
    cone.device as f64 / speeds.memory + cone.host_memory as f64 / speeds.copy
}

/// `memory` is that of the device, with the run's.
fn cone_line(cone: &ConeForecast, speeds: &Speeds, memory: u64) -> String {
    format!(
        "light cone: {} particles from {} steps, memory {} with the run's and {} on the host, {} moved, {:.4} seconds",
        cone.particles,
        cone.steps,
        bytes(memory),
        bytes(cone.host_memory),
        bytes(cone.device),
        cone_seconds(cone, speeds)
    )
}

fn cone_object(cone: &ConeForecast, speeds: &Speeds) -> Value {
    json!({
        "particles": cone.particles, "steps_made": cone.steps, "seconds": cone_seconds(cone, speeds),
        "memory": { "device": cone.device_memory, "host": cone.host_memory }, "bytes": { "device": cone.device },
    })
}

fn object(forecast: &RunForecast, ranks: usize) -> Value {
    let phase = |number: usize| {
        let cost = forecast.exchange[number];
        json!({
            "seconds": forecast.seconds[number], "messages": cost.messages,
            "bytes": { "device": forecast.device[number], "sent": cost.sent, "received": cost.received },
        })
    };
    json!({
        "command": "simulate", "estimate": true, "ranks": ranks, "grid": forecast.grid.parts(), "steps_made": forecast.steps,
        "memory": {
            "total": forecast.memory(), "particles": forecast.particle_memory, "start": forecast.start_memory,
            "mesh": forecast.mesh_memory,
        },
        "start": phase(0), "steps": phase(1),
    })
}
