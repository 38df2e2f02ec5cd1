//! Neighbours of points: the nearest, all within a radius, pairs by distance.
//!
//! | type | gives |
//! |---|---|
//! | [`nearest()`], [`within()`] | the neighbours of points of the host, on one device, in one call |
//! | [`Nearest`] | the k nearest sources of each query, as lists or to a [`Callback`] |
//! | [`Radius`] | all sources within a radius: counts, lists, pair histograms, or to a [`Callback`] |
//! | [`Components`] | connected components of the points, by links within a radius |
//! | [`QueryPoints`], [`Queries`] | the queries: the tree's own points, or others |
//! | [`Search`], [`Rank::query`](crate::Rank::query) | the same among the points of all ranks |
//!
//! # How a search runs
//! A *source* is a point of a [`Tree`](crate::points::tree::Tree), a *query* a point whose neighbours are wanted. Queries that follow each
//! other on a curve traverse the tree as a group ([`GroupShape`]): they share what is loaded and one stack. A node is entered if any query
//! of the group reaches it; a test of the group's bounding box alone lets one outlier drag its group through the whole tree (measured in
//! `docs/particles.md`). Nothing is stored between nodes and points, so no buffer has a size that could be too small.
//!
//! # Callbacks
//! [`Nearest::visit`] and [`Radius::visit`] take a [`Callback`] that defines
//!
//! ```wgsl
//! alias State = f32;                                      // any type
//! fn begin(query: u32, reach: f32) -> State { .. }        // before the first neighbour
//! fn each(state: State, near: Neighbor) -> State { .. }   // for every neighbour
//! fn end(query: u32, state: State) { .. }                 // after the last; stores what is wanted
//! fn done(state: State) -> bool { .. }                    // not required: ends the query of a radius search when true
//! ```
//!
//! `query` is the index of the query in its input, `reach` the distance of the last neighbour that was found (lists of the nearest) or
//! the radius of the search. `struct Neighbor { index: u32, distance: f32, offset: vec3<f32> }` is a source, its distance, and the displacement
//! from the query to its nearest image (0 along a third axis that there is not), by the differences that the distance is computed from.
//! Names of other things must begin with `user_` to avoid name clashes. [`Rank::query`](crate::Rank::query) runs such functions over ranks.
//!
//! - Nearest neighbours come nearest first, equal distances by index. Those within a radius come in no particular order: results are the same
//!   for every tree, rank count and driver only if the order does not matter (counts, minima, integers).
//! - In a radius search a query may be taken up several times (in large trees, where a driver limits loops): `begin` must go on from
//!   what `end` has stored, and the caller clears that before. There [`Callback::loop_rounds`] counts the loops of `each`; `begin` and `end`
//!   may take 4000 rounds.
//! - A source is seen as a neighbour of itself unless the search leaves it out.
//! - Parameters are fields of `params` ([`Callback::params`]), 96 bytes at most.
//! - A visit of the nearest neighbors whose text uses `offset` goes through lists in scratch memory: 16 bytes per neighbor more.
//!
//! ```
//! use meshloom::gpu::{Array, Callback};
//! # fn callback(distances: &Array<f32>) -> Callback {
//! // Mean distance of the neighbours of each point.
//! Callback::new("
//!     alias State = vec2<f32>;
//!     fn begin(query: u32, reach: f32) -> State { return State(0.0); }
//!     fn each(state: State, near: Neighbor) -> State { return state + State(near.distance, 1.0); }
//!     fn end(query: u32, state: State) { store_mean(query, state.x / max(state.y, 1.0)); }
//! ").write("mean", distances)
//! # }
//! ```
//!
//! # Guarantees
//! - The distance of two points is the root of the sum of the squares of their differences, along the nearest image on periodic axes, in
//!   `f32`; the root rounded to `f32` is what is compared with radii and edges. A distance does not depend on the tree, the
//!   form of the kernel's groups or the number of ranks. Equal squares are in the order of the index.
//! - That holds for any coordinates and lengths that `f32` holds, large and small ones next to each other. Only numbers too small for a
//!   normal `f32`, below 1.2e-38, count as 0 (coordinates next to others above 4e37: below 1e-37), and a distance beyond 3.4e38 is
//!   infinite. Distances that a radius search returns lose digits below 1e-26 of the radius; whether they are within it is exact.
//! - Points that coincide, fewer points than neighbours asked for, no points, and queries outside of all points need no special care.

mod action;
mod callback;
mod components;
mod error;
mod fold;
mod group_shape;
mod kernel_cache;
mod list;
mod local;
mod loop_budget;
mod nearest;
mod neighbor_lists;
pub(super) mod output;
mod overdensity;
mod pairs;
mod query;
mod radius;
mod result_routing;
mod search;
mod search_kernel;
mod tally;
mod targets;
mod units;
pub(super) mod visitor;

mod weighted_pairs;

pub use components::Components;
pub use error::NeighborError;
pub use group_shape::{GroupShape, Lanes};
pub use local::{nearest, within};
pub use nearest::{Nearest, NearestLists};
pub use neighbor_lists::NeighborLists;
pub use pairs::{Bins, join_u64};
pub use query::{KnnQuery, MAX_K, OverdensityQuery, PairFilter, Predicate, RadiusQuery};
pub use radius::Radius;
pub use result_routing::{Fixed, KnnResult, RadiusResult, Ragged};
pub use search::Search;
pub use targets::{Queries, QueryPoints};
pub use weighted_pairs::{PairWeights, WeightedPairs};

#[cfg(doc)]
use crate::gpu::Callback;
use crate::gpu::KernelSource;

/// Kernels of searches that any device compiles.
pub(super) fn kernels() -> Vec<KernelSource> {
    let forms = [(Lanes::Alone, 4), (Lanes::Workgroup(32), 1)].map(|(lanes, slots)| GroupShape { lanes, slots });
    let searches = forms.into_iter().flat_map(|form| kernels_in(form, &[1, 8]));
    searches
        .chain(fold::kernels())
        .chain(result_routing::kernels())
        .chain([search::last_distance()])
        .chain(overdensity::kernels())
        .collect()
}

/// All kernels of searches in one form of groups, with lists of these lengths.
#[doc(hidden)]
pub fn kernels_in(form: GroupShape, lengths: &[u32]) -> Vec<KernelSource> {
    let search = nearest::kernels(form, lengths).into_iter().chain(radius::kernels(form));
    let histograms = pairs::kernels(form).into_iter().chain(weighted_pairs::kernels(form));
    search.chain(histograms).chain(components::kernels(form)).collect()
}
