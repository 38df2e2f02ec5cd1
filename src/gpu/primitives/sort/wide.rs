//! The order of 64-bit keys.
//!
//! Passes move two words per element, a code (see [`Codes`]) and the index, not
//! three. Keys that are tied by then are few: short runs of them are put in order by insertion. On
//! a GPU a workgroup sorts each longer run. On a software renderer, and among more keys than one
//! workgroup should sort, the keys of long runs are taken out, sorted by both words, and put back.
//! How many those are is known to the device only: where there are none, the passes that are
//! recorded for them find that no key counts.

use super::keys::{Flip, WideKeys};
use super::plan::{BLOCK, CodeShape, Form, code_shape, digits, most_splitters, part_of_runs};
use super::sweeps::{ListedRuns, SweepTable, Sweeps};
use super::{Method, Sort, Table};
use crate::gpu::primitives::count::{COUNTED, Counted};
use crate::gpu::primitives::scan::Scan;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Profile, Recorder};

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
            recorder.clear(&table.words);
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

crate::gpu::kernel_params! {
    struct CodeParams {
        count: u32,
        device: u32,
        /// Keys of the sample, a power of two.
        splitters: u32,
        /// Keys of a workgroup, or of an invocation in the serial form.
        chunk: u32,
        /// Bits of the high words that count.
        high_mask: u32,
        /// Bits of keys and of codes.
        bits: u32,
        code_bits: u32,
        /// Bits of a code that tell where between two splitters a key lies.
        inner_bits: u32,
    }
}

/// Invocations of a workgroup that ranks the sample.
const RANK_GROUP: u32 = 64;

/// Makes codes of 64-bit keys: words in the order of the keys, of few bits, so that few passes sort
/// them.
///
/// A code is the leading bits of its key, unless those would leave many keys tied, as in a halo of
/// points in a large box. A sample of the keys tells: if two of it agree in their leading bits,
/// codes are made from the sample, which is dense where keys are (splitters, as in sample sort: W.
/// D. Frazer and A. C. McKellar, J. ACM 17, 496, 1970).
pub(super) struct Codes {
    form: Form,
    splitters: Kernel,
    codes: Kernel,
}

/// Adds what the text of kernels over 64-bit keys imports.
fn wide_key(source: KernelSource) -> KernelSource {
    source
        .module("gpu::counted", COUNTED)
        .module("gpu::sort::two_words", include_str!("../../../../shaders/gpu/sort/two_words.wgsl"))
        .module("gpu::sort::wide_key", include_str!("../../../../shaders/gpu/sort/wide_key.wgsl"))
        .module("gpu::sort::exact", include_str!("../../../../shaders/gpu/sort/exact.wgsl"))
}

/// Both kernels in one form.
pub(super) fn code_kernels(form: Form) -> [KernelSource; 2] {
    let codes = match form {
        Form::Software => include_str!("../../../../shaders/gpu/sort/serial_codes.wgsl"),
        Form::Portable | Form::Subgroups => include_str!("../../../../shaders/gpu/sort/group_codes.wgsl"),
    };
    let splitters = include_str!("../../../../shaders/gpu/sort/splitters.wgsl");
    let most = most_splitters(form);
    [("primitives::sort_splitters", splitters, RANK_GROUP), ("primitives::sort_codes", codes, code_group(form))].map(
        |(label, text, group)| {
            wide_key(KernelSource::new(label, text).params::<CodeParams>())
                .module("gpu::sort::leading_bits", include_str!("../../../../shaders/gpu/sort/leading_bits.wgsl"))
                .module("gpu::sort::code_of", include_str!("../../../../shaders/gpu/sort/code_of.wgsl"))
                .module("gpu::sort::histogram", include_str!("../../../../shaders/gpu/sort/histogram.wgsl"))
                .constant("SPLITTERS", most)
                .repeat('$', most.ilog2())
                .group(group)
        },
    )
}

/// Invocations of a workgroup that makes codes.
fn code_group(form: Form) -> u32 {
    if form == Form::Software { 8 } else { 256 }
}

impl Codes {
    pub fn new(form: Form) -> Self {
        let [splitters, codes] = code_kernels(form).map(Kernel::trusted);
        Codes { form, splitters, codes }
    }

