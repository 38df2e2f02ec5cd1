//! The plan of an exchange of ghost cells: the owners of the cells that ghost cells are copies of.
//!
//! The axes are swept one after the other. The blocks of a sweep span the array's *whole* width
//! along the axes swept before (with their ghosts) and the own cells along those to come, so edges
//! and corners need no messages of their own. A reduction does the same sweeps in reverse order and
//! direction, which makes it the adjoint of the exchange.
//!
//! Widths may exceed a neighbor's part, and even the whole mesh: the owner of each ghost cell is
//! found separately, after as many turns around a periodic axis as needed.

use std::ops::Range;

use super::boxes::product;
use super::{FieldLayout, Grid, LayoutError, Shares, Transfer, Transfers, extent};
use crate::hash::{START, fnv1a};

/// Ghost cells below and above of each part along each axis, as the ranks of one line of a process
/// grid know them.
///
/// Sweeps along an axis move blocks that span the whole width along the axes swept before, so along
/// axis 0 all ranks with the same planes have the same widths; along axis 1 each rank has its own.
/// A rank whose particles move farther widens its own ghost cells and those of ranks with the same
/// planes, but no others.
///
/// ```
/// use meshloom::grid::{Grid, GhostWidths};
///
/// let grid = Grid::new([3, 1], 3)?;
/// let mut widths = GhostWidths::new(grid, 1, [[1, 2], [0, 0], [0, 0]])?;
/// assert!(widths.widen(0, &[[0, 0], [5, 1], [1, 1]], 2));
/// assert_eq!(widths.along(0), [[1, 2], [7, 2], [1, 2]]);
/// assert_eq!(widths.own(), [[7, 2], [0, 0], [0, 0]]);
/// # Ok::<(), meshloom::grid::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GhostWidths {
    along: [Vec<[u64; 2]>; 3],
    at: [usize; 3],
}

impl GhostWidths {
    /// Creates equal widths `[below, above]` by axis on every rank of `grid`, as `rank` sees them.
    ///
    /// # Errors
    /// [`LayoutError::Rank`].
    pub fn new(grid: Grid, rank: usize, widths: [[u64; 2]; 3]) -> Result<Self, LayoutError> {
        if rank >= grid.ranks() {
            return Err(LayoutError::Rank { rank, parts: grid.parts() });
        }
        let [i, j] = grid.at(rank);
        Ok(GhostWidths { along: [0, 1, 2].map(|axis| vec![widths[axis]; grid.along(axis)]), at: [i, j, 0] })
    }

    /// Returns `true` if they are as `rank` of `grid` sees them.
    pub(super) fn are_of(&self, grid: Grid, rank: usize) -> bool {
        let [i, j] = grid.at(rank);
        self.at == [i, j, 0] && (0..3).all(|axis| self.along[axis].len() == grid.along(axis))
    }

    /// Returns the widths of all parts of this rank's line along an axis.
    #[must_use]
    pub fn along(&self, axis: usize) -> &[[u64; 2]] {
        &self.along[axis]
    }

    /// Returns the widths of this rank by axis.
    #[must_use]
    pub fn own(&self) -> [[u64; 2]; 3] {
        [0, 1, 2].map(|axis| self.along[axis][self.at[axis]])
    }

    /// Returns the position of this rank along an axis.
    pub(super) fn position(&self, axis: usize) -> usize {
        self.at[axis]
    }

    /// Widens those along `axis` that are less than `needed`, by part, to `margin` more than that.
    /// Says whether any was.
    pub fn widen(&mut self, axis: usize, needed: &[[u64; 2]], margin: u64) -> bool {
        let mut widened = false;
        for (width, &needed) in self.along[axis].as_flattened_mut().iter_mut().zip(needed.as_flattened()) {
            if needed > *width {
                (*width, widened) = (needed.saturating_add(margin), true);
            }
        }
        widened
    }
}

/// Maximum number of turns of ghost cells around an axis: each turn is planned separately.
const MOST_TURNS: u64 = 1 << 10;

