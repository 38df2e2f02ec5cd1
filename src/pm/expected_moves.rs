//! Forecast of the moves of particles between ranks, and of the bytes of ghost cells. Pure.
//!
//! Displacements are taken as equally likely between minus and plus their reach along each axis:
//! 10 Mpc/h today, and in proportion to the linear growth between two moves.

use std::ops::Range;

use super::config::{MOVED_BYTES, PASSED_BYTES, TYPICAL_REACH};
use super::force::widths_of_drift;
use super::{Config, Migrate, Result};
use crate::cluster::{Line, Start, Step, Work};
use crate::cosmology::{Growth, StepOp};
use crate::gpu::pooled;
use crate::grid::{GhostPlan, GhostWidths, Grid, LayoutError, Sweep, Transfer, Transfers, volume};

/// Bytes that a move reads and writes in device memory for each particle: owners and their sort
/// (70), and eight words that are gathered, received and stored.
const MOVE_TRAFFIC: u64 = 200;

/// Words of the exchanges of a move: sites, and each column of displacements and momenta.
const EXCHANGES: [u64; 7] = [2, 1, 1, 1, 1, 1, 1];

/// Ghost cells of a force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpectedGhosts {
    /// Cells below and above along each cut axis.
    pub widths: [u64; 2],
    /// Planes that the parts along an axis share: of sites before the first move, of cells after
    /// it. A part without any has no particles, and no ghost cells.
    pub planes: u64,
}

/// Moves that a run is expected to make, and the ghost cells of its forces.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExpectedMoves {
    /// Forces before the first move.
    pub unmoved_forces: u64,
    /// Forces after the first move.
    pub moved_forces: u64,
    /// Ghost cells below and above along each cut axis of forces after the first move: the most of
    /// all.
    pub moved_widths: [u64; 2],
    /// Reach of particles since the move before, in Mpc/h, at each move.
    pub reaches: Vec<f64>,
}

impl ExpectedMoves {
    /// Returns the mean of the reaches at moves, if there are any.
    pub fn usual_reach(&self) -> Option<f64> {
        let count = self.reaches.len();
        (count > 0).then(|| self.reaches.iter().sum::<f64>() / count as f64)
    }
}

impl Config {
    /// Returns the forces of a run with equal ghost cells: how many, and these cells.
    pub(super) fn kinds_of_forces(&self, moves: &ExpectedMoves) -> impl Iterator<Item = (u64, ExpectedGhosts)> + use<> {
        let moved = self.moved_ghosts(moves.moved_widths);
        let kinds = [(moves.unmoved_forces, self.typical_ghosts()), (moves.moved_forces, moved)];
        kinds.into_iter().filter(|(count, _)| *count > 0)
    }

    fn typical_ghosts(&self) -> ExpectedGhosts {
        ExpectedGhosts { widths: self.typical_widths(), planes: self.particles }
    }

    fn moved_ghosts(&self, widths: [u64; 2]) -> ExpectedGhosts {
        ExpectedGhosts { widths, planes: self.mesh }
    }

    /// Returns the moves that a run with these operations is expected to make over `grid`: by the
    /// rule of [`Migrate`], for the rank with the most cells.
    pub(super) fn expected_moves(&self, grid: Grid, ops: &[StepOp]) -> Result<ExpectedMoves> {
        let reaches = self.reaches(ops)?;
        let largest = grid.largest(self.cells());
        let mut moves = ExpectedMoves {
            unmoved_forces: 0,
            moved_forces: 0,
            moved_widths: widths_of_drift(self.window, 0),
            reaches: Vec::new(),
        };
        let least =
            self.ghost_plan(grid, largest, self.moved_ghosts(moves.moved_widths)).map(|plan| ghost_bytes(&plan))?;
        let mut excess = 0;
        // The reach at the last move; particles begin on the ranks of their sites.
        let mut last = None;
        for (force, &reach) in reaches.iter().enumerate() {
            let strayed = reach - last.unwrap_or(0.0);
            let ghosts = match last {
                None => self.typical_ghosts(),
                Some(_) => self.moved_ghosts(widths_of_drift(self.window, self.cells_of(strayed))),
            };
            let is_due = grid.ranks() > 1
                && match self.migrate {
                    Migrate::Never => false,
                    Migrate::Every(forces) => force.is_multiple_of(forces.get()),
                    Migrate::Auto => {
                        excess += ghost_bytes(&self.ghost_plan(grid, largest, ghosts)?).saturating_sub(least);
                        excess >= self.move_bytes(grid, largest, strayed)
                    }
                };
            if is_due {
                moves.reaches.push(strayed);
                (last, excess) = (Some(reach), 0);
            } else if last.is_some() {
                moves.moved_widths = [0, 1].map(|side| moves.moved_widths[side].max(ghosts.widths[side]));
            }
            match last {
                None => moves.unmoved_forces += 1,
                Some(_) => moves.moved_forces += 1,
            }
        }
        Ok(moves)
    }

