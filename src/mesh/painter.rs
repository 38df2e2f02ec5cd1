//! Painting particles onto meshes, and reading meshes at particles.

use std::ops::Range;

use super::tiles::{self, Output, PAINTED_DENSITY, TilePainter};
use super::{
    Kind, Lanes, MeshParticles, ParticleKernel, ParticleParams, ParticlesAnd, Window, check_mesh, checked, four,
    own_and_origin, particle_kernel_of, wrapped_axes,
};
use crate::exchange::ghost_cells::GhostCells;
use crate::exchange::{ExchangeError, GridComms};
use crate::gpu::{Array, Callback, DeviceError, Element, Gpu, Kernel, KernelSource, Painting, Recorder, holds};
use crate::grid::{FieldLayout, Mesh};

/// Integer units that one particle is painted as; see `shaders/mesh/paint.wgsl`.
pub const UNITS: f64 = 268_435_456.0;

crate::gpu::kernel_params! {
    struct DensityParams {
        own: [u32; 4],
        /// The first own cell in the array, and the strides.
        origin: [u32; 4],
        /// Scale and shift.
        by: [f32; 2],
        padding: [u32; 2],
    }
}

crate::gpu::kernel_params! {
    struct SourceParams {
        /// Place of cell (0, 0, 0) of the whole mesh in the array, modulo 2^32, and the strides.
        painted_origin: [u32; 4],
        /// Scale and shift.
        painted_by: [f32; 2],
    }
}

crate::gpu::kernel_params! {
    struct ValuesParams {
        density_strides: [u32; 4],
    }
}

crate::gpu::kernel_params! {
    struct VectorParams {
        /// The first component that is read, and the end of these.
        components: [u32; 2],
    }
}

/// Kernels over the particles of one kind, for one window.
struct ParticleKernels {
    paint: ParticleKernel,
    /// `paint` for devices with additions to 64-bit integers.
    paint_wide: ParticleKernel,
    readout: ParticleKernel,
    readout_vectors: ParticleKernel,
    reach: Kernel,
}

/// A kind of particles, a window, and how invocations share nodes.
#[derive(Clone, Copy)]
struct Form {
    window: Window,
    kind: Kind,
    lanes: Lanes,
}

impl Form {
    /// Returns all forms for these lanes.
    fn all(lanes: Lanes) -> impl Iterator<Item = Form> {
        let of = move |window| Kind::ALL.map(|kind| Form { window, kind, lanes });
        lanes.windows().flat_map(of)
    }

    fn kernel(self, label: &str, text: &'static str) -> KernelSource {
        self.kind.flags(particle_kernel_of(label, text, self.window, self.lanes))
    }

    /// Returns what paints into cells of two words, or, if `wide`, into integers of 64 bits.
    fn paint(self, wide: bool) -> KernelSource {
        let label = if wide { "mesh::paint_wide" } else { "mesh::paint" };
        self.kernel(label, include_str!("../../shaders/mesh/paint.wgsl")).params::<ParticleParams>().flag("wide", wide)
    }

    fn readout(self) -> KernelSource {
        let text = include_str!("../../shaders/mesh/readout.wgsl");
        self.kernel("mesh::readout", text).params::<ParticleParams>().flag("vector", false)
    }

    fn readout_vectors(self) -> KernelSource {
        let text = include_str!("../../shaders/mesh/readout.wgsl");
        self.kernel("mesh::readout_vectors", text).params::<ParticlesAnd<VectorParams>>().flag("vector", true)
    }

    fn reach(self) -> KernelSource {
        self.kernel("mesh::reach", include_str!("../../shaders/mesh/reach.wgsl")).params::<ParticleParams>()
    }
}

fn density_kernel() -> KernelSource {
    let source = KernelSource::new("mesh::density", include_str!("../../shaders/mesh/density.wgsl"));
    source.module("mesh::painted_density", PAINTED_DENSITY).params::<DensityParams>()
}

const DENSITY_SOURCE: &str = include_str!("../../shaders/mesh/density_source.wgsl");
const DENSITY_VALUES: &str = include_str!("../../shaders/mesh/density_values.wgsl");

/// Mesh, ghost cells, faults, scale and shift of a [density](Painter::density_of).
#[derive(Clone, Copy)]
pub(crate) struct PaintedDensity<'a> {
    /// The mesh, with ghost cells as far as particles reach.
    pub mesh: &'a Mesh,
    /// Its ghost cells.
    pub ghosts: &'a GhostCells,
    /// A word, to which particles that cannot be painted are added.
    pub faults: &'a Array<u32>,
    /// The density of a cell with one particle.
    pub scale: f64,
    /// A number that is added to the density.
    pub shift: f32,
}

/// Returns how `gpu` paints these particles.
fn painting(gpu: &Gpu, particles: &MeshParticles<'_>) -> Painting {
    let capabilities = gpu.capabilities();
    tiles::painting(capabilities.profile, capabilities.painting, particles.len())
}

