//! Neighbors among the points of all ranks.

use std::cell::Cell;
use std::fmt::Debug;

use super::radius::WithinSearch;
use super::targets::in_one_domain;
use super::{
    Bins, Fixed, Nearest, NearestSearch, NeighborError, PairFilter, Queries, QueryPoints, RadiusSearch, Ragged, Within,
    check_radius, join_u64,
};
use crate::comm::Op;
use crate::exchange::ExchangeError;
use crate::gpu::primitives::Count;
use crate::gpu::{Array, DeviceElement, DeviceError, Kernel, KernelSource, Recorder};
use crate::grid::Cost;
use crate::points::ghosts::{Ghosts, Reach, Region};
use crate::points::sort::{Route, back_by};
use crate::points::{
    Cloud, Decomposition, Extent, JointPoints, LocalPoints, Particles, U64Array, WithGhosts, upload_u32,
};
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct LastParams {
        queries: u32,
        k: u32,
        within: f32,
    }
}

/// Returns the kernel that computes the distance of the last neighbor of each query.
pub(super) fn last_distance() -> KernelSource {
    KernelSource::new("neighbors::last_distance", include_str!("../../../shaders/points/neighbors/last_distance.wgsl"))
        .params::<LastParams>()
}

/// The queries that this rank searches for.
#[derive(Default)]
pub(super) struct RankQueries {
    /// Arranged along the curve; `None`: the rank's own points, which are.
    pub targets: Option<QueryPoints>,
    /// From the rows of the input to those of `targets`; `None` on one rank, where they are the
    /// same.
    pub route: Option<Route>,
    /// Region of targets, on several ranks; the rank's own points have that of their decomposition.
    region: Option<Region>,
    /// Positions of targets by their rows here; `None`: the rank's own points.
    pub positions: Option<Array<f32>>,
}

impl RankQueries {
    /// Returns the queries along the curve.
    pub fn queries(&self) -> Queries<'_> {
        self.targets.as_ref().map_or(Queries::Own, Queries::At)
    }
}

/// Own points and ghosts, and the queries among them.
pub(super) type JointQueries = (JointPoints, QueryPoints);

/// The points of all ranks, distributed for searches: each rank has an equal part of a Hilbert
/// curve through all of them, and fetches copies of the points of other ranks that its queries
/// reach.
///
/// - Every method is collective, with equal arguments
///   ([`CommError::Differ`](crate::comm::CommError::Differ) otherwise). Rows are those of this
///   rank's input, in its order; indices count the rows of all ranks, in rank order.
/// - Results have the same bits on any number of ranks.
/// - After the requests for ghosts a search takes 4 exchanges: ghosts (points and indices) and
///   results (indices and distances); lists within a radius take one more, for their lengths.
///   [`cost`](Self::cost) counts them together with the [`Exchange`](crate::exchange::Exchange).
/// - Results are put into the order of the rows on the device, all at once: 8 bytes per entry,
///   twice that with several ranks.
///
/// ```
/// use meshloom::{Error, Launch, gpu::Options, launch};
/// use meshloom::points::{Domain, Lists, Particles, Predicate, Targets};
///
/// let nearest = launch(Launch::Threads(3), &Options::from_env()?, |rank| {
///     let domain = Domain::new(&[9.0, 0.0])?;
///     let x = [0.0, 3.5, 7.0][rank.index()]; // two points per rank
///     let points = Particles::from_host(rank, &domain, &[x, 0.0, x + 1.0, 0.0])?;
///     let search = rank.search(&points)?;
///     let found = rank.query(&search, Targets::Own, Predicate::nearest(2).exclude_self(), Lists)?;
///     Ok::<_, Error>(found.download(rank)?.index)
/// })?;
/// assert_eq!(nearest, [[1, 5, 0, 5], [3, 1, 2, 4], [5, 0, 0, 4]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Search {
    pub(super) points: Decomposition,
    /// The particles that were given.
    pub(super) input: Particles,
    pub(super) nearest: NearestSearch,
    pub(super) radius: RadiusSearch,
    cost: Cell<Cost>,
    ghosts: Cell<u64>,
}

