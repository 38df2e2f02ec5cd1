//! Searches on the CPU, with kiddo's tree and rayon.
//!
//! The tree has no periodic boxes: a query near a face is repeated for its periodic images within
//! reach of the box.

use std::num::NonZero;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use kiddo::immutable::float::kdtree::ImmutableKdTree;
use kiddo::{NearestNeighbour, SquaredEuclidean};
use rayon::prelude::*;

/// Name of the reference in reports.
pub const NAME: &str = "kiddo 5, ImmutableKdTree of f32, searched by rayon";

/// Points of a leaf, as kiddo recommends.
const BUCKET: usize = 32;

/// Points in host memory, and the tree over them.
pub struct Reference {
    points: Vec<[f32; 3]>,
    side: Option<f32>,
    tree: ImmutableKdTree<f32, u32, 3, BUCKET>,
}

impl Reference {
    /// Creates a tree of points with three coordinates each, in a periodic box of this side if
    /// there is one. `None` if this build does not include the library.
    pub fn new(points: &[f32], side: Option<f32>) -> Option<Self> {
        let points: Vec<[f32; 3]> = points.chunks_exact(3).map(|x| [x[0], x[1], x[2]]).collect();
        let tree = ImmutableKdTree::new_from_slice(&points);
        Some(Reference { points, side, tree })
    }

    /// Returns the number of points.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Side of the periodic box; 0 for an open one.
    pub fn side(&self) -> f32 {
        self.side.unwrap_or(0.0)
    }

    /// Builds the tree again.
    pub fn build(&mut self) {
        self.tree = ImmutableKdTree::new_from_slice(&self.points);
    }

    /// Finds the `k` nearest neighbors of each point, index and distance, nearest first. Missing
    /// entries are not written.
    pub fn nearest(&self, k: NonZero<usize>, rows: &mut [(u32, f32)]) {
        rows.par_chunks_mut(k.get()).zip(&self.points).for_each(|(row, point)| {
            let mut near = self.tree.nearest_n::<SquaredEuclidean>(point, k);
            let reach = if near.len() < k.get() { f32::INFINITY } else { near[k.get() - 1].distance };
            let own = near.len();
            for image in self.images(point, reach) {
                near.extend(self.tree.nearest_n_within::<SquaredEuclidean>(&image, reach, k, true));
            }
            if near.len() > own {
                near = nearest_images(near);
            }
            for (entry, near) in row.iter_mut().zip(near) {
                *entry = (near.item, near.distance.sqrt());
            }
        });
    }

    /// Ordered pairs of different points by distance: bin `i` holds `edges[i] <= r < edges[i + 1]`.
    /// In a periodic box the last edge is at most half a side.
    pub fn pairs(&self, edges: &[f32]) -> Vec<u64> {
        let bins = edges.len() - 1;
        let reach = edges[bins] * edges[bins];
        let count = |mut counts: Vec<u64>, (number, point): (usize, &[f32; 3])| {
            let mut add = |place: &[f32; 3]| {
                for near in self.tree.within_unsorted::<SquaredEuclidean>(place, reach) {
                    let above = edges.partition_point(|&edge| edge <= near.distance.sqrt());
                    if near.item as usize != number && (1..=bins).contains(&above) {
                        counts[above - 1] += 1;
                    }
                }
            };
            add(point);
            self.images(point, reach).for_each(|image| add(&image));
            counts
        };
        let sum = |mut a: Vec<u64>, b: Vec<u64>| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        };
        let none = || vec![0; bins];
        self.points.par_iter().enumerate().fold(none, count).reduce(none, sum)
    }

    /// Groups of points that are linked by distances up to `length`, also across periodic faces:
    /// for each point the least index in its group.
    pub fn groups(&self, length: f32) -> Vec<u32> {
        let forest = Forest::new(self.points.len());
        let reach = length * length;
        self.points.par_iter().enumerate().for_each(|(number, point)| {
            let number = number as u32;
            let mut root = number;
            let mut link = |place: &[f32; 3]| {
                for near in self.tree.within_unsorted::<SquaredEuclidean>(place, reach) {
                    if near.item > number {
                        root = forest.unite(root, near.item);
                    }
                }
            };
            link(point);
            self.images(point, reach).for_each(|image| link(&image));
        });
        forest.least()
    }

    /// Returns the periodic images of a point whose squared distance to the box is at most `reach`.
    fn images(&self, point: &[f32; 3], reach: f32) -> impl Iterator<Item = [f32; 3]> {
        let (point, side) = (*point, self.side());
        let shifts = if self.side.is_some() { 27 } else { 0 };
        (0..shifts).filter(|&shift| shift != 13).filter_map(move |shift| {
            let along = [shift / 9 % 3, shift / 3 % 3, shift % 3];
            let mut squared = 0.0;
            for axis in 0..3 {
                let beyond = [side - point[axis], 0.0, point[axis]][along[axis]];
                squared += beyond * beyond;
            }
            (squared <= reach).then(|| [0, 1, 2].map(|axis| point[axis] + side * (along[axis] as f32 - 1.0)))
        })
    }
}

