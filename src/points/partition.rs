//! Domain decomposition of the points of all ranks along a Hilbert curve, for neighbour searches and groups.
//!
//! Each rank has an equal part of the points in the order of the curve, with a tree over them, and fetches copies of other ranks' points
//! where it needs them ([`Decomposition::fetch_ghosts`]).

use crate::comm::Communicator;
use crate::gpu::primitives::{Count, Permute};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};
use crate::points::ghosts::{Ghosts, Reach, Region};
use crate::points::rows::chained;
use crate::points::sort::{Route, Shares, SortError, Summary, by_rank, probe};
use crate::points::tree::{Builder, Tree};
use crate::points::u64_array::U64Array;
use crate::points::{Cloud, Curve, CurveKeys, Extent, Frame};
use crate::rank::Rank;

/// Points on this rank in the order of their global indices, and a tree over them.
pub(crate) struct LocalPoints {
    pub cloud: Cloud,
    /// Their indices in the input of all ranks, ascending; `None` on one rank, where rows are the indices.
    pub ids: Option<U64Array>,
    pub tree: Tree,
}

impl LocalPoints {
    /// The indices, in the input of all ranks, of the points in `rows`; none for a row of all ones. Recorded only.
    pub fn ids_of(&self, recorder: &mut Recorder, rows: &Array<u32>) -> Result<U64Array, DeviceError> {
        match &self.ids {
            Some(ids) => ids.select(recorder, rows),
            None => Ok(U64Array::of_words(rows)),
        }
    }
}

/// This rank's points and copies of those of other ranks.
pub(crate) struct JointPoints {
    pub points: LocalPoints,
    /// The row among them of each own point, in its order, then of each ghost.
    pub places: Array<u32>,
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
    /// Of all points.
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
}

crate::gpu::kernel_params! {
    struct InverseParams {
        count: u32,
    }
}

/// The kernel that inverts a permutation.
pub(super) fn kernel() -> KernelSource {
    KernelSource::new("points::inverse", include_str!("../../shaders/points/inverse.wgsl")).params::<InverseParams>()
}

/// The place of each row in `order`. Recorded only.
fn inverse(recorder: &mut Recorder, order: &Array<u32>) -> Result<Array<u32>, DeviceError> {
    let places = recorder.gpu().array("partition::places", order.len())?;
    let params = InverseParams { count: order.len() as u32 };
    recorder.each(&Kernel::trusted(kernel()), &[order.raw(), places.raw()], &params, order.len())?;
    Ok(places)
}

impl Decomposition {
    /// Distributes the points of all ranks' clouds with their attributes, and builds the trees. All ranks call it.
    pub fn new(context: &mut Rank, cloud: &Cloud) -> Result<Self, SortError> {
        let comm = context.comm.clone();
        let (builder, permute) = (Builder::new(&context.gpu), Permute::new());
        let all = Summary::gather(&comm, cloud, Curve::Hilbert)?;
        let frame = Frame::over(cloud.domain(), all.core);
        let extent = Extent::of_frame(&Frame::new(cloud.domain(), all.bounds), cloud.domain());
        if comm.size() == 1 {
            let (cloud, total) = (cloud.clone(), cloud.len());
            let tree = builder.build_among(&mut context.recorder, &cloud, &frame, extent)?;
            // The memory of the sort is for what follows.
            context.recorder.submit()?;
            let own = LocalPoints { cloud, ids: None, tree };
            let (region, route, splitters) = (None, None, Vec::new());
            return Ok(Self { comm, builder, permute, frame, extent, own, region, route, total, splitters });
        }
        let shares = Shares::find(context, cloud, Curve::Hilbert, &all, &frame)?;
        // Rows that arrive in the order of the input, rank by rank, have ascending indices.
        let order = shares.by_recipient(&mut context.recorder)?;
        let Shares { total, row_offsets, sends, receives, splitters, .. } = shares;
        let route = Route::new(&comm, order, sends, receives, None)?;
        let positions = route.forward(context, cloud.positions(), frame.dims as u64)?;
        let mut here = Cloud::new(&mut context.recorder, cloud.domain(), positions)?;
        route.forward_attributes(context, cloud, &mut here)?;
        let ids = Some(route.forward_ids(context, row_offsets[comm.rank()], total)?);
        let tree = builder.build_among(&mut context.recorder, &here, &frame, extent)?;
        let region = Some(Region::of(&mut context.recorder, &tree)?);
        let (own, route) = (LocalPoints { cloud: here, ids, tree }, Some(route));
        Ok(Self { comm, builder, permute, frame, extent, own, region, route, total, splitters })
    }

