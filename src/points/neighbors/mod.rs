//! Neighbors of points: the nearest, all within a radius, pairs by distance.
//!
//! | type | purpose |
//! |---|---|
//! | [`Search`], [`Rank::query`](crate::Rank::query) | neighbors among the points of all ranks |
//! | [`Predicate`] | which neighbors: [`Nearest`], [`Within`], [`Overdense`] |
//! | [`Fixed`], [`Ragged`] | lists of neighbors |
//! | [`NearestSearch`], [`RadiusSearch`] | searches on one device, recorded: lists, counts, histograms, [`Callback`]s |
//! | [`Components`] | connected components of the points, by links within a radius |
//! | [`QueryPoints`], [`Queries`] | the queries of a search on one device |
//!
//! # Algorithm
//! A *source* is a point of a [`Tree`](crate::points::tree::Tree), a *query* a point whose
//! neighbors are wanted. Queries that follow each other on a curve traverse the tree as a group
//! ([`GroupShape`]) and share loads and one stack. A node is entered if any query of the group
//! reaches it; testing the bounding box of the group alone lets one outlier drag its group through
//! the whole tree (measured in `benches/results`). Nothing is stored between nodes and points, so
//! no buffer can be too small.
//!
//! # Callbacks
//! [`NearestSearch::visit`] and [`RadiusSearch::visit`] take a [`Callback`] that defines the
//! functions of a [`Visit`](crate::points::Visit) and stores results in its own arrays. In contrast
//! to a visit:
//!
//! - `query` is the index of the query in its input, `near.index` that of the source.
//! - A radius search may take up a query several times (in large trees, where a driver limits
//!   loops): `begin` must continue from what `end` has stored, and the caller clears that before.
//!   There [`Callback::loop_rounds`] counts the loops of `each`; `begin` and `end` may take 4000
//!   rounds.
//! - A visit of nearest neighbors whose text uses `offset` passes through lists in scratch memory:
//!   16 bytes per neighbor more.
//!
//! ```
//! use meshloom::gpu::{Array, Callback};
//! # fn callback(distances: &Array<f32>) -> Callback {
//! // Mean distance of the neighbors of each point.
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
//! - A distance is the root of the sum of the squared differences along the nearest image, in
//!   `f32`; the root rounded to `f32` is compared with radii and edges. It does not depend on the
//!   tree, the kernel variant or the number of ranks. Equal squares are ordered by index.
//! - This holds for any coordinates and lengths that `f32` holds, large and small ones side by
//!   side. Numbers below the smallest normal `f32`, 1.2e-38, count as 0 (below 1e-37 beside
//!   coordinates above 4e37), and a distance beyond 3.4e38 is infinite. Distances that a radius
//!   search returns lose digits below 1e-26 of the radius; whether they are within it is exact.
//! - Coincident points, fewer points than neighbors asked for, no points, and queries outside of
//!   all points need no special care.

mod callback;
mod components;
mod error;
mod group_shape;
mod lists;
mod nearest;
pub(super) mod output;
mod overdensity;
mod pairs;
mod query;
mod radius;
mod search;
mod search_kernel;
mod targets;
mod units;
pub(super) mod visitor;

pub use components::Components;
pub use error::NeighborError;
pub use group_shape::{GroupShape, Lanes};
pub use lists::{Fixed, Ragged};
pub use nearest::NearestSearch;
pub use pairs::{PairWeights, WeightedPairs};
pub use query::{Bins, MAX_K, Nearest, Overdense, PairFilter, Predicate, Within, join_u64};
pub use radius::RadiusSearch;
pub use search::Search;
pub use targets::{Queries, QueryPoints};

// Names that several files of this folder share.
use callback::{FoldedLists, FoldedPoints, Folder};
use group_shape::{LoopBudget, any_unfinished};
use query::{RowOrder, check_radius};
use search_kernel::{Cursor, SearchParams, SearchVariant, Traversal};
use units::Units;

#[cfg(doc)]
use crate::gpu::Callback;
use crate::gpu::KernelSource;

/// Kernels of searches that any device compiles.
pub(super) fn kernels() -> Vec<KernelSource> {
    let forms = [(Lanes::Alone, 4), (Lanes::Workgroup(32), 1)].map(|(lanes, slots)| GroupShape { lanes, slots });
    let searches = forms.into_iter().flat_map(|form| kernels_in(form, &[1, 8]));
    searches
        .chain(callback::kernels())
        .chain(lists::kernels())
        .chain([search::last_distance()])
        .chain(overdensity::kernels())
        .collect()
}

/// Returns all kernels of searches in one form of groups, with lists of these lengths.
#[doc(hidden)]
#[must_use]
pub fn kernels_in(form: GroupShape, lengths: &[u32]) -> Vec<KernelSource> {
    let search = nearest::kernels(form, lengths).into_iter().chain(radius::kernels(form));
    search.chain(pairs::kernels(form)).chain(components::kernels(form)).collect()
}
