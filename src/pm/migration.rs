//! Particles that move to the ranks that own their cells, and their route back to those of their
//! sites.
//!
//! A particle begins on the rank that owns its site. Ghost cells then reach as far as particles
//! have strayed. Where particles move to the rank of their cell, ghost cells reach only as far as
//! the window and the drift since the last move:
//!
//! ```text
//! cells -> owners of particles -> route -> sites (8 bytes), displacements (12), momenta (12)
//! ```
//!
//! Moved particles carry their sites, so that a place is still a site plus an `f32` displacement,
//! with the same bits. Sums over particles are of integers: their order does not matter. What
//! leaves the run (files, clouds, light cones) is in the order of sites: columns of copies travel
//! back to the ranks of their sites, and particles stay where they are.
//!
//! Runs with derivatives never move particles: their states and cotangents are in the order of
//! sites. A move takes place just before a force is computed, when none is kept.
//!
//! # Cost
//! A move sends 32 bytes of each particle that another rank owns, in seven exchanges with the ranks
//! that particles reach, and a word to each rank. It records the search of owners, a sort by rank
//! and seven gathers, some 200 bytes of each particle in device memory; it waits for the device
//! once for the counts, and for each exchange. Columns move one after the other: at most 24 bytes
//! of each particle are taken meanwhile, when the arrays of the force are not there. Moved
//! particles take 8 bytes more each, which both passes over the particles read. Columns that travel
//! back send 8 bytes of each particle that is away from its site's rank, and 12 for each quantity.

use crate::comm::Op;
use crate::gpu::Array;
use crate::grid::{Cost, GhostPlan, GhostWidths, Mesh};
use crate::mesh::{Lattice, MeshParticles, Owners};
use crate::points::sort::{Route, route_to};
use crate::rank::Rank;
use crate::timeline;

use super::force::widths_of_drift;
use super::ghost_bytes::ghost_bytes;
use super::migrate::{MOVED_BYTES, PASSED_BYTES};
use super::sites::{own_sites, route_to_sites};
use super::{Config, Migrate, Simulation, SimulationError};

/// The moves of a run's particles.
pub(super) struct Migration {
    rule: Migrate,
    owners: Owners,
    /// Bytes that ghost cells of a force take just after a move.
    least_bytes: u64,
    /// Bytes beyond the least that the ghost cells of all ranks have taken since the last move.
    excess_bytes: u64,
    /// Forces so far.
    forces: usize,
    /// Bytes and messages of all moves.
    pub cost: Cost,
}

impl Migration {
    /// Creates the moves of a run, if particles of `config` are to move between the ranks.
    pub fn new(rank: &mut Rank, config: &Config, mesh: &Mesh) -> Result<Option<Self>, SimulationError> {
        if rank.comm.size() == 1 || config.migrate == Migrate::Never {
            return Ok(None);
        }
        let owners = Owners::new(&mut rank.recorder, mesh, config.window)?;
        let least = widths_of_drift(config.window, 0);
        let along = [0, 1, 2].map(|axis| if mesh.grid().along(axis) > 1 { least } else { [0; 2] });
        let least_bytes = bytes_of(mesh, &GhostWidths::new(mesh.grid(), mesh.rank(), along)?)?;
        let (rule, cost) = (config.migrate, Cost::default());
        Ok(Some(Migration { rule, owners, least_bytes, excess_bytes: 0, forces: 0, cost }))
    }
}

/// Returns the bytes that this rank's ghost cells of these widths send for a force.
fn bytes_of(mesh: &Mesh, widths: &GhostWidths) -> Result<u64, SimulationError> {
    let plan = GhostPlan::of_widths(mesh.shape(), mesh.grid(), mesh.rank(), widths, mesh.periodic())?;
    Ok(ghost_bytes(&plan))
}

/// A route of a rank's particles to the ranks of their sites; `None` if they are there.
pub(super) struct WayToSites(Option<Route>);

impl WayToSites {
    /// Returns columns of the particles in the order of this rank's sites: copies, if particles
    /// have moved. Collective; blocks then.
    pub fn columns(&self, rank: &mut Rank, columns: &[Array<f32>; 3]) -> Result<[Array<f32>; 3], SimulationError> {
        let [x, y, z] = columns;
        match &self.0 {
            None => Ok(columns.clone()),
            Some(way) => Ok([way.forward(rank, x, 1)?, way.forward(rank, y, 1)?, way.forward(rank, z, 1)?]),
        }
    }
}

/// Returns the particles with these displacements: of the sites that are listed, or of `lattice`.
pub(super) fn particles_at<'a>(
    lattice: &'a Lattice,
    sites: Option<&'a Array<[u32; 2]>>,
    [x, y, z]: &'a [Array<f32>; 3],
) -> MeshParticles<'a> {
    let displacement = [x, y, z];
    match sites {
        Some(site) => MeshParticles::Listed { sites: lattice.sites, site, displacement },
        None => MeshParticles::Displaced { lattice, displacement },
    }
}

impl Simulation {
    /// Moves particles to the ranks that own their cells, if that is due before a force.
    /// Collective; blocks, unless particles never move.
    pub(super) fn migrate_if_due(&mut self, rank: &mut Rank) -> Result<(), SimulationError> {
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
                let widths = force.widths_for(&mut rank.recorder, comms, particles)?;
                let leaving = u64::from(rank.recorder.download(&leaving, 0, 1)?[0]);
                let excess = bytes_of(force.mesh().0, &widths)?.saturating_sub(migration.least_bytes);
                let mut sums = [excess, MOVED_BYTES * leaving + PASSED_BYTES * particles.len()];
                rank.comm.all_reduce(&mut sums, Op::Sum)?;
                migration.excess_bytes += sums[0];
                let is_due = migration.excess_bytes >= sums[1];
                if !is_due {
                    force.take_widths(widths)?;
                }
                is_due
            }
        };
        if is_due { self.migrate(rank, owner) } else { Ok(()) }
    }

    /// Moves each particle to the rank in `owner`. Collective; blocks.
    fn migrate(&mut self, rank: &mut Rank, owner: Array<u32>) -> Result<(), SimulationError> {
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
    pub(super) fn way_to_sites(&mut self, rank: &mut Rank) -> Result<WayToSites, SimulationError> {
        self.settle(rank)?;
        let grid = self.grid();
        let way = self.sites.as_ref().map(|sites| route_to_sites(rank, &self.lattice, grid, sites));
        Ok(WayToSites(way.transpose()?))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::cluster::Machine;
    use crate::gpu::Options;
    use crate::pm::Noise;
    use crate::{Error, Launch, launch};

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
                        let ghosts = simulation.force.layout().ghosts;
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
