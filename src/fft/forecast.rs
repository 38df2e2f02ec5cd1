//! Forecasts of the cost of a transform for each rank, without a device: memory, bytes, messages,
//! and the time on a [`Machine`].
//!
//! Memory, bytes and messages are counted from the plan and are exact. Seconds follow from a
//! [model](crate::cluster) that takes the steps of the plan.

use super::plan::{Plan, Route, StageStep, Transpose};
use super::{FftError, Spec, TransformTuning, Values};
use crate::cluster::{Line, Machine, Start, Step, Work, simulate};
use crate::grid::{Chunking, Cost, Grid, volume};

/// Device memory that a rank needs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryForecast {
    /// This rank's part of the fields.
    pub field: u64,
    /// This rank's part of the spectra.
    pub spectrum: u64,
    /// The largest size of all working arrays at one time, in the forward and in the inverse
    /// transform.
    pub working: [u64; 2],
}

impl MemoryForecast {
    /// Returns the sum, if the directions run one after the other.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.field + self.spectrum + self.working[0].max(self.working[1])
    }
}

/// A step of a transform and its cost.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Phase {
    /// The name: `z pass`, `exchange y-z`.
    pub name: String,
    /// The bytes that it moves in device memory, and its messages.
    pub cost: Cost,
}

/// The cost of one direction for one rank.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DirectionForecast {
    /// The phases, in order.
    pub phases: Vec<Phase>,
}

impl DirectionForecast {
    /// Returns the cost of all phases.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.phases.iter().map(|phase| phase.cost).sum()
    }
}

/// The cost of a transform for one rank.
///
/// ```
/// use meshloom::cluster::Machine;
/// use meshloom::fft::{Forecast, Spec, TransformTuning};
/// use meshloom::gpu::Profile;
/// use meshloom::grid::Grid;
///
/// let spec = Spec::of::<[f32; 2]>([4096; 3]);
/// let (grid, tuning) = (Grid::auto(spec.cells, 512), TransformTuning::profile(Profile::Gpu));
/// let forecast = Forecast::new(&spec, grid, 0, &tuning, 2 << 20)?;
/// assert_eq!(grid.parts(), [512, 1]);
/// assert_eq!(forecast.memory.field, 4096 * 4096 * 4096 / 512 * 8);
/// assert_eq!(forecast.forward.cost().sent_bytes, forecast.memory.field / 512 * 511);
/// let [forward, _] = forecast.seconds(&Machine::default())?;
/// assert!(forward > forecast.forward.cost().sent_bytes as f64 / Machine::default().nic_rate);
/// # Ok::<(), meshloom::fft::FftError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Forecast {
    /// The plan.
    pub plan: Plan,
    /// Device memory.
    pub memory: MemoryForecast,
    /// The forward transform.
    pub forward: DirectionForecast,
    /// The inverse transform.
    pub inverse: DirectionForecast,
    tuning: TransformTuning,
    chunking: Chunking,
}

const NAMES: [&str; 3] = ["x", "y", "z"];

impl Forecast {
    /// Forecasts the cost for `rank` of `grid`, on a device with at least the [limits of its
    /// class](TransformTuning::usual_limits), with messages of at most `chunk` bytes.
    ///
    /// # Errors
    /// [`FftError`] if the fields cannot be transformed.
    pub fn new(spec: &Spec, grid: Grid, rank: usize, tuning: &TransformTuning, chunk: u64) -> Result<Self, FftError> {
        let plan = Plan::new(spec, grid, rank, tuning.usual_limits(), tuning.pieces)?;
        let number = if spec.values == Values::Real { 1 } else { 2 } * spec.precision.bytes();
        let mode = 2 * spec.precision.bytes();
        let memory = MemoryForecast {
            field: volume(&plan.field) * spec.fields * number,
            spectrum: volume(&plan.spectrum) * spec.fields * mode,
            working: [
                plan.forward.working(volume(&plan.spectrum) * spec.fields, &|elements| elements * mode)[0],
                plan.inverse.working(0, &|elements| elements * mode)[0],
            ],
        };
        let [forward, inverse] =
            [&plan.forward, &plan.inverse].map(|route| DirectionForecast { phases: phases(route, mode, chunk) });
        let chunking = Chunking { bytes: chunk.max(1), ..Chunking::USUAL };
        Ok(Forecast { plan, memory, forward, inverse, tuning: *tuning, chunking })
    }

