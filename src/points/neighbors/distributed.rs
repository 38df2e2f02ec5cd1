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
use crate::points::ghosts::Request;
use crate::points::partition::{Decomposition, GlobalIds, Part};
use crate::points::rows::{row_offsets, upload_u32};
use crate::points::sort::Route;
use crate::points::tree::LEAF;
use crate::points::{Cloud, Extent};

/// Bytes of results on the device at a time.
const RESULTS: u64 = 128 << 20;

/// The nearest points of each row: `k` entries, nearest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnnResult {
    /// Entries a row.
    pub k: u32,
    /// Numbers in the input of all ranks; `u64::MAX` where there are fewer.
    pub index: Vec<u64>,
    /// Distances; infinity where there are fewer.
    pub distance: Vec<f32>,
}

/// Queries of this rank, arranged along the curve.
struct RankQueries {
    /// `None`: the rank's own points.
    targets: Option<Targets>,
    /// Row of the query in what this rank was asked, along the curve.
    order: Vec<u32>,
    /// The query's number in the input of all ranks, by row.
    numbers: GlobalIds,
    /// How many rows of the input each rank and those before it have.
    row_offsets: Vec<u64>,
    /// Points along the curve; empty on one rank, where nobody is asked.
    points: Vec<f32>,
}

/// The points of all ranks, distributed for searches: each rank has a piece of a Hilbert curve through all of them, of equal
/// size, and fetches what else its queries see.
///
/// - Every method is called by all ranks. Rows are those of the input that this rank gave, in its order; numbers count the rows
///   of all ranks, in rank order.
/// - Results are the same to the last bit for any number of ranks.
/// - A search moves requests, ghosts (points and numbers) and results: 4 exchanges, in [`cost`](Self::cost) with what is
///   in the [`Exchange`](crate::exchange::Exchange).
///
/// ```
/// use meshloom::{Error, Launch, gpu::Options, launch};
/// use meshloom::points::neighbors::{KnnQuery, DistributedSearch};
/// use meshloom::points::{Cloud, Domain};
///
/// let nearest = launch(Launch::Threads(3), &Options::from_env()?, |mut context| {
///     let domain = Domain::new(&[9.0, 0.0])?;
///     let x = [0.0, 3.5, 7.0][context.comm.rank()]; // two points a rank
///     let cloud = Cloud::from_host(&mut context.recorder, &domain, &[x, 0.0, x + 1.0, 0.0])?;
///     let search = DistributedSearch::new(&mut context, &cloud)?;
///     let ask = KnnQuery { without_self: true, ..KnnQuery::nearest(2) };
///     Ok::<_, Error>(search.nearest(&mut context, None, &ask)?.index)
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
    /// Distributes the points of all ranks' clouds (attributes stay behind) and builds the trees. All ranks call it.
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

    /// The `ask.k` nearest of all points for each of this rank's rows, or for its rows of `queries`. `ask.rows` plays no part.
    /// All ranks call it.
    ///
    /// # Errors
    /// As [`Nearest::lists`], and those of the ranks.
    pub fn nearest(
        &self,
        context: &mut Context,
        queries: Option<&Cloud>,
        ask: &KnnQuery,
    ) -> Result<KnnResult, NeighborError> {
        ask.check()?;
        not_themselves(queries, ask.without_self)?;
        let asking = self.asking(context, queries)?;
        let k = ask.k as usize;
        let rows = asking.order.len();
        let (mut index, mut distance) = (vec![u64::MAX; rows * k], vec![f32::INFINITY; rows * k]);
        self.lists(&mut context.recorder, &self.points.own, asking.targets.as_ref(), ask, &mut index, &mut distance)?;
        if self.points.comm.size() > 1 && k > 0 {
            // How far each group sees: to the last of its neighbours, or to where it wants to.
            let far = |row: &[f32]| row[k - 1].min(ask.within);
            let group = LEAF as usize;
            let reach: Vec<f32> =
                distance.chunks(group * k).map(|rows| rows.chunks(k).map(far).fold(0.0, f32::max)).collect();
            let dims = self.points.frame.dims;
            let groups = asking.points.chunks(group * dims).zip(&reach);
            let requests: Vec<Request> =
                groups.filter_map(|(points, &reach)| Request::around(points, dims, reach)).collect();
            let (joint, asked) = self.joint(context, &requests)?;
            // Only those who saw others' boxes can see others' points.
            let rows: Vec<u32> =
                asked.iter().flat_map(|&g| (g * group..((g + 1) * group).min(rows)).map(|row| row as u32)).collect();
            if let Some(joint) = joint {
                let again = self.again(&mut context.recorder, &asking, &joint, &rows)?;
                let (mut near, mut far) = (vec![u64::MAX; rows.len() * k], vec![f32::INFINITY; rows.len() * k]);
                self.lists(&mut context.recorder, &joint, Some(&again), ask, &mut near, &mut far)?;
                for (at, &row) in rows.iter().enumerate() {
                    let (from, to) = (at * k..(at + 1) * k, row as usize * k..(row as usize + 1) * k);
                    index[to.clone()].copy_from_slice(&near[from.clone()]);
                    distance[to].copy_from_slice(&far[from]);
                }
            }
        }
        let mut answers = ResultRouting::default();
        for (i, &row) in asking.order.iter().enumerate() {
            answers.push(asking.numbers.of(row), &index[i * k..(i + 1) * k], &distance[i * k..(i + 1) * k]);
        }
        let RadiusResult { index, distance, .. } = self.delivered(&asking, answers)?;
        Ok(KnnResult { k: ask.k, index, distance })
    }

    /// How many of all points lie within a radius of each row. `within.rows` plays no part. All ranks call it.
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
        not_themselves(queries, within.which != PairFilter::All)?;
        let within = RadiusQuery { rows: RowOrder::Curve, ..*within };
        let asking = self.asking(context, queries)?;
        let seen = self.seen(context, &asking, within.radius)?;
        let (part, targets) =
            seen.as_ref().map_or((&self.points.own, asking.targets.as_ref()), |(part, t)| (part, Some(t)));
        let counts = self.radius.counts(&mut context.recorder, &part.tree, queries_at(targets), &within)?;
        let counts = context.recorder.download(&counts, 0, counts.len())?;
        let mut answers = ResultRouting::default();
        for (&row, &count) in asking.order.iter().zip(&counts) {
            answers.push(asking.numbers.of(row), &[u64::from(count)], &[0.0]);
        }
        Ok(self.delivered(&asking, answers)?.index)
    }

    /// All points within a radius of each row. `within.rows` plays no part. All ranks call it.
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
        not_themselves(queries, within.which != PairFilter::All)?;
        let within = RadiusQuery { rows: RowOrder::Curve, ..*within };
        let asking = self.asking(context, queries)?;
        let seen = self.seen(context, &asking, within.radius)?;
        let (part, targets) =
            seen.as_ref().map_or((&self.points.own, asking.targets.as_ref()), |(part, t)| (part, Some(t)));
        let lists = self.radius.lists(&mut context.recorder, &part.tree, queries_at(targets), &within)?;
        let NeighborLists { offset, index, distance } = lists;
        let offset = context.recorder.download(&offset, 0, offset.len())?;
        let index = context.recorder.download(&index, 0, index.len())?;
        let distance = context.recorder.download(&distance, 0, distance.len())?;
        let index: Vec<u64> = index.into_iter().map(|row| part.numbers.of(row)).collect();
        let mut answers = ResultRouting::default();
        for (&row, ends) in asking.order.iter().zip(offset.windows(2)) {
            let range = ends[0] as usize..ends[1] as usize;
            answers.push(asking.numbers.of(row), &index[range.clone()], &distance[range]);
        }
        self.delivered(&asking, answers)
    }

    /// How many pairs of all ranks have a distance in each bin: ordered pairs of two different points, or of one of `queries`
    /// and any point. The same on all ranks. All ranks call it.
    ///
    /// # Errors
    /// As [`Radius::pairs`], and those of the ranks.
    pub fn pairs(
        &self,
        context: &mut Context,
        queries: Option<&Cloud>,
        bins: &Bins,
    ) -> Result<Vec<u64>, NeighborError> {
        let asking = self.asking(context, queries)?;
        let seen = self.seen(context, &asking, bins.edges()[bins.len()])?;
        let (part, targets) =
            seen.as_ref().map_or((&self.points.own, asking.targets.as_ref()), |(part, t)| (part, Some(t)));
        let which = if queries.is_none() { PairFilter::Others } else { PairFilter::All };
        let words = context.gpu.array::<u32>("neighbors::bins", 2 * bins.len() as u64)?;
        context.recorder.clear(&words);
        self.radius.pairs(&mut context.recorder, &part.tree, queries_at(targets), bins, which, &words)?;
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

    /// Arranges the queries of all ranks: each goes to the rank that has the points around it.
    fn asking(&self, context: &mut Context, queries: Option<&Cloud>) -> Result<RankQueries, NeighborError> {
        let tree = &self.points.own.tree;
        let Some(cloud) = queries else {
            let order = match &self.points.region {
                Some(region) => region.order.clone(),
                None => context.recorder.download(tree.order(), 0, tree.len())?,
            };
            let numbers = self.points.own.numbers.clone();
            let points = self.points.region.as_ref().map_or_else(Vec::new, |region| region.points.clone());
            return Ok(RankQueries {
                targets: None,
                order,
                numbers,
                row_offsets: self.points.row_offsets.clone(),
                points,
            });
        };
        let row_offsets = row_offsets(&self.points.comm, cloud.len())?;
        if self.points.comm.size() == 1 {
            let targets = Targets::new(&mut context.recorder, &self.points.builder, cloud, tree)?;
            let order = context.recorder.download(targets.order(), 0, targets.len())?;
            return Ok(RankQueries {
                targets: Some(targets),
                order,
                numbers: GlobalIds::Rows,
                row_offsets,
                points: Vec::new(),
            });
        }
        let owners = self.points.owners(&mut context.recorder, cloud)?;
        let mut rows: Vec<u32> = (0..owners.len() as u32).collect();
        rows.sort_by_key(|&row| owners[row as usize]); // stable
        let mut sends = vec![0u64; self.points.comm.size()];
        owners.iter().for_each(|&owner| sends[owner] += 1);
        let came = self.points.comm.all_to_all_v(&rows, &sends)?;
        let receives = came.counts().to_vec();
        let numbers =
            came.iter().zip(&row_offsets).flat_map(|(rows, first)| rows.iter().map(move |&row| first + u64::from(row)));
        let numbers = GlobalIds::These(numbers.collect());
        let order = upload_u32(&mut context.recorder, &rows)?;
        let route = Route::new(&self.points.comm, order, sends, receives, None)?;
        let positions = route.forward(context, cloud.positions(), self.points.frame.dims as u64)?;
        let here = Cloud::new(&mut context.recorder, cloud.domain(), positions)?;
        // All ranks choose the same units.
        let extent = Extent::of(&here).of_all(&self.points.comm)?;
        let targets = Targets::new(&mut context.recorder, &self.points.builder, &here, tree)?.with_extent(extent);
        let order = context.recorder.download(targets.order(), 0, targets.len())?;
        let points = context.recorder.download(targets.positions(), 0, targets.positions().len())?;
        Ok(RankQueries { targets: Some(targets), order, numbers, row_offsets, points })
    }

    /// The lists of all queries along the curve, with numbers of the input.
    fn lists(
        &self,
        recorder: &mut Recorder,
        part: &Part,
        targets: Option<&Targets>,
        ask: &KnnQuery,
        index: &mut [u64],
        distance: &mut [f32],
    ) -> Result<(), NeighborError> {
        let queries = queries_at(targets);
        let rows = queries.len(&part.tree);
        let k = u64::from(ask.k);
        let per = (RESULTS / (8 * k.max(1))).max(LEAF) / LEAF * LEAF;
        for start in (0..rows).step_by(per as usize) {
            let lists = self.nearest.lists_of(recorder, &part.tree, queries, ask, start..(start + per).min(rows))?;
            let near = recorder.download(&lists.index, 0, lists.index.len())?;
            let far = recorder.download(&lists.distance, 0, lists.distance.len())?;
            let at = (start * k) as usize;
            distance[at..at + far.len()].copy_from_slice(&far);
            for (to, row) in index[at..].iter_mut().zip(near) {
                *to = if row == u32::MAX { u64::MAX } else { part.numbers.of(row) };
            }
        }
        Ok(())
    }

    /// This rank's points and those that its `requests` reach on others, if there are any on any rank; and which requests saw
    /// another rank's boxes.
    fn joint(&self, context: &mut Context, requests: &[Request]) -> Result<(Option<Part>, Vec<usize>), NeighborError> {
        let Some(joint) = self.points.joint(context, requests)? else { return Ok((None, Vec::new())) };
        let mut cost = self.cost.get();
        cost += joint.ghosts.cost();
        self.cost.set(cost);
        self.ghosts.set(joint.ghosts.len());
        let asked = if joint.part.is_some() { joint.ghosts.asked().to_vec() } else { Vec::new() };
        Ok((joint.part, asked))
    }

    /// The queries `rows` along the curve, as targets in a joint part.
    fn again(
        &self,
        recorder: &mut Recorder,
        asking: &RankQueries,
        joint: &Part,
        rows: &[u32],
    ) -> Result<Targets, NeighborError> {
        let dims = self.points.frame.dims as u64;
        let positions = asking.targets.as_ref().map_or(self.points.own.tree.positions(), Targets::positions);
        let picked = recorder.gpu().array::<f32>("neighbors::again", rows.len() as u64 * dims)?;
        let index = upload_u32(recorder, rows)?;
        self.points.permute.gather(recorder, positions, &index, &picked, dims, Count::All)?;
        let numbers: Vec<u32> = match (&asking.targets, &joint.numbers) {
            // Own points are found among the joint ones, so that they know themselves.
            (None, GlobalIds::These(all)) => {
                let place = |&row: &u32| {
                    let number = asking.numbers.of(asking.order[row as usize]);
                    all.partition_point(|&other| other < number) as u32
                };
                rows.iter().map(place).collect()
            }
            _ => rows.iter().map(|&row| asking.order[row as usize]).collect(),
        };
        let numbers = upload_u32(recorder, &numbers)?;
        let extent = asking.targets.as_ref().map_or(self.points.own.tree.extent(), Targets::extent);
        Ok(Targets::arranged(&joint.tree, picked, numbers, extent))
    }

    /// What queries see within a radius, where that is more than this rank has: the points, and the queries among them.
    fn seen(
        &self,
        context: &mut Context,
        asking: &RankQueries,
        radius: f32,
    ) -> Result<Option<(Part, Targets)>, NeighborError> {
        let dims = self.points.frame.dims;
        let groups = asking.points.chunks(LEAF as usize * dims);
        let requests: Vec<Request> = groups.filter_map(|points| Request::around(points, dims, radius)).collect();
        let (Some(joint), _) = self.joint(context, &requests)? else { return Ok(None) };
        let rows: Vec<u32> = (0..asking.order.len() as u32).collect();
        let targets = self.again(&mut context.recorder, asking, &joint, &rows)?;
        Ok(Some((joint, targets)))
    }

    /// Brings answers to the ranks that asked.
    fn delivered(&self, asking: &RankQueries, answers: ResultRouting) -> Result<RadiusResult, NeighborError> {
        let (rows, cost) = deliver(&self.points.comm, &asking.row_offsets, answers)?;
        let mut total = self.cost.get();
        total += cost;
        self.cost.set(total);
        Ok(rows)
    }
}

fn queries_at(targets: Option<&Targets>) -> Queries<'_> {
    targets.map_or(Queries::Own, Queries::At)
}

/// Refuses to leave out of queries' neighbours what has the same number: numbers of queries are not those of points.
fn not_themselves(queries: Option<&Cloud>, without: bool) -> Result<(), NeighborError> {
    if queries.is_some() && without {
        let why = "queries of their own are no points of the search, so none can be left out for being itself".into();
        return Err(DeviceError::Misuse { what: "DistributedSearch".into(), why }.into());
    }
    Ok(())
}
