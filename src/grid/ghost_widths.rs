//! Widths of the ghost cells of a rank and its peers.

use super::error::LayoutError;
use super::process_grid::Grid;

/// Ghost cells below and above of each part along each axis, as the ranks of one line of a process
/// grid know them.
///
/// Sweeps along an axis move blocks that span the whole width along the axes swept before, so along
/// axis 0 all ranks with the same planes have the same widths; along axis 1 each rank has its own.
/// A rank whose particles move farther widens its own ghost cells and those of ranks with the same
/// planes, but no others.
///
/// ```
/// use meshloom::grid::{Grid, GhostWidths};
///
/// let grid = Grid::new([3, 1], 3)?;
/// let mut widths = GhostWidths::new(grid, 1, [[1, 2], [0, 0], [0, 0]])?;
/// assert!(widths.widen(0, &[[0, 0], [5, 1], [1, 1]], 2));
/// assert_eq!(widths.along(0), [[1, 2], [7, 2], [1, 2]]);
/// assert_eq!(widths.own(), [[7, 2], [0, 0], [0, 0]]);
/// # Ok::<(), meshloom::grid::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GhostWidths {
    along: [Vec<[u64; 2]>; 3],
    at: [usize; 3],
}

impl GhostWidths {
    /// Creates equal widths `[below, above]` by axis on every rank of `grid`, as `rank` sees them.
    ///
    /// # Errors
    /// [`LayoutError::Rank`].
    pub fn new(grid: Grid, rank: usize, widths: [[u64; 2]; 3]) -> Result<Self, LayoutError> {
        if rank >= grid.ranks() {
            return Err(LayoutError::Rank { rank, parts: grid.parts() });
        }
        let [i, j] = grid.at(rank);
        Ok(GhostWidths { along: [0, 1, 2].map(|axis| vec![widths[axis]; grid.along(axis)]), at: [i, j, 0] })
    }

    /// Returns `true` if they are as `rank` of `grid` sees them.
    pub(super) fn are_of(&self, grid: Grid, rank: usize) -> bool {
        let [i, j] = grid.at(rank);
        self.at == [i, j, 0] && (0..3).all(|axis| self.along[axis].len() == grid.along(axis))
    }

    /// Returns the widths of all parts of this rank's line along an axis.
    #[must_use]
    pub fn along(&self, axis: usize) -> &[[u64; 2]] {
        &self.along[axis]
    }

    /// Returns the widths of this rank by axis.
    #[must_use]
    pub fn own(&self) -> [[u64; 2]; 3] {
        [0, 1, 2].map(|axis| self.along[axis][self.at[axis]])
    }

    /// Returns the position of this rank along an axis.
    pub(super) fn position(&self, axis: usize) -> usize {
        self.at[axis]
    }

    /// Widens those along `axis` that are less than `needed`, by part, to `margin` more than that.
    /// Says whether any was.
    pub fn widen(&mut self, axis: usize, needed: &[[u64; 2]], margin: u64) -> bool {
        let mut widened = false;
        for (width, &needed) in self.along[axis].as_flattened_mut().iter_mut().zip(needed.as_flattened()) {
            if needed > *width {
                (*width, widened) = (needed.saturating_add(margin), true);
            }
        }
        widened
    }
}
