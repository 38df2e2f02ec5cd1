//! Catalogs of groups for writing and reading.

use std::path::Path;

use hdf5_metno::{Dataset, H5Type};

use super::{Opened, broken, queries, wrong};
use crate::host_memory;
use crate::io::{Dtype, IoError, Result};

/// A catalog of groups, one row per group; all slices but `offset` and `members` are as long as
/// `label`.
///
/// Lengths in comoving Mpc/h, masses in 1e10 Msun/h, velocities in peculiar km/s.
#[derive(Clone, Copy, Debug)]
pub struct Groups<'a> {
    /// An identifier of the group, such as the smallest id in it.
    pub label: &'a [u64],
    /// Number of particles.
    pub count: &'a [u64],
    /// Mass.
    pub mass: &'a [f32],
    /// Center of mass, in the box.
    pub center: &'a [[f32; 3]],
    /// Mean velocity, weighted by mass.
    pub velocity: Option<&'a [[f32; 3]]>,
    /// Root of the mean squared distance from the center.
    pub inertia_radius: &'a [f32],
    /// Root of the mean squared velocity against the group's, over all axes.
    pub velocity_dispersion: Option<&'a [f32]>,
    /// Largest distance of a particle from the center.
    pub max_radius: &'a [f32],
    /// Mean scale factor of groups on a light cone; `None` stands for that of the snapshot.
    pub scale_factor: Option<&'a [f32]>,
    /// Masses and radii of spherical overdensities.
    pub spheres: &'a [SphereColumns<'a>],
    /// Row offsets into `members`, as in CSR: one more than groups, the first 0, with differences
    /// `count`.
    pub offset: &'a [u64],
    /// Ids of particles, group after group.
    pub members: Option<&'a [u64]>,
}

/// A spherical overdensity about the center of each group: 0 for groups that have none.
#[derive(Clone, Debug)]
pub struct SphereColumns<'a> {
    /// Gadget's name of the density, such as `Mean200`, `Crit500`, `TopHat200`: the columns are
    /// called `Group_M_...` and `Group_R_...`.
    pub name: String,
    /// Mass in 1e10 Msun/h.
    pub mass: &'a [f32],
    /// Comoving radius in Mpc/h.
    pub radius: &'a [f32],
}

/// The place of a rank's part of a catalog among those of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupsPlace {
    /// Number of groups on all ranks.
    pub groups: u64,
    /// Row of this rank's first group.
    pub first_group: u64,
    /// Number of members on all ranks.
    pub members: u64,
    /// Position of the first member that this rank writes.
    pub first_member: u64,
}

impl GroupsPlace {
    /// Returns the place of groups that are all on one rank.
    pub fn whole(groups: &Groups) -> Self {
        let members = groups.members.map_or(0, <[_]>::len) as u64;
        GroupsPlace { groups: groups.label.len() as u64, first_group: 0, members, first_member: 0 }
    }
}

