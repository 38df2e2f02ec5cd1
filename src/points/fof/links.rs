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

use std::cell::Cell;
use std::collections::HashSet;

use bytemuck::{Pod, Zeroable};

use super::error::FofError;
use crate::gpu::{Array, DeviceError, Recorder};
use crate::grid::Cost;
use crate::host_memory;
use crate::points::ghosts::{
    Descent, Fetcher, LeafValues, Met, Pending, Reach, Region, Span, cost_of, count, with_ranks,
};
use crate::points::neighbors::Components;
use crate::points::partition::Decomposition;
use crate::points::tree::leaf_ranges;
use crate::points::{Bounds, Cloud};
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
    let counts = count(&ranks, comm.size());
    let received = comm.all_to_all_v(&requests, &counts)?;
    cost += cost_of::<PointRequest>(&counts, received.counts(), me);
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
        let tree = points.builder.build_among(recorder, &cloud, &points.frame, points.extent)?;
        let labels = Components::new(recorder.gpu()).labels(recorder, &tree, length)?;
        let labels = recorder.download(&labels, 0, labels.len())?;
        let pairs = parts.iter().zip(labels).map(|(part, label)| [part.0, parts[label as usize].0]);
        Ok(pairs.filter(|[one, other]| one != other).collect())
    }
}
