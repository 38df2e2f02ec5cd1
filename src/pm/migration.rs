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

use crate::gpu::Array;
use crate::grid::{Cost, GhostPlan, GhostWidths, Mesh};
use crate::mesh::{Lattice, MeshParticles, Owners};
use crate::rank::Rank;

use super::expected_moves::ghost_bytes;
use super::force::widths_of_drift;
use super::{Config, Migrate, Result};

/// The moves of a run's particles.
pub(super) struct Migration {
    pub rule: Migrate,
    pub owners: Owners,
    /// Bytes that ghost cells of a force take just after a move.
    pub least_bytes: u64,
    /// Bytes beyond the least that the ghost cells of all ranks have taken since the last move.
    pub excess_bytes: u64,
    /// Forces so far.
    pub forces: usize,
    /// Bytes and messages of all moves.
    pub cost: Cost,
}

impl Migration {
    /// Creates the moves of a run, if particles of `config` are to move between the ranks.
    pub fn new(rank: &mut Rank, config: &Config, mesh: &Mesh) -> Result<Option<Self>> {
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
pub(super) fn bytes_of(mesh: &Mesh, widths: &GhostWidths) -> Result<u64> {
    let plan = GhostPlan::of_widths(mesh.shape(), mesh.grid(), mesh.rank(), widths, mesh.periodic())?;
    Ok(ghost_bytes(&plan))
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
