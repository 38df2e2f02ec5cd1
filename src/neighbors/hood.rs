//! Neighbours among the points of all ranks.

use std::cell::Cell;

use super::answers::{Answers, NearbyRows, deliver};
use super::ask::{Ask, Rows, Which, Within, check_radius};
use super::error::NeighborError;
use super::nearest::Nearest;
use super::pairs::{Bins, wide};
use super::targets::{Queries, Targets};
use super::within::{Radius, Rows32};
use crate::comm::{Communicator, Op};
use crate::device::{Array, Recorder};
use crate::exchange::Exchange;
use crate::ghosts::{Ghosts, Region, Request};
use crate::layout::Cost;
use crate::particles::{Cloud, Curve, CurveKeys, Frame};
use crate::primitives::{Count, Permute};
use crate::sort::{Route, distribute};
use crate::tree::{Builder, LEAF, Tree};

/// Bytes of results on the device at a time.
const RESULTS: u64 = 128 << 20;

/// The nearest points of each row: `k` entries, nearest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nearby {
    /// Entries a row.
    pub k: u32,
    /// Numbers in the input of all ranks; `u64::MAX` where there are fewer.
    pub index: Vec<u64>,
    /// Distances; infinity where there are fewer.
    pub distance: Vec<f32>,
}

/// Numbers of rows in the input of all ranks.
enum Numbers {
    /// All of them, as they are on one rank.
    Rows,
    /// Ascending.
    These(Vec<u64>),
}

impl Numbers {
    fn of(&self, row: u32) -> u64 {
        match self {
            Numbers::Rows => u64::from(row),
            Numbers::These(numbers) => numbers[row as usize],
        }
    }
}

/// Points on this rank in the order of their numbers, and a tree over them.
struct Part {
    cloud: Cloud,
    numbers: Numbers,
    tree: Tree,
}

/// Queries of this rank, arranged along the curve.
struct Asking {
    /// `None`: the rank's own points.
    targets: Option<Targets>,
    /// Row of the query in what this rank was asked, along the curve.
    order: Vec<u32>,
    /// The query's number in the input of all ranks, by row.
    numbers: Numbers,
    /// How many rows of the input each rank and those before it have.
    firsts: Vec<u64>,
    /// Scaled points along the curve; empty on one rank, where nobody is asked.
    points: Vec<f32>,
}

/// The points of all ranks, distributed for searches: each rank has a piece of a Hilbert curve through all of them, of equal
/// size, and fetches what else its queries see.
///
/// - Every method is called by all ranks. Rows are those of the input that this rank gave, in its order; numbers count the rows
///   of all ranks, in rank order.
/// - Results are the same to the last bit for any number of ranks.
/// - A search moves requests, ghosts (points and numbers) and results: 4 exchanges, in [`cost`](Self::cost) with what is
///   in the [`Exchange`].
///
/// ```
/// use meshloom::{Error, Launch, device::{Options, Recorder}, exchange::Exchange, launch};
/// use meshloom::neighbors::{Ask, Neighborhood};
/// use meshloom::particles::{Cloud, Domain};
///
/// let nearest = launch(Launch::Threads(3), &Options::from_env()?, |rank| {
///     let (mut recorder, mut exchange) = (Recorder::new(&rank.gpu)?, Exchange::new(rank.comm.clone()));
///     let domain = Domain::new(&[9.0, 0.0])?;
///     let x = [0.0, 3.5, 7.0][rank.comm.rank()]; // two points a rank
///     let cloud = Cloud::from_host(&mut recorder, &domain, &[x, 0.0, x + 1.0, 0.0])?;
///     let hood = Neighborhood::new(&mut recorder, &mut exchange, &cloud)?;
///     let ask = Ask { without_self: true, ..Ask::nearest(2) };
///     Ok::<_, Error>(hood.nearest(&mut recorder, &mut exchange, None, &ask)?.index)
/// })?;
/// assert_eq!(nearest, [[1, 5, 0, 5], [3, 1, 2, 4], [5, 0, 0, 4]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Neighborhood {
    comm: Communicator,
    builder: Builder,
    nearest: Nearest,
    radius: Radius,
    permute: Permute,
    frame: Frame,
    own: Part,
    /// What others ask for; none on one rank.
    region: Option<Region>,
    /// How many rows of the input the ranks before each one have.
    firsts: Vec<u64>,
    /// The first key of each rank's piece of the curve; those of empty ranks are those of the next.
    keys: Vec<u64>,
    cost: Cell<Cost>,
    ghosts: Cell<u64>,
}

