//! Requests between ranks, and their answers.

use bytemuck::{Pod, Zeroable};

use super::descent::Pending;
use super::region::{Met, Reach, Region};
use crate::host_memory::{self, HostMemoryError};
use crate::points::Bounds;

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
    use super::*;

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
