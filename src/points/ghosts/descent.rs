//! Finding which points of this rank are near which points of others: ranks descend their trees
//! together.
//!
//! A rank that wants to know sends the boxes of its topmost nodes to the ranks near them. Each
//! answers with the box around what it has there, and the next round sends the nodes below those
//! that got an answer and reach that box, down to parts of leaves. So a rank sends few boxes far
//! from other ranks' points, and none of them is tested against all boxes of another rank.
//!
//! At its end ranks request the points near those that are left. Requests, their answers and what
//! they cost are here as well.

use bytemuck::{Pod, Zeroable};

use super::{Fetcher, Met, Reach, Region, Span};
use crate::comm::{CommError, Communicator, GatheredParts};
use crate::gpu::DeviceError;
use crate::grid::Cost;
use crate::host_memory::{self, HostMemoryError};
use crate::points::Bounds;

/// Data that all ranks know of each other.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Outline {
    bounds: Bounds,
    levels: u32,
}

/// Points of this rank, the rank that is asked about them, and the box around what that has near
/// them.
#[derive(Clone, Copy)]
struct Ask {
    rank: u32,
    span: Span,
    near: Bounds,
}

/// A point of this rank, and a rank that may have points within its reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub rank: u32,
    /// Place along the curve.
    pub at: usize,
}

/// One descent of this rank's tree; all ranks descend together.
pub(crate) struct Descent<'a> {
    comm: &'a Communicator,
    region: &'a Region,
    reach: &'a Reach,
    /// By rank.
    asks: Vec<Ask>,
    rounds: usize,
    cost: Cost,
}

impl<'a> Descent<'a> {
    /// Begins with the topmost nodes of `region`, and the ranks for which `asked` holds. `own` is
    /// of this rank's points, about which others ask. One all-gather of 28 bytes a rank. All ranks
    /// call it.
    pub fn new(
        comm: &'a Communicator,
        region: &'a Region,
        reach: &'a Reach,
        own: &Region,
        asked: impl Fn(usize) -> bool,
    ) -> Result<Self, CommError> {
        let outlines = comm.all_gather(&[Outline { bounds: own.bounds(), levels: region.levels.count() as u32 }])?;
        // All levels, and parts of leaves.
        let rounds = outlines.iter().map(|outline| outline.levels as usize + 1).max().unwrap_or(0);
        let mut descent = Descent { comm, region, reach, asks: Vec::new(), rounds, cost: Cost::default() };
        for (rank, &Outline { bounds: near, .. }) in outlines.iter().enumerate() {
            if rank != comm.rank() && asked(rank) && !near.is_empty() {
                let top = region.top().map(|node| Span::Node(region.levels.count() - 1, node));
                let asks = top.map(|span| Ask { rank: rank as u32, span, near });
                let asks: Vec<Ask> = asks.filter(|ask| descent.reaches(ask)).collect();
                descent.asks.extend(asks);
            }
        }
        Ok(descent)
    }

    /// Descends to the points. `request` makes what is sent for some points, given their box;
    /// `answer` takes what a rank has sent, and gives the box around what is near it here, or an
    /// empty one. Returns this rank's points that are within reach of the last answers, by rank and
    /// place, and what it has cost. `fetcher` has all that these ask for. Two exchanges of the host
    /// for each level and one below. Collective.
    pub fn run<T: Pod, E: From<CommError> + From<DeviceError>>(
        mut self,
        fetcher: &mut Fetcher<'_>,
        request: impl Fn(Span, Bounds) -> T,
        mut answer: impl FnMut(usize, &T) -> Bounds,
    ) -> Result<(Vec<Pending>, Cost), E> {
        let own = self.region.levels.count() + 1;
        for round in 0..self.rounds {
            // Ranks with fewer levels are done earlier, and only answer then.
            let asks = if round < own { &self.asks[..] } else { &[] };
            let of = |ask: &Ask| request(ask.span, self.region.bounds_of(ask.span));
            let requests: Vec<T> = fetcher.complete(|| asks.iter().map(of).collect())?;
            let ranks: Vec<u32> = asks.iter().map(|ask| ask.rank).collect();
            let answers =
                |asked: &[(usize, &T)]| Ok::<_, E>(fetcher.each(asked, |(rank, request)| answer(rank, request))?);
            let (answers, cost) = ask(self.comm, &requests, &ranks, answers)?;
            self.cost += cost;
            self.asks.iter_mut().zip(answers).for_each(|(ask, near)| ask.near = near);
            self.asks.retain(|ask| !ask.near.is_empty());
            if round + 1 < own {
                self.asks = fetcher.complete(|| self.below())?;
            }
        }
        Ok((fetcher.complete(|| self.points())?, self.cost))
    }

