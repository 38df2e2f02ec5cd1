//! Catalogs of groups, from the labels of points: count, mass, center, velocity, size and shape
//! of each group, and its members.
//!
//! A group is measured on the rank that has all members, or at the rank that the hash of its label
//! decides.

mod members;
mod rendezvous;
mod sums;

use std::ops::Range;

use bytemuck::{Pod, Zeroable};

pub(super) use self::members::Bad;
use self::members::{Local, Reference, Relative};
use self::rendezvous::Rendezvous;
use self::sums::{First, Means, Row, Scales, Second, Spans};
use super::FofError;
use crate::comm::{Communicator, Op};
use crate::host_memory::{self, HostMemoryError};
use crate::points::Domain;
use crate::points::sort::{Balanced, balanced};

/// The points of this rank that groups are measured from: any part of the points of all ranks, in
/// any order, also none.
///
/// Every slice has one row per point. All ranks give the same optional ones, also a rank without
/// points.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    /// The space that the points lie in; the same on all ranks.
    pub domain: &'a Domain,
    /// The index of each point; no two points of all ranks have the same.
    pub number: &'a [u64],
    /// The label of each point's group: the least index of its members.
    pub label: &'a [u64],
    /// Coordinates, one per axis; along a periodic axis any image.
    pub position: &'a [f32],
    /// Masses, 0 or more; `None`: 1 each.
    pub mass: Option<&'a [f32]>,
    /// Velocities, one component per axis.
    pub velocity: Option<&'a [f32]>,
    /// The scale factor at which each point crossed the light cone.
    pub scale_factor: Option<&'a [f32]>,
}

/// The order of the rows of a [`Catalog`]; ties are in the order of the labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Most members first.
    #[default]
    Count,
    /// Heaviest first.
    Mass,
    /// By the label, ascending.
    Label,
}

/// Which groups a [`Catalog`] has, and how; the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selection {
    /// Groups of fewer members are left out; 0 is as 1.
    pub min_members: u64,
    /// The order of the rows.
    pub order: Order,
    /// The observer that radial velocities are relative to; with two axes the first two coordinates
    /// count.
    pub observer: Option<[f64; 3]>,
}

impl Default for Selection {
    /// Groups of 20 members and more, most members first, no observer.
    fn default() -> Self {
        Selection { min_members: 20, order: Order::Count, observer: None }
    }
}

/// Groups of points: this rank's part of the rows, one per group, and of the members of all groups.
/// Rows and members are distributed by [shares](crate::grid::Shares) and independently: the members of
/// a group need not be on the rank that has its row, and may be on several ranks.
///
/// Distances are measured to the images nearest to the group's *reference*, the point whose index
/// is the label. For a group that extends less than half a side from it these are the true
/// distances. The center and size of a group that wraps around a periodic box depend on the
/// reference.
///
/// Means weigh members by their mass. In a group without any mass all members weigh the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    /// Number of axes.
    pub dims: usize,
    /// Rows of this rank among those of all ranks.
    pub groups: Range<u64>,
    /// Rows of all ranks.
    pub total: u64,
    /// The least index of the members.
    pub label: Vec<u64>,
    /// Number of members.
    pub count: Vec<u64>,
    /// The sum of the members' masses.
    pub mass: Vec<f64>,
    /// The mean position, `dims` coordinates each, in `[0, side)` along periodic axes.
    pub center: Vec<f64>,
    /// The mean velocity, `dims` components each; where there are velocities.
    pub velocity: Option<Vec<f64>>,
    /// The root of the mean of `|x - center|^2`.
    pub inertia_radius: Vec<f64>,
    /// The root of the mean of `|v - velocity|^2`, over all axes together; where there are
    /// velocities.
    pub velocity_dispersion: Option<Vec<f64>>,
    /// The greatest distance of a member from the center.
    pub max_radius: Vec<f64>,
    /// Root-mean-square semi-axes, `dims` each, largest first: roots of the eigenvalues of the mean
    /// of `(x - center)(x - center)^T`. Their squares sum to that of the inertia radius. Below 1e-8
    /// of the largest they are rounding.
    pub axes: Vec<f64>,
    /// The directions of the axes, `dims * dims` each: unit rows, whose component of largest
    /// magnitude is positive. Where axes are equal, some directions of many.
    pub directions: Vec<f64>,
    /// The mean scale factor; where there are any.
    pub scale_factor: Option<Vec<f64>>,
    /// The component of `velocity` away from the observer, along the straight line to `center` as
    /// it stands here (no image of it is looked for), 0 for a group right at the observer; where
    /// there are velocities and an observer.
    pub radial_velocity: Option<Vec<f64>>,
    /// Beginning of each row's members among the members of all ranks, and the end of the last row:
    /// one entry more than rows.
    pub offset: Vec<u64>,
    /// Indices of members: this rank's part of all of them, in the order of rows, ascending in each
    /// group.
    pub members: Vec<u64>,
    /// The place of the first of `members` among those of all ranks.
    pub members_start: u64,
    /// Members of all ranks.
    pub members_total: u64,
}