/// A block of cells in an array: first index, extents and the array's strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Index of the first cell.
    pub offset: u64,
    /// Cells along each axis.
    pub extent: [u64; 3],
    /// Elements from one cell to the next along each axis.
    pub strides: [u64; 3],
}

impl Block {
    /// Returns the number of cells.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.extent.iter().product()
    }

    /// Returns `true` if the block has no cells.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if its cells, in C order, are contiguous in the array.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let [_, j, k] = self.extent;
        let packed = [j * k, k, 1];
        self.is_empty() || (0..3).all(|a| self.extent[a] == 1 || self.strides[a] == packed[a])
    }
}

/// This rank's half of a copy between own cells of one rank and ghost cells of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The other rank's index along the axis ([`Grid::neighbors`]).
    pub peer: usize,
    /// The block in this rank's array.
    pub block: Block,
}

/// The copies along one axis.
///
/// Between any two ranks, the links of the owner and of the ghost cells are in the same order
/// and have the same extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The axis.
    pub axis: usize,
    /// Own cells that are ghosts of others, by peer.
    pub owned: Vec<Link>,
    /// Ghost cells, by the peer that owns them.
    pub ghosts: Vec<Link>,
    /// A number of all that the ranks along the axis must have alike: the mesh, how it is cut,
    /// widths, which axes close on themselves.
    pub(crate) alike: u64,
}

impl Sweep {
    /// Returns the messages of the sweep, with `words` elements for each cell: own cells go to the
    /// ranks that have them as ghosts, or in a reduction ghosts to their owners.
    #[must_use]
    pub fn transfers(&self, words: u64, is_reduction: bool) -> Transfers {
        let [owned, ghosts] = [&self.owned, &self.ghosts].map(|links| parts(links, words));
        match is_reduction {
            false => Transfers { send: owned, receive: ghosts },
            true => Transfers { send: ghosts, receive: owned },
        }
    }
}

/// Returns the message of each peer: its links, one after the other.
fn parts(links: &[Link], words: u64) -> Vec<Transfer> {
    let (mut parts, mut at): (Vec<Transfer>, u64) = (Vec::new(), 0);
    for link in links {
        let len = link.block.len() * words;
        match parts.last_mut() {
            Some(part) if part.peer == link.peer => part.len += len,
            _ => parts.push(Transfer { peer: link.peer, start: at, len }),
        }
        at += len;
    }
    parts
}

/// The ghost cells of one rank: its layout and its sweeps, in the order of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GhostPlan {
    /// Cells along each axis of the mesh.
    pub shape: [u64; 3],
    /// Process grid of the mesh.
    pub grid: Grid,
    /// This rank.
    pub rank: usize,
    /// This rank's array.
    pub layout: FieldLayout,
    /// One sweep for each axis that has ghosts.
    pub sweeps: Vec<Sweep>,
}

/// A run of ghosts along an axis that are copies of consecutive cells of one rank.
struct Run {
    owner: usize,
    /// Its first cell, counted from the owner's first.
    from: u64,
    /// First ghost, counted from the array's first cell.
    to: u64,
    len: u64,
}

/// Returns the ghost cells of part `part` of an axis of `n` cells that is cut by `shares`.
fn runs(n: u64, shares: Shares, part: usize, [below, above]: [u64; 2], periodic: bool) -> Vec<Run> {
    let (own, mut runs) = (shares.split(n, part), Vec::new());
    let mut add = |cells: Range<i128>, first: u64| {
        let inside = if periodic { cells.clone() } else { cells.start.max(0)..cells.end.min(n.into()) };
        let mut at = inside.start;
        while at < inside.end {
            let cell = at.rem_euclid(n.into()) as u64;
            let owner = shares.owner(n, cell);
            let theirs = shares.split(n, owner);
            let len = (theirs.end - cell).min((inside.end - at) as u64);
            let to = first + (at - cells.start) as u64;
            runs.push(Run { owner, from: cell - theirs.start, to, len });
            at += i128::from(len);
        }
    };
    let (start, end) = (i128::from(own.start), i128::from(own.end));
    add(start - i128::from(below)..start, 0);
    add(end..end + i128::from(above), below + (own.end - own.start));
    runs
}

