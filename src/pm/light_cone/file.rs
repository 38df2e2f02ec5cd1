//! Light cones in HDF5, which all ranks write together.

use std::path::Path;

use super::cone::Cone;
use super::particles::{ConeParticle, ConeParticles};
use crate::comm::Communicator;
use crate::host_memory::{self, HostMemoryError};
use crate::io::Sealed;
use crate::io::collective::opened_with_offsets;
use crate::io::hdf5::{ConeInfo, ConeRows, ConeWriter, SnapshotInfo};
use crate::pm::SimulationError;

/// Particles that are written at a time.
const PIECE: usize = 1 << 18;

impl ConeParticles {
    /// Writes the particles of `cone` in HDF5, in the order that they have over all ranks;
    /// `snapshot` is the header of the box at the end of the run. The file has no name yet, which
    /// rank 0 gives it by [`Sealed::publish`]. Collective.
    ///
    /// # Errors
    /// [`IoError`](crate::io::IoError) of the first rank that failed, on all ranks.
    pub fn seal_hdf5(
        &self,
        comm: &Communicator,
        path: &Path,
        cone: &Cone,
        snapshot: SnapshotInfo,
    ) -> Result<Sealed, SimulationError> {
        let (direction, opening) =
            cone.opening.as_ref().map_or(([0.0, 0.0, 1.0], 180.0), |opening| (opening.unit(), opening.angle));
        let (observer, distance) = (cone.observer, cone.distance);
        let info = ConeInfo { snapshot, count: self.total(), observer, distance, direction, opening };
        let writer = opened_with_offsets::<_, SimulationError>(
            comm,
            |token| ConeWriter::create(path, &info, token),
            ConeWriter::offsets,
            |token, offsets| ConeWriter::open(path, &info, token, offsets),
        )?;
        comm.together(|| self.write_rows(&writer))?;
        comm.together(|| Ok(writer.seal()?))
    }

    /// Writes the rows of this rank.
    fn write_rows(&self, writer: &ConeWriter) -> Result<(), SimulationError> {
        let (mut rows, mut first) = (self.iter(), self.first());
        while rows.len() > 0 {
            let piece = host_memory::collect("particles on the light cone", rows.by_ref().take(PIECE))?;
            writer.write(
                first,
                ConeRows {
                    positions: &column(&piece, |p| p.position)?,
                    velocities: &column(&piece, |p| p.velocity)?,
                    scale_factors: &column(&piece, |p| p.scale_factor)?,
                    ids: &column(&piece, |p| p.id)?,
                    images: &column(&piece, |p| p.image)?,
                },
            )?;
            first += piece.len() as u64;
        }
        Ok(())
    }
}

/// Returns a quantity of each particle.
fn column<T>(particles: &[ConeParticle], of: impl Fn(&ConeParticle) -> T) -> Result<Vec<T>, HostMemoryError> {
    host_memory::collect("particles on the light cone", particles.iter().map(of))
}
