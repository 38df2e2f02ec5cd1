//! The shape of a packed tree: pure arithmetic.

/// Points per leaf.
pub const LEAF: u64 = 32;
/// Children per node.
pub const FAN: u64 = 8;
/// Levels that 2^31 points can have, and one more for the end.
const MAX_LEVELS: usize = 12;

/// The levels of a tree. A leaf is [`LEAF`] consecutive points, a node of the next level [`FAN`]
/// consecutive nodes of this one, up to a level of at most [`FAN`] nodes. Nodes are numbered level
/// after level, leaves first.
///
/// ```
/// use meshloom::points::tree::Levels;
///
/// let levels = Levels::new(1000); // 32 leaves in 4 nodes
/// assert_eq!((levels.count(), levels.nodes(0), levels.nodes(1), levels.total()), (2, 32, 4, 36));
/// assert_eq!(levels.children(1, 3), 24..32);
/// assert_eq!(levels.points(0, 31), 992..1000);
/// assert_eq!(Levels::new(0).total(), 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    points: u64,
    /// First node of each level, and the number of all nodes.
    starts: Vec<u64>,
}

impl Levels {
    /// Creates the levels over `points` points.
    #[must_use]
    pub fn new(points: u64) -> Self {
        let mut starts = vec![0];
        let mut nodes = points.div_ceil(LEAF);
        let mut end = 0;
        while nodes > 0 {
            end += nodes;
            starts.push(end);
            nodes = if nodes > FAN { nodes.div_ceil(FAN) } else { 0 };
        }
        Levels { points, starts }
    }

    /// Returns the number of levels; none without points.
    #[must_use]
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the number of nodes of all levels.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.starts[self.count()]
    }

    /// First node of a level; behind the last level, the number of all nodes.
    #[must_use]
    pub fn start(&self, level: usize) -> u64 {
        self.starts[level]
    }

    /// Returns the number of nodes of a level.
    #[must_use]
    pub fn nodes(&self, level: usize) -> u64 {
        self.starts[level + 1] - self.starts[level]
    }

    /// Returns the nodes of level `level - 1` that the node number `node` of `level` holds, counted
    /// within their level.
    #[must_use]
    pub fn children(&self, level: usize, node: u64) -> std::ops::Range<u64> {
        node * FAN..((node + 1) * FAN).min(self.nodes(level - 1))
    }

    /// Returns the points, along the curve, that the node number `node` of `level` holds.
    #[must_use]
    pub fn points(&self, level: usize, node: u64) -> std::ops::Range<u64> {
        let each = LEAF * FAN.pow(level as u32);
        node * each..((node + 1) * each).min(self.points)
    }

    /// [`Levels::start`] of all levels and the end, as kernels take them.
    pub(crate) fn words(&self) -> [[u32; 4]; MAX_LEVELS / 4] {
        let mut words = [[0; 4]; MAX_LEVELS / 4];
        self.starts.iter().zip(words.as_flattened_mut()).for_each(|(&start, word)| *word = start as u32);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_in_one_node_of_every_level() {
        for points in [0, 1, 31, 32, 33, 256, 257, 2048, 2049, 16_384, 16_385, 131_073] {
            let levels = Levels::new(points);
            for level in 0..levels.count() {
                let ranges: Vec<_> = (0..levels.nodes(level)).map(|node| levels.points(level, node)).collect();
                assert_eq!(ranges.iter().map(|r| r.end - r.start).sum::<u64>(), points);
                assert!(ranges.iter().all(|r| !r.is_empty()), "{points} {level}");
                if level > 0 {
                    let children: Vec<_> = (0..levels.nodes(level)).map(|node| levels.children(level, node)).collect();
                    assert_eq!(children.iter().map(|r| r.end - r.start).sum::<u64>(), levels.nodes(level - 1));
                    assert!(children.iter().all(|r| !r.is_empty()));
                }
            }
            assert_eq!(levels.count() == 0, points == 0);
            if points > 0 {
                assert!(levels.nodes(levels.count() - 1) <= FAN);
            }
        }
    }

    #[test]
    fn the_largest_tree_fits_the_kernels() {
        let levels = Levels::new((1 << 31) - 1);
        assert!(levels.count() < MAX_LEVELS && levels.total() < 1 << 28, "{levels:?}");
        // The stack of a traversal (`STACK` of searches) holds at most FAN - 1 nodes per level and
        // the one it is at.
        assert!(levels.count() as u64 * (FAN - 1) < 80);
    }
}
