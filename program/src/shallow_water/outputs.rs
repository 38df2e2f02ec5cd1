//! The files of a run.

use std::path::{Path, PathBuf};

use meshloom::Rank;
use meshloom::comm::Communicator;
use meshloom::io::{Column, IoError, RgbImage, Sealed, csv_text, seal_whole};
use meshloom_program::models::shallow_water::{Diagnostics, Picture, Real, ShallowWater, ShallowWaterError};
use meshloom_program::plots::{self, Axis, ColorScale, MapFigure, Panel, Rows};
use serde_json::Value;

use super::parameters::RunParameters;
use crate::described;
use crate::resumable::{self, States};

pub const HEIGHT: &str = "height.npy";
pub const VELOCITY: &str = "velocity.npy";
/// All that the next step depends on.
pub const STATE: &str = "state.npy";
/// Frames of the animation so far.
pub const FRAMES: &str = "frames.npy";

/// The files at the end of a run.
pub const FILES: [&str; 6] =
    [described::DESCRIPTION, HEIGHT, VELOCITY, "diagnostics.csv", "height.png", "animation.png"];

/// Returns `true` if a file of this name in the directory of a state is one that runs write there.
pub fn of_state(name: &str) -> bool {
    [HEIGHT, VELOCITY, STATE, FRAMES, resumable::DESCRIPTION].contains(&name)
}

/// Lines of diagnostics, and frames of the animation, which rank 0 has.
#[derive(Default)]
pub struct Log {
    pub lines: Vec<Diagnostics>,
    pub frames: Vec<Picture>,
}

/// Milliseconds that a frame of the animation is shown.
const MILLISECONDS: u16 = 120;

/// The output directory of a run.
pub struct Outputs<'a> {
    pub parameters: &'a RunParameters,
    pub states: States,
}

impl<'a> Outputs<'a> {
    pub fn new(parameters: &'a RunParameters) -> Self {
        let states = States::new(&parameters.out, of_state);
        Outputs { parameters, states }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.parameters.out.join(name)
    }

    /// Writes the files of the end of the run; none has its final name yet. Collective.
    pub fn seal<T: Real>(
        &self,
        rank: &mut Rank,
        water: &ShallowWater<T>,
        log: &Log,
    ) -> Result<Vec<Sealed>, ShallowWaterError> {
        let flow = water.flow(rank)?;
        let [height, velocity] = [HEIGHT, VELOCITY].map(|name| self.path(name));
        let mut files = Vec::from(water.seal_flow(&rank.comm, [&height, &velocity], &flow)?);
        if rank.comm.rank() == 0 {
            let table = self.path("diagnostics.csv");
            files.push(seal_whole(&table, table_text(&table, &log.lines)?.as_bytes())?);
            if let Some(last) = log.frames.last() {
                // One scale for all frames, which holds every elevation that a line of diagnostics
                // has.
                let extremes = log.lines.iter().flat_map(|line| [line.max_eta, -line.min_eta]);
                let limit = extremes.fold(0.0, f64::max) as f32;
                let times = self.parameters.schedule().events().filter(|event| event.frame).map(|event| event.step);
                let frames: Vec<_> = log.frames.iter().zip(times).collect();
                let [height, animation] = ["height.png", "animation.png"].map(|name| self.path(name));
                let colors = ColorScale::symmetric(limit, [&last.elevation[..]]);
                let still = self.frame(&height, last, self.parameters.steps, &colors)?;
                files.push(seal_whole(&height, &still.png_bytes(&height)?)?);
                let all = ColorScale::symmetric(limit, log.frames.iter().map(|frame| &frame.elevation[..]));
                let bytes = plots::animation(frames.len() as u32, MILLISECONDS, &animation, |number| {
                    let (frame, step) = frames[number as usize];
                    self.frame(&animation, frame, step, &all)
                })?;
                files.push(seal_whole(&animation, &bytes)?);
            }
        }
        Ok(files)
    }

    /// Draws the elevation after `step` steps.
    fn frame(&self, path: &Path, elevation: &Picture, step: u64, colors: &ColorScale) -> Result<RgbImage, IoError> {
        let config = &self.parameters.config;
        let [east, north] = [0, 1].map(|a| config.cells[a] as f64 * config.spacing[a] / 1e3);
        let minutes = step as f64 * config.time_step() / 60.0;
        let all_minutes = self.parameters.steps as f64 * config.time_step() / 60.0;
        let time =
            if all_minutes < 120.0 { format!("{minutes:.1} minutes") } else { format!("{:.1} hours", minutes / 60.0) };
        let panel = Panel {
            title: "",
            values: &elevation.elevation,
            size: [elevation.height, elevation.width],
            x: Axis::linear("x, to the east [km]", [0.0, east]),
            // The first row is the northern one.
            y: Axis::linear("y, to the north [km]", [0.0, north]),
            rows: Rows::Down,
            colors,
            color_label: Some("elevation [m]"),
            smooth: false,
        };
        let title = format!("Elevation of the surface after {time}");
        MapFigure { title: &title, panels: &[panel] }.draw(path)
    }

    /// Publishes files with their description at `path`, without states of other water or beyond
    /// this run's end beside them. Collective.
    pub fn publish(
        &self,
        comm: &Communicator,
        path: &Path,
        whole: &Value,
        files: Vec<Sealed>,
    ) -> Result<(), ShallowWaterError> {
        let is_other = |state: &Value| self.parameters.is_other(state);
        Ok(self.states.publish(comm, path, whole, files, is_other, |_| described::remove(path))?)
    }
}

/// The columns of `diagnostics.csv`.
const COLUMNS: [&str; 8] = ["step", "seconds", "mean_height", "min_eta", "max_eta", "max_u", "max_v", "energy"];

fn table_text(path: &Path, lines: &[Diagnostics]) -> Result<String, ShallowWaterError> {
    let steps: Vec<u64> = lines.iter().map(|line| line.step).collect();
    let column = |n: usize| -> Vec<f64> { lines.iter().map(|line| line.figures()[n]).collect() };
    let columns: Vec<Vec<f64>> = (0..COLUMNS.len() - 1).map(column).collect();
    let named = COLUMNS[1..].iter().copied().zip(columns.iter().map(|values| Column::F64(values)));
    let table: Vec<_> = std::iter::once((COLUMNS[0], Column::U64(&steps))).chain(named).collect();
    Ok(csv_text(path, &table)?)
}
