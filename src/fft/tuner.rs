//! Autotuning: measures transforms with different process grids, messages and kernels, and keeps
//! the fastest.
//!
//! The measure is the wall time of a forward and an inverse transform on the slowest rank. The
//! search begins with the process grids of the best [`Forecast`]. It then changes one setting at a
//! time and keeps improvements: the process grid, the pieces of an exchange, the size and number of
//! messages, the shape of kernels. A choice that is much slower in its first run gets no second
//! run. All ranks see the same times, so they decide alike.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::{FftError, Forecast, Spec, Transform, TransformError, TransformOptions, TransformTuning, Value};
use crate::cluster::Machine;
use crate::comm::{Communicator, Op};
use crate::exchange::GridComms;
use crate::gpu::{Array, DeviceError, Gpu, Profile, Recorder};
use crate::grid::{Chunking, Grid, Shares};

/// The outcome of a search.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tuned {
    /// The fastest choice.
    pub choice: TransformChoice,
    /// Seconds of a forward and an inverse transform on the slowest rank.
    pub seconds: f64,
    /// The choices that were measured, in order, with their seconds; infinity if some rank had too
    /// little memory. Empty if the outcome was read from the file.
    pub tried: Vec<(TransformChoice, f64)>,
}

/// Searches for the fastest settings of a transform.
///
/// ```no_run
/// # use meshloom::{Rank, fft::{Spec, Tuner, TransformError}};
/// # fn example(rank: &Rank) -> Result<(), TransformError> {
/// let spec = Spec::of::<f32>([256; 3]);
/// let tuned = Tuner::new(&rank.gpu, &rank.comm, &spec).remembering("wisdom.txt").tune::<f32>()?;
/// let mut comms = tuned.choice.comms(&rank.comm)?;
/// let transform = tuned.choice.transform::<f32>(&rank.gpu, &spec, &comms)?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a tuner does nothing until it tunes"]
#[derive(Debug)]
pub struct Tuner<'a> {
    gpu: &'a Gpu,
    comm: &'a Communicator,
    spec: &'a Spec,
    grid: Option<Grid>,
    file: Option<PathBuf>,
    runs: usize,
}

/// A choice whose first run takes this many times the best time is not run again.
const SKIP: f64 = 1.5;
/// The number of process grids that are measured: those with the best forecast.
const GRIDS: usize = 4;

impl<'a> Tuner<'a> {
    /// Creates a search for the fastest transform of `spec` over all ranks of `comm`.
    pub fn new(gpu: &'a Gpu, comm: &'a Communicator, spec: &'a Spec) -> Self {
        Tuner { gpu, comm, spec, grid: None, file: None, runs: 3 }
    }

    /// Searches on this process grid only.
    pub fn on(mut self, grid: Grid) -> Self {
        self.grid = Some(grid);
        self
    }

