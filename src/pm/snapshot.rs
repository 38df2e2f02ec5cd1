//! Writing of snapshots in HDF5 by all ranks.

use std::path::{Path, PathBuf};

use crate::comm::{Communicator, Op};
use crate::grid::owner;
use crate::io::collective::seal_hdf5_files;
use crate::io::hdf5::{FilePart, Files, Hdf5Contents, Hdf5Writer, SnapshotInfo, SnapshotRows, part_path};
use crate::io::{IoError, Sealed};
use crate::rank::Rank;

use super::rows::{Piece, Rows};
use super::{Quantity, Result, Simulation};
use crate::host_memory;

/// Writes a snapshot from all ranks. `write` gets the writer of this rank's file and the first row
/// of its own `count` particles in it; in a file the particles of a rank follow those of the rank
/// before. The values are on the disk when it returns. A file appears under its name when the rank
/// that created it publishes it: the first of its ranks. Files of [`Files::Several`] are called
/// `name.0.hdf5`, `name.1.hdf5`, ... for `name.hdf5`, and their ranks follow one another.
/// Collective; no rank returns before all have written.
///
/// # Errors
/// [`IoError`](crate::io::IoError) of the first rank that fails, on all ranks.
pub fn seal_snapshot_together(
    comm: &Communicator,
    path: &Path,
    files: Files,
    info: &SnapshotInfo,
    count: u64,
    write: impl FnOnce(&Hdf5Writer, u64) -> Result<()>,
) -> Result<Sealed> {
    let [all] = comm.reduced([count], Op::Sum)?;
    if all != info.count {
        let reason = format!("has {all} rows over all ranks, but the header counts {}", info.count);
        return Err(IoError::column(path, "ParticleIDs", reason).into());
    }
    let of = files.count(comm.size());
    let index = owner(comm.size() as u64, of, comm.rank() as u64);
    let (path, writers) = match files {
        Files::One => (path.to_path_buf(), None),
        Files::Several(_) => (part_path(path, index), comm.split(Some(index as u32), 0)?),
    };
    let writers = writers.unwrap_or_else(|| comm.clone());
    let ([total], mut first) = (writers.reduced([count], Op::Sum)?, [count]);
    writers.scan_exclusive(&mut first, Op::Sum)?;
    let part = FilePart { index, of, count: total };
    let contents = Hdf5Contents::Snapshot { info, part };
    seal_hdf5_files(comm, &writers, &path, &contents, |writer| write(writer, first[0]))
}

impl Simulation {
    /// Returns the header of a snapshot of the present moment.
    pub fn snapshot_info(&self) -> SnapshotInfo {
        let (n, cosmology) = (self.config.particles, &self.config.cosmology);
        SnapshotInfo {
            count: n * n * n,
            box_size: self.config.box_size,
            scale_factor: self.scale_factor,
            omega_m: cosmology.omega_m(),
            omega_b: cosmology.omega_b(),
            h: cosmology.h(),
            omega_r: cosmology.omega_r(),
            dark_energy: cosmology.dark_energy(),
        }
    }

    /// Writes the current particles as a snapshot in HDF5: positions in Mpc/h, velocities in
    /// Gadget's convention, and the Lagrangian index as id. One file has the particles in
    /// Lagrangian order, several files in the order of the sites of their ranks. Collective;
    /// blocks.
    ///
    /// # Errors
    /// Same as [`seal_snapshot_together`], and errors of the device.
    pub fn seal_snapshot(&mut self, rank: &mut Rank, path: &Path, files: Files) -> Result<Sealed> {
        let (n, info, count) = (self.config.particles, self.snapshot_info(), self.lattice.len());
        let lines: Vec<u64> = self.rows().collect();
        let way = self.way_to_sites(rank)?;
        let positions = Rows::new(rank, self, &way, Quantity::Position)?;
        let velocities = Rows::new(rank, self, &way, Quantity::Velocity)?.in_units_of(info.scale_factor.sqrt());
        let world = self.comms.world().clone();
        seal_snapshot_together(&world, path, files, &info, count, |writer, own| {
            self.each_piece(rank, [&positions, &velocities], |Piece { first, count }, [positions, velocities]| {
                let (mut positions, mut velocities) = (positions.as_chunks().0, velocities.as_chunks().0);
                let lines = &lines[(first / n) as usize..((first + count) / n) as usize];
                let mut next = first;
                // Lines that follow one another in the file are written together.
                for together in lines.chunk_by(|line, next| files != Files::One || line + n == *next) {
                    let start = if files == Files::One { together[0] } else { own + next };
                    let mut ids = host_memory::reserve("ids of particles", together.len() * n as usize)?;
                    ids.extend(together.iter().flat_map(|&line| line..line + n));
                    next += ids.len() as u64;
                    let (of_lines, moving);
                    (of_lines, positions) = positions.split_at(ids.len());
                    (moving, velocities) = velocities.split_at(ids.len());
                    check_finite(start, moving)?;
                    SnapshotRows { positions: of_lines, velocities: moving, ids: &ids }.write(writer, start)?;
                }
                Ok(())
            })
        })
    }
}

/// Refuses velocities beyond `f32`, of particles from row `first` on.
fn check_finite(first: u64, velocities: &[[f32; 3]]) -> Result<(), IoError> {
    let Some(at) = velocities.as_flattened().iter().position(|v| !v.is_finite()) else { return Ok(()) };
    let index = vec![first + at as u64 / 3, at as u64 % 3];
    let (path, value) = (PathBuf::from("PartType1/Velocities"), f64::from(velocities[at / 3][at % 3]));
    Err(IoError::beyond_f32(path, index, value))
}