    /// Returns how far particles have strayed from their sites at each force, in Mpc/h.
    fn reaches(&self, ops: &[StepOp]) -> Result<Vec<f64>> {
        let growth = Growth::new(self.cosmology);
        let today = growth.at(1.0)?.d1;
        let (mut reaches, mut forces) = (Vec::new(), 0);
        for op in ops {
            match *op {
                StepOp::Force => forces += 1,
                // Forces of a step count as those of its end.
                StepOp::Reached { a, .. } => {
                    let reach = TYPICAL_REACH.min(self.box_size) * growth.at(a)?.d1 / today;
                    reaches.extend(std::iter::repeat_n(reach, std::mem::take(&mut forces)));
                }
                _ => {}
            }
        }
        Ok(reaches)
    }

    /// Returns a length in Mpc/h in cells, rounded up.
    fn cells_of(&self, length: f64) -> u64 {
        (length / self.box_size * self.mesh as f64).ceil() as u64
    }

    /// Returns the bytes that a move counts as for a rank.
    fn move_bytes(&self, grid: Grid, rank: usize, strayed: f64) -> u64 {
        let leaving: u64 = self.leaving(grid, rank, strayed).iter().map(|part| part.len).sum();
        MOVED_BYTES * leaving + PASSED_BYTES * self.own_particles(grid, rank)
    }

    fn own_particles(&self, grid: Grid, rank: usize) -> u64 {
        volume(&grid.part(self.sites(), rank))
    }

    /// Returns the particles that `rank` sends to each other rank after particles have strayed by
    /// `strayed` Mpc/h; as many come from there.
    pub(super) fn leaving(&self, grid: Grid, rank: usize, strayed: f64) -> Vec<Transfer> {
        let n = self.particles;
        let reach = strayed / self.box_size * n as f64;
        let [x, y] = [0, 1].map(|axis| {
            let (shares, own) = (grid.shares_along(axis), grid.at(rank)[axis]);
            let planes = |part: usize| expected_planes(n, reach, [own, part].map(|part| shares.split(n, part)));
            let parts = (0..grid.along(axis)).map(|part| (part, planes(part)));
            parts.filter(|(_, planes)| *planes > 0.0).collect::<Vec<_>>()
        });
        let mut parts = Vec::new();
        let mut start = 0;
        for (i, planes) in x {
            for &(j, lines) in &y {
                let peer = i * grid.along(1) + j;
                let len = (planes * lines * n as f64) as u64;
                if peer != rank && len > 0 {
                    parts.push(Transfer { peer, start, len });
                    start += len;
                }
            }
        }
        parts
    }

    /// Returns the steps of a rank in a move after particles have strayed by `strayed` Mpc/h,
    /// without the counts of particles: a word to each rank.
    pub(super) fn move_steps(&self, grid: Grid, rank: usize, strayed: f64) -> Vec<Step> {
        let leaving = self.leaving(grid, rank, strayed);
        let line = Line::world(&grid, rank);
        let passes = self.move_traffic(grid, rank) / EXCHANGES.len() as u64;
        let exchange = |words: u64| {
            let parts: Vec<Transfer> = leaving.iter().map(|part| part.in_words(words)).collect();
            let transfers = Transfers { send: parts.clone(), receive: parts };
            [
                Step::Pass { work: Work::Particles, bytes: passes },
                Step::Start(Start { line, transfers, element_bytes: 4 }),
                Step::Finish,
            ]
        };
        EXCHANGES.into_iter().flat_map(exchange).collect()
    }

    /// Returns the bytes that a move reads and writes in device memory.
    pub(super) fn move_traffic(&self, grid: Grid, rank: usize) -> u64 {
        MOVE_TRAFFIC * self.own_particles(grid, rank)
    }

    /// Returns the bytes that the sites of moved particles add to a force: painting and the push
    /// read them.
    pub(super) fn site_traffic(&self, grid: Grid, rank: usize) -> u64 {
        2 * 8 * self.own_particles(grid, rank)
    }

    /// Returns the bytes of device memory for the sites of moved particles.
    pub(super) fn site_memory(&self, grid: Grid, rank: usize, moves: &ExpectedMoves) -> u64 {
        if moves.reaches.is_empty() { 0 } else { pooled(8 * self.own_particles(grid, rank)) }
    }

    /// Returns the plan of a force's ghost cells.
    pub(super) fn ghost_plan(&self, grid: Grid, rank: usize, ghosts: ExpectedGhosts) -> Result<GhostPlan, LayoutError> {
        let mut widths = GhostWidths::new(grid, rank, [[0; 2]; 3])?;
        for axis in [0, 1].into_iter().filter(|&axis| grid.along(axis) > 1) {
            let shares = grid.shares_along(axis);
            let is_empty = |part: usize| shares.split(ghosts.planes, part).is_empty();
            let needed = |part: usize| if is_empty(part) { [0; 2] } else { ghosts.widths };
            widths.widen(axis, &(0..grid.along(axis)).map(needed).collect::<Vec<_>>(), 0);
        }
        GhostPlan::of_widths(self.cells(), grid, rank, &widths, [true; 3])
    }
}