    /// Returns the seconds of the forward and of the inverse transform on `machine`, from the start
    /// of all ranks until the last one is done, with overlap. All ranks get the same numbers.
    ///
    /// # Errors
    /// [`FftError`] if the fields cannot be transformed on another rank.
    pub fn seconds(&self, machine: &Machine) -> Result<[f64; 2], FftError> {
        let seconds = |inverse: bool| self.simulated(machine, inverse, &route_steps);
        Ok([seconds(false)?, seconds(true)?])
    }

    /// Returns the seconds of each phase of the forward and of the inverse transform, if it runs
    /// alone on `machine`.
    ///
    /// # Errors
    /// Same as [`seconds`](Self::seconds).
    pub fn phase_seconds(&self, machine: &Machine) -> Result<[Vec<f64>; 2], FftError> {
        let seconds = |direction: &DirectionForecast, inverse: bool| {
            let phase = |phase: usize| {
                self.simulated(machine, inverse, &|route, grid, rank, element| {
                    // A rank without cells may have other phases than this one.
                    phase_steps(route, grid, rank, element).into_iter().nth(phase).unwrap_or_default()
                })
            };
            (0..direction.phases.len()).map(phase).collect::<Result<_, _>>()
        };
        Ok([seconds(&self.forward, false)?, seconds(&self.inverse, true)?])
    }

    /// Returns the seconds of the steps of all ranks along the routes of one direction.
    fn simulated(
        &self,
        machine: &Machine,
        inverse: bool,
        steps: &dyn Fn(&Route, &Grid, usize, u64) -> Vec<Step>,
    ) -> Result<f64, FftError> {
        let Plan { spec, grid, .. } = &self.plan;
        let element = 2 * spec.precision.bytes();
        simulate(machine, *grid, grid.largest(spec.cells), self.chunking, |rank| {
            let plan = Plan::new(spec, *grid, rank, self.tuning.usual_limits(), self.tuning.pieces)?;
            Ok(steps(if inverse { &plan.inverse } else { &plan.forward }, grid, rank, element))
        })
    }
}

/// Returns the phases of a route: the passes of each stage and the exchanges between stages.
fn phases(route: &Route, element: u64, chunk: u64) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::new();
    if route.whole.is_some() {
        return vec![Phase { name: "all axes in one pass".into(), cost: Cost::kernels(1, route.traffic()) }];
    }
    for (i, stage) in route.stages.iter().enumerate() {
        if !stage.passes.is_empty() {
            let cost = Cost::kernels(stage.passes.len() as u64, route.stage_traffic(i));
            let count =
                if stage.passes.len() > 1 { format!(" ({} passes)", stage.passes.len()) } else { String::new() };
            phases.push(Phase { name: format!("{} pass{count}", NAMES[stage.axis]), cost });
        }
        if let Some(transpose) = route.between.get(i).and_then(Option::as_ref) {
            let cost = Cost { device_bytes: kept_bytes(transpose, element), ..transpose.cost(element, chunk) };
            let name = format!("exchange {}-{}", NAMES[transpose.to_axis], NAMES[transpose.from_axis]);
            phases.push(Phase { name, cost });
        }
    }
    phases
}

/// Returns the bytes read and written on the device by copies of a rank's own blocks.
fn kept_bytes(transpose: &Transpose, element: u64) -> u64 {
    (0..transpose.pieces.len()).map(|piece| 2 * element * transpose.kept(piece)).sum()
}

/// Returns the steps of `rank` of `grid` along its route, with elements of `element_bytes` bytes
/// between ranks.
pub(crate) fn route_steps(route: &Route, grid: &Grid, rank: usize, element_bytes: u64) -> Vec<Step> {
    if route.whole.is_some() {
        return vec![Step::Pass { work: Work::Mesh, bytes: route.traffic() }];
    }
    (0..route.stages.len()).flat_map(|i| stage_steps(route, i, grid, rank, element_bytes)).collect()
}

