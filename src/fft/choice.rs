//! Settings of a transform that change its speed and not its result, and the file that keeps them.

use super::error::{FftError, TransformError};
use super::options::{TransformOptions, TransformTuning};
use super::spec::{Spec, Value};
use super::transform::Transform;
use crate::comm::Communicator;
use crate::exchange::GridComms;
use crate::gpu::Gpu;
use crate::grid::{Chunking, Grid, Shares};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

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
        TransformChoice {
            grid: Grid::auto(spec.cells, ranks).parts(),
            tuning: TransformTuning::of(gpu),
            chunk_bytes,
            depth,
        }
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
const MOST: u64 = 16 << 20;

/// Reads the outcomes in a file, by key; returns none if the file does not exist.
pub fn load(file: &Path) -> BTreeMap<String, Outcome> {
    let text = crate::io::read_short(file, MOST).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line = |line: &str| {
        let (columns, key) = line.rsplit_once('\t')?;
        Some((key.to_string(), Outcome::parse(columns)?))
    };
    text.lines().filter_map(line).collect()
}

/// Replaces a file. It gets its name last, so that no reader sees a part of it.
pub fn store(file: &Path, outcomes: &BTreeMap<String, Outcome>) -> io::Result<()> {
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
    use crate::gpu::Profile;

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
