//! Functions of many items: dealt to ranks, worked on in chunks, gathered in order or reduced.
//!
//! | item | what it is |
//! |---|---|
//! | [`map`] | gives a function chunks of items, on every rank those of its block, and collects what it makes of them |
//! | [`map_reduce`] | the same for one reduction: a sum, a least, a greatest, or a function in WGSL |
//! | [`Mapping`] | how many items there are, in which chunks, and what comes out |
//! | [`replicate`] | constants of the function, brought to every rank once |
//! | [`jacobian_columns`], [`jacobian_rows`] | products of a linearised operator with all unit vectors, in chunks |
//!
//! **Same bits.** Sums and other reductions are taken along one binary tree over the items' numbers
//! (0 with 1, 2 with 3, then pairs of pairs), whoever has the items: results have the same bits for
//! every number of ranks and every chunk, and those of a loop over that tree.

mod chunk;
mod deal;
mod error;
mod gauge;
mod items;
mod jacobian;
mod mapping;
mod ordered;
mod run;
pub(crate) mod tree;

pub use chunk::{ChunkSize, MapReport, MemoryEstimate};
pub use deal::Deal;
pub use error::MapError;
pub use items::{Items, replicate};
pub use jacobian::{jacobian_columns, jacobian_rows, numbers_of};
pub use mapping::{MapOutput, Mapping, Placement, RowReduction};
pub use run::{MapChunk, Mapped, map, map_reduce};

/// Returns the kernels of the room: a reduction with a function of a caller's.
pub(crate) fn kernels() -> Vec<crate::gpu::KernelSource> {
    vec![ordered::sample()]
}
