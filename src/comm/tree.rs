//! Binomial trees, along which short blocks of all ranks travel to one and back.
//!
//! Ranks are counted from the root on. Rank `v` has the parent `v` with its lowest set bit cleared,
//! and below it lie the ranks from `v` to that bit further: log2(size) messages in a row, and as
//! many at the busiest rank.

use super::{Call, Communicator, Result};
use crate::host_memory;

/// A rank's place in the tree.
pub(super) struct Tree {
    root: usize,
    size: usize,
    /// This rank, counted from the root.
    me: usize,
    /// The lowest set bit of `me`; at the root the power of two that no rank reaches.
    lowest: usize,
}

impl Tree {
    pub fn new(comm: &Communicator, root: usize) -> Tree {
        let size = comm.size();
        let me = (comm.rank() + size - root) % size;
        let lowest = if me == 0 { size.next_power_of_two() } else { 1 << me.trailing_zeros() };
        Tree { root, size, me, lowest }
    }

    /// Returns how many ranks this one and those below it are.
    pub fn below(&self) -> usize {
        self.lowest.min(self.size - self.me)
    }

    /// Returns the rank of the communicator at position `relative` from the root.
    pub fn absolute(&self, relative: usize) -> usize {
        (relative + self.root) % self.size
    }

    /// Returns the rank above.
    pub fn parent(&self) -> Option<usize> {
        (self.me != 0).then(|| self.absolute(self.me - self.lowest))
    }

    /// Returns the ranks right below, the nearest first: the rank, how far from here the ranks
    /// below it begin, and how many they are.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = (usize, usize, usize)> + '_ {
        let distances = (0..self.lowest.trailing_zeros()).map(|bit| 1 << bit);
        let inside = move |&distance: &usize| self.me + distance < self.size;
        let child = move |distance: usize| {
            (self.absolute(self.me + distance), distance, distance.min(self.size - self.me - distance))
        };
        distances.filter(inside).map(child)
    }
}

impl Communicator {
    /// Brings the blocks of all ranks to the root of `tree`: returns those of this rank and the
    /// ranks below it, one after the other. `sizes` are their bytes.
    pub(super) fn gather_tree(&self, call: &Call, tree: &Tree, mine: &[u8], sizes: &[usize]) -> Result<Vec<u8>> {
        let bytes = |first: usize, ranks: usize| sizes[first..first + ranks].iter().sum::<usize>();
        let children = tree.children().map(|(child, first, ranks)| self.receive_some(call, child, bytes(first, ranks)));
        let children = children.collect::<Result<Vec<_>>>()?;
        let mut held = host_memory::reserve("a message", bytes(0, sizes.len()))?;
        held.extend_from_slice(mine);
        for receiving in children.into_iter().flatten() {
            held.extend_from_slice(&receiving.wait()?);
        }
        if let Some(parent) = tree.parent().filter(|_| !held.is_empty()) {
            self.send_part(call, parent, &held)?.wait()?;
        }
        Ok(held)
    }

    /// Brings blocks from the root of `tree`, which has those of all ranks in `all`, to their
    /// ranks: returns those of this rank and the ranks below it, one after the other. `sizes` are
    /// their bytes.
    pub(super) fn scatter_tree(&self, call: &Call, tree: &Tree, all: Vec<u8>, sizes: &[usize]) -> Result<Vec<u8>> {
        let bytes = |first: usize, ranks: usize| sizes[first..first + ranks].iter().sum::<usize>();
        let held = match tree.parent() {
            Some(parent) => match self.receive_some(call, parent, bytes(0, sizes.len()))? {
                Some(receiving) => receiving.wait()?.to_vec(),
                None => Vec::new(),
            },
            None => all,
        };
        let mut sendings = Vec::new();
        for (child, first, ranks) in tree.children().rev() {
            let (start, bytes) = (bytes(0, first), bytes(first, ranks));
            if bytes > 0 {
                sendings.push(self.send_part(call, child, &held[start..start + bytes])?);
            }
        }
        sendings.into_iter().try_for_each(|sending| sending.wait().map(drop))?;
        Ok(held)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CommError, run_threads};
    use super::*;

    #[test]
    fn every_rank_hangs_below_another_and_none_has_more_than_log2_children() {
        for size in [1, 2, 3, 5, 8, 13] {
            for root in [0, size / 2, size - 1] {
                let of_rank = |comm: Communicator| {
                    let tree = Tree::new(&comm, root);
                    Ok::<_, CommError>((tree.parent(), tree.below(), tree.children().collect::<Vec<_>>()))
                };
                let ranks = run_threads(size, of_rank).unwrap();
                assert_eq!((ranks[root].0, ranks[root].1), (None, size));
                for (rank, (_, below, children)) in ranks.iter().enumerate() {
                    assert!(children.len() <= size.next_power_of_two().trailing_zeros() as usize);
                    let mut at = 1;
                    for &(child, first, count) in children {
                        assert_eq!((ranks[child].0, ranks[child].1, first), (Some(rank), count, at));
                        at += count;
                    }
                    assert_eq!(at, *below);
                }
            }
        }
    }
}
