//! Errors of layouts.

use super::Box3;

/// An error of a layout: what is wrong, and what would be right.
#[derive(Clone, PartialEq, thiserror::Error)]
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
    /// A list of shares without a rank.
    #[error("shares of ranks: expected one number for each rank, got none")]
    NoShares,
    /// A share that no rank can have.
    #[error(
        "share of rank {rank}: expected a finite number greater than 0 and at most 10^6 times the smallest share, got {share}"
    )]
    Share {
        /// The rank.
        rank: usize,
        /// Its share.
        share: f64,
    },
    /// A text that is not a list of shares.
    #[error("invalid shares `{text}`: expected one positive number for each rank, such as 4,4,1,1 or 4x2,1x2")]
    ShareText {
        /// The text.
        text: String,
    },
    /// A rank that a process grid does not have.
    #[error("rank {rank} is not in a process grid of {}x{}; give one of its ranks, from 0 on", parts[0], parts[1])]
    Rank {
        /// The rank.
        rank: usize,
        /// The grid.
        parts: [usize; 2],
    },
    /// Ghost cells that go round an axis too often.
    #[error("{width} ghost cells on a side of axis {axis} of {cells} cells; at most {most} are possible")]
    Ghosts {
        /// The axis.
        axis: usize,
        /// Cells of the mesh along it.
        cells: u64,
        /// Ghost cells of some rank, below or above.
        width: u64,
        /// Maximum number.
        most: u64,
    },
    /// An array that is longer than can be counted.
    #[error(
        "an array of {} x {} x {} cells, ghost cells included, is longer than any can be; use a smaller mesh or more ranks",
        shape[0], shape[1], shape[2]
    )]
    TooLarge {
        /// Cells along each axis.
        shape: [u64; 3],
    },
    /// Widths of ghost cells of another rank, or another process grid.
    #[error(
        "widths of ghost cells as another rank than {rank} of a grid of {}x{} sees them; make them for the rank and grid of the plan", parts[0], parts[1]
    )]
    Widths {
        /// The rank of the plan.
        rank: usize,
        /// The grid of the plan.
        parts: [usize; 2],
    },
    /// An axis without cells.
    #[error("a mesh of {} x {} x {} has an axis of length 0; every axis needs one cell at least", shape[0], shape[1], shape[2])]
    Empty {
        /// The mesh.
        shape: [u64; 3],
    },
    /// A box whose sides are not lengths.
    #[error("a box of {} x {} x {}: expected finite and positive side lengths", size[0], size[1], size[2])]
    Size {
        /// The side lengths.
        size: [f64; 3],
    },
    /// Fields on different meshes in one operation.
    #[error("{what}: expected a field on the mesh {expected}, got one on {found}; create both fields on one mesh")]
    OtherMesh {
        /// The operation.
        what: &'static str,
        /// The mesh of the first field.
        expected: String,
        /// The mesh of the other field.
        found: String,
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
        /// Number of cells.
        cells: u128,
        /// The first of them in C order.
        first: [u64; 3],
    },
}

message_debug!(LayoutError);
