//! What a simulation leaves on disk: point files that all ranks write together, and snapshots to go on from.

use std::path::Path;

use crate::grid::Box3;
use crate::io::collective::seal_npy;
use crate::io::{NpyFile, Sealed};

use super::Simulation;

impl Simulation {
    /// Writes `(N, 3)` values of the particles, `f32` in Lagrangian order: row `(i n + j) n + k` is the particle of site
    /// `(i, j, k)`. All ranks call it; the file appears when rank 0 publishes it.
    ///
    /// # Errors
    /// As [`write_npy`](crate::io::collective::write_npy).
    pub fn seal_points(&self, path: &Path, values: &[Vec<f32>; 3]) -> Result<Sealed, crate::Error> {
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
    pub fn seal_field(&self, path: &Path, own: &Box3, values: &[f32]) -> Result<Sealed, crate::Error> {
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
    ) -> Result<[Vec<f32>; 3], crate::Error> {
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