/// A member, by the row of its group in the catalog.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Place {
    row: u64,
    number: u64,
}

/// Returns the global row index of each of the `made` rows that this rank has made, wherever they
/// were sorted to.
fn places(comm: &Communicator, sorted: &Balanced<Row>, made: usize) -> Result<Vec<u64>, FofError> {
    let rows = sorted.elements.iter().zip(sorted.part.start..);
    let mut replies: Vec<(u64, [u64; 2])> = host_memory::reserve("places of groups", sorted.elements.len())?;
    replies.extend(rows.map(|(row, place)| (row.home, [row.slot, place])));
    replies.sort_unstable_by_key(|&(home, _)| home);
    let mut counts = vec![0; comm.size()];
    replies.iter().for_each(|(home, _)| counts[*home as usize] += 1);
    let replies = host_memory::collect("places of groups", replies.into_iter().map(|(_, place)| place))?;
    let mut places = host_memory::zeros("places of groups", made)?;
    comm.all_to_all_v(&replies, &counts)?.data().iter().for_each(|&[slot, place]| places[slot as usize] = place);
    Ok(places)
}

/// Measures groups of points and lists their members. Collective over host data: no device takes
/// part.
///
/// - **Same bits for any number of ranks**, however points are distributed and ordered: sums are of
///   integers.
/// - **Exact balance**: each rank gets its [share](crate::grid::Shares) of the rows and of the
///   members.
/// - A group that lies on one rank is measured there, any other at a rank that a hash of the label
///   decides. In total 15 rounds of messages between all ranks, for any number of groups, and two
///   balanced sorts; sent are a label and a count for each group and rank, some 500 bytes for each
///   that spans ranks, 216 for each row, and 16 for each member.
///
/// ```
/// use meshloom::comm::run_threads;
/// use meshloom::points::fof::{Members, Selection, catalog};
/// use meshloom::points::Domain;
///
/// let domain = Domain::new(&[10.0, 10.0])?;
/// let parts = run_threads(2, |comm| {
///     // Points 0 and 3 are a group across the edge, points 1 and 2 one each.
///     let (number, label, position): (&[u64], &[u64], &[f32]) = match comm.rank() {
///         0 => (&[0, 1], &[0, 1], &[9.5, 1.0, 4.0, 4.0]),
///         _ => (&[2, 3], &[2, 0], &[7.0, 4.0, 1.5, 1.0]),
///     };
///     let (mass, velocity, scale_factor) = (None, None, None);
///     let members = Members { domain: &domain, number, label, position, mass, velocity, scale_factor };
///     catalog(&comm, &members, &Selection { min_members: 1, ..Selection::default() })
/// })?;
/// assert_eq!((parts[0].label.as_slice(), parts[1].label.as_slice()), (&[0, 1][..], &[2][..]));
/// assert_eq!((parts[0].center[..2].to_vec(), parts[0].inertia_radius[0]), (vec![0.5, 1.0], 1.0));
/// assert_eq!((&parts[0].members, &parts[1].members, &parts[1].offset), (&vec![0, 3], &vec![1, 2], &vec![3, 4]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// On all ranks, of the first rank whose points are wrong: [`FofError::WrongLength`],
/// [`Observer`](FofError::Observer), [`Label`](FofError::Label), [`TooMany`](FofError::TooMany); on
/// all ranks [`CommError::Differ`](crate::comm::CommError::Differ) and, of the first point of all,
/// [`Mass`](FofError::Mass) and [`NonFinite`](FofError::NonFinite). On some rank
/// [`Label`](FofError::Label) and [`Repeated`](FofError::Repeated) for numbers that only several
/// ranks together show to be wrong. [`FofError::Comm`] on the others.
pub fn catalog(comm: &Communicator, members: &Members, selection: &Selection) -> Result<Catalog, FofError> {
    catalog_of_some(comm, members, selection, Bad::of(members))
}

