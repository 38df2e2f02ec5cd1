//! Descriptions of datasets to be written.

use std::borrow::Cow;

use hdf5_metno::dataset::{AllocTime, FillTime};
use hdf5_metno::file::File as Hdf5File;
use hdf5_metno::{Error, H5Type};

use super::{Groups, GroupsPlace, Quantity, SnapshotInfo, SphereColumns, attributes};
use crate::io::{Member, NpyElement};

/// A dataset of a file. The name of its member begins with the group and a `/`, unless it is in the
/// root.
#[derive(Clone, Debug)]
pub(super) struct DatasetSpec {
    pub member: Member,
    /// Quantity and unit, written as attributes.
    pub quantity: Option<(Quantity, SnapshotInfo)>,
    /// Further attributes.
    pub attributes: Vec<(String, Vec<f64>)>,
}

impl DatasetSpec {
    /// Creates a description of `rows` rows of `width` values; a width of 1 gives a single axis.
    pub fn table<T: NpyElement>(name: &str, [rows, width]: [u64; 2], quantity: Quantity, info: &SnapshotInfo) -> Self {
        let shape = if width == 1 { vec![rows] } else { vec![rows, width] };
        DatasetSpec {
            member: Member::new::<T>(name, &shape),
            quantity: Some((quantity, *info)),
            attributes: Vec::new(),
        }
    }

    /// Creates the dataset; returns the byte offset at which it begins.
    pub fn create(&self, file: &Hdf5File) -> hdf5_metno::Result<u64> {
        let name = &self.member.name;
        if let Some((group, _)) = name.rsplit_once('/').filter(|(group, _)| !file.link_exists(group)) {
            file.create_group(group)?;
        }
        match self.member.descr {
            "<f4" => self.create_as::<f32>(file),
            "<f8" => self.create_as::<f64>(file),
            "<i4" => self.create_as::<i32>(file),
            "<i8" => self.create_as::<i64>(file),
            "<u4" => self.create_as::<u32>(file),
            "<u8" => self.create_as::<u64>(file),
            other => Err(Error::from(format!("no datasets of elements {other}"))),
        }
    }

    fn create_as<T: H5Type>(&self, file: &Hdf5File) -> hdf5_metno::Result<u64> {
        let builder = file.new_dataset::<T>();
        let builder = builder.no_chunk().alloc_time(Some(AllocTime::Early)).fill_time(FillTime::Never);
        // Without times of writing, so that equal values give equal files.
        let builder = builder.obj_track_times(false);
        let shape: Vec<usize> = self.member.shape.iter().map(|&n| n as usize).collect();
        let dataset = builder.shape(shape).create(self.member.name.as_str())?;
        if let Some((quantity, info)) = &self.quantity {
            attributes::describe(&dataset, quantity, info)?;
        }
        for (name, values) in &self.attributes {
            attributes::list(&dataset, name, values)?;
        }
        match dataset.offset() {
            Some(offset) => Ok(offset),
            // Empty datasets have no offset.
            None if self.len() == Some(0) => Ok(0),
            None => Err(Error::from("a dataset has no offset in the file")),
        }
    }

    /// Returns the number of elements; `None` beyond `u64`.
    pub fn len(&self) -> Option<u64> {
        self.member.shape.iter().try_fold(1u64, |product, &n| product.checked_mul(n))
    }

    pub fn row_len(&self) -> u64 {
        self.member.shape.iter().skip(1).product()
    }
}

