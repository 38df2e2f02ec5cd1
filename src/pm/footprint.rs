//! Forecast of the device memory of a run's arrays, without a device, and its check on one.
//!
//! Arrays are freed when the work with them has been submitted, so the sums count arrays that live
//! between two submissions. Bytes are counted for the largest rank, rounded as the device's pool
//! rounds each array.

use std::fmt;

use crate::cosmology::LptOrder;
use crate::fft::{FftError, Limits, Plan, Spec, TransformTuning};
use crate::gpu::{Gpu, Painting, Profile, bytes, pooled};
use crate::grid::{Grid, extent, volume};
use crate::mesh::{PaintTraffic, TilePlan, painting};
use crate::rank::Rank;

use super::expected_moves::ExpectedMoves;
use super::{Config, Result, SimulationError};

/// Device that transforms are planned for.
#[derive(Clone, Copy)]
pub(super) struct PlannedFor {
    pub tuning: TransformTuning,
    pub limits: Limits,
    profile: Profile,
    /// The method of painting, if options choose one.
    painting: Option<Painting>,
}

impl PlannedFor {
    /// Returns the plan target of this device, together with the devices of the other ranks.
    pub fn device(gpu: &Gpu) -> Self {
        let tuning = TransformTuning::of(gpu);
        let capabilities = gpu.capabilities();
        let (profile, painting) = (capabilities.profile, capabilities.painting);
        PlannedFor { tuning, limits: tuning.limits(gpu.common()), profile, painting }
    }

    /// A GPU of which nothing else is known.
    pub fn any_gpu() -> Self {
        let tuning = TransformTuning::profile(Profile::Gpu);
        PlannedFor { tuning, limits: tuning.usual_limits(), profile: Profile::Gpu, painting: None }
    }

    /// Returns how a rank with these particles paints.
    fn painting(&self, particles: u64) -> Painting {
        painting(self.profile, self.painting, particles)
    }

    /// Returns what a rank of `grid` with these particles moves when it paints.
    pub fn paint_traffic(&self, grid: &Grid, particles: u64) -> PaintTraffic {
        PaintTraffic::new(self.painting(particles), grid.ranks() == 1)
    }
}

/// Bytes of a real field of a rank, of its modes, and of the working arrays of its inverse
/// transform; the forward one works in the modes on one rank.
pub(super) struct Transformed {
    /// Modes.
    pub count: u64,
    pub field: u64,
    pub modes: u64,
    pub forward: u64,
    pub inverse: u64,
}

impl Transformed {
    fn new(plan: &Plan) -> Self {
        let modes = volume(&plan.spectrum);
        Transformed {
            count: modes,
            field: pooled(4 * volume(&plan.field)),
            modes: complex(modes),
            forward: plan.forward.working(modes, &complex)[0],
            inverse: plan.inverse.working(0, &complex)[0],
        }
    }

    /// Modes becoming a field.
    pub fn back(&self) -> u64 {
        self.field + self.inverse
    }

    /// A field becoming modes, which are there, too.
    pub fn there(&self) -> u64 {
        self.field + self.modes + self.forward
    }
}

fn complex(elements: u64) -> u64 {
    pooled(8 * elements)
}

/// The arrays of a run on the largest rank.
pub(super) struct Footprint {
    pub order: LptOrder,
    /// Particles of the rank.
    pub particles: u64,
    /// Fields on the lattice of the particles.
    pub lattice: Transformed,
    /// Fields on the force mesh, without ghost cells.
    pub mesh: Transformed,
    /// Cells of the mesh with its ghost cells.
    ghosted: u64,
    /// Ghost cells that are sent along each axis.
    sent: [u64; 2],
    /// Working arrays of the filter of one result and of that of a force.
    pub filters: [u64; 2],
    /// Arrays of painting by tiles beside the cells, if the rank does so.
    tiles: Option<u64>,
    /// Whether there is one rank.
    is_alone: bool,
}

impl Footprint {
    /// Creates the forecast of `config` for `rank` of `grid`, with ghost cells of these widths
    /// below and above along each axis that is cut.
    pub fn new(
        config: &Config,
        (grid, rank): (Grid, usize),
        widths: [u64; 2],
        planned: &PlannedFor,
    ) -> Result<Self, FftError> {
        let (PlannedFor { tuning, limits, .. }, ghosts) = (*planned, widths[0] + widths[1]);
        let plan = |side: u64| Plan::new(&Spec::of::<f32>([side; 3]), grid, rank, limits, tuning.pieces);
        let (lattice, mesh) = (plan(config.particles)?, plan(config.mesh)?);
        let filter = mesh.filter_working(mesh.filter(1, limits, tuning.pieces)?, 1, &complex);
        let vectors = mesh.filter_working(mesh.vector_filter(3, limits, tuning.pieces)?, 3, &complex);
        let part = extent(&mesh.field);
        let cut = |axis: usize| grid.parts()[axis] > 1;
        let wide = |axis: usize| part[axis] + if cut(axis) { ghosts } else { 0 };
        // The second axis takes the ghost cells of the first along.
        let across = [part[1], wide(0)];
        let particles = volume(&lattice.field);
        let tiles = || TilePlan::new([wide(0), wide(1), part[2]], particles).bytes();
        Ok(Footprint {
            order: config.lpt,
            particles,
            tiles: (planned.painting(particles) == Painting::Tiles).then(tiles),
            is_alone: grid.ranks() == 1,
            lattice: Transformed::new(&lattice),
            mesh: Transformed::new(&mesh),
            ghosted: wide(0) * wide(1) * part[2],
            sent: [0, 1].map(|axis| if cut(axis) { ghosts * across[axis] * part[2] } else { 0 }),
            filters: [filter, vectors],
        })
    }

