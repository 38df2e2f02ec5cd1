//! Points within reach of boxes: a traversal of a tree on the host.

use crate::points::tree::Levels;

/// A box and a distance around it within which points are wanted.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Request {
    /// Least coordinates.
    pub low: [f32; 3],
    /// Greatest coordinates.
    pub high: [f32; 3],
    /// Distance; infinity for everything.
    pub reach: f32,
}

/// Slack of squared distances, so that rounding in kernels never finds a neighbour that no request reaches.
const CLOSER: f64 = 1.0 - 1e-5;

impl Request {
    /// The bounding box of points of `dims` coordinates; `None` without points.
    pub fn around(points: &[f32], dims: usize, reach: f32) -> Option<Request> {
        let mut points = points.chunks_exact(dims);
        let first = points.next()?;
        let mut request = Request { low: [0.0; 3], high: [0.0; 3], reach };
        request.low[..dims].copy_from_slice(first);
        request.high[..dims].copy_from_slice(first);
        for point in points {
            for (axis, &x) in point.iter().enumerate() {
                request.low[axis] = request.low[axis].min(x);
                request.high[axis] = request.high[axis].max(x);
            }
        }
        Some(request)
    }

    /// Whether any point between `low` and `high` may be within reach; `side` is that of the domain, 0 along open axes.
    pub fn reaches(&self, low: &[f32], high: &[f32], side: &[f32; 3]) -> bool {
        if self.reach.is_infinite() {
            return true;
        }
        let mut sum = 0.0;
        for axis in 0..low.len() {
            let [a, b] = [self.low[axis], self.high[axis]].map(f64::from);
            let [c, d] = [low[axis], high[axis]].map(f64::from);
            let mut gap = (c - b).max(a - d);
            if side[axis] > 0.0 {
                let side = f64::from(side[axis]);
                gap = gap.min(c + side - b).min(a + side - d);
            }
            sum += gap.max(0.0).powi(2);
        }
        sum * CLOSER <= f64::from(self.reach).powi(2)
    }

    /// Whether all points between `low` and `high` are certainly within reach.
    fn covers(&self, low: &[f32], high: &[f32]) -> bool {
        let farthest = |axis: usize| {
            let below = f64::from(self.low[axis]) - f64::from(low[axis]);
            below.max(f64::from(high[axis]) - f64::from(self.high[axis])).max(0.0)
        };
        self.reach.is_infinite()
            || (0..3).map(|axis| farthest(axis).powi(2)).sum::<f64>() <= f64::from(self.reach).powi(2)
    }
}

/// The points of a rank on the host: the boxes of its tree and the points along the curve.
pub struct Region {
    /// Coordinates per point.
    pub dims: usize,
    /// Sides; 0 along open axes.
    pub side: [f32; 3],
    /// The levels of the tree.
    pub levels: Levels,
    /// Six numbers per node: low x, y, z and high x, y, z.
    pub boxes: Vec<f32>,
    /// Points along the curve.
    pub points: Vec<f32>,
    /// Index in the cloud of each point along the curve.
    pub order: Vec<u32>,
}

impl Region {
    fn bounds(&self, level: usize, node: u64) -> (&[f32], &[f32]) {
        let at = 6 * (self.levels.start(level) + node) as usize;
        self.boxes[at..at + 6].split_at(3)
    }

    /// Boxes of the highest level that has at least `enough` nodes, or of the leaves: low and high of each.
    pub fn coarse_boxes(&self, enough: u64) -> Vec<f32> {
        let levels = &self.levels;
        let Some(level) = (0..levels.count()).rev().find(|&level| level == 0 || levels.nodes(level) >= enough) else {
            return Vec::new();
        };
        let range = 6 * levels.start(level) as usize..6 * levels.start(level + 1) as usize;
        self.boxes[range].to_vec()
    }

