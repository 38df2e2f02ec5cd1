//! Domain decomposition of the points of all ranks along a Hilbert curve, for neighbor searches and
//! groups.
//!
//! Each rank has an equal part of the points in the order of the curve, with a tree over them, and
//! fetches copies of other ranks' points where it needs them ([`Decomposition::fetch_ghosts`]).

use super::{Bounds, Cloud, Curve, Extent, Frame, U64Array, chained, iota};
use crate::comm::Communicator;
use crate::gpu::primitives::Permute;
use crate::gpu::{Array, CountParams, DeviceElement, DeviceError, Kernel, KernelSource, Recorder};
use crate::host_memory;
use crate::points::ghosts::{Ghosts, Reach, Region};
use crate::points::sort::{self, CurveOrder, Route, SortError, SortPlan, Summary, at_most, route_to, upload_probes};
use crate::points::tree::{Builder, Tree};
use crate::rank::Rank;

/// Points on this rank in the order of their global indices, and a tree over them.
pub(crate) struct LocalPoints {
    pub cloud: Cloud,
    /// Their indices in the input of all ranks, ascending; `None` on one rank, where rows are the
    /// indices.
    pub ids: Option<U64Array>,
    pub tree: Tree,
}

impl LocalPoints {
    /// Returns the indices, in the input of all ranks, of the points in `rows`; none for a row of
    /// all ones. Recorded only.
    pub fn ids_of(&self, recorder: &mut Recorder, rows: &Array<u32>) -> Result<U64Array, DeviceError> {
        match &self.ids {
            Some(ids) => ids.select(recorder, rows),
            None => Ok(U64Array::of_words(rows)),
        }
    }
}

/// This rank's points and copies of those of other ranks, in the order of their global indices.
pub(crate) struct JointPoints {
    pub points: LocalPoints,
    places: Places,
}

/// Rows of own points and of ghosts among both.
enum Places {
    /// The row of each own point, in its order, then of each ghost.
    Rows(Array<u32>),
    /// Ghosts of lower ranks, own points, ghosts of higher ranks.
    Between { before: u64, own: Array<u32> },
}

impl JointPoints {
    /// Returns the row of each own point. Rows of ghosts may follow.
    pub fn own_places(&self) -> &Array<u32> {
        match &self.places {
            Places::Rows(places) => places,
            Places::Between { own, .. } => own,
        }
    }

    /// Returns the values of own points and of ghosts, `width` of each, in one array. Recorded
    /// only.
    pub fn joined<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        own: &Array<T>,
        ghosts: &Array<T>,
        width: u64,
    ) -> Result<Array<T>, DeviceError> {
        match &self.places {
            Places::Rows(places) => {
                let both = chained(recorder, own, ghosts)?;
                Permute::new().scattered(recorder, "partition::joint", &both, places, width)
            }
            Places::Between { before, .. } => between(recorder, before * width, own, ghosts),
        }
    }

    /// Returns the first `count` rows of own points from values of all rows, `width` of each.
    /// Recorded only.
    pub fn own_rows<T: DeviceElement>(
        &self,
        recorder: &mut Recorder,
        values: &Array<T>,
        (count, width): (u64, u64),
    ) -> Result<Array<T>, DeviceError> {
        match &self.places {
            Places::Rows(places) => {
                Permute::new().gathered(recorder, "partition::rows", values, &places.first(count), width)
            }
            Places::Between { before, .. } => {
                let rows = recorder.gpu().array("partition::rows", count * width)?;
                recorder.copy(values, before * width, &rows, 0, count * width)?;
                Ok(rows)
            }
        }
    }
}

/// Returns the first `before` elements of `ghosts`, then those of `own`, then the rest of `ghosts`.
/// Recorded only.
fn between<T: DeviceElement>(
    recorder: &mut Recorder,
    before: u64,
    own: &Array<T>,
    ghosts: &Array<T>,
) -> Result<Array<T>, DeviceError> {
    let joined = recorder.gpu().array("partition::joint", own.len() + ghosts.len())?;
    recorder.copy(ghosts, 0, &joined, 0, before)?;
    recorder.copy(own, 0, &joined, before, own.len())?;
    recorder.copy(ghosts, before, &joined, before + own.len(), ghosts.len() - before)?;
    Ok(joined)
}

/// This rank's points together with those of other ranks within reach.
pub(crate) struct WithGhosts {
    /// Own points and ghosts; `None` without ghosts.
    pub points: Option<JointPoints>,
    pub ghosts: Ghosts,
}

/// One rank's share of the points of all ranks.
pub(crate) struct Decomposition {
    pub comm: Communicator,
    pub builder: Builder,
    pub permute: Permute,
    /// Cells of the curve, over most of all points.
    pub frame: Frame,
    /// Extent of all points.
    pub extent: Extent,
    /// With the attributes of the input.
    pub own: LocalPoints,
    /// This rank's points as requests of others are answered from; `None` on one rank.
    pub region: Option<Region>,
    /// From the rows of the input to those of `own`; `None` on one rank, where they are the same.
    pub route: Option<Route>,
    /// Points of all ranks.
    pub total: u64,
    /// The key of the last point before each boundary between ranks.
    splitters: Vec<u64>,
    /// Position of this rank's rows among those of all ranks, if the input is in the order of the
    /// curve.
    sorted: Option<SortedInput>,
}

