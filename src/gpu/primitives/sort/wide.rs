//! The order of 64-bit keys.
//!
//! Passes move two words per element, a code (see [`codes`](super::codes)) and the index, not
//! three. Keys that are tied by then are few: short runs of them are put in order by insertion. On
//! a GPU a workgroup sorts each longer run. On a software renderer, and among more keys than one
//! workgroup should sort, the keys of long runs are taken out, sorted by both words, and put back.
//! How many those are is known to the device only: where there are none, the passes that are
//! recorded for them find that no key counts.

use super::codes::WideKeys;
use super::keys::Flip;
use super::plan::{code_shape, digits};
use super::runs::SortedCodes;
use super::sweeps::Sweeps;
use super::{Method, Sort, Table};
use crate::gpu::primitives::count::Counted;
use crate::gpu::{Array, DeviceError, Recorder};

/// Sequence of passes that sort by one word.
pub(super) struct PassSequence<'a> {
    pub keys: &'a Array<u32>,
    /// Values that move with the keys; their places if `None`.
    pub index: Option<&'a Array<u32>>,
    /// The lowest bits of a word that count.
    pub bits: u32,
    pub flip: Flip,
}

impl Sort {
    /// Returns the order of 64-bit keys of which the `bits` lowest, more than 32, differ. Gives the
    /// number of keys of longer runs.
    pub(super) fn wide(
        &self,
        recorder: &mut Recorder,
        keys: WideKeys<'_>,
        order: &Array<u32>,
        counted: &Counted,
    ) -> Result<Array<u32>, DeviceError> {
        let gpu = recorder.gpu().clone();
        if let Some(sweeps) = self.alone(counted) {
            let tied = gpu.array::<u32>("sort::tied", 1)?;
            recorder.clear(&tied);
            sweeps.alone_wide(recorder, counted, keys, order)?;
            return Ok(tied);
        }
        let array = |label: &str| gpu.array::<u32>(label, u64::from(counted.most));
        let words = [array("sort::keys")?, array("sort::more_keys")?];
        let indices = [array("sort::index")?, array("sort::more_index")?];
        let shape = code_shape(self.form, keys.bits, counted.most);
        let table = self.method.table(recorder, counted.most)?;
        if let Some(table) = table.histogram() {
            table.clear(recorder);
        }
        let sample = self.codes.record(recorder, keys, counted, shape, (&words[0], table.histogram()))?;
        let sequence = PassSequence { keys: &words[0], index: None, bits: shape.bits, flip: Flip::NONE };
        let codes = self.sweep(recorder, (counted, &table), &sequence, [order, &indices[0]], &words)?;
        let sorted = SortedCodes { keys, codes: &codes, sample: &sample, shape };
        match &self.method {
            Method::Sweeps(sweeps) if counted.most <= Sweeps::most_of_runs(gpu.capabilities()) => {
                let listed = self.runs.list(recorder, counted.most)?;
                self.runs.sort_short(recorder, &sorted, counted, order, Some(&listed))?;
                sweeps.sort_runs(recorder, counted, keys, &listed, order)?;
                Ok(listed.tied)
            }
            _ => {
                self.runs.sort_short(recorder, &sorted, counted, order, None)?;
                let long = self.runs.find_long(recorder, &sorted, counted)?;
                long.copy(recorder, &self.runs.take, &[order, keys.low, &indices[0], &words[0]])?;
                let tied = Counted::at_most(counted.most, &long.total);
                let index = self.by_both_words(recorder, keys, (&tied, &table), &indices, &words)?;
                long.copy(recorder, &self.runs.restore, &[index, order])?;
                Ok(long.total)
            }
        }
    }

    /// Sorts `indices[0]` by the keys that it points to, whose low words are `words[0]`. Gives the
    /// one of `indices` that has them in order.
    fn by_both_words<'a>(
        &self,
        recorder: &mut Recorder,
        keys: WideKeys<'_>,
        work: (&Counted, &Table<'_>),
        indices: &'a [Array<u32>; 2],
        words: &[Array<u32>; 2],
    ) -> Result<&'a Array<u32>, DeviceError> {
        let by_word = |recorder: &mut Recorder, from: usize, bits: u32| -> Result<usize, DeviceError> {
            let to = (from + digits(self.form, bits).len()) % 2;
            let sequence = PassSequence { keys: &words[0], index: Some(&indices[from]), bits, flip: Flip::NONE };
            work.1.begin(recorder, work.0, &words[0], (bits, Flip::NONE))?;
            self.sweep(recorder, work, &sequence, [&indices[to], &indices[1 - to]], words)?;
            Ok(to)
        };
        let by_low = by_word(recorder, 0, u32::BITS)?;
        self.permute.gather_counted(recorder, keys.high, &indices[by_low], &words[0], 1, work.0)?;
        let by_both = by_word(recorder, by_low, keys.bits - u32::BITS)?;
        Ok(&indices[by_both])
    }
}
