//! The space that points lie in, boxes around points, and how near and how far two boxes can be.

use super::error::ParticleError;
use crate::host_memory;

/// A box of 2 or 3 axes, each of them periodic with a side or open.
///
/// - A side is rounded to `f32` once, here: keys and distances use the rounded side. Coordinates
///   are [wrapped](Self::wrap) by the given side, in `f32` on a device as in `f64` on the host, so
///   that points many sides away keep their place. Sides lie in `[1e-30, 1e30]`.
/// - Coordinates along a periodic axis lie in `[0, side)`; `x == side` is `x = 0`.
/// - Distances along a periodic axis are measured to the nearest image: at most half the side.
///
/// ```
/// use meshloom::points::Domain;
///
/// let domain = Domain::new(&[10.0, 10.0, 0.0])?; // the third axis is open
/// assert_eq!((domain.dims(), domain.side(0), domain.side(2)), (3, Some(10.0), None));
/// assert_eq!([-2.5, 10.0, -1e-9].map(|x| domain.wrap(0, x)), [7.5, 0.0, 0.0]);
/// assert_eq!(domain.wrap(2, -2.5), -2.5);
/// # Ok::<(), meshloom::points::ParticleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Domain {
    dims: usize,
    /// 0 along open axes, and along the third of two.
    sides: [f32; 3],
    /// Sides before rounding.
    periods: [f64; 3],
}

impl Domain {
    /// A domain with these sides, one for each of 2 or 3 axes; 0 is an open axis.
    ///
    /// # Errors
    /// [`ParticleError::Dims`], and [`ParticleError::Sides`] for a side that is neither 0 nor in
    /// `[1e-30, 1e30]`.
    pub fn new(sides: &[f64]) -> Result<Self, ParticleError> {
        let mut domain = Self::open(sides.len())?;
        for (axis, &side) in sides.iter().enumerate() {
            if side != 0.0 && !(1e-30..=1e30).contains(&side) {
                return Err(ParticleError::Sides { axis, side });
            }
            (domain.sides[axis], domain.periods[axis]) = if side == 0.0 { (0.0, 0.0) } else { (side as f32, side) };
        }
        Ok(domain)
    }

    /// Space without bounds, of 2 or 3 axes.
    ///
    /// # Errors
    /// [`ParticleError::Dims`].
    pub fn open(dims: usize) -> Result<Self, ParticleError> {
        match dims {
            2 | 3 => Ok(Domain { dims, sides: [0.0; 3], periods: [0.0; 3] }),
            found => Err(ParticleError::Dims { found }),
        }
    }

    /// Returns the number of axes: 2 or 3.
    #[must_use]
    pub fn dims(&self) -> usize {
        self.dims
    }

    /// Returns the sides as they were given, one for each axis; 0 for open axes.
    pub(crate) fn periods(&self) -> &[f64] {
        &self.periods[..self.dims]
    }

    /// Returns the side of a periodic axis; `None` for an open axis, and beyond the last one.
    #[must_use]
    pub fn side(&self, axis: usize) -> Option<f32> {
        self.sides.get(axis).copied().filter(|&side| side > 0.0)
    }

    /// Returns the given side of a periodic axis, not rounded; `None` for an open axis, and beyond
    /// the last one.
    #[must_use]
    pub fn period(&self, axis: usize) -> Option<f64> {
        self.periods.get(axis).copied().filter(|&period| period > 0.0)
    }

    /// Returns the sides as kernels take them: 0 along open axes and behind the last.
    #[must_use]
    pub fn sides(&self) -> [f32; 3] {
        self.sides
    }

    /// Returns the periodic image of `x` between 0 and the given side, in `f64`; `x` itself along
    /// an open axis.
    #[must_use]
    pub fn image(&self, axis: usize, x: f64) -> f64 {
        match self.periods.get(axis) {
            Some(&period) if period > 0.0 => remainder(x, period),
            _ => x,
        }
    }

    /// Returns the periodic image of `x` in `[0, side)`, wrapped exactly in `f64` and rounded once;
    /// what rounds to the side becomes 0, and so does -0. Along an open axis `x` is only rounded.
    #[must_use]
    pub fn wrap(&self, axis: usize, x: f64) -> f32 {
        let Some(side) = self.side(axis) else { return x as f32 };
        let inside = self.image(axis, x) as f32;
        // Adding zero turns -0 into 0.
        if inside >= side { 0.0 } else { inside + 0.0 }
    }

    /// Returns the least difference of two coordinates that differ by `d`, among their images: in
    /// `[-side/2, side/2]` along a periodic axis for `d` in `(-side, side)`, `d` itself along an
    /// open one.
    #[must_use]
    pub fn minimum_image(&self, axis: usize, d: f32) -> f32 {
        match self.side(axis) {
            Some(side) if d > 0.5 * side => d - side,
            Some(side) if d < -0.5 * side => d + side,
            _ => d,
        }
    }

    /// Rows of `f64` coordinates as `f32`, wrapped along periodic axes before they are rounded;
    /// `first` is the number of the first row, for errors.
    ///
    /// # Errors
    /// [`ParticleError::NonFinite`] or [`ParticleError::OutOfRange`] for the first coordinate that
    /// is.
    pub fn narrow(&self, rows: &[f64], first: u64) -> Result<Vec<f32>, ParticleError> {
        let mut narrow = host_memory::reserve("positions", rows.len())?;
        for (at, &value) in rows.iter().enumerate() {
            let (index, axis) = (first + (at / self.dims) as u64, at % self.dims);
            if !value.is_finite() {
                return Err(ParticleError::NonFinite { index, axis });
            }
            let x = self.wrap(axis, value);
            if !x.is_finite() {
                return Err(ParticleError::OutOfRange { index, axis, value });
            }
            narrow.push(x);
        }
        Ok(narrow)
    }
}

