//! Particles as rows of three numbers, as files and clouds have them. The device makes them of the
//! run's columns, and takes them back.
//!
//! NumPy files of rows, which all ranks write together, and means of the density along the last
//! axis are here as well.

use std::path::Path;

use super::moves::{WayToSites, box_words};
use super::{Result, Simulation};
use crate::cosmology::peculiar_velocity;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, TWO_FLOATS};
use crate::grid::extent;
use crate::host_memory;
use crate::io::collective::seal_npy;
use crate::io::{IoError, NpyFile, NpyWriter, Sealed};
use crate::rank::Rank;

/// Particles whose rows are on the way between device and host at a time, about: 12 MiB.
const PIECE: u64 = 1 << 20;

/// Quantity in rows of three numbers per particle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The way from their sites, in Mpc/h.
    Displacement,
    /// Canonical momentum `a^2 dx/dt` in H0 Mpc/h.
    Momentum,
    /// Position in the periodic box `[0, L)`, in Mpc/h: the sum of site and displacement, rounded
    /// once except for one in some millions.
    Position,
    /// Peculiar velocity in km/s, rounded likewise.
    Velocity,
}

crate::gpu::kernel_params! {
    struct RowParams {
        /// The first particle.
        first: u32,
        count: u32,
    }
}

crate::gpu::kernel_params! {
    struct VelocityParams {
        first: u32,
        count: u32,
        factor: [f32; 2],
        /// 0, which the kernel's compiler does not know.
        nothing: u32,
    }
}

crate::gpu::kernel_params! {
    struct PositionParams {
        /// The first of this rank's sites along each axis.
        corner: [u32; 4],
        first: u32,
        count: u32,
        /// Lines of a plane of this rank's sites, and sites of a line.
        width: u32,
        depth: u32,
        side: [f32; 2],
        /// 0, which the kernel's compiler does not know.
        nothing: u32,
    }
}

crate::gpu::kernel_params! {
    struct ColumnParams {
        columns: u32,
        /// Cells of a column.
        depth: u32,
    }
}

/// Invocations of a workgroup that averages columns.
const COLUMN_GROUP: u32 = 64;

/// Returns the kernels: rows of columns, columns of rows, velocities, positions, means of columns.
pub(super) fn kernels() -> [KernelSource; 5] {
    [
        KernelSource::new("pm::rows", include_str!("../../shaders/pm/rows.wgsl")).params::<RowParams>(),
        KernelSource::new("pm::columns", include_str!("../../shaders/pm/columns.wgsl")).params::<RowParams>(),
        KernelSource::new("pm::velocities", include_str!("../../shaders/pm/velocities.wgsl"))
            .params::<VelocityParams>()
            .module("gpu::two_floats", TWO_FLOATS),
        KernelSource::new("pm::positions", include_str!("../../shaders/pm/positions.wgsl"))
            .params::<PositionParams>()
            .module("gpu::two_floats", TWO_FLOATS),
        KernelSource::new("pm::column_means", include_str!("../../shaders/pm/column_means.wgsl"))
            .params::<ColumnParams>()
            .group(COLUMN_GROUP),
    ]
}

/// Returns a number as the sum of two floats, right to some 48 bits.
fn two_floats(value: f64) -> [f32; 2] {
    let high = value as f32;
    [high, (value - f64::from(high)) as f32]
}

/// Some of a rank's particles: those from `first` on.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub first: u64,
    pub count: u64,
}

/// Particles of a piece of a rank's `count`: whole lines of `n`, at least one.
fn most(count: u64, n: u64) -> u64 {
    (PIECE / n * n).max(n).min(count)
}

/// Returns the pieces of a rank's `count` particles that are on the way between host and device at
/// a time.
fn pieces(count: u64, n: u64) -> impl Iterator<Item = Piece> {
    let most = most(count, n);
    (0..count).step_by(most.max(1) as usize).map(move |first| Piece { first, count: most.min(count - first) })
}

/// Makes rows of a run's particles; local to a rank.
pub(super) struct Rows {
    quantity: Quantity,
    /// Displacements or momenta, in the order of the rank's sites.
    columns: [Array<f32>; 3],
    kernel: Kernel,
    /// Coordinates of the sites of an axis, where positions are wanted.
    sites: Array<[f32; 2]>,
    /// Factor that converts momenta to velocities.
    factor: f64,
}

