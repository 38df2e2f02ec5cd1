//! Functions of many items: distributed over ranks, computed in chunks, gathered in order or
//! reduced.
//!
//! | item | what it is |
//! |---|---|
//! | [`map`] | calls a function with chunks of the items of its rank, and collects its outputs |
//! | [`map_reduce`] | same for one reduction: sum, minimum, maximum, or a function in WGSL |
//! | [`Mapping`] | number of items, chunks and outputs |
//! | [`replicate`] | constants of the function, brought to every rank once |
//! | [`HostMap`] | a function of many items and of parameters on the host, as an operator with derivatives |
//! | [`jacobian_columns`], [`jacobian_rows`] | products of a linearized operator with all unit vectors, in chunks |
//!
//! **Same bits.** Sums and other reductions follow one binary tree over the numbers of the items (0
//! with 1, 2 with 3, then pairs of pairs), wherever the items are: results have the same bits for
//! every number of ranks and every chunk, and those of a loop over that tree.

mod chunk;
mod error;
mod host_map;
mod jacobian;
mod mapping;
mod ordered;
mod run;
pub(crate) mod tree;

pub use chunk::{ChunkSize, MapReport, MemoryEstimate};
pub use error::MapError;
pub use host_map::HostMap;
pub use jacobian::{jacobian_columns, jacobian_rows, numbers_of};
pub use mapping::{Deal, Items, MapOutput, Mapping, Placement, RowReduction, replicate};
pub use run::{MapChunk, Mapped, map, map_reduce};
pub(crate) use tree::sum_over_ranks;

/// Returns the kernels of the room: a reduction with a function of a caller's.
pub(crate) fn kernels() -> Vec<crate::gpu::KernelSource> {
    ordered::samples().into()
}