    /// Keeps outcomes in the text file `file`, by device, driver, ranks and transform, and reuses
    /// them. Read and write failures are ignored.
    pub fn remembering(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Sets the number of timed runs per choice, at least 1; 3 by default.
    pub fn runs(mut self, runs: usize) -> Self {
        self.runs = runs.max(1);
        self
    }

    /// Returns the file of the `meshloom` program for [`remembering`](Self::remembering):
    /// `wisdom.txt` in the directory of compiled kernels
    /// ([`Options::cache`](crate::gpu::Options::cache)), if there is one.
    #[must_use]
    pub fn default_file() -> Option<PathBuf> {
        crate::gpu::cache_directory().map(|directory| directory.join("wisdom.txt"))
    }

    /// Returns the fastest choice, measured or from the file; the same on all ranks. Collective;
    /// blocks.
    ///
    /// # Errors
    /// - [`CommError::Differ`](crate::comm::CommError::Differ) if ranks ask for different
    ///   transforms.
    /// - [`FftError::Elements`] if the specification has other elements than `T`.
    /// - [`FftError::NoMemory`] if no choice fits in the memory of all ranks.
    /// - [`TransformError`] if the transform is invalid or fails.
    pub fn tune<T: Value>(&self) -> Result<Tuned, TransformError> {
        let spec = &self.spec;
        let arguments: [(&str, &dyn Debug); 4] =
            [("element", &T::ELEMENT), ("spec", spec), ("grid", &self.grid), ("runs", &self.runs)];
        self.comm.agree("Tuner::tune", &arguments)?;
        spec.check_elements::<T>()?;
        let key = self.key(spec);
        if let Some(Outcome { choice, seconds }) = self.remembered(&key)? {
            return Ok(Tuned { choice, seconds, tried: Vec::new() });
        }
        let mut search =
            Search { tuner: self, spec, recorder: Recorder::new(self.gpu)?, tried: Vec::new(), best: None, short: 0 };
        let usual = TransformChoice::usual(self.gpu, spec, self.comm.shares());
        for grid in self.grids(spec, &usual.tuning)? {
            search.attempt::<T>(TransformChoice { grid: grid.parts(), ..usual })?;
        }
        type Change = fn(&mut TransformChoice, u64);
        let mut changes: Vec<(Change, &[u64])> = Vec::new();
        if self.comm.size() > 1 {
            changes.push((|c, n| c.tuning.pieces = n, &[1, 2, 4, 8]));
            changes.push((|c, n| c.chunk_bytes = n << 10, &[512, 2048, 8192]));
            changes.push((|c, n| c.depth = n as usize, &[4, 8, 16]));
        }
        match self.gpu.common().profile {
            // With 32 points an invocation takes lines of up to 1024 in two stages, but has few
            // others beside it; the best number of columns differs.
            Profile::Gpu => {
                changes.push((|c, n| c.tuning.columns = n, &[8, 16, 32]));
                // One axis after the other, or through 4 to 35 MB of a cache.
                changes.push((|c, n| c.tuning.cache_bytes = n * 500_000, &[0, 8, 18, 35, 70]));
                changes.push((|c, n| (c.tuning.points, c.tuning.alone) = (n, n), &[8, 16, 32]));
                changes.push((|c, n| c.tuning.columns = n, &[8, 16, 32]));
                // One axis after the other, or through 4 to 35 MB of a cache.
                changes.push((|c, n| c.tuning.cache_bytes = n * 500_000, &[0, 8, 18, 35, 70]));
            }
            Profile::Software => {
                changes.push((|c, n| c.tuning.alone = n, &[32, 64, 128]));
                changes.push((|c, n| c.tuning.points = n, &[8, 16, 32]));
            }
        }
        for (change, values) in changes {
            for &value in values {
                let Some((mut choice, _)) = search.best else { break };
                change(&mut choice, value);
                search.attempt::<T>(choice)?;
            }
        }
        let (choice, seconds) = search.best.ok_or(FftError::NoMemory { rank: search.short })?;
        self.remember(&key, Outcome { choice, seconds });
        Ok(Tuned { choice, seconds, tried: search.tried })
    }

    /// Returns the process grids to measure, best forecast first.
    fn grids(&self, spec: &Spec, tuning: &TransformTuning) -> Result<Vec<Grid>, TransformError> {
        if let Some(grid) = self.grid {
            return Ok(vec![grid]);
        }
        let mut hosts = self.comm.all_gather(&[crate::host::id()])?;
        hosts.sort_unstable();
        let ranks_per_node = hosts.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap_or(1);
        let machine = Machine { ranks_per_node, ..Machine::default() };
        let mut grids = Vec::new();
        for grid in Grid::candidates(self.comm.shares(), machine.ranks_per_node) {
            let forecast = Forecast::new(spec, grid, grid.largest(spec.cells), tuning, Chunking::USUAL.bytes)?;
            grids.push((forecast.seconds(&machine)?.iter().sum::<f64>(), grid));
        }
        // Stable: of equal ones the first.
        grids.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(grids.into_iter().take(GRIDS).map(|(_, grid)| grid).collect())
    }

    /// Returns the text that identifies an outcome in the file.
    fn key(&self, spec: &Spec) -> String {
        let info = self.gpu.info();
        let grid = self.grid.map_or("any grid".to_string(), |grid| grid.to_string());
        let shares = self.comm.shares();
        let shares = if shares.are_equal() { String::new() } else { format!(" with shares {shares}") };
        let Spec { values, precision, cells, points, modes, axes, fields, distribution, .. } = spec;
        format!(
            "{} {} {} | {} ranks{shares}, {grid} | {values:?} {precision:?} {cells:?} {points:?} {modes:?} {axes:?} x{fields} {distribution:?}",
            info.name,
            info.driver,
            info.driver_info,
            self.comm.size(),
        )
        .replace(char::is_control, " ")
    }

    /// Returns the outcome that rank 0 finds in the file, on all ranks.
    fn remembered(&self, key: &str) -> Result<Option<Outcome>, TransformError> {
        let Some(file) = &self.file else { return Ok(None) };
        let mut text = match self.comm.rank() {
            0 => load(file).get(key).map(|found| found.text().into_bytes()).unwrap_or_default(),
            _ => Vec::new(),
        };
        let mut len = [text.len() as u64];
        self.comm.broadcast(0, &mut len)?;
        text.resize(len[0] as usize, 0);
        self.comm.broadcast(0, &mut text)?;
        let found = Outcome::parse(&String::from_utf8_lossy(&text));
        let ranks = self.comm.size();
        Ok(found.filter(|found| Grid::new(found.choice.grid, ranks).is_ok() && found.choice.is_usable()))
    }

    /// Adds the outcome to the file on rank 0, and keeps outcomes written by others meanwhile.
    fn remember(&self, key: &str, outcome: Outcome) {
        let Some(file) = self.file.as_ref().filter(|_| self.comm.rank() == 0) else { return };
        let mut all = load(file);
        all.insert(key.to_string(), outcome);
        if let Err(error) = store(file, &all) {
            tracing::debug!(file = %file.display(), %error, "the outcome of tuning is not kept");
        }
    }
}

/// A search and its measurements so far.
struct Search<'a> {
    tuner: &'a Tuner<'a>,
    spec: &'a Spec,
    recorder: Recorder,
    tried: Vec<(TransformChoice, f64)>,
    best: Option<(TransformChoice, f64)>,
    /// The first rank that had too little memory for the last choice.
    short: usize,
}

