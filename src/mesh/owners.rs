//! The ranks that own the cells of particles.

use super::particles::{Lanes, MeshParticles, ParticlesAnd, checked, of_lattice, particle_kernel_of};
use super::window::Window;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder, holds};
use crate::grid::{Grid, Mesh};
use crate::host_memory;

crate::gpu::kernel_params! {
    struct OwnerParams {
        /// This rank.
        rank: u32,
        /// Parts of the mesh along axis 1.
        parts: u32,
    }
}

fn kernel(window: Window, listed: bool) -> KernelSource {
    particle_kernel_of("mesh::owners", include_str!("../../shaders/mesh/owners.wgsl"), window, Lanes::Alone)
        .params::<ParticlesAnd<OwnerParams>>()
        .flag("in_cells", false)
        .flag("listed", listed)
}

/// Returns the kernels for all windows.
pub(super) fn kernels() -> impl Iterator<Item = KernelSource> {
    Window::ALL.into_iter().flat_map(|window| [false, true].map(|listed| kernel(window, listed)))
}

/// Returns the part of each cell of a mesh of `shape` along axis 0 of `grid`, then of each along
/// axis 1, on the device.
pub(crate) fn parts_of_cells(recorder: &mut Recorder, shape: [u64; 3], grid: Grid) -> Result<Array<u32>, DeviceError> {
    let parts = |axis: usize| {
        let shares = grid.shares_along(axis);
        (0..shape[axis]).map(move |cell| shares.owner(shape[axis], cell) as u32)
    };
    let mut all = host_memory::reserve("owners of cells", (shape[0] + shape[1]) as usize)?;
    all.extend(parts(0).chain(parts(1)));
    recorder.uploaded("mesh::parts", &all)
}

/// Finds the ranks whose cells particles of a lattice are in: those of the middle one of their
/// nodes.
pub(crate) struct Owners {
    /// For all sites of a box, and for listed ones.
    kernels: [Kernel; 2],
    parts: Array<u32>,
    mesh: Mesh,
}

impl Owners {
    /// Uploads a word for each cell along the first two axes of `mesh`.
    ///
    /// # Errors
    /// [`DeviceError`] if device memory is short.
    pub fn new(recorder: &mut Recorder, mesh: &Mesh, window: Window) -> Result<Self, DeviceError> {
        let kernels = [false, true].map(|listed| Kernel::trusted(kernel(window, listed)));
        let parts = parts_of_cells(recorder, mesh.shape(), mesh.grid())?;
        Ok(Owners { kernels, parts, mesh: mesh.clone() })
    }

    /// Records `owner` = the rank that owns the cell of each particle, and `leaving[0]` = the
    /// particles that other ranks own. Particles without a finite position stay. Reads 12 bytes of
    /// a particle, 20 if it is listed, and writes 4.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] for points in cells and arrays that are too short.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        owner: &Array<u32>,
        leaving: &Array<u32>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Owners::record";
        let kernel = of_lattice(WHAT, &particles, &self.kernels)?;
        checked(WHAT, &particles, &self.mesh)?;
        holds(WHAT, "owners", owner, particles.len())?;
        holds(WHAT, "words for leaving particles", leaving, 1)?;
        let own = OwnerParams { rank: self.mesh.rank() as u32, parts: self.mesh.grid().along(1) as u32 };
        let params = ParticlesAnd { common: particles.geometry(&self.mesh, self.mesh.layout()), own };
        recorder.clear(leaving);
        let mut arrays = particles.arrays();
        arrays.extend([self.parts.raw(), owner.raw(), leaving.raw()]);
        recorder.each(kernel, &arrays, &params, particles.len())
    }
}
