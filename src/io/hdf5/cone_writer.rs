//! Writing of light cones, each rank its own particles.

use std::path::Path;

use hdf5_metno::file::File as Hdf5File;

use super::shared_datasets::{DatasetSpec, NumberKind, SharedDatasets};
use super::snapshot_writer::{Contents, describe};
use super::units::Quantity;
use super::{FilePart, SnapshotInfo, attributes};
use crate::io::{IoError, Sealed};

/// What the file of a light cone says of it. Lengths in Mpc/h.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConeInfo {
    /// The box that the particles are of, at the end of the run; it counts the particles of the box.
    pub snapshot: SnapshotInfo,
    /// Particles of the cone.
    pub count: u64,
    /// The observer's place in the box.
    pub observer: [f64; 3],
    /// How far the cone reaches, comoving.
    pub distance: f64,
    /// The middle of the sky that is seen.
    pub direction: [f64; 3],
    /// The angle from there to the rim, in degrees: 180 for all of it.
    pub opening: f64,
}

/// Particles of a light cone, as many of each.
#[derive(Clone, Copy, Debug)]
pub struct ConeRows<'a> {
    /// Comoving places from the observer, not wrapped, in Mpc/h.
    pub positions: &'a [[f32; 3]],
    /// Peculiar velocities in km/s.
    pub velocities: &'a [[f32; 3]],
    /// Scale factors at which the particles cross the cone.
    pub scale_factors: &'a [f32],
    /// Lagrangian indices: a particle may stand in several replicas of the box.
    pub ids: &'a [u64],
    /// The replica in which the particle's site lies, as numbers of sides from the box.
    pub images: &'a [[i32; 3]],
}

/// A file of the particles of a light cone, in the layout of a snapshot ([`SnapshotWriter`](super::SnapshotWriter)) in open space whose
/// velocities are peculiar, with a scale factor and a replica for each particle and a group `LightCone` that says what the cone is.
/// Ranks share the file as they share any [`SharedFile`](crate::io::SharedFile): rank 0 creates it, the others open it after a barrier.
///
/// ```
/// use meshloom::io::{hdf5::{ConeInfo, ConeRows, ConeWriter, Snapshot, SnapshotInfo}, token};
/// # fn main() -> Result<(), meshloom::io::IoError> {
/// let path = std::env::temp_dir().join(format!("meshloom-doc-{}.hdf5", token()));
/// let snapshot = SnapshotInfo { count: 8, box_size: 10.0, scale_factor: 1.0, omega_m: 0.3, omega_b: 0.05, h: 0.7, omega_r: 0.0, dark_energy: [-1.0, 0.0] };
/// let info = ConeInfo { snapshot, count: 1, observer: [5.0; 3], distance: 20.0, direction: [0.0, 0.0, 1.0], opening: 180.0 };
/// let writer = ConeWriter::create(&path, &info, &token())?;
/// let rows = ConeRows { positions: &[[-9.0, 0.0, 12.0]], velocities: &[[300.0; 3]], scale_factors: &[0.995], ids: &[7], images: &[[-1, 0, 1]] };
/// writer.write(0, rows)?;
/// writer.seal()?.publish()?;
///
/// let cone = Snapshot::open(&path)?;
/// assert_eq!((cone.count(), cone.box_size(), cone.velocity_unit()?.map(|unit| unit.factor)), (1, None, Some(1.0)));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ConeWriter {
    datasets: SharedDatasets,
}

fn datasets(count: u64, info: Option<&SnapshotInfo>) -> Vec<DatasetSpec> {
    let dataset =
        |name, kind, width, quantity| DatasetSpec::table(["PartType1", name], kind, [count, width], quantity, info);
    let number = Quantity::number;
    vec![
        dataset("Coordinates", NumberKind::F32, 3, Quantity::length("Comoving places from the observer, not wrapped")),
        dataset("Velocities", NumberKind::F32, 3, Quantity::velocity(0.0, "Peculiar velocities a dx/dt")),
        dataset(
            "ScaleFactors",
            NumberKind::F32,
            1,
            number("Scale factor a at which the particle crosses the light cone"),
        ),
        dataset("ParticleIDs", NumberKind::U64, 1, number("Lagrangian index (i n + j) n + k of site (i, j, k)")),
        dataset("Images", NumberKind::I32, 3, number("Replica of the box that has the site: sides from the box")),
    ]
}

