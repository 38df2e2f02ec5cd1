//! The files of a run.

use std::path::Path;

use meshloom::comm::Communicator;
use meshloom::io::{Column, Sealed, csv_text, diverging_png_bytes, seal_whole};
use meshloom::shallow_water::{Diagnostics, Picture, Real, ShallowWater};
use meshloom::{Context, Error};
use serde_json::Value;

use super::log::Log;
use super::parameters::RunParameters;
use super::snapshots;
use crate::described;
use crate::resumable::States;
use crate::run_directory;

/// The files at the end of a run.
pub const FILES: [&str; 6] =
    [run_directory::DESCRIPTION, "height.npy", "velocity.npy", "diagnostics.csv", "height.png", "animation.png"];

/// Milliseconds that a frame of the animation is shown.
const FRAME: u16 = 120;

/// Writes the files of the end of the run; none has its final name yet. All ranks call it.
pub fn seal<T: Real>(
    parameters: &RunParameters,
    context: &mut Context,
    water: &ShallowWater<T>,
    log: &Log,
) -> Result<Vec<Sealed>, Error> {
    let path = |name: &str| parameters.out.join(name);
    let flow = water.flow(context)?;
    let mut files = Vec::from(water.seal_flow(&context.comm, [&path("height.npy"), &path("velocity.npy")], &flow)?);
    if context.comm.rank() == 0 {
        let table = path("diagnostics.csv");
        files.push(seal_whole(&table, table_text(&table, &log.lines)?.as_bytes())?);
        if let (Some(first), Some(last)) = (log.lines.first(), log.frames.last()) {
            // The scale of the start is that of all frames, also of a run that was resumed.
            let limit = first.max_eta.max(-first.min_eta) as f32;
            files.push(picture(&path("height.png"), std::slice::from_ref(last), limit)?);
            files.push(picture(&path("animation.png"), &log.frames, limit)?);
        }
    }
    Ok(files)
}

/// Publishes files with their description at `path`; states of other water go before. All ranks call it.
pub fn publish(
    (parameters, states): (&RunParameters, &States),
    comm: &Communicator,
    path: &Path,
    whole: &Value,
    files: Vec<Sealed>,
) -> Result<(), Error> {
    described::publish(comm, path, whole, files, |_| {
        states.clear(path.parent(), |run| parameters.is_other(run), snapshots::is_file)?;
        described::remove(path)
    })
}

/// The columns of `diagnostics.csv`.
const COLUMNS: [&str; 8] = ["step", "seconds", "mean_height", "min_eta", "max_eta", "max_u", "max_v", "energy"];

fn table_text(path: &Path, lines: &[Diagnostics]) -> Result<String, Error> {
    let steps: Vec<u64> = lines.iter().map(|line| line.step).collect();
    let column = |n: usize| -> Vec<f64> { lines.iter().map(|line| line.figures()[n]).collect() };
    let columns: Vec<Vec<f64>> = (0..COLUMNS.len() - 1).map(column).collect();
    let named = COLUMNS[1..].iter().copied().zip(columns.iter().map(|values| Column::F64(values)));
    let table: Vec<_> = std::iter::once((COLUMNS[0], Column::U64(&steps))).chain(named).collect();
    Ok(csv_text(path, &table)?)
}

fn picture(path: &Path, frames: &[Picture], limit: f32) -> Result<Sealed, Error> {
    let size = frames.first().map_or([0; 2], |frame| [frame.width, frame.height]);
    let values: Vec<&[f32]> = frames.iter().map(|frame| &frame.elevation[..]).collect();
    Ok(seal_whole(path, &diverging_png_bytes(&values, size, limit, FRAME, path)?)?)
}