impl Groups<'_> {
    /// Checks that the lengths and offsets of a whole catalog agree; `path` is for errors.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        self.check_rows(path)?;
        let (start, end) = (self.offset[0], self.offset[self.label.len()]);
        let column = |name: &str, reason| IoError::column(path, name, reason);
        match self.members {
            _ if start != 0 => Err(column("offset", format!("begins with {start}, not with 0"))),
            Some(members) if members.len() as u64 != end => {
                let have = members.len();
                Err(column("members", format!("has {have} ids, but the groups have {end} members")))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the lengths of columns agree, and offsets with counts.
    pub(super) fn check_rows(&self, path: &Path) -> Result<()> {
        let wrong = |name: &str, reason: String| Err(IoError::column(path, name, reason));
        let n = self.label.len();
        let lengths = [
            ("count", Some(self.count.len())),
            ("mass", Some(self.mass.len())),
            ("center", Some(self.center.len())),
            ("velocity", self.velocity.map(<[_]>::len)),
            ("inertia_radius", Some(self.inertia_radius.len())),
            ("velocity_dispersion", self.velocity_dispersion.map(<[_]>::len)),
            ("max_radius", Some(self.max_radius.len())),
            ("scale_factor", self.scale_factor.map(<[_]>::len)),
        ];
        for (name, len) in lengths {
            if let Some(len) = len.filter(|&len| len != n) {
                return wrong(name, format!("has {len} rows, but there are {n} labels"));
            }
        }
        for SphereColumns { name, mass, radius } in self.spheres {
            if let Some(len) = [mass.len(), radius.len()].into_iter().find(|&len| len != n) {
                return wrong(
                    &format!("Group_M_{name} or Group_R_{name}"),
                    format!("has {len} rows, but there are {n} labels"),
                );
            }
        }
        if self.offset.len() != n + 1 {
            return wrong("offset", format!("must have {} numbers, one more than groups", n + 1));
        }
        for (group, (ends, &count)) in self.offset.windows(2).zip(self.count).enumerate() {
            if ends[0].checked_add(count) != Some(ends[1]) {
                let [start, end] = [ends[0], ends[1]];
                return wrong(
                    "offset",
                    format!("goes from {start} to {end} at group {group}, which has {count} members"),
                );
            }
        }
        Ok(())
    }
}

/// A catalog that was read. Fields as in [`Groups`].
#[derive(Clone, Debug, PartialEq)]
pub struct GroupCatalog {
    /// Side of the box; 0 for open space, such as a light cone.
    pub box_size: f64,
    /// Scale factor a.
    pub scale_factor: f64,
    /// An identifier of the group.
    pub label: Vec<u64>,
    /// Number of particles.
    pub count: Vec<u64>,
    /// Mass.
    pub mass: Vec<f32>,
    /// Center of mass.
    pub center: Vec<[f32; 3]>,
    /// Mean velocity, if it was written.
    pub velocity: Option<Vec<[f32; 3]>>,
    /// Root of the mean squared distance from the center.
    pub inertia_radius: Vec<f32>,
    /// Root of the mean squared velocity against the group's, if it was written.
    pub velocity_dispersion: Option<Vec<f32>>,
    /// Largest distance of a particle from the center.
    pub max_radius: Vec<f32>,
    /// Row offsets into `members`, as in CSR: one more than groups.
    pub offset: Vec<u64>,
    /// Ids of particles, if they were written.
    pub members: Option<Vec<u64>>,
}

/// Reads a whole catalog that [`write_groups`](super::write_groups) has written. Not collective.
///
/// # Errors
/// `IoErrorKind::FileType`, `IoErrorKind::NotFound`, `IoErrorKind::Read`; `IoErrorKind::Format` for
/// foreign and truncated files, missing datasets, and impossible numbers.
pub fn read_groups(path: impl AsRef<Path>) -> Result<GroupCatalog> {
    let path = path.as_ref();
    let file = Reader { file: Opened::new(path)?, path };
    let count = file.needed("GroupLen", file.whole_numbers("Group/GroupLen", None)?)?;
    let rows = Some(count.len() as u64);
    let mut offset = host_memory::reserve("groups", count.len() + 1)?;
    offset.push(0);
    let mut end = 0u64;
    for &count in &count {
        end = end.checked_add(count).ok_or_else(|| wrong(path, "Group/GroupLen counts more members than can be"))?;
        offset.push(end);
    }
    let magnitudes = |name: &str| file.floats(name, 1, rows, |value| value >= 0.0);
    let vectors = |name: &str| {
        let flat = file.floats(name, 3, rows, |_| true)?;
        let rows = flat.map(|flat| host_memory::copy("groups", flat.as_chunks::<3>().0)).transpose()?;
        Ok::<_, IoError>(rows)
    };
    let catalog = GroupCatalog {
        box_size: file.header("BoxSize")?,
        scale_factor: file.header("Time")?,
        label: file.needed("GroupLabel", file.whole_numbers("Group/GroupLabel", rows)?)?,
        mass: file.needed("GroupMass", magnitudes("GroupMass")?)?,
        center: file.needed("GroupPos", vectors("GroupPos")?)?,
        velocity: vectors("GroupVel")?,
        inertia_radius: file.needed("GroupInertiaRadius", magnitudes("GroupInertiaRadius")?)?,
        velocity_dispersion: magnitudes("GroupVelDisp")?,
        max_radius: file.needed("GroupMaxRadius", magnitudes("GroupMaxRadius")?)?,
        count,
        offset,
        members: file.whole_numbers("IDs/ID", Some(end))?,
    };
    file.file.still_whole()?;
    Ok(catalog)
}

struct Reader<'a> {
    file: Opened,
    path: &'a Path,
}

