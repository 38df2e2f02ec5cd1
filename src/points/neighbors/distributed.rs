//! Neighbours among the points of all ranks.

use std::cell::Cell;

use super::error::NeighborError;
use super::nearest::Nearest;
use super::pairs::{Bins, join_u64};
use super::query::{KnnQuery, PairFilter, RadiusQuery, RowOrder, check_radius};
use super::radius::{NeighborLists, Radius};
use super::result_routing::{RadiusResult, ResultRouting, deliver};
use super::targets::{Queries, Targets};
use crate::comm::Op;
use crate::exchange::Context;
use crate::gpu::primitives::Count;
use crate::gpu::{DeviceError, Recorder};
use crate::grid::Cost;
use crate::points::ghosts::{Reach, Region};
use crate::points::partition::{Decomposition, GlobalIds, LocalPoints};
use crate::points::rows::{row_offsets, upload_u32};
use crate::points::sort::Route;
use crate::points::tree::LEAF;
use crate::points::{Cloud, Extent};

/// Bytes of results on the device at a time.
const RESULT_BYTES: u64 = 128 << 20;

/// The nearest points of each row: `k` entries, nearest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnnResult {
    /// Entries per row.
    pub k: u32,
    /// Indices in the input of all ranks; `u64::MAX` where there are fewer.
    pub index: Vec<u64>,
    /// Distances; infinity where there are fewer.
    pub distance: Vec<f32>,
}

/// The queries that this rank searches for, arranged along the curve.
struct RankQueries {
    /// `None`: the rank's own points.
    targets: Option<Targets>,
    /// Row of each query, along the curve, in `ids`.
    order: Vec<u32>,
    /// The query's index in the input of all ranks, by row.
    ids: GlobalIds,
    /// Where each rank's rows begin among those of all ranks.
    row_offsets: Vec<u64>,
    /// Of targets, where there are several ranks; the rank's own points have that of their decomposition.
    region: Option<Region>,
}

/// The points of all ranks, distributed for searches: each rank has a part of a Hilbert curve through all of them, of equal
/// size, and fetches copies of the points of others that its queries reach.
///
/// - Every method is called by all ranks. Rows are those of the input that this rank gave, in its order; indices count the rows
///   of all ranks, in rank order.
/// - Results are the same to the last bit for any number of ranks.
/// - A search takes 4 exchanges: requests, ghosts (points and indices) and results. [`cost`](Self::cost) counts them together with
///   the [`Exchange`](crate::exchange::Exchange).
///
/// ```
/// use meshloom::{Error, Launch, gpu::Options, launch};
/// use meshloom::points::neighbors::{KnnQuery, DistributedSearch};
/// use meshloom::points::{Cloud, Domain};
///
/// let nearest = launch(Launch::Threads(3), &Options::from_env()?, |mut context| {
///     let domain = Domain::new(&[9.0, 0.0])?;
///     let x = [0.0, 3.5, 7.0][context.comm.rank()]; // two points per rank
///     let cloud = Cloud::from_host(&mut context.recorder, &domain, &[x, 0.0, x + 1.0, 0.0])?;
///     let search = DistributedSearch::new(&mut context, &cloud)?;
///     let others = KnnQuery { without_self: true, ..KnnQuery::nearest(2) };
///     Ok::<_, Error>(search.nearest(&mut context, None, &others)?.index)
/// })?;
/// assert_eq!(nearest, [[1, 5, 0, 5], [3, 1, 2, 4], [5, 0, 0, 4]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DistributedSearch {
    points: Decomposition,
    nearest: Nearest,
    radius: Radius,
    cost: Cell<Cost>,
    ghosts: Cell<u64>,
}

impl DistributedSearch {
    /// Distributes the points of all ranks' clouds, without attributes, and builds the trees. Waits. All ranks call it.
    ///
    /// # Errors
    /// [`NeighborError`] of the points, the device or the ranks.
    pub fn new(context: &mut Context, cloud: &Cloud) -> Result<Self, NeighborError> {
        let bare = Cloud::new(&mut context.recorder, cloud.domain(), cloud.positions().clone())?;
        Ok(DistributedSearch {
            points: Decomposition::new(context, &bare)?,
            nearest: Nearest::new(&context.gpu),
            radius: Radius::new(&context.gpu),
            cost: Cell::default(),
            ghosts: Cell::new(0),
        })
    }

