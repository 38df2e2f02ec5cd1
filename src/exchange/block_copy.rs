//! Copies of a block of one array to a block of another: exchanges of ghost cells and
//! redistributions pack and unpack their messages with them.

use crate::gpu::{Array, DeviceElement, DeviceError, Element, Kernel, KernelSource, Recorder};
use crate::grid::Block;

/// Effect of a copy on the target elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyAction {
    /// They are replaced.
    Replace,
    /// They are added to.
    Add,
    /// Pairs of words, as 64-bit integers, are added to them; the kernel then counts pairs.
    AddWide,
    /// The first three numbers of vectors replace as many words.
    Pack,
    /// Three words replace vectors, with a zero behind them.
    Unpack,
}

/// A block of each of several fields, which lie in one array one after the other.
#[derive(Clone, Copy)]
pub(crate) struct FieldBlocks<'a, T> {
    pub array: &'a Array<T>,
    /// The block of the first field.
    pub block: Block,
    /// Elements from one field to the next.
    pub stride: u64,
}

impl<'a, T: DeviceElement> FieldBlocks<'a, T> {
    /// Creates the blocks as packed in a message from element `start` on: that of the first field
    /// in C order, then that of the next.
    pub fn packed(array: &'a Array<T>, start: u64, block: Block) -> Self {
        let [_, j, k] = block.extent;
        let stride = block.len();
        let block = Block { offset: start, extent: block.extent, strides: [j * k, k, 1] };
        FieldBlocks { array, block, stride }
    }

    /// Returns the first element, and the strides between fields and along the axes, for elements
    /// of `words` elements of the array each.
    fn place(&self, words: u64) -> [u64; 5] {
        let [i, j, k] = self.block.strides;
        let last = if words > 1 { 1 } else { k };
        [self.block.offset * words, self.stride * words, i * words, j * words, last]
    }
}

/// Copies blocks between arrays.
pub(super) struct BlockCopy {
    kernel: Kernel,
    /// The elements as which it takes the source and the target.
    elements: [Element; 2],
}

crate::gpu::kernel_params! {
    struct BlockCopyParams {
        extent: [u32; 4],
        /// The first elements in `from` and in `to`.
        starts: [u32; 4],
        from_strides: [u32; 4],
        to_strides: [u32; 4],
    }
}

/// Returns the kernel for such elements; [`CopyAction::AddWide`] knows [`Element::U32`] only,
/// [`CopyAction::Pack`] and [`CopyAction::Unpack`] know [`Element::Vec4`].
pub(super) fn kernel(element: Element, action: CopyAction) -> KernelSource {
    KernelSource::new("exchange::block_copy", include_str!("../../shaders/exchange/block_copy.wgsl"))
        .params::<BlockCopyParams>()
        .element("Cell", element)
        .flag("add", action == CopyAction::Add)
        .flag("add_wide", action == CopyAction::AddWide)
        .flag("pack", action == CopyAction::Pack)
        .flag("unpack", action == CopyAction::Unpack)
}

impl BlockCopy {
    /// Creates the copy of elements of this type; see [`kernel`].
    pub fn new(element: Element, action: CopyAction) -> Self {
        let elements = match action {
            CopyAction::Pack => [element, Element::U32],
            CopyAction::Unpack => [Element::U32, element],
            CopyAction::Replace | CopyAction::Add | CopyAction::AddWide => [element; 2],
        };
        BlockCopy { kernel: Kernel::trusted(kernel(element, action)), elements }
    }

    /// Records the copy of the blocks `from` of `fields` fields to the blocks `to` of another
    /// array. An element of a block is `words` adjacent elements of the kernel along the last axis.
    /// Neither submits nor waits.
    pub fn record<T: DeviceElement, U: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        [fields, words]: [u64; 2],
        from: &FieldBlocks<'_, T>,
        to: &FieldBlocks<'_, U>,
    ) -> Result<(), DeviceError> {
        let [i, j, k] = to.block.extent;
        let extent = [fields, i, j, k * words];
        // Arrays have fewer than 2^32 elements, so that whatever indexes one fits.
        let narrow = |v: [u64; 4]| v.map(|n| n as u32);
        let ([from_start, from_strides @ ..], [to_start, to_strides @ ..]) = (from.place(words), to.place(words));
        let params = BlockCopyParams {
            extent: narrow(extent),
            starts: narrow([from_start, to_start, 0, 0]),
            from_strides: narrow(from_strides),
            to_strides: narrow(to_strides),
        };
        let (from, to) = (from.array.raw().cast(self.elements[0])?, to.array.raw().cast(self.elements[1])?);
        recorder.each(&self.kernel, &[&from, &to], &params, extent.iter().product())
    }
}

/// Elements that kernels which only copy are compiled for.
pub(super) const COPIED: [Element; 5] =
    [Element::U32, Element::Complex32, Element::Vec4, Element::F64, Element::Complex64];

/// Returns the element that stands for `element` when nothing is calculated. Words are copied as
/// integers, which no driver rounds or flushes to zero.
fn copied_as(element: Element) -> Element {
    match element {
        Element::F32 | Element::I32 | Element::U32 => Element::U32,
        other => other,
    }
}

/// Copies blocks between arrays of any type of elements; those of `f64` on devices that have it.
pub(crate) struct BlockCopies([(Element, BlockCopy); COPIED.len()]);

impl Default for BlockCopies {
    fn default() -> Self {
        BlockCopies(COPIED.map(|element| (element, BlockCopy::new(element, CopyAction::Replace))))
    }
}

impl BlockCopies {
    /// Records the copy of the blocks of `fields` fields: one dispatch, or plain copies where
    /// blocks are contiguous. Neither submits nor waits.
    pub fn record<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        fields: u64,
        from: FieldBlocks<'_, T>,
        to: FieldBlocks<'_, T>,
    ) -> Result<(), DeviceError> {
        let len = from.block.len();
        if len == 0 {
            return Ok(());
        }
        let whole = from.stride == len && to.stride == len;
        if from.block.is_contiguous() && to.block.is_contiguous() && (whole || fields <= RUNS) {
            // Where nothing lies between the fields either, they are one run.
            let (runs, each) = if whole { (1, len * fields) } else { (fields, len) };
            for field in 0..runs {
                let [at, target] = [&from, &to].map(|side| side.block.offset + field * side.stride);
                recorder.copy(from.array, at, to.array, target, each)?;
            }
            return Ok(());
        }
        let element = copied_as(T::ELEMENT);
        let Some((_, copy)) = self.0.iter().find(|(copied, _)| *copied == element) else {
            return Err(DeviceError::misuse("BlockCopies", format!("no kernel copies {element:?}")));
        };
        copy.record(recorder, [fields, 1], &from, &to)
    }
}

/// Runs that are copied one by one at most; more are one dispatch.
const RUNS: u64 = 16;
