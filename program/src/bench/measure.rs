//! Times after warming up, synchronized over ranks, and their spread.

use std::cell::RefCell;
use std::time::Instant;

use indicatif::ProgressBar;
use meshloom::comm::{Communicator, Op};
use meshloom::gpu::{KernelTime, Profile, Recorder};
use meshloom::{Error, Rank};
use serde::Serialize;

use super::input::Settings;

/// Runs before the measured ones: the first compiles and allocates, the second decides the number
/// of repeats.
pub const WARM_UP: u32 = 2;

/// Seconds below which work is repeated within a run, so that submitting and waiting count no more
/// than in a program.
const SHORTEST: f64 = 0.01;

/// Seconds of work at least before anything is measured on a GPU, whose clock is slow after a pause
/// (an H100 took 0.2 s to reach three times the speed).
const WARM_SECONDS: f64 = 0.4;

/// Seconds of work at least before anything is measured on the devices of these ranks.
pub fn warm_seconds(rank: &Rank) -> f64 {
    if rank.gpu.common().profile == Profile::Gpu { WARM_SECONDS } else { 0.0 }
}

/// Most repeats within a run.
const MAX_REPEATS: f64 = 1000.0;

/// Seconds of a piece of work in several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Repeats of the work within a run; times are those of one.
    pub repeats: u32,
}

impl Spread {
    /// Creates the spread of the seconds of one run or more.
    pub fn new(mut seconds: Vec<f64>, repeats: u32) -> Self {
        seconds.iter_mut().for_each(|s| *s /= f64::from(repeats));
        seconds.sort_by(f64::total_cmp);
        let middle = seconds.len() / 2;
        let median = match seconds.len() % 2 {
            0 => 0.5 * (seconds[middle - 1] + seconds[middle]),
            _ => seconds[middle],
        };
        Spread { median, min: seconds[0], max: seconds[seconds.len() - 1], repeats }
    }

    /// Returns the spread of a part of this work, which has as many.
    pub fn of_parts(&self, parts: u32) -> Spread {
        let each = |seconds| seconds / f64::from(parts);
        let Spread { median, min, max, repeats } = *self;
        Spread { median: each(median), min: each(min), max: each(max), repeats }
    }

    /// Returns the spread of this work and then that: the sums of medians, minima and maxima.
    pub fn then(&self, that: &Spread) -> Spread {
        Spread {
            median: self.median + that.median,
            min: self.min + that.min,
            max: self.max + that.max,
            repeats: self.repeats.min(that.repeats),
        }
    }
}

/// Returns the repeats within a run of work that takes `seconds`.
fn repeats(seconds: f64) -> u32 {
    (SHORTEST / seconds).ceil().clamp(1.0, MAX_REPEATS) as u32
}

/// Returns the sums over all ranks.
pub fn sum<const N: usize>(comm: &Communicator, mut own: [u64; N]) -> Result<[u64; N], Error> {
    comm.all_reduce(&mut own, Op::Sum)?;
    Ok(own)
}

/// Target of recorded work: a recorder, or a rank that has one.
pub trait Works {
    fn recorder(&mut self) -> &mut Recorder;
}

impl Works for Recorder {
    fn recorder(&mut self) -> &mut Recorder {
        self
    }
}

impl Works for Rank {
    fn recorder(&mut self) -> &mut Recorder {
        &mut self.recorder
    }
}

/// Measures times, and shows progress.
pub struct Clock {
    comm: Communicator,
    runs: u32,
    /// See [`WARM_SECONDS`].
    warm_seconds: f64,
    bar: ProgressBar,
    start: Instant,
    /// For each measurement of [`together`](Self::together), its median and the times of kernels in
    /// one more run, if requested.
    kernels: Option<RefCell<Vec<(f64, Vec<KernelTime>)>>>,
}

impl Clock {
    /// Creates a clock for `measurements` measurements.
    pub fn new(settings: &Settings, rank: &Rank, measurements: usize) -> Self {
        let steps = measurements as u64 * u64::from(WARM_UP + settings.runs);
        let bar = settings.common.progress(rank.comm.rank(), steps, "bench");
        // Drawn at once: the first measurement may be the longest.
        bar.tick();
        Clock {
            comm: rank.comm.clone(),
            runs: settings.runs,
            warm_seconds: warm_seconds(rank),
            bar,
            start: Instant::now(),
            kernels: settings.kernels.then(RefCell::default),
        }
    }

    /// Seconds of `work` once, on all ranks together: from a barrier until the device of the
    /// slowest rank is done.
    pub fn once(
        &self,
        recorder: &mut Recorder,
        mut work: impl FnMut(&mut Recorder) -> Result<(), Error>,
    ) -> Result<f64, Error> {
        self.all(recorder, 1, &mut work)
    }

