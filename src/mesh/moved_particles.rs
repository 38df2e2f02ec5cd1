//! Particles that vectors on the device place anywhere in a periodic box, on the ranks of a mesh;
//! the ranks that own the cells of particles, and points in the cells of this rank.

use super::value_painter::Form;
use super::{
    Axpby, Lanes, MeshError, MeshParticles, PaintedDensity, PaintedValues, Painter, ParticlesAnd, PositionDerivatives,
    ValuePainter, Window, check_mesh, checked, four, of_lattice, particle_kernel_of,
};
use crate::comm::Op;
use crate::exchange::GridComms;
use crate::exchange::ghost_cells::GhostCells;
use crate::gpu::{Array, DeviceError, Gpu, Kernel, KernelSource, Recorder, holds};
use crate::grid::{Grid, Mesh, extent};
use crate::host_memory;
use crate::points::sort::{Route, back_by, forward_by, route_to};
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct PlaceParams {
        /// First site of this rank, and number of particles.
        first: [u32; 4],
        /// Sites of this rank.
        local: [u32; 4],
        /// Sites of the lattice, and parts of the mesh along axis 1.
        sites: [u32; 4],
        /// Cells of the mesh.
        mesh: [u32; 4],
        per_site: [f32; 4],
        /// Cells per length, and what they are more than that.
        per_cell: [f32; 4],
        rest: [f32; 4],
    }
}

crate::gpu::kernel_params! {
    struct SettleParams {
        /// First own cell along each axis, and what a step along it is in the array.
        start: [u32; 4],
        strides: [u32; 4],
        count: u32,
        /// Place of the first own cell in the array.
        origin: u32,
        unit: f32,
        pad: u32,
    }
}

crate::gpu::kernel_params! {
    struct MassParams {
        per_cell: [f32; 4],
        count: u32,
        unit: f32,
        pad: [u32; 2],
    }
}

fn place_kernel(lattice: bool) -> KernelSource {
    KernelSource::new("mesh::place", include_str!("../../shaders/mesh/place.wgsl"))
        .params::<PlaceParams>()
        .module("mesh::window", include_str!("../../shaders/mesh/window.wgsl"))
        .flag("lattice", lattice)
        .flag("tsc", false)
        .flag("pcs", false)
}

fn settle_kernel(weighted: bool) -> KernelSource {
    KernelSource::new("mesh::settle", include_str!("../../shaders/mesh/settle.wgsl"))
        .params::<SettleParams>()
        .flag("weighted", weighted)
}

fn mass_kernel() -> KernelSource {
    KernelSource::new("mesh::mass_moves", include_str!("../../shaders/mesh/mass_moves.wgsl")).params::<MassParams>()
}

/// Returns the kernels of this file.
pub(super) fn kernels() -> [KernelSource; 5] {
    [place_kernel(false), place_kernel(true), settle_kernel(false), settle_kernel(true), mass_kernel()]
}

/// The particles of a rank, as vectors describe them.
#[derive(Clone, Copy)]
pub(crate) struct Movements<'a> {
    /// Three components: all along x, then y, then z.
    pub vectors: &'a Array<f32>,
    /// The mesh whose cells are the sites from which particles are displaced; `None` if vectors are
    /// positions.
    pub lattice: Option<&'a Mesh>,
    /// The weight of each particle; `None` if all are 1.
    pub weights: Option<&'a Array<f32>>,
}

/// Particles on the ranks that own their cells of a mesh, and their way there and back.
pub(crate) struct MovedParticles {
    mesh: Mesh,
    points: CellPoints,
    /// Contribution of each particle to the mesh: `unit` times its weight.
    mass: Array<f32>,
    /// Contribution of a weight of 1: the mean over all cells is 1 if all weights are.
    unit: f64,
    is_weighted: bool,
    /// Particles of this rank before they were sent.
    own: u64,
    total: u64,
}

