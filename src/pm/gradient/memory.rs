//! The device memory of a gradient, before there is one. Pure.

use std::fmt;

use crate::cosmology::{LptOrder, StepOp};
use crate::gpu::{bytes, pooled};
use crate::grid::{Grid, Shares};
use crate::pm::footprint::Footprint;
use crate::pm::{Config, PlannedFor, Result, require};

/// Device memory of an evaluation of a gradient on the largest rank, in bytes: an upper bound that
/// is close, where ghost cells reach as far as is typical (10 Mpc/h). Arrays of a loss are the
/// caller's own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GradientMemory {
    /// Forces of the run.
    pub forces: usize,
    /// Every which of their states is kept from the run.
    pub checkpoint_every: usize,
    /// States that are kept at a time: checkpoints, and those between two of them.
    pub states: usize,
    /// Bytes of a state: positions and momenta.
    pub state: u64,
    /// Particles, their noise, cotangents and accelerations.
    pub particles: u64,
    /// Modes of the force mesh, and tables, which are there all the time.
    pub kept: u64,
    /// The most of the force mesh at a time: of a force, its derivatives, or what a loss of the
    /// density takes.
    pub mesh: u64,
    /// The most of the lattice at a time: of the initial conditions or their derivatives.
    pub start: u64,
}

impl GradientMemory {
    pub(super) fn new(
        config: &Config,
        (grid, rank): (Grid, usize),
        ops: &[StepOp],
        checkpoint_every: usize,
        planned: &PlannedFor,
    ) -> Result<Self> {
        require(checkpoint_every > 0, "checkpoint_every", checkpoint_every, "1 or more")?;
        let forces = ops.iter().filter(|op| **op == StepOp::Force).count();
        let of = Footprint::new(config, (grid, rank), config.typical_widths(), planned)?;
        Ok(GradientMemory {
            forces,
            checkpoint_every,
            states: forces.div_ceil(checkpoint_every) + (checkpoint_every - 1).min(forces),
            state: of.of_particles(24),
            // The noise of this run and of the one before; cotangents of both halves and of
            // accelerations, these, other momenta.
            particles: of.phase_space() + 2 * of.of_particles(4) + 5 * of.of_particles(12),
            kept: pooled(16 * of.mesh.count) + tables(config),
            mesh: of.force().max(force_adjoint(&of)).max(density_loss(&of)),
            start: of.start().max(start_adjoint(&of)) + PARAMETERS,
        })
    }

    /// Returns the memory of an operator, which also has tangents, and keeps displacements of the
    /// end for the density.
    pub(in crate::pm) fn of_operator(
        self,
        config: &Config,
        (grid, rank): (Grid, usize),
        planned: &PlannedFor,
    ) -> Result<Self> {
        let of = Footprint::new(config, (grid, rank), config.typical_widths(), planned)?;
        Ok(GradientMemory {
            particles: self.particles + of.of_particles(12),
            mesh: self.mesh.max(force_tangent(&of)),
            start: self.start.max(start_tangent(&of) + PARAMETERS),
            ..self
        })
    }

    /// Returns all of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.states as u64 * self.state + self.particles + self.kept + self.mesh.max(self.start)
    }
}

/// Tables of amplitudes and their derivatives over squares of mode numbers, factors of operators
/// along the axes, roots of unity, and what a download and a few numbers take.
fn tables(config: &Config) -> u64 {
    let (n, m) = (config.particles, config.mesh);
    let amplitudes = 11 * pooled(4 * (3 * (n / 2) * (n / 2) + 1));
    let strains = if config.lpt >= LptOrder::Second { 6 } else { 0 };
    let operators = (3 + strains) * pooled(4 * 6 * n) + 2 * pooled(4 * 12 * m);
    let roots = 6 * pooled(8 * n) + 12 * pooled(8 * m);
    amplitudes + operators + roots + (8 << 10)
}

/// Bytes of a transform that creates its tables at its first use, as those with operators on modes
/// do.
const PARAMETERS: u64 = 64 << 10;

/// Returns the bytes of the current force, a painted component, and the integers that are converted
/// to it with its modes, or the memory of the filter of the last one beside its result.
fn force_adjoint(of: &Footprint) -> u64 {
    of.of_force()
        + of.mesh.field
        + (of.of_cells(8) + of.mesh.modes + of.mesh.forward).max(of.filters[0] + of.of_cells(4))
}

