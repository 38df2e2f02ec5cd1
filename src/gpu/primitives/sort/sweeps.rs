//! Passes of a radix sort on GPUs: one kernel counts all digits, then one kernel per digit moves
//! the keys (*one sweep*), and few keys take one workgroup.

use super::LEAST_WORKGROUP_BYTES;
use super::keys::{Flip, WideKeys};
use super::passes::Pass;
use super::plan::{Digit, Form, GroupShape, SHORTEST_LARGE, chunk_of_codes, group_shape};
use crate::gpu::primitives::count::{COUNTED, Counted};
use crate::gpu::primitives::scan::padded_memory;
use crate::gpu::{Array, Capabilities, DeviceError, Kernel, KernelSource, Recorder};

crate::gpu::kernel_params! {
    struct HistogramParams {
        count: u32,
        device: u32,
        /// Keys of a workgroup.
        chunk: u32,
        /// Bits of ordered keys that count.
        mask: u32,
        /// See [`Flip`].
        flip: u32,
        negative: u32,
    }
}

crate::gpu::kernel_params! {
    struct SweepParams {
        count: u32,
        device: u32,
        /// The digit: bits from this one on, and as many as the mask has.
        shift: u32,
        mask: u32,
        /// See [`Flip`].
        flip: u32,
        negative: u32,
        /// Places in the table: of the digit's histogram, of the states of tiles, and of those of
        /// the next pass.
        histogram: u32,
        states: u32,
        next: u32,
    }
}

crate::gpu::kernel_params! {
    struct AloneParams {
        count: u32,
        device: u32,
        /// Bits that count, of high words or of ordered keys.
        mask: u32,
        /// See [`Flip`].
        flip: u32,
        negative: u32,
    }
}

/// Looks at a tile that has not published anything before the workgroup that waits counts its
/// digits: longer than a tile needs to be counted.
const SPINS: u32 = 64;
/// Invocations of a workgroup that counts digits.
const COUNTING_GROUP: u32 = 256;
/// Counters of the histogram in front of the states.
const HISTOGRAM: u64 = 4 * DIGITS;
/// Values of a digit.
const DIGITS: u64 = 256;
/// Workgroups that sort runs, at most.
const RUN_GROUPS: u64 = 1024;

/// The kernels that move keys, for one number of keys per invocation.
struct Sweep {
    shape: GroupShape,
    /// Without and with indices to read; for keys that are ordered as unsigned numbers, and for
    /// others.
    kernels: [[Kernel; 2]; 2],
}

/// The kernels of a form for GPUs.
pub(super) struct Sweeps {
    /// For keys that are ordered as unsigned numbers, and for others.
    histogram: [Kernel; 2],
    small: Sweep,
    /// For many keys, where the device has the memory.
    large: Option<Sweep>,
    /// Same as `histogram`.
    alone: [Kernel; 2],
    alone_wide: Kernel,
    runs: Kernel,
}

/// Runs of keys with equal codes: first key and number of keys of each; the numbers of their keys
/// and of runs.
pub(super) struct ListedRuns {
    pub runs: Array<u32>,
    pub tied: Array<u32>,
}

/// The histogram of all digits, and states of tiles.
pub(super) struct SweepTable {
    pub words: Array<u32>,
    tiles: u32,
}

fn source(label: &str, text: &'static str, shape: GroupShape, flip: bool) -> KernelSource {
    let GroupShape { form, group, each } = shape;
    let rank = match form {
        Form::Subgroups => include_str!("../../../../shaders/gpu/sort/subgroup_rank.wgsl"),
        Form::Software | Form::Portable => include_str!("../../../../shaders/gpu/sort/portable_rank.wgsl"),
    };
    padded_memory(KernelSource::new(label, text))
        .module("gpu::counted", COUNTED)
        .module("gpu::sort::ordered", include_str!("../../../../shaders/gpu/sort/ordered.wgsl"))
        .module("gpu::sort::digit", include_str!("../../../../shaders/gpu/sort/digit.wgsl"))
        .module("gpu::sort::digit_scan", include_str!("../../../../shaders/gpu/sort/digit_scan.wgsl"))
        .module("gpu::sort::group_tile", include_str!("../../../../shaders/gpu/sort/group_tile.wgsl"))
        .module("gpu::sort::place", include_str!("../../../../shaders/gpu/sort/place.wgsl"))
        .module("gpu::sort::look_back", include_str!("../../../../shaders/gpu/sort/look_back.wgsl"))
        .module("gpu::sort::two_words", include_str!("../../../../shaders/gpu/sort/two_words.wgsl"))
        .module("gpu::sort::rank", rank)
        .flag("flip", flip)
        .flag("subgroups", form == Form::Subgroups)
        .constant("EACH", each)
        .constant("SPINS", SPINS)
        .repeat('$', each)
        .group(group)
}