/// Rows of an input that is sorted along the curve over all ranks: they stay where they are.
struct SortedInput {
    row_offsets: Vec<u64>,
    bounds: Option<Bounds>,
    smallest_magnitude: f32,
}

/// Returns the kernel that inverts a permutation.
pub(super) fn kernel() -> KernelSource {
    KernelSource::new("points::inverse", include_str!("../../shaders/points/inverse.wgsl")).params::<CountParams>()
}

/// Returns the place of each row in `order`. Recorded only.
fn inverse(recorder: &mut Recorder, order: &Array<u32>) -> Result<Array<u32>, DeviceError> {
    let places = recorder.gpu().array("partition::places", order.len())?;
    let params = CountParams { count: order.len() as u32 };
    recorder.each(&Kernel::trusted(kernel()), &[order.raw(), places.raw()], &params, order.len())?;
    Ok(places)
}

impl Decomposition {
    /// Distributes the points of all ranks' clouds with their attributes, and builds the trees. All
    /// ranks call it.
    pub fn new(rank: &mut Rank, cloud: &Cloud) -> Result<Self, SortError> {
        let comm = rank.comm.clone();
        let (builder, permute) = (Builder::new(&rank.gpu), Permute::new());
        let all = Summary::gather(&comm, cloud, Curve::Hilbert, false)?;
        let frame = Frame::over(cloud.domain(), all.core);
        let extent = Extent::of_frame(&Frame::new(cloud.domain(), all.bounds), cloud.domain());
        if comm.size() == 1 {
            let (cloud, total) = (cloud.clone(), cloud.len());
            let tree = builder.build_among(&mut rank.recorder, &cloud, &frame, extent, false)?;
            // The memory of the sort is for what follows.
            rank.recorder.submit()?;
            let own = LocalPoints { cloud, ids: None, tree };
            let (region, route, splitters) = (None, None, Vec::new());
            let sorted = None;
            return Ok(Self { comm, builder, permute, frame, extent, own, region, route, total, splitters, sorted });
        }
        let shares = SortPlan::find(rank, cloud, Curve::Hilbert, &all, &frame)?;
        // Rows that arrive in the order of the input, rank by rank, have ascending indices.
        let order = shares.by_recipient(&mut rank.recorder)?;
        let SortPlan { total, row_offsets, sends, receives, splitters, .. } = shares;
        let route = Route::new(&comm, order, sends, receives, None)?;
        let positions = route.forward(rank, cloud.positions(), frame.dims as u64)?;
        let mut here = Cloud::new(&mut rank.recorder, cloud.domain(), positions)?;
        route.forward_attributes(rank, cloud, &mut here)?;
        let ids = Some(route.forward_ids(rank, row_offsets[comm.rank()], total)?);
        let tree = builder.build_among(&mut rank.recorder, &here, &frame, extent, false)?;
        let region = Some(Region::of(&mut rank.recorder, &tree)?);
        let (own, route, sorted) = (LocalPoints { cloud: here, ids, tree }, Some(route), None);
        Ok(Self { comm, builder, permute, frame, extent, own, region, route, total, splitters, sorted })
    }

    /// Builds the trees over points that are sorted along a curve over all ranks already: nothing
    /// is sorted and no row moves. Collective.
    ///
    /// Returns `None` on all ranks where some points lie so far away from nearly all others that
    /// the cells of the curve do not tell these apart: any order is right, and searches would be
    /// slow.
    pub fn of_sorted(rank: &mut Rank, cloud: &Cloud, curve: &CurveOrder) -> Result<Option<Self>, SortError> {
        let comm = rank.comm.clone();
        let all = Summary::gather(&comm, cloud, Curve::Hilbert, true)?;
        if all.core != all.bounds {
            return Ok(None);
        }
        let (builder, permute, frame) = (Builder::new(&rank.gpu), Permute::new(), curve.frame);
        let extent = Extent::of_frame(&Frame::new(cloud.domain(), all.bounds), cloud.domain());
        let recorder = &mut rank.recorder;
        let tree = builder.build_among(recorder, cloud, &frame, extent, true)?;
        let (total, row_offsets) = all.total_and_offsets();
        let (mut ids, mut region) = (None, None);
        if comm.size() > 1 {
            ids = Some(U64Array::sum(recorder, row_offsets[comm.rank()], tree.order(), total)?);
            region = Some(Region::of(recorder, &tree)?);
        }
        let own = LocalPoints { cloud: cloud.clone(), ids, tree };
        let Summary { bounds, smallest_magnitude, .. } = all;
        let sorted = Some(SortedInput { row_offsets, bounds, smallest_magnitude });
        let (route, splitters) = (None, curve.splitters.clone());
        Ok(Some(Self { comm, builder, permute, frame, extent, own, region, route, total, splitters, sorted }))
    }

