//! Which ghost cells come from which rank: the pure half of a halo exchange.
//!
//! The axes are swept one after the other. The sweep along an axis moves blocks that span the *whole* width of the axes
//! swept before (their ghosts included) and the own cells of those to come, so that edges and corners are filled without
//! messages of their own. The sweeps of a reduction are the same in reverse, which makes the two adjoint.
//!
//! Widths may exceed a neighbour's part, even the whole mesh: the line of ghost cells is followed cell by cell to its
//! owners, around a periodic axis as often as needed.

use std::ops::Range;

use super::boxes::extent;
use super::field::FieldLayout;
use super::process_grid::Grid;
use super::split::{owner, split};

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
    /// Number of cells.
    pub fn len(&self) -> u64 {
        self.extent.iter().product()
    }

    /// Whether the block has no cells.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its cells, in C order, lie one behind the other.
    pub fn is_run(&self) -> bool {
        let [_, j, k] = self.extent;
        let packed = [j * k, k, 1];
        self.is_empty() || (0..3).all(|a| self.extent[a] == 1 || self.strides[a] == packed[a])
    }
}

/// One block of ghosts and the own cells they stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The other side's number along the axis ([`Grid::neighbours`]).
    pub peer: usize,
    /// The block in this rank's array: own cells of an outgoing link, ghosts of an incoming one.
    pub block: Block,
}

/// One sweep: what this rank lends to others and what it borrows, along one axis.
///
/// Between any two ranks the lender's links and the borrower's stand in the same order and have the same extents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The axis.
    pub axis: usize,
    /// Own cells that others see as ghosts, by peer.
    pub lend: Vec<Link>,
    /// Ghosts and where they come from, by peer.
    pub borrow: Vec<Link>,
}

/// The geometry of a halo: a layout of one rank and its sweeps, in the order of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GhostPlan {
    /// This rank's array.
    pub layout: FieldLayout,
    /// One sweep an axis that has ghosts.
    pub sweeps: Vec<Sweep>,
}

/// A run of ghosts along an axis, as seen by the rank that has them.
struct Run {
    owner: usize,
    /// First owned cell, counted from the owner's first.
    from: u64,
    /// First ghost, counted from the array's first cell.
    to: u64,
    len: u64,
}

/// The ghosts of `part` (of `parts`) of an axis of `n` cells.
fn runs(n: u64, parts: usize, part: usize, [below, above]: [u64; 2], periodic: bool) -> Vec<Run> {
    let own = split(n, parts as u64, part as u64);
    let mut runs: Vec<Run> = Vec::new();
    let mut follow = |cells: Range<i128>, first: u64| {
        let start = cells.start;
        for cell in cells {
            if !periodic && !(0..i128::from(n)).contains(&cell) {
                continue;
            }
            let to = first + (cell - start) as u64;
            let cell = cell.rem_euclid(i128::from(n)) as u64;
            let rank = owner(n, parts as u64, cell) as usize;
            let from = cell - split(n, parts as u64, rank as u64).start;
            match runs.last_mut() {
                Some(run) if run.owner == rank && run.from + run.len == from && run.to + run.len == to => run.len += 1,
                _ => runs.push(Run { owner: rank, from, to, len: 1 }),
            }
        }
    };
    let (start, end) = (i128::from(own.start), i128::from(own.end));
    follow(start - i128::from(below)..start, 0);
    follow(end..end + i128::from(above), below + (own.end - own.start));
    runs
}

impl GhostPlan {
    /// The halo of `rank` on a mesh of `shape` over `grid`. `halo` must be the same on every rank; `periodic` says which
    /// axes close on themselves (ghosts beyond an open end belong to nobody and are left alone).
    pub fn new(shape: [u64; 3], grid: Grid, rank: usize, halo: [[u64; 2]; 3], periodic: [bool; 3]) -> Self {
        let layout = FieldLayout::new(grid.part(shape, rank), halo);
        let (own, all, strides) = (extent(&layout.own), layout.shape(), layout.strides());
        let sweep = |axis: usize| {
            let parts = grid.along(axis);
            let me = if axis < 2 { grid.at(rank)[axis] } else { 0 };
            let block = |first: u64, len: u64| {
                let mut block = Block { offset: first * strides[axis], extent: all, strides };
                block.extent[axis] = len;
                block.extent[axis + 1..].copy_from_slice(&own[axis + 1..]);
                block.offset += (axis + 1..3).map(|later| halo[later][0] * strides[later]).sum::<u64>();
                block
            };
            let mut borrow: Vec<Link> = runs(shape[axis], parts, me, halo[axis], periodic[axis])
                .into_iter()
                .map(|run| Link { peer: run.owner, block: block(run.to, run.len) })
                .collect();
            // Stable: links of one peer keep the order of the ghosts, on both sides.
            borrow.sort_by_key(|link| link.peer);
            let lend = (0..parts)
                .flat_map(|peer| {
                    runs(shape[axis], parts, peer, halo[axis], periodic[axis]).into_iter().map(move |run| (peer, run))
                })
                .filter(|(_, run)| run.owner == me)
                .map(|(peer, run)| Link { peer, block: block(halo[axis][0] + run.from, run.len) })
                .collect();
            Sweep { axis, lend, borrow }
        };
        let sweeps = (0..3).filter(|&axis| halo[axis] != [0, 0]).map(sweep).collect();
        GhostPlan { layout, sweeps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays an exchange of all ranks on the host with arrays of global indices.
    fn play(shape: [u64; 3], parts: [usize; 2], halo: [[u64; 2]; 3], periodic: [bool; 3]) {
        const NOBODY: i64 = -1;
        let ranks = parts[0] * parts[1];
        let grid = Grid::new(parts, ranks).unwrap();
        let plans: Vec<_> = (0..ranks).map(|rank| GhostPlan::new(shape, grid, rank, halo, periodic)).collect();
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
                let line = grid.neighbours(rank, s.axis);
                let me = line.iter().position(|&r| r == rank).unwrap();
                for (peer, &other) in line.iter().enumerate() {
                    let mine: Vec<_> = s.borrow.iter().filter(|link| link.peer == peer).collect();
                    let theirs: Vec<_> =
                        plans[other].sweeps[sweep].lend.iter().filter(|link| link.peer == me).collect();
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
                let cell = [0, 1, 2].map(|a| plan.layout.own[a].start as i64 - halo[a][0] as i64 + at[a] as i64);
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
        play([8, 6, 5], [1, 1], [[1, 1], [1, 1], [1, 1]], closed);
        play([8, 6, 5], [2, 1], [[1, 2], [0, 0], [0, 0]], closed);
        play([8, 6, 5], [2, 2], [[2, 1], [1, 3], [0, 2]], closed);
        play([7, 5, 3], [3, 2], [[0, 3], [2, 0], [1, 1]], [true, false, true]);
        play([7, 5, 3], [3, 2], [[2, 2], [1, 1], [0, 0]], [false; 3]);
    }

    #[test]
    fn widths_may_exceed_parts_and_the_mesh() {
        play([7, 4, 2], [5, 1], [[4, 3], [0, 0], [0, 0]], [true; 3]);
        play([3, 4, 2], [5, 1], [[1, 2], [0, 0], [0, 0]], [true; 3]); // ranks without planes
        play([3, 3, 2], [2, 2], [[7, 5], [4, 9], [0, 0]], [true; 3]);
        play([1, 1, 1], [1, 1], [[3, 3], [2, 2], [1, 1]], [true; 3]);
    }
}
