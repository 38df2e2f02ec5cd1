//! Process grids and the boxes they cut a mesh into.

use super::{Box3, LayoutError, Shares};

/// Ranks in a grid of `p0 x p1` that cuts the first two axes of a mesh; the last axis is never cut.
///
/// - Rank `r` has the position `[r / p1, r % p1]`.
/// - `p1 == 1` are *slabs*, anything else *pencils*.
/// - A line of ranks with the same planes has the sum of their [`Shares`], and so has a line with
///   the same rows. Parts are in proportion to the shares only if ranks of equal shares form the
///   lines: neighbors in rank order with the same planes, as in `4,4,1,1` over `2x2`.
///
/// ```
/// use meshloom::grid::Grid;
/// let grid = Grid::new([2, 3], 6)?;
/// assert_eq!(grid.part([9, 9, 9], 5), [5..9, 6..9, 0..9]);
/// assert_eq!(grid.neighbors(4, 1), [3, 4, 5]); // the ranks along axis 1 through rank 4
/// # Ok::<(), meshloom::grid::LayoutError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grid {
    parts: [usize; 2],
    shares: Shares,
    /// Shares of the parts along the first two axes.
    along: [Shares; 2],
}

impl Grid {
    /// Creates the grid `parts[0] x parts[1]` for a number of ranks, or for ranks with [`Shares`].
    ///
    /// # Errors
    /// [`LayoutError::Grid`] when the product is not the number of ranks.
    pub fn new(parts: [usize; 2], ranks: impl Into<Shares>) -> Result<Self, LayoutError> {
        let shares = ranks.into();
        match parts[0].checked_mul(parts[1]) {
            Some(product) if product == shares.ranks() && product > 0 => Ok(Self::of_parts(parts, shares)),
            _ => Err(LayoutError::Grid { parts, ranks: shares.ranks() }),
        }
    }

    /// Creates the grid of parts whose product is the number of ranks.
    fn of_parts(parts: [usize; 2], shares: Shares) -> Self {
        let [p0, p1] = parts;
        let along = if shares.are_equal() {
            parts.map(Shares::from)
        } else {
            [shares.sums((0..p0).map(|i| i * p1..(i + 1) * p1)), shares.sums((0..p1).map(|j| (j..p0 * p1).step_by(p1)))]
        };
        Grid { parts, shares, along }
    }

    /// Returns all grids for a number of ranks, or for ranks with [`Shares`], from slabs on.
    pub fn all(ranks: impl Into<Shares>) -> impl Iterator<Item = Self> {
        let shares = ranks.into();
        (1..=shares.ranks())
            .filter(move |parts| shares.ranks().is_multiple_of(*parts))
            .map(move |parts| Self::of_parts([shares.ranks() / parts, parts], shares))
    }

    /// Returns all grids for a number of ranks, or for ranks with [`Shares`], in the order of
    /// preference among equal ones: slabs, pencils whose second axis is the `ranks_per_node` ranks
    /// of a node, then the others. One of the two exchanges of a transform stays within nodes with
    /// such pencils.
    pub fn candidates(ranks: impl Into<Shares>, ranks_per_node: usize) -> impl Iterator<Item = Self> {
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
    /// each of equal parts has at least two planes; else the pencils whose largest part is
    /// smallest. A mesh with ghost cells may do better with pencils long before: a slab has as many
    /// of them on any number of ranks.
    #[must_use]
    pub fn auto(shape: [u64; 3], ranks: impl Into<Shares>) -> Self {
        let shares = ranks.into();
        let shares = if shares.ranks() == 0 { Shares::from(1) } else { shares };
        let slabs = Self::of_parts([shares.ranks(), 1], shares);
        if 2 * shares.ranks() as u64 <= shape[0] || shares.ranks() == 1 {
            return slabs;
        }
        let largest = |grid: &Self| {
            // The transform cuts axes 0 and 1 by p0 and axes 1 and 2 by p1, in turn.
            let most = |axis: usize, line: usize| grid.along[line].most(shape[axis]);
            let cells = |sides: [u64; 3]| sides.into_iter().map(u128::from).fold(1, u128::saturating_mul);
            let real = cells([most(0, 0), most(1, 1), shape[2]]);
            // Of grids with equal largest parts, the one that cuts the field itself best.
            (real.max(cells([shape[0], most(1, 0), most(2, 1)])), real)
        };
        Self::all(shares).min_by_key(largest).unwrap_or(slabs)
    }

    /// Returns the shares of all ranks.
    #[must_use]
    pub fn shares(&self) -> Shares {
        self.shares
    }

    /// Returns the shares of the parts along `axis`; one part along the last.
    ///
    /// ```
    /// use meshloom::grid::{Grid, Shares};
    /// let grid = Grid::new([2, 2], Shares::new(&[4.0, 4.0, 1.0, 1.0])?)?;
    /// assert_eq!(grid.shares_along(0), Shares::new(&[4.0, 1.0])?);
    /// assert_eq!(grid.shares_along(1), Shares::from(2));
    /// assert_eq!(grid.part([10, 10, 10], 3), [8..10, 5..10, 0..10]);
    /// # Ok::<(), meshloom::grid::LayoutError>(())
    /// ```
    #[must_use]
    pub fn shares_along(&self, axis: usize) -> Shares {
        self.along.get(axis).copied().unwrap_or(Shares::from(1))
    }

    /// Returns the rank whose memory tells whether `rank` has enough for its part of a mesh of
    /// `shape`: the largest one if shares are equal, so that ranks with equal devices decide alike,
    /// else the rank itself.
    #[must_use]
    pub fn rank_to_check(&self, shape: [u64; 3], rank: usize) -> usize {
        if self.shares.are_equal() { self.largest(shape) } else { rank }
    }

    /// Returns the rank with the most cells of a mesh of `shape`.
    #[must_use]
    pub fn largest(&self, shape: [u64; 3]) -> usize {
        let [i, j] = [0, 1].map(|axis| self.along[axis].largest(shape[axis]));
        i * self.parts[1] + j
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
            _ => self.along[a].split(shape[a], at[a]),
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

/// Writes the parts, and the shares unless they are equal.
impl std::fmt::Debug for Grid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")?;
        if self.shares.are_equal() { Ok(()) } else { write!(f, " with shares {}", self.shares) }
    }
}
