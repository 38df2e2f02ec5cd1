//! The units in which a search squares differences.
//!
//! # What counts as a distance
//! The distance of two points is the root of the sum of the squares of their differences, all in
//! `f32`; this rounded root is compared with radii and edges. Kernels need no root for it: the host
//! finds the greatest square whose root passes ([`Units::at_most`], [`Units::below`]), and squares
//! are compared.
//!
//! # Coordinates of any magnitude
//! Squares of differences are normal `f32` numbers only within a factor of some 2^100. A search
//! therefore has a unit of its own, a power of two, which follows from its reach, or from the whole
//! extent where the reach is unlimited: distances within reach are then at most 2^61, and larger
//! differences, whose squares might overflow, are cut to [`FARTHEST`]. Where all coordinates fit
//! that unit they are scaled as they are loaded, and nothing else is needed; otherwise differences
//! are scaled one by one (`wide`).
//!
//! Nearest neighbors at any distance may need several units: entries of a list that are too near
//! for their squares to be precise are taken from a search in a finer unit ([`Units::finer`]).

use crate::points::Extent;

/// Exponent above all differences within reach.
const TOP: i32 = 61;
/// Exponent above all coordinates.
const FAR: i32 = 125;
/// Exponent of the finest unit there is: the least normal number becomes 1.
const FINEST: i32 = 126;
/// Exponent from which on differences are squared without loss in any digit of a sum.
const PRECISE: i32 = -37;
/// Least exponent of the reach where the unit is that of the whole extent: below, distances within
/// reach would lose digits.
const ROOM: i32 = 38;
/// Exponent between a unit and the next finer one.
const STEP: i32 = 100;

/// The difference, in units, to which larger ones are cut.
pub(super) const FARTHEST: f64 = (1u64 << 62) as f64;
/// A square that is larger than any computed.
pub(super) const NOWHERE: f32 = 1e38;
/// Squares of at least this are precise; smaller ones are computed again in a finer unit.
pub(super) const LEAST: f32 = f32::from_bits(((127 + 2 * (PRECISE - 1)) as u32) << 23);

/// The scales of one search: powers of two, by their exponents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Units {
    /// From coordinates to the unit of squares.
    factor: i32,
    /// From coordinates to what kernels keep when they load them.
    load: i32,
    /// The finest unit for these coordinates.
    finest: i32,
    /// Differences are scaled to the unit of squares one by one, and cut if they are too large.
    pub wide: bool,
    /// The reach ends where differences are cut.
    cut: bool,
}

/// Returns the exponent of the least power of two above a number; far below all others for 0.
fn exponent(x: f64) -> i32 {
    if x == 0.0 { -2000 } else { (x.to_bits() >> 52) as i32 - 1022 }
}

fn power(exponent: i32) -> f64 {
    2f64.powi(exponent)
}

impl Units {
    /// For a search up to `reach` among points of this extent, including queries, that has to
    /// distinguish lengths from `least` on.
    pub fn new(extent: &Extent, reach: f32, least: f32) -> Units {
        let (span, reach) = (extent.span(), f64::from(reach).min(extent.span()));
        let loadable = (FAR - exponent(extent.most())).min(FINEST);
        let finest = FINEST + loadable.min(0);
        let unit = |length: f64| (TOP - exponent(length)).min(finest);
        // One unit for all differences, if distances within reach are precise in it.
        let common = unit(span).min(loadable);
        let told = exponent(reach) + common >= ROOM && exponent(f64::from(least)) + common >= PRECISE - 12;
        let enough = told || common == finest || span == 0.0;
        let factor = if common >= 0 && enough { common } else { unit(reach) };
        Self::with(factor, loadable, finest, factor > unit(span), false)
    }

    fn with(factor: i32, loadable: i32, finest: i32, beyond: bool, cut: bool) -> Units {
        // Scaling down as coordinates are loaded would lose small ones.
        let wide = beyond || factor < 0 || factor > loadable;
        Units { factor, load: if wide { loadable.min(0) } else { factor }, finest, wide, cut }
    }

    /// Returns the next finer unit, if coordinates may differ by less than this one distinguishes.
    pub fn finer(&self, extent: &Extent) -> Option<Units> {
        let enough = exponent(extent.finest()) + self.factor >= PRECISE || self.factor >= self.finest;
        let loadable = (FAR - exponent(extent.most())).min(FINEST);
        let factor = (self.factor + STEP).min(self.finest);
        (!enough).then(|| Self::with(factor, loadable, self.finest, true, true))
    }

    /// Returns what coordinates are multiplied by.
    pub fn load_scale(&self) -> f32 {
        power(self.load) as f32
    }

    /// Returns what differences of loaded coordinates are multiplied by.
    pub fn square_scale(&self) -> f32 {
        power(self.factor - self.load) as f32
    }

    /// Returns the difference of loaded coordinates to which larger ones are cut.
    pub fn max_difference(&self) -> f32 {
        (FARTHEST * power(self.load - self.factor)).min(f64::from(f32::MAX)) as f32
    }

    /// Returns what roots of squares are multiplied by.
    pub fn unit(&self) -> f32 {
        power(-self.factor) as f32
    }

    /// Returns what differences of loaded coordinates are multiplied by to be in the caller's unit.
    pub fn offset_unit(&self) -> f32 {
        power(-self.load) as f32
    }

