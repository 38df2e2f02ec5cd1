//! Neighbours of points: the nearest, all within a radius, pairs by distance.
//!
//! | who | gives |
//! |---|---|
//! | [`Nearest`] | the k nearest sources of each query, as lists or to a [`Snippet`] |
//! | [`Radius`] | all sources within a radius: counts, lists, pair histograms, or to a [`Snippet`] |
//! | [`Components`] | which points hang together by links within a radius |
//! | [`Targets`], [`Queries`] | whose neighbours are asked for |
//! | [`DistributedSearch`] | the same among the points of all ranks |
//!
//! # How a search runs
//! Queries that follow each other on a curve walk a [`Tree`](crate::points::tree::Tree) as a group: they share what is loaded and one
//! stack, but each decides by its own reach whether a node matters, and any one is enough. A test of the group's box alone lets an
//! outlier drag its group through the whole tree (measured in `docs/particles.md`). Nothing is stored between nodes and points, so no
//! capacity is ever guessed.
//!
//! # What is promised
//! - The distance of two points is the root of the sum of the squares of their differences, along the nearest image on periodic axes: `f32`
//!   numbers, and the root rounded to `f32` is what is compared with radii and edges. A distance does not depend on the tree, the
//!   form of the kernel's groups or the number of ranks. Equal squares are in the order of the index.
//! - That holds for any coordinates and lengths that `f32` holds, large and small ones next to each other; only numbers too small for a
//!   normal `f32`, below 1.2e-38, count as 0 (as coordinates next to others above 4e37: below 1e-37), and a distance beyond 3.4e38 is
//!   infinite. Distances told by a radius search lose digits below 1e-26 of the radius; that they are within it is right all the same.
//! - Points that coincide, fewer points than neighbours asked for, no points, and queries outside of all points are like any others.

mod components;
mod distributed;
mod error;
mod group_shape;
mod kernel_cache;
mod list;
mod local;
mod loop_budget;
mod nearest;
mod pairs;
mod query;
mod radius;
mod result_routing;
mod search_kernel;
mod snippet;
mod targets;
mod units;

pub use components::Components;
pub use distributed::{DistributedSearch, KnnResult};
pub use error::NeighborError;
pub use group_shape::GroupShape;
pub use local::{nearest, within};
pub use nearest::{Lists, Nearest};
pub use pairs::{Bins, join_u64};
pub use query::{KnnQuery, MAX_K, PairFilter, RadiusQuery, RowOrder};
pub use radius::{NeighborLists, Radius};
pub use result_routing::RadiusResult;
pub use snippet::Snippet;
pub use targets::{Queries, Targets};

use crate::gpu::KernelSource;

/// Kernels of searches that any device compiles.
pub(super) fn kernels() -> Vec<KernelSource> {
    let forms = [GroupShape { lanes: 1, slots: 4 }, GroupShape { lanes: 1, slots: 1 }];
    forms.into_iter().flat_map(|form| kernels_of(form, &[1, 8])).collect()
}

/// Kernels of searches by subgroups.
#[doc(hidden)]
pub fn subgroup_sources() -> Vec<KernelSource> {
    let forms =
        [GroupShape { lanes: 4, slots: 8 }, GroupShape { lanes: 8, slots: 4 }, GroupShape { lanes: 32, slots: 1 }];
    forms.into_iter().flat_map(|form| kernels_of(form, &[1, 32])).collect()
}

/// All kernels in one form of groups, with lists of these lengths.
fn kernels_of(form: GroupShape, lengths: &[u32]) -> impl Iterator<Item = KernelSource> + use<> {
    let search = nearest::kernels(form, lengths).into_iter().chain(radius::kernels(form));
    search.chain(pairs::kernels(form)).chain(components::kernels(form))
}
