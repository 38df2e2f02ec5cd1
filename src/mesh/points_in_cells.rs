//! Points given by coordinates in a periodic box, distributed over the ranks of a mesh.

use super::mode_bins::Unit;
use super::moved_particles::CellPoints;
use super::power::{all_finite, first_of_all};
use super::value_painter::Form;
use super::{
    MeshError, MeshParticles, PaintedDensity, PaintedValues, Painter, ValuePainter, Window, check_mesh, four,
    parts_of_cells, wrapped_axes,
};
use crate::comm::{Communicator, Op};
use crate::exchange::GridComms;
use crate::exchange::ghost_cells::GhostCells;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};
use crate::grid::{LayoutError, Mesh};
use crate::host_memory;
use crate::points::sort::route_to;
use crate::points::{Cloud, offsets};
use crate::rank::Rank;

/// Points anywhere in a periodic box, each on the rank that owns the mesh cell it lies in.
///
/// - Coordinates are `f64` on the host, wrapped into the box (`x == L` is `x = 0`); a point becomes
///   a cell and an `f32` offset from the cell's node, so that precision depends neither on the box
///   nor on where the point lies.
/// - Which rank hands over which points does not matter: what is painted is the same to the last
///   bit.
///
/// ```no_run
/// # fn body(rank: &mut meshloom::Rank, positions: &[[f64; 3]]) -> Result<(), meshloom::Error> {
/// use meshloom::mesh::{Painter, PointsInCells, Window};
///
/// let mesh = rank.mesh([64; 3]).periodic([100.0; 3]).build()?;
/// let mesh = PointsInCells::with_ghosts(&mesh, Window::Tsc, false)?;
/// let density = rank.gpu.array::<f32>("density", mesh.own_cells())?;
/// let comm = rank.comm.clone();
/// let points = PointsInCells::distribute(&mut rank.recorder, &comm, &mesh, positions, None)?;
/// let parts = rank.parts(mesh.grid())?;
/// points.density(parts.recorder, parts.comms, &Painter::new(Window::Tsc), -1.0, &density)?;
/// # Ok(())
/// # }
/// ```
pub struct PointsInCells {
    mesh: Mesh,
    pub(super) cell_points: CellPoints,
    total: u64,
    sent: u64,
    /// Whether points have been moved, and need more ghost cells.
    is_shifted: bool,
    weights: Option<Weights>,
}

/// The weights of points.
struct Weights {
    /// Weights of this rank's points, in units of the mean weight of a cell.
    values: Array<f32>,
    /// The number of points of equal weight that would have the same shot noise.
    effective_count: f64,
}

crate::gpu::kernel_params! {
    struct LocateParams {
        shape: [u32; 4],
        /// First own cell along each axis, and what a step along it is in the array.
        start: [u32; 4],
        strides: [u32; 4],
        /// Cells per length, and what they are more than that.
        per_length: [f32; 4],
        rest: [f32; 4],
        count: u32,
        /// Place of the first own cell in the array.
        origin: u32,
        /// Parts along axis 1.
        columns: u32,
        pad: u32,
    }
}

impl LocateParams {
    fn new(mesh: &Mesh, per_length: [f64; 3], columns: u32) -> Self {
        let layout = mesh.layout();
        let high = per_length.map(|x| x as f32);
        let rest = [0, 1, 2].map(|axis| (per_length[axis] - f64::from(high[axis])) as f32);
        LocateParams {
            shape: four(mesh.shape(), 0),
            start: four(layout.own.each_ref().map(|range| range.start), 0),
            strides: four(layout.strides(), 0),
            per_length: [high[0], high[1], high[2], 0.0],
            rest: [rest[0], rest[1], rest[2], 0.0],
            count: 0,
            origin: layout.offset() as u32,
            columns,
            pad: 0,
        }
    }
}

/// Returns the kernel that finds the owners of points, or their cells.
fn locate_kernel(owner: bool) -> KernelSource {
    KernelSource::new("mesh::locate", include_str!("../../shaders/mesh/locate.wgsl"))
        .params::<LocateParams>()
        .flag("owner", owner)
}

/// Returns the kernels of this file.
pub(super) fn kernels() -> [KernelSource; 2] {
    [true, false].map(locate_kernel)
}

/// A point as it is sent: its cell of the whole mesh, and its offset from the cell's node in cells,
/// in `[0, 1)`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Placed {
    cell: [u32; 3],
    offset: [f32; 3],
}

