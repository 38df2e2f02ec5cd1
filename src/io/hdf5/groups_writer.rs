//! Writing of group catalogues.

use std::borrow::Cow;
use std::path::Path;

use hdf5_metno::file::File as Hdf5File;

use super::shared_datasets::{DatasetSpec, NumberKind, SharedDatasets};
use super::units::Quantity;
use super::{Groups, GroupsPlace, SnapshotInfo, SphereColumns, attributes};
use crate::host_memory;
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

    /// Writes `rows` rows from row `first` on.
    fn write(&self, to: &SharedDatasets, dataset: usize, first: u64, rows: usize) -> Result<(), IoError> {
        match self {
            Data::F32(values) => to.write(dataset, first, values),
            Data::U64(values) => to.write(dataset, first, values),
            Data::F32ByType(values) => write_by_type(to, dataset, first, values),
            Data::U64ByType(values) => write_by_type(to, dataset, first, values),
            Data::Constant(value) => to.write(dataset, first, &host_memory::fill("groups", *value, rows)?),
        }
    }
}

fn write_by_type<T: crate::io::NpyElement>(
    to: &SharedDatasets,
    dataset: usize,
    first: u64,
    values: &[T],
) -> Result<(), IoError> {
    for (piece, values) in values.chunks(PIECE).enumerate() {
        let mut rows = vec![[T::zeroed(); 6]; values.len()];
        rows.iter_mut().zip(values).for_each(|(row, &value)| row[TYPE] = value);
        to.write(dataset, first + (piece * PIECE) as u64, rows.as_flattened())?;
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
/// let info = SnapshotInfo { count: 512, box_size: 10.0, scale_factor: 0.5, omega_m: 0.3, omega_b: 0.05, h: 0.7, omega_r: 0.0, dark_energy: [-1.0, 0.0] };
/// let groups = Groups {
///     label: &[17],
///     count: &[3],
///     mass: &[3.0 * info.particle_mass() as f32],
///     center: &[[1.0, 2.0, 3.0]],
///     velocity: None,
///     inertia_radius: &[0.1],
///     velocity_dispersion: None,
///     max_radius: &[0.2],
///     scale_factor: None,
///     spheres: &[],
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
    groups.check(path.as_ref())?;
    let writer = GroupsWriter::create(path, info, groups, GroupsPlace::whole(groups), &token())?;
    writer.write(groups)?;
    writer.seal()
}

/// A catalogue that ranks write together, each its own rows and members, which need not be those of its rows. Ranks share the file as
/// they share any [`SharedFile`](crate::io::SharedFile): rank 0 creates it, the others open it after a barrier.
///
/// A rank's [`Groups`] have the same optional columns as those of all others, `offset` counts members of all ranks, and
/// `members` are any part of all of them.
#[derive(Debug)]
pub struct GroupsWriter {
    datasets: SharedDatasets,
    info: SnapshotInfo,
    place: GroupsPlace,
}

impl GroupsWriter {
    /// Creates the file with everything but the rows of `groups`, the caller's part.
    ///
    /// # Errors
    /// [`IoError::OutputIsDash`], [`IoError::NotAFile`], [`IoError::Create`], [`IoError::Exists`] if the token was used before,
    /// [`IoError::Shape`] if no file could hold the groups. Nothing is left behind after an error.
    pub fn create(
        path: impl AsRef<Path>,
        info: &SnapshotInfo,
        groups: &Groups,
        place: GroupsPlace,
        token: &str,
    ) -> Result<Self, IoError> {
        let ids = groups.members.map_or(0, |_| place.members);
        let describe = |file: &Hdf5File| describe(file, info, [place.groups, ids]);
        let datasets = SharedDatasets::create(path.as_ref(), token, specs(info, groups, place), describe)?;
        Ok(GroupsWriter { datasets, info: *info, place })
    }

    /// Opens the file that rank 0 has created, with rank 0's [`offsets`](Self::offsets). Called by all other ranks, after a barrier.
    ///
    /// # Errors
    /// [`IoError::Create`] if the file is not to be seen from here: the ranks do not share a file system, or rank 0 has failed; [`IoError::Shape`]
    /// for another number of offsets than of datasets.
    pub fn open(
        path: impl AsRef<Path>,
        info: &SnapshotInfo,
        groups: &Groups,
        place: GroupsPlace,
        (token, offsets): (&str, &[u64]),
    ) -> Result<Self, IoError> {
        let datasets = SharedDatasets::open(path.as_ref(), token, specs(info, groups, place), offsets)?;
        Ok(GroupsWriter { datasets, info: *info, place })
    }

    /// The byte offsets of the datasets, which rank 0 broadcasts for the other ranks to [`open`](Self::open) the file.
    pub fn offsets(&self) -> &[u64] {
        self.datasets.offsets()
    }

    /// Writes this rank's part, of the columns that the writer was made for.
    ///
    /// # Errors
    /// [`IoError::Column`] for slices that do not belong together, [`IoError::Range`] beyond the rows of all ranks, [`IoError::Write`].
    pub fn write(&self, groups: &Groups) -> Result<(), IoError> {
        groups.check_rows(self.datasets.path())?;
        for (number, dataset) in datasets(&self.info, groups).iter().enumerate() {
            dataset.data.write(&self.datasets, number, dataset.part.first(&self.place), dataset.rows)?;
        }
        Ok(())
    }

    /// Flushes this rank's part to the disk; the file gets its name by [`Sealed::publish`], on the rank that created it.
    ///
    /// # Errors
    /// [`IoError::Write`].
    pub fn seal(self) -> Result<Sealed, IoError> {
        self.datasets.seal()
    }
}

/// What a row of a dataset stands for.
#[derive(Clone, Copy)]
enum Part {
    Groups,
    Members,
}

impl Part {
    /// Where a rank's rows begin.
    fn first(self, place: &GroupsPlace) -> u64 {
        match self {
            Part::Groups => place.first_group,
            Part::Members => place.first_member,
        }
    }

    /// Rows of all ranks.
    fn total(self, place: &GroupsPlace) -> u64 {
        match self {
            Part::Groups => place.groups,
            Part::Members => place.members,
        }
    }
}

/// A dataset and a rank's numbers.
struct Dataset<'a> {
    name: [Cow<'static, str>; 2],
    part: Part,
    rows: usize,
    width: u64,
    quantity: Quantity,
    data: Data<'a>,
}

fn specs(info: &SnapshotInfo, groups: &Groups, place: GroupsPlace) -> Vec<DatasetSpec> {
    let spec = |dataset: Dataset| {
        let shape = [dataset.part.total(&place), dataset.width];
        DatasetSpec::table(
            dataset.name.each_ref().map(Cow::as_ref),
            dataset.data.kind(),
            shape,
            dataset.quantity,
            Some(info),
        )
    };
    datasets(info, groups).into_iter().map(spec).collect()
}

/// The datasets of a catalogue.
fn datasets<'a>(info: &SnapshotInfo, groups: &Groups<'a>) -> Vec<Dataset<'a>> {
    let (number, rows) = (Quantity::number, groups.label.len());
    let of_groups = |name: &'static str, width, quantity, data| {
        let (name, part) = (["Group", name].map(Cow::Borrowed), Part::Groups);
        Dataset { name, part, rows, width, quantity, data }
    };
    let offsets = number("First member of each type in IDs/ID");
    let ascale = groups.scale_factor.map_or(Data::Constant(info.scale_factor as f32), Data::F32);
    let inertia = Quantity::length("Root of the mean squared comoving distance from the centre, weighted by mass");
    let radius = Quantity::length("Largest comoving distance of a particle from the centre");
    let center = Quantity::length("Comoving centre of mass");
    let mut datasets = vec![
        of_groups("GroupLabel", 1, number("A number that names the group"), Data::U64(groups.label)),
        of_groups("GroupLen", 1, number("Particles"), Data::U64(groups.count)),
        of_groups("GroupLenType", 6, number("Particles of each type"), Data::U64ByType(groups.count)),
        of_groups("GroupOffsetType", 6, offsets, Data::U64ByType(groups.offset.get(..rows).unwrap_or(&[]))),
        of_groups("GroupMass", 1, Quantity::mass("Mass"), Data::F32(groups.mass)),
        of_groups("GroupMassType", 6, Quantity::mass("Mass of each type"), Data::F32ByType(groups.mass)),
        of_groups("GroupPos", 3, center, Data::F32(groups.center.as_flattened())),
        of_groups("GroupInertiaRadius", 1, inertia, Data::F32(groups.inertia_radius)),
        of_groups("GroupMaxRadius", 1, radius, Data::F32(groups.max_radius)),
        of_groups(
            "GroupAscale",
            1,
            number("Scale factor: of the output, or the mean of the members on a light cone"),
            ascale,
        ),
    ];
    if let Some(velocity) = groups.velocity {
        let quantity = Quantity::velocity(0.0, "Peculiar velocity a dx/dt of the centre of mass");
        datasets.push(of_groups("GroupVel", 3, quantity, Data::F32(velocity.as_flattened())));
    }
    if let Some(dispersion) = groups.velocity_dispersion {
        let words = "Root of the mean squared peculiar velocity against GroupVel over all axes, weighted by mass";
        datasets.push(of_groups("GroupVelDisp", 1, Quantity::velocity(0.0, words), Data::F32(dispersion)));
    }
    for SphereColumns { name, mass, radius } in groups.spheres {
        let names = [("M", Quantity::mass("Mass within the radius, 0 for none")), ("R", sphere_radius())];
        for ((letter, quantity), data) in names.into_iter().zip([mass, radius]) {
            let name = [Cow::Borrowed("Group"), format!("Group_{letter}_{name}").into()];
            datasets.push(Dataset { name, part: Part::Groups, rows, width: 1, quantity, data: Data::F32(data) });
        }
    }
    if let Some(members) = groups.members {
        let quantity = number("Ids of members, group after group");
        let (name, part, rows, data) =
            (["IDs", "ID"].map(Cow::Borrowed), Part::Members, members.len(), Data::U64(members));
        datasets.push(Dataset { name, part, rows, width: 1, quantity, data });
    }
    datasets
}

fn sphere_radius() -> Quantity {
    Quantity::length(
        "Comoving radius about the centre in which the mean density is so many times the mean or critical one, 0 for none",
    )
}

/// Writes all of the file but the datasets.
fn describe(file: &Hdf5File, info: &SnapshotInfo, [rows, ids]: [u64; 2]) -> hdf5_metno::Result<()> {
    let header = file.create_group("Header")?;
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
