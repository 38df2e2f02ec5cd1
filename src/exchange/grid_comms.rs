//! The exchanges of a process grid: one along each axis, and one among all ranks.

use super::{Exchange, ExchangeError, Wire};
use crate::comm::{CommError, Communicator};
use crate::gpu::DeviceError;
use crate::grid::{Cost, Grid};

/// A rank in its process grid, with an [`Exchange`] for each axis, among the ranks that differ from
/// it along that axis only.
///
/// The peer numbers of these exchanges are positions along the axis, as
/// [`Grid::neighbors`](crate::grid::Grid::neighbors) lists them. The last axis is never cut, so a
/// rank is alone along it.
#[derive(Debug)]
pub struct GridComms {
    grid: Grid,
    world: Communicator,
    /// By axis.
    axes: [Exchange; 3],
    /// Among all ranks.
    all: Exchange,
}

impl GridComms {
    /// Splits `comm` along `grid`. Collective.
    ///
    /// # Errors
    /// - [`DeviceError::Misuse`], on all ranks, if a grid has another number of ranks than `comm`.
    /// - [`CommError::Mismatch`], on all ranks, if grids differ.
    /// - [`ExchangeError`] if the communicator cannot be split.
    pub fn new(comm: &Communicator, grid: Grid) -> Result<Self, ExchangeError> {
        let [i, j] = grid.parts().map(|n| n as u64);
        let all = comm.all_gather(&[[i, j, grid.shares().mark()]])?;
        if let Some(rank) = all.iter().position(|[i, j, _]| i.checked_mul(*j) != Some(comm.size() as u64)) {
            let [i, j, _] = all[rank];
            let why =
                format!("rank {rank} gives a grid of {i}x{j} for {} ranks; their numbers must be equal", comm.size());
            return Err(DeviceError::misuse("GridComms::new", why).into());
        }
        let rank = comm.rank();
        if let Some(other) = all.iter().position(|grid| *grid != all[rank]) {
            let called = |[i, j, shares]: [u64; 3]| {
                let shares = if shares == 0 { String::new() } else { format!(" with shares {shares:016x}") };
                format!("GridComms::new of a grid of {i}x{j}{shares}")
            };
            let (called, other_called) = (called(all[rank]), format!("called {}", called(all[other])));
            return Err(CommError::Mismatch { rank, called, other, other_called }.into());
        }
        let [i, j] = grid.at(comm.rank());
        let along = |color: usize, key: usize| {
            let split = comm.split(Some(color as u32), key as u64)?;
            Ok::<_, ExchangeError>(Exchange::new(split.unwrap_or_else(|| comm.clone())))
        };
        let axes = [along(j, i)?, along(i, j)?, along(comm.rank(), 0)?];
        Ok(GridComms { grid, world: comm.clone(), axes, all: Exchange::new(comm.clone()) })
    }

    /// Sets the size and number of messages; see [`Exchange::with_chunks`].
    #[must_use]
    pub fn with_chunks(mut self, chunk_bytes: u64, depth: usize) -> Self {
        self.axes = self.axes.map(|exchange| exchange.with_chunks(chunk_bytes, depth));
        self.all = self.all.with_chunks(chunk_bytes, depth);
        self
    }

    /// Sets the form of values between ranks along the axes of the grid; see
    /// [`Exchange::with_wire`].
    #[must_use]
    pub fn with_wire(mut self, wire: Wire) -> Self {
        self.axes = self.axes.map(|exchange| exchange.with_wire(wire));
        self
    }

    /// Returns the process grid.
    #[must_use]
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Returns the communicator of all ranks.
    #[must_use]
    pub fn world(&self) -> &Communicator {
        &self.world
    }

    /// Returns the number of this rank among all.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.world.rank()
    }

    /// Returns the exchange along `axis` of the grid.
    pub fn along(&mut self, axis: usize) -> &mut Exchange {
        &mut self.axes[axis]
    }

    /// Returns the exchange among all ranks, which redistributes arrays between boxes.
    pub fn world_exchange(&mut self) -> &mut Exchange {
        &mut self.all
    }

    /// Returns the cost for this rank of all exchanges so far.
    #[must_use]
    pub fn cost(&self) -> Cost {
        let mut cost = self.all.cost();
        self.axes.iter().for_each(|exchange| cost += exchange.cost());
        cost
    }
}
