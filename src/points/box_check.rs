//! Points compared with their periodic box: signs that points and box are in different units.

use std::fmt;

use super::domain::{Bounds, Domain};
use crate::comm::{CommError, Communicator, Op};
use crate::gpu::{Array, DeviceError, Recorder};

/// The property of a periodic box that a result depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxUse {
    /// Periodic images only: neighbors, pairs, groups of a given linking length.
    Images,
    /// The volume too: power spectra, mean separations, mean densities.
    Volume,
}

/// A sign that points are in another unit than their box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BoxWarning {
    /// Points lie more than one side outside the box.
    FarOutside {
        /// The number of such points.
        count: u64,
        /// The number of all points.
        total: u64,
        /// The largest distance of a point from the box along an axis, in sides.
        farthest: f64,
    },
    /// All points lie in a small part of a box whose volume matters.
    Corner {
        /// The number of all points.
        total: u64,
        /// The largest extent of the points along an axis, in sides; at most 0.01.
        extent: f64,
    },
}

impl fmt::Display for BoxWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BoxWarning::FarOutside { count, total, farthest } => write!(
                f,
                "{count} of {total} points lie more than one side outside the box, the farthest {farthest:.1} sides; they are \
                 wrapped into it; if the box is in another unit (kpc, Mpc), give it in the unit of the points"
            ),
            BoxWarning::Corner { total, extent } => write!(
                f,
                "all {total} points lie within {extent:.1e} of each side of the box, but mean densities are those of the \
                 whole box; if the box is in another unit (kpc, Mpc), give it in the unit of the points"
            ),
        }
    }
}

/// The largest extent of points that is a [`BoxWarning::Corner`], in sides.
const CORNER: f64 = 0.01;

/// Extremes of one rank's coordinates before they are wrapped into a box.
///
/// ```
/// use meshloom::points::{BoxCheck, BoxUse, BoxWarning};
///
/// let warnings = meshloom::comm::run_solo(|comm| {
///     let mut check = BoxCheck::new(&[1.0, 1.0], BoxUse::Volume);
///     check.add(&[0.5, 0.5, 51.0, 0.25]);
///     check.warnings(&comm)
/// })
/// .unwrap();
/// assert_eq!(warnings, [BoxWarning::FarOutside { count: 1, total: 2, farthest: 50.0 }]);
/// ```
#[derive(Clone, Debug)]
pub struct BoxCheck {
    dims: usize,
    /// Sides of the box; 0 along open axes.
    sides: [f64; 3],
    box_use: BoxUse,
    total: u64,
    /// Points more than one side outside.
    far: u64,
    /// The largest distance of a point from the box, in sides.
    farthest: f64,
    low: [f64; 3],
    high: [f64; 3],
}

impl BoxCheck {
    /// Creates a check for a box with 1 to 3 `sides`, in the unit of the points; 0 is an open axis.
    #[must_use]
    pub fn new(sides: &[f64], box_use: BoxUse) -> Self {
        let (low, high) = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
        let mut check =
            BoxCheck { dims: sides.len(), sides: [0.0; 3], box_use, total: 0, far: 0, farthest: 0.0, low, high };
        check.sides.iter_mut().zip(sides).for_each(|(own, &side)| *own = side);
        check
    }

    /// Creates a check for a domain.
    #[must_use]
    pub fn of(domain: &Domain, box_use: BoxUse) -> Self {
        // Rounded up: a point exactly one side away in f64 is not farther than that.
        let side = |axis| domain.side(axis).map_or(0.0, |side| side.next_up().into());
        let sides: Vec<f64> = (0..domain.dims()).map(side).collect();
        Self::new(&sides, box_use)
    }

    /// Adds rows of coordinates on the host. Coordinates that are NaN are ignored.
    pub fn add<T: Copy + Into<f64>>(&mut self, rows: &[T]) {
        if !self.is_periodic() {
            return;
        }
        rows.chunks_exact(self.dims).for_each(|row| self.include(row));
        self.total += (rows.len() / self.dims) as u64;
    }

    fn include<T: Copy + Into<f64>>(&mut self, row: &[T]) {
        let mut distance = 0.0f64;
        for (axis, &x) in row.iter().enumerate() {
            let (x, side): (f64, f64) = (x.into(), self.sides[axis]);
            self.low[axis] = self.low[axis].min(x);
            self.high[axis] = self.high[axis].max(x);
            // Most lie inside, and need no division.
            if side > 0.0 && !(-side..=2.0 * side).contains(&x) {
                distance = distance.max((x / side - 1.0).max(-x / side));
            }
        }
        if distance > 0.0 {
            self.far += 1;
            self.farthest = self.farthest.max(distance);
        }
    }

