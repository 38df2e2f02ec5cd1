//! What a rank answers to others that ask for its points.

use bytemuck::{Pod, Zeroable};

use super::bounding_box::BoundingBox;
use super::region::{Met, Region};

/// A node, and the farthest reach of its points.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct NodeRequest {
    pub bounds: BoundingBox,
    pub reach: f32,
}

/// A point and its reach.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct PointRequest {
    at: [f32; 3],
    reach: f32,
}

impl PointRequest {
    /// A point of 2 or 3 coordinates.
    pub fn new(at: &[f32], reach: f32) -> Self {
        PointRequest { at: BoundingBox::point(at).low, reach }
    }
}

/// The box around what a node reaches here: of points, and of nodes that are no larger than itself or its reach.
pub(super) fn near(region: &Region, request: &NodeRequest) -> BoundingBox {
    let NodeRequest { bounds, reach } = request;
    let (mut near, size) = (BoundingBox::EMPTY, bounds.diagonal().max(f64::from(*reach).powi(2)));
    region.walk(bounds, *reach, |met, held| {
        let large = matches!(met, Met::Node(..)) && held.diagonal() > size;
        if !large {
            near.include(held);
        }
        large
    });
    near
}

/// Finds the points that other ranks reach, one rank after the other. Memory: a byte per point and node.
pub(super) struct Nearby<'a> {
    region: &'a Region,
    points: Vec<bool>,
    /// Nodes of which all points are reached.
    nodes: Vec<bool>,
}

impl<'a> Nearby<'a> {
    pub fn new(region: &'a Region) -> Self {
        let (points, nodes) = (region.order.len(), region.levels.total() as usize);
        Nearby { region, points: vec![false; points], nodes: vec![false; nodes] }
    }

    /// Indices in the cloud, ascending, of the points that any of one rank's requests reaches.
    pub fn rows(&mut self, requests: &[PointRequest]) -> Vec<u32> {
        let Nearby { region, points, nodes } = self;
        let (mut reached, mut whole) = (Vec::new(), Vec::new());
        for PointRequest { at, reach } in requests {
            let request = BoundingBox::point(at);
            region.walk(&request, *reach, |met, held| {
                let places = match met {
                    Met::Node(level, node) => {
                        let number = (region.levels.start(level) + node) as usize;
                        if nodes[number] || !request.surely_reaches(held, *reach, &region.side) {
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
        let mut rows: Vec<u32> = reached.into_iter().map(|at| region.order[at]).collect();
        rows.sort_unstable();
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region() -> Region {
        let points: Vec<f32> =
            (0..1000).flat_map(|i| [(i as f32 * 0.618).fract(), (i as f32 * 0.414).fract()]).collect();
        Region::over(2, [1.0, 0.0, 0.0], points, (0..1000).rev().collect())
    }

    #[test]
    fn the_points_that_are_reached_are_those_of_brute_force() {
        let region = region();
        let mut nearby = Nearby::new(&region);
        let few: Vec<PointRequest> =
            (0..7).map(|i| PointRequest::new(&[0.95 + 0.02 * i as f32, 0.3], 0.02 * i as f32)).collect();
        // The last one reaches whole nodes.
        let many = [few[2], few[5], PointRequest::new(&[0.5, 0.5], 0.4)];
        for requests in [&few[..], &many[..], &few[..1], &[]] {
            let near = |at: usize| {
                let point = BoundingBox::point(region.point(at));
                let reaches = |r: &PointRequest| BoundingBox::point(&r.at).may_reach(&point, r.reach, &region.side);
                requests.iter().any(reaches)
            };
            let mut want: Vec<u32> = (0..1000).filter(|&at| near(at)).map(|at| region.order[at]).collect();
            want.sort_unstable();
            assert_eq!(nearby.rows(requests), want, "{} requests", requests.len());
        }
        let everything = PointRequest::new(&[0.0, 0.0], f32::INFINITY);
        assert_eq!(nearby.rows(&[few[3], everything]), (0..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn what_is_near_holds_all_points_that_are() {
        let region = region();
        for (bounds, reach) in [
            (BoundingBox { low: [0.2, 0.2, 0.0], high: [0.25, 0.3, 0.0] }, 0.05),
            (BoundingBox { low: [0.99, 0.9, 0.0], high: [0.99, 0.9, 0.0] }, 0.03),
            (BoundingBox { low: [0.0; 3], high: [1.0, 1.0, 0.0] }, 0.0),
            (BoundingBox { low: [0.5, 3.0, 0.0], high: [0.5, 4.0, 0.0] }, 1.9),
        ] {
            let found = near(&region, &NodeRequest { bounds, reach });
            let points = (0..1000).map(|at| BoundingBox::point(region.point(at)));
            let mut want = BoundingBox::EMPTY;
            points.filter(|point| bounds.may_reach(point, reach, &region.side)).for_each(|point| want.include(&point));
            let mut both = found;
            both.include(&want);
            assert!(both == found && found.is_empty() == want.is_empty(), "{found:?} {want:?}");
        }
    }
}
