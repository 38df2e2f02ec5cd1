//! `meshloom simulate`: a cosmological particle-mesh run from parameters to files.

mod halos;
mod mass_function;
mod outputs;
mod parameters;
mod snapshots;

use std::path::Path;

use indicatif::ProgressBar;
use meshloom::comm::Op;
use meshloom::io::{NpyFile, Sealed};
use meshloom::pm::{Config, Noise, Simulation};
use meshloom::{Context, Error};
use serde_json::{Value, json};

use crate::common::Common;
use crate::failure::Failure;
use crate::phases::Phases;
use outputs::Outputs;
pub use parameters::Arguments;
use parameters::RunParameters;

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let parameters = RunParameters::gather(arguments)?;
    let common = &arguments.common;
    let report = common.launch(|context| simulate(context, &parameters, common))?;
    common.print(report)
}

/// One rank's work; returns the content of `run.json`.
fn simulate(context: &mut Context, parameters: &RunParameters, common: &Common) -> Result<Value, Error> {
    // The progress bar counts steps, not phases.
    let mut phases = Phases::new(ProgressBar::hidden());
    let config = parameters.config(common.grid);
    let directory = if context.comm.rank() == 0 { Some(Outputs::create(&parameters.out)?) } else { None };
    context.comm.barrier()?;
    let noise = parameters.white_noise.as_ref().map(|path| white_noise(context, &config, path)).transpose()?;
    let outputs = Outputs::new(context, parameters, &config, noise.as_deref())?;

    let found = if parameters.resume { snapshots::last_whole(&outputs, context, &config)? } else { None };
    let resumed = found.as_ref().map(|(step, _)| *step);
    let mut simulation = match found {
        Some((step, state)) => Simulation::resume(context, config, step, &state)?,
        None => Simulation::new(context, config, noise.as_deref().map_or(Noise::Seed, Noise::Values))?,
    };
    drop(noise);
    context.recorder.wait()?;
    phases.done("start");

    let bar = common.progress(context.comm.rank(), simulation.steps() as u64, "stepping");
    simulation.run(context, |simulation, context, reached| {
        bar.set_position(reached.step as u64);
        if reached.snapshot {
            context.recorder.wait()?;
            phases.done("steps");
            snapshots::write(&outputs, context, simulation, reached, resumed == Some(reached.step))?;
            phases.done("output");
        }
        Ok::<_, Error>(())
    })?;
    bar.finish_and_clear();
    phases.done("steps");

    let (mut files, particles) = fields_and_particles(context, &outputs, &mut simulation)?;
    phases.done("output");
    let mut report = report(context, &outputs, &simulation)?;
    report["resumed_from_step"] = resumed.into();
    if parameters.linking_length > 0.0 {
        let (sealed, found) = halos::seal(context, &outputs, &simulation, particles)?;
        files.extend(sealed);
        report["halos"] = found;
        phases.done("groups");
    }
    report["host_seconds"] = phases.host_seconds(&context.comm)?.into();
    report["seconds"] = json!(phases.finish());
    outputs.publish(&context.comm, &outputs.path("run.json"), &report, files)?;
    drop(directory);
    Ok(report)
}

/// Positions and momenta of this rank's particles, by axis.
type Particles = [[Vec<f32>; 3]; 2];

/// Writes positions and momenta, density and power spectrum at the end of the run; no file has its final name yet. All ranks
/// call it.
fn fields_and_particles(
    context: &mut Context,
    outputs: &Outputs,
    simulation: &mut Simulation,
) -> Result<(Vec<Sealed>, Particles), Error> {
    let [displacement, momentum] = simulation.phase_space(context)?;
    let positions = simulation.positions(&displacement);
    drop(displacement);
    let mut files = vec![
        simulation.seal_points(&outputs.path("positions.npy"), &positions)?,
        simulation.seal_points(&outputs.path("velocities.npy"), &momentum)?,
    ];
    files.extend(outputs.hdf5(simulation, &outputs.parameters.out, &positions, &momentum)?);
    if outputs.parameters.save_density {
        let (own, density) = simulation.density(context)?;
        files.push(simulation.seal_field(&outputs.path("density.npy"), &own, &density)?);
    }
    let columns = simulation.projected_density(context)?;
    files.extend(outputs.picture(&context.comm, simulation.config(), &columns)?);
    files.extend(outputs.spectrum(context, simulation)?);
    Ok((files, [positions, momentum]))
}

/// The content of `run.json`, but for halos and seconds per phase. All ranks call it.
fn report(context: &Context, outputs: &Outputs, simulation: &Simulation) -> Result<Value, Error> {
    let (parameters, config, info) = (outputs.parameters, simulation.config(), context.gpu.info());
    let (counts, cost) = (context.recorder.counts(), simulation.cost());
    let mut bytes = [cost.sent, cost.messages, simulation.traffic()];
    context.comm.all_reduce(&mut bytes, Op::Sum)?;
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "parameters": outputs.run,
        "particles": config.particles, "mesh": config.mesh, "box": config.box_size,
        "cosmology": parameters.cosmology_object(), "seed": config.seed,
        "lpt": parameters.lpt, "a_start": config.a_start, "a_end": config.a_end, "steps": config.steps,
        "scheme": parameters.scheme, "window": config.window.to_string(),
        "halos": Value::Null, "hdf5": parameters.hdf5,
        "device": { "name": info.name, "driver": info.driver, "driver_info": info.driver_info,
                    "backend": format!("{:?}", info.backend) },
        "ranks": context.comm.size(), "grid": simulation.grid().to_string(),
        "bytes": { "between_ranks": bytes[0], "messages": bytes[1], "device_memory": bytes[2] },
        "submissions": counts.submits, "dispatches": counts.dispatches,
    }))
}

/// The white noise of this rank's sites, from a file of shape `(n, n, n)`.
fn white_noise(context: &Context, config: &Config, path: &Path) -> Result<Vec<f32>, Error> {
    let n = config.particles;
    let file = NpyFile::open(path)?;
    file.expect_shape(&[n, n, n])?;
    let mut values = Vec::new();
    for row in config.rows(context.comm.size(), context.comm.rank())? {
        values.extend(file.read_f32(row..row + n)?);
    }
    Ok(values)
}
