//! Blocks of numbers combined on the device, along a fixed binary tree or one after the other.

use std::ops::Range;

use crate::comm::{Op, Reducible};
use crate::gpu::{Array, DeviceElement, DeviceError, Element, Kernel, KernelSource, RawArray, Recorder};

/// Layout of numbers in arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberForm {
    /// One word each.
    Narrow,
    /// Two words each, the low one first.
    Wide,
    /// One `f64` each, on devices that have it.
    Double,
}

/// Numbers that are combined on the device: `f32 u32 i32 f64`, which lie in arrays as they are, and
/// `u64 i64`, which lie in arrays of `u32`, two words each, the low one first.
pub trait DeviceNumber: Reducible {
    /// Element type of arrays of these numbers.
    type Element: DeviceElement;
    /// Their layout in arrays.
    const FORM: NumberForm;
    /// Their number among those of a form.
    const KIND: u32;
    /// Their name in errors.
    const NAME: &'static str;
    /// Elements of a number.
    const WORDS: u64 = (size_of::<Self>() / size_of::<Self::Element>()) as u64;
}

macro_rules! numbers {
    ($($number:ident in $element:ident: $form:ident $kind:expr),*) => {$(
        impl DeviceNumber for $number {
            type Element = $element;
            const FORM: NumberForm = NumberForm::$form;
            const KIND: u32 = $kind;
            const NAME: &'static str = stringify!($number);
        }
    )*};
}

numbers!(u32 in u32: Narrow 0, i32 in i32: Narrow 1, f32 in f32: Narrow 2);
numbers!(u64 in u32: Wide 0, i64 in u32: Wide 1, f64 in f64: Double 2);

crate::gpu::kernel_params! {
    #[derive(Default)]
    pub(crate) struct CombineParams {
        /// Numbers of all pairs.
        count: u32,
        /// Numbers of a block.
        block: u32,
        /// Blocks from the first of a pair to the second.
        distance: u32,
        /// The first block of the first pair.
        first: u32,
        /// Blocks.
        ranks: u32,
        op: u32,
        kind: u32,
        reserved: u32,
    }
}

const COMBINATION: &str = include_str!("../../../shaders/exchange/combination.wgsl");

/// Returns the kernel that combines pairs of blocks, whose numbers the module `combination`
/// combines.
pub(crate) fn pairs_kernel(combination: String, form: NumberForm) -> KernelSource {
    let text = include_str!("../../../shaders/exchange/combine.wgsl");
    with_form(KernelSource::new("exchange::combine", text), combination, form)
}

/// Numbers of a tile of [`levels_kernel`], in workgroup memory.
const TILE: u64 = 2048;

/// Returns the kernel that combines blocks of numbers along several levels of a tree.
pub(crate) fn levels_kernel(combination: String) -> KernelSource {
    let text = include_str!("../../../shaders/exchange/combine_levels.wgsl");
    with_form(KernelSource::new("exchange::combine_levels", text), combination, NumberForm::Narrow)
}

fn scan_kernel(form: NumberForm) -> KernelSource {
    let text = include_str!("../../../shaders/exchange/scan_blocks.wgsl");
    with_form(KernelSource::new("exchange::scan_blocks", text), COMBINATION.into(), form)
}

fn with_form(source: KernelSource, combination: String, form: NumberForm) -> KernelSource {
    source
        .params::<CombineParams>()
        .module("exchange::combination", combination)
        .element("Word", if form == NumberForm::Double { Element::F64 } else { Element::U32 })
        .flag("wide", form == NumberForm::Wide)
        .flag("double", form == NumberForm::Double)
}

const FORMS: [NumberForm; 3] = [NumberForm::Narrow, NumberForm::Wide, NumberForm::Double];

/// Returns all kernels but those for double precision.
pub(crate) fn kernels() -> Vec<KernelSource> {
    let pairs = |form| pairs_kernel(COMBINATION.into(), form);
    let levels = levels_kernel(COMBINATION.into());
    FORMS[..2].iter().flat_map(|&form| [pairs(form), scan_kernel(form)]).chain([levels]).collect()
}

/// Combines blocks of numbers.
pub(crate) struct Combiner {
    pairs: [Kernel; 3],
    scan: [Kernel; 3],
}

impl Default for Combiner {
    fn default() -> Self {
        Combiner {
            pairs: FORMS.map(|form| Kernel::trusted(pairs_kernel(COMBINATION.into(), form))),
            scan: FORMS.map(|form| Kernel::trusted(scan_kernel(form))),
        }
    }
}

