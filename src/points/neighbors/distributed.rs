//! Neighbours among the points of all ranks.

use std::cell::Cell;

use super::error::NeighborError;
use super::nearest::Nearest;
use super::neighbor_lists::NeighborLists;
use super::pairs::{Bins, join_u64};
use super::query::{KnnQuery, PairFilter, RadiusQuery, RowOrder, check_radius};
use super::radius::Radius;
use super::result_routing::{GlobalLists, RadiusResult};
use super::targets::{Queries, Targets, in_one_domain};
use crate::comm::Op;
use crate::gpu::primitives::Count;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};
use crate::grid::Cost;
use crate::hash::{START, fnv1a};
use crate::points::ghosts::{Ghosts, Reach, Region};
use crate::points::partition::{Decomposition, JointPoints, LocalPoints, WithGhosts};
use crate::points::rows::upload_u32;
use crate::points::sort::Route;
use crate::points::u64_array::U64Array;
use crate::points::{Cloud, Extent};
use crate::rank::Rank;

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

crate::gpu::kernel_params! {
    struct LastParams {
        queries: u32,
        k: u32,
        within: f32,
    }
}

/// The kernel that finds how far queries have found neighbours.
pub(super) fn last_distance() -> KernelSource {
    KernelSource::new("neighbors::last_distance", include_str!("../../../shaders/points/neighbors/last_distance.wgsl"))
        .params::<LastParams>()
}

/// The queries that this rank searches for.
pub(super) struct RankQueries {
    /// Arranged along the curve; `None`: the rank's own points, which are.
    targets: Option<Targets>,
    /// From the rows of the input to those of `targets`; `None` on one rank, where they are the same.
    route: Option<Route>,
    /// Of targets, where there are several ranks; the rank's own points have that of their decomposition.
    region: Option<Region>,
}

/// Own points and ghosts, and the queries among them.
pub(super) type JointQueries = (JointPoints, Targets);

/// The points of all ranks, distributed for searches: each rank has a part of a Hilbert curve through all of them, of equal
/// size, and fetches copies of the points of others that its queries reach.
///
/// - Every method is called by all ranks, which look for the same ([`NeighborError::Differ`] otherwise). Rows are those of the input that this rank gave, in its order; indices count the rows
///   of all ranks, in rank order.
/// - Results are the same to the last bit for any number of ranks.
/// - After the requests for ghosts a search takes 4 exchanges: ghosts (points and indices) and results (indices and distances); lists within
///   a radius take one more, for their lengths. [`cost`](Self::cost) counts them together with the [`Exchange`](crate::exchange::Exchange).
/// - Results are put into the order of the rows on the device, where they lie as a whole: 8 bytes per entry, twice that with several ranks.
///
/// ```
/// use meshloom::{Error, Launch, gpu::Options, launch};
/// use meshloom::points::neighbors::{KnnQuery, DistributedSearch};
/// use meshloom::points::{Cloud, Domain};
///
/// let nearest = launch(Launch::Threads(3), &Options::from_env()?, |context| {
///     let domain = Domain::new(&[9.0, 0.0])?;
///     let x = [0.0, 3.5, 7.0][context.comm.rank()]; // two points per rank
///     let cloud = Cloud::from_host(&mut context.recorder, &domain, &[x, 0.0, x + 1.0, 0.0])?;
///     let search = DistributedSearch::new(context, &cloud)?;
///     let others = KnnQuery { without_self: true, ..KnnQuery::nearest(2) };
///     Ok::<_, Error>(search.nearest(context, None, &others)?.index)
/// })?;
/// assert_eq!(nearest, [[1, 5, 0, 5], [3, 1, 2, 4], [5, 0, 0, 4]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DistributedSearch {
    pub(super) points: Decomposition,
    nearest: Nearest,
    pub(super) radius: Radius,
    cost: Cell<Cost>,
    ghosts: Cell<u64>,
}

impl DistributedSearch {
    /// Distributes the points of all ranks' clouds, without attributes, and builds the trees. Waits. All ranks call it.
    ///
    /// # Errors
    /// [`NeighborError`] of the points, the device or the ranks.
    pub fn new(context: &mut Rank, cloud: &Cloud) -> Result<Self, NeighborError> {
        Ok(DistributedSearch {
            points: Decomposition::new(context, &cloud.without_attributes())?,
            nearest: Nearest::new(&context.gpu),
            radius: Radius::new(&context.gpu),
            cost: Cell::default(),
            ghosts: Cell::new(0),
        })
    }

