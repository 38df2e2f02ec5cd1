//! Catalogs of groups as files.

use std::path::Path;

use meshloom::Error;
use meshloom::comm::Communicator;
use meshloom::host_memory::{self, HostMemoryError};
use meshloom::io::collective::{Archive, seal_npz};
#[cfg(feature = "hdf5")]
use meshloom::io::hdf5::{Attribute, Hdf5Contents};
use meshloom::io::{IoError, Member, NpyElement, Sealed};
use meshloom::points::Domain;
use meshloom::points::fof::{Catalog, FofError};

use crate::space::Space;

/// A column: its name, the shape of a row, and this rank's values.
struct NamedColumn<T> {
    name: String,
    width: Vec<u64>,
    values: Vec<T>,
}

fn column<T>(name: impl Into<String>, width: &[u64], values: Vec<T>) -> NamedColumn<T> {
    NamedColumn { name: name.into(), width: width.to_vec(), values }
}

impl<T: NpyElement> NamedColumn<T> {
    fn member(&self, rows: u64) -> Member {
        Member::new::<T>(&self.name, &[&[rows], self.width.as_slice()].concat())
    }
}

fn narrow(values: &[f64]) -> Result<Vec<f32>, HostMemoryError> {
    host_memory::collect("columns of a catalog", values.iter().map(|&value| value as f32))
}

fn signed(values: &[u64]) -> Result<Vec<i64>, HostMemoryError> {
    host_memory::collect("columns of a catalog", values.iter().map(|&value| value as i64))
}

/// Returns the columns of reals of a catalog: the name, the shape of a row, and this rank's values.
fn reals(groups: &Catalog) -> Vec<(&'static str, Vec<u64>, &[f64])> {
    let dims = groups.dims as u64;
    let all = [
        ("mass", vec![], Some(&groups.mass)),
        ("center", vec![dims], Some(&groups.center)),
        ("velocity", vec![dims], groups.velocity.as_ref()),
        ("inertia_radius", vec![], Some(&groups.inertia_radius)),
        ("velocity_dispersion", vec![], groups.velocity_dispersion.as_ref()),
        ("max_radius", vec![], Some(&groups.max_radius)),
        ("axes", vec![dims], Some(&groups.axes)),
        ("directions", vec![dims, dims], Some(&groups.directions)),
        ("scale_factor", vec![], groups.scale_factor.as_ref()),
        ("radial_velocity", vec![], groups.radial_velocity.as_ref()),
    ];
    all.into_iter().filter_map(|(name, width, values)| Some((name, width, values?.as_slice()))).collect()
}

/// Checks on all ranks that `f32` can hold every value: the error is that of the first row of all
/// ranks.
fn fits(comm: &Communicator, groups: &Catalog) -> Result<(), Error> {
    let columns = reals(groups);
    let first = (0..).zip(&columns).filter_map(|(which, (_, width, values))| {
        let at = values.iter().position(|&value| !(value as f32).is_finite())?;
        let row = at / width.iter().product::<u64>() as usize;
        Some([groups.groups.start + row as u64, which, groups.label[row], values[at].to_bits()])
    });
    let all = comm.all_gather(&first.min().unwrap_or([u64::MAX; 4]))?;
    match all.as_chunks::<4>().0.iter().min() {
        Some(&[row, which, label, bits]) if row < u64::MAX => {
            let what = columns.get(which as usize).map_or("mass", |(name, ..)| name);
            Err(FofError::OutOfRange { what, label, value: f64::from_bits(bits) }.into())
        }
        _ => Ok(()),
    }
}

/// A file that takes the arrays of a catalog.
trait Arrays {
    fn put<T: NpyElement>(&mut self, member: usize, first: u64, elements: &[T]) -> Result<(), IoError>;
}

impl Arrays for &mut Archive {
    fn put<T: NpyElement>(&mut self, member: usize, first: u64, elements: &[T]) -> Result<(), IoError> {
        self.write(member, first, elements)
    }
}

#[cfg(feature = "hdf5")]
impl Arrays for &meshloom::io::hdf5::Hdf5Writer {
    fn put<T: NpyElement>(&mut self, member: usize, first: u64, elements: &[T]) -> Result<(), IoError> {
        self.write(member, first, elements)
    }
}