impl ConeWriter {
    /// Creates the file with everything but the particles. Called by rank 0.
    ///
    /// # Errors
    /// [`IoError::OutputIsDash`], [`IoError::NotAFile`], [`IoError::Create`], [`IoError::Exists`] if the token was used before,
    /// [`IoError::Shape`] if no file could hold the particles. Nothing is left behind after an error.
    pub fn create(path: impl AsRef<Path>, info: &ConeInfo, token: &str) -> Result<Self, IoError> {
        let part = FilePart { index: 0, of: 1, count: info.count };
        let contents = Contents { part, total: info.count, sides: [0.0; 3], output: "LightCone" };
        let whole = |file: &Hdf5File| {
            describe(file, &info.snapshot, &contents)?;
            let group = file.create_group("LightCone")?;
            attributes::list(&group, "Observer", &info.observer)?;
            attributes::scalar(&group, "Distance", info.distance)?;
            attributes::list(&group, "Direction", &info.direction)?;
            attributes::scalar(&group, "OpeningDegrees", info.opening)?;
            attributes::scalar(&group, "BoxSize", info.snapshot.box_size)
        };
        let datasets = SharedDatasets::create(path.as_ref(), token, datasets(info.count, Some(&info.snapshot)), whole)?;
        Ok(ConeWriter { datasets })
    }

    /// Opens the file that rank 0 has created, with rank 0's [`offsets`](Self::offsets). Called by all other ranks, after a barrier.
    ///
    /// # Errors
    /// [`IoError::Create`] if the file is not to be seen from here: the ranks do not share a file system, or rank 0 has failed; [`IoError::Shape`]
    /// for another number of offsets than of datasets.
    pub fn open(path: impl AsRef<Path>, info: &ConeInfo, token: &str, offsets: &[u64]) -> Result<Self, IoError> {
        Ok(ConeWriter { datasets: SharedDatasets::open(path.as_ref(), token, datasets(info.count, None), offsets)? })
    }

    /// The byte offsets of the datasets, which rank 0 broadcasts for the other ranks to [`open`](Self::open) the file.
    pub fn offsets(&self) -> &[u64] {
        self.datasets.offsets()
    }

    /// Writes particles to the rows of the file from `first` on.
    ///
    /// # Errors
    /// [`IoError::Column`] if their numbers differ, [`IoError::Range`] beyond the file's end, [`IoError::Write`].
    pub fn write(&self, first: u64, rows: ConeRows) -> Result<(), IoError> {
        let ConeRows { positions, velocities, scale_factors, ids, images } = rows;
        let lengths = [
            ("Velocities", velocities.len()),
            ("ScaleFactors", scale_factors.len()),
            ("ParticleIDs", ids.len()),
            ("Images", images.len()),
        ];
        if let Some((name, len)) = lengths.into_iter().find(|(_, len)| *len != positions.len()) {
            let reason = format!("has {len} rows, but there are {} positions", positions.len());
            return Err(IoError::Column { path: self.datasets.path().into(), name: name.into(), reason });
        }
        self.datasets.write(0, first, positions.as_flattened())?;
        self.datasets.write(1, first, velocities.as_flattened())?;
        self.datasets.write(2, first, scale_factors)?;
        self.datasets.write(3, first, ids)?;
        self.datasets.write(4, first, images.as_flattened())
    }

    /// Flushes this rank's particles to the disk; the file gets its name by [`Sealed::publish`], on the rank that created it.
    ///
    /// # Errors
    /// [`IoError::Write`].
    pub fn seal(self) -> Result<Sealed, IoError> {
        self.datasets.seal()
    }
}