/// A transform with its arrays, for measurements.
type Measured<T> = (Transform<T>, Array<T>, Array<<T as Value>::Mode>);

/// Elements of the arrays in which working memory is requested.
const PORTION: usize = 1 << 26;

impl Search<'_> {
    /// Measures a choice unless it was measured before.
    fn attempt<T: Value>(&mut self, choice: TransformChoice) -> Result<(), TransformError> {
        if self.tried.iter().any(|(tried, _)| *tried == choice) {
            return Ok(());
        }
        let seconds = self.measure::<T>(choice)?;
        self.tried.push((choice, seconds));
        tracing::debug!(?choice, seconds, "tried");
        if seconds < self.best.map_or(f64::INFINITY, |(_, least)| least) {
            self.best = Some((choice, seconds));
        }
        Ok(())
    }

    /// Returns a transform and its arrays if all ranks have memory for them and for the working
    /// arrays. A rank that failed in the middle of a transform would leave the others waiting.
    fn prepared<T: Value>(
        &mut self,
        choice: TransformChoice,
        comms: &GridComms,
    ) -> Result<Option<Measured<T>>, TransformError> {
        let Search { tuner: &Tuner { gpu, comm, .. }, spec, .. } = *self;
        let prepare = || -> Result<_, TransformError> {
            let transform = choice.transform::<T>(gpu, spec, comms)?;
            let (field, spectrum) = (transform.field(gpu, &transform.field_layout())?, transform.spectrum(gpu)?);
            let plan = transform.plan();
            let working = [(&plan.forward, spectrum.len()), (&plan.inverse, 0)]
                .map(|(route, output)| route.working(output, &|len| len)[0]);
            let most = working[0].max(working[1]);
            let portion = |start: u64| gpu.array::<T::Mode>("fft::working", (most - start).min(PORTION as u64));
            let held = (0..most).step_by(PORTION).map(portion).collect::<Result<Vec<_>, _>>()?;
            Ok(((transform, field, spectrum), held))
        };
        let prepared = fitting(comm, prepare())?;
        Ok(match prepared {
            Ok((measured, held)) => {
                // The run requests the same memory in arrays of other sizes.
                drop(held);
                gpu.trim();
                Some(measured)
            }
            Err(rank) => {
                self.short = rank;
                None
            }
        })
    }

    /// Returns the least seconds of the runs, forward and inverse; infinity if the choice does not
    /// fit.
    fn measure<T: Value>(&mut self, choice: TransformChoice) -> Result<f64, TransformError> {
        let mut comms = choice.comms(self.tuner.comm)?;
        let Some((transform, field, spectrum)) = self.prepared::<T>(choice, &comms)? else { return Ok(f64::INFINITY) };
        let (Search { tuner, recorder, best, .. }, layout) = (self, transform.field_layout());
        recorder.clear(&field);
        let mut least = f64::INFINITY;
        // The first compiles, the second decides whether there are more.
        for run in 0..=tuner.runs {
            recorder.wait()?;
            tuner.comm.barrier()?;
            let start = Instant::now();
            transform.forward(recorder, &mut comms, &field, &layout, &spectrum)?;
            // The inverse transform reuses the working arrays.
            recorder.submit()?;
            transform.inverse(recorder, &mut comms, &spectrum, &field, &layout)?;
            recorder.wait()?;
            let [seconds] = tuner.comm.reduced([start.elapsed().as_secs_f64()], Op::Max)?;
            if run > 0 {
                least = least.min(seconds);
            }
            if run == 1 && best.is_some_and(|(_, best)| least > SKIP * best) {
                break;
            }
        }
        Ok(least)
    }
}

