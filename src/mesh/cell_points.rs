//! Points in the cells of this rank's mesh; they send values to and from the ranks that gave them.

use super::particles::MeshParticles;
use crate::exchange::ExchangeError;
use crate::gpu::{Array, DeviceError, Gpu};
use crate::points::sort::Route;
use crate::rank::Rank;

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

    /// Returns the number of points on this rank.
    pub fn len(&self) -> u64 {
        self.cell.len()
    }

    /// Returns the points for painting and reading.
    pub fn particles(&self) -> MeshParticles<'_> {
        MeshParticles::InCells { cell: &self.cell, offset: self.offset.each_ref() }
    }

    /// Sends rows of `width` values from the rows of the callers to the points here.
    pub fn forward(&self, rank: &mut Rank, values: &Array<f32>, width: u64) -> Result<Array<f32>, ExchangeError> {
        match &self.route {
            Some(route) => route.forward(rank, values, width),
            None => Ok(values.clone()),
        }
    }

    /// Sends rows of `width` values back: the inverse of [`forward`](Self::forward).
    pub fn back(&self, rank: &mut Rank, values: &Array<f32>, width: u64) -> Result<Array<f32>, ExchangeError> {
        match &self.route {
            Some(route) => route.back(rank, values, width),
            None => Ok(values.clone()),
        }
    }
}