    /// Returns `true` if rows are in the order of the curve, so that ascending indices follow the
    /// curve, too.
    pub fn is_sorted(&self) -> bool {
        self.sorted.is_some()
    }

    /// Returns the number of points that this rank has in the input.
    pub fn input_rows(&self) -> u64 {
        self.route.as_ref().map_or(self.own.cloud.len(), |route| route.order.len())
    }

    /// Returns the route of the points of `cloud` to the rank whose part of the curve each lies in.
    /// Waits for a word per rank. Collective.
    pub fn route_of(&self, rank: &mut Rank, cloud: &Cloud) -> Result<Route, SortError> {
        let recorder = &mut rank.recorder;
        let [high, low] = sort::keys(recorder, Curve::Hilbert, cloud.positions(), &self.frame)?;
        // A point belongs to the rank behind as many boundaries as have a key below its own; no key
        // has 64 bits.
        let first_keys: Vec<u64> = self.splitters.iter().map(|key| key + 1).collect();
        let first_keys = upload_probes(recorder, &first_keys)?;
        let owners = at_most(recorder, first_keys.each_ref(), [&high, &low])?;
        route_to(rank, &owners)
    }

    /// Fetches copies of the points of other ranks that the points of `asking` reach, without
    /// attributes; without `asking` this rank's own points ask. `None` on one rank. Waits. All
    /// ranks call it.
    pub fn fetch_ghosts(
        &self,
        rank: &mut Rank,
        asking: Option<&Region>,
        reach: &Reach,
    ) -> Result<Option<WithGhosts>, SortError> {
        let (Some(region), Some(own_ids)) = (&self.region, &self.own.ids) else { return Ok(None) };
        let ghosts = Ghosts::find(rank, (region, self.own.tree.order()), asking.unwrap_or(region), reach)?;
        let dims = self.frame.dims as u64;
        let positions = ghosts.refresh(rank, self.own.cloud.positions(), dims)?;
        if let Some(sorted) = &self.sorted {
            let points = match ghosts.is_empty() {
                true => None,
                false => Some(self.sorted_joint(&mut rank.recorder, sorted, (&ghosts, own_ids), &positions)?),
            };
            return Ok(Some(WithGhosts { points, ghosts }));
        }
        let ids = own_ids.map(|words| ghosts.refresh(rank, words, 1))?;
        if ghosts.is_empty() {
            return Ok(Some(WithGhosts { points: None, ghosts }));
        }
        let recorder = &mut rank.recorder;
        let ids = own_ids.zip(&ids, |own, ghosts| chained(recorder, own, ghosts))?;
        let order = ids.order(recorder, self.total)?;
        let joint = chained(recorder, self.own.cloud.positions(), &positions)?;
        let sorted = self.permute.gathered(recorder, "partition::joint", &joint, &order, dims)?;
        let cloud = Cloud::new(recorder, self.own.cloud.domain(), sorted)?;
        let tree = self.builder.build_among(recorder, &cloud, &self.frame, self.extent, false)?;
        let points = LocalPoints { cloud, ids: Some(ids.select(recorder, &order)?), tree };
        let places = Places::Rows(inverse(recorder, &order)?);
        Ok(Some(WithGhosts { points: Some(JointPoints { points, places }), ghosts }))
    }

    /// Own points and ghosts of a sorted input. Parts of ranks follow each other on the curve, and
    /// ghosts come by rank and row, so that ghosts of lower ranks, own points and ghosts of higher
    /// ranks are in order as they are: nothing is sorted. Records two dispatches and one per level
    /// of the tree.
    fn sorted_joint(
        &self,
        recorder: &mut Recorder,
        sorted: &SortedInput,
        (ghosts, own_ids): (&Ghosts, &U64Array),
        positions: &Array<f32>,
    ) -> Result<JointPoints, SortError> {
        let (rank, dims, domain) = (self.comm.rank() as u32, self.frame.dims as u64, self.own.cloud.domain());
        let before = ghosts.owners().partition_point(|&(owner, _)| owner < rank) as u64;
        let joint = between(recorder, before * dims, self.own.cloud.positions(), positions)?;
        let cloud = Cloud::of_wrapped(domain, joint, sorted.bounds, sorted.smallest_magnitude)?;
        let tree = self.builder.build_among(recorder, &cloud, &self.frame, self.extent, true)?;
        let index = |&(owner, row): &(u32, u32)| sorted.row_offsets[owner as usize] + u64::from(row);
        let ghost_ids = host_memory::collect("indices of ghosts", ghosts.owners().iter().map(index))?;
        let ghost_ids = U64Array::upload(recorder, &ghost_ids, self.total)?;
        let ids = own_ids.zip(&ghost_ids, |own, ghosts| between(recorder, before, own, ghosts))?;
        let own = iota(recorder, before, self.own.cloud.len())?;
        let points = LocalPoints { cloud, ids: Some(ids), tree };
        Ok(JointPoints { points, places: Places::Between { before, own } })
    }
}