/// The values of a dataset.
pub(super) enum Data<'a> {
    F32(&'a [f32]),
    U64(&'a [u64]),
    /// Six values per group, one per particle type: these for type 1, zero for the others.
    F32ByType(&'a [f32]),
    U64ByType(&'a [u64]),
    /// One value in all rows.
    Constant(f32),
}

/// A dataset and a rank's values.
pub(super) struct Dataset<'a> {
    name: Cow<'static, str>,
    /// First row of this rank.
    pub first: u64,
    /// Rows of all ranks, and values of each.
    shape: [u64; 2],
    quantity: Quantity,
    pub data: Data<'a>,
}

pub(super) fn specs(info: &SnapshotInfo, groups: &Groups, place: GroupsPlace) -> Vec<DatasetSpec> {
    let spec = |Dataset { name, shape, quantity, data, .. }| match data {
        Data::U64(_) | Data::U64ByType(_) => DatasetSpec::table::<u64>(&name, shape, quantity, info),
        _ => DatasetSpec::table::<f32>(&name, shape, quantity, info),
    };
    datasets(info, groups, &place).into_iter().map(spec).collect()
}

/// Returns the datasets of a catalog.
pub(super) fn datasets<'a>(info: &SnapshotInfo, groups: &Groups<'a>, place: &GroupsPlace) -> Vec<Dataset<'a>> {
    let number = Quantity::number;
    let column = |name: Cow<'static, str>, width, quantity, data| Dataset {
        name,
        first: place.first_group,
        shape: [place.groups, width],
        quantity,
        data,
    };
    let fixed = |name: &'static str, width, quantity, data| column(Cow::Borrowed(name), width, quantity, data);
    let offset = Data::U64ByType(groups.offset.get(..groups.label.len()).unwrap_or(&[]));
    let offsets = number("First member of each type in IDs/ID");
    let ascale = groups.scale_factor.map_or(Data::Constant(info.scale_factor as f32), Data::F32);
    let epoch = number("Scale factor: of the output, or the mean of the members on a light cone");
    let inertia = Quantity::length("Root of the mean squared comoving distance from the center, weighted by mass");
    let radius = Quantity::length("Largest comoving distance of a particle from the center");
    let center = Quantity::length("Comoving center of mass");
    let mut datasets = vec![
        fixed("Group/GroupLabel", 1, number("A number that names the group"), Data::U64(groups.label)),
        fixed("Group/GroupLen", 1, number("Particles"), Data::U64(groups.count)),
        fixed("Group/GroupLenType", 6, number("Particles of each type"), Data::U64ByType(groups.count)),
        fixed("Group/GroupOffsetType", 6, offsets, offset),
        fixed("Group/GroupMass", 1, Quantity::mass("Mass"), Data::F32(groups.mass)),
        fixed("Group/GroupMassType", 6, Quantity::mass("Mass of each type"), Data::F32ByType(groups.mass)),
        fixed("Group/GroupPos", 3, center, Data::F32(groups.center.as_flattened())),
        fixed("Group/GroupInertiaRadius", 1, inertia, Data::F32(groups.inertia_radius)),
        fixed("Group/GroupMaxRadius", 1, radius, Data::F32(groups.max_radius)),
        fixed("Group/GroupAscale", 1, epoch, ascale),
    ];
    if let Some(velocity) = groups.velocity {
        let quantity = Quantity::velocity(0.0, "Peculiar velocity a dx/dt of the center of mass");
        datasets.push(fixed("Group/GroupVel", 3, quantity, Data::F32(velocity.as_flattened())));
    }
    if let Some(dispersion) = groups.velocity_dispersion {
        let words = "Root of the mean squared peculiar velocity against GroupVel over all axes, weighted by mass";
        datasets.push(fixed("Group/GroupVelDisp", 1, Quantity::velocity(0.0, words), Data::F32(dispersion)));
    }
    let sphere_radius = Quantity::length(
        "Comoving radius about the center in which the mean density is so many times the mean or critical one, 0 for none",
    );
    let sphere_mass = Quantity::mass("Mass within the radius, 0 for none");
    for SphereColumns { name, mass, radius } in groups.spheres {
        for (letter, quantity, values) in [("M", sphere_mass, mass), ("R", sphere_radius, radius)] {
            datasets.push(column(format!("Group/Group_{letter}_{name}").into(), 1, quantity, Data::F32(values)));
        }
    }
    if let Some(members) = groups.members {
        let (first, shape) = (place.first_member, [place.members, 1]);
        let quantity = number("Ids of members, group after group");
        datasets.push(Dataset { name: "IDs/ID".into(), first, shape, quantity, data: Data::U64(members) });
    }
    datasets
}

/// Writes everything but the datasets.
pub(super) fn describe(file: &Hdf5File, info: &SnapshotInfo, [rows, ids]: [u64; 2]) -> hdf5_metno::Result<()> {
    let header = file.create_group("Header")?;
    // Gadget-4 and pynbody read the number of subhalos, earlier codes and yt that of subgroups:
    // both are zero.
    for (name, value) in [("Ngroups", rows), ("Nids", ids), ("Nsubhalos", 0), ("Nsubgroups", 0)] {
        attributes::scalar(&header, &format!("{name}_ThisFile"), value)?;
        attributes::scalar(&header, &format!("{name}_Total"), value)?;
    }
    attributes::scalar(&header, "NumFiles", 1i32)?;
    attributes::scalar(&header, "BoxSize", info.box_size)?;
    attributes::scalar(&header, "Time", info.scale_factor)?;
    attributes::scalar(&header, "Redshift", info.redshift())?;
    // Without the code's name, since yt would take the file for a snapshot.
    attributes::densities(&header, info)?;
    let parameters = file.create_group("Parameters")?;
    attributes::parameters(&parameters, info)?;
    // Readers of Gadget-4's catalogs need both groups, even if empty.
    file.create_group("IDs")?;
    file.create_group("Subhalo")?;
    Ok(())
}
