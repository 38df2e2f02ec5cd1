//! Catalogues of groups as files.

use std::path::Path;

use meshloom::Error;
use meshloom::comm::Communicator;
use meshloom::io::collective::seal_npz;
use meshloom::io::{Element, Member, Sealed};
use meshloom::points::fof::Catalogue;

/// A column: its name, the values a row, and this rank's values.
struct Column<T> {
    name: &'static str,
    width: Vec<u64>,
    values: Vec<T>,
}

fn column<T>(name: &'static str, width: &[u64], values: Vec<T>) -> Column<T> {
    Column { name, width: width.to_vec(), values }
}

impl<T: Element> Column<T> {
    fn member(&self, rows: u64) -> Member {
        Member::new::<T>(self.name, &[&[rows], self.width.as_slice()].concat())
    }
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

fn signed(values: &[u64]) -> Vec<i64> {
    values.iter().map(|&value| value as i64).collect()
}

/// Writes the catalogue that all ranks hold as an `.npz` archive: integers int64, reals f32, a row a group; `order` and `offset` say
/// who belongs to which. The file appears when rank 0 publishes it. All ranks call it.
pub fn seal(comm: &Communicator, path: &Path, groups: &Catalogue) -> Result<Sealed, Error> {
    let dims = groups.dims as u64;
    let integers = [column("label", &[], signed(&groups.label)), column("count", &[], signed(&groups.count))];
    let given = [
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
    let reals: Vec<Column<f32>> = given
        .into_iter()
        .filter_map(|(name, width, values)| values.map(|values| column(name, &width, narrow(values))))
        .collect();
    let mut members: Vec<Member> = integers.iter().map(|column| column.member(groups.total)).collect();
    members.extend(reals.iter().map(|column| column.member(groups.total)));
    let order = members.len();
    members.push(Member::new::<i64>("order", &[groups.members_total]));
    members.push(Member::new::<i64>("offset", &[groups.total + 1]));
    let first = groups.groups.start;
    seal_npz(comm, path, &members, |to| {
        for (member, column) in integers.iter().enumerate() {
            to.write(member, first, &column.values)?;
        }
        for (member, column) in (integers.len()..).zip(&reals) {
            to.write(member, first * column.width.iter().product::<u64>(), &column.values)?;
        }
        to.write(order, groups.members_start, &signed(&groups.members))?;
        // The end of a rank's last row is where the next rank's first one begins: the last rank of all writes it.
        let last = comm.rank() + 1 == comm.size();
        let offset = signed(&groups.offset);
        to.write(order + 1, first, if last { &offset } else { &offset[..offset.len() - 1] })
    })
}
