//! The parameters of a run, and when something is written.

use std::path::PathBuf;

use clap::Args;
use meshloom_program::models::shallow_water::ShallowWaterConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::common::{Common, Precision};
use crate::failure::Failure;
use crate::run_clock::CheckpointOptions;

#[derive(Args)]
pub struct Arguments {
    /// Directory for everything that is written
    #[arg(short = 'o', long = "output", visible_alias = "out", value_name = "DIR")]
    out: PathBuf,
    /// Columns and rows of cells of 5 km
    #[arg(long, value_name = "NXxNY", default_value = "360x180", value_parser = cells)]
    cells: [u64; 2],
    /// Hours of the flow [default: 24]
    #[arg(long, value_name = "H", conflicts_with = "steps", allow_negative_numbers = true)]
    hours: Option<f64>,
    /// Steps, instead of hours
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Snapshots, evenly over the run, from which it can be resumed
    #[arg(long, value_name = "N", default_value_t = 0)]
    snapshots: u64,
    /// Steps from one line of diagnostics.csv, and one frame of the animation (100 at most), to the
    /// next [default: a twentieth of all]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
    /// Continue from the last whole snapshot or checkpoint in DIR, also for more steps or with
    /// other snapshots than before
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    checkpoints: CheckpointOptions,
    /// Repeat two mistakes of mpi4jax's example, to compare with it
    #[arg(long)]
    compatible: bool,
    /// Numbers that are computed with and written: f64 on devices that have it
    #[arg(long, value_name = "f32|f64", default_value = "f32", hide_possible_values = true)]
    precision: Precision,
    #[command(flatten)]
    pub common: Common,
}

/// The parameters of a run, checked as far as that needs no device.
pub struct RunParameters {
    pub out: PathBuf,
    pub config: ShallowWaterConfig,
    pub steps: u64,
    pub every: u64,
    pub snapshots: u64,
    pub resume: bool,
    pub checkpoints: CheckpointOptions,
    pub precision: Precision,
}

/// A step after which something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub step: u64,
    /// A line of diagnostics.
    pub line: bool,
    /// A frame of the animation.
    pub frame: bool,
    pub snapshot: bool,
}

/// When a run writes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Steps of the whole run.
    pub steps: u64,
    /// From one line of diagnostics to the next.
    pub every: u64,
    /// Snapshots in all.
    pub snapshots: u64,
}

impl Schedule {
    /// Returns the schedule of the run that an [object](RunParameters::object) describes.
    pub fn of(object: &Value) -> Option<Schedule> {
        let found = Schedule::deserialize(object).ok()?;
        let most = found.every > 0 && found.steps / found.every <= MOST_LINES && found.snapshots <= MOST_LINES;
        most.then_some(found)
    }

    /// Steps after which there is a snapshot.
    pub fn snapshot_steps(self) -> impl DoubleEndedIterator<Item = u64> {
        let (steps, count) = (u128::from(self.steps), u128::from(self.snapshots));
        (1..=self.snapshots).map(move |n| (steps * u128::from(n) / count) as u64)
    }

    /// Returns the moments at which something is written, in order: the beginning and the end have
    /// a line each.
    pub fn events(self) -> impl Iterator<Item = Event> {
        let mut steps: Vec<u64> = (0..=self.steps / self.every).map(|n| n * self.every).collect();
        steps.push(self.steps);
        steps.extend(self.snapshot_steps());
        steps.sort_unstable();
        steps.dedup();
        let snapshots: Vec<u64> = self.snapshot_steps().collect();
        let (last, every) = (self.steps, self.every);
        let frames = (last / every).div_ceil(FRAMES).max(1) * every;
        let at = move |step: u64, every: u64| step.is_multiple_of(every) || step == last;
        steps.into_iter().map(move |step| Event {
            step,
            line: at(step, every),
            frame: at(step, frames),
            snapshot: snapshots.binary_search(&step).is_ok(),
        })
    }

    /// Returns, for the lines or frames of this schedule up to `step`, selected by `seen`, the
    /// numbers of those that `next` contains, too; the first missing one is an error.
    pub fn kept(self, next: Schedule, step: u64, seen: fn(&Event) -> bool) -> Result<Vec<usize>, u64> {
        let up_to = |schedule: Schedule| -> Vec<u64> {
            let events = schedule.events().filter(move |event| event.step <= step && seen(event));
            events.map(|event| event.step).collect()
        };
        let have = up_to(self);
        up_to(next).into_iter().map(|due| have.binary_search(&due).map_err(|_| due)).collect()
    }
}

/// Lines of diagnostics after the first, unless the call says otherwise.
const LINES: u64 = 20;
/// Most steps; most lines and snapshots: descriptions have the lines, directories the snapshots.
const MOST_STEPS: u64 = 1 << 40;
const MOST_LINES: u64 = 2000;
/// Frames after the first at most.
const FRAMES: u64 = 100;

impl RunParameters {
    /// Reads and checks the parameters.
    pub fn gather(arguments: &Arguments) -> Result<Self, Failure> {
        let usage = |message: String| Err(Failure::Usage(message));
        let (cells, compatible, grid) = (arguments.cells, arguments.compatible, arguments.common.grid);
        let config = ShallowWaterConfig { cells, compatible, grid, ..ShallowWaterConfig::default() };
        config.validate()?;
        let hours = arguments.hours.unwrap_or(24.0);
        let steps = arguments.steps.map_or_else(|| (hours * 3600.0 / config.time_step()).ceil(), |steps| steps as f64);
        if !(0.0..=MOST_STEPS as f64).contains(&steps) {
            return match arguments.steps {
                Some(steps) => usage(format!("--steps is {steps}; from 0 to 2^40 are possible")),
                None => usage(format!("--hours is {hours}: {steps} steps; from 0 to 2^40 are possible")),
            };
        }
        let steps = steps as u64;
        let every = arguments.every.unwrap_or_else(|| steps.div_ceil(LINES).max(1));
        if steps / every > MOST_LINES {
            return usage(format!("--every is {every}: {} lines of {MOST_LINES} at most", steps / every));
        }
        let snapshots = arguments.snapshots;
        if snapshots > steps.min(MOST_LINES) {
            return usage(format!(
                "--snapshots is {snapshots}; from 0 to the {} steps, and {MOST_LINES}, are possible",
                steps
            ));
        }
        let (out, resume, precision) = (arguments.out.clone(), arguments.resume, arguments.precision);
        let checkpoints = arguments.checkpoints;
        Ok(RunParameters { out, config, steps, every, snapshots, resume, checkpoints, precision })
    }