/// Measures the groups of `members`, which may leave out those of groups that are surely too small;
/// `bad` is the first bad value also of those.
pub(super) fn catalog_of_some(
    comm: &Communicator,
    members: &Members,
    selection: &Selection,
    bad: Bad,
) -> Result<Catalog, FofError> {
    let local = comm.together(|| match selection.observer.filter(|at| at.iter().any(|x| !x.is_finite())) {
        Some(at) => Err(FofError::Observer { at }),
        None => Local::new(members),
    })?;
    check(comm, members, selection, bad)?;
    // Groups that are too small are left out before anything of theirs but their counts is sent.
    let totals = self::totals(comm, &local)?;
    let kept = (0..local.groups()).filter(|&group| totals[group] >= selection.min_members);
    let is_whole = |&group: &usize| totals[group] == local.rows(group).len() as u64;
    let count_of_whole = kept.clone().filter(is_whole).count();
    let mut whole = host_memory::reserve("groups", count_of_whole)?;
    let mut spanning = host_memory::reserve("groups", kept.clone().count() - count_of_whole)?;
    kept.for_each(|group| if is_whole(&group) { whole.push(group) } else { spanning.push(group) });
    drop(totals);

    let labels = host_memory::collect("labels of groups", spanning.iter().map(|&group| local.label(group)))?;
    let meetings = Rendezvous::new(comm, &labels)?;
    let mut scratch = Vec::new();
    let mut rows = host_memory::reserve("groups", whole.len() + meetings.labels.len())?;
    for &group in &whole {
        rows.push(self::whole(&local, group, &mut scratch)?);
    }
    drop(scratch);
    rows.extend(self::spanning(&local, &spanning, &meetings)?);
    for (slot, row) in (0..).zip(&mut rows) {
        (row.home, row.slot) = (comm.rank() as u64, slot);
    }
    let made = rows.len();
    let sorted = balanced(comm, rows, |row| row.key(selection.order))?;

    let places = places(comm, &sorted, made)?;
    let (of_whole, of_met) = places.split_at(whole.len());
    let of_spanning = meetings.reply(of_met)?;
    let mut groups = host_memory::reserve("groups", whole.len() + spanning.len())?;
    groups.extend(of_whole.iter().copied().zip(whole));
    groups.extend(of_spanning.into_iter().zip(spanning));
    drop(places);
    let listed = list_members(comm, local, groups)?;

    let counts = sorted.elements.iter().map(|row| row.count);
    let mut first = [counts.clone().sum::<u64>()];
    comm.scan_exclusive(&mut first, Op::Sum)?;
    let ends = counts.scan(first[0], |next, count| {
        *next += count;
        Some(*next)
    });
    let mut offset = host_memory::reserve("offsets of groups", sorted.elements.len() + 1)?;
    offset.extend([first[0]].into_iter().chain(ends));
    Ok(Catalog {
        offset,
        members_start: listed.part.start,
        members_total: listed.total,
        members: host_memory::collect("members of groups", listed.elements.iter().map(|place| place.number))?,
        ..columns(members, selection, &sorted)?
    })
}

/// Checks that all ranks ask for the same catalog and that the values of all ranks are valid.
/// Collective.
fn check(comm: &Communicator, members: &Members, selection: &Selection, bad: Bad) -> Result<(), FofError> {
    let Bad([number, which, bits]) = bad;
    let Selection { min_members, order, observer } = selection;
    let given = [members.mass, members.velocity, members.scale_factor].map(|values| values.is_some());
    comm.agree(
        "catalog",
        &[
            ("domain", &members.domain.periods()),
            ("masses, velocities and scale factors", &given),
            ("min_members", min_members),
            ("order", order),
            ("observer", observer),
        ],
    )?;
    let all = comm.all_gather(&[number, which, bits])?;
    let (all, _) = all.as_chunks::<3>();
    match all.iter().map(|&bad| Bad(bad)).min() {
        Some(bad) if bad != Bad::NONE => Err(bad.error(members)),
        _ => Ok(()),
    }
}