    /// Records `codes[i]` = the code of key i in its `shape.bits` lowest bits, beside which codes
    /// from a sample have a bit that `exact.wgsl` says and others anything, and gives the sample as
    /// `splitters.wgsl` lays it out. The forms for GPUs count the digits of codes in `table`, which
    /// has been cleared.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        keys: WideKeys<'_>,
        counted: &Counted,
        shape: CodeShape,
        (codes, table): (&Array<u32>, Option<&SweepTable>),
    ) -> Result<Array<u32>, DeviceError> {
        let gpu = recorder.gpu().clone();
        let CodeShape { bits: code_bits, splitters, inner_bits, chunk } = shape;
        let params = CodeParams {
            count: counted.most,
            device: counted.device,
            splitters,
            chunk,
            high_mask: keys.high_mask(),
            bits: keys.bits,
            code_bits,
            inner_bits,
        };
        let sample = gpu.array::<u32>("sort::sample", 2 * u64::from(splitters) + 1)?;
        recorder.clear(&sample);
        let arrays = [keys.high.raw(), keys.low.raw(), counted.raw(), sample.raw()];
        recorder.dispatch(&self.splitters, &arrays, &params, u64::from(splitters.div_ceil(RANK_GROUP)))?;
        if self.form == Form::Software && keys.bits - code_bits == u32::BITS {
            // Those of keys that are not crowded, if their codes are the high words.
            recorder.copy(keys.high, 0, codes, 0, u64::from(counted.most))?;
        }
        let mut arrays = vec![keys.high.raw(), keys.low.raw(), counted.raw(), sample.raw(), codes.raw()];
        arrays.extend(table.map(|table| table.words.raw()));
        let parts = counted.most.div_ceil(chunk);
        let groups = if self.form == Form::Software { parts.div_ceil(code_group(self.form)) } else { parts };
        recorder.dispatch(&self.codes, &arrays, &params, u64::from(groups))?;
        Ok(sample)
    }
}

crate::gpu::kernel_params! {
    struct RunParams {
        count: u32,
        device: u32,
        parts: u32,
        /// Codes per part.
        chunk: u32,
        /// Same as in codes.
        high_mask: u32,
        splitters: u32,
        /// Bits of a word that are its code.
        code_mask: u32,
    }
}

/// Invocations of a workgroup: few, since parts are few and long on a software renderer.
const RUN_GROUP: u32 = 64;

/// Sorts runs of keys with equal codes, once the codes are in order: short runs by insertion. The
/// keys of long ones are taken out and in, so that passes over both words sort them alone.
pub(super) struct Runs {
    form: Form,
    /// Without and with a list of longer runs.
    short: [Kernel; 2],
    long: Kernel,
    /// Copies the entries of `order` that belong to long runs, in their order, and the words of
    /// `low` that they point to: arrays `order`, `low`, `compact`, `words`.
    pub take: Kernel,
    /// Copies indices back: arrays `compact`, `order`.
    pub restore: Kernel,
    scan: Scan,
}

fn run_source(label: &str, text: &'static str) -> KernelSource {
    wide_key(KernelSource::new(label, text).params::<RunParams>())
        .module("gpu::sort::tied", include_str!("../../../../shaders/gpu/sort/tied.wgsl"))
        .constant("BLOCK", BLOCK)
        .group(RUN_GROUP)
}

/// Returns all kernels, without the scan.
pub(super) fn run_kernels() -> [KernelSource; 5] {
    let copy = |back| {
        let text = include_str!("../../../../shaders/gpu/sort/run_copy.wgsl");
        run_source("primitives::sort_run_copy", text).flag("back", back)
    };
    let short = |listed| {
        let text = include_str!("../../../../shaders/gpu/sort/short_runs.wgsl");
        run_source("primitives::sort_short_runs", text).flag("listed", listed)
    };
    let long = include_str!("../../../../shaders/gpu/sort/long_runs.wgsl");
    [short(false), short(true), run_source("primitives::sort_long_runs", long), copy(false), copy(true)]
}

/// Sorted codes of keys.
pub(super) struct SortedCodes<'a> {
    pub keys: WideKeys<'a>,
    pub codes: &'a Array<u32>,
    /// See [`Codes::record`].
    pub sample: &'a Array<u32>,
    pub shape: CodeShape,
}

