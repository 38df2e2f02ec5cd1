//! The contents of HDF5 files that ranks write together.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use hdf5_metno::file::File as Hdf5File;

use super::{DatasetSpec, Groups, GroupsPlace, Quantity, SnapshotInfo, attributes, datasets};
use crate::io::Member;

/// The contents of an HDF5 file: groups with attributes, and datasets, whose values ranks write
/// through an [`Hdf5Writer`](super::Hdf5Writer).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Hdf5Contents<'a> {
    /// Particles of one mass (`PartType1`) in the layout of Gadget-4, which readers of SWIFT's
    /// files also read. [`SnapshotRows`](super::SnapshotRows) writes the particles; attributes of
    /// the datasets give the units.
    Snapshot {
        /// The header; counts the particles of all files.
        info: &'a SnapshotInfo,
        /// The file within the snapshot.
        part: FilePart,
    },
    /// Particles of a light cone, in the layout of a snapshot in open space, with peculiar
    /// velocities, a scale factor and a replica for each particle, and a group `LightCone` that
    /// describes the cone. [`ConeRows`](super::ConeRows) writes the particles.
    LightCone(&'a ConeInfo),
    /// A catalog of groups in the layout of Gadget-4. [`Groups::write`] writes a rank's part.
    Groups {
        /// The header of the snapshot in which the groups were found.
        info: &'a SnapshotInfo,
        /// A rank's part, which has the same optional columns as the parts of all others.
        groups: &'a Groups<'a>,
        /// The place of the part; totals are equal on all ranks.
        place: GroupsPlace,
    },
    /// Arrays as in an `.npz` archive, as datasets of these names, types and shapes.
    Arrays {
        /// The datasets. A name with a `/` begins with the name of a group.
        members: &'a [Member],
        /// Attributes of the datasets and of groups; the rank that creates the file writes its own.
        attributes: &'a [Attribute],
    },
}

impl Hdf5Contents<'_> {
    /// Returns the datasets in the order of their numbers.
    pub(crate) fn members(&self) -> Vec<Member> {
        self.datasets().into_iter().map(|dataset| dataset.member).collect()
    }

    pub(super) fn datasets(&self) -> Vec<DatasetSpec> {
        match *self {
            Hdf5Contents::Snapshot { info, part } => snapshot_datasets(info, part.count),
            Hdf5Contents::LightCone(cone) => cone_datasets(cone),
            Hdf5Contents::Groups { info, groups, place } => datasets::specs(info, groups, place),
            Hdf5Contents::Arrays { members, attributes } => {
                let spec = |member: &Member| {
                    let own = attributes.iter().filter(|attribute| attribute.at == member.name);
                    let own = own.map(|attribute| (attribute.name.clone(), attribute.values.clone())).collect();
                    DatasetSpec { member: member.clone(), quantity: None, attributes: own }
                };
                members.iter().map(spec).collect()
            }
        }
    }

    /// Writes everything but the datasets.
    pub(super) fn describe(&self, file: &Hdf5File) -> hdf5_metno::Result<()> {
        match *self {
            Hdf5Contents::Snapshot { info, part } => describe(
                file,
                info,
                &Header { part, total: info.count, sides: [info.box_size; 3], output: "FullVolume" },
            ),
            Hdf5Contents::LightCone(cone) => describe_cone(file, cone),
            Hdf5Contents::Groups { info, groups, place } => {
                let ids = groups.members.map_or(0, |_| place.members);
                datasets::describe(file, info, [place.groups, ids])
            }
            Hdf5Contents::Arrays { members, attributes } => {
                let of_group = |attribute: &&Attribute| members.iter().all(|member| member.name != attribute.at);
                for Attribute { at, name, values } in attributes.iter().filter(of_group) {
                    let group = if file.link_exists(at) { file.group(at)? } else { file.create_group(at)? };
                    attributes::list(&group, name, values)?;
                }
                Ok(())
            }
        }
    }
}

/// A numeric attribute of a dataset or group.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// Name of the dataset, or of a group such as `Header`, which is created.
    pub at: String,
    /// Name of the attribute.
    pub name: String,
    /// Values, at least one.
    pub values: Vec<f64>,
}

/// The division of a snapshot into files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// One, with the same bytes for any number of ranks.
    One,
    /// At most this many, and at most one per rank: `name.0.hdf5`, `name.1.hdf5`, ... Each holds
    /// the particles of consecutive ranks.
    Several(NonZero<u32>),
}

