//! What a simulation leaves on disk: point files that all ranks write together, and snapshots to go on from.

use std::path::Path;

use crate::comm::Communicator;
use crate::io::{NpyFile, NpyWriter, Sealed, token};
use crate::layout::Box3;

use super::Simulation;

/// Shares the name of a temporary file: what rank 0 makes, all have.
pub(super) fn shared_token(comm: &Communicator) -> Result<String, crate::Error> {
    let mut bytes = [0u8; 64];
    if comm.rank() == 0 {
        let token = token();
        bytes[..token.len().min(64)].copy_from_slice(&token.as_bytes()[..token.len().min(64)]);
    }
    comm.broadcast(0, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string())
}

/// Writes one `.npy` file of `shape` from all ranks: `write` is given this rank's writer. The file appears when it is
/// whole. All ranks call it.
///
/// # Errors
/// [`IoError`](crate::io::IoError) of whichever rank failed; the other ranks learn of it by their next message.
pub fn write_together<T: crate::io::Element>(
    comm: &Communicator,
    path: &Path,
    shape: &[u64],
    write: impl FnOnce(&NpyWriter<T>) -> Result<(), crate::Error>,
) -> Result<(), crate::Error> {
    seal_together(comm, path, shape, write)?.publish()?;
    comm.barrier()?;
    Ok(())
}

/// [`write_together`] but for the name: every rank's part is on the disk, and rank 0 gives the name when it publishes.
///
/// # Errors
/// As [`write_together`].
pub fn seal_together<T: crate::io::Element>(
    comm: &Communicator,
    path: &Path,
    shape: &[u64],
    write: impl FnOnce(&NpyWriter<T>) -> Result<(), crate::Error>,
) -> Result<Sealed, crate::Error> {
    let token = shared_token(comm)?;
    let first = if comm.rank() == 0 { Some(NpyWriter::create(path, shape, &token)?) } else { None };
    comm.barrier()?;
    let writer = match first {
        Some(writer) => writer,
        None => NpyWriter::open(path, shape, &token)?,
    };
    write(&writer)?;
    let sealed = writer.seal()?;
    comm.barrier()?;
    Ok(sealed)
}

impl Simulation {
    /// Writes `(N, 3)` values of the particles, `f32` in Lagrangian order: row `(i n + j) n + k` is the particle of site
    /// `(i, j, k)`. All ranks call it; the file appears when rank 0 publishes it.
    ///
    /// # Errors
    /// As [`write_together`].
    pub fn seal_points(&self, path: &Path, values: &[Vec<f32>; 3]) -> Result<Sealed, crate::Error> {
        let n = self.config.particles;
        seal_together(self.lines.world(), path, &[n * n * n, 3], |writer| {
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
    /// As [`write_together`].
    pub fn seal_field(&self, path: &Path, own: &Box3, values: &[f32]) -> Result<Sealed, crate::Error> {
        let shape = self.config.cells();
        seal_together(self.lines.world(), path, &shape, |writer| {
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