/// Returns the least number from 0 on that differs from `x` by whole sides. Most coordinates are
/// theirs: no division then.
fn remainder(x: f64, side: f64) -> f64 {
    if (0.0..side).contains(&x) { x } else { x.rem_euclid(side) }
}

/// A box that holds some points; empty where `low` is above `high`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Bounds {
    /// The least coordinate by axis; 0 behind the last axis.
    pub low: [f32; 3],
    /// The greatest coordinate by axis; 0 behind the last axis.
    pub high: [f32; 3],
}

impl Bounds {
    /// Returns the greatest extent along an axis; infinity beyond the range of `f32`.
    pub fn extent(&self) -> f32 {
        [0, 1, 2].map(|axis| self.high[axis] - self.low[axis]).into_iter().fold(0.0, f32::max)
    }

    /// Returns the least box that holds both.
    #[must_use]
    pub fn union(&self, other: &Bounds) -> Bounds {
        Bounds {
            low: [0, 1, 2].map(|a| self.low[a].min(other.low[a])),
            high: [0, 1, 2].map(|a| self.high[a].max(other.high[a])),
        }
    }

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

/// Relative error of a square in kernels, which compute in `f32`: kernels decide about pairs whose
/// square is that close to the limit.
const ROUNDING: f64 = 1e-5;
/// Kernels may take differences of less for 0, and change others by as much: twice the least normal
/// number, rounded up.
const NOTHING: f64 = 3e-38;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_checked_and_rounded_once() {
        assert_eq!(Domain::new(&[1.0]), Err(ParticleError::Dims { found: 1 }));
        assert_eq!(Domain::open(4), Err(ParticleError::Dims { found: 4 }));
        for side in [-1.0, 1e-31, 1e31, f64::INFINITY] {
            assert_eq!(Domain::new(&[1.0, side]), Err(ParticleError::Sides { axis: 1, side }));
        }
        assert!(matches!(Domain::new(&[f64::NAN, 1.0]), Err(ParticleError::Sides { axis: 0, .. })));
        let domain = Domain::new(&[0.1, -0.0]).unwrap();
        assert_eq!((domain.side(0), domain.side(1), domain.side(2), domain.side(9)), (Some(0.1f32), None, None, None));
    }

    #[test]
    fn wrapping_is_exact_and_ends_below_the_side() {
        let domain = Domain::new(&[10.0, 0.0, 0.3]).unwrap();
        for (x, want) in [(0.0, 0.0), (-0.0, 0.0), (10.0, 0.0), (-10.0, 0.0), (-1e-9, 0.0), (-1e-300, 0.0), (25.5, 5.5)]
        {
            assert_eq!(domain.wrap(0, x).to_bits(), f32::to_bits(want), "{x}");
        }
        assert_eq!(domain.wrap(0, 9.999_999_999), 0.0, "the nearest f32 is the side");
        assert_eq!(domain.wrap(0, 1e15 + 3.0), 3.0);
        assert_eq!(domain.wrap(1, -12.5), -12.5);
        assert!((0..1000).all(|i| (0.0..0.3f32).contains(&domain.wrap(2, -0.013 * f64::from(i)))));
    }

    #[test]
    fn coordinates_many_sides_away_keep_their_place() {
        // No side is an f32; a side that was rounded before would be 1.5e-9 off, ten thousand
        // times.
        for side in [0.1, 67.7, 205.0 / 3.0] {
            let domain = Domain::new(&[side, 0.0]).unwrap();
            for n in [-10_000.0, -1.0, 1.0, 10_000.0] {
                let wrapped = f64::from(domain.wrap(0, 0.3 * side + n * side));
                // Rounded to f32 once; before that to f64, in sums of n sides.
                assert!((wrapped - 0.3 * side).abs() <= side * (f64::from(f32::EPSILON) / 2.0 + 1e-11), "{side} {n}");
            }
        }
    }

    #[test]
    fn the_nearest_image_is_at_most_half_a_side_away() {
        let domain = Domain::new(&[4.0, 0.0]).unwrap();
        assert_eq!([2.0, 2.5, -2.0, -3.0, 0.0].map(|d| domain.minimum_image(0, d)), [2.0, -1.5, -2.0, 1.0, 0.0]);
        assert_eq!(domain.minimum_image(1, 1e9), 1e9);
    }

    #[test]
    fn the_first_bad_coordinate_is_named() {
        let domain = Domain::new(&[1.0, 0.0]).unwrap();
        assert_eq!(domain.narrow(&[1e200, 1.0, 1.5, 2.0], 0).unwrap(), [domain.wrap(0, 1e200), 1.0, 0.5, 2.0]);
        let far = domain.narrow(&[0.0, 0.0, 0.0, 1e39, f64::NAN, 0.0], 7);
        assert_eq!(far, Err(ParticleError::OutOfRange { index: 8, axis: 1, value: 1e39 }));
        let bad = domain.narrow(&[f64::INFINITY, 1e39], 3);
        assert_eq!(bad, Err(ParticleError::NonFinite { index: 3, axis: 0 }));
    }

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
