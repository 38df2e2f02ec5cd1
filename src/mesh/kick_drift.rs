//! Kicks and drifts of particles, as numbers and by a field on a mesh.

use super::{Lanes, MeshParticles, ParticleKernel, ParticlesAnd, Window, checked, of_lattice, particle_kernel_of};
use crate::gpu::{Array, DeviceError, KernelSource, Recorder, holds};
use crate::grid::Mesh;

crate::gpu::kernel_params! {
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

/// Returns the kernel for a window, of particles that are listed or of all sites of a box.
fn kernel(window: Window, lanes: Lanes, listed: bool) -> KernelSource {
    particle_kernel_of("mesh::kick_drift", include_str!("../../shaders/mesh/kick_drift.wgsl"), window, lanes)
        .params::<ParticlesAnd<KickDriftParams>>()
        .flag("in_cells", false)
        .flag("listed", listed)
        .flag("vector", true)
}

/// Returns the kernels in all forms of these lanes.
pub(super) fn kernels(lanes: Lanes) -> impl Iterator<Item = KernelSource> {
    lanes.windows().flat_map(move |window| [false, true].map(|listed| kernel(window, lanes, listed)))
}

/// Moves particles of a lattice by a vector field on a mesh: one pass that reads the field at
/// each particle, kicks its momentum and drifts its position. No acceleration is stored.
pub struct KickDrift {
    /// For all sites of a box, and for listed ones.
    kernels: [ParticleKernel; 2],
}

impl KickDrift {
    /// Reads fields with this window.
    #[must_use]
    pub fn new(window: Window) -> Self {
        let kernel = |listed| ParticleKernel::new(window, |lanes| kernel(window, lanes, listed));
        KickDrift { kernels: [false, true].map(kernel) }
    }

    /// Records `push` of particles of a lattice with these momenta, by axis. `field` has three
    /// components in each cell of `mesh`, ghosts included, and a number that is not read. Factors
    /// are rounded to `f32`. Particles that cannot be painted
    /// ([`Painter::paint`](super::Painter::paint)) read zero.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] for points in cells, when an array is too short or the mesh or
    /// lattice beyond what kernels count; [`DeviceError::TooManyWindows`] where the device cannot
    /// bind eight arrays and the windows of a large field.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        momentum: &[Array<f32>; 3],
        (mesh, field): (&Mesh, &Array<[f32; 4]>),
        push: &Push,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "KickDrift::record";
        let kernel = of_lattice(WHAT, &particles, &self.kernels)?;
        checked(WHAT, &particles, mesh)?;
        holds(WHAT, "cells", field, mesh.array_len())?;
        momentum.iter().try_for_each(|p| holds(WHAT, "momenta", p, particles.len()))?;
        let at = |values: &[f64], n: usize| values.get(n).map_or(0.0, |&value| value as f32);
        let kick = |n: usize, which: usize| push.kicks().get(n).map_or(0.0, |kick| kick[which] as f32);
        let own = KickDriftParams {
            keep: [kick(0, 0), kick(1, 0)],
            kick: [kick(0, 1), kick(1, 1)],
            drift: [at(push.drifts(), 0), at(push.drifts(), 1)],
            kicks: push.kicks().len() as u32,
            drifts: push.drifts().len() as u32,
        };
        let params = ParticlesAnd { common: particles.geometry(mesh, mesh.layout()), own };
        let mut arrays = particles.arrays();
        arrays.extend(momentum.iter().map(Array::raw));
        arrays.push(field.raw());
        kernel.record(recorder, &arrays, &params, particles.len())
    }
}

/// Kicks and then drifts that particles make where they are: `p = keep p + factor a(x)`, one after
/// the other, then `x = x + factor p`. As many of each as a [`KickDrift`](super::KickDrift) makes
/// at once; the field `a` is read once for all of them.
///
/// ```
/// use meshloom::mesh::Push;
///
/// let mut push = Push::default();
/// assert!(push.kick(1.0, 0.5) && push.drift(0.1));
/// // The field is that of where particles were before they drifted.
/// assert!(!push.kick(1.0, 0.5));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Push {
    kicks: Vec<[f64; 2]>,
    drifts: Vec<f64>,
}

impl Push {
    /// Maximum number of kicks, and of drifts: those of two steps around a moment that is not
    /// observed.
    pub const MOST: usize = 2;

    /// Adds `p = keep p + factor a(x)`, and says whether it could: not after a drift, nor after
    /// [`MOST`](Self::MOST) kicks.
    pub fn kick(&mut self, keep: f64, factor: f64) -> bool {
        let fits = self.drifts.is_empty() && self.kicks.len() < Self::MOST;
        if fits {
            self.kicks.push([keep, factor]);
        }
        fits
    }

    /// Adds `x = x + factor p`, and says whether it could: not after [`MOST`](Self::MOST) drifts.
    pub fn drift(&mut self, factor: f64) -> bool {
        let fits = self.drifts.len() < Self::MOST;
        if fits {
            self.drifts.push(factor);
        }
        fits
    }

    /// Returns the kicks: what is kept of the momentum, and the factor of the field.
    #[must_use]
    pub fn kicks(&self) -> &[[f64; 2]] {
        &self.kicks
    }

    /// Returns the factors of the drifts.
    #[must_use]
    pub fn drifts(&self) -> &[f64] {
        &self.drifts
    }

    /// Returns `true` if it moves nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kicks.is_empty() && self.drifts.is_empty()
    }
}