impl Rank {
    /// Builds a search among particles.
    ///
    /// Collective; blocks. Particles that are [distributed](Self::distribute) and have not moved
    /// since stay where they are, and nothing is sorted; others are sorted along a curve first,
    /// without their attributes. The search keeps the particles as they are now.
    ///
    /// # Errors
    /// - [`CommError::Differ`](crate::comm::CommError::Differ) if domains differ between ranks, or
    ///   particles are distributed on some ranks only; on all ranks.
    /// - [`NeighborError::Device`] if device memory is short.
    pub fn search(&mut self, particles: &Particles) -> Result<Search, NeighborError> {
        let cloud = particles.cloud().without_attributes();
        let sorted = match &particles.order {
            Some(order) => Decomposition::of_sorted(self, &cloud, order)?,
            None => None,
        };
        let points = match sorted {
            Some(points) => points,
            None => Decomposition::new(self, &cloud)?,
        };
        Ok(Search {
            points,
            input: particles.clone(),
            nearest: NearestSearch::new(&self.gpu),
            radius: RadiusSearch::new(&self.gpu),
            cost: Cell::default(),
            ghosts: Cell::new(0),
        })
    }
}

impl Search {
    /// Returns the `knn.k` nearest of all points for each of this rank's rows, or for its rows of
    /// `queries`.
    pub(super) fn nearest_lists(
        &self,
        rank: &mut Rank,
        queries: Option<&Cloud>,
        knn: &Nearest,
    ) -> Result<Fixed, NeighborError> {
        self.check_nearest(queries, knn)?;
        let local = self.arrange_queries(rank, queries)?;
        let (lists, ghosts) = self.nearest_rows(rank, &local, knn)?;
        let points =
            ghosts.as_ref().and_then(|with| with.points.as_ref()).map_or(&self.points.own, |joint| &joint.points);
        let index = points.ids_of(&mut rank.recorder, &lists.index)?;
        let width = knn.k.into();
        Ok(Fixed {
            k: knn.k,
            index: index.map(|words| self.home(rank, &local, words, width))?,
            distance: self.home(rank, &local, &lists.distance, width)?,
        })
    }

    /// Same as [`nearest_lists`](Self::nearest_lists), on the host. Blocks.
    pub(super) fn nearest_on_host(
        &self,
        rank: &mut Rank,
        queries: Option<&Cloud>,
        knn: &Nearest,
    ) -> Result<Fixed<Vec<u64>, Vec<f32>>, NeighborError> {
        if self.is_shared() {
            return Ok(self.nearest_lists(rank, queries, knn)?.download(rank)?);
        }
        // On one rank the rows of points are their indices.
        self.check_nearest(queries, knn)?;
        let local = self.arrange_queries(rank, queries)?;
        let queries = local.queries();
        self.nearest.download_lists(&mut rank.recorder, &self.points.own.tree, queries, knn)
    }

    /// Checks that all ranks look for the same nearest neighbors, and that these exist. Collective.
    fn check_nearest(&self, queries: Option<&Cloud>, knn: &Nearest) -> Result<(), NeighborError> {
        self.agree("nearest neighbors", queries, &[("query", knn)])?;
        knn.check()?;
        refuse_self_filter(queries, knn.excludes_self)
    }

    /// Values of the queries' rows here in their rows of the input: on the ranks that gave the
    /// queries.
    pub(super) fn home<T: DeviceElement>(
        &self,
        rank: &mut Rank,
        local: &RankQueries,
        values: &Array<T>,
        width: u64,
    ) -> Result<Array<T>, ExchangeError> {
        back_by(self.route(local).filter(|_| width > 0), rank, values, width)
    }

    /// Returns `true` if other ranks have points, too.
    fn is_shared(&self) -> bool {
        self.points.comm.size() > 1
    }

    /// Returns how many of all points lie within a radius of each row.
    pub(super) fn count_rows(
        &self,
        rank: &mut Rank,
        queries: Option<&Cloud>,
        within: &Within,
    ) -> Result<Array<u32>, NeighborError> {
        self.agree("counts of neighbors", queries, &[("query", within)])?;
        check_radius(within.radius)?;
        refuse_self_filter(queries, within.filter != PairFilter::All)?;
        let local = self.arrange_queries(rank, queries)?;
        let (joint, _) = self.points_within(rank, &local, within.radius)?;
        let (points, queries) = self.scope(&local, joint.as_ref());
        let recorder = &mut rank.recorder;
        if !self.is_shared() {
            return self.radius.counts(recorder, &points.tree, queries, within);
        }
        // Among ghosts the numbers of queries are not their rows.
        let search = WithinSearch::new(&points.tree, queries, within).along_curve();
        let counts = self.radius.counts_of(recorder, search)?;
        let in_rows = self.points.permute.scattered(recorder, "neighbors::counts", &counts, self.numbers(&local), 1)?;
        Ok(self.home(rank, &local, &in_rows, 1)?)
    }