impl MovedParticles {
    /// Sends each particle to the rank that owns its cell of `mesh`, which has the ghost cells of
    /// [`PointsInCells::with_ghosts`](super::PointsInCells::with_ghosts). Collective; blocks. Sends
    /// 24 bytes per particle, and 4 for its weight.
    ///
    /// # Errors
    /// - [`MeshError::Unresolved`] if a position of any rank is not finite or beyond 2^22 cells, on
    ///   all ranks.
    /// - [`MeshError::Device`] if device memory is short.
    pub fn send(rank: &mut Rank, mesh: &Mesh, movements: Movements<'_>) -> Result<Self, MeshError> {
        check_mesh("MovedParticles::send", mesh)?;
        let Movements { vectors, lattice, weights } = movements;
        let (gpu, comm, own) = (rank.gpu.clone(), rank.comm.clone(), vectors.len() / 3);
        let shape = mesh.shape();
        let table = parts_of_cells(&mut rank.recorder, shape, mesh.grid())?;
        let (mut placed, owners) = (gpu.array::<u32>("mesh::placed", 6 * own)?, gpu.array("mesh::owners", own)?);
        let faults = gpu.array::<u32>("mesh::faults", 1)?;
        rank.recorder.clear(&faults);
        let arrays = [vectors.raw(), table.raw(), placed.raw(), owners.raw(), faults.raw()];
        let kernel = Kernel::trusted(place_kernel(lattice.is_some()));
        rank.recorder.each(&kernel, &arrays, &place_params(mesh, lattice, own), own)?;
        let faults = u64::from(rank.recorder.download(&faults, 0, 1)?[0]);
        let [faults, total] = comm.reduced([faults, own], Op::Sum)?;
        if faults > 0 {
            return Err(MeshError::Unresolved { count: faults });
        }
        let (mut masses, mut route) = (weights.cloned(), None);
        if comm.size() > 1 {
            let way = route_to(rank, &owners)?;
            placed = way.forward(rank, &placed, 6)?;
            masses = masses.map(|weights| way.forward(rank, &weights, 1)).transpose()?;
            route = Some(way);
        }
        let count = placed.len() / 6;
        let unit = shape.iter().map(|&n| n as f64).product::<f64>() / total.max(1) as f64;
        let points = CellPoints::new(&gpu, count, route)?;
        let mass = gpu.array("mesh::mass", count)?;
        let CellPoints { cell, offset: [x, y, z], .. } = &points;
        let mut arrays = vec![placed.raw()];
        arrays.extend(masses.as_ref().map(|masses| masses.raw()));
        arrays.extend([cell.raw(), x.raw(), y.raw(), z.raw(), mass.raw()]);
        let layout = mesh.layout();
        let params = SettleParams {
            start: four(layout.own.each_ref().map(|range| range.start), 0),
            strides: four(layout.strides(), 0),
            count: count as u32,
            origin: layout.offset() as u32,
            unit: unit as f32,
            pad: 0,
        };
        rank.recorder.each(&Kernel::trusted(settle_kernel(masses.is_some())), &arrays, &params, count)?;
        let is_weighted = weights.is_some();
        Ok(MovedParticles { mesh: mesh.clone(), points, mass, unit, is_weighted, own, total })
    }

    /// Records `out` = the density on this rank's own cells. Particles of equal weight are counted
    /// as [`Painter`] does; NaN everywhere if a weight of any rank is not finite. Collective.
    pub fn density(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        (painter, values, ghosts): (&Painter, &ValuePainter, &GhostCells),
        out: &Array<f32>,
    ) -> Result<(), MeshError> {
        let (mesh, particles) = (&self.mesh, self.points.particles());
        if self.is_weighted {
            let greatest = values.greatest(recorder, comms.world(), &self.mass)?;
            let painted =
                PaintedValues { particles, values: &self.mass, first: 0, greatest: &greatest, total: self.total };
            return Ok(values.paint(recorder, comms, (mesh, ghosts), painted, (out, 0))?);
        }
        // All positions are finite, and no window reaches beyond the ghost cells.
        let faults = &recorder.gpu().array::<u32>("mesh::faults", 1)?;
        let painted = PaintedDensity { mesh, ghosts, faults, scale: self.unit, shift: 0.0 };
        Ok(painter.density_of(recorder, comms, particles, &painted, out)?)
    }

    /// Computes `out` = the change of the density where vectors change by `vectors` and weights by
    /// `weights`, on the rank and in the order of before. Collective.
    pub fn density_change(
        &self,
        rank: &mut Rank,
        (values, ghosts): (&ValuePainter, &GhostCells),
        (vectors, weights): (&Array<f32>, Option<&Array<f32>>),
        out: &Array<f32>,
    ) -> Result<(), MeshError> {
        let (gpu, count) = (rank.gpu.clone(), self.points.cell.len());
        let changes = gpu.array::<f32>("mesh::changes", 4 * count)?;
        rank.recorder.clear(&changes);
        let parts = [(vectors, 0), (vectors, 1), (vectors, 2)].into_iter().chain(weights.map(|weights| (weights, 0)));
        for (part, (array, component)) in (0..).zip(parts) {
            let one = gpu.array("mesh::change", self.own)?;
            rank.recorder.copy(array, component * self.own, &one, 0, self.own)?;
            let one = forward_by(self.points.route.as_ref(), rank, &one, 1)?;
            rank.recorder.copy(&one, 0, &changes, part * count, count)?;
        }
        let params =
            MassParams { per_cell: per_cell(&self.mesh), count: count as u32, unit: self.unit as f32, pad: [0; 2] };
        let arrays = [self.mass.raw(), changes.raw()];
        rank.recorder.each(&Kernel::trusted(mass_kernel()), &arrays, &params, count)?;
        let parts = rank.parts(self.mesh.grid())?;
        let (recorder, comms) = (parts.recorder, parts.comms);
        let greatest = values.greatest(recorder, comms.world(), &changes)?;
        let (particles, total) = (self.points.particles(), self.total);
        let painted = PaintedValues { particles, values: &changes, first: 0, greatest: &greatest, total };
        Ok(values.record(recorder, comms, (&self.mesh, ghosts), (Form::Changes, painted), (out, 0), 0.0)?)
    }