    /// The `knn.k` nearest of all points for each of this rank's rows, or for its rows of `queries`. Waits. All ranks call it.
    ///
    /// # Errors
    /// As [`Nearest::lists`], and those of the ranks.
    pub fn nearest(
        &self,
        context: &mut Rank,
        queries: Option<&Cloud>,
        knn: &KnnQuery,
    ) -> Result<KnnResult, NeighborError> {
        self.agree(queries, &[knn.k.into(), knn.within.to_bits().into(), knn.without_self.into()])?;
        knn.check()?;
        refuse_self_filter(queries, knn.without_self)?;
        let local = self.arrange_queries(context, queries)?;
        let own = &self.points.own;
        let lists = self.nearest.lists(&mut context.recorder, &own.tree, queries_at(local.targets.as_ref()), knn);
        let lists = self.no_longer_than_any(lists)?;
        let (mut index, mut distance) = (own.ids_of(&mut context.recorder, &lists.index)?, lists.distance);
        if let Some(route) = self.route(&local).filter(|_| knn.k > 0) {
            self.search_ghosts(context, &local, knn, (&index, &distance))?;
            index = index.map(|words| route.back(context, words, knn.k.into()))?;
            distance = route.back(context, &distance, knn.k.into())?;
        }
        let recorder = &mut context.recorder;
        let distance = recorder.download(&distance, 0, distance.len())?;
        Ok(KnnResult { k: knn.k, index: index.download(recorder)?, distance })
    }

    /// How many of all points lie within a radius of each row. Waits. All ranks call it.
    ///
    /// # Errors
    /// As [`Radius::counts`], and those of the ranks.
    pub fn counts(
        &self,
        context: &mut Rank,
        queries: Option<&Cloud>,
        within: &RadiusQuery,
    ) -> Result<Vec<u64>, NeighborError> {
        self.agree(queries, &[within.radius.to_bits().into(), within.which as u64])?;
        check_radius(within.radius)?;
        refuse_self_filter(queries, within.which != PairFilter::All)?;
        let local = self.arrange_queries(context, queries)?;
        let joint = self.points_within(context, &local, within.radius)?;
        let (points, queries) = self.scope(&local, joint.as_ref());
        let Some(route) = self.route(&local) else {
            let counts = self.radius.counts(&mut context.recorder, &points.tree, queries, within)?;
            return Ok(U64Array::of_words(&counts).download(&mut context.recorder)?);
        };
        let recorder = &mut context.recorder;
        let counts = self.radius.counts_in(recorder, &points.tree, queries, (within, RowOrder::Curve))?;
        let in_rows = recorder.gpu().array("neighbors::counts", counts.len())?;
        self.points.permute.scatter(recorder, &counts, self.numbers(&local), &in_rows, 1, Count::All)?;
        let counts = route.back(context, &in_rows, 1)?;
        Ok(U64Array::of_words(&counts).download(&mut context.recorder)?)
    }

    /// All points within a radius of each row. Waits. All ranks call it.
    ///
    /// # Errors
    /// As [`Radius::lists`], and those of the ranks.
    pub fn within(
        &self,
        context: &mut Rank,
        queries: Option<&Cloud>,
        within: &RadiusQuery,
    ) -> Result<RadiusResult, NeighborError> {
        self.agree(queries, &[within.radius.to_bits().into(), within.which as u64])?;
        check_radius(within.radius)?;
        refuse_self_filter(queries, within.which != PairFilter::All)?;
        let local = self.arrange_queries(context, queries)?;
        let joint = self.points_within(context, &local, within.radius)?;
        let (points, queries) = self.scope(&local, joint.as_ref());
        let route = self.route(&local);
        // Among ghosts the numbers of queries are not their rows.
        let rows = if route.is_some() { RowOrder::Curve } else { RowOrder::Input };
        let recorder = &mut context.recorder;
        let lists = self.radius.lists_in(recorder, &points.tree, queries, (within, rows));
        let lists = self.no_longer_than_any(lists)?;
        let NeighborLists { offset, index, distance } = lists;
        let index = points.ids_of(recorder, &index)?;
        let mut lists = GlobalLists { offset, index, distance };
        if let Some(route) = route {
            lists = lists.reordered(recorder, self.numbers(&local))?.back(context, route)?;
        }
        Ok(lists.download(&mut context.recorder)?)
    }

