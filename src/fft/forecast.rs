//! Forecasts of the cost of a transform for each rank, without a device: memory, bytes, messages,
//! and an estimate of the time.
//!
//! Bytes and messages are counted from the plan and are exact. Seconds follow from given speeds:
//!
//! ```text
//! pass       bytes read and written / speed of device memory
//! exchange   sent / copy speed  |  messages x latency + max(sent, received) / link speed  |  received / copy speed
//! ```
//!
//! With one piece these three follow each other. With `p` pieces they and the passes on either side
//! form a pipeline: its time is that of the slowest member, plus the time of one piece of each
//! other member.

use super::error::{FftError, TransformError};
use super::options::TransformTuning;
use super::plan::{Plan, Route, Transpose};
use super::spec::{Spec, Values};
use crate::comm::{Communicator, Op};
use crate::gpu::{Gpu, Recorder};
use crate::grid::{Cost, Grid, volume};
use std::time::Instant;

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
    /// Its seconds, without overlap.
    pub seconds: f64,
}

/// The cost of one direction for one rank.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DirectionForecast {
    /// The phases, in order.
    pub phases: Vec<Phase>,
    /// The total time in seconds, with overlap.
    pub seconds: f64,
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
/// use meshloom::fft::{Forecast, Spec, Speeds, TransformTuning};
/// use meshloom::gpu::Profile;
/// use meshloom::grid::Grid;
///
/// let spec = Spec::of::<[f32; 2]>([4096; 3]);
/// let (grid, tuning) = (Grid::auto(spec.cells, 512), TransformTuning::profile(Profile::Gpu));
/// let forecast = Forecast::new(&spec, grid, 0, &tuning, &Speeds::default(), 2 << 20)?;
/// assert_eq!(grid.parts(), [512, 1]);
/// assert_eq!(forecast.memory.field, 4096 * 4096 * 4096 / 512 * 8);
/// assert_eq!(forecast.forward.cost().sent_bytes, forecast.memory.field / 512 * 511);
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
}

const NAMES: [&str; 3] = ["x", "y", "z"];

impl Forecast {
    /// Forecasts the cost for `rank` of `grid`, on a device with at least the [limits of its
    /// class](TransformTuning::usual_limits), with messages of at most `chunk` bytes.
    ///
    /// # Errors
    /// [`FftError`] if the fields cannot be transformed.
    pub fn new(
        spec: &Spec,
        grid: Grid,
        rank: usize,
        tuning: &TransformTuning,
        speeds: &Speeds,
        chunk: u64,
    ) -> Result<Self, FftError> {
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
        let [forward, inverse] = [&plan.forward, &plan.inverse].map(|route| direction(route, mode, speeds, chunk));
        Ok(Forecast { plan, memory, forward, inverse })
    }
}

fn direction(route: &Route, element: u64, speeds: &Speeds, chunk: u64) -> DirectionForecast {
    let mut phases: Vec<Phase> = Vec::new();
    // Passes and the exchanges between them overlap; a chain of them ends at a step without an
    // exchange.
    let (mut seconds, mut chain) = (0.0, Chain::default());
    if route.whole.is_some() {
        let cost = Cost::kernels(1, route.traffic());
        let seconds = cost.device_bytes as f64 / speeds.memory;
        let phases = vec![Phase { name: "all axes in one pass".into(), cost, seconds }];
        return DirectionForecast { phases, seconds };
    }
    for (i, stage) in route.stages.iter().enumerate() {
        let transpose = route.between.get(i).and_then(Option::as_ref);
        if !stage.passes.is_empty() {
            let cost = Cost::kernels(stage.passes.len() as u64, stage.traffic());
            let time = cost.device_bytes as f64 / speeds.memory;
            let count =
                if stage.passes.len() > 1 { format!(" ({} passes)", stage.passes.len()) } else { String::new() };
            phases.push(Phase { name: format!("{} pass{count}", NAMES[stage.axis]), cost, seconds: time });
            chain.stage(time);
        }
        match transpose {
            Some(transpose) => {
                let cost = Cost { device_bytes: kept_bytes(transpose, element), ..transpose.cost(element, chunk) };
                let times = speeds.exchange_seconds(&cost);
                let name = format!("exchange {}-{}", NAMES[transpose.to_axis], NAMES[transpose.from_axis]);
                phases.push(Phase { name, cost, seconds: times.iter().sum() });
                times.into_iter().for_each(|time| chain.stage(time));
                chain.pieces = chain.pieces.max(transpose.pieces.len());
            }
            None => seconds += std::mem::take(&mut chain).seconds(),
        }
    }
    DirectionForecast { phases, seconds: seconds + chain.seconds() }
}

/// Returns the bytes read and written on the device by copies of a rank's own blocks.
fn kept_bytes(transpose: &Transpose, element: u64) -> u64 {
    (0..transpose.pieces.len()).map(|piece| 2 * element * transpose.kept(piece)).sum()
}