    /// Returns all points within a radius of each row.
    pub(super) fn within_lists(
        &self,
        rank: &mut Rank,
        queries: Option<&Cloud>,
        within: &Within,
    ) -> Result<Ragged, NeighborError> {
        self.agree("neighbors within a radius", queries, &[("query", within)])?;
        check_radius(within.radius)?;
        refuse_self_filter(queries, within.filter != PairFilter::All)?;
        let local = self.arrange_queries(rank, queries)?;
        let (joint, _) = self.points_within(rank, &local, within.radius)?;
        let (points, queries) = self.scope(&local, joint.as_ref());
        // Among ghosts the numbers of queries are not their rows.
        let search = WithinSearch::new(&points.tree, queries, within);
        let search = if self.is_shared() { search.along_curve() } else { search };
        let recorder = &mut rank.recorder;
        let (lists, _) = self.no_longer_than_any(self.radius.lists_of(recorder, search))?;
        let index = points.ids_of(recorder, &lists.index)?;
        let lists = Ragged { offsets: lists.offsets, index, distance: lists.distance };
        if !self.is_shared() || (self.points.is_sorted() && local.targets.is_none()) {
            return Ok(lists);
        }
        let lists = lists.reordered(recorder, self.numbers(&local))?;
        match self.route(&local) {
            Some(route) => lists.back(rank, route),
            None => Ok(lists),
        }
    }

    /// Returns how many pairs of a query and a point, within a radius, have a distance in each bin.
    /// The same on all ranks.
    pub(super) fn histogram(
        &self,
        rank: &mut Rank,
        queries: Option<&Cloud>,
        bins: &Bins,
        within: &Within,
    ) -> Result<Vec<u64>, NeighborError> {
        self.agree("pairs by distance", queries, &[("query", within), ("bins", bins)])?;
        check_radius(within.radius)?;
        refuse_self_filter(queries, within.filter != PairFilter::All)?;
        let within = Within { radius: within.radius.min(bins.edges()[bins.len()]), ..*within };
        let local = self.arrange_queries(rank, queries)?;
        let (joint, _) = self.points_within(rank, &local, within.radius)?;
        let (points, queries) = self.scope(&local, joint.as_ref());
        let words = rank.gpu.array::<u32>("neighbors::bins", 2 * bins.len() as u64)?;
        rank.recorder.clear(&words);
        self.radius.pairs_within(&mut rank.recorder, &points.tree, queries, (bins, within), &words)?;
        let mut counts = join_u64(&rank.recorder.download(&words, 0, words.len())?);
        self.points.comm.all_reduce(&mut counts, Op::Sum)?;
        Ok(counts)
    }

    /// Returns what requests and results of all searches so far have cost this rank between ranks,
    /// besides what stands in the exchange.
    pub fn cost(&self) -> Cost {
        self.cost.get()
    }

    /// Ghosts that this rank has fetched in the last search.
    pub fn ghosts(&self) -> u64 {
        self.ghosts.get()
    }

    /// Checks that all ranks search alike: all among their own points or all among others in one
    /// domain, with the same arguments. Collective, one all-gather of 8 bytes.
    pub(super) fn agree(
        &self,
        call: &str,
        queries: Option<&Cloud>,
        arguments: &[(&str, &dyn Debug)],
    ) -> Result<(), NeighborError> {
        let domain = queries.map(|cloud| cloud.domain().periods());
        let queries_in: (&str, &dyn Debug) = ("domain of the queries", &domain);
        let arguments: Vec<_> = arguments.iter().copied().chain([queries_in]).collect();
        self.points.comm.agree(call, &arguments)?;
        // The same on all ranks, which have agreed.
        queries.map_or(Ok(()), |cloud| in_one_domain(cloud.domain(), self.points.own.tree.domain()))
    }

