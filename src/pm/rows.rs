//! Particles as rows of three numbers, as files and clouds have them. The device makes them of the
//! run's columns, and takes them back.

use crate::cosmology::peculiar_velocity;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, TWO_FLOATS};
use crate::rank::Rank;

use super::moves::WayToSites;
use super::sites::box_words;
use super::{Result, Simulation};
use crate::host_memory;

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

/// Returns the kernels: rows of columns, columns of rows, velocities, positions.
pub(super) fn kernels() -> [KernelSource; 4] {
    [
        KernelSource::new("pm::rows", include_str!("../../shaders/pm/rows.wgsl")).params::<RowParams>(),
        KernelSource::new("pm::columns", include_str!("../../shaders/pm/columns.wgsl")).params::<RowParams>(),
        KernelSource::new("pm::velocities", include_str!("../../shaders/pm/velocities.wgsl"))
            .params::<VelocityParams>()
            .module("gpu::two_floats", TWO_FLOATS),
        KernelSource::new("pm::positions", include_str!("../../shaders/pm/positions.wgsl"))
            .params::<PositionParams>()
            .module("gpu::two_floats", TWO_FLOATS),
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
        let [rows, _, velocities, positions] = kernels();
        let kernel = match quantity {
            Quantity::Displacement | Quantity::Momentum => rows,
            Quantity::Velocity => velocities,
            Quantity::Position => positions,
        };
        let (n, side) = (simulation.config.particles, simulation.config.box_size);
        let wanted = if quantity == Quantity::Position { n } else { 0 };
        let sites: Vec<[f32; 2]> = (0..wanted).map(|site| two_floats(site as f64 * (side / n as f64))).collect();
        let array = rank.gpu.array("pm::sites", wanted)?;
        rank.recorder.upload(&array, 0, &sites)?;
        let factor = peculiar_velocity(1.0, simulation.scale_factor);
        Ok(Rows { quantity, columns, kernel: Kernel::trusted(kernel), sites: array, factor })
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
}