fn histogram(flip: bool) -> KernelSource {
    let text = include_str!("../../../../shaders/gpu/sort/count_digits.wgsl");
    KernelSource::new("primitives::sort_count_digits", text)
        .params::<HistogramParams>()
        .module("gpu::counted", COUNTED)
        .module("gpu::sort::ordered", include_str!("../../../../shaders/gpu/sort/ordered.wgsl"))
        .module("gpu::sort::histogram", include_str!("../../../../shaders/gpu/sort/histogram.wgsl"))
        .flag("flip", flip)
        .group(COUNTING_GROUP)
}

fn sweep(shape: GroupShape, indexed: bool, flip: bool) -> KernelSource {
    let text = include_str!("../../../../shaders/gpu/sort/sweep.wgsl");
    let label = if shape.memory_bytes() > LEAST_WORKGROUP_BYTES {
        "primitives::sort_large_sweep"
    } else {
        "primitives::sort_sweep"
    };
    source(label, text, shape, flip).params::<SweepParams>().flag("indexed", indexed)
}

fn alone(shape: GroupShape, wide: bool, runs: bool, flip: bool) -> KernelSource {
    let text = include_str!("../../../../shaders/gpu/sort/alone.wgsl");
    let label = if runs { "primitives::sort_runs_alone" } else { "primitives::sort_alone" };
    source(label, text, shape, flip).params::<AloneParams>().flag("wide", wide).flag("runs", runs)
}

const FLIPS: [bool; 2] = [false, true];

fn sweeps(shape: GroupShape) -> [[KernelSource; 2]; 2] {
    FLIPS.map(|indexed| FLIPS.map(|flip| sweep(shape, indexed, flip)))
}

/// Returns the kernels of the form with the tiles of few and of many keys.
pub(super) fn kernels(form: Form, group: u32) -> Vec<KernelSource> {
    let [small, large] = [false, true].map(|large| group_shape(form, group, large));
    let mut all = vec![alone(small, true, false, false), alone(small, true, true, false)];
    all.extend(FLIPS.map(|flip| alone(small, false, false, flip)));
    all.extend(FLIPS.map(histogram));
    all.extend(sweeps(small).into_iter().flatten());
    if large != small {
        all.extend(sweeps(large).into_iter().flatten());
    }
    all
}

impl Sweeps {
    /// Creates the passes with `group` invocations per workgroup; `workgroup_bytes` of memory are
    /// there for it.
    pub fn new(form: Form, group: u32, workgroup_bytes: u32) -> Self {
        let [small, large] = [false, true].map(|large| group_shape(form, group, large));
        let sweep = |shape| Sweep { shape, kernels: sweeps(shape).map(|row| row.map(Kernel::trusted)) };
        let has_large = large != small && large.memory_bytes() <= workgroup_bytes;
        Sweeps {
            histogram: FLIPS.map(|flip| Kernel::trusted(histogram(flip))),
            small: sweep(small),
            large: has_large.then(|| sweep(large)),
            alone: FLIPS.map(|flip| Kernel::trusted(alone(small, false, false, flip))),
            alone_wide: Kernel::trusted(alone(small, true, false, false)),
            runs: Kernel::trusted(alone(small, true, true, false)),
        }
    }

    fn sweep_of(&self, keys: u32) -> &Sweep {
        self.large.as_ref().filter(|_| keys >= SHORTEST_LARGE).unwrap_or(&self.small)
    }

    /// Returns the number of tiles of `keys` keys.
    pub fn tiles(&self, keys: u32) -> u32 {
        keys.div_ceil(self.sweep_of(keys).shape.tile())
    }

    /// Returns the most keys that one workgroup sorts in one dispatch.
    pub fn most_alone(&self) -> u32 {
        self.small.shape.tile()
    }

    /// Returns the most keys among which runs are sorted by one workgroup each: with more, a run
    /// could take too long, or more rounds of loops than the driver allows.
    pub fn most_of_runs(capabilities: &Capabilities) -> u32 {
        if capabilities.loop_rounds.is_some() { 1 << 14 } else { 1 << 22 }
    }

    /// Allocates the memory of passes over at most `keys` keys.
    pub fn table(&self, recorder: &Recorder, keys: u32) -> Result<SweepTable, DeviceError> {
        let tiles = self.tiles(keys);
        let words = recorder.gpu().array("sort::table", HISTOGRAM + 2 * DIGITS * u64::from(tiles))?;
        Ok(SweepTable { words, tiles })
    }

