//! Which rank has which items; pure data.

use std::ops::Range;

use crate::grid::Shares;

/// A distribution of items in contiguous blocks, one for each rank, by their shares.
///
/// ```
/// use meshloom::map::Deal;
/// let deal = Deal { items: 13, shares: 5.into() };
/// assert_eq!((0..5).map(|rank| deal.block(rank)).collect::<Vec<_>>(), [0..3, 3..6, 6..9, 9..11, 11..13]);
/// assert_eq!(deal.most(), 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    /// Items of all ranks.
    pub items: u64,
    /// Shares of the ranks, at least one.
    pub shares: Shares,
}

impl Deal {
    /// Returns the items of a rank.
    #[must_use]
    pub fn block(&self, rank: usize) -> Range<u64> {
        self.shares.split(self.items, rank)
    }

    /// Returns how many each rank has.
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        let len = |block: Range<u64>| block.end - block.start;
        (0..self.shares.ranks()).map(|rank| len(self.block(rank))).collect()
    }

    /// Items of the rank that has the most.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.shares.most(self.items)
    }
}
