//! Adjoints of painting and reading by the positions of particles, and the tangent of reading.

use super::{Lattice, MeshParticles, ParticlesAnd, Window, checked, particle_kernel};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, RawArray, Recorder, holds};
use crate::grid::Mesh;

crate::gpu::kernel_params! {
    struct FactorParams {
        factor: f32,
    }
}

/// Returns the kernels for a window: the adjoints of painting, of a force, and of painting points
/// in cells, and the tangent of a force.
fn of_window(window: Window) -> [KernelSource; 4] {
    let paint = include_str!("../../shaders/mesh/paint_adjoint.wgsl");
    [
        ("mesh::paint_adjoint", paint, false),
        ("mesh::force_adjoint", include_str!("../../shaders/mesh/force_adjoint.wgsl"), false),
        ("mesh::paint_adjoint", paint, true),
        ("mesh::force_tangent", include_str!("../../shaders/mesh/force_tangent.wgsl"), false),
    ]
    .map(|(label, text, in_cells)| {
        particle_kernel(label, text, window)
            .params::<ParticlesAnd<FactorParams>>()
            .flag("in_cells", in_cells)
            .module("mesh::slopes", include_str!("../../shaders/mesh/slopes.wgsl"))
    })
}

/// Returns the kernels for all windows.
pub(super) fn kernels() -> impl Iterator<Item = KernelSource> {
    Window::ALL.into_iter().flat_map(of_window)
}

/// The products of cotangents with the derivatives of painting and reading by the particles'
/// positions, for the particles of a lattice.
///
/// Cotangents of positions are in one array: those along x of all particles, then y, then z. The
/// derivative of the window of order p is of order p - 1: that of cloud in cell jumps at nodes,
/// where the one for positions above is taken. Everything is recorded, nothing submitted.
pub struct PositionDerivatives {
    paint: Kernel,
    force: Kernel,
    in_cells: Kernel,
    tangent: Kernel,
}

/// The meshes that [`PositionDerivatives::force_adjoint`] reads, ghost cells included.
#[derive(Clone, Copy)]
pub struct ForceMeshes<'a> {
    /// The three components of the force in each cell, and a number that is not read.
    pub force: &'a Array<[f32; 4]>,
    /// The cotangent of the density.
    pub density: &'a Array<f32>,
}

impl PositionDerivatives {
    /// For painting and reading with this window.
    pub fn new(window: Window) -> Self {
        let [paint, force, in_cells, tangent] = of_window(window).map(Kernel::trusted);
        PositionDerivatives { paint, force, in_cells, tangent }
    }

    /// Records `bar += factor * d(sum over cells of mesh * painted) / d(positions)`, where
    /// `painted` adds the weights of the particles. With the cotangent of `scale * painted` as
    /// `mesh` and `scale` as `factor` this is the cotangent of the positions. `field` is a mesh
    /// with ghost cells.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when an array is too short or the mesh or lattice beyond what
    /// kernels count.
    pub fn paint_adjoint(
        &self,
        recorder: &mut Recorder,
        (lattice, displacement): (&Lattice, &[Array<f32>; 3]),
        (mesh, field): (&Mesh, &Array<f32>),
        factor: f64,
        bar: &Array<f32>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "PositionDerivatives::paint_adjoint";
        let sites = sites(lattice, displacement);
        checked(WHAT, &sites, mesh)?;
        holds(WHAT, "cells", field, mesh.array_len())?;
        holds(WHAT, "cotangents", bar, lattice.len().saturating_mul(3))?;
        self.record(recorder, &self.paint, (sites, mesh), factor, &[field.raw(), bar.raw()])
    }