    /// Returns the greatest square of a distance of at most `length`.
    pub fn at_most(&self, length: f32) -> f32 {
        let square = self.square(length, |root, length| root <= length);
        if self.cut { square.min((FARTHEST * FARTHEST) as f32) } else { square }
    }

    /// Returns the smallest square whose distance is not below `length`.
    pub fn below(&self, length: f32) -> f32 {
        match self.square(length, |root, length| root < length) {
            _ if length == 0.0 => 0.0,
            NOWHERE => NOWHERE,
            square => square.next_up(),
        }
    }

    /// Returns the greatest square whose root passes.
    fn square(&self, length: f32, passes: impl Fn(f32, f32) -> bool) -> f32 {
        let scaled = f64::from(length) * power(self.factor);
        if scaled >= 2.0 * FARTHEST {
            return NOWHERE;
        }
        // Scaling by a power of two is exact, also of roots of squares.
        let scaled = scaled as f32;
        let mut square = scaled * scaled;
        while passes(square.next_up().sqrt(), scaled) {
            square = square.next_up();
        }
        while square > 0.0 && !passes(square.sqrt(), scaled) {
            square = square.next_down();
        }
        square
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::{Domain, Frame};

    fn extent(low: f32, span: f32) -> Extent {
        let frame = Frame { dims: 3, low: [low, 0.0, 0.0], span: [span, 0.0, 0.0] };
        Extent::of_frame(&frame, &Domain::open(3).unwrap())
    }

    #[test]
    fn thresholds_are_those_of_roots_as_f32() {
        let units = Units::new(&extent(0.0, 1.0), f32::INFINITY, f32::INFINITY);
        let unit = units.unit();
        let root = |square: f32| square.sqrt() * unit;
        let mut length = 1e-6f32;
        while length < 2.0 {
            let (most, least) = (units.at_most(length), units.below(length));
            assert!(root(most) <= length && root(most.next_up()) > length, "{length:e}");
            assert!(root(least) >= length && root(least.next_down()) < length, "{length:e}");
            // What is exactly that long counts.
            let exact = (length / unit) * (length / unit);
            assert!(least <= exact && exact <= most, "{length:e}");
            length *= 1.000_91;
        }
        assert_eq!((units.at_most(0.0), units.below(0.0)), (0.0, 0.0));
        assert_eq!((units.at_most(f32::INFINITY), units.at_most(1e30), units.below(1e30)), (NOWHERE, NOWHERE, NOWHERE));
    }

    #[test]
    fn units_hold_what_is_looked_for() {
        for span in [1e-37f32, 1e-20, 1.0, 1e6, 1e20, 3e38] {
            for (low, reach) in [0.0f32, -0.5 * span, -3e38, 1e3]
                .into_iter()
                .flat_map(|low| [0.0, 1e-38, 1e-20, 1.0, 1e30].map(|r| (low, r)))
            {
                // Numbers next to each other differ by some part of themselves.
                let span = span.max(f32::EPSILON * low.abs());
                let (extent, what) = (extent(low, span), format!("{span:e} {low:e} {reach:e}"));
                let units = Units::new(&extent, reach, f32::INFINITY);
                let (load, zoom) = (f64::from(units.load_scale()), f64::from(units.square_scale()));
                assert!(
                    units.load_scale().is_normal() && units.square_scale().is_normal() && units.unit().is_normal(),
                    "{what}"
                );
                assert_eq!(f64::from(units.unit()) * load * zoom, 1.0, "{what}");
                assert!(extent.most() * load < power(FAR), "{what}");
                assert!(f64::from(units.max_difference()) * zoom <= FARTHEST, "{what}");
                let looked = f64::from(reach).min(extent.span()) * load * zoom;
                assert!(looked <= power(TOP) && (looked >= power(ROOM - 1) || units.factor == units.finest), "{what}");
                // Either nothing is cut, or all that is looked for is nearer.
                assert!(units.wide || extent.span() * load <= power(TOP), "{what}");
                assert!(units.wide || load >= 1.0, "small coordinates stay: {what}");
            }
        }
    }

    #[test]
    fn finer_units_go_on_where_coarse_ones_end() {
        let ordinary = extent(0.0, 1.0);
        let units = Units::new(&ordinary, f32::INFINITY, f32::INFINITY);
        assert_eq!((units.wide, units.finer(&ordinary)), (false, None));
        let mut extent = extent(0.0, 1e37);
        let tiny = Domain::new(&[1e-30, 0.0, 0.0]).unwrap();
        extent = extent.union(&Extent::of_frame(&Frame { dims: 3, low: [0.0; 3], span: [1e-30, 0.0, 0.0] }, &tiny));
        let coarse = Units::new(&extent, f32::INFINITY, f32::INFINITY);
        let all: Vec<Units> = std::iter::successors(Some(coarse), |units| units.finer(&extent)).collect();
        assert_eq!(all.len(), 3);
        assert!(all[0].wide && all.windows(2).all(|pair| pair[1].factor - pair[0].factor <= STEP));
        assert_eq!(f64::from(LEAST) * power(2 * STEP), FARTHEST * FARTHEST);
        assert_eq!(all[1].at_most(f32::INFINITY), (FARTHEST * FARTHEST) as f32);
    }
}
