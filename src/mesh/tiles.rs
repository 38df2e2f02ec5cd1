//! Painting by tiles: the cells of a tile belong to one workgroup, which adds up the shares of
//! particles in its own memory and writes each cell once.
//!
//! ```text
//! count the particles of each list of a tile -> scan -> write particles list by list
//!       -> paint each tile -> paint the parts of tiles with many particles -> write these tiles
//! ```
//!
//! Cells have the bits of [`Painter::paint`](super::Painter::paint): both add the same integers.
//! Nothing is cleared but the counters of lists, and memory sees additions only for counters and
//! for tiles with more than [`SPLIT`] particles.
//!
//! Cost for `n` particles, each in 1.3 tiles with cloud in cell, and `c` cells: 20 `n` bytes to
//! count, 12 `n` for the order, 21 `n` to paint, 4 `c` for densities or 8 `c` for painted cells,
//! and 0.05 `c` for counters and their scan. These are 53 `n` + 4 `c` bytes in 7 to 9 dispatches,
//! where additions to memory take 12 `n` + 24 `c` in two.

use std::sync::OnceLock;

use super::{Kind, Lanes, MeshParticles, ParticleKernel, ParticlesAnd, Window, four, particle_kernel_of};
use crate::gpu::primitives::{Count, Scan};
use crate::gpu::{Array, CountParams, DeviceError, Element, Kernel, KernelSource, Painting, Profile, Recorder, pooled};
use crate::grid::Mesh;

pub(super) const PAINTED_DENSITY: &str = include_str!("../../shaders/mesh/painted_density.wgsl");

/// Cells of a tile along each axis at most. Rows along z are 128 bytes of densities. With six bytes
/// a cell and the lists a tile takes 12.6 KiB, less than the 16 that any device has.
const TILE: [u64; 3] = [8, 8, 32];
/// Cells of a tile at most.
const TILE_CELLS: u64 = TILE[0] * TILE[1] * TILE[2];
/// Particles of a tile that one workgroup paints; tiles with more are split. A workgroup counts the
/// carries of a cell in 16 bits, which hold 2^20 particles.
const SPLIT: u64 = 1 << 14;
/// Cells of splits fit where the lists and places of particles were.
const _: () = assert!(2 * TILE_CELLS * MOST_TILES <= 2 * SPLIT);
/// Tiles that the window of a particle touches at most.
const MOST_TILES: u64 = 8;
/// Lists of a tile: by the axes along which the windows of their particles reach the next tile.
const LISTS: u64 = 8;
/// Workgroups that paint the parts of split tiles, one after the other.
const PART_GROUPS: u64 = 2048;
/// Particles from which on tiles pay on a GPU. With fewer, seven more dispatches cost more than
/// additions to memory.
const LEAST: u64 = 1 << 20;
/// Particles for which words of lists can be counted in 32 bits.
const MOST: u64 = 1 << 30;

crate::gpu::kernel_params! {
    struct TileParams {
        /// Tiles along each axis, and the particles from which on they are split.
        tiles: [u32; 4],
        /// Cells of the smaller tiles.
        shorter: [u32; 4],
        /// Tiles with one cell more.
        longer: [u32; 4],
        /// Place of the counters of splits, splits at most, and the workgroups that paint them.
        splits: [u32; 4],
        /// Scale and shift of densities.
        by: [f32; 2],
    }
}

/// Returns how a device of this profile paints `particles` particles, if its options leave it
/// open.
pub(crate) fn painting(profile: Profile, chosen: Option<Painting>, particles: u64) -> Painting {
    match chosen {
        _ if particles > MOST => Painting::Memory,
        Some(painting) => painting,
        None if profile == Profile::Gpu && particles >= LEAST => Painting::Tiles,
        None => Painting::Memory,
    }
}

/// Bytes that painting moves through device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaintTraffic {
    /// For a particle.
    pub particle: u64,
    /// For a cell.
    pub cell: u64,
    /// For a cell, when its density is read.
    pub density: u64,
}

