//! `meshloom simulate`: a cosmological particle-mesh run from parameters to files.

mod estimate;
mod halos;
mod light_cone;
mod mass_function;
mod memory;
mod options;
mod outputs;
mod parameters;
mod snapshots;

use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use meshloom::comm::Op;
use meshloom::host_memory;
use meshloom::io::{NpyFile, Sealed};
use meshloom::pm::{Config, LightCone, Noise, Quantity, Reached, Simulation};
use meshloom::{Error, Rank};
use serde_json::{Value, json};

use crate::checked_files::check_files;
use crate::common::{Common, shares_value};
use crate::config_file;
use crate::described::{self, check_command};
use crate::failure::{Ended, Failure};
use crate::phases::Phases;
use crate::run_clock::{Due, RunClock, Stop};
use crate::terminal;
use halos::Halos;
use memory::Forecast;
use meshloom::cluster::Machine;
pub use options::Arguments;
use options::RunOptions;
use outputs::Outputs;
use parameters::RunParameters;
use snapshots::LastWhole;

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let options = RunOptions::gather(arguments)?;
    let parameters = RunParameters::new(arguments.out(), options)?;
    let options = &parameters.options;
    if arguments.configured.print_config {
        let warnings: String = parameters.warnings.iter().map(|said| format!("# warning: {said}\n")).collect();
        return terminal::print(&(warnings + &config_file::text(options)?));
    }
    if arguments.estimate {
        return estimate::run(arguments, &parameters);
    }
    let inputs =
        [&arguments.configured.config, &options.white_noise, &options.universe.power_table].into_iter().flatten();
    let outputs = Outputs::paths(arguments.out());
    let files = check_files(
        inputs.map(PathBuf::as_path).chain([Path::new(&options.universe.cosmology)]),
        outputs.iter().map(PathBuf::as_path),
    )?;
    outputs::states(&parameters.out).check_places(parameters.options.snapshots.iter())?;
    check_command(&parameters.out, "simulate")?;
    let common = &arguments.common;
    let machine = arguments.machine.machine()?;
    let report = common.launch(&files, |rank| simulate(rank, &parameters, &machine, common))?;
    common.print(report)
}

/// Returns the failure of a run that stops; its state is on disk.
fn stopped(stop: Stop, simulation: &Simulation, Reached { a, step, .. }: Reached) -> Failure {
    stop.failure(format_args!("step {step} of {} (a = {a})", simulation.steps()))
}

/// One rank's work; returns the content of `run.json`, or that a signal or the time limit has
/// stopped the run.
fn simulate(rank: &mut Rank, parameters: &RunParameters, machine: &Machine, common: &Common) -> Result<Value, Ended> {
    // The progress bar counts steps, not phases.
    let mut phases = Phases::new(ProgressBar::hidden());
    let mut clock = RunClock::new(&rank.comm, parameters.options.checkpoints, parameters.state_bytes());
    let mut config = parameters.config(common.grid);
    let grid = config.grid_on(rank.comm.shares(), machine).map_err(Error::from)?;
    config.grid = Some(grid.parts());
    let part = grid.rank_to_check(config.cells(), rank.index());
    Forecast::new(parameters, &config, grid, part, machine)?.check(rank)?;
    let directory =
        outputs::states(&parameters.out).take_directory(&rank.comm, "simulate", parameters.state_bytes())?;
    let noise =
        parameters.options.white_noise.as_ref().map(|path| rank.comm.together(|| white_noise(rank, &config, path)));
    let noise = noise.transpose()?;
    let outputs = Outputs::new(rank, parameters, &config, noise.as_deref())?;
    let (mut simulation, mut light_cone, resumed) = begin(rank, &outputs, config, noise)?;
    rank.recorder.wait()?;
    phases.done("start");
    if rank.comm.rank() == 0 {
        parameters.warnings.iter().for_each(|said| terminal::warn(said));
    }

    let bar = common.progress(rank.comm.rank(), simulation.steps() as u64, "stepping");
    let ended = simulation.run(rank, |simulation, rank, reached| {
        bar.set_position(reached.step as u64);
        if let Some(light_cone) = &mut light_cone {
            light_cone.advance(rank, simulation)?;
        }
        if reached.snapshot {
            rank.recorder.wait()?;
            phases.done("steps");
            let moment = (reached, resumed == Some(reached.step));
            clock.save(|| snapshots::write(&outputs, rank, simulation, light_cone.as_ref(), moment))?;
            phases.done("output");
        }
        if clock.is_timed() {
            rank.recorder.wait()?;
        }
        let due = clock.look(&rank.comm)?;
        if due != Due::Nothing {
            phases.done("steps");
            clock.save(|| {
                let state = simulation.phase_space(rank)?;
                snapshots::write_checkpoint(&outputs, rank, simulation, &state, light_cone.as_ref(), reached)
            })?;
            phases.done("output");
        }
        match due {
            Due::Stop(stop) => Err(stopped(stop, simulation, reached).into()),
            _ => Ok(()),
        }
    });
    bar.finish_and_clear();
    let ended = ended.and_then(|()| {
        phases.done("steps");
        finish(rank, &outputs, &mut simulation, light_cone.as_ref(), &mut clock, (phases, resumed))
    });
    // All is there that a request could save.
    if let Ok(_) | Err(Ended::Together(_)) = ended {
        clock.answered();
    }
    drop(directory);
    ended
}

