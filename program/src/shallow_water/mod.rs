//! `meshloom shallow-water`: a run of the shallow-water model from parameters to files.

mod outputs;
mod parameters;
mod snapshots;

use indicatif::ProgressBar;
use std::path::PathBuf;
use std::time::Instant;

use meshloom::Rank;
use meshloom::comm::Op;
use meshloom_program::models::shallow_water::{Real, ShallowWater, ShallowWaterError};
use serde_json::{Value, json};

use crate::checked_files::check_files;
use crate::common::{Common, Precision, shares_value};
use crate::described::{self, check_command};
use crate::failure::{Ended, Failure};
use crate::phases::Phases;
use crate::run_clock::{Due, RunClock};
use outputs::{Log, Outputs};
pub use parameters::Arguments;
use parameters::RunParameters;

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let parameters = RunParameters::gather(arguments)?;
    let files = outputs::FILES.map(|name| parameters.out.join(name));
    let files = check_files([], files.iter().map(PathBuf::as_path))?;
    Outputs::new(&parameters).states.check_places(parameters.schedule().snapshot_steps())?;
    check_command(&parameters.out, "shallow-water")?;
    let common = &arguments.common;
    let report = common.launch(&files, |rank| match parameters.precision {
        Precision::F32 => flow::<f32>(rank, &parameters, common),
        Precision::F64 => flow::<f64>(rank, &parameters, common),
    })?;
    common.print(report)
}

/// Maximum number of steps submitted at once, between two checks of the device and of signals.
const STRIDE: u64 = 256;
/// Milliseconds that they are to take at most, so that who asks a run to stop does not wait for
/// long.
const LONGEST: u64 = 500;

/// Returns the number of steps to submit next, after `steps` steps took `milliseconds`.
fn stride(steps: u64, milliseconds: u64) -> u64 {
    if milliseconds > LONGEST { (steps / 2).max(1) } else { (2 * steps).min(STRIDE) }
}

/// One rank's work; returns the content of `run.json`, or that a signal or the time
/// limit has stopped the run.
fn flow<T: Real>(rank: &mut Rank, parameters: &RunParameters, common: &Common) -> Result<Value, Ended> {
    // The progress bar counts steps, not phases.
    let mut phases = Phases::new(ProgressBar::hidden());
    let mut clock = RunClock::new(&rank.comm, parameters.checkpoints, parameters.state_bytes());
    let outputs = Outputs::new(parameters);
    let directory = outputs.states.take_directory(&rank.comm, "shallow-water", parameters.state_bytes())?;
    let found = if parameters.resume { snapshots::last_whole::<T>(&outputs, rank)? } else { None };
    let resumed = found.as_ref().map(|found| found.step);
    let (mut water, mut log) = match found {
        Some(found) => (ShallowWater::resume(rank, parameters.config.clone(), found.step, &found.state)?, found.log),
        None => (ShallowWater::<T>::new(rank, parameters.config.clone())?, Log::default()),
    };
    rank.recorder.wait()?;
    phases.done("start");

    let bar = common.progress(rank.comm.rank(), parameters.steps, "stepping");
    let mut at_once = 1;
    for event in parameters.schedule().events().filter(|event| resumed.is_none_or(|resumed| event.step > resumed)) {
        while water.steps() < event.step {
            let (left, begun) = (event.step - water.steps(), Instant::now());
            water.advance(rank, left.min(at_once))?;
            rank.recorder.wait()?;
            bar.set_position(water.steps());
            let mut longest = [begun.elapsed().as_millis() as u64];
            rank.comm.all_reduce(&mut longest, Op::Max)?;
            at_once = stride(left.min(at_once), longest[0]);
            // What is due at a step is written before the run may stop there.
            if water.steps() < event.step
                && let Some(stopped) = look(&mut clock, &outputs, rank, &water, &log)?
            {
                clock.answered();
                return Err(stopped.into());
            }
        }
        phases.done("steps");
        if event.line {
            log.lines.push(water.diagnostics(rank)?);
        }
        if event.frame {
            log.frames.extend(water.picture(rank)?);
        }
        if event.snapshot {
            let directory = outputs.states.snapshot(event.step);
            clock.save(|| snapshots::write(&outputs, rank, &water, &log, &directory))?;
        }
        phases.done("output");
        // After the last step, too: then all that is left to do with a checkpoint is to write the
        // results.
        if let Some(stopped) = look(&mut clock, &outputs, rank, &water, &log)? {
            clock.answered();
            return Err(stopped.into());
        }
    }
    bar.finish_and_clear();
    let files = outputs.seal(rank, &water, &log)?;
    phases.done("output");
    // A signal that came while files were written keeps the steps.
    if let Some(stopped) = look(&mut clock, &outputs, rank, &water, &log)? {
        clock.answered();
        return Err(stopped.into());
    }
    let mut report = report(rank, parameters, &water, resumed)?;
    report["host_seconds"] = phases.host_seconds(&rank.comm)?.into();
    report["seconds"] = json!(phases.finish());
    outputs.publish(&rank.comm, &outputs.path(described::DESCRIPTION), &report, files)?;
    if rank.comm.rank() == 0 {
        outputs.states.remove_checkpoint();
    }
    drop((clock, directory));
    Ok(report)
}

