//! The derivatives of the particle-mesh force.
//!
//! Adjoint:
//!
//! ```text
//! paint each component of the cotangent -> filter with the conjugate kernel, sum over components: the density's cotangent
//!      -> fill ghost cells -> gradient of the force and of that density at the particles
//! ```
//!
//! An acceleration reads the force where the particle is, and the force follows from where all particles are painted. On a mesh of c cells with p
//! particles this takes three paintings, three filters of one result (15 passes over the mesh), and one pass that reads four values of
//! each node: 1.7 times what the force takes by count of passes, 2.3 times on lavapipe (docs/performance.md).
//!
//! Tangent: one painting of the movements times the gradient of the weights, the filter of the force (10 passes), and one pass that reads six values of
//! each node.

use crate::exchange::GridComms;
use crate::exchange::ghost_cells::Cells;
use crate::fft::{Filter, Spec, Spectral, TransformTuning, Values};
use crate::gpu::{Array, Recorder};
use crate::mesh::{Axpby, ForceMeshes, ForceTangent, Lattice, PaintedValues, Particles, PositionAdjoint, ValuePainter};
use crate::operators::Ghosted;
use crate::pm::force::{Force, kernel};
use crate::pm::{Config, SimulationError};

/// Both derivatives of a [`Force`].
pub struct ForceDerivative {
    painter: ValuePainter,
    filters: [Filter<f32>; 3],
    positions: PositionAdjoint,
    reader: ForceTangent,
    axpby: Axpby,
    /// Cells for one particle: the density that a painted unit counts for.
    scale: f64,
    sites: u64,
}

impl ForceDerivative {
    /// Those of the force of `config`.
    ///
    /// # Errors
    /// [`SimulationError`] of the transform or the device.
    pub fn new(config: &Config, recorder: &mut Recorder, comms: &GridComms) -> Result<Self, SimulationError> {
        let sites = config.particles.pow(3);
        let filter = |axis: usize, recorder: &mut Recorder| conjugate(config, recorder, comms, axis);
        Ok(ForceDerivative {
            painter: ValuePainter::new(config.window),
            filters: [filter(0, recorder)?, filter(1, recorder)?, filter(2, recorder)?],
            positions: PositionAdjoint::new(config.window),
            reader: ForceTangent::new(config.window),
            axpby: Axpby::default(),
            scale: config.mesh.pow(3) as f64 / sites as f64,
            sites,
        })
    }

    /// Records `bar += (d accelerations / d positions)^T by`, for the particles whose force `force` holds. All ranks call it. Waits for
    /// exchanges only.
    ///
    /// # Errors
    /// [`SimulationError::NoForce`] where there is none; [`SimulationError`] of the device or the ranks.
    pub fn accelerations(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        (force, lattice, displacement): (&Force, &Lattice, &[Array<f32>; 3]),
        [by, bar]: [&Array<f32>; 2],
    ) -> Result<(), SimulationError> {
        let field = force.field().ok_or(SimulationError::NoForce)?;
        let ((mesh, ghosts), gpu) = (force.mesh(), recorder.gpu().clone());
        let own = self.filters[0].field_layout();
        let [x, y, z] = displacement;
        let particles = Particles::Displaced { lattice, displacement: [x, y, z] };
        let painted = gpu.array::<f32>("pm::painted", own.len())?;
        let [density, component] =
            ["pm::density_cotangent", "pm::component"].map(|what| gpu.array(what, mesh.layout.len()));
        let (density, component): (Array<f32>, Array<f32>) = (density?, component?);
        for (axis, filter) in self.filters.iter().enumerate() {
            let first = axis as u64 * lattice.len();
            let values = PaintedValues { particles, values: by, first, total: self.sites };
            self.painter.paint(recorder, comms, (mesh, ghosts), values, (&painted, 0))?;
            if axis == 0 {
                filter.apply(recorder, comms, &painted, &own, &density, &mesh.layout)?;
            } else {
                filter.apply(recorder, comms, &painted, &own, &component, &mesh.layout)?;
                // Ghost cells have no values yet, whose sums are overwritten.
                self.axpby.record(recorder, 1.0, &component, 1.0, &density)?;
            }
        }
        ghosts.exchange(recorder, comms, &density, Cells::Float)?;
        let meshes = ForceMeshes { force: field, density: &density };
        Ok(self.positions.force(recorder, (lattice, displacement), (mesh, meshes), self.scale, [by, bar])?)
    }

