//! Points far outside of their box. They are wrapped into it, as promised; but most often the box is in another unit.

use std::path::Path;

use meshloom::Error;
use meshloom::comm::{Communicator, Op};
use meshloom::io::printable_path;

use crate::terminal;

/// Points of a rank that lie more than a whole side outside of the box along some axis.
pub struct FarOutside<'a> {
    /// Sides of the box; 0 along open axes.
    sides: &'a [f64],
    count: u64,
    /// The largest distance of one from the box, in sides.
    farthest: f64,
}

impl<'a> FarOutside<'a> {
    pub fn new(sides: &'a [f64]) -> Self {
        FarOutside { sides, count: 0, farthest: 0.0 }
    }

    /// Looks at rows of finite coordinates.
    pub fn add<T: Copy + Into<f64>>(&mut self, rows: &[T]) {
        if !self.is_periodic() {
            return;
        }
        for row in rows.chunks_exact(self.sides.len()) {
            let mut distance = 0.0f64;
            for (&x, &side) in row.iter().zip(self.sides) {
                let x: f64 = x.into();
                // Most lie inside, and need no division.
                if side > 0.0 && !(-side..=2.0 * side).contains(&x) {
                    distance = distance.max((x / side - 1.0).max(-x / side));
                }
            }
            if distance > 0.0 {
                self.count += 1;
                self.farthest = self.farthest.max(distance);
            }
        }
    }

    /// Has rank 0 warn where any rank has found some of the `all` points of the file at `path`. All ranks call it.
    ///
    /// # Errors
    /// Those of the ranks.
    pub fn warn(&self, comm: &Communicator, path: &Path, all: u64) -> Result<(), Error> {
        if !self.is_periodic() {
            return Ok(());
        }
        let (mut count, mut farthest) = ([self.count], [self.farthest]);
        comm.all_reduce(&mut count, Op::Sum)?;
        comm.all_reduce(&mut farthest, Op::Max)?;
        if count[0] > 0 && comm.rank() == 0 {
            terminal::warn(&format!(
                "{}: {} of {all} points lie more than one side outside of the box, the farthest {:.1} sides; \
                 they are wrapped into it. If the box is in another unit than the points (kpc, Mpc), give it in theirs with --box",
                printable_path(path),
                count[0],
                farthest[0],
            ));
        }
        Ok(())
    }

    fn is_periodic(&self) -> bool {
        self.sides.iter().any(|&side| side > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_count_once_and_from_more_than_a_side_on() {
        let mut found = FarOutside::new(&[1.0, 0.0, 4.0]);
        found.add(&[0.5f32, 1e9, 3.0, 2.0, -1e9, 8.0, -1.0, 0.0, -4.0]);
        assert_eq!((found.count, found.farthest), (0, 0.0));
        found.add(&[51.0f64, 0.0, 40.0, 0.0, 0.0, -6.0]);
        assert_eq!((found.count, found.farthest), (2, 50.0));
        let mut open = FarOutside::new(&[0.0, 0.0]);
        open.add(&[1e9f32, 1e9]);
        assert_eq!(open.count, 0);
    }
}
