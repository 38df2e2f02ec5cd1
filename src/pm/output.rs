//! Arrays of a simulation as NumPy files that all ranks write together, and fingerprints of them.

use std::path::Path;

use crate::Context;
use crate::comm::{CommError, Communicator, Op};
use crate::grid::Box3;
use crate::io::collective::seal_npy;
use crate::io::{IoError, NpyFile, NpyWriter, Sealed};

use super::rows::{Piece, Rows};
use super::{Quantity, Simulation, SimulationError};

/// A 64-bit hash of the values of all ranks' sites and of their order, which does not depend on which rank has which
/// site. `rows` are the first sites of this rank's rows of `length` sites; each of `columns` has one value per site. All
/// ranks call it.
///
/// # Errors
/// [`CommError`] when another rank fails.
pub fn fingerprint(
    comm: &Communicator,
    rows: impl Iterator<Item = u64>,
    length: u64,
    columns: &[&[f32]],
) -> Result<u64, CommError> {
    let rows: Vec<u64> = rows.collect();
    let of_column = |(number, column): (u64, &&[f32])| {
        let sites = rows.iter().flat_map(|&row| row..row + length);
        let marks = sites.zip(*column).map(|(site, value)| {
            // Mixed twice, so that a site and the bits of a value cannot cancel each other.
            mix(mix(site.wrapping_mul(columns.len() as u64).wrapping_add(number)) ^ u64::from(value.to_bits()))
        });
        marks.fold(0, u64::wrapping_add)
    };
    let mut sum = [(0..).zip(columns).map(of_column).fold(0, u64::wrapping_add)];
    comm.all_reduce(&mut sum, Op::Sum)?;
    Ok(sum[0])
}

/// The finaliser of SplitMix64 (Steele, Lea & Flood 2014), after its increment: each bit depends on all.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Writes rows of particles of this rank's lines, which begin at `lines` of the lattice's numbers, each of `n`. Lines that follow one another in the file are
/// written together.
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
    /// Writes an array of shape `(N, 3)` with one row per particle, `f32` in Lagrangian order: row `(i n + j) n + k` is the
    /// particle of site `(i, j, k)`. `values` are those of this rank, as [`phase_space`](Self::phase_space) gives them. All ranks call it; the file appears
    /// when rank 0 publishes it.
    ///
    /// # Errors
    /// As [`write_npy`](crate::io::collective::write_npy).
    pub fn seal_rows(&self, path: &Path, values: &[f32]) -> Result<Sealed, SimulationError> {
        let n = self.config.particles;
        let lines: Vec<u64> = self.rows().collect();
        seal_npy(self.comms.world(), path, &[n * n * n, 3], |writer| Ok(write_lines(writer, &lines, n, values)?))
    }

    /// As [`seal_rows`](Self::seal_rows), of what `quantity` says of the particles now: some of them are on the host at a time. Waits for the device.
    ///
    /// # Errors
    /// As [`seal_rows`](Self::seal_rows), and those of the device.
    pub fn seal_particles(
        &mut self,
        context: &mut Context,
        path: &Path,
        quantity: Quantity,
    ) -> Result<Sealed, SimulationError> {
        let n = self.config.particles;
        let lines: Vec<u64> = self.rows().collect();
        let rows = Rows::new(context, self, quantity)?;
        let world = self.comms.world().clone();
        seal_npy(&world, path, &[n * n * n, 3], |writer| {
            self.each_piece(context, [&rows], |Piece { first, count }, [values]| {
                let lines = &lines[(first / n) as usize..((first + count) / n) as usize];
                Ok(write_lines(writer, lines, n, values)?)
            })
        })
    }

    /// Writes a field of the force mesh, `f32` in C order, from the `values` of every rank's `own` cells. All ranks call
    /// it; the file appears when rank 0 publishes it.
    ///
    /// # Errors
    /// As [`write_npy`](crate::io::collective::write_npy).
    pub fn seal_field(&self, path: &Path, own: &Box3, values: &[f32]) -> Result<Sealed, SimulationError> {
        let shape = self.config.cells();
        seal_npy(self.comms.world(), path, &shape, |writer| {
            let rows = own[0].clone().flat_map(|i| own[1].clone().map(move |j| (i * shape[1] + j) * shape[2]));
            for (first, row) in rows.zip(values.chunks(shape[2] as usize)) {
                writer.write(first, row)?;
            }
            Ok(())
        })
    }

    /// Reads the `rows` of this rank, as [`rows`](Self::rows) lists them, of an array that
    /// [`seal_rows`](Self::seal_rows) wrote.
    ///
    /// # Errors
    /// [`IoError`] for files of another shape; for values that are not finite it names the first index.
    pub fn read_rows(
        config: &super::Config,
        rows: impl Iterator<Item = u64>,
        file: &NpyFile,
    ) -> Result<Vec<f32>, SimulationError> {
        let n = config.particles;
        file.expect_shape(&[n * n * n, 3])?;
        let mut values = Vec::new();
        for row in rows {
            values.extend(file.read_finite_f32(3 * row..3 * (row + n))?);
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;

    #[test]
    fn fingerprints_know_values_and_places_but_no_ranks() {
        // Four rows of three sites, dealt out to ranks.
        let [x, y]: [Vec<f32>; 2] = [1.0, -2.0].map(|unit| (0..12).map(|i| unit * i as f32).collect());
        let of = |x: &[f32], y: &[f32], ranks: usize| {
            let sums = run_threads(ranks, |comm| {
                let own: Vec<u64> = (0..4).filter(|row| row % ranks == comm.rank()).map(|row| 3 * row as u64).collect();
                let part = |all: &[f32]| -> Vec<f32> {
                    own.iter().flat_map(|&row| all[row as usize..row as usize + 3].to_vec()).collect()
                };
                fingerprint(&comm, own.iter().copied(), 3, &[&part(x), &part(y)])
            });
            let sums = sums.unwrap();
            assert!(sums.iter().all(|sum| *sum == sums[0]));
            sums[0]
        };
        let want = of(&x, &y, 1);
        assert_eq!([2, 3].map(|ranks| of(&x, &y, ranks)), [want; 2]);
        let (mut swapped, mut changed) = (x.clone(), x.clone());
        swapped.swap(3, 4);
        changed[11] = f32::from_bits(changed[11].to_bits() ^ 1);
        assert!([of(&y, &x, 1), of(&swapped, &y, 2), of(&changed, &y, 2)].iter().all(|&other| other != want));
    }
}