/// Places of the keys of long runs.
pub(super) struct LongRuns {
    ends: Array<u32>,
    places: Array<u32>,
    params: RunParams,
    /// Their number, in one word.
    pub total: Array<u32>,
}

impl Runs {
    pub fn new(form: Form) -> Self {
        let profile = if form == Form::Software { Profile::Software } else { Profile::Gpu };
        let [short, listing, long, take, restore] = run_kernels().map(Kernel::trusted);
        Runs { form, short: [short, listing], long, take, restore, scan: Scan::with(profile) }
    }

    /// Records the sorting of short runs: `order` holds the indices of keys in the order of their
    /// codes. Longer runs are listed if there is a list: all that are not sorted.
    pub fn sort_short(
        &self,
        recorder: &mut Recorder,
        sorted: &SortedCodes<'_>,
        counted: &Counted,
        order: &Array<u32>,
        listed: Option<&ListedRuns>,
    ) -> Result<(), DeviceError> {
        let SortedCodes { keys, codes, sample, .. } = sorted;
        let params = run_params(sorted, counted, part_of_runs(self.form, counted.most));
        let mut arrays = vec![codes.raw(), keys.high.raw(), keys.low.raw(), counted.raw(), sample.raw(), order.raw()];
        arrays.extend(listed.into_iter().flat_map(|ListedRuns { runs, tied }| [runs.raw(), tied.raw()]));
        let kernel = &self.short[usize::from(listed.is_some())];
        recorder.dispatch(kernel, &arrays, &params, u64::from(params.parts.div_ceil(RUN_GROUP)))
    }

    /// Allocates a list of runs among the keys, which is empty.
    pub fn list(&self, recorder: &mut Recorder, keys: u32) -> Result<ListedRuns, DeviceError> {
        // A run has more keys than insertion sorts.
        let most = u64::from(keys / (2 * BLOCK - 1)).max(1);
        let gpu = recorder.gpu();
        let listed = ListedRuns { runs: gpu.array("sort::runs", 2 * most)?, tied: gpu.array("sort::tied", 2)? };
        recorder.clear(&listed.tied);
        Ok(listed)
    }

    /// Records the search for long runs.
    pub fn find_long(
        &self,
        recorder: &mut Recorder,
        sorted: &SortedCodes<'_>,
        counted: &Counted,
    ) -> Result<LongRuns, DeviceError> {
        let gpu = recorder.gpu().clone();
        let params = run_params(sorted, counted, BLOCK);
        let blocks = u64::from(params.parts);
        let array = |label: &str| gpu.array::<u32>(label, blocks);
        let (ends, sizes, places) = (array("sort::ends")?, array("sort::sizes")?, array("sort::places")?);
        let total = gpu.array::<u32>("sort::tied", 1)?;
        recorder.clear(&total);
        let SortedCodes { codes, sample, .. } = sorted;
        let arrays = [codes.raw(), counted.raw(), sample.raw(), ends.raw(), sizes.raw(), total.raw()];
        recorder.dispatch(&self.long, &arrays, &params, blocks.div_ceil(u64::from(RUN_GROUP)))?;
        self.scan.record(recorder, &sizes, &Counted::known(&gpu, "Sort", blocks)?, &places)?;
        Ok(LongRuns { ends, places, params, total })
    }
}

impl LongRuns {
    /// Records copies by one of the kernels [`Runs::take`] and [`Runs::restore`].
    pub fn copy(&self, recorder: &mut Recorder, kernel: &Kernel, arrays: &[&Array<u32>]) -> Result<(), DeviceError> {
        let arrays: Vec<_> = [&self.ends, &self.places].iter().chain(arrays).map(|array| array.raw()).collect();
        recorder.dispatch(kernel, &arrays, &self.params, u64::from(self.params.parts.div_ceil(RUN_GROUP)))
    }
}

fn run_params(sorted: &SortedCodes<'_>, counted: &Counted, chunk: u32) -> RunParams {
    RunParams {
        count: counted.most,
        device: counted.device,
        parts: counted.most.div_ceil(chunk),
        chunk,
        high_mask: sorted.keys.high_mask(),
        splitters: sorted.shape.splitters,
        code_mask: u32::MAX >> (u32::BITS - sorted.shape.bits),
    }
}