impl PaintTraffic {
    /// Returns the bytes of painting, into densities of one rank, which only tiles can, or into
    /// painted cells. Reads at random places count as if neighbors shared them.
    pub fn new(painting: Painting, is_alone: bool) -> Self {
        let (particle, cell, density) = match painting {
            // Positions are read. Cells are cleared, read and written.
            Painting::Memory => (12, 3 * 8, 8),
            // Positions and 8 bytes to count; these and 4 for the order; and 16 for each of the 1.3
            // tiles that a particle reaches.
            Painting::Tiles if is_alone => (20 + 12 + 21, 4, 4),
            Painting::Tiles => (20 + 12 + 21, 8, 8),
        };
        PaintTraffic { particle, cell, density }
    }
}

/// The tiles of an array, and the words of the arrays that painting takes beside the cells.
pub(crate) struct TilePlan {
    /// Tiles along each axis.
    tiles: [u64; 3],
    /// Lists of all tiles.
    lists: u64,
    /// Splits at most: each has more than [`SPLIT`] particles.
    splits: u64,
    /// Parts of splits at most.
    parts: u64,
    particles: u64,
}

impl TilePlan {
    /// Creates the plan for an array of this shape.
    pub fn new(shape: [u64; 3], particles: u64) -> Self {
        let tiles = [0, 1, 2].map(|axis| shape[axis].div_ceil(TILE[axis]));
        let number = tiles.iter().product::<u64>();
        let most = if particles > SPLIT { MOST_TILES * particles / SPLIT } else { 0 };
        let splits = most.min(number);
        TilePlan { tiles, lists: LISTS * number, splits, parts: most + splits, particles }
    }

    /// Returns the words of the lists and places of particles. Later they hold the cells of splits.
    fn places(&self) -> u64 {
        2 * self.particles
    }

    /// Returns the words of `work` of the kernels.
    fn work(&self) -> u64 {
        self.places() + 2 + self.splits + 2 * self.parts
    }

    /// Returns the words of each array that lives while particles are painted, beside the cells.
    fn words(&self) -> [u64; 4] {
        [self.lists, self.lists + 1, self.work(), self.particles]
    }

    /// Returns the bytes of these arrays, and of the sums of the scan.
    pub fn bytes(&self) -> u64 {
        let sums = self.lists.div_ceil(1024);
        self.words().into_iter().chain([sums]).map(|words| pooled(4 * words)).sum()
    }

    fn arrays(&self, recorder: &Recorder) -> Result<[Array<u32>; 4], DeviceError> {
        let gpu = recorder.gpu();
        let [counts, starts, work, order] = self.words();
        Ok([
            gpu.array("mesh::tile_counts", counts)?,
            gpu.array("mesh::tile_starts", starts)?,
            gpu.array("mesh::tile_work", work)?,
            gpu.array("mesh::tile_order", order)?,
        ])
    }

    fn params(
        &self,
        particles: &MeshParticles<'_>,
        mesh: &Mesh,
        groups: u64,
        by: [f32; 2],
    ) -> ParticlesAnd<TileParams> {
        let (array, tiles) = (mesh.layout().shape(), self.tiles);
        let own = TileParams {
            tiles: four(tiles, SPLIT),
            shorter: four([0, 1, 2].map(|axis| array[axis] / tiles[axis].max(1)), 0),
            longer: four([0, 1, 2].map(|axis| array[axis] % tiles[axis].max(1)), 0),
            splits: four([self.places(), self.splits, groups], 0),
            by,
        };
        ParticlesAnd { common: particles.geometry(mesh, mesh.layout()), own }
    }
}

