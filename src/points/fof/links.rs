//! Links between groups of different ranks: which components of one rank's points have friends in
//! which of another's.
//!
//! Of two ranks one asks, the other answers. They descend their trees together ([`Descent`]) until
//! boxes or points are surely linked or surely apart. Most boxes have points of one component, and
//! two components need one link: what lies below two boxes whose components are linked is not
//! looked at again. So a dense halo that is cut costs no more than the surface of the cut in units
//! of the linking length, and only points that are about that far from others are sent one by one.
//! Pairs so near the length that rounding decides are left to the kernels, which link them as they
//! would on one rank.
//!
//! Components of different ranks that are one group then get its least label. Each component is
//! known to its own rank and to those that it has links with. The method is that of *FastSV*
//! (Zhang, Azad & Buluç 2020): each component has a parent, at first itself; in each round parents
//! are replaced by the least of the grandparents at the other ends of links, and then by their own
//! parents, so that chains of any length shrink as fast as their logarithm.

use std::cell::Cell;
use std::collections::HashSet;

use bytemuck::{Pod, Zeroable};

use super::FofError;
use crate::comm::{CommError, Communicator, Op};
use crate::gpu::{Array, DeviceError, Recorder};
use crate::grid::Cost;
use crate::host_memory;
use crate::points::ghosts::{
    Descent, Fetcher, LeafValues, Met, Pending, Reach, Region, Span, ask, count, send, with_ranks,
};
use crate::points::neighbors::Components;
use crate::points::tree::leaf_ranges;
use crate::points::{Bounds, Cloud, Decomposition};
use crate::rank::Rank;

/// A connected component of one rank's own points: the rank, and the row of its point with the
/// least index.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
pub(super) struct Component {
    pub rank: u32,
    pub row: u32,
}

/// A box around points, and the row of the component that they are in, or [`SEVERAL`].
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct BoxRequest {
    bounds: Bounds,
    row: u32,
}

/// In place of a row: points of several components.
const SEVERAL: u32 = u32::MAX;

/// A point, and the row of its component.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct PointRequest {
    at: [f32; 3],
    row: u32,
}

/// Links found by one rank.
pub(super) struct Links {
    /// Components, of any ranks, that are in one group.
    pub pairs: Vec<[Component; 2]>,
    /// Points of other ranks that came here to be compared.
    pub ghosts: u64,
    pub cost: Cost,
}

/// Finds links between components of different ranks. `region` is of this rank's points; `roots`
/// has the row of its component for each row. Collective.
pub(super) fn find(
    rank: &mut Rank,
    points: &Decomposition,
    region: &Region,
    roots: &Array<u32>,
    length: f32,
) -> Result<Links, FofError> {
    let comm = rank.comm.clone();
    let me = comm.rank();
    let asked = |rank: usize| (me + rank).is_multiple_of(2) == (me < rank);
    let along = points.permute.gathered(&mut rank.recorder, "fof::along", roots, points.own.tree.order(), 1)?;
    let (reach, labels) = (Reach::Same(length), Labels::new(&mut rank.recorder, region, along)?);
    let mut comparison = Comparison { labels: &labels, length, linked: HashSet::new(), open: Vec::new() };
    let descent = Descent::new(&comm, region, &reach, region, asked)?;
    let request = |span, bounds| BoxRequest { bounds, row: labels.of_span(span) };
    let mut fetcher = Fetcher::new(&mut rank.recorder, vec![region.on_demand(), &labels.points]);
    let near = |rank, request: &BoxRequest| comparison.near(rank, request);
    let (pending, mut cost) = descent.run::<_, FofError>(&mut fetcher, request, near)?;
    let point = |&Pending { at, .. }: &Pending| PointRequest {
        at: Bounds::point(region.point(at)).low,
        row: labels.of_point(at),
    };
    let requests: Vec<PointRequest> = fetcher.complete(|| pending.iter().map(point).collect())?;
    let ranks: Vec<u32> = pending.iter().map(|pending| pending.rank).collect();
    let received = send(&comm, &requests, &count(&ranks, comm.size()), &mut cost)?;
    let open = fetcher.each(&with_ranks(&received), |(rank, request)| comparison.compare(rank, request))?;
    comparison.open = open.concat();
    let mut pairs = comparison.decide(&mut rank.recorder, points, me)?;
    let own = |row| Component { rank: me as u32, row };
    pairs.extend(comparison.linked.iter().map(|&(there, row)| [there, own(row)]));
    Ok(Links { pairs, ghosts: received.data().len() as u64, cost })
}

