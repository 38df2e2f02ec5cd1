//! Arrays of a simulation as NumPy files that all ranks write together.

use std::path::Path;

use crate::io::collective::seal_npy;
use crate::io::{IoError, NpyFile, NpyWriter, Sealed};
use crate::rank::Rank;

use super::rows::{Piece, Rows};
use super::{Quantity, Result, Simulation};
use crate::host_memory;

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

impl Simulation {
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
}