/// Scale and shift of painted units.
fn scale_and_shift(scale: f64, shift: f32) -> [f32; 2] {
    [(scale / UNITS) as f32, shift]
}

/// Returns the kernels for devices that add to integers of 64 bits, for all windows.
pub(super) fn wide_kernels() -> Vec<KernelSource> {
    Form::all(Lanes::Alone).map(|form| form.paint(true)).collect()
}

/// Returns the kernels for GPUs with subgroups.
pub(super) fn paired_kernels() -> Vec<KernelSource> {
    let of = |form: Form| [form.paint(false), form.paint(true), form.readout(), form.readout_vectors()];
    Form::all(Lanes::Paired).flat_map(of).chain(tiles::paired_kernels()).collect()
}

/// Returns the kernels that every device runs, for all windows.
pub(super) fn kernels() -> Vec<KernelSource> {
    let of = |form: Form| [form.paint(false), form.readout(), form.reach(), form.readout_vectors()];
    Form::all(Lanes::Alone).flat_map(of).chain([density_kernel()]).chain(tiles::kernels()).collect()
}

impl ParticleKernels {
    fn new(window: Window, kind: Kind) -> Self {
        let form = |lanes| Form { window, kind, lanes };
        ParticleKernels {
            paint: ParticleKernel::new(window, |lanes| form(lanes).paint(false)),
            paint_wide: ParticleKernel::new(window, |lanes| form(lanes).paint(true)),
            readout: ParticleKernel::new(window, |lanes| form(lanes).readout()),
            readout_vectors: ParticleKernel::new(window, |lanes| form(lanes).readout_vectors()),
            reach: Kernel::trusted(form(Lanes::Alone).reach()),
        }
    }
}

/// Paints particles of equal mass onto meshes and reads meshes at particles, with one window.
///
/// - Painting is exact: a particle is [`UNITS`] integer units shared among its nodes without loss,
///   cells are 64-bit integers (two `u32`, low word first). Any order, any number of ranks gives
///   the same bits, and cells cannot overflow below 2^36 particles per cell.
/// - Everything is recorded; only [`cells`](Self::cells) may submit.
pub struct Painter {
    window: Window,
    /// By the number of the kind.
    kernels: [ParticleKernels; 3],
    density: Kernel,
    tiles: TilePainter,
}

impl Painter {
    /// Creates a painter with this window.
    #[must_use]
    pub fn new(window: Window) -> Self {
        let kernels = Kind::ALL.map(|kind| ParticleKernels::new(window, kind));
        Painter { window, kernels, density: Kernel::trusted(density_kernel()), tiles: TilePainter::new(window) }
    }

    /// Returns its window.
    pub fn window(&self) -> Window {
        self.window
    }

