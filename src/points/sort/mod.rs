//! Sorting points along a space-filling curve: on one rank, and over all ranks with the work dealt
//! by their shares.
//!
//! [`distribute`] is a sort by histograms (L. V. Kale and S. Krishnan, ICPP 1993): every rank sorts
//! its own keys, all ranks find the splitters that cut the sequence of all keys into parts, a
//! [`Route`] moves rows once, and each rank sorts what it received. Equal keys keep the order of
//! the input, so the result is the same permutation on any number of ranks, and each rank has
//! exactly its [share](crate::grid::Shares) of it, whatever the points are.
//!
//! | function | submits | waits |
//! |---|---|---|
//! | [`order`] | never | never |
//! | [`route_by_key`] | yes | for the others: up to eight rounds of counts |
//! | [`distribute`] | yes | for bounds and, with several ranks, the others: up to eight rounds of counts |
//! | [`Route::forward`], [`Route::back`] | if rows move between ranks | as [`Exchange::run`](crate::exchange::Exchange::run) |

#[cfg(feature = "catalog")]
mod balanced;
mod distribute;
mod error;
mod plan;
mod route;
mod splitters;

#[cfg(feature = "catalog")]
pub(crate) use balanced::{Balanced, balanced};
pub(crate) use distribute::{CurveOrder, distribute_rows};
pub use distribute::{Sorted, distribute, route_by_key};
pub use error::SortError;
pub use plan::order;
pub(crate) use plan::{SortPlan, Summary, at_most, keys, route_to, upload_probes};
pub use route::Route;
pub(crate) use route::{back_by, forward_by};
#[cfg(test)]
pub(crate) use splitters::Splitters;

use crate::gpu::KernelSource;

/// Returns the kernels of this folder.
pub(super) fn kernels() -> Vec<KernelSource> {
    vec![distribute::kernel(), plan::kernel(), plan::probe_kernel()]
}