    /// Computes the cotangents of the vectors and the weights, on the rank and in the order of
    /// before, from that of the density, `field` with ghost cells. Collective.
    pub fn cotangents(
        &self,
        rank: &mut Rank,
        (adjoint, painter): (&PositionDerivatives, &Painter),
        field: &Array<f32>,
        (vectors, weights): (&Array<f32>, Option<&Array<f32>>),
    ) -> Result<(), MeshError> {
        let (gpu, mesh, count) = (rank.gpu.clone(), &self.mesh, self.points.cell.len());
        let bars = gpu.array::<f32>("mesh::bars", 3 * count)?;
        rank.recorder.clear(&bars);
        adjoint.paint_in_cells(&mut rank.recorder, (self.points.particles(), &self.mass), (mesh, field), &bars)?;
        for axis in 0..3 {
            let one = gpu.array("mesh::bar", count)?;
            rank.recorder.copy(&bars, axis * count, &one, 0, count)?;
            let one = back_by(self.points.route.as_ref(), rank, &one, 1)?;
            rank.recorder.copy(&one, 0, vectors, axis * self.own, self.own)?;
        }
        if let Some(weights) = weights {
            let (read, one) = (gpu.array("mesh::read", count)?, gpu.array("mesh::bar", count)?);
            painter.readout(&mut rank.recorder, self.points.particles(), mesh, field, 0, &read)?;
            Axpby::default().record(&mut rank.recorder, self.unit, &read, 0.0, &one)?;
            let one = back_by(self.points.route.as_ref(), rank, &one, 1)?;
            rank.recorder.copy(&one, 0, weights, 0, self.own)?;
        }
        Ok(())
    }
}

fn per_cell(mesh: &Mesh) -> [f32; 4] {
    let [x, y, z] = mesh.cell_size().map(|cell| (1.0 / cell) as f32);
    [x, y, z, 0.0]
}

fn place_params(mesh: &Mesh, lattice: Option<&Mesh>, own: u64) -> PlaceParams {
    let per_cell = per_cell(mesh);
    let rest = [0, 1, 2].map(|axis| (1.0 / mesh.cell_size()[axis] - f64::from(per_cell[axis])) as f32);
    let (first, local, sites) = match lattice {
        Some(lattice) => (lattice.own().each_ref().map(|range| range.start), extent(lattice.own()), lattice.shape()),
        None => ([0; 3], [1; 3], [1; 3]),
    };
    let [x, y, z] = sites.map(|n| (1.0 / n as f64) as f32);
    PlaceParams {
        first: four(first, own),
        // An empty rank divides by no sites.
        local: four(local.map(|n| n.max(1)), 0),
        sites: four(sites, mesh.grid().parts()[1] as u64),
        mesh: four(mesh.shape(), 0),
        per_site: [x, y, z, 0.0],
        per_cell,
        rest: [rest[0], rest[1], rest[2], 0.0],
    }
}

/// Points on the rank that owns their cells.
pub(super) struct CellPoints {
    /// The element of the mesh's array of each point's cell.
    pub cell: Array<u32>,
    /// Offsets in the cells, an array for each axis.
    pub offset: [Array<f32>; 3],
    /// From the rows of those who gave the points to the points here; `None` if they are the same.
    pub route: Option<Route>,
}

impl CellPoints {
    /// Allocates the arrays of `count` points.
    pub fn new(gpu: &Gpu, count: u64, route: Option<Route>) -> Result<Self, DeviceError> {
        let offset = || gpu.array("mesh::points", count);
        Ok(CellPoints { cell: gpu.array("mesh::points", count)?, offset: [offset()?, offset()?, offset()?], route })
    }

    /// Returns the points for painting and reading.
    pub fn particles(&self) -> MeshParticles<'_> {
        MeshParticles::InCells { cell: &self.cell, offset: self.offset.each_ref() }
    }
}

crate::gpu::kernel_params! {
    struct OwnerParams {
        /// This rank.
        rank: u32,
        /// Parts of the mesh along axis 1.
        parts: u32,
    }
}

fn owner_kernel(window: Window, listed: bool) -> KernelSource {
    particle_kernel_of("mesh::owners", include_str!("../../shaders/mesh/owners.wgsl"), window, Lanes::Alone)
        .params::<ParticlesAnd<OwnerParams>>()
        .flag("in_cells", false)
        .flag("listed", listed)
}

/// Returns the kernels for all windows.
pub(super) fn owner_kernels() -> impl Iterator<Item = KernelSource> {
    Window::ALL.into_iter().flat_map(|window| [false, true].map(|listed| owner_kernel(window, listed)))
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
        let kernels = [false, true].map(|listed| Kernel::trusted(owner_kernel(window, listed)));
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