    /// Indices in the cloud, ascending, of the points that any request reaches. Memory: a byte per point and node, however far
    /// requests reach.
    pub fn reached(&self, requests: &[Request]) -> Vec<u32> {
        let mut near = vec![false; self.order.len()];
        // Fully covered subtrees, skipped by later requests.
        let mut covered = vec![false; self.levels.total() as usize];
        let top = self.levels.count();
        let mut stack: Vec<(usize, u64)> = Vec::new();
        for request in requests {
            if top > 0 {
                stack.extend((0..self.levels.nodes(top - 1)).map(|node| (top - 1, node)));
            }
            while let Some((level, node)) = stack.pop() {
                let number = (self.levels.start(level) + node) as usize;
                let (low, high) = self.bounds(level, node);
                if covered[number] || !request.reaches(low, high, &self.side) {
                    continue;
                }
                let points = self.levels.points(level, node);
                let points = points.start as usize..points.end as usize;
                if request.covers(low, high) {
                    covered[number] = true;
                    near[points].fill(true);
                } else if level > 0 {
                    stack.extend(self.levels.children(level, node).map(|child| (level - 1, child)));
                } else {
                    for j in points {
                        let point = &self.points[j * self.dims..(j + 1) * self.dims];
                        near[j] = near[j] || request.reaches(point, point, &self.side);
                    }
                }
            }
        }
        let mut reached: Vec<u32> =
            self.order.iter().zip(near).filter_map(|(&row, near)| near.then_some(row)).collect();
        reached.sort_unstable();
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(low: f32, high: f32, reach: f32) -> Request {
        Request { low: [low, 0.0, 0.0], high: [high, 1.0, 0.0], reach }
    }

    #[test]
    fn reach_goes_round_a_periodic_axis() {
        let near = request(0.0, 0.5, 0.25);
        assert!(near.reaches(&[0.75, 0.5], &[0.75, 0.5], &[0.0; 3]), "inclusive");
        assert!(!near.reaches(&[0.76, 0.5], &[0.8, 0.5], &[0.0; 3]));
        assert!(near.reaches(&[3.8, 0.5], &[3.9, 0.5], &[4.0, 0.0, 0.0]));
        assert!(!near.reaches(&[3.7, 0.5], &[3.74, 0.5], &[4.0, 0.0, 0.0]));
        assert!(request(0.0, 0.5, f32::INFINITY).reaches(&[1e9, 0.0], &[1e9, 0.0], &[0.0; 3]));
    }

    #[test]
    fn the_points_that_are_reached_are_those_of_brute_force() {
        let points: Vec<f32> =
            (0..1000).flat_map(|i| [(i as f32 * 0.618).fract(), (i as f32 * 0.414).fract()]).collect();
        let levels = Levels::new(1000);
        let mut boxes = vec![0.0; 6 * levels.total() as usize];
        for level in 0..levels.count() {
            for node in 0..levels.nodes(level) {
                let range = levels.points(level, node);
                let part = &points[2 * range.start as usize..2 * range.end as usize];
                let Request { low, high, .. } = Request::around(part, 2, 0.0).unwrap();
                let at = 6 * (levels.start(level) + node) as usize;
                boxes[at..at + 3].copy_from_slice(&low);
                boxes[at + 3..at + 6].copy_from_slice(&high);
            }
        }
        let order: Vec<u32> = (0..1000).rev().collect();
        let side = [1.0, 0.0, 0.0];
        let region = Region { dims: 2, side, levels, boxes, points, order };
        // The last one covers whole nodes.
        let requests = [
            request(0.9, 0.95, 0.1),
            Request { high: [0.2, 0.3, 0.0], ..request(0.1, 0.0, 0.05) },
            Request { low: [0.4, 0.4, 0.0], high: [0.6, 0.6, 0.0], reach: 0.2 },
        ];
        let all = region.points.chunks(2).zip(&region.order);
        let near = |point: &[f32]| requests.iter().any(|request| request.reaches(point, point, &side));
        let mut want: Vec<u32> = all.filter(|(point, _)| near(point)).map(|(_, &number)| number).collect();
        want.sort_unstable();
        assert!(want.len() > 100 && want.len() < 900);
        assert_eq!(region.reached(&requests), want);
        assert!(region.reached(&[]).is_empty());
        let everything = Request { reach: f32::INFINITY, ..requests[0] };
        assert_eq!(region.reached(&[requests[0], everything]), (0..1000).collect::<Vec<u32>>());
        assert_eq!(region.coarse_boxes(1).len(), 6 * 4);
        assert_eq!(region.coarse_boxes(20).len(), 6 * 32);
    }
}
