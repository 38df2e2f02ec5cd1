//! Painting of values of either sign: the adjoint of reading a mesh at particles.

use super::{MeshParticles, ParticleParams, Window, checked, own_and_origin, particle_kernel};
use crate::comm::Communicator;
use crate::exchange::ghost_cells::GhostCells;
use crate::exchange::{ExactSum, ExchangeError, FIXED, GridComms, bits_for};
use crate::gpu::{Array, DeviceError, Element, Kernel, KernelSource, Recorder, holds};
use crate::grid::Mesh;

crate::gpu::kernel_params! {
    struct PaintedParams {
        own: [u32; 4],
        /// The first own cell in the array, and the strides.
        origin: [u32; 4],
        bits: u32,
        start: u32,
        /// Added to all cells.
        shift: f32,
        padding: u32,
    }
}

/// The values of particles that are painted.
#[derive(Clone, Copy)]
pub struct PaintedValues<'a> {
    /// The particles.
    pub particles: MeshParticles<'a>,
    /// Their values: those from element [`first`](Self::first) on.
    pub values: &'a Array<f32>,
    /// The first value.
    pub first: u64,
    /// Result of [`ValuePainter::greatest`] for all of `values`.
    pub greatest: &'a Array<u32>,
    /// Particles of all ranks: up to 2^38, of which moving ones count three times.
    pub total: u64,
}

/// Paints values that particles carry, which may be negative, onto meshes: `mesh[c] = sum over
/// particles of weight(c, particle) * value`, the adjoint of
/// [`Painter::readout`](super::Painter::readout).
///
/// Shares are integers in units of the greatest value of all ranks, 2^-(62 - log2 of the particles)
/// of it, so that the mesh is the same for any order of the particles and any number of ranks. On a
/// GPU a CIC particle costs eight atomic additions of two words.
pub struct ValuePainter {
    kernels: [Kernel; 4],
    /// `kernels` for devices with additions to 64-bit integers.
    wide: [Kernel; 4],
    finish: Kernel,
    sum: ExactSum,
}

/// Form of painting.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Form {
    /// Values of the sites of a lattice.
    Displaced,
    /// Values of points in cells.
    InCells,
    /// By how much units at the sites of a lattice change.
    Tangent,
    /// By how much points in cells change: values are how many cells each moves times what it
    /// paints, all along x, then y, then z, and by how much that changes.
    Changes,
}

/// All forms, in the order of `Form`.
const FORMS: [Form; 4] = [Form::Displaced, Form::InCells, Form::Tangent, Form::Changes];

fn paint_kernel(window: Window, form: Form, wide: bool) -> KernelSource {
    let text = include_str!("../../shaders/mesh/paint_values.wgsl");
    let tangent = matches!(form, Form::Tangent | Form::Changes);
    let label = match (tangent, wide) {
        (false, false) => "mesh::paint_values",
        (false, true) => "mesh::paint_values_wide",
        (true, false) => "mesh::paint_tangent",
        (true, true) => "mesh::paint_tangent_wide",
    };
    particle_kernel(label, text, window)
        .params::<ParticleParams>()
        .flag("in_cells", matches!(form, Form::InCells | Form::Changes))
        .flag("tangent", tangent)
        .flag("wide", wide)
        .module("gpu::fixed", FIXED)
}

fn finish_kernel() -> KernelSource {
    KernelSource::new("mesh::painted_values", include_str!("../../shaders/mesh/painted_values.wgsl"))
        .params::<PaintedParams>()
        .module("gpu::fixed", FIXED)
}

/// Returns all kernels, for all windows.
pub(super) fn kernels() -> Vec<KernelSource> {
    let windows = Window::ALL.into_iter();
    windows.flat_map(|window| FORMS.map(|form| paint_kernel(window, form, false))).chain([finish_kernel()]).collect()
}

/// Returns the kernels for devices that add to integers of 64 bits, for all windows.
pub(super) fn wide_kernels() -> Vec<KernelSource> {
    let windows = Window::ALL.into_iter();
    windows.flat_map(|window| FORMS.map(|form| paint_kernel(window, form, true))).collect()
}

impl ValuePainter {
    /// Creates a painter with this window.
    #[must_use]
    pub fn new(window: Window) -> Self {
        let [kernels, wide] =
            [false, true].map(|wide| FORMS.map(|form| Kernel::trusted(paint_kernel(window, form, wide))));
        ValuePainter { kernels, wide, finish: Kernel::trusted(finish_kernel()), sum: ExactSum::default() }
    }

    /// Records a word, the bits of the greatest magnitude of `values` of all ranks: what their
    /// shares are counted in. Components of vectors that are painted one after the other have one.
    /// Collective. Submits and waits for exchanges only.
    ///
    /// # Errors
    /// [`ExchangeError`].
    pub fn greatest(
        &self,
        recorder: &mut Recorder,
        comm: &Communicator,
        values: &Array<f32>,
    ) -> Result<Array<u32>, ExchangeError> {
        let most = recorder.gpu().array::<u32>("mesh::most", 1)?;
        self.sum.magnitude(recorder, Some(comm), values, &most)?;
        Ok(most)
    }