    /// Returns the bytes of a state: nine numbers of each cell.
    pub fn state_bytes(&self) -> u64 {
        let bytes = if self.precision == Precision::F64 { 8 } else { 4 };
        self.config.cells.iter().product::<u64>().saturating_mul(9 * bytes)
    }

    /// When something is written.
    pub fn schedule(&self) -> Schedule {
        Schedule { steps: self.steps, every: self.every, snapshots: self.snapshots }
    }

    /// All that decides what is written: runs with equal objects give the same files.
    pub fn object(&self) -> Value {
        let mut object = self.flow();
        if let (Some(object), Value::Object(schedule)) = (object.as_object_mut(), json!(self.schedule())) {
            object.extend(schedule);
        }
        object
    }

    /// Returns `true` if a state is, by its description, of water that flows otherwise, or is
    /// beyond the end of this run.
    pub fn is_other(&self, state: &Value) -> bool {
        let run = &state["run"];
        let beyond = state["step"].as_u64() > Some(self.steps);
        run["cells"].is_array() && run["coriolis"].is_array() && (beyond || self.flow_of(run) != self.flow())
    }

    /// Returns what a description says of its run, as far as it decides how the water flows.
    pub fn flow_of(&self, run: &Value) -> Value {
        let mut flow = self.flow();
        flow.as_object_mut().into_iter().flatten().for_each(|(name, value)| *value = run[name].clone());
        flow
    }

    /// Returns what decides how the water flows, of which a run is some steps.
    pub fn flow(&self) -> Value {
        let mut flow = json!(self.config);
        flow["precision"] = json!(self.precision);
        flow
    }
}

/// Two numbers with `x` between.
fn cells(text: &str) -> Result<[u64; 2], String> {
    let axes: Option<Vec<u64>> = text.split('x').map(|number| number.trim().parse().ok()).collect();
    axes.and_then(|axes| axes.try_into().ok())
        .ok_or_else(|| format!("`{text}` is no grid of cells; write columns and rows, as 360x180"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Call {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn gather(words: &str) -> Result<RunParameters, Failure> {
        let words = ["shallow-water", "--out", "out"].into_iter().chain(words.split_whitespace());
        RunParameters::gather(&Call::parse_from(words).arguments)
    }

    #[test]
    fn a_longer_run_keeps_what_it_would_have_seen() {
        let schedule = |steps, every, snapshots| Schedule { steps, every, snapshots };
        let short = schedule(7, 3, 1);
        assert_eq!(short.kept(short, 7, |event| event.line), Ok(vec![0, 1, 2, 3]));
        assert_eq!(short.kept(schedule(20, 3, 5), 7, |event| event.line), Ok(vec![0, 1, 2]), "7 was its end");
        assert_eq!(short.kept(schedule(20, 6, 0), 7, |event| event.line), Ok(vec![0, 2]));
        assert_eq!(short.kept(schedule(20, 2, 0), 7, |event| event.line), Err(2));
        // Of 300 lines every third has a frame, of 100 each.
        assert_eq!(schedule(300, 1, 1).kept(schedule(100, 1, 1), 50, |event| event.frame), Err(1));
        assert_eq!(schedule(100, 1, 1).kept(schedule(300, 1, 1), 7, |event| event.frame), Ok(vec![0, 3, 6]));
        let of = |run: &RunParameters| Schedule::of(&run.object());
        let run = gather("--steps 1000 --snapshots 3").ok().unwrap();
        assert_eq!(of(&run), Some(schedule(1000, 50, 3)));
        assert_eq!(Schedule::of(&json!({ "steps": 4, "every": 0, "snapshots": 0 })), None);
    }

    #[test]
    fn lines_and_snapshots_are_spread_over_the_run() {
        let events = |words: &str| -> Vec<(u64, bool, bool)> {
            gather(words)
                .ok()
                .unwrap()
                .schedule()
                .events()
                .map(|event| (event.step, event.line, event.snapshot))
                .collect()
        };
        assert_eq!(
            events("--steps 7 --every 3 --snapshots 2"),
            [(0, true, false), (3, true, true), (6, true, false), (7, true, true)]
        );
        assert_eq!(events("--steps 5 --every 9 --snapshots 5").iter().filter(|event| event.2).count(), 5);
        assert_eq!(events("--steps 0"), [(0, true, false)]);
        assert_eq!(events("--steps 1000").len(), 21);
        let many = gather("--steps 1000 --every 1").ok().unwrap();
        assert_eq!(many.schedule().events().filter(|event| event.line).count(), 1001);
        assert_eq!(
            many.schedule().events().filter(|event| event.frame).map(|event| event.step).collect::<Vec<_>>()[..3],
            [0, 10, 20]
        );
        // A day, to the next whole step.
        assert_eq!(gather("").ok().unwrap().steps, 4330);
        assert_eq!(gather("--hours 240").ok().unwrap().steps, 43_299);
    }
}