    /// Lists of this rank, or that those of some rank are too long, on all: they would wait for
    /// what that rank does not send. Collective.
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

    /// Sends the queries of all ranks to the ranks whose part of the curve they lie in, and
    /// arranges them there.
    pub(super) fn arrange_queries(
        &self,
        rank: &mut Rank,
        queries: Option<&Cloud>,
    ) -> Result<RankQueries, NeighborError> {
        let own = &self.points.own;
        let Some(cloud) = queries else { return Ok(RankQueries::default()) };
        if self.points.comm.size() == 1 {
            let targets = QueryPoints::new(&mut rank.recorder, &self.points.builder, cloud, &own.tree)?;
            let positions = Some(cloud.positions().clone());
            return Ok(RankQueries { targets: Some(targets), route: None, region: None, positions });
        }
        let route = self.points.route_of(rank, cloud)?;
        let positions = route.forward(rank, cloud.positions(), self.points.frame.dims as u64)?;
        let recorder = &mut rank.recorder;
        let here = Cloud::new(recorder, cloud.domain(), positions)?;
        // All ranks choose the same units.
        let extent = Extent::of(&here).of_all(&self.points.comm)?;
        let mut targets = QueryPoints::new(recorder, &self.points.builder, &here, &own.tree)?;
        targets.extent = extent;
        let boxes =
            self.points.builder.boxes(recorder, cloud.domain().dims(), (&targets.positions, targets.order()))?;
        let region = Region::around(recorder, cloud.domain(), &targets.positions, &boxes)?;
        let positions = Some(here.positions().clone());
        Ok(RankQueries { targets: Some(targets), route: Some(route), region: Some(region), positions })
    }

    /// Returns the route of the queries from their rows in the input to their rows here; `None` on
    /// one rank.
    pub(super) fn route<'a>(&'a self, local: &'a RankQueries) -> Option<&'a Route> {
        if local.targets.is_some() { local.route.as_ref() } else { self.points.route.as_ref() }
    }

    /// Returns the row here of each query along the curve.
    pub(super) fn numbers<'a>(&'a self, local: &'a RankQueries) -> &'a Array<u32> {
        local.queries().numbers(&self.points.own.tree)
    }

    /// Returns the distance of the last neighbor of each query along the curve, at most the limit.
    /// Recorded only.
    fn reach(
        &self,
        recorder: &mut Recorder,
        local: &RankQueries,
        knn: &Nearest,
        distance: &Array<f32>,
    ) -> Result<Array<f32>, NeighborError> {
        let numbers = self.numbers(local);
        let reach = recorder.gpu().array::<f32>("neighbors::reach", numbers.len())?;
        let params = LastParams { queries: numbers.len() as u32, k: knn.k, within: knn.within };
        let arrays = [numbers.raw(), distance.raw(), reach.raw()];
        recorder.each(&Kernel::trusted(last_distance()), &arrays, &params, numbers.len())?;
        Ok(reach)
    }

    /// Returns the lists of the queries by their rows here, of rows among own points and ghosts,
    /// and the ghosts where other ranks have points. Queries that may reach a point of another rank
    /// are searched for again, among ghosts too.
    pub(super) fn nearest_rows(
        &self,
        rank: &mut Rank,
        local: &RankQueries,
        knn: &Nearest,
    ) -> Result<(Fixed<Array<u32>>, Option<WithGhosts>), NeighborError> {
        let queries = local.queries();
        let lists = self.nearest.lists(&mut rank.recorder, &self.points.own.tree, queries, knn);
        let mut lists = self.no_longer_than_any(lists)?;
        let asking = local.region.as_ref().or(self.points.region.as_ref());
        let Some(asking) = asking.filter(|_| knn.k > 0) else { return Ok((lists, None)) };
        let reach = self.reach(&mut rank.recorder, local, knn, &lists.distance)?;
        let reach = Reach::each(&mut rank.recorder, asking, reach)?;
        let fetched = self.fetch(rank, local, &reach)?;
        let Some(WithGhosts { points: Some(joint), ghosts }) = &fetched else { return Ok((lists, fetched)) };
        let recorder = &mut rank.recorder;
        let places = U64Array::of_words(joint.own_places()).select(recorder, &lists.index)?;
        lists.index = places.words[0].clone();
        let queries = upload_u32(recorder, &ghosts.asking)?;
        let targets = self.targets_among(recorder, local, joint, Some(&queries))?;
        let (tree, targets) = (&joint.points.tree, Queries::At(&targets));
        let again = self.nearest.lists_of(recorder, tree, targets, knn, 0..targets.len(tree))?;
        let permute = &self.points.permute;
        let rows = permute.gathered(recorder, "neighbors::rows", self.numbers(local), &queries, 1)?;
        permute.scatter(recorder, &again.index, &rows, &lists.index, knn.k.into(), Count::All)?;
        permute.scatter(recorder, &again.distance, &rows, &lists.distance, knn.k.into(), Count::All)?;
        Ok((lists, fetched))
    }