/// Writes what a run ends with, and keeps its steps where that fails or a signal stops it. Returns
/// the content of `run.json`. Collective.
fn finish(
    rank: &mut Rank,
    outputs: &Outputs,
    simulation: &mut Simulation,
    light_cone: Option<&LightCone>,
    clock: &mut RunClock,
    (phases, resumed): (Phases, Option<usize>),
) -> Result<Value, Ended> {
    let state = simulation.phase_space(rank)?;
    let end = Reached { a: simulation.scale_factor(), step: simulation.steps(), snapshot: false };
    let beforehand = rank.comm.size() > 1 || clock.is_limited();
    // What the run is resumed from may be of this moment already.
    let kept = resumed == Some(end.step) || outputs.epochs().any(|a| a == end.a);
    let keep = |(rank, simulation): &mut (&mut Rank, &mut Simulation)| {
        if kept {
            return Ok(());
        }
        snapshots::write_checkpoint(outputs, rank, simulation, &state, light_cone, end)
    };
    let write = |(rank, simulation): &mut (&mut Rank, &mut Simulation)| {
        let check = |rank: &Rank, simulation: &Simulation| match clock.stop(&rank.comm)? {
            Some(stop) => Err(stopped(stop, simulation, end).into()),
            None => Ok(()),
        };
        write_results(rank, outputs, simulation, light_cone, check, (phases, resumed))
    };
    let report = snapshots::keeping(&mut (&mut *rank, simulation), beforehand, keep, write)?;
    if rank.comm.rank() == 0 {
        outputs.states.remove_checkpoint();
    }
    Ok(report)
}

/// Writes the files that a run ends with, which get their names when all of them are whole; between
/// them `check` may end it. Returns the content of `run.json`. Collective.
fn write_results(
    rank: &mut Rank,
    outputs: &Outputs,
    simulation: &mut Simulation,
    light_cone: Option<&LightCone>,
    mut check: impl FnMut(&Rank, &Simulation) -> Result<(), Ended>,
    (mut phases, resumed): (Phases, Option<usize>),
) -> Result<Value, Ended> {
    let (parameters, comm) = (outputs.parameters, rank.comm.clone());
    check(rank, simulation)?;
    let mut files = fields_and_particles(rank, outputs, simulation)?;
    phases.done("output");
    let mut report = report(rank, outputs, simulation)?;
    report["resumed_from_step"] = resumed.into();
    let clouds = parameters.linking.map(|_| halos::clouds(rank, simulation)).transpose()?;
    // The particles of the run have no more steps, and are on the host for a checkpoint.
    simulation.release(rank)?;
    if let Some((linking, clouds)) = parameters.linking.zip(clouds) {
        check(rank, simulation)?;
        let halos = Halos::find(rank, simulation, clouds, linking, &parameters.overdensities)?;
        phases.done("groups");
        files.extend(halos.seal(&comm, outputs, simulation, &parameters.out)?);
        report["halos"] = halos.report(&comm)?;
        phases.done("groups");
    }
    if let Some(light_cone) = light_cone {
        check(rank, simulation)?;
        let (sealed, said) = light_cone::seal(rank, outputs, simulation, light_cone)?;
        phases.done("light_cone");
        files.extend(sealed);
        report["light_cone"] = said;
    }
    // From here on all files get their names, which takes less time than a checkpoint.
    check(rank, simulation)?;
    report["host_seconds"] = phases.host_seconds(&comm)?.into();
    report["seconds"] = json!(phases.finish());
    outputs.publish(&comm, &outputs.path(described::DESCRIPTION), &report, files)?;
    Ok(report)
}