/// Form of the cells of tiles in memory.
#[derive(Clone, Copy)]
pub(super) enum Output<'a> {
    /// Densities, with a scale and a shift.
    Density(&'a Array<f32>, [f32; 2]),
    /// Painted cells, two words each.
    Cells(&'a Array<u32>),
}

/// Kernels over the particles of one kind.
struct TileKernels {
    count: ParticleKernel,
    /// Into painted cells, and into densities.
    paint: [Kernel; 2],
    parts: Kernel,
}

fn with_tiles(source: KernelSource) -> KernelSource {
    let [x, y, z] = TILE.map(|cells| cells as u32);
    source
        .module("mesh::tile", include_str!("../../shaders/mesh/tile.wgsl"))
        .module("mesh::tile_store", include_str!("../../shaders/mesh/tile_store.wgsl"))
        .module("mesh::painted_density", PAINTED_DENSITY)
        .params::<ParticlesAnd<TileParams>>()
        .constant("TILE_X", x)
        .constant("TILE_Y", y)
        .constant("TILE_Z", z)
}

fn count_kernel(window: Window, kind: Kind, lanes: Lanes) -> KernelSource {
    let text = include_str!("../../shaders/mesh/tile_count.wgsl");
    with_tiles(kind.flags(particle_kernel_of("mesh::tile_count", text, window, lanes)))
}

/// Rounds of loops that an invocation takes for a tile, or a part of one, at most: for each of 256
/// particles those to find it and its nodes, with four nodes along each axis.
const ROUNDS: u32 = 1 << 14;

/// Returns what paints tiles into painted cells or densities, or, without either, parts of tiles.
fn paint_kernel(window: Window, kind: Kind, density: Option<bool>) -> KernelSource {
    let label = match density {
        Some(true) => "mesh::tile_densities",
        Some(false) => "mesh::tile_cells",
        None => "mesh::tile_parts",
    };
    let text = include_str!("../../shaders/mesh/tile_paint.wgsl");
    with_tiles(kind.flags(particle_kernel_of(label, text, window, Lanes::Alone)))
        .flag("parts", density.is_none())
        .flag("density", density == Some(true))
        .loop_rounds(ROUNDS)
}

fn splits_kernel(density: bool) -> KernelSource {
    let label = if density { "mesh::split_densities" } else { "mesh::split_cells" };
    with_tiles(KernelSource::new(label, include_str!("../../shaders/mesh/tile_splits.wgsl"))).flag("density", density)
}

fn order_kernel() -> KernelSource {
    let source = KernelSource::new("mesh::tile_order", include_str!("../../shaders/mesh/tile_order.wgsl"));
    source.params::<CountParams>()
}

/// Returns the kernels that every device runs, for all windows.
pub(super) fn kernels() -> Vec<KernelSource> {
    let of = |window| {
        Kind::ALL.into_iter().flat_map(move |kind| {
            let paint = [Some(false), Some(true), None].map(|density| paint_kernel(window, kind, density));
            paint.into_iter().chain([count_kernel(window, kind, Lanes::Alone)])
        })
    };
    let others = [order_kernel(), splits_kernel(false), splits_kernel(true)];
    Window::ALL.into_iter().flat_map(of).chain(others).collect()
}

/// Returns the kernels for GPUs with subgroups.
pub(super) fn paired_kernels() -> Vec<KernelSource> {
    let of = |window| Kind::ALL.map(|kind| count_kernel(window, kind, Lanes::Paired));
    Lanes::Paired.windows().flat_map(of).collect()
}

impl TileKernels {
    fn new(window: Window, kind: Kind) -> Self {
        let kernel = |density| Kernel::trusted(paint_kernel(window, kind, density));
        TileKernels {
            count: ParticleKernel::new(window, |lanes| count_kernel(window, kind, lanes)),
            paint: [false, true].map(|density| kernel(Some(density))),
            parts: kernel(None),
        }
    }
}

/// Paints particles of equal mass by tiles, with one window.
pub(super) struct TilePainter {
    window: Window,
    /// By the number of the kind; made when they are used first.
    kernels: [OnceLock<TileKernels>; 3],
    order: Kernel,
    /// Into painted cells, and into densities.
    splits: [Kernel; 2],
    scan: Scan,
}

impl TilePainter {
    pub fn new(window: Window) -> Self {
        TilePainter {
            window,
            kernels: Default::default(),
            order: Kernel::trusted(order_kernel()),
            splits: [false, true].map(|density| Kernel::trusted(splits_kernel(density))),
            scan: Scan::new(),
        }
    }

    /// Submits `output` = what `particles` paint on the cells of `mesh`, ghost cells included, and
    /// adds those that it cannot paint to `faults[0]`. A density takes a mesh without ghost cells.
    /// Fails with [`DeviceError::TooManyWindows`], before it changes anything, where a device with
    /// few bindings has room for fewer arrays.
    pub fn paint(
        &self,
        recorder: &mut Recorder,
        particles: MeshParticles<'_>,
        mesh: &Mesh,
        output: Output<'_>,
        faults: &Array<u32>,
    ) -> Result<(), DeviceError> {
        let (gpu, count) = (recorder.gpu().clone(), particles.len());
        let plan = TilePlan::new(mesh.layout().shape(), count);
        let [counts, starts, work, order] = plan.arrays(recorder)?;
        let groups = match gpu.capabilities().loop_rounds {
            // Loops end early where they take too many rounds.
            Some(_) => plan.parts,
            None => plan.parts.min(PART_GROUPS),
        };
        let (which, cells, by) = match output {
            Output::Cells(cells) => (0, cells.raw().seen_as(Element::Words2), [0.0; 2]),
            Output::Density(out, by) => (1, out.raw().clone(), by),
        };
        let params = plan.params(&particles, mesh, groups, by);
        let kind = Kind::of(&particles);
        let kernels = self.kernels[kind as usize].get_or_init(|| TileKernels::new(self.window, kind));
        let of_particles = particles.arrays();
        let painting = [&of_particles[..], &[order.raw(), starts.raw(), work.raw(), &cells]].concat();
        // The kernel with the most arrays, before others count faults.
        kernels.paint[which].prepare(&gpu, &painting)?;
        recorder.clear(&counts);
        let arrays = [&of_particles[..], &[counts.raw(), work.raw(), faults.raw()]].concat();
        kernels.count.record(recorder, &arrays, &params, count)?;
        self.scan.exclusive(recorder, &counts, &starts, Count::All)?;
        let arrays = [work.raw(), starts.raw(), order.raw()];
        recorder.each(&self.order, &arrays, &CountParams { count: count as u32 }, count)?;
        recorder.dispatch(&kernels.paint[which], &painting, &params, plan.lists / LISTS)?;
        if plan.splits > 0 {
            let arrays = [&of_particles[..], &[order.raw(), starts.raw(), work.raw()]].concat();
            recorder.dispatch(&kernels.parts, &arrays, &params, groups)?;
            recorder.dispatch(&self.splits[which], &[work.raw(), &cells], &params, groups)?;
        }
        // All arrays but the output are free again for what follows.
        recorder.submit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of four nodes that begins in a tile ends in the next one.
    #[test]
    fn tiles_are_at_least_as_wide_as_a_window_reaches() {
        for cells in 1..2000 {
            let [tiles, _, long_tiles] = TilePlan::new([cells, 1, cells], 0).tiles;
            assert!(tiles == 1 || cells / tiles >= 3, "{tiles} tiles of {cells} cells");
            assert!(cells.div_ceil(tiles) <= TILE[0] && cells.div_ceil(long_tiles) <= TILE[2]);
        }
    }

    #[test]
    fn splits_and_parts_have_room_for_any_particles() {
        // Each particle is in eight tiles, and as many tiles as possible have one too many.
        for particles in [0, SPLIT, SPLIT + 1, 3 * SPLIT, 1 << 20, MOST] {
            let plan = TilePlan::new([1024; 3], particles);
            let splits = if particles > SPLIT { 8 * particles / (SPLIT + 1) } else { 0 };
            assert!(plan.splits >= splits && plan.parts >= 2 * splits, "{particles}");
            assert!(plan.parts >= (8 * particles).div_ceil(SPLIT) || splits == 0, "{particles}");
            assert!(plan.work() < 1 << 32);
        }
        // And few tiles.
        assert_eq!(TilePlan::new([8, 8, 32], 1 << 20).splits, 1);
    }

    #[test]
    fn small_problems_and_processors_add_to_memory() {
        use Painting::{Memory, Tiles};
        assert_eq!(painting(Profile::Gpu, None, LEAST), Tiles);
        assert_eq!(painting(Profile::Gpu, None, LEAST - 1), Memory);
        assert_eq!(painting(Profile::Software, None, LEAST), Memory);
        assert_eq!(painting(Profile::Software, Some(Tiles), 1), Tiles);
        assert_eq!(painting(Profile::Gpu, Some(Tiles), MOST + 1), Memory);
    }
}