    /// How many pairs of all ranks have a distance in each bin: ordered pairs of two different points, or of one of `queries`
    /// and any point. The same on all ranks. Waits. All ranks call it.
    ///
    /// # Errors
    /// As [`Radius::pairs`], and those of the ranks.
    pub fn pairs(&self, context: &mut Rank, queries: Option<&Cloud>, bins: &Bins) -> Result<Vec<u64>, NeighborError> {
        let edges: Vec<u64> = bins.edges().iter().map(|edge| edge.to_bits().into()).collect();
        self.agree(queries, &edges)?;
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

    /// Fails on all ranks if they search for different things, or some among their own points: each would find something else, or wait for
    /// a call that others do not make. One all-gather of 8 bytes a rank. All ranks call it.
    pub(super) fn agree(&self, queries: Option<&Cloud>, what: &[u64]) -> Result<(), NeighborError> {
        let domain = queries.map_or([0; 4], |cloud| cloud.domain().bits());
        let common = [u64::from(queries.is_some())].into_iter().chain(domain);
        let hash = common.chain(what.iter().copied()).fold(START, |hash, word| fnv1a(hash, &word.to_le_bytes()));
        if let Some(rank) = self.points.comm.first_to_differ(hash)? {
            return Err(NeighborError::Differ { rank });
        }
        // Of all ranks alike, now that they have agreed.
        queries.map_or(Ok(()), |cloud| in_one_domain(cloud.domain(), self.points.own.tree.domain()))
    }

    /// Lists of this rank, or that those of some rank are too long, on all: they would wait for what that rank does not send. All ranks call it.
    fn no_longer_than_any<T>(&self, found: Result<T, NeighborError>) -> Result<T, NeighborError> {
        let own = match &found {
            Err(NeighborError::TooLong { rows, each }) => [*rows, *each],
            _ => [0; 2],
        };
        match self.points.comm.all_gather(&own)?.chunks_exact(2).find(|lists| lists[0] > 0) {
            Some(lists) => Err(NeighborError::TooLong { rows: lists[0], each: lists[1] }),
            None => found,
        }
    }

    /// Sends the queries of all ranks to the ranks whose part of the curve they lie in, and arranges them there.
    pub(super) fn arrange_queries(
        &self,
        context: &mut Rank,
        queries: Option<&Cloud>,
    ) -> Result<RankQueries, NeighborError> {
        let own = &self.points.own;
        let Some(cloud) = queries else {
            return Ok(RankQueries { targets: None, route: None, region: None });
        };
        if self.points.comm.size() == 1 {
            let targets = Targets::new(&mut context.recorder, &self.points.builder, cloud, &own.tree)?;
            return Ok(RankQueries { targets: Some(targets), route: None, region: None });
        }
        let route = self.points.route_of(context, cloud)?;
        let positions = route.forward(context, cloud.positions(), self.points.frame.dims as u64)?;
        let recorder = &mut context.recorder;
        let here = Cloud::new(recorder, cloud.domain(), positions)?;
        // All ranks choose the same units.
        let extent = Extent::of(&here).of_all(&self.points.comm)?;
        let targets = Targets::new(recorder, &self.points.builder, &here, &own.tree)?.with_extent(extent);
        let boxes =
            self.points.builder.boxes(recorder, cloud.domain().dims(), (targets.positions(), targets.order()))?;
        let region = Region::around(recorder, cloud.domain(), targets.positions(), &boxes)?;
        Ok(RankQueries { targets: Some(targets), route: Some(route), region: Some(region) })
    }

    /// The way of the queries from their rows in the input to their rows here; `None` on one rank.
    pub(super) fn route<'a>(&'a self, local: &'a RankQueries) -> Option<&'a Route> {
        if local.targets.is_some() { local.route.as_ref() } else { self.points.route.as_ref() }
    }

    /// The row here of each query along the curve.
    pub(super) fn numbers<'a>(&'a self, local: &'a RankQueries) -> &'a Array<u32> {
        queries_at(local.targets.as_ref()).numbers(&self.points.own.tree)
    }

    /// How far each query along the curve has found neighbours, but no farther than the limit. Recorded only.
    fn reach(
        &self,
        recorder: &mut Recorder,
        local: &RankQueries,
        knn: &KnnQuery,
        distance: &Array<f32>,
    ) -> Result<Array<f32>, NeighborError> {
        let numbers = self.numbers(local);
        let reach = recorder.gpu().array::<f32>("neighbors::reach", numbers.len())?;
        let params = LastParams { queries: numbers.len() as u32, k: knn.k, within: knn.within };
        let arrays = [numbers.raw(), distance.raw(), reach.raw()];
        recorder.each(&Kernel::trusted(last_distance()), &arrays, &params, numbers.len())?;
        Ok(reach)
    }

    /// Searches again, among ghosts too, for the queries that may reach a point of another rank, and puts what it finds into `found`: the
    /// indices and distances of each query's list, by its row here.
    fn search_ghosts(
        &self,
        context: &mut Rank,
        local: &RankQueries,
        knn: &KnnQuery,
        found: (&U64Array, &Array<f32>),
    ) -> Result<(), NeighborError> {
        let Some(asking) = local.region.as_ref().or(self.points.region.as_ref()) else { return Ok(()) };
        let reach = self.reach(&mut context.recorder, local, knn, found.1)?;
        let reach = Reach::each(&mut context.recorder, asking, reach)?;
        let Some(WithGhosts { points: Some(joint), ghosts }) = self.fetch(context, local, &reach)? else {
            return Ok(());
        };
        let recorder = &mut context.recorder;
        let queries = upload_u32(recorder, ghosts.asking())?;
        let targets = self.targets_among(recorder, local, &joint, Some(&queries))?;
        let (tree, targets) = (&joint.points.tree, Queries::At(&targets));
        let again = self.nearest.lists_of(recorder, tree, targets, knn, 0..targets.len(tree))?;
        let permute = &self.points.permute;
        let rows = recorder.gpu().array::<u32>("neighbors::rows", queries.len())?;
        permute.gather(recorder, self.numbers(local), &queries, &rows, 1, Count::All)?;
        let index = joint.points.ids_of(recorder, &again.index)?;
        for (words, into) in index.words().iter().zip(found.0.words()) {
            permute.scatter(recorder, words, &rows, into, knn.k.into(), Count::All)?;
        }
        Ok(permute.scatter(recorder, &again.distance, &rows, found.1, knn.k.into(), Count::All)?)
    }

    /// This rank's points with those that its queries reach on other ranks; `None` on one rank.
    fn fetch(
        &self,
        context: &mut Rank,
        local: &RankQueries,
        reach: &Reach,
    ) -> Result<Option<WithGhosts>, NeighborError> {
        let fetched = self.points.fetch_ghosts(context, local.region.as_ref(), reach)?;
        if let Some(WithGhosts { ghosts, .. }) = &fetched {
            let mut cost = self.cost.get();
            cost += ghosts.cost();
            self.cost.set(cost);
            self.ghosts.set(ghosts.len());
        }
        Ok(fetched)
    }

    /// The queries at these places along the curve, or all of them, as targets among own points and ghosts. Recorded only.
    fn targets_among(
        &self,
        recorder: &mut Recorder,
        local: &RankQueries,
        joint: &JointPoints,
        queries: Option<&Array<u32>>,
    ) -> Result<Targets, NeighborError> {
        let (gpu, own, dims) = (recorder.gpu().clone(), &self.points.own, self.points.frame.dims as u64);
        let permute = &self.points.permute;
        let mut positions = local.targets.as_ref().map_or(own.tree.positions(), Targets::positions).clone();
        let mut numbers = self.numbers(local).clone();
        if let Some(queries) = queries {
            let all = (positions, numbers);
            positions = gpu.array("neighbors::selected", queries.len() * dims)?;
            numbers = gpu.array("neighbors::selected", queries.len())?;
            permute.gather(recorder, &all.0, queries, &positions, dims, Count::All)?;
            permute.gather(recorder, &all.1, queries, &numbers, 1, Count::All)?;
        }
        if local.targets.is_none() {
            // The number of an own point is its row among the joint ones, so that it can be left out of its own neighbours.
            let rows = numbers;
            numbers = gpu.array("neighbors::selected", rows.len())?;
            permute.gather(recorder, joint.own_places(), &rows, &numbers, 1, Count::All)?;
        }
        let extent = local.targets.as_ref().map_or(own.tree.extent(), Targets::extent);
        Ok(Targets::arranged(&joint.points.tree, positions, numbers, extent))
    }

    /// Own points and ghosts within a radius of the queries, and the queries among them; `None` where there are no ghosts.
    pub(super) fn points_within(
        &self,
        context: &mut Rank,
        local: &RankQueries,
        radius: f32,
    ) -> Result<Option<JointQueries>, NeighborError> {
        Ok(self.points_and_ghosts_within(context, local, radius)?.0)
    }

    /// [`points_within`](Self::points_within), and the ghosts, which every rank of several has, to move values of points to them.
    pub(super) fn points_and_ghosts_within(
        &self,
        context: &mut Rank,
        local: &RankQueries,
        radius: f32,
    ) -> Result<(Option<JointQueries>, Option<Ghosts>), NeighborError> {
        let Some(WithGhosts { points, ghosts }) = self.fetch(context, local, &Reach::Same(radius))? else {
            return Ok((None, None));
        };
        let Some(joint) = points else { return Ok((None, Some(ghosts))) };
        let targets = self.targets_among(&mut context.recorder, local, &joint, None)?;
        Ok((Some((joint, targets)), Some(ghosts)))
    }

    /// The points to search, and the queries among them.
    pub(super) fn scope<'a>(
        &'a self,
        local: &'a RankQueries,
        joint: Option<&'a JointQueries>,
    ) -> (&'a LocalPoints, Queries<'a>) {
        match joint {
            Some((joint, targets)) => (&joint.points, Queries::At(targets)),
            None => (&self.points.own, queries_at(local.targets.as_ref())),
        }
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