/// Sorts nearest first, and keeps the nearest of several images of a point.
fn nearest_images(mut near: Vec<NearestNeighbour<f32, u32>>) -> Vec<NearestNeighbour<f32, u32>> {
    near.sort_by(|a, b| (a.distance.total_cmp(&b.distance)).then(a.item.cmp(&b.item)));
    let mut kept: Vec<NearestNeighbour<f32, u32>> = Vec::with_capacity(near.len());
    for near in near {
        if kept.iter().all(|other| other.item != near.item) {
            kept.push(near);
        }
    }
    kept
}

/// The parent of each element: itself, or an element before it (Jayanti and Tarjan, *Concurrent
/// disjoint set union*, 2021).
///
/// A parent is only replaced by a smaller element of the same set, so a stale value is still an
/// ancestor: relaxed ordering suffices.
struct Forest(Vec<AtomicU32>);

impl Forest {
    /// `count` elements, each a set of its own.
    pub fn new(count: usize) -> Self {
        Forest((0..count as u32).into_par_iter().map(AtomicU32::new).collect())
    }

    /// Returns the root of the set of an element. Elements on the path are linked closer to it
    /// (path halving).
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

    /// Unites two sets and returns the root, which another thread may have linked to another root
    /// since.
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
    fn images_are_seen_across_the_faces() {
        let points = [0.25, 5.0, 5.0, 9.75, 5.0, 5.0, 5.0, 5.0, 9.5, 5.0, 5.0, 0.0];
        let found = |side: Option<f32>| {
            let mut rows = vec![(u32::MAX, f32::INFINITY); 8];
            Reference::new(&points, side).unwrap().nearest(NonZero::new(2).unwrap(), &mut rows);
            [rows[1], rows[3], rows[5], rows[7]]
        };
        let periodic = [(1, 0.5), (0, 0.5), (3, 0.5), (2, 0.5)];
        assert_eq!(found(Some(10.0)), periodic);
        assert_ne!(found(None), periodic);
        let pairs = |side: Option<f32>| Reference::new(&points, side).unwrap().pairs(&[0.0, 0.5, 1.0]);
        assert_eq!((pairs(Some(10.0)), pairs(None)), (vec![0, 4], vec![0, 0]));
    }

    #[test]
    fn groups_reach_through_faces() {
        // A chain through the face in x, a pair through an edge, and a point alone.
        let chain = [9.0, 5.0, 5.0, 0.0, 0.25, 5.0, 0.5, 5.0, 5.0, 9.75, 5.0, 5.0];
        let points = [&chain[..], &[9.75, 9.75, 5.0, 5.0, 5.0, 5.0]].concat();
        let groups = |side: Option<f32>, length: f32| Reference::new(&points, side).unwrap().groups(length);
        assert_eq!(groups(Some(10.0), 0.75), [0, 1, 0, 0, 1, 5], "lengths count themselves");
        assert_eq!(groups(Some(10.0), 0.5625), [0, 1, 2, 3, 1, 5]);
        assert_eq!(groups(None, 0.75), [0, 1, 2, 0, 4, 5]);
        assert_eq!(groups(Some(10.0), 4.8), [0; 6]);
    }

    #[test]
    fn sets_grow_from_all_threads() {
        let forest = Forest::new(7);
        assert_eq!((forest.unite(5, 3), forest.unite(6, 5), forest.unite(3, 6)), (3, 3, 3));
        assert_eq!((forest.unite(1, 2), forest.unite(2, 6)), (1, 1));
        assert_eq!(forest.least(), [0, 1, 1, 1, 4, 1, 1]);
        // Seven chains through all elements, their links made in an order that no two neighbors
        // share.
        let (count, step) = (70_000, 7);
        let forest = Forest::new(count as usize);
        let links: Vec<u32> = (0..count - step).map(|i| (i * 27_457) % (count - step)).collect();
        links.par_iter().for_each(|&from| {
            forest.unite(from, from + step);
        });
        assert!(forest.least().iter().zip(0..).all(|(&least, element)| least == element % step));
    }
}
