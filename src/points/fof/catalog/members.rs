//! The points of one rank, sorted by group, and their positions relative to a point of their group.

use bytemuck::{Pod, Zeroable};

use super::Members;
use crate::host_memory;
use crate::points::fof::FofError;

/// The point that a group is measured from: the one whose index is the label.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(super) struct Reference {
    pub position: [f32; 3],
    pub velocity: [f32; 3],
    pub scale_factor: f32,
    /// Number of known points with that index; all other fields are zero if it is 0.
    pub known: u32,
}

/// A member of a group, relative to the group's reference; absent axes and quantities are zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relative {
    pub mass: f64,
    pub position: [f64; 3],
    pub velocity: [f64; 3],
    pub scale_factor: f64,
}

/// This rank's points by group: groups ascend by label, the members of each by index.
pub(super) struct Local<'a> {
    pub members: &'a Members<'a>,
    /// Rows of the input.
    order: Vec<u32>,
    /// Beginnings of groups in `order`, and its end.
    starts: Vec<usize>,
}

/// Returns the first three values of a row of `dims`; 0 behind the last.
fn row(values: &[f32], dims: usize, at: usize) -> [f32; 3] {
    let values = &values[at * dims..(at + 1) * dims];
    [values[0], values[1], values.get(2).copied().unwrap_or(0.0)]
}

impl<'a> Local<'a> {
    /// Checks and sorts the points.
    pub fn new(members: &'a Members<'a>) -> Result<Self, FofError> {
        check(members)?;
        let key = |row: u32| (members.label[row as usize], members.number[row as usize]);
        let mut order = host_memory::collect("order of members", 0..members.label.len() as u32)?;
        // Those of a device come sorted.
        if !order.is_sorted_by_key(|&row| key(row)) {
            host_memory::sort_by_cached_key("keys of members", &mut order, |&row| key(row))?;
        }
        if let Some(pair) = order.windows(2).find(|pair| key(pair[0]) == key(pair[1])) {
            return Err(FofError::Label { label: key(pair[0]).0 });
        }
        let label = |at: usize| members.label[order[at] as usize];
        let new = |&at: &usize| at == 0 || at == order.len() || label(at - 1) != label(at);
        let mut starts = host_memory::reserve("starts of groups", (0..=order.len()).filter(new).count())?;
        starts.extend((0..=order.len()).filter(new));
        Ok(Local { members, order, starts })
    }

    /// Returns the number of groups that have points here.
    pub fn groups(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the rows of a group's points.
    pub fn rows(&self, group: usize) -> &[u32] {
        &self.order[self.starts[group]..self.starts[group + 1]]
    }

    pub fn label(&self, group: usize) -> u64 {
        self.members.label[self.rows(group)[0] as usize]
    }

    /// Returns the indices of a group's points here, ascending.
    pub fn numbers(&self, group: usize) -> impl Iterator<Item = u64> {
        self.rows(group).iter().map(|&row| self.members.number[row as usize])
    }

    /// A group's reference, if it is here.
    pub fn reference(&self, group: usize) -> Reference {
        // The label is the least index, so its point comes first.
        let at = self.rows(group)[0] as usize;
        let Members { domain, number, label, position, velocity, scale_factor, .. } = *self.members;
        if number[at] != label[at] {
            return Reference::default();
        }
        Reference {
            position: row(position, domain.dims(), at),
            velocity: velocity.map_or([0.0; 3], |values| row(values, domain.dims(), at)),
            scale_factor: scale_factor.map_or(0.0, |values| values[at]),
            known: 1,
        }
    }

    /// Returns a group's points here, relative to its reference: along the nearest image, in f64.
    pub fn relative(&self, group: usize, reference: &Reference) -> impl Iterator<Item = Relative> {
        let Members { domain, position, mass, velocity, scale_factor, .. } = *self.members;
        let (dims, sides, reference) = (domain.dims(), domain.sides().map(f64::from), *reference);
        let minus = |a: [f32; 3], b: [f32; 3]| [0, 1, 2].map(|axis| f64::from(a[axis]) - f64::from(b[axis]));
        self.rows(group).iter().map(move |&at| {
            let at = at as usize;
            let mut offset = minus(row(position, dims, at), reference.position);
            for (d, side) in offset.iter_mut().zip(sides) {
                if side > 0.0 && d.abs() > 0.5 * side {
                    *d -= side * (*d / side).round();
                }
            }
            Relative {
                mass: mass.map_or(1.0, |values| f64::from(values[at])),
                position: offset,
                velocity: velocity.map_or([0.0; 3], |values| minus(row(values, dims, at), reference.velocity)),
                scale_factor: scale_factor
                    .map_or(0.0, |values| f64::from(values[at]) - f64::from(reference.scale_factor)),
            }
        })
    }
}

/// The values of points: what they are, and how many a point has.
type Column<'a> = (&'static str, &'a [f32], usize);

fn columns<'a>(members: &Members<'a>) -> [Option<Column<'a>>; 4] {
    let dims = members.domain.dims();
    [
        Some(("position", members.position, dims)),
        members.mass.map(|values| ("mass", values, 1)),
        members.velocity.map(|values| ("velocity", values, dims)),
        members.scale_factor.map(|values| ("scale_factor", values, 1)),
    ]
}

/// Checks arrays and labels, on this rank.
fn check(members: &Members) -> Result<(), FofError> {
    let (number, label) = (members.number, members.label);
    let points = number.len();
    if u32::try_from(points).is_err() {
        return Err(FofError::TooMany { count: points as u64 });
    }
    let length = |what, have: usize, want: usize| match have == want {
        true => Ok(()),
        false => Err(FofError::WrongLength { what, have: have as u64, want: want as u64 }),
    };
    length("label", label.len(), points)?;
    columns(members)
        .into_iter()
        .flatten()
        .try_for_each(|(what, values, width)| length(what, values.len(), points * width))?;
    match label.iter().zip(number).find(|(label, number)| label > number) {
        Some((&label, _)) => Err(FofError::Label { label }),
        None => Ok(()),
    }
}

/// A value that no point may have, in words that ranks send each other: the least of all ranks' is
/// that of the point with the least number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::points::fof) struct Bad(pub [u64; 3]);

impl Bad {
    /// Sentinel for no bad value; larger than any index of an array.
    pub const NONE: Bad = Bad([u64::MAX; 3]);

    /// Returns the first of this rank's points, whose arrays have the right lengths.
    pub fn of(members: &Members) -> Self {
        let bad = (0..).zip(columns(members)).filter_map(|(which, column)| Some((which, column?)));
        let bad = bad.flat_map(|(which, (what, values, width))| {
            let wrong = move |value: f32| !value.is_finite() || what == "mass" && value < 0.0;
            let found = values.iter().enumerate().filter(move |(_, value)| wrong(**value));
            found.map(move |(at, value)| Bad([members.number[at / width], which, value.to_bits().into()]))
        });
        bad.min().unwrap_or(Self::NONE)
    }

    /// Returns the error that it is, on every rank; all ranks measure the same quantities.
    pub fn error(self, members: &Members) -> FofError {
        let Bad([number, which, bits]) = self;
        match columns(members)[which as usize % 4] {
            Some((what, ..)) if what != "mass" => FofError::NonFinite { what, number },
            _ => FofError::Mass { number, value: f32::from_bits(bits as u32) },
        }
    }
}
