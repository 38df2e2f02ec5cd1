//! Measuring groups: on the rank that has all members, or at the rank that the label's hash
//! decides.

use bytemuck::{Pod, Zeroable};

use super::members::{Local, Reference, Relative};
use super::rendezvous::Rendezvous;
use super::row::Row;
use super::sums::{First, Means, Scales, Second, Spans};
use crate::comm::Communicator;
use crate::host_memory;
use crate::points::fof::FofError;

/// Returns how many members each of this rank's groups has on all ranks. Collective; three rounds.
pub(super) fn totals(comm: &Communicator, local: &Local) -> Result<Vec<u64>, FofError> {
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
pub(super) fn whole(local: &Local, group: usize, scratch: &mut Vec<Relative>) -> Result<Row, FofError> {
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
    Row::new(local.members().domain, (label, count), reference, &scales, &means, &second)
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
pub(super) fn spanning(local: &Local, groups: &[usize], meetings: &Rendezvous) -> Result<Vec<Row>, FofError> {
    let introduce =
        |&group: &usize| Introduction { reference: local.reference(group), count: local.rows(group).len() as u64 };
    let own = host_memory::collect("groups", groups.iter().map(introduce))?;
    let met = meetings.send(&own, Introduction::default(), Introduction::union)?;
    for (&label, introduction) in meetings.labels().iter().zip(&met) {
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
        let (domain, Introduction { reference, count }) = (local.members().domain, &met[i]);
        Row::new(domain, (label, *count), reference, &met_scales[i], &met_means[i], &second[i])
    };
    Ok(host_memory::collect("groups", meetings.labels().iter().enumerate().map(row))?)
}