/// Cell and offset along one axis.
fn locate(x: f64, size: f64, cells: u64) -> (u32, f32) {
    let inside = if (0.0..size).contains(&x) { x } else { x.rem_euclid(size) };
    // A remainder just below 0 has been rounded up to the size.
    let inside = if inside < size { inside } else { 0.0 };
    let at = inside / size * cells as f64;
    let (cell, offset) = (at.floor(), (at - at.floor()) as f32);
    // The next node may be the nearest f32.
    let (cell, offset) = if offset < 1.0 { (cell as u64, offset) } else { (cell as u64 + 1, 0.0) };
    ((cell % cells) as u32, offset)
}

impl PointsInCells {
    /// Returns `mesh` with the ghost cells that painting points with `window` needs; with
    /// `shifted`, also after a [`shift`](Self::shift) by half a cell. Axes that are not cut get
    /// none.
    ///
    /// # Errors
    /// - [`LayoutError::Ghosts`] if the axis has too few cells for the window.
    pub fn with_ghosts(mesh: &Mesh, window: Window, shifted: bool) -> Result<Mesh, LayoutError> {
        let is_cut = [0, 1, 2].map(|axis| mesh.grid().along(axis) > 1);
        mesh.with_ghosts(is_cut.map(|is_cut| if is_cut { widths(window, shifted) } else { [0, 0] }))
    }

    /// Sends each of this rank's `positions` to the rank that owns its cell of `mesh`. Positions
    /// outside the box are wrapped. Given weights, such as masses, [`density`](Self::density)
    /// returns the density of the weights. Collective; ranks may give different numbers of
    /// positions.
    ///
    /// # Errors
    /// On all ranks:
    /// - [`MeshError::NotFinite`] for the first position of all ranks that is not finite.
    /// - [`MeshError::Weight`] for the first weight of all ranks that is negative or not finite.
    /// - [`MeshError::Weights`] if a rank has more or fewer weights than positions, or all weights
    ///   are 0.
    /// - [`MeshError::Device`] if the mesh has open faces, or, on this rank only, without memory.
    pub fn distribute(
        recorder: &mut Recorder,
        comm: &Communicator,
        mesh: &Mesh,
        positions: &[[f64; 3]],
        weights: Option<&[f32]>,
    ) -> Result<Self, MeshError> {
        check_mesh("PointsInCells::distribute", mesh)?;
        let (shape, size, parts) = (mesh.shape(), mesh.size(), mesh.grid().parts());
        let mut before = [positions.len() as u64];
        comm.scan_exclusive(&mut before, Op::Sum)?;
        let [total] = comm.reduced([positions.len() as u64], Op::Sum)?;
        all_finite(comm, positions.as_flattened(), |at| [before[0] + at / 3, at % 3])?;
        let sums = weights.map(|weights| WeightSums::new(comm, weights, positions.len(), before[0])).transpose()?;

        let owners = [0, 1].map(|a| {
            let shares = mesh.grid().shares_along(a);
            (0..shape[a]).map(|cell| shares.owner(shape[a], cell)).collect::<Vec<_>>()
        });
        let rank_of = |point: &Placed| owners[0][point.cell[0] as usize] * parts[1] + owners[1][point.cell[1] as usize];
        let place = |x: &[f64; 3]| {
            let at = [0, 1, 2].map(|a| locate(x[a], size[a], shape[a]));
            Placed { cell: at.map(|(cell, _)| cell), offset: at.map(|(_, offset)| offset) }
        };
        let placed = host_memory::collect("cells of points", positions.iter().map(place))?;
        let mut counts = vec![0u64; comm.size()];
        placed.iter().for_each(|point| counts[rank_of(point)] += 1);
        let mut next = offsets(&counts);
        let mut sorted = host_memory::zeros("points sorted by rank", placed.len())?;
        let mut sorted_weights: Vec<f32> =
            host_memory::zeros("weights sorted by rank", weights.map_or(0, <[f32]>::len))?;
        for (index, point) in placed.into_iter().enumerate() {
            let next = &mut next[rank_of(&point)];
            sorted[*next as usize] = point;
            if let Some(weights) = weights {
                sorted_weights[*next as usize] = weights[index];
            }
            *next += 1;
        }
        let mut sent = (sorted.len() as u64 - counts[comm.rank()]) * size_of::<Placed>() as u64;
        let arrived = comm.all_to_all_v(&sorted, &counts)?;
        drop(sorted);
        let weights = match sums {
            None => None,
            Some(sums) => {
                sent += (sorted_weights.len() as u64 - counts[comm.rank()]) * 4;
                let arrived = comm.all_to_all_v(&sorted_weights, &counts)?;
                // The mean over all cells becomes 1.
                let unit = shape.iter().map(|&n| n as f64).product::<f64>() / sums.sum;
                let scaled = arrived.data().iter().map(|&weight| (f64::from(weight) * unit) as f32);
                let scaled = host_memory::collect("weights of points", scaled)?;
                let values = recorder.uploaded("mesh::weights", &scaled)?;
                Some(Weights { values, effective_count: sums.sum * (sums.sum / sums.squares) })
            }
        };

        let (points, layout) = (arrived.data(), mesh.layout());
        let (origin, strides) = (layout.offset(), layout.strides());
        let index = |point: &Placed| {
            let steps = (0..3).map(|a| (u64::from(point.cell[a]) - layout.own[a].start) * strides[a]);
            (origin + steps.sum::<u64>()) as u32
        };
        let cells = host_memory::collect("cells of points", points.iter().map(index))?;
        let cell = recorder.uploaded("mesh::points", &cells)?;
        let mut along = |a: usize| -> Result<Array<f32>, DeviceError> {
            let offsets = points.iter().map(|point| point.offset[a]);
            recorder.uploaded("mesh::points", &host_memory::collect("offsets of points in cells", offsets)?)
        };
        let cell_points = CellPoints { cell, offset: [along(0)?, along(1)?, along(2)?], route: None };
        Ok(PointsInCells { mesh: mesh.clone(), cell_points, total, sent, is_shifted: false, weights })
    }