impl Rows {
    /// Takes columns of the particles along `way`, and uploads two numbers for each site of an
    /// axis, where positions are wanted. Collective; blocks if particles have moved.
    pub fn new(rank: &mut Rank, simulation: &Simulation, way: &WayToSites, quantity: Quantity) -> Result<Self> {
        let columns = match quantity {
            Quantity::Displacement | Quantity::Position => &simulation.displacement,
            Quantity::Momentum | Quantity::Velocity => &simulation.momentum,
        };
        let columns = way.columns(rank, columns)?;
        let [rows, _, velocities, positions, _] = kernels();
        let kernel = match quantity {
            Quantity::Displacement | Quantity::Momentum => rows,
            Quantity::Velocity => velocities,
            Quantity::Position => positions,
        };
        let (n, side) = (simulation.config.particles, simulation.config.box_size);
        let wanted = if quantity == Quantity::Position { n } else { 0 };
        let sites: Vec<[f32; 2]> = (0..wanted).map(|site| two_floats(site as f64 * (side / n as f64))).collect();
        let sites = rank.recorder.uploaded("pm::sites", &sites)?;
        let factor = peculiar_velocity(1.0, simulation.scale_factor);
        Ok(Rows { quantity, columns, kernel: Kernel::trusted(kernel), sites, factor })
    }

    /// Sets the unit of velocities to `unit` km/s.
    #[cfg(feature = "hdf5")]
    pub fn in_units_of(self, unit: f64) -> Self {
        Rows { factor: self.factor / unit, ..self }
    }

    /// Records the rows of some particles to the beginning of `rows`.
    pub fn record(
        &self,
        rank: &mut Rank,
        simulation: &Simulation,
        piece: Piece,
        rows: &Array<f32>,
    ) -> Result<(), DeviceError> {
        let Simulation { lattice, config, .. } = simulation;
        let [x, y, z] = self.columns.each_ref().map(Array::raw);
        let (first, count) = (piece.first as u32, piece.count as u32);
        let (recorder, kernel) = (&mut rank.recorder, &self.kernel);
        match self.quantity {
            Quantity::Displacement | Quantity::Momentum => {
                recorder.each(kernel, &[x, y, z, rows.raw()], &RowParams { first, count }, piece.count)
            }
            Quantity::Velocity => {
                let params = VelocityParams { first, count, factor: two_floats(self.factor), nothing: 0 };
                recorder.each(kernel, &[x, y, z, rows.raw()], &params, piece.count)
            }
            Quantity::Position => {
                let [corner, [_, width, depth, _]] = box_words(&lattice.own, 0);
                let params = PositionParams {
                    corner,
                    first,
                    count,
                    width,
                    depth,
                    side: two_floats(config.box_size),
                    nothing: 0,
                };
                recorder.each(kernel, &[x, y, z, self.sites.raw(), rows.raw()], &params, piece.count)
            }
        }
    }
}

impl Simulation {
    /// Hands rows of this rank's particles to `take`, of each kind those of a piece at a time, in
    /// the order of its sites. Waits for the device. Local to this rank.
    pub(super) fn each_piece<const N: usize>(
        &mut self,
        rank: &mut Rank,
        kinds: [&Rows; N],
        mut take: impl FnMut(Piece, [&[f32]; N]) -> Result<()>,
    ) -> Result<()> {
        let (count, n) = (self.lattice.len(), self.config.particles);
        let mut values = [(); N].map(|()| Vec::new());
        for values in &mut values {
            *values = host_memory::zeros("rows of particles", 3 * most(count, n) as usize)?;
        }
        let array = rank.gpu.array("pm::rows", 3 * most(count, n))?;
        for piece in pieces(count, n) {
            let own = 3 * piece.count as usize;
            for (rows, values) in kinds.iter().zip(&mut values) {
                rows.record(rank, self, piece, &array)?;
                rank.recorder.download_into(&array, 0, &mut values[..own])?;
            }
            take(piece, values.each_ref().map(|values| &values[..own]))?;
        }
        Ok(())
    }

    /// Rows of this rank's particles, three numbers each, in the order of its sites: line by line
    /// as [`rows`](Self::rows) lists them. [Collective](Rank); blocks.
    ///
    /// It does not look for values that are not finite and places where no particle can be painted:
    /// [`phase_space`](Self::phase_space) does.
    ///
    /// # Errors
    /// [`SimulationError`](crate::pm::SimulationError) of the device and the ranks.
    pub fn particles(&mut self, rank: &mut Rank, quantity: Quantity) -> Result<Vec<f32>> {
        let way = self.way_to_sites(rank)?;
        self.rows_of(rank, &way, quantity)
    }

    /// Returns rows of this rank's particles along `way`.
    pub(super) fn rows_of(&mut self, rank: &mut Rank, way: &WayToSites, quantity: Quantity) -> Result<Vec<f32>> {
        let mut all = host_memory::reserve("rows of particles", 3 * self.lattice.len() as usize)?;
        let rows = Rows::new(rank, self, way, quantity)?;
        self.each_piece(rank, [&rows], |_, [values]| {
            all.extend_from_slice(values);
            Ok(())
        })?;
        Ok(all)
    }

