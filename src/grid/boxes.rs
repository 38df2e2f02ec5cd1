//! Boxes of cells, the parts of an axis, and the layout of a distributed field in a rank's array.

use std::ops::Range;

/// A box of cells: a range along each of the three axes.
pub type Box3 = [Range<u64>; 3];

/// Extent of a box along each axis; 0 where a range ends before it begins.
#[must_use]
pub fn extent(cells: &Box3) -> [u64; 3] {
    [0, 1, 2].map(|a| cells[a].end.saturating_sub(cells[a].start))
}

/// Returns the number of cells of a box; `u64::MAX` where it is more. It never wraps, as unchecked
/// kernels rely on it.
#[must_use]
pub fn volume(cells: &Box3) -> u64 {
    product(extent(cells))
}

pub(super) fn product(shape: [u64; 3]) -> u64 {
    shape.into_iter().fold(1, u64::saturating_mul)
}

/// Returns part `i` of `0..n` in `parts` parts.
///
/// Sizes differ by at most one; the larger parts come first. With more parts than elements the last
/// parts are empty, and so is any part beyond them.
///
/// # Panics
/// If `parts` is 0.
///
/// ```
/// use meshloom::grid::split;
/// assert_eq!([split(10, 4, 0), split(10, 4, 1), split(10, 4, 2), split(10, 4, 3)], [0..3, 3..6, 6..8, 8..10]);
/// assert_eq!([split(2, 3, 2), split(u64::MAX, 3, u64::MAX)], [2..2, u64::MAX..u64::MAX]);
/// ```
#[must_use]
pub fn split(n: u64, parts: u64, i: u64) -> Range<u64> {
    assert!(parts > 0, "elements are cut into one part at least");
    let start = |i: u64| (i.saturating_mul(n / parts)).saturating_add(i.min(n % parts)).min(n);
    start(i)..start(i.saturating_add(1))
}

/// Returns the part of [`split`] that holds element `at < n`.
///
/// # Panics
/// If `at` is not below `n`, or `parts` is 0.
///
/// ```
/// use meshloom::grid::{owner, split};
/// assert!((0..10).all(|at| split(10, 4, owner(10, 4, at)).contains(&at)));
/// ```
#[must_use]
pub fn owner(n: u64, parts: u64, at: u64) -> u64 {
    assert!(parts > 0 && at < n, "element {at} of {n} in {parts} parts");
    let (base, larger) = (n / parts, n % parts);
    if at < larger * (base + 1) { at / (base + 1) } else { larger + (at - larger * (base + 1)) / base }
}

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