/// Columns of one real a group that a catalog has besides its own, with their names.
pub type MoreColumns<'a> = &'a [(String, &'a [f64])];

/// The arrays of a catalog: integers int64, reals f32, one row per group; `order` and `offset` list
/// the members as CSR, `ids` have their names.
struct Table<'a> {
    groups: &'a Catalog,
    ids: Option<&'a [u64]>,
    integers: [NamedColumn<i64>; 2],
    reals: Vec<NamedColumn<f32>>,
}

impl<'a> Table<'a> {
    fn new(groups: &'a Catalog, more: MoreColumns, ids: Option<&'a [u64]>) -> Result<Self, HostMemoryError> {
        let integers = [column("label", &[], signed(&groups.label)?), column("count", &[], signed(&groups.count)?)];
        let narrowed = reals(groups).into_iter().map(|(name, width, values)| Ok(column(name, &width, narrow(values)?)));
        let more = more.iter().map(|(name, values)| Ok(column(name, &[], narrow(values)?)));
        Ok(Table { groups, ids, integers, reals: narrowed.chain(more).collect::<Result<_, HostMemoryError>>()? })
    }

    fn members(&self) -> Vec<Member> {
        let Catalog { total, members_total, .. } = *self.groups;
        let mut members: Vec<Member> = self.integers.iter().map(|column| column.member(total)).collect();
        members.extend(self.reals.iter().map(|column| column.member(total)));
        members.push(Member::new::<i64>("order", &[members_total]));
        members.push(Member::new::<i64>("offset", &[total + 1]));
        members.extend(self.ids.map(|_| Member::new::<u64>("ids", &[members_total])));
        members
    }

    /// Writes this rank's part.
    fn write(&self, comm: &Communicator, mut to: impl Arrays) -> Result<(), IoError> {
        let groups = self.groups;
        let first = groups.groups.start;
        for (member, column) in self.integers.iter().enumerate() {
            to.put(member, first, &column.values)?;
        }
        for (member, column) in (self.integers.len()..).zip(&self.reals) {
            to.put(member, first * column.width.iter().product::<u64>(), &column.values)?;
        }
        let order = self.integers.len() + self.reals.len();
        to.put(order, groups.members_start, &signed(&groups.members)?)?;
        // Offsets are one more than rows: a rank's last offset is the next rank's first, and only
        // the last rank writes it.
        let last = comm.rank() + 1 == comm.size();
        let offset = signed(&groups.offset)?;
        to.put(order + 1, first, if last { &offset } else { &offset[..offset.len() - 1] })?;
        self.ids.map_or(Ok(()), |ids| to.put(order + 2, groups.members_start, ids))
    }
}

/// Writes the catalog that all ranks hold as an `.npz` archive. The file appears when rank 0
/// publishes it. Collective.
///
/// # Errors
/// [`FofError::OutOfRange`], the same on all ranks, before a file is created; errors of the file
/// and the ranks.
pub fn seal(comm: &Communicator, path: &Path, groups: &Catalog, more: MoreColumns) -> Result<Sealed, Error> {
    fits(comm, groups)?;
    let table = Table::new(groups, more, None)?;
    seal_npz(comm, path, &table.members(), |to| Ok(table.write(comm, to)?))
}

/// The attributes of a catalog in HDF5.
#[cfg_attr(not(feature = "hdf5"), expect(dead_code, reason = "there are no such catalogs"))]
pub struct About<'a> {
    pub space: Space,
    pub domain: &'a Domain,
    pub linking_length: f32,
    pub min_members: u64,
    /// Whether velocities are peculiar and in km/s.
    pub km_s: bool,
}

/// The names of the unit of a dataset in cgs and of its power of the scale factor, as SWIFT has
/// them.
#[cfg(feature = "hdf5")]
const UNIT: [&str; 2] = ["Conversion factor to CGS (not including cosmological corrections)", "a-scale exponent"];

#[cfg(feature = "hdf5")]
impl About<'_> {
    /// Returns the attributes of `Header`, as the catalogs of `simulate` have them, and units of
    /// the arrays of this name.
    fn attributes(&self, names: impl Iterator<Item = String>) -> Vec<Attribute> {
        let About { space, domain, .. } = self;
        let sides = (0..domain.dims()).map(|axis| domain.side(axis).map_or(0.0, f64::from)).collect();
        // Devices have rounded sides; the header has those of the file where they are equal after
        // rounding.
        let sides =
            space.sides.clone().filter(|own| Domain::new(own).is_ok_and(|own| own == **domain)).unwrap_or(sides);
        let redshift = space.scale_factor.filter(|_| space.densities.is_some()).map(|a| 1.0 / a - 1.0);
        let header = [
            ("BoxSize", Some(sides)),
            ("LinkingLength", Some(vec![self.linking_length.into()])),
            ("MinMembers", Some(vec![self.min_members as f64])),
            ("Time", space.scale_factor.map(|a| vec![a])),
            ("Redshift", redshift.map(|z| vec![z])),
            ("Omega0", space.densities.map(|[matter, _]| vec![matter])),
            ("OmegaLambda", space.densities.map(|[_, dark]| vec![dark])),
            ("HubbleParam", space.h.map(|h| vec![h])),
        ];
        let attribute = |at: &str, name: &str, values: Vec<f64>| Attribute { at: at.into(), name: name.into(), values };
        let mut all: Vec<_> =
            header.into_iter().filter_map(|(name, values)| Some(attribute("Header", name, values?))).collect();
        for name in names {
            let length = ["center", "inertia_radius", "max_radius", "axes"].contains(&name.as_str());
            let unit = match name.as_str() {
                "velocity" | "velocity_dispersion" | "radial_velocity" => self.km_s.then_some([1e5, 0.0]),
                _ if length || name.starts_with("radius_") => space.length_unit.map(|unit| [unit, 1.0]),
                _ => None,
            };
            all.extend(
                unit.iter()
                    .flat_map(|unit| UNIT.into_iter().zip(unit))
                    .map(|(what, &value)| attribute(&name, what, vec![value])),
            );
        }
        all
    }
}

/// Same as [`seal`], in HDF5: the same arrays as datasets, the `ids` of the members, and
/// attributes.
#[cfg(feature = "hdf5")]
pub fn seal_hdf5(
    comm: &Communicator,
    path: &Path,
    groups: &Catalog,
    (more, ids): (MoreColumns, Option<&[u64]>),
    about: &About,
) -> Result<Sealed, Error> {
    fits(comm, groups)?;
    let table = Table::new(groups, more, ids)?;
    let attributes = about.attributes(table.reals.iter().map(|column| column.name.clone()));
    let contents = Hdf5Contents::Arrays { members: &table.members(), attributes: &attributes };
    meshloom::io::collective::seal_hdf5(comm, path, &contents, |to| Ok(table.write(comm, to)?))
}

/// Without the feature, `--output` cannot be an HDF5 file.
#[cfg(not(feature = "hdf5"))]
pub fn seal_hdf5(
    _: &Communicator,
    path: &Path,
    _: &Catalog,
    _: (MoreColumns, Option<&[u64]>),
    _: &About,
) -> Result<Sealed, Error> {
    Err(IoError::no_hdf5(path).into())
}