    /// Seconds of `work` on all ranks together, in several runs after warming up. Collective.
    pub fn together<W: Works>(
        &self,
        on: &mut W,
        mut work: impl FnMut(&mut W) -> Result<(), Error>,
    ) -> Result<Spread, Error> {
        let mut last = 0.0;
        for _ in 0..WARM_UP {
            last = self.all(on, 1, &mut work)?;
            self.bar.inc(1);
        }
        // All ranks have the same seconds, and so the same repeats.
        let mut warm = self.warm_seconds;
        while warm > 0.0 {
            let repeat = repeats(last);
            let took = self.all(on, repeat, &mut work)?;
            (warm, last) = (warm - took, took / f64::from(repeat));
        }
        let (repeat, mut seconds) = (repeats(last), Vec::new());
        for _ in 0..self.runs {
            seconds.push(self.all(on, repeat, &mut work)?);
            self.bar.inc(1);
        }
        let spread = Spread::new(seconds, repeat);
        if let Some(kernels) = &self.kernels {
            on.recorder().measure(true)?;
            self.all(on, 1, &mut work)?;
            let times = on.recorder().kernel_times();
            on.recorder().measure(false)?;
            kernels.borrow_mut().push((spread.median, times));
        }
        Ok(spread)
    }

    /// Adds what the kernels of work took that was measured elsewhere.
    pub fn add_kernels(&self, median: f64, times: Vec<KernelTime>) {
        self.kernels.iter().for_each(|kernels| kernels.borrow_mut().push((median, times.clone())));
    }

    /// Returns the medians of all measurements, each with what its kernels took; nothing where that
    /// is not wanted.
    pub fn kernels(&self) -> Vec<(f64, Vec<KernelTime>)> {
        self.kernels.as_ref().map(RefCell::take).unwrap_or_default()
    }

    fn all<W: Works>(
        &self,
        on: &mut W,
        repeats: u32,
        work: &mut impl FnMut(&mut W) -> Result<(), Error>,
    ) -> Result<f64, Error> {
        on.recorder().wait()?;
        self.comm.barrier()?;
        let start = Instant::now();
        for _ in 0..repeats {
            work(on)?;
            // The pool reuses temporary arrays after a submission.
            on.recorder().submit()?;
        }
        on.recorder().wait()?;
        let mut slowest = [start.elapsed().as_secs_f64()];
        self.comm.all_reduce(&mut slowest, Op::Max)?;
        Ok(slowest[0])
    }

    /// Seconds of each of `N` parts of work on the host of rank 0, done in turn; none on other
    /// ranks, which wait. Collective.
    pub fn alone<const N: usize>(&self, work: Option<&mut dyn FnMut(usize)>) -> Result<Option<[Spread; N]>, Error> {
        let spreads = work.map(|work| {
            let (mut repeat, mut seconds) = (1, [(); N].map(|()| Vec::new()));
            for run in 0..WARM_UP + self.runs {
                let mut took = [0.0; N];
                for part in (0..repeat).flat_map(|_| 0..N) {
                    let start = Instant::now();
                    work(part);
                    took[part] += start.elapsed().as_secs_f64();
                }
                self.bar.inc(1);
                match run {
                    _ if run + 1 == WARM_UP => repeat = repeats(took.iter().copied().fold(f64::INFINITY, f64::min)),
                    _ if run >= WARM_UP => seconds.iter_mut().zip(took).for_each(|(all, took)| all.push(took)),
                    _ => {}
                }
            }
            seconds.map(|seconds| Spread::new(seconds, repeat))
        });
        self.comm.barrier()?;
        Ok(spreads)
    }

    /// Returns the sums over all ranks.
    pub fn sum<const N: usize>(&self, own: [u64; N]) -> Result<[u64; N], Error> {
        sum(&self.comm, own)
    }

    /// Returns the greatest over all ranks.
    pub fn most(&self, own: u64) -> Result<u64, Error> {
        let mut most = [own];
        self.comm.all_reduce(&mut most, Op::Max)?;
        Ok(most[0])
    }

    /// Counts a measurement that was made elsewhere.
    pub fn counted(&self) {
        self.bar.inc(u64::from(WARM_UP + self.runs));
    }

    /// Removes the bar and returns the seconds since the beginning.
    pub fn finish(&self) -> f64 {
        self.bar.finish_and_clear();
        self.start.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_one_repeat() {
        let spread = Spread::new(vec![8.0, 2.0, 4.0], 2);
        assert_eq!(spread, Spread { median: 2.0, min: 1.0, max: 4.0, repeats: 2 });
        assert_eq!(Spread::new(vec![3.0, 1.0], 1).median, 2.0);
        assert_eq!(Spread::new(vec![7.0], 1), Spread { median: 7.0, min: 7.0, max: 7.0, repeats: 1 });
    }

    #[test]
    fn quick_work_is_repeated_within_bounds() {
        assert_eq!([0.0, 1e-9, 0.001, 0.01, 5.0].map(repeats), [1000, 1000, 10, 1, 1]);
    }
}