/// A pipeline of passes and exchanges whose pieces overlap.
#[derive(Default)]
struct Chain {
    total: f64,
    slowest: f64,
    pieces: usize,
}

impl Chain {
    fn stage(&mut self, seconds: f64) {
        (self.total, self.slowest) = (self.total + seconds, self.slowest.max(seconds));
    }

    /// Returns the seconds: the slowest member works all the time, each other member for one piece.
    fn seconds(self) -> f64 {
        let pieces = self.pieces.max(1) as f64;
        self.slowest + (self.total - self.slowest) / pieces
    }
}

/// Speeds of a machine, in bytes per second and seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds {
    /// Speed of device memory, reading and writing together.
    pub memory: f64,
    /// Speed of copies between device and host, each way.
    pub copy: f64,
    /// Speed of the link between ranks, each way, for one rank.
    pub link: f64,
    /// Latency of a message in seconds.
    pub latency: f64,
}

impl Default for Speeds {
    /// Returns the speeds of a data-center GPU (2 TB/s) on PCIe 4 (25 GB/s) with a quarter of a 400
    /// Gb/s network (12.5 GB/s) and 5 microseconds.
    fn default() -> Self {
        Speeds { memory: 2e12, copy: 25e9, link: 12.5e9, latency: 5e-6 }
    }
}

/// Bytes of a probe: more than caches hold, and still quick.
const PROBE: u64 = 16 << 20;
const RUNS: usize = 4;

impl Speeds {
    /// Returns the seconds of work, without overlap: device memory, and the three stages of its
    /// exchanges.
    #[must_use]
    pub fn seconds(&self, cost: &Cost) -> f64 {
        cost.device_bytes as f64 / self.memory + self.exchange_seconds(cost).iter().sum::<f64>()
    }

    /// Returns the seconds of copying to the host, sending, and copying to the device.
    pub(super) fn exchange_seconds(&self, cost: &Cost) -> [f64; 3] {
        let wire = cost.messages as f64 * self.latency + cost.sent_bytes.max(cost.received_bytes) as f64 / self.link;
        [cost.sent_bytes as f64 / self.copy, wire, cost.received_bytes as f64 / self.copy]
    }

    /// Measures the speeds while all ranks work at the same time: copies inside device memory,
    /// copies to and from the host, messages around a ring. Takes a fraction of a second.
    /// Collective; returns the speeds of the slowest rank. A single rank has no link and gets that
    /// of the default.
    ///
    /// # Errors
    /// [`TransformError`] if the device or another rank fails.
    pub fn measure(gpu: &Gpu, comm: &Communicator) -> Result<Self, TransformError> {
        let mut recorder = Recorder::new(gpu)?;
        let words = PROBE / 4;
        let (from, to) = (gpu.array::<f32>("fft::probe", words)?, gpu.array::<f32>("fft::probe", words)?);
        recorder.clear(&from);
        let inside = least(comm, |_| {
            recorder.copy(&from, 0, &to, 0, words)?;
            Ok(recorder.wait()?)
        })?;
        let mut host = Vec::new();
        let out = least(comm, |_| {
            host = recorder.download(&to, 0, words)?;
            Ok(())
        })?;
        let back = least(comm, |_| {
            recorder.upload(&to, 0, &host)?;
            Ok(recorder.wait()?)
        })?;
        let Speeds { mut link, mut latency, .. } = Speeds::default();
        if comm.size() > 1 {
            let ring = |bytes: u64| {
                least(comm, |_| {
                    let (rank, size) = (comm.rank(), comm.size());
                    let sending = comm.send((rank + 1) % size, 0, vec![0u8; bytes as usize])?;
                    comm.receive((rank + size - 1) % size, 0, bytes)?.wait()?;
                    sending.wait()?;
                    Ok(())
                })
            };
            latency = ring(8)?;
            link = PROBE as f64 / (ring(PROBE)? - latency).max(1e-9);
        }
        Ok(Speeds { memory: 2.0 * PROBE as f64 / inside, copy: PROBE as f64 / out.max(back), link, latency })
    }
}

/// Returns the least seconds of some runs, each of which takes as long as its slowest rank.
fn least(
    comm: &Communicator,
    mut work: impl FnMut(usize) -> Result<(), TransformError>,
) -> Result<f64, TransformError> {
    let mut least = f64::INFINITY;
    for run in 0..=RUNS {
        comm.barrier()?;
        let start = Instant::now();
        work(run)?;
        let mut seconds = [start.elapsed().as_secs_f64()];
        comm.all_reduce(&mut seconds, Op::Max)?;
        if run > 0 {
            least = least.min(seconds[0]);
        }
    }
    Ok(least.max(1e-9))
}