    /// Returns this rank's points with those that its queries reach on other ranks; `None` on one
    /// rank.
    fn fetch(&self, rank: &mut Rank, local: &RankQueries, reach: &Reach) -> Result<Option<WithGhosts>, NeighborError> {
        let fetched = self.points.fetch_ghosts(rank, local.region.as_ref(), reach)?;
        if let Some(WithGhosts { ghosts, .. }) = &fetched {
            let mut cost = self.cost.get();
            cost += ghosts.cost();
            self.cost.set(cost);
            self.ghosts.set(ghosts.len());
        }
        Ok(fetched)
    }

    /// Returns the queries at these places along the curve, or all of them, as targets among own
    /// points and ghosts. Recorded only.
    fn targets_among(
        &self,
        recorder: &mut Recorder,
        local: &RankQueries,
        joint: &JointPoints,
        queries: Option<&Array<u32>>,
    ) -> Result<QueryPoints, NeighborError> {
        let (own, dims, permute) = (&self.points.own, self.points.frame.dims as u64, &self.points.permute);
        let targets = local.targets.as_ref();
        let mut positions = targets.map_or(own.tree.positions(), |targets| &targets.positions).clone();
        let mut numbers = self.numbers(local).clone();
        if let Some(queries) = queries {
            positions = permute.gathered(recorder, "neighbors::selected", &positions, queries, dims)?;
            numbers = permute.gathered(recorder, "neighbors::selected", &numbers, queries, 1)?;
        }
        if local.targets.is_none() {
            // The number of an own point is its row among the joint ones, so that it can be
            // excluded from its own neighbors.
            numbers = permute.gathered(recorder, "neighbors::selected", joint.own_places(), &numbers, 1)?;
        }
        let extent = targets.map_or(own.tree.extent(), |targets| targets.extent);
        Ok(QueryPoints::arranged(&joint.points.tree, positions, numbers, extent))
    }

    /// Returns own points and ghosts within a radius of the queries, and the queries among them;
    /// `None` without ghosts. Also returns the ghosts, which every rank of several has, to move
    /// values of points to them.
    pub(super) fn points_within(
        &self,
        rank: &mut Rank,
        local: &RankQueries,
        radius: f32,
    ) -> Result<(Option<JointQueries>, Option<Ghosts>), NeighborError> {
        let Some(WithGhosts { points, ghosts }) = self.fetch(rank, local, &Reach::Same(radius))? else {
            return Ok((None, None));
        };
        let Some(joint) = points else { return Ok((None, Some(ghosts))) };
        let targets = self.targets_among(&mut rank.recorder, local, &joint, None)?;
        Ok((Some((joint, targets)), Some(ghosts)))
    }

    /// Returns the points to search, and the queries among them.
    pub(super) fn scope<'a>(
        &'a self,
        local: &'a RankQueries,
        joint: Option<&'a JointQueries>,
    ) -> (&'a LocalPoints, Queries<'a>) {
        match joint {
            Some((joint, targets)) => (&joint.points, Queries::At(targets)),
            None => (&self.points.own, local.queries()),
        }
    }
}

/// Refuses the exclusion of queries from their own neighbors if queries are not the points: their
/// indices are not those of points.
pub(super) fn refuse_self_filter(queries: Option<&Cloud>, excludes_self: bool) -> Result<(), NeighborError> {
    if queries.is_some() && excludes_self {
        let why = "queries of their own are no points of the search, so none can be left out for being itself";
        return Err(DeviceError::misuse("Search", why).into());
    }
    Ok(())
}