/// Returns the members of all ranks' groups in the order of the rows, balanced; `groups` are the
/// row and the number of each group here.
fn list_members(comm: &Communicator, local: Local, mut groups: Vec<(u64, usize)>) -> Result<Balanced<Place>, FofError> {
    groups.sort_unstable();
    let places = |&(row, group): &(u64, usize)| local.numbers(group).map(move |number| Place { row, number });
    let count = groups.iter().map(|&(_, group)| local.rows(group).len()).sum();
    let mut listed = host_memory::reserve("members of groups", count)?;
    groups.iter().for_each(|group| listed.extend(places(group)));
    drop((local, groups));
    Ok(balanced(comm, listed, |place| [place.row, place.number])?)
}

/// Returns the columns of rows; members are left out.
fn columns(members: &Members, selection: &Selection, sorted: &Balanced<Row>) -> Result<Catalog, HostMemoryError> {
    let (dims, rows) = (members.domain.dims(), &sorted.elements);
    fn column<T>(rows: &[Row], of: impl Fn(&Row) -> T) -> Result<Vec<T>, HostMemoryError> {
        host_memory::collect("groups", rows.iter().map(of))
    }
    fn vectors<const N: usize>(
        rows: &[Row],
        width: usize,
        of: fn(&Row) -> [f64; N],
    ) -> Result<Vec<f64>, HostMemoryError> {
        let mut values = host_memory::reserve("groups", rows.len() * width)?;
        rows.iter().for_each(|row| values.extend_from_slice(&of(row)[..width]));
        Ok(values)
    }
    let radial_velocity = |observer: [f64; 3]| {
        let radial = |row: &Row| {
            let line: Vec<f64> = (0..dims).map(|axis| row.center[axis] - observer[axis]).collect();
            // In units of the longest component, so that squares neither vanish nor overflow.
            let unit = line.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            let distance = line.iter().map(|x| (x / unit).powi(2)).sum::<f64>().sqrt();
            let along: f64 = line.iter().zip(row.velocity).map(|(x, v)| x / unit * v).sum();
            if unit == 0.0 { 0.0 } else { along / distance }
        };
        column(rows, radial)
    };
    let moving = members.velocity.is_some();
    Ok(Catalog {
        dims,
        groups: sorted.part.clone(),
        total: sorted.total,
        label: column(rows, |row| row.label)?,
        count: column(rows, |row| row.count)?,
        mass: column(rows, |row| row.mass)?,
        center: vectors(rows, dims, |row| row.center)?,
        velocity: moving.then(|| vectors(rows, dims, |row| row.velocity)).transpose()?,
        inertia_radius: column(rows, |row| row.inertia_radius)?,
        velocity_dispersion: moving.then(|| column(rows, |row| row.velocity_dispersion)).transpose()?,
        max_radius: column(rows, |row| row.max_radius)?,
        axes: vectors(rows, dims, |row| row.axes)?,
        directions: vectors(rows, dims * dims, |row| row.directions)?,
        scale_factor: members.scale_factor.map(|_| column(rows, |row| row.scale_factor)).transpose()?,
        radial_velocity: selection.observer.filter(|_| moving).map(radial_velocity).transpose()?,
        ..Catalog::default()
    })
}

/// Returns how many members each of this rank's groups has on all ranks. Collective; three rounds.
fn totals(comm: &Communicator, local: &Local) -> Result<Vec<u64>, FofError> {
    let groups = 0..local.groups();
    let counts = host_memory::collect("sizes of groups", groups.clone().map(|group| local.rows(group).len() as u64))?;
    if comm.size() == 1 {
        return Ok(counts);
    }
    let labels = host_memory::collect("labels of groups", groups.map(|group| local.label(group)))?;
    let meetings = Rendezvous::new(comm, &labels)?;
    let sums = meetings.send(&counts, 0, |sum, count: u64| sum + count)?;
    Ok(meetings.reply(&sums)?)
}