impl GhostPlan {
    /// Creates the plan of `rank` on a mesh of `shape` over `grid`, with `ghosts[a] = [below,
    /// above]` cells along axis `a`, equal on every rank. Beyond the ends of an axis that is not
    /// `periodic`, ghost cells have no owner and are not moved.
    ///
    /// # Errors
    /// [`LayoutError::Rank`], [`LayoutError::Empty`], [`LayoutError::Ghosts`],
    /// [`LayoutError::TooLarge`].
    pub fn new(
        shape: [u64; 3],
        grid: Grid,
        rank: usize,
        ghosts: [[u64; 2]; 3],
        periodic: [bool; 3],
    ) -> Result<Self, LayoutError> {
        Self::of_widths(shape, grid, rank, &GhostWidths::new(grid, rank, ghosts)?, periodic)
    }

    /// Same as [`new`](Self::new), with ghost cells as wide as each rank wants them.
    ///
    /// # Errors
    /// Same as [`new`](Self::new); [`LayoutError::Widths`].
    pub fn of_widths(
        shape: [u64; 3],
        grid: Grid,
        rank: usize,
        widths: &GhostWidths,
        periodic: [bool; 3],
    ) -> Result<Self, LayoutError> {
        if rank >= grid.ranks() {
            return Err(LayoutError::Rank { rank, parts: grid.parts() });
        }
        if shape.contains(&0) {
            return Err(LayoutError::Empty { shape });
        }
        if !widths.are_of(grid, rank) {
            return Err(LayoutError::Widths { rank, parts: grid.parts() });
        }
        for axis in 0..3 {
            let (cells, all) = (shape[axis], widths.along(axis).as_flattened());
            let most = cells.saturating_mul(MOST_TURNS);
            if let Some(&width) = all.iter().find(|&&width| width > most) {
                return Err(LayoutError::Ghosts { axis, cells, width, most });
            }
        }
        let ghosts = widths.own();
        let layout = FieldLayout::new(grid.part(shape, rank), ghosts);
        let (own, all, strides) = (extent(&layout.own), layout.shape(), layout.strides());
        // Also where an axis is empty, since strides count the others.
        if product(all.map(|n| n.max(1))) == u64::MAX {
            return Err(LayoutError::TooLarge { shape: all });
        }
        let sweep = |axis: usize| {
            let shares = grid.shares_along(axis);
            let (me, wide) = (widths.position(axis), widths.along(axis));
            let block = |first: u64, len: u64| {
                let mut block = Block { offset: first * strides[axis], extent: all, strides };
                block.extent[axis] = len;
                block.extent[axis + 1..].copy_from_slice(&own[axis + 1..]);
                block.offset += (axis + 1..3).map(|later| ghosts[later][0] * strides[later]).sum::<u64>();
                block
            };
            let mut incoming: Vec<Link> = runs(shape[axis], shares, me, wide[me], periodic[axis])
                .into_iter()
                .map(|run| Link { peer: run.owner, block: block(run.to, run.len) })
                .collect();
            // Stable: links of one peer keep the order of the ghosts, on both sides.
            incoming.sort_by_key(|link| link.peer);
            let owned = (0..shares.ranks())
                .flat_map(|peer| {
                    runs(shape[axis], shares, peer, wide[peer], periodic[axis]).into_iter().map(move |run| (peer, run))
                })
                .filter(|(_, run)| run.owner == me)
                .map(|(peer, run)| Link { peer, block: block(ghosts[axis][0] + run.from, run.len) })
                .collect();
            let along = wide.as_flattened().iter().chain(&shape).copied();
            let cut = [axis as u64, grid.along(0) as u64, grid.along(1) as u64, grid.shares().mark()];
            let alike: Vec<u64> = along.chain(cut).chain(periodic.map(u64::from)).collect();
            Sweep { axis, owned, ghosts: incoming, alike: fnv1a(START, bytemuck::cast_slice(&alike)) }
        };
        let sweeps =
            (0..3).filter(|&axis| widths.along(axis).iter().any(|width| *width != [0, 0])).map(sweep).collect();
        Ok(GhostPlan { shape, grid, rank, layout, sweeps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs an exchange of all ranks on the host, with the same ghost cells on each.
    fn exchange(shape: [u64; 3], parts: [usize; 2], ghosts: [[u64; 2]; 3], periodic: [bool; 3]) {
        let ranks = parts[0] * parts[1];
        let unequal: Vec<f64> = (0..ranks).map(|rank| (1 + 5 * rank % 7) as f64).collect();
        for shares in [Shares::from(ranks), Shares::new(&unequal).unwrap()] {
            let grid = Grid::new(parts, shares).unwrap();
            exchange_of(shape, grid, periodic, &|rank| GhostPlan::new(shape, grid, rank, ghosts, periodic).unwrap());
        }
    }

    /// Runs an exchange of all ranks on the host with arrays of global indices.
    fn exchange_of(shape: [u64; 3], grid: Grid, periodic: [bool; 3], plan: &dyn Fn(usize) -> GhostPlan) {
        const NOBODY: i64 = -1;
        let plans: Vec<_> = (0..grid.ranks()).map(plan).collect();
        let index = |block: &Block, at: [u64; 3]| {
            (block.offset + (0..3).map(|a| at[a] * block.strides[a]).sum::<u64>()) as usize
        };
        let cells =
            |e: [u64; 3]| (0..e[0]).flat_map(move |i| (0..e[1]).flat_map(move |j| (0..e[2]).map(move |k| [i, j, k])));
        let mut arrays: Vec<Vec<i64>> = plans.iter().map(|plan| vec![NOBODY; plan.layout.len() as usize]).collect();
        for (plan, array) in plans.iter().zip(&mut arrays) {
            let own = &plan.layout.own;
            let block = Block { offset: plan.layout.offset(), extent: extent(own), strides: plan.layout.strides() };
            for at in cells(block.extent) {
                let global = [0, 1, 2].map(|a| own[a].start + at[a]);
                array[index(&block, at)] = ((global[0] * shape[1] + global[1]) * shape[2] + global[2]) as i64;
            }
        }
        for sweep in 0..plans[0].sweeps.len() {
            let before = arrays.clone();
            for (rank, plan) in plans.iter().enumerate() {
                let s = &plan.sweeps[sweep];
                let line = grid.neighbors(rank, s.axis);
                let me = line.iter().position(|&r| r == rank).unwrap();
                for (peer, &other) in line.iter().enumerate() {
                    let mine: Vec<_> = s.ghosts.iter().filter(|link| link.peer == peer).collect();
                    let theirs: Vec<_> =
                        plans[other].sweeps[sweep].owned.iter().filter(|link| link.peer == me).collect();
                    assert_eq!(mine.len(), theirs.len(), "links between {rank} and {other}");
                    for (to, from) in mine.iter().zip(&theirs) {
                        assert_eq!(to.block.extent, from.block.extent);
                        for at in cells(to.block.extent) {
                            arrays[rank][index(&to.block, at)] = before[other][index(&from.block, at)];
                        }
                    }
                }
            }
        }
        for (plan, array) in plans.iter().zip(&arrays) {
            let whole = Block { offset: 0, extent: plan.layout.shape(), strides: plan.layout.strides() };
            for at in cells(whole.extent) {
                let cell =
                    [0, 1, 2].map(|a| plan.layout.own[a].start as i64 - plan.layout.ghosts[a][0] as i64 + at[a] as i64);
                let outside = (0..3).any(|a| !periodic[a] && !(0..shape[a] as i64).contains(&cell[a]));
                let cell = [0, 1, 2].map(|a| cell[a].rem_euclid(shape[a] as i64));
                let expected = (cell[0] * shape[1] as i64 + cell[1]) * shape[2] as i64 + cell[2];
                assert_eq!(array[index(&whole, at)], if outside { NOBODY } else { expected }, "at {at:?} of {plan:?}");
            }
        }
    }

    #[test]
    fn ghosts_hold_the_cells_they_stand_for() {
        let closed = [true; 3];
        exchange([8, 6, 5], [1, 1], [[1, 1], [1, 1], [1, 1]], closed);
        exchange([8, 6, 5], [2, 1], [[1, 2], [0, 0], [0, 0]], closed);
        exchange([8, 6, 5], [2, 2], [[2, 1], [1, 3], [0, 2]], closed);
        exchange([7, 5, 3], [3, 2], [[0, 3], [2, 0], [1, 1]], [true, false, true]);
        exchange([7, 5, 3], [3, 2], [[2, 2], [1, 1], [0, 0]], [false; 3]);
    }

    #[test]
    fn widths_may_differ_between_ranks() {
        for (shape, parts) in [([9, 4, 3], [5, 1]), ([8, 7, 2], [2, 3]), ([3, 5, 2], [4, 2])] {
            let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
            // Any, some of them none and some wider than parts.
            let width = |axis: u64, i: u64, j: u64| [(3 * i + 5 * j + axis) % 7, (5 * i + 3 * j + 4 * axis) % 6];
            let plan = |rank: usize| {
                let [i, j] = grid.at(rank).map(|at| at as u64);
                let mut widths = GhostWidths::new(grid, rank, [[0; 2]; 3]).unwrap();
                let x: Vec<_> = (0..parts[0] as u64).map(|i| width(0, i, 0)).collect();
                let y: Vec<_> = (0..parts[1] as u64).map(|j| width(1, i, j)).collect();
                widths.widen(0, &x, 0);
                widths.widen(1, &y, 0);
                assert_eq!(widths.own(), [width(0, i, 0), width(1, i, j), [0; 2]]);
                GhostPlan::of_widths(shape, grid, rank, &widths, [true; 3]).unwrap()
            };
            exchange_of(shape, grid, [true; 3], &plan);
        }
    }

    #[test]
    fn widths_may_exceed_parts_and_the_mesh() {
        exchange([7, 4, 2], [5, 1], [[4, 3], [0, 0], [0, 0]], [true; 3]);
        exchange([3, 4, 2], [5, 1], [[1, 2], [0, 0], [0, 0]], [true; 3]); // ranks without planes
        exchange([3, 3, 2], [2, 2], [[7, 5], [4, 9], [0, 0]], [true; 3]);
        exchange([1, 1, 1], [1, 1], [[3, 3], [2, 2], [1, 1]], [true; 3]);
    }

    #[test]
    fn what_cannot_be_planned_is_refused() {
        let [grid, other] = [[2, 1], [1, 2]].map(|parts| Grid::new(parts, 2).unwrap());
        let plan = |shape, rank, width| GhostPlan::new(shape, grid, rank, [[0; 2], [0, width], [0; 2]], [true; 3]);
        assert_eq!(plan([4; 3], 2, 1), Err(LayoutError::Rank { rank: 2, parts: [2, 1] }));
        assert_eq!(plan([4, 0, 4], 0, 1), Err(LayoutError::Empty { shape: [4, 0, 4] }));
        assert_eq!(
            plan([4; 3], 0, u64::MAX),
            Err(LayoutError::Ghosts { axis: 1, cells: 4, width: u64::MAX, most: 4096 })
        );
        assert!(matches!(plan([u64::MAX; 3], 0, 1 << 60), Err(LayoutError::TooLarge { .. })));
        assert_eq!(
            GhostWidths::new(grid, usize::MAX, [[0; 2]; 3]),
            Err(LayoutError::Rank { rank: usize::MAX, parts: [2, 1] })
        );
        for (of, at) in [(grid, 1), (other, 0)] {
            let widths = GhostWidths::new(of, at, [[1; 2]; 3]).unwrap();
            let plan = GhostPlan::of_widths([4; 3], grid, 0, &widths, [true; 3]);
            assert_eq!(plan, Err(LayoutError::Widths { rank: 0, parts: [2, 1] }));
        }
    }
}
