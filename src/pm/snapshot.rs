//! Snapshots in HDF5, which all ranks write together.

use std::path::{Path, PathBuf};

use crate::comm::{Communicator, Op};
use crate::io::collective::shared_token;
use crate::io::hdf5::{FilePart, Files, SnapshotInfo, SnapshotWriter, part_path};
use crate::io::{IoError, Sealed, token};

use super::Simulation;
use super::SimulationError;

/// Particles that are written at a time.
const PIECE: usize = 1 << 18;

/// Writes a snapshot from all ranks, which all call it. `write` gets this rank's file and the first row of its own `count`
/// particles in it, where those of rank 1 follow those of rank 0 and so on. The data are on disk when it returns; a file
/// appears under its name when the rank that made it publishes it: rank 0 the one of [`Files::One`], each rank its own of
/// [`Files::PerRank`], which is `name.R.hdf5` for `name.hdf5`.
///
/// It ends with a barrier, so that no rank publishes before all have written.
///
/// # Errors
/// [`IoError`](crate::io::IoError) of whichever rank failed; the other ranks learn of it by their next message.
pub fn seal_snapshot_together(
    comm: &Communicator,
    path: &Path,
    files: Files,
    info: &SnapshotInfo,
    count: u64,
    write: impl FnOnce(&SnapshotWriter, u64) -> Result<(), SimulationError>,
) -> Result<Sealed, SimulationError> {
    let mut all = [count];
    comm.all_reduce(&mut all, Op::Sum)?;
    if all[0] != info.count {
        let reason = format!("has {} rows over all ranks, but the header counts {}", all[0], info.count);
        return Err(IoError::Column { path: path.to_path_buf(), name: "ParticleIDs".to_string(), reason }.into());
    }
    let (writer, first) = match files {
        Files::PerRank => {
            let part = FilePart { index: comm.rank() as u64, of: comm.size() as u64, count };
            // A token of each rank: it names the host that makes the file.
            (SnapshotWriter::create(part_path(path, part.index), info, part, &token())?, 0)
        }
        Files::One => {
            let token = shared_token(comm)?;
            let whole = FilePart::whole(info);
            let made = if comm.rank() == 0 { Some(SnapshotWriter::create(path, info, whole, &token)?) } else { None };
            let mut first = [count];
            comm.scan_exclusive(&mut first, Op::Sum)?;
            // Also the message to the other ranks that the file exists.
            let mut offsets = made.as_ref().map_or([0; 3], SnapshotWriter::offsets);
            comm.broadcast(0, &mut offsets)?;
            let writer = match made {
                Some(writer) => writer,
                None => SnapshotWriter::open(path, whole, &token, offsets)?,
            };
            // All have the file open before any may fail: rank 0 would remove it, and others would report it as missing.
            comm.barrier()?;
            (writer, first[0])
        }
    };
    write(&writer, first)?;
    let sealed = writer.seal()?;
    comm.barrier()?;
    Ok(sealed)
}

impl Simulation {
    /// The header of a snapshot of the present moment.
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

    /// Writes positions in Mpc/h and canonical momenta, as [`positions`](Self::positions) and
    /// [`phase_space`](Self::phase_space) return them, as a snapshot in HDF5, with the Lagrangian index as id. One file has
    /// the particles in Lagrangian order, one file per rank in the order of the rank's sites. All ranks call it.
    ///
    /// # Errors
    /// As [`seal_snapshot_together`].
    pub fn seal_snapshot(
        &self,
        path: &Path,
        files: Files,
        positions: &[Vec<f32>; 3],
        momentum: &[Vec<f32>; 3],
    ) -> Result<Sealed, SimulationError> {
        let (n, info) = (self.config.particles, self.snapshot_info());
        let count = positions[0].len() as u64;
        seal_snapshot_together(self.comms.world(), path, files, &info, count, |writer, _| {
            // Rows of sites that follow one another in the file are written together, up to a limit.
            let mut pending = Pending::default();
            for (number, row) in self.rows().enumerate() {
                let start = number as u64 * n;
                let place = if files == Files::One { row } else { start };
                if pending.ids.len() >= PIECE || pending.next() != place {
                    pending.flush(writer)?;
                    pending.first = place;
                }
                for (site, at) in (start as usize..(start + n) as usize).enumerate() {
                    pending.positions.push([0, 1, 2].map(|axis| positions[axis][at]));
                    pending.velocities.push([0, 1, 2].map(|axis| info.gadget_velocity(momentum[axis][at])));
                    pending.ids.push(row + site as u64);
                }
            }
            pending.flush(writer)
        })
    }
}

/// Particles that are to be written from row `first` on.
#[derive(Default)]
struct Pending {
    first: u64,
    positions: Vec<[f32; 3]>,
    velocities: Vec<[f32; 3]>,
    ids: Vec<u64>,
}

impl Pending {
    /// The row after the last.
    fn next(&self) -> u64 {
        self.first + self.ids.len() as u64
    }

    fn flush(&mut self, writer: &SnapshotWriter) -> Result<(), SimulationError> {
        if let Some(at) = self.velocities.as_flattened().iter().position(|v| !v.is_finite()) {
            let (row, axis) = (at as u64 / 3, at as u64 % 3);
            let (path, value) = (PathBuf::from("PartType1/Velocities"), f64::from(self.velocities[at / 3][at % 3]));
            return Err(IoError::OutOfRange { path, index: vec![self.first + row, axis], value }.into());
        }
        writer.write(self.first, &self.positions, &self.velocities, &self.ids)?;
        self.first = self.next();
        self.positions.clear();
        self.velocities.clear();
        self.ids.clear();
        Ok(())
    }
}