impl Reader<'_> {
    fn absent(&self, name: &str) -> IoError {
        wrong(self.path, format!("it has no {name}; is it a catalog of groups?"))
    }

    /// Returns a dataset of the group `Group` that a catalog must have.
    fn needed<T>(&self, name: &str, found: Option<T>) -> Result<T> {
        found.ok_or_else(|| self.absent(&format!("Group/{name}")))
    }

    /// Returns a header attribute of one number above 0; the box size may be 0, for open space.
    fn header(&self, name: &str) -> Result<f64> {
        match self.file.number("Header", name)? {
            Some(value) if value > 0.0 || value == 0.0 && name == "BoxSize" => Ok(value),
            Some(value) => Err(wrong(self.path, format!("Header/{name} is {value}; it must be above 0"))),
            None => Err(self.absent(&format!("Header/{name}"))),
        }
    }

    /// Returns a dataset of `rows` rows of `width` numbers, with its type; `None` if it is missing.
    fn find(&self, name: &str, width: usize, rows: Option<u64>) -> Result<Option<(Dataset, Dtype)>> {
        let Some(dataset) = self.file.dataset(name)? else { return Ok(None) };
        let shape = dataset.space().map_err(|e| broken(self.path, &e))?.shape();
        let found = match shape[..] {
            [found] if width == 1 => found as u64,
            [found, wide] if wide == width => found as u64,
            _ => return Err(wrong(self.path, format!("{name} has the shape {shape:?}"))),
        };
        if let Some(rows) = rows.filter(|&rows| rows != found) {
            return Err(wrong(self.path, format!("{name} has {found} rows, others {rows}")));
        }
        self.file.check(&dataset, name)?;
        match queries::element_type(&dataset).map_err(|e| broken(self.path, &e))? {
            Ok(dtype) => Ok(Some((dataset, dtype))),
            Err(words) => Err(wrong(self.path, format!("{name} is {words}, where numbers are needed"))),
        }
    }

    fn all<T: H5Type>(&self, dataset: &Dataset) -> Result<Vec<T>> {
        dataset.read_raw::<T>().map_err(|e| self.file.unread(dataset, dataset.name().trim_start_matches('/'), &e))
    }

    /// Reads counts or ids; `None` if the dataset is missing.
    fn whole_numbers(&self, name: &str, rows: Option<u64>) -> Result<Option<Vec<u64>>> {
        let Some((dataset, dtype)) = self.find(name, 1, rows)? else { return Ok(None) };
        match dtype {
            Dtype::U32 | Dtype::U64 => self.all(&dataset).map(Some),
            other => Err(wrong(self.path, format!("{name} is of type {other}, and not of uint32 or uint64"))),
        }
    }

    /// Reads finite numbers of the group `Group`, all of which must pass `good`; `None` if the
    /// dataset is missing.
    fn floats(
        &self,
        name: &str,
        width: usize,
        rows: Option<u64>,
        good: impl Fn(f32) -> bool,
    ) -> Result<Option<Vec<f32>>> {
        let name = format!("Group/{name}");
        let Some((dataset, dtype)) = self.find(&name, width, rows)? else { return Ok(None) };
        if !matches!(dtype, Dtype::F32 | Dtype::F64) {
            let reason = format!("{name} is of type {dtype}, and not of float32 or float64");
            return Err(wrong(self.path, reason));
        }
        let values: Vec<f32> = self.all(&dataset)?;
        match values.iter().position(|&value| !(value.is_finite() && good(value))) {
            None => Ok(Some(values)),
            Some(at) => Err(wrong(self.path, format!("{name}: row {} is {}", at / width, values[at]))),
        }
    }
}