    fn kernels(&self, particles: &MeshParticles<'_>) -> &ParticleKernels {
        &self.kernels[Kind::of(particles) as usize]
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
            return kernels.paint_wide.record(recorder, &arrays, &geometry, particles.len());
        }
        arrays.extend([cells.raw(), faults.raw()]);
        kernels.paint.record(recorder, &arrays, &geometry, particles.len())
    }

    /// Returns what `particles` paint on the cells of `mesh`, ghost cells included, and adds those
    /// that it cannot paint to `faults[0]`, as [`paint`](Self::paint) does. Submits where it paints
    /// by tiles.
    ///
    /// # Errors
    /// Same as [`paint`](Self::paint).
    pub fn cells(
        &self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        mesh: &Mesh,
        faults: &Array<u32>,
    ) -> Result<Array<u32>, DeviceError> {
        checked("Painter::cells", &particles, mesh)?;
        let cells = recorder.gpu().array::<u32>("mesh::cells", 2 * mesh.array_len())?;
        if !self.try_tiles(recorder, particles, mesh, Output::Cells(&cells), faults)? {
            recorder.clear(&cells);
            self.paint(recorder, particles, mesh, &cells, faults)?;
        }
        Ok(cells)
    }

    /// Paints by tiles, and returns `true`, if that pays and the device has room for the arrays.
    fn try_tiles(
        &self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        mesh: &Mesh,
        output: Output<'_>,
        faults: &Array<u32>,
    ) -> Result<bool, DeviceError> {
        if painting(recorder.gpu(), &particles) == Painting::Memory {
            return Ok(false);
        }
        match self.tiles.paint(recorder, particles, mesh, output, faults) {
            Err(DeviceError::TooManyWindows { .. }) => Ok(false),
            painted => painted.map(|()| true),
        }
    }

    /// Returns `true` if [`density_of`](Self::density_of) paints densities without painted cells:
    /// by tiles, where no cell has a part on another rank.
    pub(crate) fn paints_densities(gpu: &Gpu, particles: &MeshParticles<'_>, mesh: &Mesh) -> bool {
        wrapped_axes(mesh) == [true; 3] && painting(gpu, particles) == Painting::Tiles
    }

    /// `out` (this rank's own cells, C order) = units * `scale` / [`UNITS`] + `shift`, where units
    /// are those that the particles of all ranks paint. Adds particles that cannot be painted to
    /// `faults[0]`. `ghosts` are those of `mesh`. Collective; waits for exchanges only. Submits for
    /// these, and where it paints by tiles.
    ///
    /// # Errors
    /// Same as [`paint`](Self::paint); [`ExchangeError`](crate::exchange::ExchangeError).
    pub(crate) fn density_of(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        particles: MeshParticles<'_>,
        painted: &PaintedDensity<'_>,
        out: &Array<f32>,
    ) -> Result<(), ExchangeError> {
        const WHAT: &str = "Painter::density_of";
        let &PaintedDensity { mesh, ghosts, faults, scale, shift } = painted;
        if Self::paints_densities(recorder.gpu(), &particles, mesh) {
            checked(WHAT, &particles, mesh)?;
            holds(WHAT, "results", out, mesh.own_cells())?;
            let output = Output::Density(out, scale_and_shift(scale, shift));
            if self.try_tiles(recorder, particles, mesh, output, faults)? {
                return Ok(());
            }
        }
        let cells = self.cells(recorder, particles, mesh, faults)?;
        ghosts.reduce_wide(recorder, comms, &cells)?;
        Ok(self.density(recorder, mesh, &cells, out, scale, shift)?)
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
        self.kernels(&particles).readout.record(recorder, &arrays, &geometry, particles.len())
    }

    /// `out` = these components of a vector field at the particles, those of all particles one
    /// after the other. They have the bits of a [`readout`](Self::readout) each. A cell of `field`
    /// has three components and a number that is not read, so that it is one load of 16 bytes.
    ///
    /// # Errors
    /// Same as [`paint`](Self::paint); [`DeviceError::Misuse`] for components beyond the third.
    pub fn readout_vectors(
        &self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        mesh: &Mesh,
        field: &Array<[f32; 4]>,
        components: Range<u32>,
        out: &Array<f32>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Painter::readout_vectors";
        checked(WHAT, &particles, mesh)?;
        if components.end > 3 {
            return Err(DeviceError::misuse(WHAT, format!("expected components of 0..3, got {components:?}")));
        }
        holds(WHAT, "cells", field, mesh.array_len())?;
        holds(WHAT, "results", out, particles.len().saturating_mul(components.len() as u64))?;
        let mut arrays = particles.arrays();
        arrays.extend([field.raw(), out.raw()]);
        let own = VectorParams { components: [components.start, components.end] };
        let params = ParticlesAnd { common: particles.geometry(mesh, mesh.layout()), own };
        self.kernels(&particles).readout_vectors.record(recorder, &arrays, &params, particles.len())
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
            return Err(DeviceError::misuse(WHAT, why));
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
        let [own, origin] = own_and_origin(mesh);
        let params = DensityParams { own, origin, by: scale_and_shift(scale, shift), padding: [0; 2] };
        let cells = cells.raw().seen_as(Element::Words2);
        recorder.each(&self.density, &[&cells, out.raw()], &params, mesh.own_cells())
    }

    /// Returns a density on all cells of a mesh of one rank, C order, as the source of a transform.
    pub(crate) fn density_values(mesh: &Mesh, density: &Array<f32>) -> Callback {
        let params = ValuesParams { density_strides: four(mesh.layout().strides(), 0) };
        Callback::trusted(DENSITY_VALUES).read_raw("density", Element::F32, density.raw()).params(&params)
    }

    /// Returns [`density`](Self::density) as the source of a transform, which reads the cells in its
    /// first pass.
    ///
    /// # Errors
    /// Same as [`paint`](Self::paint).
    pub(crate) fn density_source(
        mesh: &Mesh,
        cells: &Array<u32>,
        scale: f64,
        shift: f32,
    ) -> Result<Callback, DeviceError> {
        const WHAT: &str = "Painter::density_source";
        check_mesh(WHAT, mesh)?;
        holds(WHAT, "words of cells", cells, mesh.array_len().saturating_mul(2))?;
        let (own, strides) = (mesh.own(), mesh.layout().strides());
        // Indices in kernels wrap around, too.
        let before = own.iter().zip(strides).map(|(own, stride)| own.start * stride).sum::<u64>();
        let [i, j, k] = strides.map(|stride| stride as u32);
        let params = SourceParams {
            painted_origin: [mesh.layout().offset().wrapping_sub(before) as u32, i, j, k],
            painted_by: scale_and_shift(scale, shift),
        };
        let text = [PAINTED_DENSITY, DENSITY_SOURCE].concat();
        let cells = cells.raw().seen_as(Element::Words2);
        Ok(Callback::trusted(text).read_raw("painted_cells", Element::Words2, &cells).params(&params))
    }
}