/// Returns the steps of stage `i`. A stage without passes is left out by runs as well.
fn stage_steps(route: &Route, i: usize, grid: &Grid, rank: usize, element_bytes: u64) -> Vec<Step> {
    let stage = &route.stages[i];
    if stage.passes.is_empty() {
        return Vec::new();
    }
    let start = |piece: usize| {
        let transpose = route.between.get(i).and_then(Option::as_ref)?;
        let line = Line::new(grid, rank, transpose.grid_axis);
        Some(Step::Start(Start { line, transfers: transpose.transfers(piece), element_bytes }))
    };
    let step = |step: &StageStep| match step {
        StageStep::Arrive => Some(Step::Finish),
        StageStep::Pass { pass, cells, .. } => {
            let share = volume(cells) as f64 / volume(&stage.before.map(|n| 0..n)).max(1) as f64;
            Some(Step::Pass { work: Work::Mesh, bytes: (route.pass_traffic(i, *pass) as f64 * share).round() as u64 })
        }
        StageStep::Send { piece } => start(*piece),
    };
    route.steps(i).iter().filter_map(step).collect()
}

/// Returns the steps of each phase of a [`Forecast`](super::Forecast) alone: the passes of a stage,
/// or an exchange with all its pieces.
fn phase_steps(route: &Route, grid: &Grid, rank: usize, element_bytes: u64) -> Vec<Vec<Step>> {
    if route.whole.is_some() {
        return vec![route_steps(route, grid, rank, element_bytes)];
    }
    let mut phases = Vec::new();
    for (i, stage) in route.stages.iter().enumerate() {
        let steps = stage_steps(route, i, grid, rank, element_bytes);
        let (starts, passes): (Vec<Step>, Vec<Step>) =
            steps.into_iter().filter(|step| *step != Step::Finish).partition(|step| matches!(step, Step::Start(_)));
        if !stage.passes.is_empty() {
            phases.push(passes);
        }
        if route.between.get(i).is_some_and(Option::is_some) {
            let finish = vec![Step::Finish; starts.len()];
            phases.push(starts.into_iter().chain(finish).collect());
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::comm::run_threads;
    use crate::exchange::GridComms;
    use crate::fft::core::FLOOR;
    use crate::fft::{Plan, Spec, Transform, TransformOptions, TransformTuning};
    use crate::gpu::{Gpu, Options, Recorder};
    use crate::grid::{Chunking, Shares, chunks, peers};
    use tracing::field::{Field, Visit};

    /// A message of the timeline.
    #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    struct Sent {
        name: String,
        peer: u64,
        bytes: u64,
    }

    impl Visit for Sent {
        fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}

        fn record_str(&mut self, field: &Field, value: &str) {
            if field.name() == "name" {
                self.name = value.into();
            }
        }

        fn record_u64(&mut self, field: &Field, value: u64) {
            match field.name() {
                "peer" => self.peer = value,
                "bytes" => self.bytes = value,
                _ => {}
            }
        }
    }

    /// Keeps the messages of the timeline of one thread.
    struct Listener(Arc<Mutex<Vec<Sent>>>);

    impl tracing::Subscriber for Listener {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            metadata.target() == crate::timeline::TARGET
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut sent = Sent::default();
            event.record(&mut sent);
            if ["sent", "received"].contains(&&*sent.name) {
                self.0.lock().unwrap().push(sent);
            }
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    const CHUNKING: Chunking = Chunking { bytes: 777, depth: 3 };

    /// Returns the messages of the steps, in the order in which a run retires them.
    fn messages(steps: &[Step], name: &str) -> Vec<Sent> {
        let mut found = Vec::new();
        for step in steps {
            let Step::Start(Start { line, transfers, element_bytes }) = step else { continue };
            let (to, from) = peers(line.len, line.place);
            let (parts, order) = if name == "sent" { (&transfers.send, to) } else { (&transfers.receive, from) };
            for chunk in chunks(parts, &order, CHUNKING.elements(*element_bytes)) {
                found.extend(chunk.messages.iter().map(|message| Sent {
                    name: name.into(),
                    peer: line.rank(message.part.peer) as u64,
                    bytes: message.part.len * element_bytes,
                }));
            }
        }
        found
    }

    /// Compares the messages of a forward transform with those of its steps on all ranks: each one
    /// in its order if an exchange is one piece, else in any.
    fn check(shape: [u64; 3], parts: [usize; 2], pieces: u64) {
        let ranks = parts[0] * parts[1];
        let unequal: Vec<f64> = (0..ranks).map(|rank| (1 + 5 * rank % 7) as f64).collect();
        for shares in [Shares::from(ranks), Shares::new(&unequal).unwrap()] {
            check_on(shape, Grid::new(parts, shares).unwrap(), pieces);
        }
    }

    fn check_on(shape: [u64; 3], grid: Grid, pieces: u64) {
        let options = Options::from_env().unwrap();
        let work = |comm: crate::comm::Communicator| {
            let gpu = Gpu::open(&options, 0)?;
            let mut comms = GridComms::new(&comm, grid)?.with_chunks(CHUNKING.bytes, CHUNKING.depth);
            let tuning = TransformTuning { pieces, ..TransformTuning::of(&gpu) };
            let spec = Spec::of::<[f32; 2]>(shape);
            let options = TransformOptions::default().tuning(tuning);
            let transform = Transform::<[f32; 2]>::with(&gpu, &spec, grid, comm.rank(), &options)?;
            let (layout, mut recorder) = (transform.field_layout(), Recorder::new(&gpu)?);
            let (field, spectrum) = (transform.field(&gpu, &layout)?, transform.spectrum(&gpu)?);
            recorder.clear(&field);
            let events = Arc::default();
            // While there is one listener, the first thread that reaches an event decides whether
            // it is wanted, and threads of other tests have no listener.
            let [listener, _another] = [(); 2].map(|()| tracing::Dispatch::new(Listener(Arc::clone(&events))));
            tracing::dispatcher::with_default(&listener, || {
                transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum)?;
                recorder.wait().map_err(crate::exchange::ExchangeError::from)
            })?;
            let steps = route_steps(&transform.plan().forward, &grid, comm.rank(), 8);
            let events = events.lock().unwrap();
            for name in ["sent", "received"] {
                let mut found: Vec<Sent> = events.iter().filter(|event| event.name == name).cloned().collect();
                let mut expected = messages(&steps, name);
                if pieces > 1 {
                    found.sort();
                    expected.sort();
                }
                assert_eq!(found, expected, "{name} by rank {} of {grid}", comm.rank());
            }
            Ok::<_, crate::Error>(events.len())
        };
        assert!(run_threads(grid.ranks(), work).unwrap().iter().sum::<usize>() > 0);
    }

    #[test]
    fn steps_have_the_messages_of_runs() {
        check([9, 10, 12], [3, 1], 1);
        check([9, 10, 12], [2, 2], 1);
        check([12, 16, 20], [4, 2], 1);
        check([9, 7, 12], [8, 1], 1);
        check([12, 16, 20], [4, 2], 3);
    }

    #[test]
    fn steps_move_the_bytes_of_the_route() {
        for parts in [[1, 1], [3, 1], [2, 3]] {
            let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
            // One workgroup for all axes, one pass along each, and two along x and y.
            for shape in [[12, 10, 16], [30, 24, 16], [4096, 2048, 8]] {
                let plan = Plan::new(&Spec::of::<f32>(shape), grid, 0, FLOOR, 3).unwrap();
                for route in [&plan.forward, &plan.inverse] {
                    let steps = route_steps(route, &grid, 0, 8);
                    let bytes = |step: &Step| if let Step::Pass { bytes, .. } = step { *bytes } else { 0 };
                    let moved: u64 = steps.iter().map(bytes).sum();
                    let passes = steps.iter().filter(|step| bytes(step) > 0).count() as u64;
                    assert!(moved.abs_diff(route.traffic()) <= passes, "{moved} of {}", route.traffic());
                    assert!(route.whole.is_none() || passes == 1);
                    assert_eq!(route.whole.is_some(), grid.ranks() == 1 && shape[0] == 12);
                    let starts = steps.iter().filter(|step| matches!(step, Step::Start(_))).count();
                    let finishes = steps.iter().filter(|step| **step == Step::Finish).count();
                    assert_eq!(starts, finishes);
                }
            }
        }
    }
}