/// Blocks of numbers of one length, one after the other in an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    /// Numbers of a block.
    pub block: u64,
    pub count: u64,
}

/// Pairs of blocks, of a level of a tree: `first + 2 p distance` and the one `distance` after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pairs {
    pub first: u64,
    pub distance: u64,
    pub count: u64,
}

impl Combiner {
    fn params<N: DeviceNumber>(op: Op, blocks: Blocks) -> CombineParams {
        // Arrays have fewer than 2^32 elements.
        let (block, ranks) = (blocks.block as u32, blocks.count as u32);
        CombineParams { block, ranks, op: op as u32, kind: <N as DeviceNumber>::KIND, ..CombineParams::default() }
    }

    /// Records the combination of pairs of blocks, in place.
    pub fn pairs<N: DeviceNumber>(
        &self,
        recorder: &mut Recorder,
        array: &Array<N::Element>,
        blocks: Blocks,
        pairs: Pairs,
        op: Op,
    ) -> Result<(), DeviceError> {
        let (params, form) = (Self::params::<N>(op, blocks), form_of::<N>(array, op));
        record_pairs(recorder, &self.pairs[form as usize], &raw::<N>(array, form), params, pairs)
    }

    /// Records the reduction of all blocks to the first, along the tree of
    /// [`Communicator::all_reduce`]: blocks 0 and 1, 2 and 3, then pairs of pairs. The others hold
    /// what came between. Cost: each number is read twice and written once.
    ///
    /// [`Communicator::all_reduce`]: crate::comm::Communicator::all_reduce
    pub fn reduce<N: DeviceNumber>(
        &self,
        recorder: &mut Recorder,
        array: &Array<N::Element>,
        blocks: Blocks,
        op: Op,
    ) -> Result<(), DeviceError> {
        let mut distance = 1;
        while distance < blocks.count {
            let pairs = Pairs { first: 0, distance, count: (blocks.count - distance).div_ceil(2 * distance) };
            self.pairs::<N>(recorder, array, blocks, pairs, op)?;
            distance *= 2;
        }
        Ok(())
    }

    /// Records the replacement of each block by its combination with all before it, one after the
    /// other. Cost: each number is read and written once.
    pub fn scan<N: DeviceNumber>(
        &self,
        recorder: &mut Recorder,
        array: &Array<N::Element>,
        blocks: Blocks,
        op: Op,
    ) -> Result<(), DeviceError> {
        let form = form_of::<N>(array, op);
        let arrays = [&raw::<N>(array, form)];
        recorder.each(&self.scan[form as usize], &arrays, &Self::params::<N>(op, blocks), blocks.block)
    }
}

/// Combines pairs of blocks of floats with one operation.
pub(crate) struct PairCombiner {
    kernel: Kernel,
    levels: Kernel,
    op: u32,
}

impl PairCombiner {
    /// By a sum, the least or the greatest.
    pub fn of_floats(op: Op) -> Self {
        let kernel = Kernel::trusted(pairs_kernel(COMBINATION.into(), NumberForm::Narrow));
        PairCombiner { kernel, levels: Kernel::trusted(levels_kernel(COMBINATION.into())), op: op as u32 }
    }

    /// By a caller's `fn combine(a: f32, b: f32) -> f32`, with run-time checks.
    pub fn of_function(function: &str) -> Self {
        let numbers = "alias Number = f32;\n\n\
            fn load_number(at: u32) -> Number { return bitcast<f32>(load_blocks(at)); }\n\n\
            fn store_number(at: u32, number: Number) { store_blocks(at, bitcast<u32>(number)); }\n\n";
        let combination = format!("{numbers}{function}\n");
        let kernel = Kernel::new(pairs_kernel(combination.clone(), NumberForm::Narrow));
        PairCombiner { kernel, levels: Kernel::new(levels_kernel(combination)), op: 0 }
    }

    /// Returns the texts of its kernels.
    pub fn sources(&self) -> [&KernelSource; 2] {
        [self.kernel.source(), self.levels.source()]
    }

