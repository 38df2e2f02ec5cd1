//! Process grids and the boxes they cut a mesh into.

use super::boxes::Box3;
use super::error::LayoutError;
use super::split::split;

/// Ranks in a grid of `p0 x p1` that cuts the first two axes of a mesh; the last axis is never cut.
///
/// - Rank `r` has the position `[r / p1, r % p1]`.
/// - `p1 == 1` are *slabs*, anything else *pencils*.
///
/// ```
/// use meshloom::grid::Grid;
/// let grid = Grid::new([2, 3], 6)?;
/// assert_eq!(grid.part([9, 9, 9], 5), [5..9, 6..9, 0..9]);
/// assert_eq!(grid.neighbors(4, 1), [3, 4, 5]); // the ranks along axis 1 through rank 4
/// # Ok::<(), meshloom::grid::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    parts: [usize; 2],
}

impl Grid {
    /// Creates the grid `parts[0] x parts[1]` for `ranks` ranks.
    ///
    /// # Errors
    /// [`LayoutError::Grid`] when the product is not `ranks`.
    pub fn new(parts: [usize; 2], ranks: usize) -> Result<Self, LayoutError> {
        match parts[0].checked_mul(parts[1]) {
            Some(product) if product == ranks && ranks > 0 => Ok(Grid { parts }),
            _ => Err(LayoutError::Grid { parts, ranks }),
        }
    }

    /// Returns all grids for `ranks` ranks, from slabs on.
    pub fn all(ranks: usize) -> impl Iterator<Item = Self> {
        (1..=ranks)
            .filter(move |parts| ranks.is_multiple_of(*parts))
            .map(move |parts| Grid { parts: [ranks / parts, parts] })
    }

    /// Returns all grids for `ranks` ranks, in the order of preference among equal ones: slabs,
    /// pencils whose second axis is the `ranks_per_node` ranks of a node, then the others. One of
    /// the two exchanges of a transform stays within nodes with such pencils.
    pub fn candidates(ranks: usize, ranks_per_node: usize) -> impl Iterator<Item = Self> {
        let place = move |grid: &Self| match grid.parts[1] {
            1 => 0,
            columns if columns == ranks_per_node => 1,
            _ => 2,
        };
        let mut grids: Vec<Self> = Self::all(ranks).collect();
        grids.sort_by_key(place);
        grids.into_iter()
    }

    /// A grid for a mesh of `shape`: slabs, with which a transform needs one exchange, as long as
    /// each rank gets at least two planes; else the pencils whose largest part is smallest. A mesh
    /// with ghost cells may do better with pencils long before: a slab has as many of them on any
    /// number of ranks.
    #[must_use]
    pub fn auto(shape: [u64; 3], ranks: usize) -> Self {
        let ranks = ranks.max(1);
        if 2 * ranks as u64 <= shape[0] || ranks == 1 {
            return Grid { parts: [ranks, 1] };
        }
        let largest = |grid: &Self| {
            // The transform cuts axes 0 and 1 by p0 and axes 1 and 2 by p1, in turn.
            let [p0, p1] = grid.parts.map(|p| p as u64);
            let cells = |sides: [u64; 3]| sides.into_iter().map(u128::from).fold(1, u128::saturating_mul);
            let real = cells([shape[0].div_ceil(p0), shape[1].div_ceil(p1), shape[2]]);
            // Of grids with equal largest parts, the one that cuts the field itself best.
            (real.max(cells([shape[0], shape[1].div_ceil(p0), shape[2].div_ceil(p1)])), real)
        };
        Self::all(ranks).min_by_key(largest).unwrap_or(Grid { parts: [ranks, 1] })
    }

    /// Parts along the first two axes.
    #[must_use]
    pub fn parts(&self) -> [usize; 2] {
        self.parts
    }

    /// Parts along `axis`; one along the last.
    #[must_use]
    pub fn along(&self, axis: usize) -> usize {
        self.parts.get(axis).copied().unwrap_or(1)
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.parts[0] * self.parts[1]
    }

    /// Returns the position of `rank` in the grid.
    #[must_use]
    pub fn at(&self, rank: usize) -> [usize; 2] {
        [rank / self.parts[1], rank % self.parts[1]]
    }

    /// Returns the part of a mesh of `shape` that `rank` owns; empty for a rank that the grid does
    /// not have.
    #[must_use]
    pub fn part(&self, shape: [u64; 3], rank: usize) -> Box3 {
        let at = self.at(rank);
        [0, 1, 2].map(|a| match a {
            2 => 0..shape[2],
            _ => split(shape[a], self.parts[a] as u64, at[a] as u64),
        })
    }

    /// Returns the ranks that differ from `rank` in their position along `axis` only, with itself,
    /// in order.
    #[must_use]
    pub fn neighbors(&self, rank: usize, axis: usize) -> Vec<usize> {
        let [i, j] = self.at(rank);
        match axis {
            0 => (0..self.parts[0]).map(|i| i * self.parts[1] + j).collect(),
            1 => (0..self.parts[1]).map(|j| i * self.parts[1] + j).collect(),
            _ => vec![rank],
        }
    }
}

impl std::fmt::Display for Grid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.parts[0], self.parts[1])
    }
}