    /// `out` from element `start` on (this rank's own cells, C order) = the mesh of `painted`, with
    /// what other ranks paint on these cells; NaN everywhere if a value of any rank is not finite.
    /// `ghosts` are those of `mesh`. Particles that reach beyond them are left out, as
    /// [`Painter::readout`](super::Painter::readout) reads 0 for them. All ranks of `comms` call
    /// it. Submits and waits for exchanges only.
    ///
    /// # Errors
    /// [`ExchangeError`]; [`DeviceError::Misuse`] when an array is too short or the mesh is not
    /// that of `ghosts`.
    pub fn paint(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        (mesh, ghosts): (&Mesh, &GhostCells),
        painted: PaintedValues<'_>,
        (out, start): (&Array<f32>, u64),
    ) -> Result<(), ExchangeError> {
        const WHAT: &str = "ValuePainter::paint";
        let PaintedValues { particles, values, first, .. } = painted;
        checked(WHAT, &particles, mesh)?;
        holds(WHAT, "values", values, first.saturating_add(particles.len()))?;
        let form = match particles {
            MeshParticles::Displaced { .. } => Form::Displaced,
            MeshParticles::InCells { .. } => Form::InCells,
            MeshParticles::Listed { .. } => {
                let why = "expected all sites of a box or points in cells, got listed sites";
                return Err(DeviceError::misuse(WHAT, why).into());
            }
        };
        self.record(recorder, comms, (mesh, ghosts), (form, painted), (out, start), 0.0)
    }

    /// `out` (this rank's own cells, C order) = by how much the mesh that units at the particles of
    /// a lattice paint changes where these move by the vectors `painted.values`, all along x, then
    /// y, then z: the tangent of [`Painter::paint`](super::Painter::paint), and the transpose of
    /// [`PositionDerivatives::paint_adjoint`](super::PositionDerivatives::paint_adjoint). Otherwise
    /// as [`paint`](Self::paint).
    ///
    /// # Errors
    /// Same as [`paint`](Self::paint); [`DeviceError::Misuse`] for points in cells, or another
    /// first value than 0.
    pub fn paint_tangent(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        (mesh, ghosts): (&Mesh, &GhostCells),
        painted: PaintedValues<'_>,
        out: &Array<f32>,
    ) -> Result<(), ExchangeError> {
        const WHAT: &str = "ValuePainter::paint_tangent";
        let PaintedValues { particles, values, first, .. } = painted;
        checked(WHAT, &particles, mesh)?;
        holds(WHAT, "vectors", values, particles.len().saturating_mul(3))?;
        if first != 0 || !matches!(particles, MeshParticles::Displaced { .. }) {
            let why = format!(
                "vectors from element {first} on; expected the vectors of all sites of a lattice, from element 0 on"
            );
            return Err(DeviceError::misuse(WHAT, why).into());
        }
        self.record(recorder, comms, (mesh, ghosts), (Form::Tangent, painted), (out, 0), 0.0)
    }

    /// Paints in any form as [`paint`](Self::paint) does, and adds `shift` to every cell.
    pub(super) fn record(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        (mesh, ghosts): (&Mesh, &GhostCells),
        (form, painted): (Form, PaintedValues<'_>),
        (out, start): (&Array<f32>, u64),
        shift: f32,
    ) -> Result<(), ExchangeError> {
        const WHAT: &str = "ValuePainter";
        let PaintedValues { particles, values, first, greatest: most, total } = painted;
        holds(WHAT, "the greatest value", most, 1)?;
        holds(WHAT, "results", out, start.saturating_add(mesh.own_cells()))?;
        if ghosts.plan.layout != *mesh.layout() {
            let why = format!("ghosts of {:?} for a mesh of {:?}", ghosts.plan.layout, mesh.layout());
            return Err(DeviceError::misuse(WHAT, why).into());
        }
        let bits = match form {
            // A share is the sum over three axes of a movement in cells times a slope, which is 1
            // at most.
            Form::Tangent => bits_for(WHAT, total.saturating_mul(3))? as i32 - exponent_above(mesh),
            Form::Changes => bits_for(WHAT, total.saturating_mul(4))? as i32,
            _ => bits_for(WHAT, total)? as i32,
        };
        let cells = recorder.gpu().array::<u32>("mesh::cells", 2 * mesh.array_len())?;
        recorder.clear(&cells);
        let mut geometry = particles.geometry(mesh, mesh.layout());
        (geometry.local[3], geometry.sites[3]) = (bits as u32, first as u32);
        let (kernel, target) = match recorder.gpu().capabilities().atomic_u64 {
            true => (&self.wide[form as usize], cells.raw().seen_as(Element::U64)),
            false => (&self.kernels[form as usize], cells.raw().clone()),
        };
        let mut arrays = particles.arrays();
        arrays.extend([values.raw(), most.raw(), &target]);
        recorder.each::<ParticleParams>(kernel, &arrays, &geometry, particles.len())?;
        ghosts.reduce_wide(recorder, comms, &cells)?;
        let [own, origin] = own_and_origin(mesh);
        let params = PaintedParams { own, origin, bits: bits as u32, start: start as u32, shift, padding: 0 };
        recorder.each(&self.finish, &[cells.raw(), most.raw(), out.raw()], &params, mesh.own_cells())?;
        Ok(())
    }
}

/// Returns the exponent of the smallest power of two that is at least the number of cells of `mesh`
/// per unit of length, along any axis.
fn exponent_above(mesh: &Mesh) -> i32 {
    mesh.cell_size().iter().map(|cell| (1.0 / cell).log2().ceil() as i32).max().unwrap_or(0)
}