impl Files {
    /// Returns the number of files that `ranks` ranks write; `ranks` is at least 1.
    #[must_use]
    pub fn count(self, ranks: usize) -> u64 {
        match self {
            Files::One => 1,
            Files::Several(most) => u64::from(most.get()).min(ranks as u64),
        }
    }
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
    /// Returns the only file, with all particles.
    #[must_use]
    pub fn whole(info: &SnapshotInfo) -> Self {
        FilePart { index: 0, of: 1, count: info.count }
    }
}

/// Returns the path of file number `index` of a snapshot of several files: `snapshot.hdf5` becomes
/// `snapshot.3.hdf5`.
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

fn snapshot_datasets(info: &SnapshotInfo, count: u64) -> Vec<DatasetSpec> {
    let velocity = Quantity::velocity(0.5, "Peculiar velocities a dx/dt over the square root of the scale factor a");
    let id = Quantity::number("Lagrangian index (i n + j) n + k of site (i, j, k)");
    let position = Quantity::length("Comoving positions");
    vec![
        DatasetSpec::table::<f32>("PartType1/Coordinates", [count, 3], position, info),
        DatasetSpec::table::<f32>("PartType1/Velocities", [count, 3], velocity, info),
        DatasetSpec::table::<u64>("PartType1/ParticleIDs", [count, 1], id, info),
    ]
}

/// A light cone, as its file describes it. Lengths in comoving Mpc/h.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConeInfo {
    /// The box at the end of the run; counts the particles of the box.
    pub snapshot: SnapshotInfo,
    /// Number of particles in the cone.
    pub count: u64,
    /// Position of the observer in the box.
    pub observer: [f64; 3],
    /// Largest distance from the observer.
    pub distance: f64,
    /// Unit vector to the center of the visible sky.
    pub direction: [f64; 3],
    /// Angle from the center to the rim in degrees; 180 for the whole sky.
    pub opening: f64,
}

fn cone_datasets(cone: &ConeInfo) -> Vec<DatasetSpec> {
    let (info, rows, number) = (&cone.snapshot, |width| [cone.count, width], Quantity::number);
    let position = Quantity::length("Comoving places from the observer, not wrapped");
    let velocity = Quantity::velocity(0.0, "Peculiar velocities a dx/dt");
    let scale_factor = number("Scale factor a at which the particle crosses the light cone");
    let id = number("Lagrangian index (i n + j) n + k of site (i, j, k)");
    let image = number("Replica of the box that has the site: sides from the box");
    vec![
        DatasetSpec::table::<f32>("PartType1/Coordinates", rows(3), position, info),
        DatasetSpec::table::<f32>("PartType1/Velocities", rows(3), velocity, info),
        DatasetSpec::table::<f32>("PartType1/ScaleFactors", rows(1), scale_factor, info),
        DatasetSpec::table::<u64>("PartType1/ParticleIDs", rows(1), id, info),
        DatasetSpec::table::<i32>("PartType1/Images", rows(3), image, info),
    ]
}

fn describe_cone(file: &Hdf5File, cone: &ConeInfo) -> hdf5_metno::Result<()> {
    let part = FilePart { index: 0, of: 1, count: cone.count };
    describe(file, &cone.snapshot, &Header { part, total: cone.count, sides: [0.0; 3], output: "LightCone" })?;
    let group = file.create_group("LightCone")?;
    attributes::list(&group, "Observer", &cone.observer)?;
    attributes::scalar(&group, "Distance", cone.distance)?;
    attributes::list(&group, "Direction", &cone.direction)?;
    attributes::scalar(&group, "OpeningDegrees", cone.opening)?;
    attributes::scalar(&group, "BoxSize", cone.snapshot.box_size)
}

/// The part of a header that depends on the particles in the file.
struct Header {
    /// The file among those with the particles.
    pub part: FilePart,
    /// Number of particles in all files.
    pub total: u64,
    /// Sides of the box; 0 for open space.
    pub sides: [f64; 3],
    /// Gadget's `OutputType`.
    pub output: &'static str,
}

/// Writes everything but the datasets of a file of particles; `info` counts the particles of the
/// box.
fn describe(file: &Hdf5File, info: &SnapshotInfo, contents: &Header) -> hdf5_metno::Result<()> {
    let Header { part, total, sides, output } = *contents;
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
    // This group tells pynbody that units are given as in SWIFT.
    attributes::list(&policy, "cosmological integration", &[1i32])
}