    /// Records `bar +=` the cotangents of the positions of points in cells, of which each adds
    /// `mass` to the painted mesh. `field` is the cotangent of this mesh, with ghost cells.
    ///
    /// # Errors
    /// Same as [`paint_adjoint`](Self::paint_adjoint).
    pub(super) fn paint_in_cells(
        &self,
        recorder: &mut Recorder,
        (particles, mass): (MeshParticles<'_>, &Array<f32>),
        (mesh, field): (&Mesh, &Array<f32>),
        bar: &Array<f32>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "PositionDerivatives::paint_in_cells";
        checked(WHAT, &particles, mesh)?;
        holds(WHAT, "cells", field, mesh.array_len())?;
        holds(WHAT, "masses", mass, particles.len())?;
        holds(WHAT, "cotangents", bar, particles.len().saturating_mul(3))?;
        self.record(recorder, &self.in_cells, (particles, mesh), 1.0, &[mass.raw(), field.raw(), bar.raw()])
    }

    /// Records `bar += d(sum over particles and axes of by * acceleration) / d(positions)`, where
    /// the acceleration is the force read at the particle and `factor * density` what the density
    /// counts for it, both with this window.
    ///
    /// # Errors
    /// Same as [`paint_adjoint`](Self::paint_adjoint).
    pub fn force_adjoint(
        &self,
        recorder: &mut Recorder,
        (lattice, displacement): (&Lattice, &[Array<f32>; 3]),
        (mesh, meshes): (&Mesh, ForceMeshes<'_>),
        factor: f64,
        [by, bar]: [&Array<f32>; 2],
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "PositionDerivatives::force_adjoint";
        let sites = sites(lattice, displacement);
        checked(WHAT, &sites, mesh)?;
        holds(WHAT, "cells of the force", meshes.force, mesh.array_len())?;
        holds(WHAT, "cells", meshes.density, mesh.array_len())?;
        holds(WHAT, "cotangents of accelerations", by, lattice.len().saturating_mul(3))?;
        holds(WHAT, "cotangents of positions", bar, lattice.len().saturating_mul(3))?;
        let arrays = [meshes.force.raw(), meshes.density.raw(), by.raw(), bar.raw()];
        self.record(recorder, &self.force, (sites, mesh), factor, &arrays)
    }

    /// Records `out = (by . gradient of force) + factor * change` at the particles, for vectors
    /// `by` and `out` of particles, all along x, then y, then z: the transpose of
    /// [`force_adjoint`](Self::force_adjoint). `force` and `change` have three components in each
    /// cell of `mesh`, ghosts included, and a number that is not read. Nothing is submitted.
    ///
    /// # Errors
    /// Same as [`paint_adjoint`](Self::paint_adjoint).
    pub fn force_tangent(
        &self,
        recorder: &mut Recorder,
        (lattice, displacement): (&Lattice, &[Array<f32>; 3]),
        (mesh, [force, change]): (&Mesh, [&Array<[f32; 4]>; 2]),
        factor: f64,
        [by, out]: [&Array<f32>; 2],
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "PositionDerivatives::force_tangent";
        let sites = sites(lattice, displacement);
        checked(WHAT, &sites, mesh)?;
        holds(WHAT, "cells of the force", force, mesh.array_len())?;
        holds(WHAT, "cells of its change", change, mesh.array_len())?;
        holds(WHAT, "movements", by, lattice.len().saturating_mul(3))?;
        holds(WHAT, "results", out, lattice.len().saturating_mul(3))?;
        let arrays = [force.raw(), change.raw(), by.raw(), out.raw()];
        self.record(recorder, &self.tangent, (sites, mesh), factor, &arrays)
    }

    fn record(
        &self,
        recorder: &mut Recorder,
        kernel: &Kernel,
        (sites, mesh): (MeshParticles<'_>, &Mesh),
        factor: f64,
        others: &[&RawArray],
    ) -> Result<(), DeviceError> {
        let own = FactorParams { factor: factor as f32 };
        let params = ParticlesAnd { common: sites.geometry(mesh, mesh.layout()), own };
        let mut arrays = sites.arrays();
        arrays.extend(others);
        recorder.each(kernel, &arrays, &params, sites.len())
    }
}

/// Returns the particles of a lattice.
fn sites<'a>(lattice: &'a Lattice, [x, y, z]: &'a [Array<f32>; 3]) -> MeshParticles<'a> {
    MeshParticles::Displaced { lattice, displacement: [x, y, z] }
}
