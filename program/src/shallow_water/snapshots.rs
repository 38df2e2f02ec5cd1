//! Snapshots of a run, and resuming from the last of them.

use std::fmt::Display;
use std::iter;
use std::path::{Path, PathBuf};

use meshloom::Rank;
use meshloom::bytemuck::cast_slice;
use meshloom::io::collective::fingerprint;
use meshloom::io::{NpyFile, Sealed, collective};
use meshloom_program::models::shallow_water::{Diagnostics, Picture, Real, ShallowWater, ShallowWaterError};
use serde_json::{Value, json};

use super::outputs::{FRAMES, HEIGHT, Log, Outputs, STATE, VELOCITY};
use super::parameters::{Event, RunParameters, Schedule};
use crate::described::difference;
use crate::resumable::{DESCRIPTION, States};

/// Returns the fingerprint of a state. Collective.
fn mark<T: Real>(parameters: &RunParameters, rank: &Rank, state: &[T]) -> Result<String, ShallowWaterError> {
    let (comm, fields) = (&rank.comm, 6);
    let (starts, length) = parameters.config.rows(comm.shares(), comm.rank())?;
    // In words, of which f64 has two.
    let words = (size_of::<T>() / 4) as u64;
    let columns: Vec<&[f32]> = match state.len() / fields {
        0 => vec![&[]; fields],
        cells => state.chunks(cells).map(cast_slice).collect(),
    };
    let mark = fingerprint(comm, starts.map(|start| words * start), words * length, &columns)?;
    Ok(format!("{mark:016x}"))
}

/// Returns the fingerprints of what has been seen, by the place where a snapshot keeps it: rank 0's
/// alone, which has it all. Collective.
fn marks_of_log(rank: &Rank, log: &Log) -> Result<Value, ShallowWaterError> {
    let Log { lines, frames } = if rank.comm.rank() == 0 { log } else { &Log::default() };
    let mark = |columns: &[&[f32]]| {
        let length = columns.iter().map(|column| column.len()).max().unwrap_or(0);
        fingerprint(&rank.comm, iter::once(0), length as u64, columns).map(|mark| format!("{mark:016x}"))
    };
    let lines = lines.iter().flat_map(|line| iter::once(line.step).chain(line.figures().map(f64::to_bits)));
    let lines: Vec<u64> = lines.collect();
    let sizes: Vec<u64> = frames.iter().flat_map(|frame| [frame.width, frame.height].map(|n| n as u64)).collect();
    let sizes = iter::once(cast_slice(&sizes));
    let frames: Vec<&[f32]> = sizes.chain(frames.iter().map(|frame| &frame.elevation[..])).collect();
    Ok(json!({ FRAMES: mark(&frames)?, "diagnostics": mark(&[cast_slice(&lines)])? }))
}

/// Writes a snapshot into `directory`. Collective.
pub fn write<T: Real>(
    outputs: &Outputs,
    rank: &mut Rank,
    water: &ShallowWater<T>,
    log: &Log,
    directory: &Path,
) -> Result<(), ShallowWaterError> {
    let parameters = outputs.parameters;
    let made = outputs.states.make(&rank.comm, directory)?;
    let (flow, state) = (water.flow(rank)?, water.state(rank)?);
    let comm = &rank.comm;
    let [height, velocity] = [HEIGHT, VELOCITY].map(|name| directory.join(name));
    let mut files = Vec::from(water.seal_flow(comm, [&height, &velocity], &flow)?);
    let cells = state.len() / 6;
    let fields: Vec<&[T]> = (0..6).map(|field| &state[field * cells..][..cells]).collect();
    files.push(water.seal_fields(comm, &directory.join(STATE), &fields)?);
    files.push(seal_frames(rank, &directory.join(FRAMES), &log.frames)?);
    let lines: Vec<Value> = log.lines.iter().map(|line| json!([line.step, line.figures()])).collect();
    let whole = json!({
        "step": water.steps(), "run": parameters.object(), "fingerprint": mark(parameters, rank, &state)?,
        "diagnostics": lines, "fingerprints": marks_of_log(rank, log)?,
    });
    outputs.publish(comm, &directory.join(DESCRIPTION), &whole, files)?;
    drop(made);
    Ok(())
}

/// Writes frames, which rank 0 has. Collective.
fn seal_frames(rank: &Rank, path: &Path, frames: &[Picture]) -> Result<Sealed, ShallowWaterError> {
    let mut shape = [0; 3];
    if let Some(first) = frames.first() {
        shape = [frames.len(), first.height, first.width].map(|n| n as u64);
    }
    rank.comm.broadcast(0, &mut shape)?;
    collective::seal_npy(&rank.comm, path, &shape, |writer| {
        for (number, frame) in (0..).zip(frames) {
            writer.write(number * shape[1] * shape[2], &frame.elevation)?;
        }
        Ok(())
    })
}

/// State that a run is resumed from: this rank's part, and the diagnostics so far.
pub struct Last<T> {
    pub step: u64,
    pub state: Vec<T>,
    pub log: Log,
}