/// The components of this rank's nodes and points, those of points leaf by leaf as they are asked
/// for.
struct Labels<'a> {
    region: &'a Region,
    /// By place along the curve: the row of a component.
    points: LeafValues<u32>,
    /// The row of its component, or [`SEVERAL`], for each leaf and for each other node that was
    /// asked for.
    nodes: Vec<Cell<Option<u32>>>,
}

impl<'a> Labels<'a> {
    /// Creates the values from the row of the component of each point along the curve. Waits for
    /// those of leaves.
    fn new(recorder: &mut Recorder, region: &'a Region, along: Array<u32>) -> Result<Self, DeviceError> {
        let leaves = leaf_ranges(recorder, &along)?;
        let leaves = leaves.into_iter().map(|[least, greatest]| if least == greatest { least } else { SEVERAL });
        let mut nodes: Vec<Cell<Option<u32>>> = host_memory::reserve("labels of nodes", region.boxes.len())?;
        nodes.extend(leaves.map(|row| Cell::new(Some(row))));
        nodes.resize(region.boxes.len(), Cell::new(None));
        Ok(Labels { region, points: LeafValues::of(recorder, along, 1)?, nodes })
    }

    /// Returns the row of the component that a node's points are in, or [`SEVERAL`].
    fn of_node(&self, level: usize, node: u64) -> u32 {
        let levels = &self.region.levels;
        let known = &self.nodes[(levels.start(level) + node) as usize];
        if let Some(row) = known.get() {
            return row;
        }
        let row = common(levels.children(level, node).map(|child| self.of_node(level - 1, child)));
        known.set(Some(row));
        row
    }

    /// Returns the row of the component that the points of a span are in, or [`SEVERAL`].
    fn of_span(&self, span: Span) -> u32 {
        match span {
            Span::Node(level, node) => self.of_node(level, node),
            Span::Part(_) => common(self.region.places(span).map(|at| self.of_point(at))),
        }
    }

    /// Returns the row of the component of a node or point; `None` for a node of several.
    fn of(&self, met: Met) -> Option<u32> {
        let row = match met {
            Met::Point(at) => self.of_point(at),
            Met::Node(level, node) => self.of_node(level, node),
        };
        (row != SEVERAL).then_some(row)
    }

    /// Returns the row of the component of the point at a place along the curve; [`SEVERAL`], and
    /// noted, where it is not here.
    fn of_point(&self, at: usize) -> u32 {
        self.points.of_points(at as u64..at as u64 + 1).first().copied().unwrap_or(SEVERAL)
    }
}

/// Returns what all rows are, or [`SEVERAL`].
fn common(mut rows: impl Iterator<Item = u32>) -> u32 {
    let first = rows.next().unwrap_or(SEVERAL);
    if rows.all(|row| row == first) { first } else { SEVERAL }
}

/// A pair that rounding decides: a point of another rank, its component, and the place along the
/// curve of one of this rank.
type OpenPair = ([f32; 3], Component, usize);

/// This rank's points as those of others are compared with them.
struct Comparison<'a> {
    labels: &'a Labels<'a>,
    length: f32,
    /// Components of other ranks, and rows of those of this rank that are linked with them.
    linked: HashSet<(Component, u32)>,
    open: Vec<OpenPair>,
}

