//! Errors of layouts.

use super::boxes::Box3;

/// An error of a layout: what is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A process grid that does not fit the number of ranks.
    #[error("a process grid of {}x{} does not make {ranks} ranks; choose factors of {ranks}", parts[0], parts[1])]
    Grid {
        /// The grid.
        parts: [usize; 2],
        /// The ranks there are.
        ranks: usize,
    },
    /// An axis without cells.
    #[error("a mesh of {} x {} x {} has an axis of length 0; every axis needs one cell at least", shape[0], shape[1], shape[2])]
    Empty {
        /// The mesh.
        shape: [u64; 3],
    },
    /// Lists of boxes that do not have one box per rank.
    #[error("{from} boxes before and {to} after, seen by rank {rank}; each rank needs one box in either list")]
    Ranks {
        /// Boxes before.
        from: usize,
        /// Boxes after.
        to: usize,
        /// The rank that asked.
        rank: usize,
    },
    /// A box that does not lie in the mesh, or ends before it starts.
    #[error(
        "the box {part:?} of rank {rank} ({list} the redistribution) does not lie in a mesh of {} x {} x {}",
        shape[0], shape[1], shape[2]
    )]
    Outside {
        /// `before` or `after`.
        list: &'static str,
        /// Whose box it is.
        rank: usize,
        /// The box.
        part: Box3,
        /// The mesh.
        shape: [u64; 3],
    },
    /// Two boxes that share cells.
    #[error("the boxes of ranks {} and {} ({list} the redistribution) overlap; each cell needs one owner", ranks[0], ranks[1])]
    Overlap {
        /// `before` or `after`.
        list: &'static str,
        /// Whose boxes they are, in order.
        ranks: [usize; 2],
    },
    /// Cells that are in no box.
    #[error(
        "{cells} cells, the first at {first:?}, are in no rank's box {list} the redistribution; each cell needs one owner"
    )]
    Uncovered {
        /// `before` or `after`.
        list: &'static str,
        /// How many cells.
        cells: u128,
        /// The first of them in C order.
        first: [u64; 3],
    },
}