/// Returns the bytes of the current force, the painted movements, and the integers that are
/// converted to them, or the change of the force.
fn force_tangent(of: &Footprint) -> u64 {
    of.of_force() + of.mesh.field + of.of_cells(8).max(of.filters[1] + of.of_force())
}

/// A density and its modes, which become a cotangent, which is filled into a mesh with ghost cells.
fn density_loss(of: &Footprint) -> u64 {
    of.mesh.there() + of.mesh.back() + of.of_cells(4)
}

/// Returns the modes and the cotangent of the contrast, and what cotangents of displacements and
/// strains take; at the end the results.
fn start_adjoint(of: &Footprint) -> u64 {
    let lattice = &of.lattice;
    let (field, modes) = (lattice.field, lattice.modes);
    // A cotangent becomes modes, and these another field.
    let passed = lattice.there() + lattice.back();
    let second = match of.order {
        LptOrder::First => 0,
        // The cotangent of the source, and its modes, or three strains of the diagonal.
        LptOrder::Second => {
            field + of.second_order_source().max(modes + passed).max(3 * field + lattice.back().max(passed))
        }
        // Cotangents of all seven sources beside these, or beside the strains and a cotangent of
        // one; the modes of L.
        LptOrder::Third => 6 * field + modes + of.third_order_sources().max(12 * field + passed),
    };
    (field + modes + passed.max(second)).max(2 * of.of_particles(12) + 2 * field)
}

/// Returns the bytes of the modes of the contrast and its change, and for the second order of the
/// source and its change, with the strains they are made from.
fn start_tangent(of: &Footprint) -> u64 {
    let lattice = &of.lattice;
    let (field, modes) = (lattice.field, lattice.modes);
    match of.order {
        LptOrder::First => 3 * modes + field + 2 * lattice.back(),
        LptOrder::Second => {
            let sources = 2 * field + (3 * field + lattice.back()).max(2 * lattice.back());
            2 * modes + sources.max(2 * field + 2 * modes + lattice.forward).max(2 * modes + 2 * lattice.back())
        }
        // Strains and their tangents.
        LptOrder::Third => 4 * modes + 12 * field + of.third_order_sources(),
    }
}

/// Particles along an axis at most: sums over the three components of all of them have 2^38 terms
/// at most.
const MAX_SIDE: u64 = 4508;

/// Refuses more particles than derivatives can be summed of.
pub(super) fn check_particles(config: &Config) -> Result<()> {
    let allowed = format!("{MAX_SIDE} along an axis at most where there are derivatives, whose sums have 2^38 terms");
    require(config.particles <= MAX_SIDE, "particles", config.particles, allowed)
}

impl Config {
    /// Forecasts the device memory of an operator of this run with one linearization, or of a
    /// gradient, which takes less, for the rank with the most cells of a number of ranks, or of
    /// ranks with [`Shares`], of any GPU, with a state kept of every `checkpoint_every`-th force.
    ///
    /// # Errors
    /// [`SimulationError`](crate::pm::SimulationError) of parameters out of range and of grids with
    /// another number of ranks.
    pub fn gradient_memory(&self, ranks: impl Into<Shares>, checkpoint_every: usize) -> Result<GradientMemory> {
        self.validate()?;
        check_particles(self)?;
        let (grid, planned) = (self.grid(ranks)?, PlannedFor::any_gpu());
        let part = (grid, grid.largest(self.cells()));
        GradientMemory::new(self, part, &self.schedule()?, checkpoint_every, &planned)?
            .of_operator(self, part, &planned)
    }
}

impl fmt::Display for GradientMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [states, particles, mesh, start] =
            [self.states as u64 * self.state, self.particles, self.kept + self.mesh, self.kept + self.start].map(bytes);
        let GradientMemory { states: count, checkpoint_every, .. } = self;
        write!(
            f,
            "{states} for {count} states, a checkpoint at every {checkpoint_every}. force, {particles} for particles and {mesh} for the force mesh \
             ({start} for the start)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_particles_as_sums_have_terms() {
        assert!(3 * MAX_SIDE.pow(3) <= 1 << 38 && 3 * (MAX_SIDE + 1).pow(3) > 1 << 38);
    }
}
