//! Copies of a block of one array to a block of another: exchanges of ghost cells and redistributions pack and unpack their
//! messages with them.

use crate::gpu::{DeviceError, Element, Kernel, KernelSource, RawArray, Recorder};

/// What becomes of the elements that a block is copied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// They are replaced.
    Replace,
    /// Words, as `f32`, are added to them.
    AddFloat,
    /// Pairs of words, as 64-bit integers, are added to them; the kernel then counts pairs.
    AddWide,
}

/// Where the elements of a block lie in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first element.
    pub start: u64,
    /// Elements from one to the next along each of the block's axes.
    pub strides: [u64; 4],
}

/// Copies blocks between arrays of one type of elements.
pub(crate) struct BlockCopy {
    kernel: Kernel,
}

crate::kernel_params! {
    struct BlockCopyParams {
        extent: [u32; 4],
        /// The first elements in `from` and in `to`.
        starts: [u32; 4],
        from_strides: [u32; 4],
        to_strides: [u32; 4],
    }
}

/// The kernel for such elements; the actions that add know [`Element::U32`] only.
pub(super) fn kernel(element: Element, action: Action) -> KernelSource {
    KernelSource::new("exchange::block_copy", include_str!("../../shaders/exchange/block_copy.wgsl"))
        .params::<BlockCopyParams>()
        .element("Cell", element)
        .flag("add_float", action == Action::AddFloat)
        .flag("add_wide", action == Action::AddWide)
}

impl BlockCopy {
    /// Copies elements of this type; the actions that add know [`Element::U32`] only.
    pub fn new(element: Element, action: Action) -> Self {
        BlockCopy { kernel: Kernel::trusted(kernel(element, action)) }
    }

    /// Records the copy of a block of `extent` from `origin` in `from` to `target` in `to`, a different array. Neither
    /// submits nor waits.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        extent: [u64; 4],
        (from, origin): (&RawArray, Place),
        (to, target): (&RawArray, Place),
    ) -> Result<(), DeviceError> {
        // Arrays have fewer than 2^32 elements, so that whatever indexes one fits.
        let words = |v: [u64; 4]| v.map(|n| n as u32);
        let params = BlockCopyParams {
            extent: words(extent),
            starts: words([origin.start, target.start, 0, 0]),
            from_strides: words(origin.strides),
            to_strides: words(target.strides),
        };
        recorder.each(&self.kernel, &[from, to], &params, extent.iter().product())
    }
}