    /// The `knn.k` nearest of all points for each of this rank's rows, or for its rows of `queries`. `knn.rows` plays no part.
    /// Waits. All ranks call it.
    ///
    /// # Errors
    /// As [`Nearest::lists`], and those of the ranks.
    pub fn nearest(
        &self,
        context: &mut Context,
        queries: Option<&Cloud>,
        knn: &KnnQuery,
    ) -> Result<KnnResult, NeighborError> {
        knn.check()?;
        refuse_self_filter(queries, knn.without_self)?;
        let local = self.arrange_queries(context, queries)?;
        let mut found = self.lists(&mut context.recorder, &self.points.own, queries_at(local.targets.as_ref()), knn)?;
        if self.points.comm.size() > 1 && knn.k > 0 {
            self.search_ghosts(context, &local, knn, &mut found)?;
        }
        let k = knn.k as usize;
        let mut results = ResultRouting::default();
        for (i, &row) in local.order.iter().enumerate() {
            let entries = i * k..(i + 1) * k;
            results.push(local.ids.of(row), &found.index[entries.clone()], &found.distance[entries]);
        }
        let RadiusResult { index, distance, .. } = self.deliver(&local, results)?;
        Ok(KnnResult { k: knn.k, index, distance })
    }

    /// How many of all points lie within a radius of each row. `within.rows` plays no part. Waits. All ranks call it.
    ///
    /// # Errors
    /// As [`Radius::counts`], and those of the ranks.
    pub fn counts(
        &self,
        context: &mut Context,
        queries: Option<&Cloud>,
        within: &RadiusQuery,
    ) -> Result<Vec<u64>, NeighborError> {
        check_radius(within.radius)?;
        refuse_self_filter(queries, within.which != PairFilter::All)?;
        let within = RadiusQuery { rows: RowOrder::Curve, ..*within };
        let local = self.arrange_queries(context, queries)?;
        let joint = self.points_within(context, &local, within.radius)?;
        let (points, queries) = self.scope(&local, joint.as_ref());
        let counts = self.radius.counts(&mut context.recorder, &points.tree, queries, &within)?;
        let counts = context.recorder.download(&counts, 0, counts.len())?;
        let mut results = ResultRouting::default();
        for (&row, &count) in local.order.iter().zip(&counts) {
            results.push(local.ids.of(row), &[u64::from(count)], &[0.0]);
        }
        Ok(self.deliver(&local, results)?.index)
    }

    /// All points within a radius of each row. `within.rows` plays no part. Waits. All ranks call it.
    ///
    /// # Errors
    /// As [`Radius::lists`], and those of the ranks.
    pub fn within(
        &self,
        context: &mut Context,
        queries: Option<&Cloud>,
        within: &RadiusQuery,
    ) -> Result<RadiusResult, NeighborError> {
        check_radius(within.radius)?;
        refuse_self_filter(queries, within.which != PairFilter::All)?;
        let within = RadiusQuery { rows: RowOrder::Curve, ..*within };
        let local = self.arrange_queries(context, queries)?;
        let joint = self.points_within(context, &local, within.radius)?;
        let (points, queries) = self.scope(&local, joint.as_ref());
        let recorder = &mut context.recorder;
        let NeighborLists { offset, index, distance } = self.radius.lists(recorder, &points.tree, queries, &within)?;
        let offset = recorder.download(&offset, 0, offset.len())?;
        let index = recorder.download(&index, 0, index.len())?;
        let distance = recorder.download(&distance, 0, distance.len())?;
        let index: Vec<u64> = index.into_iter().map(|row| points.ids.of(row)).collect();
        let mut results = ResultRouting::default();
        for (&row, ends) in local.order.iter().zip(offset.windows(2)) {
            let entries = ends[0] as usize..ends[1] as usize;
            results.push(local.ids.of(row), &index[entries.clone()], &distance[entries]);
        }
        self.deliver(&local, results)
    }

    /// How many pairs of all ranks have a distance in each bin: ordered pairs of two different points, or of one of `queries`
    /// and any point. The same on all ranks. Waits. All ranks call it.
    ///
    /// # Errors
    /// As [`Radius::pairs`], and those of the ranks.
    pub fn pairs(
        &self,
        context: &mut Context,
        queries: Option<&Cloud>,
        bins: &Bins,
    ) -> Result<Vec<u64>, NeighborError> {
        let local = self.arrange_queries(context, queries)?;
        let joint = self.points_within(context, &local, bins.edges()[bins.len()])?;
        let which = if queries.is_none() { PairFilter::Others } else { PairFilter::All };
        let (points, queries) = self.scope(&local, joint.as_ref());
        let words = context.gpu.array::<u32>("neighbors::bins", 2 * bins.len() as u64)?;
        context.recorder.clear(&words);
        self.radius.pairs(&mut context.recorder, &points.tree, queries, bins, which, &words)?;
        let mut counts = join_u64(&context.recorder.download(&words, 0, words.len())?);
        self.points.comm.all_reduce(&mut counts, Op::Sum)?;
        Ok(counts)
    }

    /// What requests and results of all searches so far have cost this rank between ranks, besides what stands in the
    /// exchange.
    pub fn cost(&self) -> Cost {
        self.cost.get()
    }

