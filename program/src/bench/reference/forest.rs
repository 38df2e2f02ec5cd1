//! A disjoint-set forest for many threads.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rayon::prelude::*;

/// The parent of each element: itself, or an element before it (Jayanti and Tarjan, *Concurrent disjoint set union*, 2021).
///
/// A parent is only replaced by a smaller element of the same set, so a stale value is still an ancestor: relaxed ordering
/// suffices.
pub struct Forest(Vec<AtomicU32>);

impl Forest {
    /// `count` elements, each a set of its own.
    pub fn new(count: usize) -> Self {
        Forest((0..count as u32).into_par_iter().map(AtomicU32::new).collect())
    }

    /// The root of the set of an element. Elements on the path are linked closer to it (path halving).
    fn root(&self, mut at: u32) -> u32 {
        loop {
            let parent = &self.0[at as usize];
            let up = parent.load(Relaxed);
            let top = self.0[up as usize].load(Relaxed);
            if top == up {
                return up;
            }
            // If another thread has changed the parent, it is closer to the root already.
            let _ = parent.compare_exchange_weak(up, top, Relaxed, Relaxed);
            at = top;
        }
    }

    /// Unites two sets and returns the root, which another thread may have linked to another root since.
    pub fn unite(&self, one: u32, other: u32) -> u32 {
        let (mut a, mut b) = (one, other);
        loop {
            (a, b) = (self.root(a), self.root(b));
            let (low, high) = (a.min(b), a.max(b));
            if low == high || self.0[high as usize].compare_exchange(high, low, Relaxed, Relaxed).is_ok() {
                return low;
            }
        }
    }

    /// For each element the least element of its set.
    pub fn least(&self) -> Vec<u32> {
        (0..self.0.len() as u32).into_par_iter().map(|element| self.root(element)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_grow_from_all_threads() {
        let forest = Forest::new(7);
        assert_eq!((forest.unite(5, 3), forest.unite(6, 5), forest.unite(3, 6)), (3, 3, 3));
        assert_eq!((forest.unite(1, 2), forest.unite(2, 6)), (1, 1));
        assert_eq!(forest.least(), [0, 1, 1, 1, 4, 1, 1]);
        // Seven chains through all elements, their links made in an order that no two neighbours share.
        let (count, step) = (70_000, 7);
        let forest = Forest::new(count as usize);
        let links: Vec<u32> = (0..count - step).map(|i| (i * 27_457) % (count - step)).collect();
        links.par_iter().for_each(|&from| {
            forest.unite(from, from + step);
        });
        assert!(forest.least().iter().zip(0..).all(|(&least, element)| least == element % step));
    }
}