/// Returns the run and its light cone at its start or, with `--resume`, at its last whole snapshot,
/// and that one's step. Collective.
fn begin(
    rank: &mut Rank,
    outputs: &Outputs,
    config: Config,
    noise: Option<Vec<f32>>,
) -> Result<(Simulation, Option<LightCone>, Option<usize>), Error> {
    let cone = outputs.parameters.light_cone.clone();
    let found = if outputs.parameters.options.resume { snapshots::last_whole(outputs, rank, &config)? } else { None };
    let Some(LastWhole { step, state, crossed }) = found else {
        let light_cone = cone.map(|cone| LightCone::new(&config, cone)).transpose()?;
        let noise = noise.as_deref().map_or(Noise::Seed, Noise::Values);
        return Ok((Simulation::new(rank, config, noise)?, light_cone, None));
    };
    let light_cone = cone.zip(crossed).map(|(cone, crossed)| LightCone::resume(&config, cone, crossed)).transpose()?;
    Ok((Simulation::resume(rank, config, step, &state)?, light_cone, Some(step)))
}

/// Writes positions and momenta, density and power spectrum at the end of the run; no file has its
/// final name yet. Collective.
fn fields_and_particles(rank: &mut Rank, outputs: &Outputs, simulation: &mut Simulation) -> Result<Vec<Sealed>, Error> {
    let mut files = vec![
        simulation.seal_particles(rank, &outputs.path("positions.npy"), Quantity::Position)?,
        simulation.seal_particles(rank, &outputs.path("velocities.npy"), outputs.velocities())?,
    ];
    files.extend(outputs.hdf5(rank, simulation, &outputs.parameters.out)?);
    if outputs.parameters.options.save_density {
        let density = simulation.density(rank)?;
        files.push(rank.seal_npy(outputs.path("density.npy"), &density)?);
    }
    let columns = simulation.projected_density(rank)?;
    files.extend(outputs.picture(&rank.comm, simulation, &columns)?);
    files.extend(outputs.spectrum(rank, simulation, &outputs.parameters.out)?);
    Ok(files)
}

/// Returns the content of `run.json` without halos and the seconds of phases. Collective.
fn report(rank: &Rank, outputs: &Outputs, simulation: &Simulation) -> Result<Value, Error> {
    let (parameters, config) = (outputs.parameters, simulation.config());
    let (counts, cost) = (rank.recorder.counts(), simulation.cost());
    let mut bytes = [cost.sent_bytes, cost.messages, simulation.traffic()];
    rank.comm.all_reduce(&mut bytes, Op::Sum)?;
    let mut object = json!({
        "command": "simulate", "version": env!("CARGO_PKG_VERSION"),
        "parameters": outputs.run,
        "white_noise": parameters.options.white_noise.as_ref().map(|path| path.to_string_lossy()),
        "warnings": parameters.warnings,
        "particles": config.particles, "mesh": config.mesh, "box": config.box_size,
        "cosmology_name": parameters.universe.name, "cosmology": parameters.universe.object(), "seed": config.seed,
        "velocities": parameters.options.velocities.object(), "halos": Value::Null, "light_cone": Value::Null, "hdf5": parameters.options.hdf5,
        "checkpoint_every": parameters.options.checkpoints.checkpoint_every,
        "time_limit": parameters.options.checkpoints.limit.time_limit,
        "device": described::device(rank),
        "devices": devices(rank)?, "ranks": rank.comm.size(), "shares": shares_value(rank.comm.shares()), "grid": simulation.grid().to_string(),
        "bytes": { "device": bytes[2], "between_ranks": bytes[0], "messages": bytes[1] },
        "submissions": counts.submits, "dispatches": counts.dispatches,
    });
    parameters.options.evolution.describe(&mut object);
    Ok(object)
}

/// Returns the names of the devices of all ranks, each once, in the order of ranks. All ranks call
/// it; rank 0 gets them.
fn devices(rank: &Rank) -> Result<Vec<String>, Error> {
    let mut names: Vec<String> = Vec::new();
    if let Some(gathered) = rank.comm.gather_v(0, rank.gpu.info().name.as_bytes())? {
        for name in gathered.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    Ok(names)
}

/// Returns the white noise of this rank's sites, from a file of shape `(n, n, n)`.
fn white_noise(rank: &Rank, config: &Config, path: &Path) -> Result<Vec<f32>, Error> {
    let n = config.particles;
    let file = NpyFile::open(path)?;
    file.expect_shape(&[n, n, n])?;
    let rows: Vec<u64> = config.rows(rank.comm.shares(), rank.comm.rank())?.collect();
    let mut values = host_memory::reserve("white noise", rows.len() * n as usize)?;
    for row in rows {
        values.extend(file.read_finite_f32(row..row + n)?);
    }
    Ok(values)
}