impl Comparison<'_> {
    /// Returns the box around everything here that a box may be linked with and is not yet: points,
    /// and nodes no longer than half of it or, if its points are in several components, than the
    /// linking length.
    fn near(&mut self, rank: usize, request: &BoxRequest) -> Bounds {
        let BoxRequest { bounds, row } = request;
        let there = (*row != SEVERAL).then_some(Component { rank: rank as u32, row: *row });
        let (region, length) = (self.labels.region, self.length);
        let least = if there.is_some() { 0.0 } else { f64::from(length).powi(2) };
        let (mut near, size) = (Bounds::EMPTY, (0.25 * bounds.diagonal()).max(least));
        region.walk(bounds, length, |met, held| {
            if there.is_some_and(|there| self.links(there, bounds, met, held)) {
                return false;
            }
            let large = matches!(met, Met::Node(..)) && held.diagonal() > size;
            if !large {
                near.include(held);
            }
            large
        });
        near
    }

    /// Compares a point with all of this rank. Gives the pairs that rounding decides.
    fn compare(&mut self, rank: usize, request: &PointRequest) -> Vec<OpenPair> {
        let mut open = Vec::new();
        let there = Component { rank: rank as u32, row: request.row };
        let (point, region, length) = (Bounds::point(&request.at), self.labels.region, self.length);
        region.walk(&point, length, |met, held| {
            if self.links(there, &point, met, held) {
                return false;
            }
            if let Met::Point(at) = met {
                open.push((request.at, there, at));
            }
            true
        });
        open
    }

    /// Returns `true` if the points in `bounds`, of one component of another rank, are linked with
    /// what was met, if that is of one component too.
    fn links(&mut self, there: Component, bounds: &Bounds, met: Met, held: &Bounds) -> bool {
        let Some(here) = self.labels.of(met) else { return false };
        if self.linked.contains(&(there, here)) {
            return true;
        }
        let sure = bounds.surely_reaches(held, self.length, &self.labels.region.side);
        if sure {
            self.linked.insert((there, here));
        }
        sure
    }

    /// Links of the pairs that rounding decides, among components of any ranks: those of a cloud of
    /// their points alone, in the frame of all points.
    fn decide(
        &self,
        recorder: &mut Recorder,
        points: &Decomposition,
        me: usize,
    ) -> Result<Vec<[Component; 2]>, FofError> {
        let (region, length) = (self.labels.region, self.length);
        let open = self.open.iter();
        let open = open.filter(|(_, there, at)| !self.linked.contains(&(*there, self.labels.of_point(*at))));
        let mut parts: Vec<(Component, [u32; 3])> = Vec::new();
        for (other, there, at) in open {
            let here = Component { rank: me as u32, row: self.labels.of_point(*at) };
            let own = Bounds::point(region.point(*at)).low;
            parts.extend([(*there, other.map(f32::to_bits)), (here, own.map(f32::to_bits))]);
        }
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        parts.sort_unstable();
        parts.dedup();
        let positions = parts.iter().flat_map(|(_, at)| at[..region.dims].iter().map(|&bits| f32::from_bits(bits)));
        let positions: Vec<f32> = positions.collect();
        let cloud = Cloud::from_host(recorder, points.own.cloud.domain(), &positions)?;
        let tree = points.builder.build_among(recorder, &cloud, &points.frame, points.extent, false)?;
        let labels = Components::new(recorder.gpu()).labels(recorder, &tree, length)?;
        let labels = recorder.download(&labels, 0, labels.len())?;
        let pairs = parts.iter().zip(labels).map(|(part, label)| [part.0, parts[label as usize].0]);
        Ok(pairs.filter(|[one, other]| one != other).collect())
    }
}

/// A component as the parent of others: the least index of its points, and where it is. Ordered by
/// index.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
struct Root {
    index: u64,
    at: Component,
}

/// A link of an own component, as it is sent to its rank: the row, and the other end.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
struct End {
    row: u32,
    other: Component,
}

/// A new parent of a component, as it is sent to the component's rank.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
struct Hook {
    row: u64,
    to: Root,
}

/// For each of this rank's components in any rank's `links`, by row: the least index of a point in
/// its group. `indices_of` gives those of rows of this rank. Memory and messages are those of this
/// rank's components with links; five exchanges a round, of which there are about as many as the
/// logarithm of the longest chain of components. Collective.
pub(super) fn resolve<E: From<CommError>>(
    comm: &Communicator,
    indices_of: impl FnOnce(&[u32]) -> Result<Vec<u64>, E>,
    links: &[[Component; 2]],
) -> Result<(Vec<(u32, u64)>, Cost), E> {
    let (mut cost, rank) = (Cost::default(), comm.rank() as u32);
    let graph = Graph::new(comm, links, &mut cost)?;
    let root = |(&row, index): (&u32, u64)| Root { index, at: Component { rank, row } };
    let mut parents: Vec<Root> = graph.rows.iter().zip(indices_of(&graph.rows)?).map(root).collect();
    loop {
        let grand = graph.parents_of(&parents, &mut cost)?;
        let far = graph.across(&grand, &mut cost)?;
        let (before, mut hooks) = (parents.clone(), Vec::new());
        for &(own, end) in &graph.edges {
            let (own, least) = (own as usize, far[end as usize]);
            if least < grand[own] {
                hooks.push((before[own].at, least));
            }
            parents[own] = parents[own].min(least).min(grand[own]);
        }
        for Hook { row, to } in graph.deliver(hooks, &mut cost)? {
            let own = graph.place(row as u32);
            parents[own] = parents[own].min(to);
        }
        if comm.reduced([u64::from(parents != before)], Op::Max)? == [0] {
            let labels = graph.rows.iter().zip(&parents).map(|(&row, root)| (row, root.index));
            return Ok((labels.collect(), cost));
        }
    }
}