    /// Sends the points of a cloud in a periodic box of three axes to the ranks that own their
    /// cells of `mesh`, without passing the host.
    ///
    /// Collective; blocks for a word per rank. Each rank gives any number of points. Sends 12 bytes
    /// per point; records a sort of the points by rank, four dispatches, and reads and writes 60
    /// bytes per point. An offset in a cell is that of the `f32` coordinate, rounded once.
    ///
    /// # Errors
    /// - [`MeshError::Size`] if the box has an open axis or two axes, on all ranks.
    /// - [`MeshError::Device`] if device memory is short.
    pub fn from_cloud(rank: &mut Rank, mesh: &Mesh, cloud: &Cloud) -> Result<Self, MeshError> {
        let domain = cloud.domain();
        let period = |axis: usize| (axis < domain.dims()).then(|| domain.period(axis)).flatten();
        if let Some(axis) = (0..3).find(|&axis| period(axis).is_none()) {
            return Err(MeshError::Size { axis, size: 0.0 });
        }
        check_mesh("PointsInCells::from_cloud", mesh)?;
        let comm = rank.comm.clone();
        let [total] = comm.reduced([cloud.len()], Op::Sum)?;
        let (shape, parts) = (mesh.shape(), mesh.grid().parts());
        let per_length = [0, 1, 2].map(|axis| shape[axis] as f64 / period(axis).unwrap_or(1.0));
        let mut params = LocateParams::new(mesh, per_length, parts[1] as u32);
        let (mut positions, mut sent, mut way) = (cloud.positions().clone(), 0, None);
        if comm.size() > 1 {
            let recorder = &mut rank.recorder;
            let table = parts_of_cells(recorder, shape, mesh.grid())?;
            let owners = recorder.gpu().array("mesh::owners", cloud.len())?;
            params.count = cloud.len() as u32;
            let arrays = [positions.raw(), table.raw(), owners.raw()];
            recorder.each(&Kernel::trusted(locate_kernel(true)), &arrays, &params, cloud.len())?;
            let route = route_to(rank, &owners)?;
            let [sends, _] = route.counts();
            sent = 12 * (cloud.len() - sends[comm.rank()]);
            positions = route.forward(rank, &positions, 3)?;
            way = Some(route);
        }
        let count = positions.len() / 3;
        let cell_points = CellPoints::new(&rank.gpu, count, way)?;
        params.count = count as u32;
        let CellPoints { cell, offset: [x, y, z], .. } = &cell_points;
        let arrays = [positions.raw(), cell.raw(), x.raw(), y.raw(), z.raw()];
        rank.recorder.each(&Kernel::trusted(locate_kernel(false)), &arrays, &params, count)?;
        Ok(PointsInCells { mesh: mesh.clone(), cell_points, total, sent, is_shifted: false, weights: None })
    }

