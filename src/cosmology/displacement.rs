//! Displacements in linear theory.

use std::f64::consts::PI;

use super::quadrature::panel;
use super::{CosmologyError, LinearPower};

impl LinearPower {
    /// Returns the rms displacement along an axis, in Mpc/h, of the waves with k from `low` to
    /// `high` (h/Mpc, both above 0) in linear theory: the square root of the integral of P/(6 pi^2)
    /// over k. A table has no power beyond its ends.
    ///
    /// ```
    /// use meshloom::cosmology::{Cosmology, LinearPower, TransferKind};
    ///
    /// let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full)?;
    /// assert!((power.displacement([1e-5, 1e3], 1.0)? - 5.8).abs() < 0.3); // Mpc/h, today
    /// # Ok::<(), meshloom::cosmology::CosmologyError>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`Growth::at`](super::Growth::at).
    pub fn displacement(&self, [low, high]: [f64; 2], a: f64) -> Result<f64, CosmologyError> {
        let (d1, [first, last]) = (self.growth().at(a)?.d1, self.range());
        let (mut k, end) = (low.max(first), high.min(last));
        let mut square = 0.0;
        while k < end {
            // As narrow as the acoustic wiggles want it.
            let next = (k * 0.05_f64.exp()).min(end);
            let [part] = panel(k, next, |k| [k * self.unit(k) / (6.0 * PI * PI)]);
            (square, k) = (square + part, next);
        }
        Ok(square.sqrt() * d1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::{Cosmology, TransferKind};

    #[test]
    fn it_is_a_sum_over_modes_and_grows_as_d1() {
        let power = LinearPower::new(Cosmology::simple(), TransferKind::Full).unwrap();
        let (low, high, steps) = (0.01_f64, 2.0_f64, 20_000);
        // By midpoints in k.
        let width = (high - low) / f64::from(steps);
        let square: f64 = (0..steps).map(|i| power.unit(low + (f64::from(i) + 0.5) * width) * width).sum();
        let unit = (square / (6.0 * PI * PI)).sqrt();
        for a in [0.1, 1.0] {
            let found = power.displacement([low, high], a).unwrap() / power.growth().at(a).unwrap().d1;
            assert!((found / unit - 1.0).abs() < 1e-5, "{found} {unit}");
        }
        assert_eq!(power.displacement([high, low], 1.0).unwrap(), 0.0);
        assert!(power.displacement([low, high], 2.0).is_err());
    }
}