    /// Ghosts that this rank has fetched in the last search.
    pub fn ghosts(&self) -> u64 {
        self.ghosts.get()
    }

    /// Sends the queries of all ranks to the ranks whose part of the curve they lie in, and arranges them there.
    fn arrange_queries(&self, context: &mut Context, queries: Option<&Cloud>) -> Result<RankQueries, NeighborError> {
        let (comm, own) = (&self.points.comm, &self.points.own);
        let Some(cloud) = queries else {
            let order = match &self.points.region {
                Some(region) => region.order.clone(),
                None => context.recorder.download(own.tree.order(), 0, own.tree.len())?,
            };
            let (ids, row_offsets) = (own.ids.clone(), self.points.row_offsets.clone());
            return Ok(RankQueries { targets: None, order, ids, row_offsets, region: None });
        };
        let row_offsets = row_offsets(comm, cloud.len())?;
        if comm.size() == 1 {
            let targets = Targets::new(&mut context.recorder, &self.points.builder, cloud, &own.tree)?;
            let order = context.recorder.download(targets.order(), 0, targets.len())?;
            let ids = GlobalIds::Identity;
            return Ok(RankQueries { targets: Some(targets), order, ids, row_offsets, region: None });
        }
        let owners = self.points.owners(&mut context.recorder, cloud)?;
        let mut rows: Vec<u32> = (0..owners.len() as u32).collect();
        rows.sort_by_key(|&row| owners[row as usize]); // stable
        let mut sends = vec![0u64; comm.size()];
        owners.iter().for_each(|&owner| sends[owner] += 1);
        let received = comm.all_to_all_v(&rows, &sends)?;
        let ids = received.iter().zip(&row_offsets);
        let ids = ids.flat_map(|(rows, first)| rows.iter().map(move |&row| first + u64::from(row))).collect();
        let order = upload_u32(&mut context.recorder, &rows)?;
        let route = Route::new(comm, order, sends, received.counts().to_vec(), None)?;
        let positions = route.forward(context, cloud.positions(), self.points.frame.dims as u64)?;
        let recorder = &mut context.recorder;
        let here = Cloud::new(recorder, cloud.domain(), positions)?;
        // All ranks choose the same units.
        let extent = Extent::of(&here).of_all(comm)?;
        let targets = Targets::new(recorder, &self.points.builder, &here, &own.tree)?.with_extent(extent);
        let order = recorder.download(targets.order(), 0, targets.len())?;
        let points = recorder.download(targets.positions(), 0, targets.positions().len())?;
        let region = Region::over(self.points.frame.dims, cloud.domain().sides(), points, order.clone());
        let ids = GlobalIds::List(ids);
        Ok(RankQueries { targets: Some(targets), order, ids, row_offsets, region: Some(region) })
    }

    /// The lists of queries along the curve, with indices in the input of all ranks.
    fn lists(
        &self,
        recorder: &mut Recorder,
        points: &LocalPoints,
        queries: Queries<'_>,
        knn: &KnnQuery,
    ) -> Result<KnnResult, NeighborError> {
        let (rows, k) = (queries.len(&points.tree), u64::from(knn.k));
        let entries = (rows * k) as usize;
        let (mut index, mut distance) = (Vec::with_capacity(entries), Vec::with_capacity(entries));
        let per = (RESULT_BYTES / (8 * k.max(1))).max(LEAF) / LEAF * LEAF;
        for start in (0..rows).step_by(per as usize) {
            let part = start..(start + per).min(rows);
            let lists = self.nearest.lists_of(recorder, &points.tree, queries, knn, part)?;
            let sources = recorder.download(&lists.index, 0, lists.index.len())?;
            distance.extend(recorder.download(&lists.distance, 0, lists.distance.len())?);
            index.extend(sources.into_iter().map(|row| if row == u32::MAX { u64::MAX } else { points.ids.of(row) }));
        }
        Ok(KnnResult { k: knn.k, index, distance })
    }

    /// Searches again, among ghosts too, for the queries that may reach a point of another rank; `found` is what they have found on this
    /// rank, along the curve.
    fn search_ghosts(
        &self,
        context: &mut Context,
        local: &RankQueries,
        knn: &KnnQuery,
        found: &mut KnnResult,
    ) -> Result<(), NeighborError> {
        let k = knn.k as usize;
        let Some(asking) = local.region.as_ref().or(self.points.region.as_ref()) else { return Ok(()) };
        // A query reaches the farthest of its neighbours so far, but no farther than the limit.
        let reach = found.distance.chunks(k).map(|row| row[k - 1].min(knn.within)).collect();
        let (joint, rows) = self.fetch(context, local, &Reach::each(asking, reach))?;
        let Some(joint) = joint else { return Ok(()) };
        let targets = self.targets_in(&mut context.recorder, local, &joint, &rows)?;
        let again = self.lists(&mut context.recorder, &joint, Queries::At(&targets), knn)?;
        for (at, &row) in rows.iter().enumerate() {
            let (from, to) = (at * k..(at + 1) * k, row as usize * k..(row as usize + 1) * k);
            found.index[to.clone()].copy_from_slice(&again.index[from.clone()]);
            found.distance[to].copy_from_slice(&again.distance[from]);
        }
        Ok(())
    }