    /// Takes rows of this rank's particles back into columns.
    pub(super) fn set_columns(
        &self,
        rank: &mut Rank,
        columns: &[Array<f32>; 3],
        values: &[f32],
    ) -> Result<(), DeviceError> {
        let [_, kernel, ..] = kernels().map(Kernel::trusted);
        let [x, y, z] = columns.each_ref().map(Array::raw);
        let (count, n) = (self.lattice.len(), self.config.particles);
        let array = rank.gpu.array("pm::rows", 3 * most(count, n))?;
        for Piece { first, count } in pieces(count, n) {
            let from = 3 * first as usize;
            rank.recorder.upload(&array, 0, &values[from..from + 3 * count as usize])?;
            let params = RowParams { first: first as u32, count: count as u32 };
            rank.recorder.each(&kernel, &[array.raw(), x, y, z], &params, count)?;
        }
        Ok(())
    }

    /// Writes an array of shape `(N, 3)` with one row per particle, `f32` in Lagrangian order: row
    /// `(i n + j) n + k` is the particle of site `(i, j, k)`. `values` are those of this rank, as
    /// [`phase_space`](Self::phase_space) gives them. Collective; the file appears when rank
    /// 0 publishes it.
    ///
    /// # Errors
    /// Same as [`write_npy`](crate::io::collective::write_npy).
    pub fn seal_rows(&self, path: &Path, values: &[f32]) -> Result<Sealed> {
        let n = self.config.particles;
        let lines: Vec<u64> = self.rows().collect();
        seal_npy(self.comms.world(), path, &[n * n * n, 3], |writer| Ok(write_lines(writer, &lines, n, values)?))
    }

    /// Same as [`seal_rows`](Self::seal_rows), for `quantity` of the current particles, in pieces
    /// on the host. Waits for the device.
    ///
    /// # Errors
    /// Same as [`seal_rows`](Self::seal_rows), and errors of the device.
    pub fn seal_particles(&mut self, rank: &mut Rank, path: &Path, quantity: Quantity) -> Result<Sealed> {
        let n = self.config.particles;
        let lines: Vec<u64> = self.rows().collect();
        let way = self.way_to_sites(rank)?;
        let rows = Rows::new(rank, self, &way, quantity)?;
        let world = self.comms.world().clone();
        seal_npy(&world, path, &[n * n * n, 3], |writer| {
            self.each_piece(rank, [&rows], |Piece { first, count }, [values]| {
                let lines = &lines[(first / n) as usize..((first + count) / n) as usize];
                Ok(write_lines(writer, lines, n, values)?)
            })
        })
    }

    /// Reads the `rows` of this rank, as [`rows`](Self::rows) lists them, of an array that
    /// [`seal_rows`](Self::seal_rows) wrote.
    ///
    /// # Errors
    /// [`IoError`] for files of another shape; for values that are not finite it names the first
    /// index.
    pub fn read_rows(config: &super::Config, rows: impl Iterator<Item = u64>, file: &NpyFile) -> Result<Vec<f32>> {
        let n = config.particles;
        file.expect_shape(&[n * n * n, 3])?;
        let rows: Vec<u64> = rows.collect();
        let mut values = host_memory::reserve("rows of particles", rows.len() * 3 * n as usize)?;
        for row in rows {
            values.extend(file.read_finite_f32(3 * row..3 * (row + n))?);
        }
        Ok(values)
    }

    /// Returns the mean of the [density](Self::density) over the cells of each column along the
    /// last axis, which no rank shares: those of this rank's own cells, in C order. Only the means
    /// come to the host. Collective. Waits for the device.
    ///
    /// # Errors
    /// Same as [`density`](Self::density).
    pub fn projected_density(&mut self, rank: &mut Rank) -> Result<Vec<f32>> {
        let [rows, width, depth] = extent(&self.force.mesh.layout().own);
        let columns = rows * width;
        let density = rank.gpu.array::<f32>("pm::density", columns * depth)?;
        self.record_density(rank, &density)?;
        let means = rank.gpu.array::<f32>("pm::columns", columns)?;
        let params = ColumnParams { columns: columns as u32, depth: depth as u32 };
        let groups = columns.div_ceil(u64::from(COLUMN_GROUP));
        let [.., kernel] = kernels();
        rank.recorder.dispatch(&Kernel::trusted(kernel), &[density.raw(), means.raw()], &params, groups)?;
        self.force.check(&mut rank.recorder, &self.comms)?;
        Ok(rank.recorder.download(&means, 0, columns)?)
    }
}

/// Writes rows of particles of this rank's lines, which begin at `lines` of the lattice's numbers,
/// each of `n`. Lines that follow one another in the file are written together.
fn write_lines(writer: &NpyWriter<f32>, lines: &[u64], n: u64, values: &[f32]) -> Result<(), IoError> {
    let mut values = values;
    for together in lines.chunk_by(|line, next| line + n == *next) {
        let (rows, rest) = values.split_at(3 * n as usize * together.len());
        writer.write(3 * together[0], rows)?;
        values = rest;
    }
    Ok(())
}
