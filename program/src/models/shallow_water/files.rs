//! Fields of a run as NumPy files that all ranks write together.

use std::path::Path;

use super::plan::{FIELDS, Part};
use super::real::Real;
use super::{Flow, ShallowWater, ShallowWaterConfig, ShallowWaterError};
use meshloom::comm::Communicator;
use meshloom::grid::Shares;
use meshloom::host_memory;
use meshloom::io::collective::seal_npy;
use meshloom::io::{NpyFile, Sealed};

impl<T: Real> ShallowWater<T> {
    /// Writes `fields` of this rank's own cells, each in C order, as one array of shape `(fields,
    /// rows, columns)`, or `(rows, columns)` of one. Collective; the file appears when rank
    /// 0 publishes it.
    ///
    /// # Errors
    /// Same as [`write_npy`](meshloom::io::collective::write_npy).
    pub fn seal_fields(&self, comm: &Communicator, path: &Path, fields: &[&[T]]) -> Result<Sealed, ShallowWaterError> {
        let [columns, rows] = self.config.cells;
        let shape = [fields.len() as u64, rows, columns];
        let shape = if fields.len() == 1 { &shape[1..] } else { &shape };
        seal_npy(comm, path, shape, |writer| {
            for (number, field) in (0..).zip(fields) {
                let (starts, length) = self.part.rows();
                if length == columns {
                    // Whole rows follow each other in the file.
                    writer.write(number * rows * columns + starts.take(1).sum::<u64>(), field)?;
                    continue;
                }
                for (start, row) in starts.zip(field.chunks(length.max(1) as usize)) {
                    writer.write(number * rows * columns + start, row)?;
                }
            }
            Ok(())
        })
    }

    /// Writes the height of the water and the velocity of `flow`; see
    /// [`seal_fields`](Self::seal_fields).
    ///
    /// # Errors
    /// Same as [`seal_fields`](Self::seal_fields).
    pub fn seal_flow(
        &self,
        comm: &Communicator,
        [height, velocity]: [&Path; 2],
        flow: &Flow<T>,
    ) -> Result<[Sealed; 2], ShallowWaterError> {
        let depth = self.config.depth;
        let heights = flow.elevation.iter().map(|eta| T::nearest(depth + eta.wide()));
        let heights = host_memory::collect("heights of the flow", heights)?;
        let [u, v] = &flow.velocity;
        Ok([self.seal_fields(comm, height, &[&heights])?, self.seal_fields(comm, velocity, &[u, v])?])
    }
}

impl ShallowWaterConfig {
    /// Returns the first cell of each row of `rank` of a number of ranks, or of ranks with
    /// [`Shares`], in the grid, counted in C order, and
    /// the cells of a row.
    ///
    /// # Errors
    /// [`LayoutError`](meshloom::grid::LayoutError) when the process grid does not fit.
    pub fn rows<R: Into<Shares>>(
        &self,
        ranks: R,
        rank: usize,
    ) -> Result<(impl Iterator<Item = u64> + use<R>, u64), ShallowWaterError> {
        self.validate()?;
        Ok(Part::new(self, self.process_grid(ranks)?, rank)?.rows())
    }

    /// Returns the part of a state of `rank` of ranks with `shares` in a file that
    /// [`ShallowWater::seal_fields`] wrote of [`ShallowWater::state`].
    ///
    /// # Errors
    /// [`IoError`](meshloom::io::IoError) for files of another shape or with numbers that are not
    /// finite, whose first index it names.
    pub fn read_state<T: Real>(
        &self,
        file: &NpyFile,
        shares: Shares,
        rank: usize,
    ) -> Result<Vec<T>, ShallowWaterError> {
        let [columns, rows] = self.cells;
        file.expect_shape(&[2 * FIELDS, rows, columns])?;
        let (starts, length) = self.rows(shares, rank)?;
        let count = 2 * FIELDS as usize * starts.count() * length as usize;
        let mut values = host_memory::reserve("the state of the flow", count)?;
        for field in 0..2 * FIELDS {
            let (starts, length) = self.rows(shares, rank)?;
            for start in starts.map(|start| field * rows * columns + start) {
                values.extend(T::read(file, start..start + length)?);
            }
        }
        Ok(values)
    }
}
