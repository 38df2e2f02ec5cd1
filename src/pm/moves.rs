//! Moves of a run's particles, and copies that travel back to the ranks of their sites. Particles
//! that have moved carry their sites.

use super::config::{MOVED_BYTES, PASSED_BYTES};
use super::migration::bytes_of;
use super::{ForceContext, Migrate, Result, Simulation, particles_at};
use crate::comm::Op;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};
use crate::grid::{Box3, Grid, extent};
use crate::mesh::{Lattice, parts_of_cells};
use crate::points::sort::{Route, route_to};
use crate::rank::Rank;
use crate::timeline;

/// A route of a rank's particles to the ranks of their sites; `None` if they are there.
pub(super) struct WayToSites(Option<Route>);

impl WayToSites {
    /// Returns columns of the particles in the order of this rank's sites: copies, if particles
    /// have moved. Collective; blocks then.
    pub fn columns(&self, rank: &mut Rank, columns: &[Array<f32>; 3]) -> Result<[Array<f32>; 3]> {
        let [x, y, z] = columns;
        match &self.0 {
            None => Ok(columns.clone()),
            Some(way) => Ok([way.forward(rank, x, 1)?, way.forward(rank, y, 1)?, way.forward(rank, z, 1)?]),
        }
    }
}

impl Simulation {
    /// Moves particles to the ranks that own their cells, if that is due before a force.
    /// Collective; blocks, unless particles never move.
    pub(super) fn migrate_if_due(&mut self, rank: &mut Rank) -> Result<()> {
        if self.migration.is_none() {
            return Ok(());
        }
        // Positions include the drifts so far, and the force before them is not read again.
        self.settle(rank)?;
        self.force.forget();
        let Simulation { migration, force, lattice, sites, displacement, comms, .. } = self;
        let Some(migration) = migration else { return Ok(()) };
        let particles = particles_at(lattice, sites.as_ref(), displacement);
        let owner = rank.gpu.array::<u32>("pm::owners", particles.len())?;
        let leaving = rank.gpu.array::<u32>("pm::leaving", 1)?;
        migration.owners.record(&mut rank.recorder, particles, &owner, &leaving)?;
        migration.forces += 1;
        let is_due = match migration.rule {
            Migrate::Never => false,
            Migrate::Every(forces) => (migration.forces - 1).is_multiple_of(forces.get()),
            Migrate::Auto => {
                let widths = force.widths_for(&mut ForceContext { recorder: &mut rank.recorder, comms, particles })?;
                let leaving = u64::from(rank.recorder.download(&leaving, 0, 1)?[0]);
                let excess = bytes_of(force.mesh().0, &widths)?.saturating_sub(migration.least_bytes);
                let bytes = [excess, MOVED_BYTES * leaving + PASSED_BYTES * particles.len()];
                let [excess, moved] = rank.comm.reduced(bytes, Op::Sum)?;
                migration.excess_bytes += excess;
                let is_due = migration.excess_bytes >= moved;
                if !is_due {
                    force.take_widths(widths)?;
                }
                is_due
            }
        };
        if is_due { self.migrate(rank, owner) } else { Ok(()) }
    }

    /// Moves each particle to the rank in `owner`. Collective; blocks.
    fn migrate(&mut self, rank: &mut Rank, owner: Array<u32>) -> Result<()> {
        let _activity = timeline::activity!("particles move");
        let sent_before = rank.exchange.cost();
        let route = route_to(rank, &owner)?;
        drop(owner);
        let sites = match self.sites.take() {
            Some(sites) => sites,
            None => own_sites(&mut rank.recorder, &self.lattice)?,
        };
        self.sites = Some(route.forward(rank, &sites, 1)?);
        drop(sites);
        for column in self.displacement.iter_mut().chain(&mut self.momentum) {
            *column = route.forward(rank, column, 1)?;
            // The memory of the column before is free for the next one.
            rank.recorder.submit()?;
        }
        self.force.restart()?;
        if let Some(migration) = &mut self.migration {
            migration.excess_bytes = 0;
            migration.cost += rank.exchange.cost().since(sent_before);
        }
        Ok(())
    }

    /// Records what is pending, and plans the route of the particles to the ranks of their sites,
    /// for all that needs them in that order. Collective; blocks if particles have moved.
    pub(super) fn way_to_sites(&mut self, rank: &mut Rank) -> Result<WayToSites> {
        self.settle(rank)?;
        let grid = self.grid();
        let way = self.sites.as_ref().map(|sites| route_to_sites(rank, &self.lattice, grid, sites));
        Ok(WayToSites(way.transpose()?))
    }
}

crate::gpu::kernel_params! {
    struct BoxParams {
        /// First site of this rank, and number of particles.
        first: [u32; 4],
        /// Sites of this rank.
        local: [u32; 4],
    }
}

crate::gpu::kernel_params! {
    struct SiteOwnerParams {
        count: u32,
        /// Sites of the lattice along an axis.
        sites: u32,
        /// Parts of the lattice along axis 1.
        parts: u32,
    }
}

/// Returns the kernels: the list of a box, the owners of sites, the places of sites in a box.
pub(super) fn kernels() -> [KernelSource; 3] {
    [
        KernelSource::new("pm::list_sites", include_str!("../../shaders/pm/list_sites.wgsl")).params::<BoxParams>(),
        KernelSource::new("pm::site_owners", include_str!("../../shaders/pm/site_owners.wgsl"))
            .params::<SiteOwnerParams>(),
        KernelSource::new("pm::site_places", include_str!("../../shaders/pm/site_places.wgsl")).params::<BoxParams>(),
    ]
}