/// The links of this rank's components.
struct Graph<'a> {
    comm: &'a Communicator,
    /// Components of this rank that have links, ascending.
    rows: Vec<u32>,
    /// Links: places in `rows`, and among the components at the other ends, ascending, each once.
    edges: Vec<(u32, u32)>,
    /// Places in `rows` of the components with links to each rank, ascending for each, and how many
    /// these are.
    shown: Vec<u32>,
    counts: Vec<u64>,
}

impl<'a> Graph<'a> {
    /// Sends each link to the ranks of its ends.
    fn new(comm: &'a Communicator, links: &[[Component; 2]], cost: &mut Cost) -> Result<Self, CommError> {
        let both = links.iter().flat_map(|&[one, other]| [[one, other], [other, one]]);
        let mut outgoing: Vec<[Component; 2]> = both.filter(|[one, other]| one != other).collect();
        outgoing.sort_unstable();
        outgoing.dedup();
        let ends = outgoing.iter().map(|&[one, other]| (one.rank, End { row: one.row, other })).collect();
        let mut links = exchange(comm, ends, cost)?;
        links.sort_unstable();
        links.dedup();
        let mut rows: Vec<u32> = links.iter().map(|end| end.row).collect();
        rows.dedup();
        let mut ends: Vec<Component> = links.iter().map(|end| end.other).collect();
        ends.sort_unstable();
        ends.dedup();
        let place = |row: u32| rows.partition_point(|&other| other < row) as u32;
        let end = |other: Component| ends.partition_point(|&end| end < other) as u32;
        let edges = links.iter().map(|&End { row, other }| (place(row), end(other))).collect();
        let mut shown: Vec<(u32, u32)> = links.iter().map(|end| (end.other.rank, place(end.row))).collect();
        shown.sort_unstable();
        shown.dedup();
        let counts = count(&shown.iter().map(|&(rank, _)| rank).collect::<Vec<_>>(), comm.size());
        let shown = shown.into_iter().map(|(_, place)| place).collect();
        Ok(Graph { comm, rows, edges, shown, counts })
    }

    /// Returns the place of a component of this rank that has links.
    fn place(&self, row: u32) -> usize {
        self.rows.partition_point(|&other| other < row)
    }

    /// Returns the values of the components at the other ends, of all own ones there are some for.
    /// One exchange.
    fn across(&self, values: &[Root], cost: &mut Cost) -> Result<Vec<Root>, CommError> {
        let outgoing: Vec<Root> = self.shown.iter().map(|&place| values[place as usize]).collect();
        // Links are known at both ends, so what ranks send each other is what they expect, in the
        // order of the ends.
        Ok(send(self.comm, &outgoing, &self.counts, cost)?.into_raw().0)
    }

    /// Returns the parent of each parent, from its rank. Two exchanges.
    fn parents_of(&self, parents: &[Root], cost: &mut Cost) -> Result<Vec<Root>, CommError> {
        let mut asked: Vec<Component> = parents.iter().map(|parent| parent.at).collect();
        asked.sort_unstable();
        asked.dedup();
        let (rows, ranks): (Vec<u32>, Vec<u32>) = asked.iter().map(|at| (at.row, at.rank)).unzip();
        let (found, asking) = ask(self.comm, &rows, &ranks, |rows| {
            Ok::<_, CommError>(rows.iter().map(|&(_, &row)| parents[self.place(row)]).collect())
        })?;
        *cost += asking;
        Ok(parents.iter().map(|parent| found[asked.partition_point(|at| *at < parent.at)]).collect())
    }