    /// Returns what the points that were asked about consist of, as far as it reaches what is near.
    fn below(&self) -> Vec<Ask> {
        let parts = |ask: &Ask| {
            let ask = *ask;
            self.region.parts(ask.span).into_iter().map(move |span| Ask { span, ..ask })
        };
        self.asks.iter().flat_map(parts).filter(|ask| self.reaches(ask)).collect()
    }

    /// Returns `true` if points reach what is near.
    fn reaches(&self, ask: &Ask) -> bool {
        let reach = self.reach.of(self.region, ask.span);
        self.region.bounds_of(ask.span).may_reach(&ask.near, reach, &self.region.side)
    }

    /// Returns the single points that reach what is near.
    fn points(&self) -> Vec<Pending> {
        let mut points = Vec::new();
        for ask in &self.asks {
            let reaches = |at: &usize| {
                let point = Bounds::point(self.region.point(*at));
                point.may_reach(&ask.near, self.reach.of_point(*at), &self.region.side)
            };
            points.extend(self.region.places(ask.span).filter(reaches).map(|at| Pending { rank: ask.rank, at }));
        }
        points
    }
}

/// Sends each request to its rank, of which `ranks` has one for each, ascending; returns the
/// answers in the same order, and what it has cost. `answer` gives those to the requests that came
/// here, of which it gets the rank and the request. Two exchanges of the host. Collective.
pub(crate) fn ask<T: Pod, A: Pod, E: From<CommError>>(
    comm: &Communicator,
    requests: &[T],
    ranks: &[u32],
    answer: impl FnOnce(&[(usize, &T)]) -> Result<Vec<A>, E>,
) -> Result<(Vec<A>, Cost), E> {
    let mut cost = Cost::default();
    let asked = send(comm, requests, &count(ranks, comm.size()), &mut cost)?;
    let answered = send(comm, &answer(&with_ranks(&asked))?, asked.counts(), &mut cost)?;
    Ok((answered.into_raw().0, cost))
}

/// Sends elements in the order of their ranks, `counts` of them to each, and adds what this costs.
/// Collective.
pub(crate) fn send<T: Pod>(
    comm: &Communicator,
    elements: &[T],
    counts: &[u64],
    cost: &mut Cost,
) -> Result<GatheredParts<T>, CommError> {
    let received = comm.all_to_all_v(elements, counts)?;
    *cost += cost_of::<T>(counts, received.counts(), comm.rank());
    Ok(received)
}

/// Returns what came from all ranks, one by one, each with its rank.
pub(crate) fn with_ranks<T: Pod>(parts: &GatheredParts<T>) -> Vec<(usize, &T)> {
    fn of_rank<T>((rank, of_rank): (usize, &[T])) -> impl Iterator<Item = (usize, &T)> {
        of_rank.iter().map(move |one| (rank, one))
    }
    parts.iter().enumerate().flat_map(of_rank).collect()
}

/// Returns how often each rank occurs.
pub(crate) fn count(ranks: &[u32], size: usize) -> Vec<u64> {
    let mut counts = vec![0; size];
    ranks.iter().for_each(|&rank| counts[rank as usize] += 1);
    counts
}

/// Returns what elements sent to and received from each rank cost this one, `me`.
fn cost_of<T>(sent: &[u64], received: &[u64], me: usize) -> Cost {
    let others = |counts: &[u64]| {
        let others = counts.iter().enumerate().filter(|(rank, count)| *rank != me && **count > 0);
        others.map(|(_, count)| count * size_of::<T>() as u64).collect::<Vec<_>>()
    };
    let sent = others(sent);
    Cost {
        sent_bytes: sent.iter().sum(),
        received_bytes: others(received).iter().sum(),
        messages: sent.len() as u64,
        ..Cost::default()
    }
}

/// The length of a box, in units of its reach, up to which points are asked for together.
const TOGETHER: f64 = 0.5;

/// A box around points, and the farthest reach of any.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Request {
    pub bounds: Bounds,
    pub reach: f32,
}

/// Requests for what points of `region` may reach on other ranks, and the rank that each is for.
/// Points of a rank that follow each other on the curve are asked for together as long as their box
/// is short compared with their reach: alone where points are sparse, and not one by one where they
/// are dense.
pub(super) fn requests(region: &Region, reach: &Reach, pending: &[Pending]) -> (Vec<Request>, Vec<u32>) {
    let (mut requests, mut ranks): (Vec<Request>, Vec<u32>) = (Vec::new(), Vec::new());
    for &Pending { rank, at } in pending {
        let (bounds, reach) = (Bounds::point(region.point(at)), reach.of_point(at));
        if let (Some(last), Some(&same)) = (requests.last_mut(), ranks.last())
            && same == rank
        {
            let mut joint = Request { reach: last.reach.max(reach), ..*last };
            joint.bounds.include(&bounds);
            if joint.bounds.diagonal() <= (TOGETHER * f64::from(joint.reach)).powi(2) {
                *last = joint;
                continue;
            }
        }
        requests.push(Request { bounds, reach });
        ranks.push(rank);
    }
    (requests, ranks)
}

