//! Painting particles onto meshes, and reading meshes at particles.

use super::particles::{MeshParticles, ParticleParams, check_mesh, checked, holds, over_particles, particle_kernel};
use super::window::Window;
use crate::gpu::{Array, DeviceError, Element, Kernel, KernelSource, Recorder};
use crate::grid::{FieldLayout, Mesh, extent};

/// Integer units that one particle is painted as; see `shaders/mesh/paint.wgsl`.
pub const UNITS: f64 = 268_435_456.0;

crate::gpu::kernel_params! {
    struct DensityParams {
        own: [u32; 4],
        /// The first own cell in the array, and the strides.
        origin: [u32; 4],
        scale: f32,
        shift: f32,
        padding: [u32; 2],
    }
}

over_particles! {
    struct VectorParams {
        /// Elements from one component of the field to the next.
        stride: u32,
    }
}

/// Kernels over the particles of one kind, for one window.
struct ParticleKernels {
    paint: Kernel,
    /// `paint` for devices with additions to 64-bit integers.
    paint_wide: Kernel,
    readout: Kernel,
    readout_vectors: Kernel,
    reach: Kernel,
}

fn readout_vectors(window: Window, in_cells: bool) -> KernelSource {
    particle_kernel("mesh::readout_vectors", include_str!("../../shaders/mesh/readout.wgsl"), window)
        .params::<VectorParams>()
        .flag("in_cells", in_cells)
        .flag("vector", true)
}

/// Returns what paints, reads and measures the reach.
fn kernels_of(window: Window, in_cells: bool) -> [KernelSource; 3] {
    [
        ("mesh::paint", include_str!("../../shaders/mesh/paint.wgsl")),
        ("mesh::readout", include_str!("../../shaders/mesh/readout.wgsl")),
        ("mesh::reach", include_str!("../../shaders/mesh/reach.wgsl")),
    ]
    .map(|(label, text)| {
        particle_kernel(label, text, window)
            .params::<ParticleParams>()
            .flag("in_cells", in_cells)
            .flag("vector", false)
            .flag("wide", false)
    })
}

fn density_kernel() -> KernelSource {
    KernelSource::new("mesh::density", include_str!("../../shaders/mesh/density.wgsl")).params::<DensityParams>()
}

/// Returns what paints where integers of 64 bits are added to.
fn paint_wide(window: Window, in_cells: bool) -> KernelSource {
    particle_kernel("mesh::paint_wide", include_str!("../../shaders/mesh/paint.wgsl"), window)
        .params::<ParticleParams>()
        .flag("in_cells", in_cells)
        .flag("wide", true)
}

/// Returns the kernels for devices that add to integers of 64 bits, for all windows.
pub(super) fn wide_kernels() -> Vec<KernelSource> {
    let windows = Window::ALL;
    windows.into_iter().flat_map(|window| [false, true].map(|in_cells| paint_wide(window, in_cells))).collect()
}

/// Returns all kernels, for all windows.
pub(super) fn kernels() -> Vec<KernelSource> {
    let windows = Window::ALL;
    let forms = windows.into_iter().flat_map(|window| [false, true].map(|in_cells| kernels_of(window, in_cells)));
    let vectors =
        windows.into_iter().flat_map(|window| [false, true].map(|in_cells| readout_vectors(window, in_cells)));
    forms.flatten().chain(vectors).chain([density_kernel()]).collect()
}

impl ParticleKernels {
    fn new(window: Window, in_cells: bool) -> Self {
        let [paint, readout, reach] = kernels_of(window, in_cells).map(Kernel::trusted);
        let [paint_wide, readout_vectors] =
            [paint_wide(window, in_cells), readout_vectors(window, in_cells)].map(Kernel::trusted);
        ParticleKernels { paint, paint_wide, readout, readout_vectors, reach }
    }
}

/// Paints particles of equal mass onto meshes and reads meshes at particles, with one window.
///
/// - Painting is exact: a particle is [`UNITS`] integer units shared among its nodes without loss,
///   cells are 64-bit integers (two `u32`, low word first). Any order, any number of ranks gives
///   the same bits, and cells cannot overflow below 2^36 particles per cell.
/// - Everything is recorded, nothing submitted.
pub struct Painter {
    window: Window,
    displaced: ParticleKernels,
    in_cells: ParticleKernels,
    density: Kernel,
}

impl Painter {
    /// Creates a painter with this window.
    #[must_use]
    pub fn new(window: Window) -> Self {
        let [displaced, in_cells] = [false, true].map(|in_cells| ParticleKernels::new(window, in_cells));
        Painter { window, displaced, in_cells, density: Kernel::trusted(density_kernel()) }
    }

    /// Returns its window.
    pub fn window(&self) -> Window {
        self.window
    }

    fn kernels(&self, particles: &MeshParticles<'_>) -> &ParticleKernels {
        match particles {
            MeshParticles::Displaced { .. } => &self.displaced,
            MeshParticles::InCells { .. } => &self.in_cells,
        }
    }