    /// Returns the cell of a mesh of `shape` in a periodic box of `size` that contains a finite
    /// position: the rank that owns the cell has the point.
    #[must_use]
    pub fn cell_of(position: [f64; 3], size: [f64; 3], shape: [u64; 3]) -> [u64; 3] {
        [0, 1, 2].map(|a| u64::from(locate(position[a], size[a], shape[a]).0))
    }

    /// Returns the mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns the number of points on this rank.
    pub fn len(&self) -> u64 {
        self.cell_points.cell.len()
    }

    /// Returns `true` if this rank has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of points on all ranks.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of points of equal weight that have the same shot noise: `(sum w)^2 / sum
    /// w^2` over all ranks, or [`total`](Self::total) without weights. The shot noise of the power
    /// is the volume of the box divided by it.
    pub fn effective_count(&self) -> f64 {
        self.weights.as_ref().map_or(self.total as f64, |weights| weights.effective_count)
    }

    /// Returns the bytes that this rank sent to others when they were distributed.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the points as kernels take them.
    pub fn particles(&self) -> MeshParticles<'_> {
        self.cell_points.particles()
    }

    /// Moves all points by `cells` along every axis; points stay with their rank, so the ghost
    /// cells must allow for it. Waits for the device.
    ///
    /// # Errors
    /// [`DeviceError`] when the device fails.
    pub fn shift(&mut self, recorder: &mut Recorder, cells: f32) -> Result<(), DeviceError> {
        self.is_shifted = true;
        for offset in &self.cell_points.offset {
            let mut values = recorder.download(offset, 0, offset.len())?;
            values.iter_mut().for_each(|value| *value += cells);
            recorder.upload(offset, 0, &values)?;
        }
        Ok(())
    }

    /// `out = density + shift` on this rank's own cells (C order), where the mean density of all
    /// points, or of their weights, is 1. Without points the density is 0. Collective;
    /// `comms` belong to the grid. Waits for the device.
    ///
    /// # Errors
    /// [`MeshError`] of the device or the ranks; [`DeviceError::Misuse`] when the mesh has fewer
    /// ghost cells than [`with_ghosts`](Self::with_ghosts) gives it.
    pub fn density(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        painter: &Painter,
        shift: f32,
        out: &Array<f32>,
    ) -> Result<(), MeshError> {
        if let Some(weights) = &self.weights {
            return self.weighted_density(recorder, comms, painter.window(), weights, (out, shift));
        }
        let mesh = &self.mesh;
        let faults = recorder.gpu().array::<u32>("mesh::faults", 1)?;
        recorder.clear(&faults);
        let ghosts = GhostCells::new(mesh.ghost_plan()?);
        let scale = mesh.shape().iter().map(|&n| n as f64).product::<f64>() / self.total.max(1) as f64;
        let painted = PaintedDensity { mesh, ghosts: &ghosts, faults: &faults, scale, shift };
        painter.density_of(recorder, comms, self.particles(), &painted, out)?;
        let missed = u64::from(recorder.download(&faults, 0, 1)?[0]);
        let [missed] = comms.world().reduced([missed], Op::Sum)?;
        if missed > 0 {
            return Err(beyond_ghosts(&format!("{missed} points")));
        }
        Ok(())
    }

    fn weighted_density(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        window: Window,
        weights: &Weights,
        (out, shift): (&Array<f32>, f32),
    ) -> Result<(), MeshError> {
        let mesh = &self.mesh;
        // The painter of values leaves out what reaches farther.
        let (needed, wrapped) = (widths(window, self.is_shifted), wrapped_axes(mesh));
        let reaches = (0..3).all(|a| wrapped[a] || (0..2).all(|side| mesh.layout().ghosts[a][side] >= needed[side]));
        if !reaches {
            return Err(beyond_ghosts("points"));
        }
        let plan = mesh.ghost_plan()?;
        let (ghosts, painter) = (GhostCells::new(plan), ValuePainter::new(window));
        let (particles, values) = (self.particles(), &weights.values);
        let greatest = painter.greatest(recorder, comms.world(), values)?;
        let painted = PaintedValues { particles, values, first: 0, greatest: &greatest, total: self.total };
        painter.record(recorder, comms, (mesh, &ghosts), (Form::InCells, painted), (out, 0), shift)?;
        recorder.wait()?;
        Ok(())
    }
}

