//! Forecasts of the cost of a transform for each rank, without a device: memory, bytes, messages,
//! and the time on a [`Machine`].
//!
//! Memory, bytes and messages are counted from the plan and are exact. Seconds follow from a
//! [model](crate::cluster) that takes the steps of the plan.

use super::error::FftError;
use super::options::TransformTuning;
use super::plan::{Plan, Route, Transpose};
use super::schedule::{phase_steps, route_steps};
use super::spec::{Spec, Values};
use crate::cluster::{Machine, Step, simulate};
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