/// Returns the box around what a node reaches here: of points, and of nodes that are no longer than
/// half of it or its reach.
pub(super) fn near(region: &Region, request: &Request) -> Bounds {
    let Request { bounds, reach } = request;
    let (mut near, size) = (Bounds::EMPTY, (0.25 * bounds.diagonal()).max(f64::from(*reach).powi(2)));
    region.walk(bounds, *reach, |met, held| {
        let large = matches!(met, Met::Node(..)) && held.diagonal() > size;
        if !large {
            near.include(held);
        }
        large
    });
    near
}

/// Finds the points that other ranks reach, one rank after the other. Memory: a byte per point and
/// node.
pub(super) struct Nearby<'a> {
    region: &'a Region,
    points: Vec<bool>,
    /// Nodes of which all points are reached.
    nodes: Vec<bool>,
}

impl<'a> Nearby<'a> {
    pub fn new(region: &'a Region) -> Result<Self, HostMemoryError> {
        let (points, nodes) = (region.len() as usize, region.levels.total() as usize);
        Ok(Nearby {
            region,
            points: host_memory::fill("marks of ghosts", false, points)?,
            nodes: host_memory::fill("marks of ghosts", false, nodes)?,
        })
    }

    /// Places along the curve, ascending, of the points that any of one rank's requests reaches.
    pub fn places(&mut self, requests: &[Request]) -> Vec<u32> {
        let Nearby { region, points, nodes } = self;
        let (mut reached, mut whole) = (Vec::new(), Vec::new());
        for Request { bounds, reach } in requests {
            region.walk(bounds, *reach, |met, held| {
                let places = match met {
                    Met::Node(level, node) => {
                        let number = (region.levels.start(level) + node) as usize;
                        if nodes[number] || !bounds.surely_reaches(held, *reach, &region.side) {
                            return !nodes[number];
                        }
                        nodes[number] = true;
                        whole.push(number);
                        region.levels.points(level, node)
                    }
                    Met::Point(at) => at as u64..at as u64 + 1,
                };
                let places = places.map(|at| at as usize);
                reached.extend(places.filter(|&at| !std::mem::replace(&mut points[at], true)));
                false
            });
        }
        // For the next rank.
        reached.iter().for_each(|&at| points[at] = false);
        whole.iter().for_each(|&node| nodes[node] = false);
        let mut places: Vec<u32> = reached.into_iter().map(|at| at as u32).collect();
        places.sort_unstable();
        places
    }
}

#[cfg(test)]
mod tests {
    use super::super::region::Met;
    use super::*;
    use crate::comm::run_threads;
    use crate::exchange::ExchangeError;
    use crate::points::{Curve, Domain, Frame};

    /// Coordinates of `n` points in the unit cube, along the curve.
    fn points(n: u32) -> Vec<f32> {
        let domain = Domain::new(&[1.0; 3]).unwrap();
        let frame = Frame::new(&domain, None);
        let at = |i: u32| [0.618_034, 0.754_878, 0.569_840].map(|step| (f64::from(i + 1) * step).fract() as f32);
        let mut points: Vec<[f32; 3]> = (0..n).map(at).collect();
        points.sort_by_key(|point| frame.key(Curve::Hilbert, point));
        points.into_flattened()
    }

    #[test]
    fn no_point_that_reaches_another_rank_is_left_out() {
        // All ranks alike, and one without points, one with few and one with most.
        for ends in [&[0, 500, 1000, 1500, 2000][..], &[0, 0, 40, 2000], &[0, 1, 1]] {
            let n = ends[ends.len() - 1];
            let all = points(n as u32);
            let part = |rank: usize| Region::over(3, [1.0, 1.0, 0.0], &all[3 * ends[rank]..3 * ends[rank + 1]]);
            run_threads(ends.len() - 1, |comm| {
                let region = part(comm.rank());
                let far = |at: usize| if at.is_multiple_of(50) { 0.1 } else { 0.02 };
                let reach = Reach::on_host(&region, &(0..region.len() as usize).map(far).collect::<Vec<f32>>());
                let descent = Descent::new(&comm, &region, &reach, &region, |_| true)?;
                let request = |span, bounds| Request { bounds, reach: reach.of(&region, span) };
                let (pending, cost) =
                    descent.run::<_, ExchangeError>(&mut Fetcher::of_host(), request, |_, request| {
                        near(&region, request)
                    })?;
                for rank in (0..comm.size()).filter(|&rank| rank != comm.rank()) {
                    let others = part(rank);
                    let mut reached = Vec::new();
                    for at in 0..region.len() as usize {
                        let (point, mut met) = (Bounds::point(region.point(at)), false);
                        others.walk(&point, reach.of_point(at), |what, _| {
                            met |= matches!(what, Met::Point(_));
                            true
                        });
                        reached.extend(met.then_some(at));
                    }
                    let told: Vec<usize> =
                        pending.iter().filter(|told| told.rank as usize == rank).map(|told| told.at).collect();
                    assert!(told.is_sorted() && reached.iter().all(|at| told.binary_search(at).is_ok()));
                    // Most points are spared by boxes.
                    assert!(told.len() <= region.len() as usize / 2, "{} for {}", told.len(), reached.len());
                }
                assert_eq!(cost.messages == 0, region.len() == 0 || n < 2);
                Ok::<_, ExchangeError>(())
            })
            .unwrap();
        }
    }

