//! Comoving distances of light that arrives today.

use super::error::given;
use super::quadrature::panel;
use super::{A_MIN, Cosmology, CosmologyError, HUBBLE_DISTANCE};

/// Panels of the quadrature are at most as long, in ln a: rounding is more than what five points
/// leave.
const PANEL: f64 = 0.1;

impl Cosmology {
    /// Returns the comoving distance in Mpc/h from which light of scale factor `a` arrives today,
    /// in flat space: `c/H0` times the integral of `da / (a^2 E)` from a to 1.
    ///
    /// ```
    /// use meshloom::cosmology::{Cosmology, HUBBLE_DISTANCE, Parameters};
    ///
    /// // With matter alone it is 2 (1 - sqrt(a)) Hubble distances.
    /// let eds = Cosmology::new(Parameters { omega_m: 1.0, ..Default::default() })?;
    /// assert!((eds.comoving_distance(0.25)? / HUBBLE_DISTANCE - 1.0).abs() < 1e-12);
    /// # Ok::<(), meshloom::cosmology::CosmologyError>(())
    /// ```
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] unless [`A_MIN`] <= a <= 1.
    pub fn comoving_distance(&self, a: f64) -> Result<f64, CosmologyError> {
        given("a", a).within(A_MIN..=1.0, "give the scale factor of light that arrives today")?;
        let panels = (-a.ln() / PANEL).ceil() as usize;
        let end = |n: usize| a.powf(1.0 - n as f64 / panels as f64);
        let integrand = |x: f64| [1.0 / (x * self.expansion_rate(x))];
        // An empty sum is 0, where `sum` gives -0.
        let sum = (0..panels).fold(0.0, |sum, n| sum + panel(end(n), end(n + 1), integrand)[0]);
        Ok(HUBBLE_DISTANCE * sum)
    }

    /// Returns the scale factor of light that arrives today from the comoving distance `distance`
    /// in Mpc/h: the inverse of [`comoving_distance`](Self::comoving_distance).
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] unless the distance is from 0 to that of [`A_MIN`].
    pub fn scale_factor_at(&self, distance: f64) -> Result<f64, CosmologyError> {
        let most = self.comoving_distance(A_MIN)?;
        given("distance", distance).within(0.0..=most, "give a distance that light has come from, in Mpc/h")?;
        let (mut low, mut high) = (A_MIN, 1.0);
        // Halving the interval of ln a, until nothing lies between its ends.
        loop {
            let middle = (low * high).sqrt();
            if middle <= low || middle >= high {
                return Ok(if self.comoving_distance(low)? <= distance { low } else { high });
            }
            if self.comoving_distance(middle)? > distance { low = middle } else { high = middle }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::Parameters;

    #[test]
    fn distances_are_those_of_einstein_de_sitter_and_of_a_fine_sum() {
        let eds = Cosmology::new(Parameters { omega_m: 1.0, ..Default::default() }).unwrap();
        for a in [A_MIN, 0.01, 0.3, 0.999, 1.0_f64] {
            let want = 2.0 * (1.0 - a.sqrt()) * HUBBLE_DISTANCE;
            // Three roundings of E a term, of terms of one sign.
            assert!(eds.comoving_distance(a).unwrap().is_sign_positive());
            assert!((eds.comoving_distance(a).unwrap() - want).abs() <= 1e-12 * HUBBLE_DISTANCE, "{a}");
        }
        // The midpoint rule in a, with an error of h^2/24 times the change of the slope: f' = 2/a^3
        // at most.
        let (planck, n, a) = (Cosmology::planck18(), 100_000, 0.4);
        let h = (1.0 - a) / f64::from(n);
        let middle = |i: i32| a + (f64::from(i) + 0.5) * h;
        let sum: f64 = (0..n).map(|i| h / (middle(i).powi(2) * planck.expansion_rate(middle(i)))).sum();
        let found = planck.comoving_distance(a).unwrap() / HUBBLE_DISTANCE;
        assert!((found - sum).abs() < h * h / 24.0 * 2.0 / a.powi(3), "{found} {sum}");
    }

    #[test]
    fn scale_factors_are_the_inverse() {
        let planck = Cosmology::planck18();
        for a in [1e-3, 0.1, 0.5, 1.0] {
            let back = planck.scale_factor_at(planck.comoving_distance(a).unwrap()).unwrap();
            // At a = 1 the distance of 1 - 1e-16 rounds to some 1e-13 of a Hubble distance.
            assert!((back / a - 1.0).abs() < 1e-12, "{a} {back}");
        }
        assert!(planck.scale_factor_at(-1.0).is_err() && planck.scale_factor_at(f64::NAN).is_err());
        assert!(planck.comoving_distance(1.1).is_err() && planck.comoving_distance(0.0).is_err());
    }
}
