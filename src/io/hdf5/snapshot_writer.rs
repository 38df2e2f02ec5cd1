//! Writing of snapshots, each rank its own particles.

use std::path::{Path, PathBuf};

use hdf5_metno::file::File as Hdf5File;

use super::shared_datasets::{DatasetSpec, NumberKind, SharedDatasets};
use super::units::Quantity;
use super::{SnapshotInfo, attributes};
use crate::io::{IoError, Sealed};

/// The number of files of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// One, with the same bytes for any number of ranks.
    One,
    /// One per rank: `name.0.hdf5`, `name.1.hdf5`, ...
    PerRank,
}

/// One file of a snapshot: its number and its share of the particles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Its number, from 0.
    pub index: u64,
    /// Number of files of the snapshot.
    pub of: u64,
    /// Number of particles in this file.
    pub count: u64,
}

impl FilePart {
    /// The only file, with all particles.
    pub fn whole(info: &SnapshotInfo) -> Self {
        FilePart { index: 0, of: 1, count: info.count }
    }
}

/// The path of file number `index` of a snapshot of several files: `snapshot.hdf5` becomes `snapshot.3.hdf5`.
///
/// ```
/// use meshloom::io::hdf5::part_path;
/// assert_eq!(part_path("run/snapshot.hdf5", 3), std::path::Path::new("run/snapshot.3.hdf5"));
/// ```
pub fn part_path(path: impl AsRef<Path>, index: u64) -> PathBuf {
    let path = path.as_ref();
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(format!(".{index}."));
    name.push(path.extension().unwrap_or("hdf5".as_ref()));
    path.with_file_name(name)
}

/// A file of particles of one mass (`PartType1`) in the layout of Gadget-4, which readers of SWIFT's files read,
/// too.
///
/// - Positions are in comoving Mpc/h; velocities are Gadget's, peculiar km/s over the square root of a
///   ([`SnapshotInfo::gadget_velocity`]); the particles' mass is in the header. Attributes of the datasets give the units.
/// - Ranks share a file as they share any [`SharedFile`](crate::io::SharedFile): rank 0 creates it, the others open it
///   after a barrier, all write disjoint rows and finish. In a snapshot of one file per rank each creates its own.
/// - Rows that no rank writes are zero.
///
/// ```
/// use meshloom::io::{hdf5::{FilePart, Snapshot, SnapshotInfo, SnapshotWriter}, token};
/// # fn main() -> Result<(), meshloom::io::IoError> {
/// let path = std::env::temp_dir().join(format!("meshloom-doc-{}.hdf5", token()));
/// let info = SnapshotInfo { count: 2, box_size: 10.0, scale_factor: 0.5, omega_m: 0.3, omega_b: 0.05, h: 0.7, omega_r: 0.0, dark_energy: [-1.0, 0.0] };
/// let writer = SnapshotWriter::create(&path, &info, FilePart::whole(&info), &token())?;
/// writer.write(0, &[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &[[0.0; 3]; 2], &[0, 1])?;
/// writer.finish()?;
///
/// let snapshot = Snapshot::open(&path)?;
/// assert_eq!((snapshot.count(), snapshot.box_size()), (2, Some([10.0; 3])));
/// assert_eq!(snapshot.positions_f32(1..2)?, [4.0, 5.0, 6.0]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SnapshotWriter {
    datasets: SharedDatasets,
}

const POSITIONS: usize = 0;
const VELOCITIES: usize = 1;
const IDS: usize = 2;

fn datasets(count: u64, info: Option<&SnapshotInfo>) -> Vec<DatasetSpec> {
    let dataset =
        |name, kind, width, quantity| DatasetSpec::table(["PartType1", name], kind, [count, width], quantity, info);
    vec![
        dataset("Coordinates", NumberKind::F32, 3, Quantity::length("Comoving positions")),
        dataset(
            "Velocities",
            NumberKind::F32,
            3,
            Quantity::velocity(0.5, "Peculiar velocities a dx/dt over the square root of the scale factor a"),
        ),
        dataset(
            "ParticleIDs",
            NumberKind::U64,
            1,
            Quantity::number("Lagrangian index (i n + j) n + k of site (i, j, k)"),
        ),
    ]
}

impl SnapshotWriter {
    /// Creates the file with everything but the particles. Called by rank 0, or by each rank for its own part.
    ///
    /// # Errors
    /// [`IoError::OutputIsDash`], [`IoError::NotAFile`], [`IoError::Create`], [`IoError::Exists`] if the token was used
    /// before, [`IoError::Shape`] if no file could hold the particles. Nothing is left behind after an error.
    pub fn create(path: impl AsRef<Path>, info: &SnapshotInfo, part: FilePart, token: &str) -> Result<Self, IoError> {
        let contents = Contents { part, total: info.count, sides: [info.box_size; 3], output: "FullVolume" };
        let describe = |file: &Hdf5File| describe(file, info, &contents);
        let datasets = SharedDatasets::create(path.as_ref(), token, datasets(part.count, Some(info)), describe)?;
        Ok(Self { datasets })
    }