    /// Adds rows of coordinates on the device, with the same result as [`add`](Self::add). Blocks;
    /// reads each coordinate once on the device, and downloads them only if some lie far outside.
    ///
    /// # Errors
    /// [`DeviceError`] of the device.
    pub fn add_array(&mut self, recorder: &mut Recorder, rows: &Array<f32>) -> Result<(), DeviceError> {
        if !self.is_periodic() {
            return Ok(());
        }
        let Some(Bounds { low, high }) = Bounds::of_rows(recorder, rows, self.dims)? else { return Ok(()) };
        let is_far = |axis: usize| {
            let side = self.sides[axis];
            side > 0.0 && [low, high].iter().any(|end| !(-side..=2.0 * side).contains(&f64::from(end[axis])))
        };
        if (0..self.dims).any(is_far) {
            self.add(&recorder.download(rows, 0, rows.len())?);
        } else {
            self.include(&low[..self.dims]);
            self.include(&high[..self.dims]);
            self.total += rows.len() / self.dims as u64;
        }
        Ok(())
    }

    /// Returns the warnings about the points of all ranks, the same on all of them.
    ///
    /// Collective: every rank calls it.
    ///
    /// # Errors
    /// [`CommError`] if another rank fails.
    pub fn warnings(&self, comm: &Communicator) -> Result<Vec<BoxWarning>, CommError> {
        let mut warnings = Vec::new();
        if !self.is_periodic() {
            return Ok(warnings);
        }
        let ([a, b, c], [x, y, z]) = (self.low.map(|low| -low), self.high);
        let [total, count] = comm.reduced([self.total, self.far], Op::Sum)?;
        let greatest = comm.reduced([self.farthest, a, b, c, x, y, z], Op::Max)?;
        let farthest = greatest[0];
        if count > 0 {
            warnings.push(BoxWarning::FarOutside { count, total, farthest });
        }
        if self.box_use == BoxUse::Volume && self.sides[..self.dims].iter().all(|&side| side > 0.0) {
            let extents = (0..self.dims).map(|axis| (greatest[1 + axis] + greatest[4 + axis]) / self.sides[axis]);
            let extent = extents.fold(0.0, f64::max);
            // Points that all coincide are in no unit.
            if total > 1 && extent > 0.0 && extent <= CORNER {
                warnings.push(BoxWarning::Corner { total, extent });
            }
        }
        Ok(warnings)
    }

    fn is_periodic(&self) -> bool {
        self.sides.iter().any(|&side| side > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;

    fn warnings(parts: [&[f64]; 2], sides: &[f64], box_use: BoxUse) -> Vec<BoxWarning> {
        let found = run_threads(2, |comm| {
            let mut check = BoxCheck::new(sides, box_use);
            check.add(parts[comm.rank()]);
            check.warnings(&comm)
        });
        let found = found.unwrap();
        assert_eq!(found[0], found[1]);
        found[0].clone()
    }

    #[test]
    fn points_count_once_and_from_more_than_a_side_on() {
        let near = [0.5, 1e9, 3.0, 2.0, -1e9, 8.0, -1.0, 0.0, -4.0];
        let far = [51.0, 0.0, 40.0, 0.0, 0.0, -6.0];
        assert_eq!(warnings([&near, &[]], &[1.0, 0.0, 4.0], BoxUse::Images), []);
        let found = warnings([&near, &far], &[1.0, 0.0, 4.0], BoxUse::Images);
        assert_eq!(found, [BoxWarning::FarOutside { count: 2, total: 5, farthest: 50.0 }]);
        assert_eq!(warnings([&[1e9, 1e9], &[]], &[0.0, 0.0], BoxUse::Volume), []);
    }

    #[test]
    fn points_in_a_corner_are_seen_where_the_volume_matters() {
        let parts: [&[f64]; 2] = [&[-0.5, 0.0, 0.25, 0.0], &[0.5, 0.75]];
        let corner = BoxWarning::Corner { total: 3, extent: 0.01 };
        assert_eq!(warnings(parts, &[100.0, 100.0], BoxUse::Volume), [corner]);
        assert_eq!(warnings(parts, &[100.0, 100.0], BoxUse::Images), []);
        assert_eq!(warnings(parts, &[99.0, 1e6], BoxUse::Volume), []);
        assert_eq!(warnings(parts, &[1e6, 0.0], BoxUse::Volume), []);
        // Points that coincide, a point alone and no points have no extent.
        assert_eq!(warnings([&[0.5, 0.5], &[0.5, 0.5]], &[1.0, 1.0], BoxUse::Volume), []);
        assert_eq!(warnings([&[0.5, 0.5], &[]], &[1.0, 1.0], BoxUse::Volume), []);
        assert_eq!(warnings([&[], &[]], &[1.0, 1.0], BoxUse::Volume), []);
    }
}