    /// Number of points that this rank has in the input.
    pub fn input_rows(&self) -> u64 {
        self.route.as_ref().map_or(self.own.cloud.len(), |route| route.order().len())
    }

    /// The way of the points of `cloud` to the rank whose part of the curve each lies in. Waits for a word per rank. All ranks call it, of
    /// several.
    pub fn route_of(&self, context: &mut Rank, cloud: &Cloud) -> Result<Route, SortError> {
        let (gpu, recorder, ranks) = (context.gpu.clone(), &mut context.recorder, self.comm.size() as u32);
        let [high, low] =
            [gpu.array("decomposition::high", cloud.len())?, gpu.array("decomposition::low", cloud.len())?];
        CurveKeys::new().record(recorder, Curve::Hilbert, cloud.positions(), &self.frame, &high, &low)?;
        // A point belongs to the rank behind as many boundaries as have a key below its own; no key has 64 bits.
        let first_keys: Vec<u64> = self.splitters.iter().map(|key| key + 1).collect();
        let first_keys = probe::upload(recorder, &first_keys)?;
        let owners = probe::at_most(recorder, first_keys.each_ref(), [&high, &low])?;
        let order = by_rank(recorder, &owners, ranks)?;
        let sorted = gpu.array("decomposition::owners", order.len())?;
        self.permute.gather(recorder, &owners, &order, &sorted, 1, Count::All)?;
        let ends = probe::count(recorder, [&sorted, &sorted], &(0..ranks).map(last_key).collect::<Vec<u64>>())?;
        let starts = [0].into_iter().chain(ends.iter().copied());
        let sends: Vec<u64> = ends.iter().zip(starts).map(|(end, start)| end - start).collect();
        let receives = self.comm.all_to_all(&sends)?;
        Ok(Route::new(&self.comm, order, sends, receives, None)?)
    }

    /// Fetches copies of the points of other ranks that the points of `asking` reach, without attributes; without `asking` this rank's own
    /// points ask. `None` on one rank. Waits. All ranks call it.
    pub fn fetch_ghosts(
        &self,
        context: &mut Rank,
        asking: Option<&Region>,
        reach: &Reach,
    ) -> Result<Option<WithGhosts>, SortError> {
        let (Some(region), Some(own_ids)) = (&self.region, &self.own.ids) else { return Ok(None) };
        let ghosts = Ghosts::find(context, (region, self.own.tree.order()), asking.unwrap_or(region), reach)?;
        let dims = self.frame.dims as u64;
        let ids = own_ids.map(|words| ghosts.refresh(context, words, 1))?;
        let positions = ghosts.refresh(context, self.own.cloud.positions(), dims)?;
        if ghosts.is_empty() {
            return Ok(Some(WithGhosts { points: None, ghosts }));
        }
        let recorder = &mut context.recorder;
        let ids = own_ids.chain(recorder, &ids)?;
        let order = ids.order(recorder, self.total)?;
        let joint = chained(recorder, self.own.cloud.positions(), &positions)?;
        let sorted = recorder.gpu().array::<f32>("partition::joint", joint.len())?;
        self.permute.gather(recorder, &joint, &order, &sorted, dims, Count::All)?;
        let cloud = Cloud::new(recorder, self.own.cloud.domain(), sorted)?;
        let tree = self.builder.build_among(recorder, &cloud, &self.frame, self.extent)?;
        let points = LocalPoints { cloud, ids: Some(ids.select(recorder, &order)?), tree };
        let places = inverse(recorder, &order)?;
        Ok(Some(WithGhosts { points: Some(JointPoints { points, places }), ghosts }))
    }
}

/// A number of which `owner` in both words is no less, and no other owner in the high one.
fn last_key(owner: u32) -> u64 {
    u64::from(owner) << 32 | u64::from(u32::MAX)
}
