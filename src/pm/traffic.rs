//! Bytes that a run moves through device memory, counted from its schedule. Pure.
//!
//! Particles in the order of their lattice touch the same cells as their neighbors, so each cell of
//! a mesh counts once for all of them.
//!
//! For forecasts, the steps of a rank in a force as [`Force`](super::force::Force) takes them.

use super::expected_moves::{COMPONENTS, ExpectedGhosts, PAINTED};
use super::{Config, PlannedFor, Result};
use crate::cluster::{Line, Start, Step, Work};
use crate::cosmology::StepOp;
use crate::fft::{Plan, Spec, route_steps};
use crate::grid::{Grid, Sweep, volume};
use crate::mesh::{PaintTraffic, Push};

/// Parameters of the bytes of a rank's step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    /// Particles of this rank.
    pub particles: u64,
    /// Cells of its part of the force mesh.
    pub cells: u64,
    /// Bytes of painting.
    pub paint: PaintTraffic,
    /// Bytes of the filter that makes vectors of 16 bytes a cell of a density of 4 bytes.
    pub filter: u64,
}

impl Traffic {
    /// Passes of a force: painting, ten of the filter, and the push.
    pub const FORCE_PASSES: u64 = 12;

    /// Passes and bytes of the tangent of a force: movements are painted as a force paints,
    /// filtered, and read with the force itself.
    pub fn tangent(&self) -> (u64, u64) {
        let paint = 24 * self.particles + (8 + 8 + 8 + 12) * self.cells;
        (13, paint + self.filter + 32 * self.cells + 36 * self.particles)
    }

    /// Passes and bytes of the adjoint of a force: the greatest of the values that are painted,
    /// three paintings and what becomes of them, two transforms of three passes, a filter of five
    /// of one result that reads the modes of the other two, and one reading of 20 bytes of a
    /// cell.
    pub fn adjoint(&self) -> (u64, u64) {
        let paint = 3 * (16 * self.particles + (8 + 8 + 8 + 12) * self.cells);
        // Two transforms of 24 bytes a cell and a filter of 40, where that of a force has 76.
        let modes = self.filter * 22 / 19 + 8 * self.cells;
        let read = 20 * self.cells + 48 * self.particles;
        (1 + 3 * 2 + 2 * 3 + 5 + 1, 12 * self.particles + paint + modes + read)
    }

    /// Returns the bytes of a force: of painting, and of the filter, which reads what is painted.
    pub fn force(&self) -> u64 {
        let PaintTraffic { particle, cell, density } = self.paint;
        particle * self.particles + (cell + density - 4) * self.cells + self.filter
    }

    /// Returns the bytes of a push: the force and positions are read for kicks; momenta are read,
    /// and written by kicks; positions are read and written by drifts.
    pub fn push(&self, push: &Push) -> u64 {
        let (kicked, drifts) = (!push.kicks().is_empty(), push.drifts().len() as u64);
        match kicked {
            true => 16 * self.cells + (12 + 24 + if drifts > 0 { 12 } else { 0 }) * self.particles,
            false => 36 * drifts * self.particles,
        }
    }

    /// Returns the bytes of a schedule, whose kicks and drifts are recorded together as far as a
    /// [`Push`] takes them.
    pub fn schedule(&self, ops: &[StepOp]) -> u64 {
        let (mut bytes, mut push) = (0, Push::default());
        for op in ops {
            let mut then = |add: &dyn Fn(&mut Push) -> bool| {
                if !add(&mut push) {
                    bytes += self.push(&std::mem::take(&mut push));
                    add(&mut push);
                }
            };
            match *op {
                StepOp::Kick { keep, factor } => then(&|push| push.kick(keep, factor)),
                StepOp::Drift { factor } => then(&|push| push.drift(factor)),
                StepOp::Force => bytes += self.push(&std::mem::take(&mut push)) + self.force(),
                StepOp::Reached { .. } => {}
            }
        }
        bytes + self.push(&push)
    }
}

impl Config {
    /// Returns the parts of a force that its bytes in device memory follow from.
    pub(super) fn traffic(&self, plan: &Plan, planned: &PlannedFor) -> Result<Traffic> {
        let (limits, pieces) = (planned.limits, planned.tuning.pieces);
        let filter = plan.vector_filter(3, limits, pieces)?;
        let particles = volume(&plan.grid.part(self.sites(), plan.rank));
        let filter = match filter {
            Some(route) => route.traffic(),
            None => plan.forward.traffic() + 3 * plan.inverse_to_vectors(limits, pieces)?.traffic(),
        };
        let paint = planned.paint_traffic(&plan.grid, particles);
        Ok(Traffic { particles, cells: volume(&plan.field), paint, filter })
    }

    /// Returns the plan of the transforms of the force mesh.
    pub(super) fn mesh_plan(&self, grid: Grid, rank: usize, planned: &PlannedFor) -> Result<Plan> {
        Ok(Plan::new(&Spec::of::<f32>(self.cells()), grid, rank, planned.limits, planned.tuning.pieces)?)
    }