    /// Records the combination of blocks of `block` numbers along the tree over the numbers of
    /// `items`, which are those of the blocks, in place: the first block of each node whose items
    /// are all there becomes the node. Returns `false` if no kernel of several levels fits.
    ///
    /// Cost: some log2(2048 / block) levels a dispatch, each of which reads the nodes of the last
    /// one and writes one number for 2048.
    pub fn record_levels(
        &self,
        recorder: &mut Recorder,
        array: &Array<f32>,
        block: u64,
        items: Range<u64>,
    ) -> Result<bool, DeviceError> {
        let count = items.end - items.start;
        let Some(most) = count.checked_ilog2().filter(|_| (1..=TILE / 2).contains(&block)) else { return Ok(false) };
        // The levels of the largest node that the items may have.
        let first = items.start % (1 << (most + 1));
        if first + count > 1 << 30 {
            return Ok(false);
        }
        let (words, mut done) = (raw::<f32>(array, NumberForm::Narrow), 0);
        while done < most {
            let levels = (TILE / block).ilog2().min(most - done);
            let blocks = Blocks { block, count: u64::from(levels) };
            let params = CombineParams {
                op: self.op,
                count: count as u32,
                first: first as u32,
                distance: 1 << done,
                ..Combiner::params::<f32>(Op::Sum, blocks)
            };
            done += levels;
            recorder.dispatch(&self.levels, &[&words], &params, (first + count).div_ceil(1 << done))?;
        }
        Ok(true)
    }

    /// Records the combination of pairs of blocks of `block` numbers, in place.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        array: &Array<f32>,
        block: u64,
        pairs: Pairs,
    ) -> Result<(), DeviceError> {
        let blocks = Blocks { block, count: 0 };
        let params = CombineParams { op: self.op, ..Combiner::params::<f32>(Op::Sum, blocks) };
        record_pairs(recorder, &self.kernel, &raw::<f32>(array, NumberForm::Narrow), params, pairs)
    }
}

/// Returns the form of the kernel that combines the numbers of an array: the least and the greatest
/// `f64` are found by their words, as far as 32 bits count these, since compilers may take it that
/// no number is NaN.
fn form_of<N: DeviceNumber>(array: &Array<N::Element>, op: Op) -> NumberForm {
    let by_words = op != Op::Sum && array.len() < 1 << 31;
    if N::FORM == NumberForm::Double && by_words { NumberForm::Wide } else { N::FORM }
}

/// Returns the array as kernels of a form bind it.
fn raw<N: DeviceNumber>(array: &Array<N::Element>, form: NumberForm) -> RawArray {
    if form == NumberForm::Double { array.raw().clone() } else { array.raw().seen_as(Element::U32) }
}

/// Records a kernel of [`pairs_kernel`] over pairs of blocks.
fn record_pairs(
    recorder: &mut Recorder,
    kernel: &Kernel,
    blocks: &RawArray,
    params: CombineParams,
    pairs: Pairs,
) -> Result<(), DeviceError> {
    // Arrays have fewer than 2^32 elements.
    let [first, distance] = [pairs.first, pairs.distance].map(|n| n as u32);
    let count = pairs.count * u64::from(params.block);
    recorder.each(kernel, &[blocks], &CombineParams { count: count as u32, first, distance, ..params }, count)
}

/// In which order blocks of ranks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// In rank order.
    Up,
    /// The last rank's first.
    Down,
}

impl Order {
    /// Returns the place of a rank's block.
    pub fn place(self, rank: usize, ranks: usize) -> usize {
        match self {
            Order::Up => rank,
            Order::Down => ranks - 1 - rank,
        }
    }
}

/// Which ranks' numbers a scan combines on each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanRange {
    /// The first rank up to this one.
    UpTo,
    /// The ranks before this one.
    Before,
    /// The last rank down to this one.
    From,
    /// The ranks after this one, the last first.
    After,
}

impl ScanRange {
    /// Returns the range of those ranks in whose range a rank is: what the adjoint of a sum
    /// combines.
    pub fn transposed(self) -> Self {
        match self {
            ScanRange::UpTo => ScanRange::From,
            ScanRange::Before => ScanRange::After,
            ScanRange::From => ScanRange::UpTo,
            ScanRange::After => ScanRange::Before,
        }
    }

    /// Returns `true` if a rank is in its own range.
    pub fn has_own(self) -> bool {
        matches!(self, ScanRange::UpTo | ScanRange::From)
    }

    /// Returns the rank at which scans begin.
    pub fn end(self, ranks: usize) -> usize {
        self.order().place(0, ranks)
    }

    pub(super) fn order(self) -> Order {
        if matches!(self, ScanRange::UpTo | ScanRange::Before) { Order::Up } else { Order::Down }
    }

    pub(super) fn operation(self) -> &'static str {
        match self {
            ScanRange::UpTo => "scan",
            ScanRange::Before => "scan_exclusive",
            ScanRange::From => "scan_down",
            ScanRange::After => "scan_down_exclusive",
        }
    }
}