    /// Records `bar += (d density / d positions)^T by`, where `by` is on this rank's own cells and the density has the mean 1. The ghost cells of
    /// `force` are as wide as the particles need. All ranks call it. Waits for exchanges only.
    ///
    /// # Errors
    /// [`SimulationError`] of the device or the ranks.
    pub fn density(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        (force, lattice, displacement): (&Force, &Lattice, &[Array<f32>; 3]),
        [by, bar]: [&Array<f32>; 2],
    ) -> Result<(), SimulationError> {
        let (mesh, ghosts) = force.mesh();
        let whole = recorder.gpu().array::<f32>("pm::density_cotangent", mesh.layout.len())?;
        Ghosted::of(ghosts.plan().clone(), 1).fill(recorder, comms, by, &whole)?;
        Ok(self.positions.paint(recorder, (lattice, displacement), (mesh, &whole), self.scale, bar)?)
    }

    /// Records `out` = how accelerations change where particles move by `by`, for the particles whose force `force` holds. All ranks call it. Waits
    /// for exchanges only.
    ///
    /// # Errors
    /// As [`accelerations`](Self::accelerations).
    pub fn accelerations_tangent(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        (force, lattice, displacement): (&Force, &Lattice, &[Array<f32>; 3]),
        [by, out]: [&Array<f32>; 2],
    ) -> Result<(), SimulationError> {
        let field = force.field().ok_or(SimulationError::NoForce)?;
        let painted = recorder.gpu().array::<f32>("pm::painted", self.filters[0].field_layout().len())?;
        self.paint_tangent(recorder, comms, (force, lattice, displacement), [by, &painted])?;
        let change = force.field_of(recorder, comms, &painted)?;
        let fields = (force.mesh().0, [field, &change]);
        Ok(self.reader.record(recorder, (lattice, displacement), fields, self.scale, [by, out])?)
    }

    /// Records `out` = how the density on this rank's own cells changes where particles move by `by`. The ghost cells of `force` are as wide as the
    /// particles need. All ranks call it. Waits for exchanges only.
    ///
    /// # Errors
    /// [`SimulationError`] of the device or the ranks.
    pub fn density_tangent(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        particles: (&Force, &Lattice, &[Array<f32>; 3]),
        [by, out]: [&Array<f32>; 2],
    ) -> Result<(), SimulationError> {
        let painted = recorder.gpu().array::<f32>("pm::painted", out.len())?;
        self.paint_tangent(recorder, comms, particles, [by, &painted])?;
        Ok(self.axpby.record(recorder, self.scale, &painted, 0.0, out)?)
    }

    /// The tangent of painting units.
    fn paint_tangent(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        (force, lattice, displacement): (&Force, &Lattice, &[Array<f32>; 3]),
        [by, out]: [&Array<f32>; 2],
    ) -> Result<(), SimulationError> {
        let [x, y, z] = displacement;
        let particles = Particles::Displaced { lattice, displacement: [x, y, z] };
        let moved = PaintedValues { particles, values: by, first: 0, total: self.sites };
        Ok(self.painter.paint_tangent(recorder, comms, force.mesh(), moved, out)?)
    }

    /// Bytes of device memory of one cell of the mesh, ghost cells included, while [`accelerations`](Self::accelerations) works: the force, the painted
    /// integers or two fields, and what it paints onto.
    pub const BYTES_PER_CELL: u64 = 12 + 8 + 4 + 4 + 4;
}

/// The filter of the painted cotangents of accelerations along `axis`: the conjugate of the force's kernel.
fn conjugate(
    config: &Config,
    recorder: &mut Recorder,
    comms: &GridComms,
    axis: usize,
) -> Result<Filter<f32>, SimulationError> {
    let (gpu, spec) = (recorder.gpu().clone(), Spec::new(Values::Real, config.cells()));
    let tuning = TransformTuning::of(&gpu);
    let part = Filter::<f32>::part_of(&gpu, &spec, comms, &tuning)?;
    let tables = kernel(config, axis, -1.0, &part);
    let callback = Spectral::new(recorder, &[tables], &part)?.trusted_callback();
    Ok(Filter::new(&gpu, &spec, comms, &tuning, &callback, 1)?)
}
