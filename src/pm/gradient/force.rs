//! The derivatives of the particle-mesh force.
//!
//! Adjoint:
//!
//! ```text
//! paint each component of the cotangent -> transform two, filter the third: the sum over components with the conjugate kernels is the density's
//! cotangent -> fill ghost cells -> gradient of the force and of that density at the particles
//! ```
//!
//! An acceleration reads the force where the particle is, and the force follows from where all
//! particles are painted. On a mesh of c cells with p particles this takes three paintings, two
//! transforms and a filter (11 passes over the mesh), and one pass that reads 20 bytes of each
//! node.
//!
//! Tangent: one painting of the movements times the gradient of the weights, the filter of the
//! force (5 passes), and one pass that reads two vectors of each node.

use crate::exchange::GridComms;
use crate::fft::{Filter, FilterOptions, Spec, Spectral, Transform};
use crate::gpu::{Array, DeviceError, Recorder};
use crate::grid::volume;
use crate::mesh::{Axpby, ForceMeshes, Lattice, PaintedValues, PositionDerivatives, ValuePainter};
use crate::operators::Ghosted;
use crate::pm::force::force_tables;
use crate::pm::{Config, Force, ForceContext, Result, Simulation, particles_at};
use crate::rank::Rank;

/// The particles of a rank at their sites' displacements, and the mesh of their force with ghost
/// cells as wide as they need.
pub struct Placed<'a> {
    force: &'a Force,
    sites: (&'a Lattice, &'a [Array<f32>; 3]),
    at: ForceContext<'a>,
}

impl<'a> Placed<'a> {
    /// Returns the particles of `run`.
    pub fn of(rank: &'a mut Rank, run: &'a mut Simulation) -> Self {
        let Simulation { force, lattice, displacement, comms, .. } = run;
        let particles = particles_at(lattice, None, displacement);
        let at = ForceContext { recorder: &mut rank.recorder, comms, particles };
        Placed { force, sites: (lattice, displacement), at }
    }
}

/// Both derivatives of a [`Force`].
pub struct ForceDerivative {
    painter: ValuePainter,
    transform: Transform<f32>,
    /// Adds the component along z, times its kernel, to those of `spectra`.
    filter: Filter<f32>,
    /// The modes of the painted components along x and y.
    spectra: Array<[f32; 2]>,
    positions: PositionDerivatives,
    axpby: Axpby,
    /// Cells for one particle: the density that a painted unit counts for.
    scale: f64,
    sites: u64,
}

impl ForceDerivative {
    /// Creates the adjoint of the force of `config`.
    ///
    /// # Errors
    /// [`SimulationError`](crate::pm::SimulationError) of the transform or the device.
    pub fn new(config: &Config, recorder: &mut Recorder, comms: &GridComms) -> Result<Self> {
        let sites = config.particles.pow(3);
        let (gpu, shape, options) = (recorder.gpu().clone(), config.cells(), FilterOptions::default());
        let transform = Transform::new(&gpu, shape, comms.grid(), comms.rank())?;
        let spec = Spec::of::<f32>(shape);
        let part = Filter::<f32>::part_of(&gpu, &spec, comms, &options)?;
        if part != transform.spectrum_part() {
            let why = format!("a filter of the modes {part:?}, a transform of {:?}", transform.spectrum_part());
            return Err(DeviceError::Misuse { what: "the adjoint of a force".into(), why }.into());
        }
        let spectra = gpu.array("pm::spectra", 2 * volume(&part))?;
        let conjugates = [0, 1, 2].map(|axis| force_tables(config, axis, -1.0, &part));
        let callback = Spectral::new(recorder, &conjugates, &part)?.trusted_sum(&spectra);
        Ok(ForceDerivative {
            painter: ValuePainter::new(config.window),
            transform,
            filter: Filter::new(&gpu, &spec, comms, &callback, &options)?,
            spectra,
            positions: PositionDerivatives::new(config.window),
            axpby: Axpby::default(),
            scale: config.mesh.pow(3) as f64 / sites as f64,
            sites,
        })
    }

