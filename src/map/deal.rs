//! Which rank has which items; pure data.

use std::ops::Range;

use crate::grid::split;

/// A distribution of items in contiguous blocks, one for each rank, whose lengths differ by at most
/// one.
///
/// ```
/// use meshloom::map::Deal;
/// let deal = Deal { items: 13, ranks: 5 };
/// assert_eq!((0..5).map(|rank| deal.block(rank)).collect::<Vec<_>>(), [0..3, 3..6, 6..9, 9..11, 11..13]);
/// assert_eq!(deal.most(), 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    /// Items of all ranks.
    pub items: u64,
    /// Ranks, at least one.
    pub ranks: usize,
}

impl Deal {
    /// Returns the items of a rank.
    #[must_use]
    pub fn block(&self, rank: usize) -> Range<u64> {
        split(self.items, self.ranks as u64, rank as u64)
    }

    /// Returns how many each rank has.
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        let len = |block: Range<u64>| block.end - block.start;
        (0..self.ranks).map(|rank| len(self.block(rank))).collect()
    }

    /// Items of the rank that has the most.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.items.div_ceil(self.ranks as u64)
    }
}