/// Returns the last whole snapshot of this flow, with what this run would have seen until then.
/// Collective.
///
/// A snapshot with a description that is damaged, of another flow or beyond this run is an error
/// and not skipped, since the run would overwrite good files.
pub fn last_whole<T: Real>(outputs: &Outputs, rank: &Rank) -> Result<Option<Last<T>>, ShallowWaterError> {
    let (parameters, states) = (outputs.parameters, &outputs.states);
    // Those of all runs that were made here, whenever these wrote some.
    let snapshots = steps_of(states)?.into_iter().rev().map(|step| (step, states.snapshot(step)));
    let Some(found) = states.newest(&rank.comm, snapshots, ("step", Value::as_u64))? else { return Ok(None) };
    let (step, said, schedule) = (found.moment, &found.said, parameters.schedule());
    found.check_run(&parameters.flow_of(&said["run"]), &parameters.flow())?;
    if step > parameters.steps {
        return Err(found
            .bad(format!(
                "it is of step {step}, and this run has {}; let it have more, or use another --out",
                parameters.steps
            ))
            .into());
    }
    let damaged = |why: &dyn Display| ShallowWaterError::from(found.damaged(why));
    if said["step"] != step {
        return Err(damaged(&format!("{DESCRIPTION} says step {}", said["step"])));
    }
    let earlier =
        Schedule::of(&said["run"]).ok_or_else(|| damaged(&format!("{DESCRIPTION} does not say when lines are due")))?;
    let file = NpyFile::open(found.directory.join(STATE)).map_err(|error| damaged(&error))?;
    let state = parameters.config.read_state::<T>(&file, rank.comm.shares(), rank.comm.rank());
    let state = state.map_err(|error| damaged(&error))?;
    if said["fingerprint"] != mark(parameters, rank, &state)?.as_str() {
        return Err(damaged(&format!("{STATE} is not what was written with {DESCRIPTION}")));
    }
    let lines = said["diagnostics"].as_array().and_then(|lines| lines.iter().map(line).collect::<Option<Vec<_>>>());
    let lines = lines.ok_or_else(|| damaged(&format!("{DESCRIPTION} has no diagnostics")))?;
    let frames = match rank.comm.rank() {
        0 => read_frames(&found.directory.join(FRAMES)).map_err(|error| damaged(&error))?,
        _ => Vec::new(),
    };
    let [line, frame]: [fn(&Event) -> bool; 2] = [|event| event.line, |event| event.frame];
    let due = [line, frame].map(|seen| earlier.events().filter(|event| event.step <= step && seen(event)).count());
    if lines.len() != due[0] || rank.comm.rank() == 0 && frames.len() != due[1] {
        return Err(damaged(&format!(
            "{} lines and {} frames where {} and {} are due",
            lines.len(),
            frames.len(),
            due[0],
            due[1]
        )));
    }
    let log = Log { lines, frames };
    let marks = marks_of_log(rank, &log)?;
    // Earlier versions wrote none.
    if !said["fingerprints"].is_null()
        && let Some((name, ..)) = difference(&said["fingerprints"], &marks)
    {
        return Err(damaged(&format!("{name} is not what was written with {DESCRIPTION}")));
    }
    let Log { lines, frames } = log;
    let kept = |seen| {
        earlier.kept(schedule, step, seen).map_err(|missing| {
            found.bad(format!(
                "it has lines every {} steps, and this run needs what was after step {missing}; use --every {0}, a multiple of it, or \
                 another --out",
                earlier.every
            ))
        })
    };
    let (of_lines, of_frames) = (kept(line)?, kept(frame)?);
    let lines = of_lines.into_iter().map(|number| lines[number]).collect();
    let mut kept_frames = Vec::new();
    for (number, picture) in frames.into_iter().enumerate() {
        if of_frames.binary_search(&number).is_ok() {
            kept_frames.push(picture);
        }
    }
    Ok(Some(Last { step, state, log: Log { lines, frames: kept_frames } }))
}

/// Returns the steps that directories of snapshots are named after, ascending.
fn steps_of(states: &States) -> Result<Vec<u64>, ShallowWaterError> {
    let step = |directory: PathBuf| {
        let step = directory.file_name()?.to_str()?.rsplit('_').next()?.parse::<u64>().ok()?;
        // As this program writes it: no plus sign, no zeros before it.
        (states.snapshot(step) == directory).then_some(step)
    };
    let mut steps: Vec<u64> = states.directories()?.into_iter().filter_map(step).collect();
    steps.sort_unstable();
    Ok(steps)
}

/// Returns a line of diagnostics of a description.
fn line(value: &Value) -> Option<Diagnostics> {
    let figures: Option<Vec<f64>> = value[1].as_array()?.iter().map(Value::as_f64).collect();
    let [seconds, mean_height, min_eta, max_eta, max_u, max_v, energy] = figures?.try_into().ok()?;
    Some(Diagnostics { step: value[0].as_u64()?, seconds, mean_height, min_eta, max_eta, max_u, max_v, energy })
}

fn read_frames(path: &Path) -> Result<Vec<Picture>, ShallowWaterError> {
    let file = NpyFile::open(path)?;
    let &[frames, height, width] = file.shape() else {
        file.expect_shape(&[1, 1, 1])?;
        return Ok(Vec::new());
    };
    let size = height * width;
    let frame = |n: u64| -> Result<Picture, ShallowWaterError> {
        let elevation = file.read_finite_f32(n * size..(n + 1) * size)?;
        Ok(Picture { width: width as usize, height: height as usize, elevation })
    };
    (0..frames).map(frame).collect()
}