/// Returns the value if all ranks have made it, or the first rank that lacked memory.
fn fitting<V>(comm: &Communicator, made: Result<V, TransformError>) -> Result<Result<V, usize>, TransformError> {
    let made = match made {
        Err(TransformError::Fft(FftError::Device(DeviceError::OutOfMemory { .. }))) => None,
        made => Some(made?),
    };
    let short = if made.is_some() { u64::MAX } else { comm.rank() as u64 };
    let [first] = comm.reduced([short], Op::Min)?;
    Ok(made.filter(|_| first == u64::MAX).ok_or(first as usize))
}

/// Settings of a distributed transform that change its speed. A [`Tuner`](super::Tuner) chooses
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransformChoice {
    /// Ranks along each axis of the process grid.
    pub grid: [usize; 2],
    /// Shapes of kernels and pieces of exchanges.
    pub tuning: TransformTuning,
    /// Bytes per message.
    pub chunk_bytes: u64,
    /// Messages in flight each way.
    pub depth: usize,
}

impl TransformChoice {
    /// Returns the settings that are used without a search, on a number of ranks or on ranks with
    /// [`Shares`].
    #[must_use]
    pub fn usual(gpu: &Gpu, spec: &Spec, ranks: impl Into<Shares>) -> Self {
        let Chunking { bytes: chunk_bytes, depth } = Chunking::USUAL;
        let (grid, tuning) = (Grid::auto(spec.cells, ranks).parts(), TransformTuning::of(gpu));
        TransformChoice { grid, tuning, chunk_bytes, depth }
    }

    /// Returns whether all numbers are in the range of a search: a file may have been edited.
    pub(super) fn is_usable(&self) -> bool {
        let TransformTuning { points, alone, columns, pieces, .. } = self.tuning;
        [points, alone, columns, pieces].iter().all(|number| (1..=1 << 12).contains(number))
            && self.tuning.cache_bytes <= 1 << 40
            && (1..=1 << 10).contains(&self.depth)
            && (1 << 10..=1 << 30).contains(&self.chunk_bytes)
    }

    /// Creates the communicators of the process grid, with its size and number of messages.
    /// Collective.
    ///
    /// # Errors
    /// [`TransformError`] if the grid does not fit the ranks, or another rank fails.
    pub fn comms(&self, comm: &Communicator) -> Result<GridComms, TransformError> {
        Ok(GridComms::new(comm, Grid::new(self.grid, comm.shares())?)?.with_chunks(self.chunk_bytes, self.depth))
    }

    /// Creates the transform of `spec` with these settings, for the rank of `comms`.
    ///
    /// # Errors
    /// Same as [`Transform::with`].
    pub fn transform<T: Value>(&self, gpu: &Gpu, spec: &Spec, comms: &GridComms) -> Result<Transform<T>, FftError> {
        let options = TransformOptions::default().tuning(self.tuning);
        Transform::with(gpu, spec, comms.grid(), comms.rank(), &options)
    }
}

/// A choice and the seconds that it takes, as kept in the file of a [`Tuner`](super::Tuner).
///
/// The file has one line per outcome: the numbers of the choice, its seconds, and the key that
/// names the transform and the machine, separated by tabs. Lines that cannot be read are left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    pub choice: TransformChoice,
    pub seconds: f64,
}

impl Outcome {
    /// Returns the columns of the choice and its seconds.
    pub fn text(&self) -> String {
        let TransformChoice { grid: [p0, p1], tuning, chunk_bytes, depth } = self.choice;
        let TransformTuning { points, alone, shared, columns, pieces, cache_bytes } = tuning;
        let seconds = self.seconds;
        format!(
            "{p0}\t{p1}\t{points}\t{alone}\t{shared}\t{columns}\t{pieces}\t{cache_bytes}\t{chunk_bytes}\t{depth}\t{seconds:?}"
        )
    }

