//! What a simulation leaves on disk: point files that all ranks write together, and snapshots to go on from.

use std::path::Path;

use crate::comm::{CommError, Communicator, Op};
use crate::grid::Box3;
use crate::io::collective::seal_npy;
use crate::io::{NpyFile, Sealed};

use super::Simulation;
use super::SimulationError;

/// A number by which values of all ranks' sites are known again: other values, or the same in another order, have
/// another, but for one case in 2^64. It does not depend on how sites are dealt out. `rows` are the first sites of
/// this rank's rows of `length` sites, and `columns` hold a value a site each. All ranks call it.
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
            // Mixed twice, so that neither sites nor bits can stand for one another.
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

impl Simulation {
    /// Writes `(N, 3)` values of the particles, `f32` in Lagrangian order: row `(i n + j) n + k` is the particle of site
    /// `(i, j, k)`. All ranks call it; the file appears when rank 0 publishes it.
    ///
    /// # Errors
    /// As [`write_npy`](crate::io::collective::write_npy).
    pub fn seal_points(&self, path: &Path, values: &[Vec<f32>; 3]) -> Result<Sealed, SimulationError> {
        let n = self.config.particles;
        seal_npy(self.lines.world(), path, &[n * n * n, 3], |writer| {
            // Neighbouring rows go out in one piece.
            let per_row = n as usize;
            let mut pending: Vec<f32> = Vec::new();
            let mut start = 0;
            for (r, row) in self.rows().enumerate() {
                if pending.is_empty() {
                    start = row;
                } else if start + pending.len() as u64 / 3 != row || pending.len() > 1 << 22 {
                    writer.write(3 * start, &pending)?;
                    pending.clear();
                    start = row;
                }
                for i in r * per_row..(r + 1) * per_row {
                    pending.extend([values[0][i], values[1][i], values[2][i]]);
                }
            }
            Ok(writer.write(3 * start, &pending)?)
        })
    }

    /// Positions in the box `[0, L)` of particles with these displacements: the sum is made in f64 and rounded once.
    pub fn positions(&self, displacement: &[Vec<f32>; 3]) -> [Vec<f32>; 3] {
        let (n, side) = (self.config.particles, self.config.box_size);
        let spacing = side / n as f64;
        let wrap = |x: f64| {
            let x = x.rem_euclid(side) as f32;
            if f64::from(x) >= side { 0.0 } else { x }
        };
        let mut positions = [0, 1, 2].map(|a| Vec::with_capacity(displacement[a as usize].len()));
        let mut at = 0;
        for row in self.rows() {
            let site = [row / n / n, row / n % n];
            for k in 0..n {
                for (axis, site) in [site[0], site[1], k].into_iter().enumerate() {
                    positions[axis].push(wrap(site as f64 * spacing + f64::from(displacement[axis][at])));
                }
                at += 1;
            }
        }
        positions
    }

    /// Writes a field of the force mesh from every rank's own cells, `f32`, C order. As [`seal_points`](Self::seal_points).
    ///
    /// # Errors
    /// As [`write_npy`](crate::io::collective::write_npy).
    pub fn seal_field(&self, path: &Path, own: &Box3, values: &[f32]) -> Result<Sealed, SimulationError> {
        let shape = self.config.cells();
        seal_npy(self.lines.world(), path, &shape, |writer| {
            let rows = own[0].clone().flat_map(|i| own[1].clone().map(move |j| (i * shape[1] + j) * shape[2]));
            for (first, row) in rows.zip(values.chunks(shape[2] as usize)) {
                writer.write(first, row)?;
            }
            Ok(())
        })
    }

    /// Reads this rank's part of `(N, 3)` values in Lagrangian order.
    ///
    /// # Errors
    /// [`IoError`](crate::io::IoError) for files that are not such, name the first index that is not finite.
    pub fn read_points(
        config: &super::Config,
        rows: impl Iterator<Item = u64>,
        file: &NpyFile,
    ) -> Result<[Vec<f32>; 3], SimulationError> {
        let n = config.particles;
        file.expect_shape(&[n * n * n, 3])?;
        let mut values = [Vec::new(), Vec::new(), Vec::new()];
        for row in rows {
            for point in file.read_finite_f32(3 * row..3 * (row + n))?.chunks(3) {
                point.iter().zip(&mut values).for_each(|(value, values)| values.push(*value));
            }
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
