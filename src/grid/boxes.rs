//! Boxes of cells.

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