fn firsts(comm: &Communicator, rows: u64) -> Result<Vec<u64>, NeighborError> {
    let counts = comm.all_gather(&[rows])?;
    Ok(counts.iter().scan(0, |next, &count| Some(std::mem::replace(next, *next + count))).collect())
}

fn uploaded(recorder: &mut Recorder, words: &[u32]) -> Result<Array<u32>, NeighborError> {
    let array = recorder.gpu().array("neighbors::rows", words.len() as u64)?;
    recorder.upload(&array, 0, words)?;
    Ok(array)
}

impl Neighborhood {
    /// Distributes the points of all ranks' clouds (attributes stay behind) and builds the trees. All ranks call it.
    ///
    /// # Errors
    /// [`NeighborError`] of the points, the device or the ranks.
    pub fn new(recorder: &mut Recorder, exchange: &mut Exchange, cloud: &Cloud) -> Result<Self, NeighborError> {
        let (gpu, comm) = (recorder.gpu().clone(), exchange.comm().clone());
        let (builder, permute) = (Builder::new(&gpu), Permute::new());
        let firsts = firsts(&comm, cloud.len())?;
        let bare = Cloud::new(recorder, cloud.domain(), cloud.positions().clone())?;
        let (own, frame, keys, region);
        if comm.size() == 1 {
            frame = Frame::new(bare.domain(), bare.bounds());
            let tree = builder.build(recorder, &bare, &frame)?;
            (own, keys, region) = (Part { cloud: bare, numbers: Numbers::Rows, tree }, vec![0], None);
        } else {
            let sorted = distribute(recorder, exchange, &bare, Curve::Hilbert)?;
            frame = sorted.frame;
            let numbers = sorted.index(recorder)?;
            let mut order: Vec<u32> = (0..numbers.len() as u32).collect();
            order.sort_unstable_by_key(|&row| numbers[row as usize]);
            let rows = uploaded(recorder, &order)?;
            let cloud = sorted.cloud.gather(recorder, &permute, &rows)?;
            let numbers = order.iter().map(|&row| numbers[row as usize]).collect();
            let tree = builder.build(recorder, &cloud, &frame)?;
            region = Some(Region::of(recorder, &tree)?);
            own = Part { cloud, numbers: Numbers::These(numbers), tree };
            let first = match own.cloud.is_empty() {
                true => u64::MAX,
                false => {
                    let [high, low] = &sorted.keys;
                    let word = |recorder: &mut Recorder, key: &Array<u32>| recorder.download(key, 0, 1);
                    u64::from(word(recorder, high)?[0]) << 32 | u64::from(word(recorder, low)?[0])
                }
            };
            let mut all = comm.all_gather(&[first])?;
            for rank in (0..all.len() - 1).rev() {
                all[rank] = all[rank].min(all[rank + 1]);
            }
            keys = all;
        }
        Ok(Neighborhood {
            nearest: Nearest::new(&gpu),
            radius: Radius::new(&gpu),
            comm,
            builder,
            permute,
            frame,
            own,
            region,
            firsts,
            keys,
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
        recorder: &mut Recorder,
        exchange: &mut Exchange,
        queries: Option<&Cloud>,
        ask: &Ask,
    ) -> Result<Nearby, NeighborError> {
        ask.check()?;
        let asking = self.asking(recorder, exchange, queries)?;
        let k = ask.k as usize;
        let rows = asking.order.len();
        let (mut index, mut distance) = (vec![u64::MAX; rows * k], vec![f32::INFINITY; rows * k]);
        self.lists(recorder, &self.own, asking.targets.as_ref(), ask, &mut index, &mut distance)?;
        if self.comm.size() > 1 && k > 0 {
            // How far each group sees: to the last of its neighbours, or to where it wants to.
            let scale = self.own.tree.scale();
            let far = |row: &[f32]| row[k - 1].min(ask.within);
            let group = LEAF as usize;
            let reach: Vec<f32> =
                distance.chunks(group * k).map(|rows| rows.chunks(k).map(far).fold(0.0, f32::max)).collect();
            let dims = self.frame.dims;
            let groups = asking.points.chunks(group * dims).zip(&reach);
            let requests: Vec<Request> =
                groups.filter_map(|(points, &reach)| Request::around(points, dims, reach * scale)).collect();
            let (joint, asked) = self.joint(recorder, exchange, &requests)?;
            // Only those who saw others' boxes can see others' points.
            let rows: Vec<u32> =
                asked.iter().flat_map(|&g| (g * group..((g + 1) * group).min(rows)).map(|row| row as u32)).collect();
            if let Some(joint) = joint {
                let again = self.again(recorder, &asking, &joint, &rows)?;
                let (mut near, mut far) = (vec![u64::MAX; rows.len() * k], vec![f32::INFINITY; rows.len() * k]);
                self.lists(recorder, &joint, Some(&again), ask, &mut near, &mut far)?;
                for (at, &row) in rows.iter().enumerate() {
                    let (from, to) = (at * k..(at + 1) * k, row as usize * k..(row as usize + 1) * k);
                    index[to.clone()].copy_from_slice(&near[from.clone()]);
                    distance[to].copy_from_slice(&far[from]);
                }
            }
        }
        let mut answers = Answers::default();
        for (i, &row) in asking.order.iter().enumerate() {
            answers.push(asking.numbers.of(row), &index[i * k..(i + 1) * k], &distance[i * k..(i + 1) * k]);
        }
        let NearbyRows { index, distance, .. } = self.delivered(&asking, answers)?;
        Ok(Nearby { k: ask.k, index, distance })
    }

    /// How many of all points lie within a radius of each row. `within.rows` plays no part. All ranks call it.
    ///
    /// # Errors
    /// As [`Radius::counts`], and those of the ranks.
    pub fn counts(
        &self,
        recorder: &mut Recorder,
        exchange: &mut Exchange,
        queries: Option<&Cloud>,
        within: &Within,
    ) -> Result<Vec<u64>, NeighborError> {
        check_radius(within.radius)?;
        let within = Within { rows: Rows::Curve, ..*within };
        let asking = self.asking(recorder, exchange, queries)?;
        let seen = self.seen(recorder, exchange, &asking, within.radius)?;
        let (part, targets) = seen.as_ref().map_or((&self.own, asking.targets.as_ref()), |(part, t)| (part, Some(t)));
        let counts = self.radius.counts(recorder, &part.tree, queries_at(targets), &within)?;
        let counts = recorder.download(&counts, 0, counts.len())?;
        let mut answers = Answers::default();
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
        recorder: &mut Recorder,
        exchange: &mut Exchange,
        queries: Option<&Cloud>,
        within: &Within,
    ) -> Result<NearbyRows, NeighborError> {
        check_radius(within.radius)?;
        let within = Within { rows: Rows::Curve, ..*within };
        let asking = self.asking(recorder, exchange, queries)?;
        let seen = self.seen(recorder, exchange, &asking, within.radius)?;
        let (part, targets) = seen.as_ref().map_or((&self.own, asking.targets.as_ref()), |(part, t)| (part, Some(t)));
        let lists = self.radius.lists(recorder, &part.tree, queries_at(targets), &within)?;
        let Rows32 { offset, index, distance } = lists;
        let offset = recorder.download(&offset, 0, offset.len())?;
        let index = recorder.download(&index, 0, index.len())?;
        let distance = recorder.download(&distance, 0, distance.len())?;
        let index: Vec<u64> = index.into_iter().map(|row| part.numbers.of(row)).collect();
        let mut answers = Answers::default();
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
        recorder: &mut Recorder,
        exchange: &mut Exchange,
        queries: Option<&Cloud>,
        bins: &Bins,
    ) -> Result<Vec<u64>, NeighborError> {
        let asking = self.asking(recorder, exchange, queries)?;
        let seen = self.seen(recorder, exchange, &asking, bins.edges()[bins.len()])?;
        let (part, targets) = seen.as_ref().map_or((&self.own, asking.targets.as_ref()), |(part, t)| (part, Some(t)));
        let which = if queries.is_none() { Which::Others } else { Which::All };
        let words = recorder.gpu().array::<u32>("neighbors::bins", 2 * bins.len() as u64)?;
        recorder.clear(&words);
        self.radius.pairs(recorder, &part.tree, queries_at(targets), bins, which, &words)?;
        let mut counts = wide(&recorder.download(&words, 0, words.len())?);
        self.comm.all_reduce(&mut counts, Op::Sum)?;
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
    fn asking(
        &self,
        recorder: &mut Recorder,
        exchange: &mut Exchange,
        queries: Option<&Cloud>,
    ) -> Result<Asking, NeighborError> {
        let tree = &self.own.tree;
        let Some(cloud) = queries else {
            let order = match &self.region {
                Some(region) => region.order.clone(),
                None => recorder.download(tree.order(), 0, tree.len())?,
            };
            let numbers = match &self.own.numbers {
                Numbers::Rows => Numbers::Rows,
                Numbers::These(numbers) => Numbers::These(numbers.clone()),
            };
            let points = self.region.as_ref().map_or_else(Vec::new, |region| region.points.clone());
            return Ok(Asking { targets: None, order, numbers, firsts: self.firsts.clone(), points });
        };
        let firsts = firsts(&self.comm, cloud.len())?;
        if self.comm.size() == 1 {
            let targets = Targets::new(recorder, &self.builder, cloud, tree)?;
            let order = recorder.download(targets.order(), 0, targets.len())?;
            return Ok(Asking { targets: Some(targets), order, numbers: Numbers::Rows, firsts, points: Vec::new() });
        }
        let owners = self.owners(recorder, cloud)?;
        let mut rows: Vec<u32> = (0..owners.len() as u32).collect();
        rows.sort_by_key(|&row| owners[row as usize]); // stable
        let mut sends = vec![0u64; self.comm.size()];
        owners.iter().for_each(|&owner| sends[owner] += 1);
        let came = self.comm.all_to_all_v(&rows, &sends)?;
        let receives = came.counts().to_vec();
        let numbers =
            came.iter().zip(&firsts).flat_map(|(rows, first)| rows.iter().map(move |&row| first + u64::from(row)));
        let numbers = Numbers::These(numbers.collect());
        let order = uploaded(recorder, &rows)?;
        let route = Route::new(&self.comm, order, sends, receives, None).map_err(NeighborError::from)?;
        let positions = route.forward(recorder, exchange, cloud.positions(), self.frame.dims as u64)?;
        let here = Cloud::new(recorder, cloud.domain(), positions)?;
        let targets = Targets::new(recorder, &self.builder, &here, tree)?;
        let order = recorder.download(targets.order(), 0, targets.len())?;
        let points = recorder.download(targets.positions(), 0, targets.positions().len())?;
        Ok(Asking { targets: Some(targets), order, numbers, firsts, points })
    }

    /// The rank that has the piece of the curve each point lies in.
    fn owners(&self, recorder: &mut Recorder, cloud: &Cloud) -> Result<Vec<usize>, NeighborError> {
        let gpu = recorder.gpu().clone();
        let [high, low] = [gpu.array("neighbors::high", cloud.len())?, gpu.array("neighbors::low", cloud.len())?];
        CurveKeys::new().record(recorder, Curve::Hilbert, cloud.positions(), &self.frame, &high, &low)?;
        let (high, low) = (recorder.download(&high, 0, high.len())?, recorder.download(&low, 0, low.len())?);
        let owner = |(high, low): (u32, u32)| {
            let key = u64::from(high) << 32 | u64::from(low);
            self.keys.partition_point(|&first| first <= key).saturating_sub(1)
        };
        Ok(high.into_iter().zip(low).map(owner).collect())
    }

    /// The lists of all queries along the curve, with numbers of the input.
    fn lists(
        &self,
        recorder: &mut Recorder,
        part: &Part,
        targets: Option<&Targets>,
        ask: &Ask,
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
    fn joint(
        &self,
        recorder: &mut Recorder,
        exchange: &mut Exchange,
        requests: &[Request],
    ) -> Result<(Option<Part>, Vec<usize>), NeighborError> {
        let Some(region) = &self.region else { return Ok((None, Vec::new())) };
        let ghosts = Ghosts::find(recorder, exchange, region, requests)?;
        let dims = self.frame.dims as u64;
        let gpu = recorder.gpu().clone();
        let own = match &self.own.numbers {
            Numbers::These(numbers) => numbers.as_slice(),
            Numbers::Rows => &[],
        };
        let words: Vec<[u32; 2]> = own.iter().map(|&number| [number as u32, (number >> 32) as u32]).collect();
        let numbers = uploaded(recorder, words.as_flattened())?;
        let theirs = ghosts.refresh(recorder, exchange, &numbers, 2)?;
        let positions = ghosts.refresh(recorder, exchange, self.own.cloud.positions(), dims)?;
        let mut cost = self.cost.get();
        cost += ghosts.cost();
        self.cost.set(cost);
        self.ghosts.set(ghosts.len());
        if ghosts.is_empty() {
            return Ok((None, Vec::new()));
        }
        let theirs = recorder.download(&theirs, 0, theirs.len())?;
        let theirs = theirs.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32);
        let all: Vec<u64> = own.iter().copied().chain(theirs).collect();
        let mut order: Vec<u32> = (0..all.len() as u32).collect();
        order.sort_unstable_by_key(|&row| all[row as usize]);
        let both = gpu.array::<f32>("neighbors::joint", all.len() as u64 * dims)?;
        recorder.copy(self.own.cloud.positions(), 0, &both, 0, own.len() as u64 * dims)?;
        recorder.copy(&positions, 0, &both, own.len() as u64 * dims, ghosts.len() * dims)?;
        let rows = uploaded(recorder, &order)?;
        let sorted = gpu.array::<f32>("neighbors::joint", both.len())?;
        self.permute.gather(recorder, &both, &rows, &sorted, dims, Count::All)?;
        let cloud = Cloud::new(recorder, self.own.cloud.domain(), sorted)?;
        let tree = self.builder.build(recorder, &cloud, &self.frame)?;
        let numbers = Numbers::These(order.into_iter().map(|row| all[row as usize]).collect());
        Ok((Some(Part { cloud, numbers, tree }), ghosts.asked().to_vec()))
    }

    /// The queries `rows` along the curve, as targets in a joint part.
    fn again(
        &self,
        recorder: &mut Recorder,
        asking: &Asking,
        joint: &Part,
        rows: &[u32],
    ) -> Result<Targets, NeighborError> {
        let dims = self.frame.dims as u64;
        let positions = asking.targets.as_ref().map_or(self.own.tree.positions(), Targets::positions);
        let picked = recorder.gpu().array::<f32>("neighbors::again", rows.len() as u64 * dims)?;
        let index = uploaded(recorder, rows)?;
        self.permute.gather(recorder, positions, &index, &picked, dims, Count::All)?;
        let numbers: Vec<u32> = match (&asking.targets, &joint.numbers) {
            // Own points are found among the joint ones, so that they know themselves.
            (None, Numbers::These(all)) => {
                let place = |&row: &u32| {
                    let number = asking.numbers.of(asking.order[row as usize]);
                    all.partition_point(|&other| other < number) as u32
                };
                rows.iter().map(place).collect()
            }
            _ => rows.iter().map(|&row| asking.order[row as usize]).collect(),
        };
        let numbers = uploaded(recorder, &numbers)?;
        Ok(Targets::like(&joint.tree, picked, numbers))
    }

    /// What queries see within a radius, where that is more than this rank has: the points, and the queries among them.
    fn seen(
        &self,
        recorder: &mut Recorder,
        exchange: &mut Exchange,
        asking: &Asking,
        radius: f32,
    ) -> Result<Option<(Part, Targets)>, NeighborError> {
        let (dims, reach) = (self.frame.dims, radius * self.own.tree.scale());
        let groups = asking.points.chunks(LEAF as usize * dims);
        let requests: Vec<Request> = groups.filter_map(|points| Request::around(points, dims, reach)).collect();
        let (Some(joint), _) = self.joint(recorder, exchange, &requests)? else { return Ok(None) };
        let rows: Vec<u32> = (0..asking.order.len() as u32).collect();
        let targets = self.again(recorder, asking, &joint, &rows)?;
        Ok(Some((joint, targets)))
    }

    /// Brings answers to the ranks that asked.
    fn delivered(&self, asking: &Asking, answers: Answers) -> Result<NearbyRows, NeighborError> {
        let (rows, cost) = deliver(&self.comm, &asking.firsts, answers)?;
        let mut total = self.cost.get();
        total += cost;
        self.cost.set(total);
        Ok(rows)
    }
}

fn queries_at(targets: Option<&Targets>) -> Queries<'_> {
    targets.map_or(Queries::Own, Queries::At)
}
