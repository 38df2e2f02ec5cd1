//! Tangent of accelerations with respect to the positions of particles and the force on the mesh.

use super::particles::{Lattice, MeshParticles, ParticleParams, checked, holds, over_particles, particle_kernel};
use super::window::Window;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};
use crate::grid::Mesh;

over_particles! {
    struct TangentParams {
        factor: f32,
    }
}

fn kernel(window: Window) -> KernelSource {
    particle_kernel("mesh::force_tangent", include_str!("../../shaders/mesh/force_tangent.wgsl"), window)
        .params::<TangentParams>()
        .flag("in_cells", false)
}

/// Returns the kernels for all windows.
pub(super) fn kernels() -> impl Iterator<Item = KernelSource> {
    Window::ALL.into_iter().map(kernel)
}

/// The tangent of reading a force at the particles of a lattice: the transpose of
/// [`PositionAdjoint::force`](super::PositionAdjoint::force).
pub struct ForceTangent {
    kernel: Kernel,
}

impl ForceTangent {
    /// For reading with this window.
    #[must_use]
    pub fn new(window: Window) -> Self {
        ForceTangent { kernel: Kernel::trusted(kernel(window)) }
    }

    /// Records `out = (by . gradient of force) + factor * change` at the particles, for vectors
    /// `by` and `out` of particles, all along x, then y, then z. `force` and `change` have three
    /// components in each cell of `mesh`, ghosts included, and a number that is not read. Nothing
    /// is submitted.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when an array is too short or the mesh or lattice beyond what
    /// kernels count.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        (lattice, displacement): (&Lattice, &[Array<f32>; 3]),
        (mesh, [force, change]): (&Mesh, [&Array<[f32; 4]>; 2]),
        factor: f64,
        [by, out]: [&Array<f32>; 2],
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "ForceTangent::record";
        let [x, y, z] = displacement;
        let sites = MeshParticles::Displaced { lattice, displacement: [x, y, z] };
        checked(WHAT, &sites, mesh)?;
        holds(WHAT, "cells of the force", force, mesh.array_len())?;
        holds(WHAT, "cells of its change", change, mesh.array_len())?;
        holds(WHAT, "movements", by, lattice.len().saturating_mul(3))?;
        holds(WHAT, "results", out, lattice.len().saturating_mul(3))?;
        let ParticleParams { first, local, sites: all, mesh: cells, shape, base, per_site, per_cell } =
            sites.geometry(mesh, mesh.layout());
        let factor = factor as f32;
        let params = TangentParams { first, local, sites: all, mesh: cells, shape, base, per_site, per_cell, factor };
        let mut arrays = sites.arrays();
        arrays.extend([force.raw(), change.raw(), by.raw(), out.raw()]);
        recorder.each(&self.kernel, &arrays, &params, sites.len())
    }
}