/// Returns the planes of one part of `n` periodic planes whose particles come to another part, if
/// they stray by between `-reach` and `reach` planes: as many as come from there.
fn expected_planes(n: u64, reach: f64, parts: [Range<u64>; 2]) -> f64 {
    let [low, high] = if parts[0].start <= parts[1].start { parts } else { [parts[1].clone(), parts[0].clone()] };
    let [a, b, c, d] = [low.start, low.end, high.start, high.end].map(|plane| plane as f64);
    if reach == 0.0 {
        return if low == high { b - a } else { 0.0 };
    }
    // The second integral of the density 1 / (2 reach) of displacements.
    let integral = |x: f64| {
        if x >= reach { x } else { (x + reach).max(0.0).powi(2) / (4.0 * reach) }
    };
    let image = |shift: f64| {
        integral(d + shift - a) - integral(c + shift - a) - integral(d + shift - b) + integral(c + shift - b)
    };
    let n = n as f64;
    (image(-n) + image(0.0) + image(n)).max(0.0)
}

/// 32-bit words of a cell: a painted 64-bit integer, and three components of a force.
pub(super) const PAINTED: u64 = 2;
pub(super) const COMPONENTS: u64 = 3;

/// Returns the bytes that a rank sends for the ghost cells of a force.
pub(super) fn ghost_bytes(plan: &GhostPlan) -> u64 {
    let of_sweep = |sweep: &Sweep| {
        let place = plan.grid.at(plan.rank)[sweep.axis];
        let sent =
            |words: u64, is_reduction: bool| sweep.transfers(words, is_reduction).cost(place, 4, u64::MAX).sent_bytes;
        sent(PAINTED, true) + sent(COMPONENTS, false)
    };
    plan.sweeps.iter().map(of_sweep).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Shares;

    /// Ranks send each other equal numbers of particles, and no more than a rank
    /// has; of wide parts, those of a quarter of the reach at each face.
    #[test]
    fn expected_particles_leave_and_come_in_equal_numbers() {
        let config = Config { particles: 96, mesh: 96, box_size: 96.0, ..Config::default() };
        let unequal = Shares::new(&[3.0, 1.0, 0.5, 2.0, 1.0, 4.0]).unwrap();
        for (parts, shares) in [([6, 1], 6.into()), ([2, 3], 6.into()), ([3, 2], unequal), ([1, 6], unequal)] {
            let grid = Grid::new(parts, shares).unwrap();
            for strayed in [0.0, 0.5, 7.0, 40.0] {
                let all: Vec<Vec<Transfer>> = (0..6).map(|rank| config.leaving(grid, rank, strayed)).collect();
                for (rank, parts) in all.iter().enumerate() {
                    let back = |part: &Transfer| all[part.peer].iter().find(|back| back.peer == rank).unwrap().len;
                    assert!(parts.iter().all(|part| part.len == back(part)), "{grid} {strayed}");
                    let leaving: u64 = parts.iter().map(|part| part.len).sum();
                    assert!(leaving <= config.own_particles(grid, rank), "{grid} {strayed}");
                    assert_eq!(leaving == 0, strayed == 0.0);
                }
            }
        }
        let slabs = Grid::new([6, 1], 6).unwrap();
        let found = config.leaving(slabs, 2, 8.0);
        let want: Vec<(usize, u64)> = vec![(1, 2 * 96 * 96), (3, 2 * 96 * 96)];
        assert_eq!(found.iter().map(|part| (part.peer, part.len)).collect::<Vec<_>>(), want);
    }

    /// A run moves where that saves bytes, and its ghost cells are narrow from then on.
    #[test]
    fn moves_are_expected_where_ghost_cells_are_wide() {
        let moves = |migrate: Migrate, parts: [usize; 2]| {
            let config = Config { particles: 512, mesh: 1024, box_size: 512.0, migrate, ..Config::default() };
            let grid = Grid::new(parts, parts[0] * parts[1]).unwrap();
            config.expected_moves(grid, &config.schedule().unwrap()).unwrap()
        };
        let every = |forces: usize| Migrate::Every(forces.try_into().unwrap());
        assert!(moves(Migrate::Auto, [1, 1]).reaches.is_empty());
        assert_eq!(moves(every(1), [1, 1]).unmoved_forces, 10);
        assert_eq!(moves(Migrate::Never, [8, 8]).moved_forces, 0);
        let found = moves(every(3), [8, 8]);
        assert_eq!((found.reaches.len(), found.unmoved_forces, found.moved_forces), (4, 0, 10));
        // Without drift ghost cells are those of the window, a cell to spare and a margin.
        assert_eq!(moves(every(1), [8, 8]).moved_widths, [0, 3]);
        let auto = moves(Migrate::Auto, [8, 8]);
        assert!(!auto.reaches.is_empty() && auto.moved_widths[1] < 20, "{auto:?}");
    }
}
