//! Boxes around points, and how near and how far the points of two of them can be.

use crate::points::Bounds;

/// Relative error of a square in kernels, which compute in `f32`: kernels decide about pairs whose
/// square is that close to the limit.
const ROUNDING: f64 = 1e-5;
/// Kernels may take differences of less for 0, and change others by as much: twice the least normal
/// number, rounded up.
const NOTHING: f64 = 3e-38;

impl Bounds {
    /// The box of no points.
    pub(crate) const EMPTY: Bounds = Bounds { low: [f32::INFINITY; 3], high: [f32::NEG_INFINITY; 3] };

    /// Creates the box of one point of 2 or 3 coordinates.
    pub(crate) fn point(at: &[f32]) -> Bounds {
        let mut low = [0.0; 3];
        low[..at.len()].copy_from_slice(at);
        Bounds { low, high: low }
    }

    /// Creates the box of points of `dims` coordinates.
    pub(crate) fn around(points: &[f32], dims: usize) -> Bounds {
        let mut bounds = Bounds::EMPTY;
        points.chunks_exact(dims).for_each(|at| bounds.include(&Bounds::point(at)));
        bounds
    }

    /// Returns `true` if it holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.low[0] > self.high[0]
    }

    /// Grows until it holds `other` too.
    pub(crate) fn include(&mut self, other: &Bounds) {
        *self = self.union(other);
    }

    /// Returns the square of its diagonal; 0 without points.
    pub(crate) fn diagonal(&self) -> f64 {
        let along = |axis: usize| (f64::from(self.high[axis]) - f64::from(self.low[axis])).max(0.0);
        (0..3).map(|axis| along(axis).powi(2)).sum()
    }

    /// Returns `true` if a kernel may find a point of `other` within `reach` of a point of this
    /// box; `side` is that of the domain, 0 along open axes. Neither box is empty.
    pub(crate) fn may_reach(&self, other: &Bounds, reach: f32, side: &[f32; 3]) -> bool {
        if reach.is_infinite() {
            return true;
        }
        let gap = |axis: usize| {
            let [above, below] = self.differences(other, axis);
            let mut gap = above.max(below);
            if side[axis] > 0.0 {
                let side = f64::from(side[axis]);
                gap = gap.min(above + side).min(below + side);
            }
            if gap > NOTHING { gap } else { 0.0 }
        };
        let square: f64 = (0..3).map(|axis| gap(axis).powi(2)).sum();
        square * (1.0 - ROUNDING) <= f64::from(reach).powi(2)
    }

    /// Returns `true` if every kernel finds every point of `other` within `reach` of every point of
    /// this box. Neither box is empty.
    pub(crate) fn surely_reaches(&self, other: &Bounds, reach: f32, side: &[f32; 3]) -> bool {
        if reach.is_infinite() {
            return true;
        }
        let farthest = |axis: usize| {
            let [above, below] = self.differences(other, axis);
            // Each image of a point is at least as far as the nearest one.
            let mut farthest = (-above).max(-below);
            if side[axis] > 0.0 {
                let side = f64::from(side[axis]);
                farthest = farthest.min((-above - side).max(side - below)).min((-below - side).max(side - above));
            }
            if farthest > 0.0 { farthest + NOTHING } else { 0.0 }
        };
        let square: f64 = (0..3).map(|axis| farthest(axis).powi(2)).sum();
        square <= f64::from(reach).powi(2) * (1.0 - ROUNDING)
    }

    /// Returns how far `other` begins above this box, and ends below it, along an axis: negative
    /// where the boxes overlap. The negatives are how far the farthest points are from each other,
    /// this box's below and above.
    fn differences(&self, other: &Bounds, axis: usize) -> [f64; 2] {
        let [a, b, c, d] = [self.low[axis], self.high[axis], other.low[axis], other.high[axis]].map(f64::from);
        [c - b, a - d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn along(low: f32, high: f32) -> Bounds {
        Bounds { low: [low, 0.0, 0.0], high: [high, 0.0, 0.0] }
    }

    #[test]
    fn reach_goes_round_a_periodic_axis() {
        let (near, open, ring) = (along(0.0, 0.5), [0.0; 3], [4.0, 0.0, 0.0]);
        assert!(near.may_reach(&along(0.75, 0.75), 0.25, &open), "inclusive");
        assert!(!near.may_reach(&along(0.76, 0.8), 0.25, &open));
        assert!(near.may_reach(&along(3.8, 3.9), 0.25, &ring) && along(3.8, 3.9).may_reach(&near, 0.25, &ring));
        assert!(!near.may_reach(&along(3.7, 3.74), 0.25, &ring));
        assert!(near.may_reach(&along(1e9, 1e9), f32::INFINITY, &open));
        assert!(along(0.0, 0.0).may_reach(&along(1e-40, 1e-40), 0.0, &open), "kernels may take it for 0");
        assert!(!along(0.0, 0.0).may_reach(&along(1e-37, 1e-37), 0.0, &open));
    }

    #[test]
    fn what_is_sure_holds_for_the_farthest_points() {
        let (open, ring) = ([0.0; 3], [4.0, 0.0, 0.0]);
        for (a, b) in [(along(0.0, 0.5), along(0.25, 1.0)), (along(0.25, 1.0), along(0.0, 0.5))] {
            assert!(a.surely_reaches(&b, 1.001, &open) && !a.surely_reaches(&b, 1.0, &open), "within rounding");
        }
        for (a, b) in [(along(0.0, 0.5), along(3.5, 3.9)), (along(3.5, 3.9), along(0.0, 0.5))] {
            assert!(a.surely_reaches(&b, 1.001, &ring) && !a.surely_reaches(&b, 0.999, &ring));
            assert!(!a.surely_reaches(&b, 3.0, &open));
        }
        let point = Bounds::point(&[3.0, 4.0]);
        assert!(point.surely_reaches(&point, 0.0, &open), "one place");
        assert!(!along(0.0, 0.0).surely_reaches(&along(1e-40, 1e-40), 0.0, &open));
        assert!(along(0.0, 9.0).surely_reaches(&point, f32::INFINITY, &open));
    }

    #[test]
    fn boxes_hold_their_points() {
        let mut bounds = Bounds::around(&[1.0, 2.0, -3.0, 5.0], 2);
        assert_eq!(bounds, Bounds { low: [-3.0, 2.0, 0.0], high: [1.0, 5.0, 0.0] });
        assert_eq!(bounds.diagonal(), 25.0);
        bounds.include(&Bounds::EMPTY);
        assert!(!bounds.is_empty() && Bounds::EMPTY.is_empty() && Bounds::EMPTY.diagonal() == 0.0);
        bounds.include(&Bounds::point(&[0.0, 0.0, -1.0]));
        assert_eq!(bounds, Bounds { low: [-3.0, 0.0, -1.0], high: [1.0, 5.0, 0.0] });
    }
}