    /// Opens the file that rank 0 has created, with rank 0's [`offsets`](Self::offsets). Called by all other ranks, after
    /// a barrier.
    ///
    /// # Errors
    /// [`IoError::Create`] if the file is not to be seen from here: the ranks do not share a file system, or rank 0 has
    /// failed; [`IoError::Shape`]
    /// for another number of offsets than of datasets.
    pub fn open(path: impl AsRef<Path>, part: FilePart, token: &str, offsets: &[u64]) -> Result<Self, IoError> {
        Ok(Self { datasets: SharedDatasets::open(path.as_ref(), token, datasets(part.count, None), offsets)? })
    }

    /// The byte offsets of the datasets, which rank 0 broadcasts for the other ranks to [`open`](Self::open) the file.
    pub fn offsets(&self) -> &[u64] {
        self.datasets.offsets()
    }

    /// Writes particles to the rows of this file from `first` on: positions in Mpc/h, Gadget's velocities, and ids, as
    /// many of each.
    ///
    /// # Errors
    /// [`IoError::Column`] if their numbers differ, [`IoError::Range`] beyond the file's end, [`IoError::Write`].
    pub fn write(
        &self,
        first: u64,
        positions: &[[f32; 3]],
        velocities: &[[f32; 3]],
        ids: &[u64],
    ) -> Result<(), IoError> {
        for (name, len) in [("Velocities", velocities.len()), ("ParticleIDs", ids.len())] {
            if len != positions.len() {
                let reason = format!("has {len} rows, but there are {} positions", positions.len());
                return Err(IoError::Column { path: self.datasets.path().into(), name: name.into(), reason });
            }
        }
        self.datasets.write(POSITIONS, first, positions.as_flattened())?;
        self.datasets.write(VELOCITIES, first, velocities.as_flattened())?;
        self.datasets.write(IDS, first, ids)
    }

    /// Flushes this rank's particles to the disk; on the rank that created the file, whose call comes last, the file then gets
    /// its name.
    ///
    /// # Errors
    /// [`IoError::Write`].
    pub fn finish(self) -> Result<(), IoError> {
        self.seal()?.publish()
    }

    /// As [`finish`](Self::finish), but the file gets its name by [`Sealed::publish`] only.
    ///
    /// # Errors
    /// [`IoError::Write`].
    pub fn seal(self) -> Result<Sealed, IoError> {
        self.datasets.seal()
    }
}

/// What of a file's header depends on which particles of the box it has.
pub(super) struct Contents {
    /// The file among those that have the particles.
    pub part: FilePart,
    /// Particles of all files.
    pub total: u64,
    /// Sides of the space that they lie in; 0 for open space.
    pub sides: [f64; 3],
    /// Gadget's word for what they are.
    pub output: &'static str,
}

/// Writes all of a file of particles but the datasets; `info` counts the particles of the box.
pub(super) fn describe(file: &Hdf5File, info: &SnapshotInfo, contents: &Contents) -> hdf5_metno::Result<()> {
    let Contents { part, total, sides, output } = *contents;
    let six = |value: u64| [0, value, 0, 0, 0, 0];
    let header = file.create_group("Header")?;
    attributes::list(&header, "NumPart_ThisFile", &six(part.count))?;
    attributes::list(&header, "NumPart_Total", &six(total))?;
    // The total has 64 bits, as in Gadget-4; readers that add a high word add zero.
    attributes::list(&header, "NumPart_Total_HighWord", &[0u32; 6])?;
    attributes::list(&header, "MassTable", &[0.0, info.particle_mass(), 0.0, 0.0, 0.0, 0.0])?;
    attributes::scalar(&header, "NumFilesPerSnapshot", part.of as i32)?;
    attributes::list(&header, "ThisFile", &[part.index as i32])?;
    attributes::list(&header, "BoxSize", &sides)?;
    attributes::list(&header, "Time", &[info.scale_factor])?;
    attributes::list(&header, "Scale-factor", &[info.scale_factor])?;
    attributes::list(&header, "Redshift", &[info.redshift()])?;
    attributes::list(&header, "Dimension", &[3i32])?;
    attributes::text(&header, "Code", concat!("meshloom ", env!("CARGO_PKG_VERSION")))?;
    attributes::text(&header, "OutputType", output)?;
    attributes::densities(&header, info)?;

    let group = |name: &str| file.create_group(name);
    let [parameters, units, internal] = [group("Parameters")?, group("Units")?, group("InternalCodeUnits")?];
    attributes::parameters(&parameters, info)?;
    attributes::units(&units, info)?;
    attributes::units(&internal, info)?;
    let [cosmology, policy] = [group("Cosmology")?, group("Policy")?];
    attributes::cosmology(&cosmology, info)?;
    // pynbody takes this group for the sign that units are given as in SWIFT.
    attributes::list(&policy, "cosmological integration", &[1i32])
}
