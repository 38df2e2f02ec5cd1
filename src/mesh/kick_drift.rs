//! Kicks and drifts of particles by a field on a mesh.

use super::particles::{
    Lanes, Lattice, MeshParticles, ParticleKernel, checked, holds, over_particles, particle_kernel_of,
};
use super::push::Push;
use super::window::Window;
use crate::gpu::{Array, DeviceError, KernelSource, Recorder};
use crate::grid::Mesh;

over_particles! {
    struct KickDriftParams {
        /// Factors of the momentum and of the field, for each kick.
        keep: [f32; 2],
        kick: [f32; 2],
        /// The factor of each drift.
        drift: [f32; 2],
        /// Number of kicks.
        kicks: u32,
        drifts: u32,
    }
}

/// Returns the kernel for a window.
fn kernel(window: Window, lanes: Lanes) -> KernelSource {
    particle_kernel_of("mesh::kick_drift", include_str!("../../shaders/mesh/kick_drift.wgsl"), window, lanes)
        .params::<KickDriftParams>()
        .flag("in_cells", false)
        .flag("vector", true)
}

/// Returns the kernels for all windows.
pub(super) fn kernels() -> impl Iterator<Item = KernelSource> {
    Lanes::Alone.windows().map(|window| kernel(window, Lanes::Alone))
}

/// Returns the kernels for GPUs.
pub(super) fn paired_kernels() -> impl Iterator<Item = KernelSource> {
    Lanes::Paired.windows().map(|window| kernel(window, Lanes::Paired))
}

/// Moves the particles of a lattice by a vector field on a mesh: one pass that reads the field at
/// each particle, kicks its momentum and drifts its position. No acceleration is stored.
pub struct KickDrift {
    kernel: ParticleKernel,
}

impl KickDrift {
    /// Reads fields with this window.
    #[must_use]
    pub fn new(window: Window) -> Self {
        KickDrift { kernel: ParticleKernel::new(window, |lanes| kernel(window, lanes)) }
    }

    /// Records `push` of the particles of `lattice`, whose displacements and momenta are
    /// `particles`, by axis. `field` has three components in each cell of `mesh`, ghosts included,
    /// and a number that is not read. Factors are rounded to `f32`. Particles that cannot be
    /// painted ([`Painter::paint`](super::Painter::paint)) read zero.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when an array is too short or the mesh or lattice beyond what
    /// kernels count; [`DeviceError::TooManyWindows`] where the device cannot bind seven arrays and
    /// the windows of a large field.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        lattice: &Lattice,
        mesh: &Mesh,
        field: &Array<[f32; 4]>,
        particles: [&[Array<f32>; 3]; 2],
        push: &Push,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "KickDrift::record";
        let [[x, y, z], momentum] = particles;
        let sites = MeshParticles::Displaced { lattice, displacement: [x, y, z] };
        checked(WHAT, &sites, mesh)?;
        holds(WHAT, "cells", field, mesh.array_len())?;
        momentum.iter().try_for_each(|p| holds(WHAT, "momenta", p, lattice.len()))?;
        let at = |values: &[f64], n: usize| values.get(n).map_or(0.0, |&value| value as f32);
        let kick = |n: usize, which: usize| push.kicks().get(n).map_or(0.0, |kick| kick[which] as f32);
        let place = sites.geometry(mesh, mesh.layout());
        let params = KickDriftParams {
            first: place.first,
            local: place.local,
            sites: place.sites,
            mesh: place.mesh,
            shape: place.shape,
            base: place.base,
            per_site: place.per_site,
            per_cell: place.per_cell,
            keep: [kick(0, 0), kick(1, 0)],
            kick: [kick(0, 1), kick(1, 1)],
            drift: [at(push.drifts(), 0), at(push.drifts(), 1)],
            kicks: push.kicks().len() as u32,
            drifts: push.drifts().len() as u32,
        };
        let mut arrays = sites.arrays();
        arrays.extend(momentum.iter().map(Array::raw));
        arrays.push(field.raw());
        self.kernel.record(recorder, &arrays, &params, lattice.len())
    }
}
