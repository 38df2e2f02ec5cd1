//! The range of coordinates and of their magnitudes, from which the units of a search follow.

use super::{Cloud, Domain, Frame};
use crate::comm::{CommError, Communicator, Op};

/// Bounds of coordinates, and a lower bound of their magnitudes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Extent {
    low: [f64; 3],
    high: [f64; 3],
    /// No magnitude but 0 is smaller; infinity where all are 0.
    least: f64,
}

impl Extent {
    /// The extent of no points.
    pub const NONE: Extent = Extent { low: [f64::INFINITY; 3], high: [f64::NEG_INFINITY; 3], least: f64::INFINITY };

    /// Returns the extent of the points of a cloud.
    pub fn of(cloud: &Cloud) -> Extent {
        let Some(bounds) = cloud.bounds() else { return Extent::NONE };
        let least = f64::from(cloud.smallest_magnitude);
        Extent { low: bounds.low.map(f64::from), high: bounds.high.map(f64::from), least }
    }

    /// Returns the extent of the corners of a frame, and of the periodic axes of its domain.
    pub fn of_frame(frame: &Frame, domain: &Domain) -> Extent {
        let (low, span) = (frame.low.map(f64::from), frame.span.map(f64::from));
        let corners = Extent { low, high: [0, 1, 2].map(|axis| low[axis] + span[axis]), least: f64::INFINITY };
        corners.union(&Extent::of_sides(domain))
    }

    /// From 0 to the side along periodic axes; of nothing along open ones.
    pub fn of_sides(domain: &Domain) -> Extent {
        let mut sides = Extent::NONE;
        for axis in 0..domain.dims() {
            if let Some(side) = domain.side(axis).map(f64::from) {
                (sides.low[axis], sides.high[axis]) = (0.0, side);
                sides.least = sides.least.min(side);
            }
        }
        sides
    }

    /// Returns the extent of the points of both.
    #[must_use]
    pub fn union(&self, other: &Extent) -> Extent {
        Extent {
            low: [0, 1, 2].map(|axis| self.low[axis].min(other.low[axis])),
            high: [0, 1, 2].map(|axis| self.high[axis].max(other.high[axis])),
            least: self.least.min(other.least),
        }
    }

    /// Returns the extent of the points of all ranks. Collective.
    pub fn of_all(&self, comm: &Communicator) -> Result<Extent, CommError> {
        let ([a, b, c], [d, e, f]) = (self.low, self.high);
        let [a, b, c, d, e, f, least] = comm.reduced([a, b, c, -d, -e, -f, self.least], Op::Min)?;
        Ok(Extent { low: [a, b, c], high: [-d, -e, -f], least })
    }

    /// Returns the greatest difference along an axis; 0 without points.
    pub fn span(&self) -> f64 {
        [0, 1, 2].map(|axis| self.high[axis] - self.low[axis]).into_iter().fold(0.0, f64::max)
    }

    /// Returns the greatest magnitude of a coordinate; 0 without points.
    pub fn most(&self) -> f64 {
        if self.low[0] > self.high[0] {
            return 0.0;
        }
        self.low.iter().chain(&self.high).fold(0.0, |most, x| most.max(x.abs()))
    }

    /// Returns a lower bound of the differences of two coordinates along an axis, and of their
    /// images: adjacent `f32` differ by at least 2^-24 of the larger magnitude. Differences below
    /// the smallest normal `f32` do not count.
    pub fn finest(&self) -> f64 {
        (self.least * 2f64.powi(-24)).max(f64::from(f32::MIN_POSITIVE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_those_of_all_points() {
        let one = Extent { low: [-1.0, 0.0, 5.0], high: [3.0, 0.0, 5.0], least: 0.5 };
        let both = one.union(&Extent { low: [-2.0, -9.0, 5.0], high: [0.0, 1.0, 5.0], least: 2.0 });
        assert_eq!((one.span(), one.most(), both.span(), both.most(), both.least), (4.0, 5.0, 10.0, 9.0, 0.5));
        assert_eq!((Extent::NONE.span(), Extent::NONE.most(), Extent::NONE.union(&one)), (0.0, 0.0, one));
        let frame = Frame { dims: 3, low: [-3e38; 3], span: [3e38, 8.0, 0.0] };
        let framed = Extent::of_frame(&frame, &Domain::new(&[0.0, 8.0, 0.0]).unwrap());
        assert_eq!((framed.least, framed.span()), (8.0, f64::from(3e38f32)));
    }

    #[test]
    fn coordinates_that_differ_do_so_by_the_finest_at_least() {
        for least in [1.0f32, 1.999_999_9, 1e-10, 3e20] {
            let finest = Extent { least: least.into(), ..Extent::NONE }.finest();
            assert!(f64::from(least.next_up()) - f64::from(least) >= finest && finest > 0.0);
            assert!(f64::from(least) - f64::from((2.0 * least).next_down()) <= -finest);
        }
        assert_eq!(Extent { least: 1e-38, ..Extent::NONE }.finest(), f64::from(f32::MIN_POSITIVE));
    }
}
