//! Writing of light cones in HDF5 by all ranks.

use std::path::Path;

use super::{Cone, ConeParticle, ConeParticles};
use crate::comm::Communicator;
use crate::host_memory::{self, HostMemoryError};
use crate::io::Sealed;
use crate::io::collective::seal_hdf5;
use crate::io::hdf5::{ConeInfo, ConeRows, Hdf5Contents, Hdf5Writer, SnapshotInfo};
use crate::pm::Result;

/// Particles that are written at a time.
const PIECE: usize = 1 << 18;

impl ConeParticles {
    /// Writes the particles of `cone` in HDF5, in their order over all ranks; `snapshot` is the
    /// header of the box at the end of the run. The file has no name yet, which rank 0 gives it by
    /// [`Sealed::publish`]. Collective.
    ///
    /// # Errors
    /// [`IoError`](crate::io::IoError) of the first rank that fails, on all ranks.
    pub fn seal_hdf5(&self, comm: &Communicator, path: &Path, cone: &Cone, snapshot: SnapshotInfo) -> Result<Sealed> {
        let (direction, opening) =
            cone.opening.as_ref().map_or(([0.0, 0.0, 1.0], 180.0), |opening| (opening.unit(), opening.angle));
        let (observer, distance) = (cone.observer, cone.distance);
        let info = ConeInfo { snapshot, count: self.total(), observer, distance, direction, opening };
        seal_hdf5(comm, path, &Hdf5Contents::LightCone(&info), |writer| self.write_rows(writer))
    }

    /// Writes the rows of this rank.
    fn write_rows(&self, writer: &Hdf5Writer) -> Result<()> {
        let (mut rows, mut first) = (self.iter(), self.first());
        while rows.len() > 0 {
            let piece = host_memory::collect("particles on the light cone", rows.by_ref().take(PIECE))?;
            let rows = ConeRows {
                positions: &column(&piece, |p| p.position)?,
                velocities: &column(&piece, |p| p.velocity)?,
                scale_factors: &column(&piece, |p| p.scale_factor)?,
                ids: &column(&piece, |p| p.id)?,
                images: &column(&piece, |p| p.image)?,
            };
            rows.write(writer, first)?;
            first += piece.len() as u64;
        }
        Ok(())
    }
}

/// Collects a quantity of each particle.
fn column<T>(particles: &[ConeParticle], of: impl Fn(&ConeParticle) -> T) -> Result<Vec<T>, HostMemoryError> {
    host_memory::collect("particles on the light cone", particles.iter().map(of))
}