/// Returns the ghost cells below and above that a window needs along a cut axis.
fn widths(window: Window, shifted: bool) -> [u64; 2] {
    let order = u64::from(window.order());
    // Windows of odd order lie around the nearest node, which may be the one above.
    [(order - 1) / 2, order.div_ceil(2) + u64::from(shifted)]
}

fn beyond_ghosts(points: &str) -> MeshError {
    let why = format!("{points} reach beyond the ghost cells; make the mesh with PointsInCells::with_ghosts");
    DeviceError::misuse("PointsInCells::density", why).into()
}

/// Sums over the weights of all ranks, the same on all of them.
struct WeightSums {
    sum: f64,
    squares: f64,
}

impl WeightSums {
    /// Checks and adds the weights of `points` points of this rank, of which the first has the
    /// number `before` among all.
    fn new(comm: &Communicator, weights: &[f32], points: usize, before: u64) -> Result<Self, MeshError> {
        let bad = weights.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0));
        if let Some(([index], value)) = first_of_all(comm, bad.map(|at| ([before + at as u64], weights[at].into())))? {
            return Err(MeshError::Weight { index, value });
        }
        let largest = weights.iter().fold(0.0, |largest: f32, &weight| largest.max(weight));
        let most = [u64::from(largest.to_bits()), u64::from(weights.len() != points)];
        let [largest, is_uneven] = comm.reduced(most, Op::Max)?;
        let largest = f64::from(f32::from_bits(largest as u32));
        // Sums in 128 bits leave room for 2^40 points; an f32 and its square have 48 bits.
        let units = [largest, largest * largest].map(|largest| Unit::holding(largest, 86));
        let mut sums = [0i128, 0, points as i128, weights.len() as i128];
        for weight in weights.iter().map(|&weight| f64::from(weight)) {
            sums[0] += units[0].integer(weight);
            sums[1] += units[1].integer(weight * weight);
        }
        let sums = comm.reduced(sums, Op::Sum)?;
        let [sum, squares] = [0, 1].map(|n| units[n].real(sums[n]));
        let [points, found] = [sums[2], sums[3]].map(|count| count as u64);
        if is_uneven != 0 || points > 0 && sum == 0.0 {
            return Err(MeshError::Weights { points, found, sum });
        }
        // Without points nothing is divided.
        Ok(if points == 0 { WeightSums { sum: 1.0, squares: 1.0 } } else { WeightSums { sum, squares } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_wrapped_and_split_without_loss() {
        assert_eq!(locate(0.0, 10.0, 8), (0, 0.0));
        assert_eq!(locate(10.0, 10.0, 8), (0, 0.0), "x == L is x = 0");
        assert_eq!(locate(-0.0, 10.0, 8), (0, 0.0));
        assert_eq!(locate(-1e-300, 10.0, 8), (0, 0.0), "the remainder rounds to L");
        assert_eq!(locate(-2.5, 10.0, 8), (6, 0.0));
        assert_eq!(locate(23.75, 10.0, 8), (3, 0.0));
        assert_eq!(locate(9.999_999_999_999_999, 10.0, 8), (0, 0.0), "the next node is the nearest f32");
        assert_eq!(locate(1e300, 1.0, 8).1, 0.0);
        // An offset keeps its precision far from the origin.
        let (cell, offset) = locate(1000.0 * (4095.0 + 1e-6) / 4096.0, 1000.0, 4096);
        assert!(cell == 4095 && (offset - 1e-6).abs() < 1e-11, "{cell} {offset}");
    }

    #[test]
    fn ghost_cells_hold_the_windows() {
        for window in Window::ALL {
            for (shifted, by) in [(false, 0.0), (true, 0.5)] {
                let [below, above] = widths(window, shifted).map(|n| n as i64);
                for offset in [0.0, 0.25, 0.5, 0.75, 1.0 - f64::from(f32::EPSILON) / 2.0] {
                    let (first, _) = window.nodes(f64::from((offset as f32) + by));
                    let last = first + i64::from(window.order()) - 1;
                    assert!(first >= -below && last <= above, "{window} {shifted} {offset}: {first} to {last}");
                }
            }
        }
    }
}
