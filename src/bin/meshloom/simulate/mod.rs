//! `meshloom simulate`: a cosmological particle-mesh run from parameters to files.

mod halos;
mod mass_function;
mod outputs;
mod parameters;
mod snapshots;

use std::path::Path;

use indicatif::ProgressBar;
use meshloom::comm::Op;
use meshloom::io::NpyFile;
use meshloom::pm::{Config, Noise, Simulation, fingerprint};
use meshloom::{Context, Error};
use serde_json::{Value, json};

use crate::common::{Common, Failure};
use crate::phases::Phases;
use outputs::Outputs;
pub use parameters::Arguments;
use parameters::Parameters;

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let parameters = Parameters::gather(arguments)?;
    let common = &arguments.common;
    let report = common.launch(|rank| one_rank(rank, &parameters, common))?;
    common.print(report)
}

fn one_rank(rank: &Context, parameters: &Parameters, common: &Common) -> Result<Value, Error> {
    // The bar is one of steps.
    let mut phases = Phases::new(ProgressBar::hidden());
    let config = parameters.config(common.grid);
    let directory = if rank.comm.rank() == 0 { Some(Outputs::create(&parameters.out)?) } else { None };
    rank.comm.barrier()?;
    let noise = parameters.white_noise.as_ref().map(|path| white_noise(rank, &config, path)).transpose()?;
    let known = |noise: &Vec<f32>| {
        Ok::<_, Error>(fingerprint(&rank.comm, snapshots::rows(rank, &config)?, config.particles, &[noise])?)
    };
    let outputs = Outputs::new(parameters, noise.as_ref().map(known).transpose()?);

    let found = if parameters.resume { snapshots::last_whole(&outputs, rank, &config)? } else { None };
    let resumed = found.as_ref().map(|(step, _)| *step);
    let mut simulation = match found {
        Some((step, state)) => Simulation::resume(rank, config.clone(), step, &state)?,
        None => Simulation::new(rank, config.clone(), noise.as_deref().map_or(Noise::Seed, Noise::Values))?,
    };
    drop(noise);
    simulation.recorder().wait()?;
    phases.done("start");

    let bar = common.progress(rank.comm.rank(), simulation.steps() as u64, "stepping");
    simulation.run(|simulation, reached| {
        bar.set_position(reached.step as u64);
        if reached.snapshot {
            simulation.recorder().wait()?;
            phases.done("steps");
            snapshots::write(&outputs, rank, simulation, reached, resumed == Some(reached.step))?;
            phases.done("output");
        }
        Ok::<_, Error>(())
    })?;
    bar.finish_and_clear();
    phases.done("steps");

    let [displacement, momentum] = simulation.phase_space()?;
    // All files get their names at the end: a disk that fills up leaves none.
    let positions = simulation.positions(&displacement);
    let mut files = vec![
        simulation.seal_points(&outputs.path("positions.npy"), &positions)?,
        simulation.seal_points(&outputs.path("velocities.npy"), &momentum)?,
    ];
    files.extend(outputs.hdf5(&simulation, &parameters.out, &positions, &momentum)?);
    let (own, density) = simulation.density()?;
    if parameters.save_density {
        files.push(simulation.seal_field(&outputs.path("density.npy"), &own, &density)?);
    }
    files.extend(outputs.picture(rank, &config, &own, &density)?);
    files.extend(outputs.spectrum(rank, &mut simulation)?);
    phases.done("output");
    let mut found = Value::Null;
    if parameters.linking_length > 0.0 {
        let (sealed, report) = halos::seal(rank, parameters, &outputs, &simulation, [&files[0], &files[1]])?;
        files.extend(sealed);
        found = report;
        phases.done("groups");
    }

    let (counts, cost) = simulation.counts();
    let mut bytes = [cost.sent, cost.messages, simulation.traffic()];
    rank.comm.all_reduce(&mut bytes, Op::Sum)?;
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "parameters": outputs.run,
        "particles": config.particles, "mesh": config.mesh, "box": config.box_size,
        "cosmology": parameters.cosmology_object(), "seed": config.seed,
        "lpt": parameters.lpt, "a_start": config.a_start, "a_end": config.a_end, "steps": config.steps,
        "scheme": parameters.scheme, "window": config.window.to_string(),
        "halos": found, "resumed_from_step": resumed, "hdf5": parameters.hdf5,
        "device": { "name": rank.gpu.info().name, "driver": rank.gpu.info().driver, "driver_info": rank.gpu.info().driver_info,
                    "backend": format!("{:?}", rank.gpu.info().backend) },
        "ranks": rank.comm.size(), "grid": simulation.grid().to_string(),
        "seconds": phases.finish(),
        "bytes": { "between_ranks": bytes[0], "messages": bytes[1], "device_memory": bytes[2] },
        "submissions": counts.submits, "dispatches": counts.dispatches,
    });
    outputs.publish(&rank.comm, &outputs.path("run.json"), &report, files)?;
    drop(directory);
    Ok(report)
}

/// The white noise of this rank's sites.
fn white_noise(rank: &Context, config: &Config, path: &Path) -> Result<Vec<f32>, Error> {
    let n = config.particles;
    let file = NpyFile::open(path)?;
    file.expect_shape(&[n, n, n])?;
    let mut values = Vec::new();
    for row in snapshots::rows(rank, config)? {
        values.extend(file.read_f32(row..row + n)?);
    }
    Ok(values)
}
