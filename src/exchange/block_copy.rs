//! The kernel that moves a block of one array to a block of another: what halos and redistributions pack and unpack
//! their messages with.

use crate::gpu::{Access, DeviceError, Element, Kernel, KernelSource, RawArray, Recorder};

/// What happens to the elements that a block is moved onto.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// They are replaced.
    Replace,
    /// Words, as `f32`, are added to them.
    AddFloat,
    /// Pairs of words, as 64-bit integers, are added to them; the kernel then counts pairs.
    AddWide,
}

impl Action {
    /// The kernel's body. Put together here: the `@if` of KernelSource's preprocessor does not know `f64`.
    fn text(self) -> &'static str {
        macro_rules! body {
            ($action:literal) => {
                concat!(
                    include_str!("../../shaders/exchange/block_copy/move.wgsl"),
                    include_str!(concat!("../../shaders/exchange/block_copy/", $action, ".wgsl"))
                )
            };
        }
        match self {
            Action::Replace => body!("replace"),
            Action::AddFloat => body!("add_float"),
            Action::AddWide => body!("add_wide"),
        }
    }
}

/// Where the elements of a block lie in an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The first element.
    pub start: u64,
    /// Elements from one to the next along each of the block's axes.
    pub strides: [u64; 4],
}

/// Moves blocks between arrays of one type of elements.
pub(crate) struct BlockCopy {
    kernel: Kernel,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    extent: [u32; 4],
    starts: [u32; 4],
    origin: [u32; 4],
    target: [u32; 4],
}

impl BlockCopy {
    /// A mover of such elements; the actions that add know [`Element::U32`] only.
    pub fn new(element: Element, action: Action) -> Self {
        let source = KernelSource::new("blocks::move", action.text())
            .fields("extent: vec4<u32>, starts: vec4<u32>, origin: vec4<u32>, target_: vec4<u32>")
            .array("from", element, Access::Read)
            .array("to", element, Access::ReadWrite);
        BlockCopy { kernel: Kernel::trusted(source) }
    }

    /// The kernel's text.
    pub fn source(&self) -> &KernelSource {
        self.kernel.source()
    }

    /// Records the move of a block of `extent` from `origin` in `from` to `target` in `to`, a different array. Neither
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
        let params = Params {
            extent: words(extent),
            starts: words([origin.start, target.start, 0, 0]),
            origin: words(origin.strides),
            target: words(target.strides),
        };
        recorder.each(&self.kernel, &[from, to], &params, extent.iter().product())
    }
}