/// Checks that exactly one point has the number that is the label.
fn known(label: u64, reference: &Reference) -> Result<(), FofError> {
    if reference.known == 1 { Ok(()) } else { Err(FofError::Label { label }) }
}

/// The largest group whose members are kept between passes: what a processor's cache holds.
const KEPT: usize = 4096;

/// Measures a group all of whose members are on this rank; `scratch` is reused.
fn whole(local: &Local, group: usize, scratch: &mut Vec<Relative>) -> Result<Row, FofError> {
    let (label, reference) = (local.label(group), local.reference(group));
    known(label, &reference)?;
    if local.rows(group).len() > KEPT {
        return Ok(passes(local, group, &reference, || local.relative(group, &reference)));
    }
    // Points are scattered in memory: they are looked up once.
    scratch.clear();
    scratch.extend(local.relative(group, &reference));
    Ok(passes(local, group, &reference, || scratch.iter().copied()))
}

/// Returns the passes over `members`, all those of a group.
fn passes<I: Iterator<Item = Relative>>(
    local: &Local,
    group: usize,
    reference: &Reference,
    members: impl Fn() -> I,
) -> Row {
    let (label, count) = (local.label(group), local.rows(group).len() as u64);
    let scales = Scales::new(&Spans::of(members()), count);
    let means = Means::new(&First::of(members(), &scales), &scales);
    let second = Second::of(members(), &means, &scales);
    Row::new(local.members.domain, (label, count), reference, &scales, &means, &second)
}

/// Data that every rank with members of a group needs before it sums.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
struct Introduction {
    reference: Reference,
    count: u64,
}

impl Introduction {
    fn union(self, other: Introduction) -> Self {
        let known = self.reference.known + other.reference.known;
        let reference = if other.reference.known > 0 { other.reference } else { self.reference };
        Introduction { reference: Reference { known, ..reference }, count: self.count + other.count }
    }
}

/// Measures the groups that have members on several ranks, of which `groups` are those of this
/// rank: returns a row for each label that `meetings` assigns to this rank. Collective; seven
/// rounds.
fn spanning(local: &Local, groups: &[usize], meetings: &Rendezvous) -> Result<Vec<Row>, FofError> {
    let introduce =
        |&group: &usize| Introduction { reference: local.reference(group), count: local.rows(group).len() as u64 };
    let own = host_memory::collect("groups", groups.iter().map(introduce))?;
    let met = meetings.send(&own, Introduction::default(), Introduction::union)?;
    for (&label, introduction) in meetings.labels.iter().zip(&met) {
        known(label, &introduction.reference)?;
    }
    let own = meetings.reply(&met)?;
    let members = |i: usize| local.relative(groups[i], &own[i].reference);
    let all = 0..groups.len();

    let spans = host_memory::collect("groups", all.clone().map(|i| Spans::of(members(i))))?;
    let met_spans = meetings.send(&spans, Spans::default(), Spans::union)?;
    let spans = meetings.reply(&met_spans)?;
    let scales = |spans: &[Spans], introductions: &[Introduction]| {
        let counts = introductions.iter().map(|introduction| introduction.count);
        host_memory::collect("groups", spans.iter().zip(counts).map(|(spans, count)| Scales::new(spans, count)))
    };
    let (own_scales, met_scales) = (scales(&spans, &own)?, scales(&met_spans, &met)?);

    let first = host_memory::collect("groups", all.clone().map(|i| First::of(members(i), &own_scales[i])))?;
    let first = meetings.send(&first, First::default(), First::plus)?;
    let met_means = first.iter().zip(&met_scales).map(|(sums, scales)| Means::new(sums, scales));
    let met_means = host_memory::collect("groups", met_means)?;
    let means = meetings.reply(&met_means)?;

    let second = host_memory::collect("groups", all.map(|i| Second::of(members(i), &means[i], &own_scales[i])))?;
    let second = meetings.send(&second, Second::default(), Second::plus)?;
    let row = |(i, &label): (usize, &u64)| {
        let (domain, Introduction { reference, count }) = (local.members.domain, &met[i]);
        Row::new(domain, (label, *count), reference, &met_scales[i], &met_means[i], &second[i])
    };
    Ok(host_memory::collect("groups", meetings.labels.iter().enumerate().map(row))?)
}
