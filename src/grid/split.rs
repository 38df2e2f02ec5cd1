//! Cutting an axis into parts.

use std::ops::Range;

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
