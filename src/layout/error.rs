//! What can be wrong with a layout.

/// An error of a layout: what was asked for, and what would do.
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
}