    /// Reads a [`text`](Self::text).
    pub fn parse(text: &str) -> Option<Self> {
        let columns: Vec<&str> = text.split('\t').collect();
        let [p0, p1, points, alone, shared, columns, pieces, cache_bytes, chunk_bytes, depth, seconds] = columns[..]
        else {
            return None;
        };
        let number = |text: &str| text.parse::<u64>().ok();
        let tuning = TransformTuning {
            points: number(points)?,
            alone: number(alone)?,
            shared: shared.parse().ok()?,
            columns: number(columns)?,
            pieces: number(pieces)?,
            cache_bytes: number(cache_bytes)?,
        };
        let grid = [p0.parse().ok()?, p1.parse().ok()?];
        let choice = TransformChoice { grid, tuning, chunk_bytes: number(chunk_bytes)?, depth: depth.parse().ok()? };
        Some(Outcome { choice, seconds: seconds.parse().ok()? })
    }
}

/// Bytes of the longest file that is read; an outcome has about three hundred.
const MOST_BYTES: u64 = 16 << 20;

/// Reads the outcomes in a file, by key; returns none if the file does not exist.
fn load(file: &Path) -> BTreeMap<String, Outcome> {
    let text = crate::io::read_short(file, MOST_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line = |line: &str| {
        let (columns, key) = line.rsplit_once('\t')?;
        Some((key.to_string(), Outcome::parse(columns)?))
    };
    text.lines().filter_map(line).collect()
}

/// Replaces a file. It gets its name last, so that no reader sees a part of it.
fn store(file: &Path, outcomes: &BTreeMap<String, Outcome>) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let text: String = outcomes.iter().map(|(key, outcome)| format!("{}\t{key}\n", outcome.text())).collect();
    let part = file.with_extension(format!("{}.part", crate::io::token()));
    std::fs::write(&part, text)?;
    std::fs::rename(&part, file).inspect_err(|_| drop(std::fs::remove_file(&part)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;

    #[test]
    fn what_does_not_fit_one_rank_fits_none() {
        let short = || DeviceError::OutOfMemory { label: "x".into(), needed: 2, in_use: 0, capacity: Some(1) };
        let told = run_threads(3, |comm| {
            let all = fitting(&comm, Ok(comm.rank()))?;
            let some = fitting(&comm, if comm.rank() > 0 { Err(short().into()) } else { Ok(0) })?;
            Ok::<_, TransformError>((all, some))
        });
        assert_eq!(told.unwrap(), [(Ok(0), Err(1)), (Ok(1), Err(1)), (Ok(2), Err(1))]);
        // Other errors end the search.
        let empty = fitting::<()>(&Communicator::solo(), Err(FftError::Empty.into()));
        assert!(matches!(empty, Err(TransformError::Fft(FftError::Empty))), "{empty:?}");
    }

    #[test]
    fn a_remembered_choice_is_one_that_a_search_may_find() {
        for profile in [Profile::Gpu, Profile::Software] {
            let usual = TransformChoice {
                grid: [1, 1],
                tuning: TransformTuning::profile(profile),
                chunk_bytes: 2 << 20,
                depth: 8,
            };
            assert!(usual.is_usable());
            for number in [0, u64::MAX >> 1] {
                assert!(!TransformChoice { chunk_bytes: number, ..usual }.is_usable());
                assert!(!TransformChoice { depth: number as usize, ..usual }.is_usable());
                for change in [
                    |tuning: &mut TransformTuning, number| tuning.points = number,
                    |tuning: &mut TransformTuning, number| tuning.alone = number,
                    |tuning: &mut TransformTuning, number| tuning.columns = number,
                    |tuning: &mut TransformTuning, number| tuning.pieces = number,
                ] {
                    let mut wrong = usual;
                    change(&mut wrong.tuning, number);
                    assert!(!wrong.is_usable(), "{wrong:?}");
                }
            }
        }
    }

    #[test]
    fn outcomes_are_read_as_they_were_written() {
        let tuning = TransformTuning::profile(Profile::Software);
        let choice = TransformChoice { grid: [3, 2], tuning, chunk_bytes: 1 << 21, depth: 8 };
        let outcome = Outcome { choice, seconds: 0.1 + 0.2 };
        assert_eq!(Outcome::parse(&outcome.text()), Some(outcome));
        for wrong in ["", "3\t2", &outcome.text().replace("false", "no"), &format!("{}\t1", outcome.text())] {
            assert_eq!(Outcome::parse(wrong), None, "{wrong}");
        }
    }
}
