//! Writing of group catalogues.

use std::path::Path;

use hdf5_metno::file::File as Hdf5File;

use super::shared_datasets::{DatasetSpec, NumberKind, SharedDatasets};
use super::units::Quantity;
use super::{Groups, SnapshotInfo, attributes};
use crate::io::{IoError, Sealed, token};

/// The particle type of all particles.
const TYPE: usize = 1;

/// Rows that are converted and written at a time.
const PIECE: usize = 1 << 16;

/// The numbers of a dataset.
enum Data<'a> {
    F32(&'a [f32]),
    U64(&'a [u64]),
    /// Six numbers per group, one per particle type: these for type 1, zero for the others.
    F32ByType(&'a [f32]),
    U64ByType(&'a [u64]),
    /// The same number in all rows.
    Constant(f32),
}

impl Data<'_> {
    fn kind(&self) -> NumberKind {
        match self {
            Data::F32(_) | Data::F32ByType(_) | Data::Constant(_) => NumberKind::F32,
            Data::U64(_) | Data::U64ByType(_) => NumberKind::U64,
        }
    }

    fn write(&self, to: &SharedDatasets, dataset: usize, rows: usize) -> Result<(), IoError> {
        match self {
            Data::F32(values) => to.write(dataset, 0, values),
            Data::U64(values) => to.write(dataset, 0, values),
            Data::F32ByType(values) => write_by_type(to, dataset, values),
            Data::U64ByType(values) => write_by_type(to, dataset, values),
            Data::Constant(value) => to.write(dataset, 0, &vec![*value; rows]),
        }
    }
}

fn write_by_type<T: crate::io::NpyElement>(to: &SharedDatasets, dataset: usize, values: &[T]) -> Result<(), IoError> {
    for (piece, values) in values.chunks(PIECE).enumerate() {
        let mut rows = vec![[T::zeroed(); 6]; values.len()];
        rows.iter_mut().zip(values).for_each(|(row, &value)| row[TYPE] = value);
        to.write(dataset, (piece * PIECE) as u64, rows.as_flattened())?;
    }
    Ok(())
}

/// Writes a catalogue in Gadget-4's layout, with additional datasets. Called by one rank; the file appears when it is
/// whole. `info` is that of the snapshot in which the groups were found.
///
/// # Errors
/// [`IoError::Column`] for slices that do not belong together, [`IoError::OutputIsDash`], [`IoError::NotAFile`],
/// [`IoError::Create`], [`IoError::Write`]. Nothing is left behind after an error.
///
/// ```
/// use meshloom::io::hdf5::{Groups, SnapshotInfo, read_groups, write_groups};
/// # fn main() -> Result<(), meshloom::io::IoError> {
/// let path = std::env::temp_dir().join(format!("meshloom-doc-{}.hdf5", meshloom::io::token()));
/// let info = SnapshotInfo { count: 512, box_size: 10.0, scale_factor: 0.5, omega_m: 0.3, omega_b: 0.05, h: 0.7 };
/// let groups = Groups {
///     label: &[17],
///     count: &[3],
///     mass: &[3.0 * info.particle_mass() as f32],
///     center: &[[1.0, 2.0, 3.0]],
///     velocity: None,
///     inertia_radius: &[0.1],
///     velocity_dispersion: None,
///     max_radius: &[0.2],
///     offset: &[0, 3],
///     members: Some(&[17, 18, 40]),
/// };
/// write_groups(&path, &info, &groups)?;
/// assert_eq!(read_groups(&path)?.members, Some(vec![17, 18, 40]));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
pub fn write_groups(path: impl AsRef<Path>, info: &SnapshotInfo, groups: &Groups) -> Result<(), IoError> {
    seal_groups(path, info, groups)?.publish()
}

/// As [`write_groups`], but the file gets its name by [`Sealed::publish`] only.
///
/// # Errors
/// As [`write_groups`].
pub fn seal_groups(path: impl AsRef<Path>, info: &SnapshotInfo, groups: &Groups) -> Result<Sealed, IoError> {
    let path = path.as_ref();
    groups.check(path)?;
    let datasets = datasets(info, groups);
    let specs = datasets.iter().map(Dataset::spec).collect();
    let describe = |file: &Hdf5File| describe(file, info, groups);
    let file = SharedDatasets::create(path, &token(), specs, info, describe)?;
    for (number, dataset) in datasets.iter().enumerate() {
        dataset.data.write(&file, number, dataset.rows)?;
    }
    file.seal()
}

/// A dataset and its numbers.
struct Dataset<'a> {
    name: [&'static str; 2],
    rows: usize,
    width: u64,
    quantity: Quantity,
    data: Data<'a>,
}

impl Dataset<'_> {
    fn spec(&self) -> DatasetSpec {
        let shape = [self.rows as u64, self.width];
        DatasetSpec { name: self.name, kind: self.data.kind(), shape, quantity: self.quantity }
    }
}

/// The datasets of a catalogue.
fn datasets<'a>(info: &SnapshotInfo, groups: &Groups<'a>) -> Vec<Dataset<'a>> {
    let (number, rows) = (Quantity::number, groups.label.len());
    let of_groups = |name, width, quantity, data| Dataset { name: ["Group", name], rows, width, quantity, data };
    let offsets = number("First member of each type in IDs/ID");
    let ascale = Data::Constant(info.scale_factor as f32);
    let inertia = Quantity::length("Root of the mean squared comoving distance from the centre, weighted by mass");
    let radius = Quantity::length("Largest comoving distance of a particle from the centre");
    let center = Quantity::length("Comoving centre of mass");
    let mut datasets = vec![
        of_groups("GroupLabel", 1, number("A number that names the group"), Data::U64(groups.label)),
        of_groups("GroupLen", 1, number("Particles"), Data::U64(groups.count)),
        of_groups("GroupLenType", 6, number("Particles of each type"), Data::U64ByType(groups.count)),
        of_groups("GroupOffsetType", 6, offsets, Data::U64ByType(&groups.offset[..rows])),
        of_groups("GroupMass", 1, Quantity::mass("Mass"), Data::F32(groups.mass)),
        of_groups("GroupMassType", 6, Quantity::mass("Mass of each type"), Data::F32ByType(groups.mass)),
        of_groups("GroupPos", 3, center, Data::F32(groups.center.as_flattened())),
        of_groups("GroupInertiaRadius", 1, inertia, Data::F32(groups.inertia_radius)),
        of_groups("GroupMaxRadius", 1, radius, Data::F32(groups.max_radius)),
        of_groups("GroupAscale", 1, number("Scale factor of the output"), ascale),
    ];
    if let Some(velocity) = groups.velocity {
        let quantity = Quantity::velocity(0.0, "Peculiar velocity a dx/dt of the centre of mass");
        datasets.push(of_groups("GroupVel", 3, quantity, Data::F32(velocity.as_flattened())));
    }
    if let Some(dispersion) = groups.velocity_dispersion {
        let words = "Root of the mean squared peculiar velocity against GroupVel over all axes, weighted by mass";
        datasets.push(of_groups("GroupVelDisp", 1, Quantity::velocity(0.0, words), Data::F32(dispersion)));
    }
    if let Some(members) = groups.members {
        let quantity = number("Ids of members, group after group");
        let (name, rows, data) = (["IDs", "ID"], members.len(), Data::U64(members));
        datasets.push(Dataset { name, rows, width: 1, quantity, data });
    }
    datasets
}

