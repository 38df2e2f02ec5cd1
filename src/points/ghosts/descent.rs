//! Finding which points of this rank are near which points of others: ranks descend their trees
//! together.
//!
//! A rank that wants to know sends the boxes of its topmost nodes to the ranks near them. Each
//! answers with the box around what it has there, and the next round sends the nodes below those
//! that got an answer and reach that box, down to parts of leaves. So a rank sends few boxes far
//! from other ranks' points, and none of them is tested against all boxes of another rank.

use bytemuck::{Pod, Zeroable};

use super::ask::ask;
use super::leaf_values::Fetcher;
use super::region::{Reach, Region, Span};
use crate::comm::{CommError, Communicator};
use crate::gpu::DeviceError;
use crate::grid::Cost;
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

#[cfg(test)]
mod tests {
    use super::super::region::Met;
    use super::super::requests::{Request, near};
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
}
