//! Catalogues of groups as files.

use std::path::Path;

use meshloom::Error;
use meshloom::comm::Communicator;
use meshloom::io::collective::seal_npz;
use meshloom::io::{Member, NpyElement, Sealed};
use meshloom::points::fof::{Catalogue, FofError};

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

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

fn signed(values: &[u64]) -> Vec<i64> {
    values.iter().map(|&value| value as i64).collect()
}

/// The columns of reals of a catalogue: the name, the shape of a row, and this rank's values.
fn reals(groups: &Catalogue) -> Vec<(&'static str, Vec<u64>, &[f64])> {
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

/// Checks on all ranks that `f32` can hold every value: the error is that of the first row of all ranks.
fn fits(comm: &Communicator, groups: &Catalogue) -> Result<(), Error> {
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

/// Writes the catalogue that all ranks hold as an `.npz` archive: integers int64, reals f32, one row per
/// group, and behind its own columns `more` of one f32 each; `order` and `offset` list the members as CSR. The file appears when rank 0 publishes it. All ranks call it.
///
/// # Errors
/// [`FofError::OutOfRange`], the same on all ranks, before there is a file; those of the file and the ranks.
pub fn seal(comm: &Communicator, path: &Path, groups: &Catalogue, more: &[(String, &[f64])]) -> Result<Sealed, Error> {
    fits(comm, groups)?;
    let integers = [column("label", &[], signed(&groups.label)), column("count", &[], signed(&groups.count))];
    let mut reals: Vec<NamedColumn<f32>> =
        reals(groups).into_iter().map(|(name, width, values)| column(name, &width, narrow(values))).collect();
    reals.extend(more.iter().map(|(name, values)| column(name, &[], narrow(values))));
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
        // Offsets are one more than rows: a rank's last offset is the next rank's first, and only the last rank writes it.
        let last = comm.rank() + 1 == comm.size();
        let offset = signed(&groups.offset);
        Ok(to.write(order + 1, first, if last { &offset } else { &offset[..offset.len() - 1] })?)
    })
}
