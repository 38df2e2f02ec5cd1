//! The layout of a distributed field in a rank's array.

use super::boxes::{Box3, extent, product};

/// The part of a mesh that one rank holds: its own cells and a margin of *ghost cells*, copies of
/// other ranks' cells.
///
/// - The array is in C order over `own` widened by `ghosts`, the last axis fastest.
/// - `ghosts[a] = [below, above]` cells along axis `a`: cell `own.start - 1` is the first below. A
///   periodic axis continues at its other end.
///
/// ```
/// use meshloom::grid::FieldLayout;
/// let layout = FieldLayout::new([4..6, 0..3, 0..5], [[1, 2], [0, 0], [0, 0]]);
/// assert_eq!(layout.shape(), [5, 3, 5]);
/// assert_eq!(layout.strides(), [15, 5, 1]);
/// assert_eq!(layout.offset(), 15); // the first own cell
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldLayout {
    /// The cells that this rank owns.
    pub own: Box3,
    /// Ghost cells below and above, by axis.
    pub ghosts: [[u64; 2]; 3],
}

impl FieldLayout {
    /// A layout of `own` with `ghosts`.
    #[must_use]
    pub fn new(own: Box3, ghosts: [[u64; 2]; 3]) -> Self {
        FieldLayout { own, ghosts }
    }

    /// Extent of the array along each axis.
    #[must_use]
    pub fn shape(&self) -> [u64; 3] {
        let own = extent(&self.own);
        [0, 1, 2].map(|a| own[a].saturating_add(self.ghosts[a][0]).saturating_add(self.ghosts[a][1]))
    }

    /// Elements from one cell to the next along each axis.
    #[must_use]
    pub fn strides(&self) -> [u64; 3] {
        let shape = self.shape();
        [shape[1].saturating_mul(shape[2]), shape[2], 1]
    }

    /// Index of the first own cell.
    #[must_use]
    pub fn offset(&self) -> u64 {
        let strides = self.strides();
        (0..3).fold(0, |at: u64, a| at.saturating_add(self.ghosts[a][0].saturating_mul(strides[a])))
    }

    /// Returns the number of cells, ghosts included; `u64::MAX` where it is more.
    #[must_use]
    pub fn len(&self) -> u64 {
        product(self.shape())
    }

    /// Returns `true` if the layout has no cells.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
