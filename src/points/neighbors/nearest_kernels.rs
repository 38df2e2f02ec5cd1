//! Kernels of searches of the nearest sources.

use super::group_shape::GroupShape;
use super::search_kernel::{Cursor, SearchVariant, Traversal, search};
use crate::gpu::KernelSource;

/// The second portion of a traversal and later ones.
pub(super) const RESUMED: Traversal = Traversal::CURVE.with(Cursor::Resume);

crate::gpu::kernel_params! {
    /// Parameters of the conversion of squares to distances.
    pub(super) struct RootParams {
        pub count: u32,
        pub unit: f32,
        pub infinity: f32,
        /// Lesser squares are replaced by results in a finer unit (`refine.wgsl` only).
        pub least: f32,
    }
}

/// Lengths of lists whose entries wait to be inserted together, where they do: a queue besides
/// longer ones would spill registers on RDNA 3.
const QUEUED: std::ops::RangeInclusive<u32> = 4..=16;

/// Returns the kernel that replaces squares by distances.
pub(super) fn root() -> KernelSource {
    KernelSource::new("neighbors::root", include_str!("../../../shaders/points/neighbors/root.wgsl"))
        .params::<RootParams>()
}

/// Returns the kernel that replaces squares by distances, small ones by results in a finer unit.
pub(super) fn refine() -> KernelSource {
    KernelSource::new("neighbors::refine", include_str!("../../../shaders/points/neighbors/refine.wgsl"))
        .params::<RootParams>()
}

/// A search that stores lists of up to `length` entries; `later_pass` if others were stored before.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ListKernel {
    pub variant: SearchVariant,
    pub length: u32,
    pub later_pass: bool,
}

impl ListKernel {
    /// Returns its text.
    pub fn source(self) -> KernelSource {
        let ListKernel { variant, length, later_pass } = self;
        search("neighbors::nearest", include_str!("../../../shaders/points/neighbors/nearest.wgsl"), variant)
            .module("neighbors::knn_list", include_str!("../../../shaders/points/neighbors/knn_list.wgsl"))
            .flag("links", false)
            .flag("histogram", false)
            .flag("offsets", false)
            .flag("network", variant.form.queues())
            .flag("queued", variant.form.queues() && QUEUED.contains(&length))
            .flag("whole", false)
            .flag("later_pass", later_pass)
            .constant("LENGTH", length)
            .repeat('@', length)
    }
}

/// Returns the kernels of nearest searches in one form of groups, with lists of these lengths.
pub(super) fn kernels(form: GroupShape, lengths: &[u32]) -> Vec<KernelSource> {
    let mut kernels = vec![root(), refine()];
    let marked = Traversal::NEAREST.with(Cursor::Mark);
    for (dims, own, wide) in [(2, true, false), (3, true, false), (3, true, true), (3, false, false)] {
        for &length in lengths {
            for traversal in [Traversal::NEAREST, marked, RESUMED] {
                let variant = SearchVariant { form, dims, own, traversal, wide };
                kernels.push(ListKernel { variant, length, later_pass: dims == 2 }.source());
            }
        }
    }
    kernels
}