    /// Adds `particles` to `cells` (two words per cell of `mesh`, ghosts included). A particle that
    /// has a node outside the array, or no finite position, is not painted but counted in
    /// `faults[0]`.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when an array is too short, or the mesh has more than 2^30 cells or
    /// the lattice more than 2^31 sites along an axis; [`DeviceError`] when the kernel does not fit
    /// the device.
    pub fn paint(
        &self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        mesh: &Mesh,
        cells: &Array<u32>,
        faults: &Array<u32>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Painter::paint";
        checked(WHAT, &particles, mesh)?;
        holds(WHAT, "words of cells", cells, mesh.array_len().saturating_mul(2))?;
        holds(WHAT, "words for faults", faults, 1)?;
        let (kernels, geometry) = (self.kernels(&particles), particles.geometry(mesh, mesh.layout()));
        let (mut arrays, wide) = (particles.arrays(), cells.raw().seen_as(Element::U64));
        if recorder.gpu().capabilities().atomic_u64 {
            arrays.extend([&wide, faults.raw()]);
            return recorder.each(&kernels.paint_wide, &arrays, &geometry, particles.len());
        }
        arrays.extend([cells.raw(), faults.raw()]);
        recorder.each(&kernels.paint, &arrays, &geometry, particles.len())
    }

    /// `out[n]` = `field` at particle `n`, with the same window. Particles that
    /// [`paint`](Self::paint) would count as faults read zero.
    ///
    /// # Errors
    /// Same as [`paint`](Self::paint).
    pub fn readout(
        &self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        mesh: &Mesh,
        fields: &Array<f32>,
        number: u64,
        out: &Array<f32>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Painter::readout";
        checked(WHAT, &particles, mesh)?;
        holds(WHAT, "cells", fields, number.saturating_add(1).saturating_mul(mesh.array_len()))?;
        holds(WHAT, "results", out, particles.len())?;
        let mut arrays = particles.arrays();
        arrays.extend([fields.raw(), out.raw()]);
        let mut geometry = particles.geometry(mesh, mesh.layout());
        geometry.shape[3] = (number * mesh.array_len()) as u32;
        recorder.each(&self.kernels(&particles).readout, &arrays, &geometry, particles.len())
    }

    /// `out` = the vector field of three components at the particles, all along x, then y, then z:
    /// what three [`readout`](Self::readout)s give.
    ///
    /// # Errors
    /// Same as [`paint`](Self::paint).
    pub fn readout_vectors(
        &self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        mesh: &Mesh,
        fields: &Array<f32>,
        out: &Array<f32>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Painter::readout_vectors";
        checked(WHAT, &particles, mesh)?;
        holds(WHAT, "cells", fields, mesh.array_len().saturating_mul(3))?;
        holds(WHAT, "results", out, particles.len().saturating_mul(3))?;
        let mut arrays = particles.arrays();
        arrays.extend([fields.raw(), out.raw()]);
        let ParticleParams { first, local, sites, mesh: cells, shape, base, per_site, per_cell } =
            particles.geometry(mesh, mesh.layout());
        let stride = mesh.array_len() as u32;
        let params = VectorParams { first, local, sites, mesh: cells, shape, base, per_site, per_cell, stride };
        recorder.each(&self.kernels(&particles).readout_vectors, &arrays, &params, particles.len())
    }

    /// Measures the ghost cells that painting needs: `reach` (7 words, cleared here) receives the
    /// cells below and above the own ones, by axis, and the number of particles without a finite
    /// position.
    ///
    /// # Errors
    /// Same as [`paint`](Self::paint), and [`DeviceError::Misuse`] for points of a mesh with
    /// ghosts, whose cells count those.
    pub fn reach(
        &self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        mesh: &Mesh,
        reach: &Array<u32>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Painter::reach";
        checked(WHAT, &particles, mesh)?;
        holds(WHAT, "words for the reach", reach, 7)?;
        if matches!(particles, MeshParticles::InCells { .. }) && mesh.layout().ghosts != [[0; 2]; 3] {
            let why = "the cells of points count ghosts, of which the reach knows nothing; give a mesh without ghosts";
            return Err(DeviceError::Misuse { what: WHAT.into(), why: why.into() });
        }
        recorder.clear(reach);
        let mut arrays = particles.arrays();
        arrays.push(reach.raw());
        let bare = FieldLayout::new(mesh.layout().own.clone(), [[0; 2]; 3]);
        recorder.each(&self.kernels(&particles).reach, &arrays, &particles.geometry(mesh, &bare), particles.len())
    }

    /// `out` (the own cells alone, C order) = cell * `scale` / [`UNITS`] + `shift`.
    ///
    /// # Errors
    /// Same as [`paint`](Self::paint).
    pub fn density(
        &self,
        recorder: &mut Recorder,
        mesh: &Mesh,
        cells: &Array<u32>,
        out: &Array<f32>,
        scale: f64,
        shift: f32,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Painter::density";
        check_mesh(WHAT, mesh)?;
        holds(WHAT, "words of cells", cells, mesh.array_len().saturating_mul(2))?;
        holds(WHAT, "results", out, mesh.own_cells())?;
        let (own, [i, j, k]) = (extent(mesh.own()), mesh.layout().strides());
        let params = DensityParams {
            own: [own[0], own[1], own[2], 0].map(|n| n as u32),
            origin: [mesh.layout().offset(), i, j, k].map(|n| n as u32),
            scale: (scale / UNITS) as f32,
            shift,
            padding: [0; 2],
        };
        recorder.each(&self.density, &[cells.raw(), out.raw()], &params, mesh.own_cells())
    }
}