    /// Sends each component's new parent to its rank, the least if there are several. One exchange.
    fn deliver(&self, mut hooks: Vec<(Component, Root)>, cost: &mut Cost) -> Result<Vec<Hook>, CommError> {
        hooks.sort_unstable();
        hooks.dedup_by_key(|hook| hook.0);
        let hooks = hooks.into_iter().map(|(of, to)| (of.rank, Hook { row: of.row.into(), to }));
        exchange(self.comm, hooks.collect(), cost)
    }
}

/// Sends elements to their ranks, by which they are sorted.
fn exchange<T: Pod>(comm: &Communicator, elements: Vec<(u32, T)>, cost: &mut Cost) -> Result<Vec<T>, CommError> {
    let (ranks, elements): (Vec<u32>, Vec<T>) = elements.into_iter().unzip();
    Ok(send(comm, &elements, &count(&ranks, comm.size()), cost)?.into_raw().0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;

    /// Labels by rank and row of `each` components a rank, where component (rank, row) has the
    /// index `index[rank * each + row]`; each rank tells every `ranks`-th link.
    fn labels(ranks: usize, index: &[u64], links: &[[usize; 2]]) -> Vec<u64> {
        let each = index.len() / ranks;
        let parts = run_threads(ranks, |comm| {
            let at = |i: usize| Component { rank: (i / each) as u32, row: (i % each) as u32 };
            let told: Vec<_> = links.iter().skip(comm.rank()).step_by(ranks).map(|link| link.map(at)).collect();
            let first = comm.rank() * each;
            let mut labels = index[first..first + each].to_vec();
            let (found, cost) = resolve(
                &comm,
                |rows| Ok::<_, CommError>(rows.iter().map(|&row| index[first + row as usize]).collect()),
                &told,
            )?;
            // At most four messages a round to each other rank, and about as many rounds as a chain
            // doubles.
            let rounds = u64::from(index.len().ilog2()) + 3;
            assert!(cost.messages <= (ranks as u64 - 1) * (4 * rounds + 1), "{} messages", cost.messages);
            found.iter().for_each(|&(row, label)| labels[row as usize] = label);
            Ok::<_, CommError>(labels)
        });
        parts.unwrap().concat()
    }

    fn shuffled(n: usize) -> Vec<u64> {
        let mut index: Vec<u64> = (0..n as u64).collect();
        index.sort_by_key(|&i| crate::hash::fnv1a(crate::hash::START, &i.to_le_bytes()));
        index
    }

    #[test]
    fn chains_over_all_ranks_have_one_label() {
        for (ranks, each) in [(1, 7), (2, 100), (5, 60), (8, 16)] {
            let n = ranks * each;
            // Two chains, of the even and of the odd ones; each link occurs twice.
            let chain = |i: usize| [[i, i + 2], [i + 2, i]];
            let links: Vec<[usize; 2]> = (0..n - 2).flat_map(chain).collect();
            for index in [(0..n as u64).collect(), (0..n as u64).rev().collect(), shuffled(n)] {
                let least = [0, 1].map(|odd| index[odd..].iter().step_by(2).copied().min().unwrap());
                let found = labels(ranks, &index, &links);
                assert!(found.iter().enumerate().all(|(i, &label)| label == least[i % 2]), "{ranks} {index:?}");
            }
        }
    }

    #[test]
    fn groups_of_random_links_are_those_of_one_forest() {
        let (ranks, n) = (6, 240);
        let index = shuffled(n);
        for density in [1, 3, 9] {
            let random = |i: usize| index[(i * 31 + density) % n] as usize;
            let links: Vec<[usize; 2]> = (0..n * density / 10).map(|i| [random(i), random(i + 77)]).collect();
            let mut want = index.clone();
            for _ in 0..n {
                for &[a, b] in &links {
                    let least = want[a].min(want[b]);
                    (want[a], want[b]) = (least, least);
                }
            }
            assert_eq!(labels(ranks, &index, &links), want);
        }
    }

    #[test]
    fn no_links_are_nothing() {
        let (labels, cost) = resolve(&Communicator::solo(), |_| Ok::<_, CommError>(Vec::new()), &[]).unwrap();
        assert!(labels.is_empty() && cost == Cost::default());
    }
}