    fn region() -> Region {
        let points: Vec<f32> =
            (0..1000).flat_map(|i| [(i as f32 * 0.618).fract(), (i as f32 * 0.414).fract()]).collect();
        Region::over(2, [1.0, 0.0, 0.0], &points)
    }

    fn around(at: &[f32], reach: f32) -> Request {
        Request { bounds: Bounds::point(at), reach }
    }

    #[test]
    fn the_points_that_are_reached_are_those_of_brute_force() {
        let region = region();
        let mut nearby = Nearby::new(&region).unwrap();
        let few: Vec<Request> = (0..7).map(|i| around(&[0.95 + 0.02 * i as f32, 0.3], 0.02 * i as f32)).collect();
        let flat = Request { bounds: Bounds { low: [0.1, 0.6, 0.0], high: [0.9, 0.6, 0.0] }, reach: 0.03 };
        // The last one reaches whole nodes.
        let many = [few[2], flat, few[5], around(&[0.5, 0.5], 0.4)];
        for requests in [&few[..], &many[..], &few[..1], &[]] {
            let near = |at: usize| {
                let point = Bounds::point(region.point(at));
                requests.iter().any(|request| request.bounds.may_reach(&point, request.reach, &region.side))
            };
            let want: Vec<u32> = (0..1000).filter(|&at| near(at as usize)).collect();
            assert_eq!(nearby.places(requests), want, "{} requests", requests.len());
        }
        let everything = around(&[0.0, 0.0], f32::INFINITY);
        assert_eq!(nearby.places(&[few[3], everything]), (0..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn points_are_asked_for_together_where_they_are_dense() {
        let points: Vec<f32> =
            (0..100).flat_map(|i| [if i < 50 { i as f32 } else { 50.0 + 0.01 * i as f32 }, 0.0]).collect();
        let region = Region::over(2, [0.0; 3], &points);
        let pending: Vec<Pending> =
            (0..3).flat_map(|rank| (0..100).filter(move |&at| at != 20).map(move |at| Pending { rank, at })).collect();
        for reach in [
            Reach::Same(1.9),
            Reach::on_host(&region, &std::array::from_fn::<_, 100, _>(|i| if i == 70 { 1.9 } else { 1.0 })),
        ] {
            let (requests, ranks) = requests(&region, &reach, &pending);
            assert!(requests.len() == ranks.len() && ranks.is_sorted());
            assert_eq!(requests.iter().filter(|request| request.bounds.diagonal() == 0.0).count(), 3 * 49);
            assert!(requests.len() <= 3 * (49 + 3), "{}", requests.len());
            for &Pending { rank, at } in &pending {
                let point = Bounds::point(region.point(at));
                let mut of = requests.iter().zip(&ranks).filter(|(_, other)| **other == rank);
                let holds = |request: &Request| {
                    let mut joint = request.bounds;
                    joint.include(&point);
                    joint == request.bounds && request.reach >= reach.of_point(at)
                };
                assert!(of.any(|(request, _)| holds(request)), "{at}");
            }
        }
    }

    #[test]
    fn what_is_near_holds_all_points_that_are() {
        let region = region();
        for (bounds, reach) in [
            (Bounds { low: [0.2, 0.2, 0.0], high: [0.25, 0.3, 0.0] }, 0.05),
            (Bounds { low: [0.99, 0.9, 0.0], high: [0.99, 0.9, 0.0] }, 0.03),
            (Bounds { low: [0.0; 3], high: [1.0, 1.0, 0.0] }, 0.0),
            (Bounds { low: [0.5, 3.0, 0.0], high: [0.5, 4.0, 0.0] }, 1.9),
        ] {
            let found = near(&region, &Request { bounds, reach });
            let points = (0..1000).map(|at| Bounds::point(region.point(at)));
            let mut want = Bounds::EMPTY;
            points.filter(|point| bounds.may_reach(point, reach, &region.side)).for_each(|point| want.include(&point));
            let mut both = found;
            both.include(&want);
            assert!(both == found && found.is_empty() == want.is_empty(), "{found:?} {want:?}");
        }
    }
}
