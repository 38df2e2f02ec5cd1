//! The order of 64-bit keys.
//!
//! Passes move two words per element, one of the key and the index, not three. Where the high words tell most keys
//! apart, only they are sorted by passes; short runs of equal ones are then put in order of the low words by insertion.
//! If there is a long run, a flag on the device makes the passes that are recorded behind sort everything by both
//! words; otherwise they find that no key counts.

use super::Sort;
use super::keys::Flip;
use super::plan::{Digit, digits, high_first};
use crate::gpu::primitives::count::{COUNTED, Counted};
use crate::gpu::primitives::sort::passes::Pass;
use crate::gpu::{Array, DeviceError, KernelSource, Recorder};

crate::gpu::kernel_params! {
    struct TieParams {
        count: u32,
        device: u32,
        parts: u32,
        /// Keys per part.
        chunk: u32,
    }
}

/// Invocations of a workgroup: few, since parts are few and long on a software renderer.
pub(super) const GROUP: u32 = 64;

/// The kernel for runs of equal high words.
pub(super) fn ties() -> KernelSource {
    KernelSource::new("primitives::sort_ties", include_str!("../../../../shaders/gpu/sort/ties.wgsl"))
        .params::<TieParams>()
        .module("gpu::counted", COUNTED)
        .group(GROUP)
}

/// Working arrays: keys twice, indices once.
pub(super) struct SortBuffers {
    keys: [Array<u32>; 2],
    index: Array<u32>,
}

impl SortBuffers {
    pub fn new(recorder: &Recorder, len: u64) -> Result<Self, DeviceError> {
        let array = |label: &str| recorder.gpu().array::<u32>(label, len);
        Ok(SortBuffers { keys: [array("sort::keys")?, array("sort::more_keys")?], index: array("sort::index")? })
    }
}

/// A sequence of passes over one word.
pub(super) struct PassSequence<'a> {
    pub keys: &'a Array<u32>,
    pub index: Option<&'a Array<u32>>,
    pub digits: &'a [Digit],
    pub flip: Flip,
    /// Passes that come after these.
    pub rest: usize,
}

impl Sort {
    /// Passes that end in `order` when none come after. Gives the sorted keys.
    pub(super) fn sweep(
        &self,
        recorder: &mut Recorder,
        counted: &Counted,
        sweep: &PassSequence<'_>,
        order: &Array<u32>,
        work: &SortBuffers,
    ) -> Result<Array<u32>, DeviceError> {
        let (mut keys, mut index) = (sweep.keys, sweep.index);
        for (k, &digit) in sweep.digits.iter().enumerate() {
            let after = sweep.digits.len() - 1 - k;
            let to_index = if (after + sweep.rest).is_multiple_of(2) { order } else { &work.index };
            let free = usize::from(work.keys[0].raw().shares(keys.raw()));
            let to_keys = &work.keys[free];
            let pass = Pass { keys, index, to_keys, to_index, digit, flip: sweep.flip };
            self.passes.record(recorder, counted, &pass)?;
            (keys, index) = (to_keys, Some(to_index));
        }
        Ok(keys.clone())
    }

    /// The order of 64-bit keys of which the `bits` lowest, more than 32, differ.
    pub(super) fn wide(
        &self,
        recorder: &mut Recorder,
        (high, low): (&Array<u32>, &Array<u32>),
        bits: u32,
        order: &Array<u32>,
        counted: &Counted,
    ) -> Result<(), DeviceError> {
        let (digits_low, digits_high) = (digits(32), digits(bits - 32));
        let work = SortBuffers::new(recorder, u64::from(counted.most))?;
        if !high_first(bits - 32, counted.most) {
            return self.both(recorder, (high, &digits_high), (low, &digits_low), order, counted, &work);
        }
        let sweep = PassSequence { keys: high, index: None, digits: &digits_high, flip: Flip::NONE, rest: 0 };
        let sorted = self.sweep(recorder, counted, &sweep, order, &work)?;
        let again = recorder.gpu().array::<u32>("sort::again", 1)?;
        recorder.clear(&again);
        // Long enough that looking back at the key before costs nothing, short enough for all threads.
        let chunk = (counted.most / 2048).clamp(4, 4096);
        let parts = counted.most.div_ceil(chunk);
        let params = TieParams { count: counted.most, device: counted.device, parts, chunk };
        let arrays = [sorted.raw(), low.raw(), counted.raw(), order.raw(), again.raw()];
        recorder.dispatch(&self.ties, &arrays, &params, u64::from(parts.div_ceil(GROUP)))?;
        let counted = Counted::at_most(counted.most, &again);
        self.both(recorder, (high, &digits_high), (low, &digits_low), order, &counted, &work)
    }

    /// All passes over both words.
    fn both(
        &self,
        recorder: &mut Recorder,
        (high, digits_high): (&Array<u32>, &[Digit]),
        (low, digits_low): (&Array<u32>, &[Digit]),
        order: &Array<u32>,
        counted: &Counted,
        work: &SortBuffers,
    ) -> Result<(), DeviceError> {
        let rest = digits_high.len();
        let sweep = PassSequence { keys: low, index: None, digits: digits_low, flip: Flip::NONE, rest };
        self.sweep(recorder, counted, &sweep, order, work)?;
        let index = if rest.is_multiple_of(2) { order } else { &work.index };
        self.permute.gather_counted(recorder, high, index, &work.keys[0], 1, counted)?;
        let (keys, index) = (&work.keys[0], Some(index));
        let sweep = PassSequence { keys, index, digits: digits_high, flip: Flip::NONE, rest: 0 };
        self.sweep(recorder, counted, &sweep, order, work).map(drop)
    }
}
