//! Whether parts make an array once and whole.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::hash::mix;

/// The parts of an array that were written, as two sums, which ranks add up: lengths, and marks of ends less marks of beginnings. Where a part begins where another
/// ends, their marks cancel, so that of parts that make the array only the marks of its own ends are left. Of others more is left: marks are pseudo-random numbers of 64 bits, which
/// do not cancel by chance.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    elements: AtomicU64,
    ends: AtomicU64,
}

impl Coverage {
    /// Takes note of a part.
    pub fn add(&self, part: Range<u64>) {
        self.elements.fetch_add(part.end.wrapping_sub(part.start), Ordering::Relaxed);
        self.ends.fetch_add(mix(part.end).wrapping_sub(mix(part.start)), Ordering::Relaxed);
    }

    /// The two sums.
    pub fn sums(&self) -> [u64; 2] {
        [&self.elements, &self.ends].map(|sum| sum.load(Ordering::Relaxed))
    }
}

/// Whether parts with these sums, modulo 2^64, make an array of `len` elements.
pub(super) fn is_whole(sums: [u64; 2], len: u64) -> bool {
    sums == [len, mix(len).wrapping_sub(mix(0))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_any_order_make_an_array_and_gaps_and_overlaps_do_not() {
        let whole = |parts: &[(u64, u64)]| {
            let coverage = Coverage::default();
            parts.iter().for_each(|&(start, end)| coverage.add(start..end));
            is_whole(coverage.sums(), 10)
        };
        assert!(whole(&[(0, 10)]) && whole(&[(7, 10), (0, 3), (5, 5), (3, 7)]));
        // The last two have ten elements in all.
        let others: [&[(u64, u64)]; 7] =
            [&[], &[(0, 9)], &[(1, 10)], &[(0, 4), (5, 10)], &[(0, 10), (0, 10)], &[(0, 6), (4, 8)], &[(0, 5), (0, 5)]];
        assert!(others.iter().all(|parts| !whole(parts)));
    }
}