    /// Records the counting of all digits of keys of which the `bits` lowest count.
    pub fn count(
        &self,
        recorder: &mut Recorder,
        counted: &Counted,
        table: &SweepTable,
        keys: &Array<u32>,
        (bits, flip): (u32, Flip),
    ) -> Result<(), DeviceError> {
        let chunk = chunk_of_codes(Form::Portable, counted.most);
        let params = HistogramParams {
            count: counted.most,
            device: counted.device,
            chunk,
            mask: mask_of(bits),
            flip: flip.flip,
            negative: flip.negative,
        };
        let kernel = &self.histogram[usize::from(flip != Flip::NONE)];
        let arrays = [keys.raw(), counted.raw(), table.words.raw()];
        recorder.dispatch(kernel, &arrays, &params, u64::from(counted.most.div_ceil(chunk)))
    }

    /// Records a pass over a table.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        counted: &Counted,
        table: &SweepTable,
        pass: &Pass<'_>,
    ) -> Result<(), DeviceError> {
        let states = |k: usize| HISTOGRAM as u32 + DIGITS as u32 * table.tiles * (k % 2) as u32;
        let Digit { shift, bits } = pass.digit;
        let params = SweepParams {
            count: counted.most,
            device: counted.device,
            shift,
            mask: mask_of(bits),
            flip: pass.flip.flip,
            negative: pass.flip.negative,
            histogram: DIGITS as u32 * pass.number as u32,
            states: states(pass.number),
            next: states(pass.number + 1),
        };
        let mut arrays = vec![pass.keys.raw(), counted.raw()];
        arrays.extend(pass.index.iter().map(|index| index.raw()));
        arrays.extend([table.words.raw(), pass.to_keys.raw(), pass.to_index.raw()]);
        let sweep = self.sweep_of(counted.most);
        let kernel = &sweep.kernels[usize::from(pass.index.is_some())][usize::from(pass.flip != Flip::NONE)];
        recorder.dispatch(kernel, &arrays, &params, u64::from(table.tiles))
    }

    /// Records the order of few keys of one word.
    pub fn alone(
        &self,
        recorder: &mut Recorder,
        counted: &Counted,
        keys: &Array<u32>,
        (bits, flip): (u32, Flip),
        order: &Array<u32>,
    ) -> Result<(), DeviceError> {
        let scratch = scratch(recorder, counted)?;
        let params = alone_params(counted, mask_of(bits), flip);
        let arrays = [keys.raw(), counted.raw(), order.raw(), scratch.raw()];
        recorder.dispatch(&self.alone[usize::from(flip != Flip::NONE)], &arrays, &params, 1)
    }

    /// Records the order of few keys of two words.
    pub fn alone_wide(
        &self,
        recorder: &mut Recorder,
        counted: &Counted,
        keys: WideKeys<'_>,
        order: &Array<u32>,
    ) -> Result<(), DeviceError> {
        let scratch = scratch(recorder, counted)?;
        let params = alone_params(counted, keys.high_mask(), Flip::NONE);
        let arrays = [keys.high.raw(), keys.low.raw(), counted.raw(), order.raw(), scratch.raw()];
        recorder.dispatch(&self.alone_wide, &arrays, &params, 1)
    }

    /// Records the sorting of each listed run of `order`, by one workgroup.
    pub fn sort_runs(
        &self,
        recorder: &mut Recorder,
        counted: &Counted,
        keys: WideKeys<'_>,
        listed: &ListedRuns,
        order: &Array<u32>,
    ) -> Result<(), DeviceError> {
        let scratch = scratch(recorder, counted)?;
        let params = alone_params(counted, keys.high_mask(), Flip::NONE);
        let ListedRuns { runs, tied } = listed;
        let arrays = [keys.high.raw(), keys.low.raw(), runs.raw(), tied.raw(), order.raw(), scratch.raw()];
        recorder.dispatch(&self.runs, &arrays, &params, (runs.len() / 2).clamp(1, RUN_GROUPS))
    }
}

fn scratch(recorder: &Recorder, counted: &Counted) -> Result<Array<u32>, DeviceError> {
    recorder.gpu().array("sort::scratch", 2 * u64::from(counted.most))
}

fn alone_params(counted: &Counted, mask: u32, flip: Flip) -> AloneParams {
    AloneParams { count: counted.most, device: counted.device, mask, flip: flip.flip, negative: flip.negative }
}

/// Returns the word with the `bits` lowest bits set, at least one.
fn mask_of(bits: u32) -> u32 {
    u32::MAX >> (u32::BITS - bits.clamp(1, u32::BITS))
}
