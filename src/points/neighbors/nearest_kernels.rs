//! Kernels of searches of the nearest sources.

use super::callback::MODULE;
use super::group_shape::GroupShape;
use super::search_kernel::{Cursor, SearchVariant, Traversal, search};
use crate::gpu::{Callback, KernelSource};

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

/// Returns the search that stores lists of up to `length` entries.
pub(super) fn stored(variant: SearchVariant, length: u32, later_pass: bool) -> KernelSource {
    nearest("neighbors::nearest", variant, length).flag("callback", false).flag("later_pass", later_pass)
}

/// Returns the search that runs `callback` over lists of up to `length` entries.
pub(super) fn in_registers(variant: SearchVariant, length: u32, callback: &Callback) -> KernelSource {
    let source = nearest("neighbors::nearest_callback", variant, length);
    callback.bind(source.flag("callback", true).flag("later_pass", false), MODULE)
}

fn nearest(label: &str, variant: SearchVariant, length: u32) -> KernelSource {
    search(label, include_str!("../../../shaders/points/neighbors/nearest.wgsl"), variant)
        .module("neighbors::knn_list", include_str!("../../../shaders/points/neighbors/knn_list.wgsl"))
        .flag("links", false)
        .flag("histogram", false)
        .flag("offsets", false)
        .flag("network", variant.form.queues())
        .flag("queued", variant.form.queues() && QUEUED.contains(&length))
        .flag("whole", false)
        .constant("LENGTH", length)
        .repeat('@', length)
}

/// Returns the kernels of nearest searches in one form of groups, with lists of these lengths.
pub(super) fn kernels(form: GroupShape, lengths: &[u32]) -> Vec<KernelSource> {
    let mut kernels = vec![root(), refine()];
    let marked = Traversal::NEAREST.with(Cursor::Mark);
    for (dims, own, wide) in [(2, true, false), (3, true, false), (3, true, true), (3, false, false)] {
        let variant = |traversal| SearchVariant { form, dims, own, traversal, wide };
        for &length in lengths {
            for traversal in [Traversal::NEAREST, marked, RESUMED] {
                kernels.push(stored(variant(traversal), length, dims == 2));
            }
            kernels.push(in_registers(variant(Traversal::NEAREST), length, &sum_of_distances()));
        }
    }
    kernels
}

/// Returns a callback for lists of kernels: sums of distances. It declares its array itself,
/// because no device is open.
fn sum_of_distances() -> Callback {
    Callback::trusted(
        "var<storage, read_write> sums: array<f32>;\nalias State = f32;\nfn begin(query: u32, reach: f32) -> State { return reach; }\n\
         fn each(state: State, near: Neighbor) -> State { return state + near.distance; }\n\
         fn end(query: u32, state: State) { store_sums(query, state); }",
    )
}