    /// Records `bar += (d accelerations / d positions)^T by`, for particles whose force has been
    /// solved. Collective. Waits for exchanges only.
    ///
    /// # Errors
    /// [`NoForce`](crate::pm::SimulationError::NoForce) without a force; errors of the device or
    /// the ranks.
    pub fn accelerations(&self, placed: Placed<'_>, [by, bar]: [&Array<f32>; 2]) -> Result<()> {
        let Placed { force, sites, at: ForceContext { recorder, comms, particles } } = placed;
        let (field, (mesh, ghosts)) = (force.field()?, force.mesh());
        let (gpu, own) = (recorder.gpu().clone(), self.filter.field_layout());
        let painted = gpu.array::<f32>("pm::painted", own.len())?;
        let greatest = &self.painter.greatest(recorder, comms.world(), by)?;
        for axis in 0..3 {
            let first = axis * particles.len();
            let values = PaintedValues { particles, values: by, first, greatest, total: self.sites };
            self.painter.paint(recorder, comms, (mesh, ghosts), values, (&painted, 0))?;
            if axis < 2 {
                self.keep_spectrum(recorder, comms, &painted, axis)?;
            }
            // The mesh of integers is free again for what follows.
            recorder.submit()?;
        }
        let density = gpu.array::<f32>("pm::density_cotangent", mesh.array_len())?;
        self.filter.apply(recorder, comms, &painted, &own, &density, mesh.layout())?;
        ghosts.exchange(recorder, comms, &density)?;
        let meshes = ForceMeshes { force: field, density: &density };
        Ok(self.positions.force_adjoint(recorder, sites, (mesh, meshes), self.scale, [by, bar])?)
    }

    /// Records the modes of a component's mesh in its place among [`spectra`](Self::spectra).
    fn keep_spectrum(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        painted: &Array<f32>,
        axis: u64,
    ) -> Result<()> {
        let (own, modes) = (self.filter.field_layout(), self.spectra.len() / 2);
        if let Some(place) = self.spectra.part(axis * modes, modes) {
            return Ok(self.transform.forward(recorder, comms, painted, &own, &place)?);
        }
        // If the place is not an array of its own: in several windows, or not at the beginning of a
        // binding.
        let spectrum = self.transform.spectrum(recorder.gpu())?;
        self.transform.forward(recorder, comms, painted, &own, &spectrum)?;
        Ok(recorder.copy(&spectrum, 0, &self.spectra, axis * modes, modes)?)
    }

    /// Records `bar += (d density / d positions)^T by`, where `by` is on this rank's own cells and
    /// the density has the mean 1. Collective. Waits for exchanges only.
    ///
    /// # Errors
    /// [`SimulationError`](crate::pm::SimulationError) of the device or the ranks.
    pub fn density(&self, placed: Placed<'_>, [by, bar]: [&Array<f32>; 2]) -> Result<()> {
        let Placed { force, sites, at: ForceContext { recorder, comms, .. } } = placed;
        let (mesh, ghosts) = force.mesh();
        let whole = recorder.gpu().array::<f32>("pm::density_cotangent", mesh.array_len())?;
        Ghosted::of(ghosts.plan.clone(), 1).fill(recorder, comms, by, &whole)?;
        Ok(self.positions.paint_adjoint(recorder, sites, (mesh, &whole), self.scale, bar)?)
    }

    /// Records `out` = how accelerations change where particles, whose force is there, move by
    /// `by`. Collective. Waits for exchanges only.
    ///
    /// # Errors
    /// Same as [`accelerations`](Self::accelerations).
    pub fn accelerations_tangent(&self, mut placed: Placed<'_>, [by, out]: [&Array<f32>; 2]) -> Result<()> {
        let field = placed.force.field()?;
        let painted = placed.at.recorder.gpu().array::<f32>("pm::painted", self.filter.field_layout().len())?;
        self.paint_tangent(&mut placed, [by, &painted])?;
        let Placed { force, sites, at: ForceContext { recorder, comms, .. } } = placed;
        recorder.submit()?;
        let change = force.field_of(recorder, comms, &painted)?;
        let fields = (force.mesh().0, [field, &change]);
        Ok(self.positions.force_tangent(recorder, sites, fields, self.scale, [by, out])?)
    }

    /// Records `out` = how the density on this rank's own cells changes where particles move by
    /// `by`. Collective. Waits for exchanges only.
    ///
    /// # Errors
    /// [`SimulationError`](crate::pm::SimulationError) of the device or the ranks.
    pub fn density_tangent(&self, mut placed: Placed<'_>, [by, out]: [&Array<f32>; 2]) -> Result<()> {
        let painted = placed.at.recorder.gpu().array::<f32>("pm::painted", out.len())?;
        self.paint_tangent(&mut placed, [by, &painted])?;
        Ok(self.axpby.record(placed.at.recorder, self.scale, &painted, 0.0, out)?)
    }

    /// Records the tangent of painting units.
    fn paint_tangent(&self, placed: &mut Placed<'_>, [by, out]: [&Array<f32>; 2]) -> Result<()> {
        let Placed { force, at: ForceContext { recorder, comms, particles }, .. } = placed;
        let greatest = &self.painter.greatest(recorder, comms.world(), by)?;
        let moved = PaintedValues { particles: *particles, values: by, first: 0, greatest, total: self.sites };
        Ok(self.painter.paint_tangent(recorder, comms, force.mesh(), moved, out)?)
    }
}