    /// This rank's points with those that its queries reach on other ranks, `None` if there are none; and the queries, by their places
    /// along the curve, that may reach any.
    fn fetch(
        &self,
        context: &mut Context,
        local: &RankQueries,
        reach: &Reach,
    ) -> Result<(Option<LocalPoints>, Vec<u32>), NeighborError> {
        let fetched = self.points.fetch_ghosts(context, local.region.as_ref(), reach)?;
        let Some(fetched) = fetched else { return Ok((None, Vec::new())) };
        let mut cost = self.cost.get();
        cost += fetched.ghosts.cost();
        self.cost.set(cost);
        self.ghosts.set(fetched.ghosts.len());
        let asking = fetched.ghosts.asking().to_vec();
        Ok((fetched.points, asking))
    }

    /// The queries `rows` along the curve, as targets among `joint`, own points and ghosts.
    fn targets_in(
        &self,
        recorder: &mut Recorder,
        local: &RankQueries,
        joint: &LocalPoints,
        rows: &[u32],
    ) -> Result<Targets, NeighborError> {
        let (own, dims) = (&self.points.own, self.points.frame.dims as u64);
        let positions = local.targets.as_ref().map_or(own.tree.positions(), Targets::positions);
        let selected = recorder.gpu().array::<f32>("neighbors::selected", rows.len() as u64 * dims)?;
        let index = upload_u32(recorder, rows)?;
        self.points.permute.gather(recorder, positions, &index, &selected, dims, Count::All)?;
        let numbers: Vec<u32> = match (&local.targets, &joint.ids) {
            // The number of an own point is its place among the joint ones, so that it can be left out of its own neighbours.
            (None, GlobalIds::List(all)) => {
                let place = |&row: &u32| {
                    let id = local.ids.of(local.order[row as usize]);
                    all.partition_point(|&other| other < id) as u32
                };
                rows.iter().map(place).collect()
            }
            _ => rows.iter().map(|&row| local.order[row as usize]).collect(),
        };
        let numbers = upload_u32(recorder, &numbers)?;
        let extent = local.targets.as_ref().map_or(own.tree.extent(), Targets::extent);
        Ok(Targets::arranged(&joint.tree, selected, numbers, extent))
    }

    /// Own points and ghosts within a radius of the queries, and the queries among them; `None` where there are no ghosts.
    fn points_within(
        &self,
        context: &mut Context,
        local: &RankQueries,
        radius: f32,
    ) -> Result<Option<(LocalPoints, Targets)>, NeighborError> {
        let (Some(joint), _) = self.fetch(context, local, &Reach::Same(radius))? else { return Ok(None) };
        let rows: Vec<u32> = (0..local.order.len() as u32).collect();
        let targets = self.targets_in(&mut context.recorder, local, &joint, &rows)?;
        Ok(Some((joint, targets)))
    }

    /// The points to search, and the queries among them.
    fn scope<'a>(
        &'a self,
        local: &'a RankQueries,
        joint: Option<&'a (LocalPoints, Targets)>,
    ) -> (&'a LocalPoints, Queries<'a>) {
        match joint {
            Some((points, targets)) => (points, Queries::At(targets)),
            None => (&self.points.own, queries_at(local.targets.as_ref())),
        }
    }

    /// Sends results to the ranks whose rows the queries are.
    fn deliver(&self, local: &RankQueries, results: ResultRouting) -> Result<RadiusResult, NeighborError> {
        let (rows, cost) = deliver(&self.points.comm, &local.row_offsets, results)?;
        let mut total = self.cost.get();
        total += cost;
        self.cost.set(total);
        Ok(rows)
    }
}

fn queries_at(targets: Option<&Targets>) -> Queries<'_> {
    targets.map_or(Queries::Own, Queries::At)
}

/// Refuses to leave a query out of its own neighbours where queries are not the points: their indices are not those of points.
fn refuse_self_filter(queries: Option<&Cloud>, without_self: bool) -> Result<(), NeighborError> {
    if queries.is_some() && without_self {
        let why = "queries of their own are no points of the search, so none can be left out for being itself".into();
        return Err(DeviceError::Misuse { what: "DistributedSearch".into(), why }.into());
    }
    Ok(())
}
