//! Writing of group catalogues.

use std::path::Path;

use hdf5_metno::file::File as Hdf5File;

use super::columns::{Column, Columns, Kind};
use super::units::Quantity;
use super::{Groups, SnapshotInfo, attributes};
use crate::io::{IoError, Sealed, token};

/// The type that all particles are of.
const TYPE: usize = 1;

/// Rows that are written at a time, where they are made for the file.
const PIECE: usize = 1 << 16;

/// What a dataset is filled with.
enum Data<'a> {
    F32(&'a [f32]),
    U64(&'a [u64]),
    /// Six numbers a group, one a particle type: those of type 1, all others 0.
    F32ByType(&'a [f32]),
    U64ByType(&'a [u64]),
    /// The same number for all.
    Constant(f32),
}

impl Data<'_> {
    fn kind(&self) -> Kind {
        match self {
            Data::F32(_) | Data::F32ByType(_) | Data::Constant(_) => Kind::F32,
            Data::U64(_) | Data::U64ByType(_) => Kind::U64,
        }
    }

    fn write(&self, to: &Columns, column: usize, rows: usize) -> Result<(), IoError> {
        match self {
            Data::F32(values) => to.write(column, 0, values),
            Data::U64(values) => to.write(column, 0, values),
            Data::F32ByType(values) => by_type(to, column, values),
            Data::U64ByType(values) => by_type(to, column, values),
            Data::Constant(value) => to.write(column, 0, &vec![*value; rows]),
        }
    }
}

fn by_type<T: crate::io::Element>(to: &Columns, column: usize, values: &[T]) -> Result<(), IoError> {
    for (piece, values) in values.chunks(PIECE).enumerate() {
        let mut rows = vec![[T::zeroed(); 6]; values.len()];
        rows.iter_mut().zip(values).for_each(|(row, &value)| row[TYPE] = value);
        to.write(column, (piece * PIECE) as u64, rows.as_flattened())?;
    }
    Ok(())
}

/// Writes a catalogue in Gadget-4's layout, with what it lacks beside. Called by one rank; the file appears when it is
/// whole. `info` is that of the snapshot that the groups were found in.
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

/// [`write_groups`] but for the name, which [`Sealed::publish`] gives.
///
/// # Errors
/// As [`write_groups`].
pub fn seal_groups(path: impl AsRef<Path>, info: &SnapshotInfo, groups: &Groups) -> Result<Sealed, IoError> {
    let path = path.as_ref();
    groups.check(path)?;
    let datasets = datasets(info, groups);
    let columns = datasets.iter().map(Dataset::column).collect();
    let describe = |file: &Hdf5File| describe(file, info, groups);
    let file = Columns::create(path, &token(), columns, info, describe)?;
    for (column, dataset) in datasets.iter().enumerate() {
        dataset.data.write(&file, column, dataset.rows)?;
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
    fn column(&self) -> Column {
        let shape = [self.rows as u64, self.width];
        Column { name: self.name, kind: self.data.kind(), shape, quantity: self.quantity }
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

/// Everything in the file but datasets.
fn describe(file: &Hdf5File, info: &SnapshotInfo, groups: &Groups) -> hdf5_metno::Result<()> {
    let header = file.create_group("Header")?;
    let (rows, ids) = (groups.label.len() as u64, groups.members.map_or(0, <[_]>::len) as u64);
    // Gadget-4 and pynbody count subhalos, earlier codes and yt subgroups; both must be said to be none.
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
    // Readers of Gadget-4's catalogues ask for both groups, also where nothing is in them.
    file.create_group("IDs")?;
    file.create_group("Subhalo")?;
    Ok(())
}