    /// Returns the bytes of an array with `bytes` bytes per particle.
    pub fn of_particles(&self, bytes: u64) -> u64 {
        pooled(bytes * self.particles)
    }

    /// Returns the bytes of an array with `bytes` bytes per cell, including ghost cells and their
    /// messages.
    pub fn of_cells(&self, bytes: u64) -> u64 {
        pooled(bytes * self.ghosted) + self.of_messages(bytes)
    }

    /// Returns the bytes of the messages of ghost cells, as they are sent and received.
    fn of_messages(&self, bytes: u64) -> u64 {
        self.sent.iter().filter(|&&cells| cells > 0).map(|cells| 2 * pooled(bytes * cells)).sum()
    }

    /// Returns the bytes of a force field: cells of 16 bytes, of which messages have 12.
    pub fn of_force(&self) -> u64 {
        pooled(16 * self.ghosted) + self.of_messages(12)
    }

    /// Displacements and momenta, by axis.
    pub fn phase_space(&self) -> u64 {
        6 * self.of_particles(4)
    }

    /// Returns the bytes of the initial conditions during their creation: noise, modes of the
    /// contrast, and the fields of each axis and each strain.
    pub fn start(&self) -> u64 {
        let Transformed { field, modes, .. } = self.lattice;
        let kept = field + modes;
        match self.order {
            LptOrder::First => kept + self.lattice.there().max(self.lattice.back()),
            LptOrder::Second => kept + self.second_order_source().max(modes + self.lattice.back()),
            LptOrder::Third => kept + modes + self.third_order_sources(),
        }
    }

    /// Returns the bytes of the sources of the third order beside the modes of the contrast and L:
    /// twelve strains, and the last source with its modes and those of the four before.
    pub fn third_order_sources(&self) -> u64 {
        12 * self.lattice.field + 4 * self.lattice.modes + self.lattice.there()
    }

    /// Returns the source of the second order from the modes of the contrast: the source, the
    /// trace, and a strain; at the end its modes.
    pub fn second_order_source(&self) -> u64 {
        (2 * self.lattice.field + self.lattice.back()).max(self.lattice.there())
    }

    /// Returns the bytes of a force: what is painted and the arrays of painting by tiles; or three
    /// components, and what is painted with the output of the first pass, or the arrays of the
    /// other passes.
    pub fn force(&self) -> u64 {
        // One rank that paints by tiles paints densities.
        let painted = if self.is_alone && self.tiles.is_some() { self.mesh.field } else { self.of_cells(8) };
        let first = painted + self.mesh.modes + self.mesh.forward;
        (painted + self.tiles.unwrap_or(0)).max(self.of_force() + first.max(self.filters[1]))
    }
}

impl Config {
    /// Returns the bytes of device memory that `rank` of `grid` needs, by purpose, if its particles
    /// make these moves.
    pub(super) fn memory(
        &self,
        (grid, rank): (Grid, usize),
        moves: &ExpectedMoves,
        planned: &PlannedFor,
    ) -> Result<MemoryEstimate, FftError> {
        let widths = if moves.unmoved_forces > 0 { self.typical_widths() } else { moves.moved_widths };
        let footprint = Footprint::new(self, (grid, rank), widths, planned)?;
        Ok(MemoryEstimate {
            particles: footprint.phase_space() + self.site_memory(grid, rank, moves),
            start: footprint.start(),
            mesh: footprint.force(),
        })
    }
}

/// Bytes of device memory of one rank, by purpose.
pub(super) struct MemoryEstimate {
    /// Displacements and momenta, and the sites of particles that move.
    pub particles: u64,
    /// Temporary arrays of the initial conditions.
    pub start: u64,
    /// Temporary arrays of a step: the force mesh and its spectra.
    pub mesh: u64,
}

impl MemoryEstimate {
    /// Returns the maximum in use at one time.
    pub fn total(&self) -> u64 {
        self.particles + self.start.max(self.mesh)
    }
}

/// Refuses more than this rank's part of the device has, staging buffers included; the same on all
/// ranks if devices and shares are equal.
pub(super) fn check_memory(rank: &Rank, needed: u64, detail: &dyn fmt::Display) -> Result<()> {
    let staging = rank.exchange.staging_bytes(&rank.gpu);
    let (needed, sharing) = (needed + staging, rank.sharing);
    match rank.memory_share() {
        Some(available) if needed > available => {
            let detail = format!("{detail}, {} for staging buffers", bytes(staging));
            Err(SimulationError::Memory { needed, detail, available, sharing })
        }
        _ => Ok(()),
    }
}

impl fmt::Display for MemoryEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [particles, start, mesh] = [self.particles, self.start, self.mesh].map(bytes);
        write!(f, "{particles} for particles and {mesh} for the force mesh ({start} for the start)")
    }
}
