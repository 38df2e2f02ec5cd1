//! The steps of a rank in a force, as [`Force`](super::force::Force) takes them, for forecasts.
//! Pure.

use super::expected_moves::ExpectedGhosts;
use super::footprint::PlannedFor;
use super::ghost_bytes::{COMPONENTS, PAINTED};
use super::traffic::Traffic;
use super::{Config, Result};
use crate::cluster::{Line, Start, Step, Work};
use crate::fft::{Plan, Spec, route_steps};
use crate::grid::{Grid, Sweep, volume};

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