    /// Returns the steps of a force, without the push of particles, with these ghost cells.
    pub(super) fn force_steps(
        &self,
        (grid, rank): (Grid, usize),
        ghosts: ExpectedGhosts,
        planned: &PlannedFor,
    ) -> Result<Vec<Step>> {
        let plan = self.mesh_plan(grid, rank, planned)?;
        let traffic = self.traffic(&plan, planned)?;
        let ghost_plan = self.ghost_plan(grid, rank, ghosts)?;
        let mut steps = vec![Step::Pass { work: Work::Particles, bytes: traffic.force() - traffic.filter }];
        steps.extend(ghost_plan.sweeps.iter().rev().flat_map(|sweep| sweep_steps(sweep, &grid, rank, PAINTED, true)));
        let element = 2 * plan.spec.precision.bytes();
        let (limits, pieces) = (planned.limits, planned.tuning.pieces);
        match plan.vector_filter(3, limits, pieces)? {
            Some(route) => steps.extend(route_steps(&route, &grid, rank, element)),
            None => {
                let inverse = plan.inverse_to_vectors(limits, pieces)?;
                let routes = [&plan.forward, &inverse, &inverse, &inverse];
                routes.iter().for_each(|route| steps.extend(route_steps(route, &grid, rank, element)));
            }
        }
        steps.extend(ghost_plan.sweeps.iter().flat_map(|sweep| sweep_steps(sweep, &grid, rank, COMPONENTS, false)));
        Ok(steps)
    }
}

/// Returns the steps of a sweep: messages are packed, exchanged and unpacked.
fn sweep_steps(sweep: &Sweep, grid: &Grid, rank: usize, words: u64, is_reduction: bool) -> [Step; 4] {
    let transfers = sweep.transfers(words, is_reduction);
    let [packed, unpacked] =
        [&transfers.send, &transfers.receive].map(|parts| 2 * 4 * parts.iter().map(|part| part.len).sum::<u64>());
    let line = Line::new(grid, rank, sweep.axis);
    let start = Start { line, transfers, element_bytes: 4 };
    let [pack, unpack] = [packed, unpacked].map(|bytes| Step::Pass { work: Work::Mesh, bytes });
    [pack, Step::Start(start), Step::Finish, unpack]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::{Cosmology, Growth, Scheme, schedule};
    use crate::fft::{Limits, Plan, Spec};
    use crate::gpu::Painting;
    use crate::grid::Grid;
    use std::io::Write as _;

    /// Limits of workgroups on GPUs.
    const LIMITS: Limits = Limits {
        workgroup_bytes: 48 << 10,
        invocations: 1024,
        points: 16,
        alone: 16,
        shared: true,
        columns: 16,
        cache_bytes: 0,
    };

    #[test]
    fn a_step_moves_little_more_than_it_must() {
        let (n, m) = (512u64, 1024u64);
        let grid = Grid::new([1, 1], 1).unwrap();
        let plan = Plan::new(&Spec::of::<f32>([m; 3]), grid, 0, LIMITS, 1).unwrap();
        let filter = plan.vector_filter(3, LIMITS, 1).unwrap().unwrap().traffic();
        let paint = PaintTraffic::new(Painting::Tiles, true);
        let traffic = Traffic { particles: n.pow(3), cells: m.pow(3), paint, filter };
        // Each axis of the mesh once there and three times back. Beside that: positions are read
        // and a density of 4 bytes a cell is written; forces of 16 bytes a cell, positions and
        // momenta are read, and positions and momenta written.
        let least = filter + (12 + 48) * traffic.particles + (4 + 16) * traffic.cells;
        for scheme in [Scheme::FastPm, Scheme::BullFrog] {
            let bytes = |steps: usize| {
                let growth = Growth::new(Cosmology::planck18());
                traffic.schedule(&schedule(&growth, scheme, 0.1, 1.0, steps, &[]).unwrap())
            };
            // A step within a run, without its beginning and end.
            let step = bytes(6) - bytes(5);
            let ratio = step as f64 / least as f64;
            let said = format!("{step} bytes a step, the least is {least}: {ratio:.3}, of which the filter {filter}");
            let _ = writeln!(std::io::stdout(), "{scheme:?}: {said}");
            assert!(ratio < 1.5, "{scheme:?}: {ratio}");
        }
    }

    #[test]
    fn kicks_and_drifts_at_once_count_the_particles_once() {
        let paint = PaintTraffic::new(Painting::Memory, true);
        let traffic = Traffic { particles: 1, cells: 0, paint, filter: 0 };
        let kick = StepOp::Kick { keep: 1.0, factor: 0.5 };
        let drift = StepOp::Drift { factor: 0.5 };
        assert_eq!(traffic.schedule(&[kick, kick, drift, drift]), 48);
        assert_eq!(traffic.schedule(&[drift, drift]), 72);
        assert_eq!(traffic.schedule(&[kick, drift, kick]), 48 + 36);
        assert_eq!(traffic.schedule(&[drift, StepOp::Force, kick]), 36 + 12 + 36);
        // A cell of 8 bytes is cleared, read and written by painting, and read by the filter, which
        // reads 4 bytes of a density.
        let traffic = Traffic { particles: 0, cells: 1, filter: 80, ..traffic };
        assert_eq!(traffic.schedule(&[StepOp::Force]), 3 * 8 + 8 + (80 - 4));
        // A tile writes each cell once, as a density or, for other ranks to add to, in 8 bytes.
        for (is_alone, cell) in [(true, 4), (false, 8)] {
            let traffic = Traffic { paint: PaintTraffic::new(Painting::Tiles, is_alone), ..traffic };
            assert_eq!(traffic.schedule(&[StepOp::Force]), 2 * cell + (80 - 4));
        }
    }
}