/// Returns the first site of `own`, before `count`, and the lengths of `own`, as kernels take them.
pub(super) fn box_words(own: &Box3, count: u64) -> [[u32; 4]; 2] {
    let [i, j, k] = own.each_ref().map(|range| range.start as u32);
    // An empty rank divides by no sites.
    let [x, y, z] = extent(own).map(|n| n.max(1) as u32);
    [[i, j, k, count as u32], [x, y, z, 0]]
}

fn box_params(lattice: &Lattice) -> BoxParams {
    let [first, local] = box_words(&lattice.own, lattice.len());
    BoxParams { first, local }
}

/// Records the list of this rank's own sites: `[x << 16 | y, z]` each.
fn own_sites(recorder: &mut Recorder, lattice: &Lattice) -> Result<Array<[u32; 2]>, DeviceError> {
    let [list, ..] = kernels().map(Kernel::trusted);
    let sites = recorder.gpu().array("pm::site", lattice.len())?;
    recorder.each(&list, &[sites.raw()], &box_params(lattice), lattice.len())?;
    Ok(sites)
}

/// Returns the route of listed particles to the ranks that own their sites, where they lie in the
/// order of `lattice`. Sends 8 bytes of each particle of another rank. Collective; blocks.
fn route_to_sites(rank: &mut Rank, lattice: &Lattice, grid: Grid, sites: &Array<[u32; 2]>) -> Result<Route> {
    let (gpu, comm, count) = (rank.gpu.clone(), rank.comm.clone(), sites.len());
    let [_, owners, places] = kernels().map(Kernel::trusted);
    let rank_of = parts_of_cells(&mut rank.recorder, lattice.sites, grid)?;
    let owner = gpu.array::<u32>("pm::site_owners", count)?;
    let params = SiteOwnerParams { count: count as u32, sites: lattice.sites[0] as u32, parts: grid.along(1) as u32 };
    rank.recorder.each(&owners, &[sites.raw(), rank_of.raw(), owner.raw()], &params, count)?;
    let unordered = route_to(rank, &owner)?;
    drop(owner);
    let arrived = unordered.forward(rank, sites, 1)?;
    let row = gpu.array::<u32>("pm::site_rows", lattice.len())?;
    rank.recorder.each(&places, &[arrived.raw(), row.raw()], &box_params(lattice), lattice.len())?;
    let [sends, receives] = unordered.counts().map(<[u64]>::to_vec);
    Ok(Route::new(&comm, unordered.order.clone(), sends, receives, Some(row))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Machine;
    use crate::gpu::Options;
    use crate::grid::Cost;
    use crate::pm::Config;
    use crate::pm::Noise;
    use crate::{Error, Launch, launch};
    use std::num::NonZeroUsize;

    fn config(grid: [usize; 2], migrate: Migrate) -> Config {
        let base = Config { particles: 16, mesh: 32, box_size: 40.0, steps: 4, ..Config::default() };
        Config { grid: Some(grid), migrate, ..base }
    }

    /// A run whose particles move before each force has ghost cells of the window, a cell to spare
    /// and a margin, however far particles stray; it sends what was forecast for its transforms and
    /// ghost cells, and 32 bytes of each particle that moves.
    #[test]
    fn ghost_cells_are_as_wide_as_the_window_and_send_what_was_forecast() {
        let every = Migrate::Every(NonZeroUsize::MIN);
        for grid in [[3, 1], [2, 2]] {
            let ranks = grid[0] * grid[1];
            let run = |migrate: Migrate| {
                let config = config(grid, migrate);
                launch(Launch::Threads(ranks), &Options::from_env().unwrap(), |rank| {
                    let mut simulation = Simulation::new(rank, config.clone(), Noise::Seed)?;
                    let (start, mut widest) = (simulation.comms.cost(), [[0; 2]; 3]);
                    while let Some(&op) = simulation.ops.get(simulation.done) {
                        simulation.take_operation(rank, op)?;
                        simulation.done += 1;
                        let ghosts = simulation.force.mesh.layout().ghosts;
                        widest = [0, 1, 2].map(|axis| [0, 1].map(|side| widest[axis][side].max(ghosts[axis][side])));
                    }
                    let moved = simulation.migration.as_ref().map(|migration| migration.cost);
                    Ok::<_, Error>((widest, simulation.comms.cost().since(start).sent_bytes, moved))
                })
            };
            let [moved, never] = [every, Migrate::Never].map(|migrate| run(migrate).unwrap());
            let machine = Machine::default();
            let config = config(grid, every);
            let process_grid = config.grid(ranks).unwrap();
            let moves = config.expected_moves(process_grid, &config.schedule().unwrap()).unwrap();
            let mut total = Cost::default();
            for (rank, ((widths, sent, cost), (far, ..))) in moved.into_iter().zip(never).enumerate() {
                for axis in 0..2 {
                    let window = if grid[axis] > 1 { [0, 3] } else { [0, 0] };
                    assert_eq!(widths[axis], window, "rank {rank} of {grid:?}, axis {axis}");
                    assert!(grid[axis] == 1 || far[axis][0] + far[axis][1] > 6, "{far:?}");
                }
                let leaving = |&reach: &f64| -> u64 {
                    config.leaving(process_grid, rank, reach).iter().map(|part| MOVED_BYTES * part.len).sum()
                };
                let forecast = config.forecast_rank(ranks.into(), rank, &machine).unwrap();
                let expected_moves: u64 = moves.reaches.iter().map(leaving).sum();
                assert_eq!(sent, forecast.stepping.sent_bytes - expected_moves, "rank {rank} of {grid:?}");
                let cost = cost.unwrap();
                assert!(cost.sent_bytes > 0 && cost.sent_bytes.is_multiple_of(MOVED_BYTES));
                total += cost;
            }
            assert_eq!(total.sent_bytes, total.received_bytes);
        }
    }
}