/// Writes all of the file but the datasets.
fn describe(file: &Hdf5File, info: &SnapshotInfo, groups: &Groups) -> hdf5_metno::Result<()> {
    let header = file.create_group("Header")?;
    let (rows, ids) = (groups.label.len() as u64, groups.members.map_or(0, <[_]>::len) as u64);
    // Gadget-4 and pynbody read the number of subhalos, earlier codes and yt that of subgroups: both are zero.
    for (name, value) in [("Ngroups", rows), ("Nids", ids), ("Nsubhalos", 0), ("Nsubgroups", 0)] {
        attributes::scalar(&header, &format!("{name}_ThisFile"), value)?;
        attributes::scalar(&header, &format!("{name}_Total"), value)?;
    }
    attributes::scalar(&header, "NumFiles", 1i32)?;
    attributes::scalar(&header, "BoxSize", info.box_size)?;
    attributes::scalar(&header, "Time", info.scale_factor)?;
    attributes::scalar(&header, "Redshift", info.redshift())?;
    // Without the code's name, by which yt would take it for a snapshot.
    attributes::densities(&header, info)?;
    let parameters = file.create_group("Parameters")?;
    attributes::parameters(&parameters, info)?;
    // Readers of Gadget-4's catalogues need both groups, also empty ones.
    file.create_group("IDs")?;
    file.create_group("Subhalo")?;
    Ok(())
}