/// Writes the state of this moment if one is due, and returns the failure of a run that stops here.
/// Collective.
fn look<T: Real>(
    clock: &mut RunClock,
    outputs: &Outputs,
    rank: &mut Rank,
    water: &ShallowWater<T>,
    log: &Log,
) -> Result<Option<Failure>, ShallowWaterError> {
    let due = clock.look(&rank.comm)?;
    if due == Due::Nothing {
        return Ok(None);
    }
    let comm = rank.comm.clone();
    clock.save(|| {
        outputs.states.replace_checkpoint(&comm, |directory| snapshots::write(outputs, rank, water, log, directory))
    })?;
    let Due::Stop(stop) = due else { return Ok(None) };
    Ok(Some(stop.failure(format_args!("step {} of {}", water.steps(), outputs.parameters.steps))))
}

/// Returns the content of `run.json` without the seconds of phases. Collective.
fn report<T: Real>(
    rank: &Rank,
    parameters: &RunParameters,
    water: &ShallowWater<T>,
    resumed: Option<u64>,
) -> Result<Value, ShallowWaterError> {
    let (config, counts) = (water.config(), rank.recorder.counts());
    let (step, cost) = (water.step_cost(), water.cost());
    let done = water.steps() - resumed.unwrap_or(0);
    let mut bytes = [cost.sent_bytes, cost.messages, step.cost.device_bytes * done];
    rank.comm.all_reduce(&mut bytes, Op::Sum)?;
    let mut exchanges = [step.exchanges];
    rank.comm.all_reduce(&mut exchanges, Op::Max)?;
    Ok(json!({
        "command": "shallow-water", "version": env!("CARGO_PKG_VERSION"),
        "parameters": parameters.object(),
        "cells": config.cells, "steps": water.steps(), "time_step": config.time_step(),
        "hours": water.seconds() / 3600.0, "compatible": config.compatible, "precision": parameters.precision,
        "resumed_from_step": resumed,
        "checkpoint_every": parameters.checkpoints.checkpoint_every, "time_limit": parameters.checkpoints.limit.time_limit,
        "device": described::device(rank),
        "ranks": rank.comm.size(), "shares": shares_value(rank.comm.shares()), "grid": water.grid().to_string(),
        "bytes": { "device": bytes[2], "between_ranks": bytes[0], "messages": bytes[1] },
        "bytes_per_cell_step": step.cost.device_bytes.checked_div(step.cells), "exchanges_per_step": exchanges[0],
        "submissions": counts.submits, "dispatches": counts.dispatches,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_at_once_grow_while_they_are_quick() {
        let mut steps = 1;
        for _ in 0..10 {
            steps = stride(steps, 100);
        }
        assert_eq!(steps, STRIDE);
        assert_eq!([stride(STRIDE, LONGEST + 1), stride(1, 60_000), stride(3, 0)], [STRIDE / 2, 1, 6]);
    }
}
