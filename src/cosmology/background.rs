//! The expansion of the homogeneous universe, and distances of light in it.
//!
//! All functions but those of distances are defined for a > 0 and do not check their argument: for
//! a <= 0 they return infinities or NaN.

use super::error::given;
use super::quadrature::panel;
use super::{A_MIN, Cosmology, CosmologyError, HUBBLE_DISTANCE};

/// The critical density today, 3 H0^2/(8 pi G), in (Msun/h)/(Mpc/h)^3.
pub const CRITICAL_DENSITY: f64 = 2.77536627e11;

/// Panels of the quadrature are at most as long, in ln a: rounding is more than what five points
/// leave.
const PANEL: f64 = 0.1;

/// Returns the peculiar velocity `a dx/dt` in km/s of a canonical momentum `p = a^2 dx/dt` in units
/// of H0 Mpc/h: `100 p / a`.
#[must_use]
pub fn peculiar_velocity(momentum: f64, a: f64) -> f64 {
    100.0 * momentum / a
}

/// E(a) = H(a)/H0 = sqrt(Omega_m a^-3 + Omega_r a^-4 + Omega_de f(a)), for a > 0 (Friedmann's
/// equation), of today's densities of matter, radiation and dark energy over the critical one, and
/// w0 and wa of the last.
#[must_use]
pub fn expansion_rate([matter, radiation, dark]: [f64; 3], dark_energy: [f64; 2], a: f64) -> f64 {
    let matter = matter / (a * a * a);
    (matter + radiation / (a * a * a * a) + dark * dark_energy_growth(dark_energy, a)).sqrt()
}

/// f(a): the density of dark energy over that of today, a^(-3 (1 + w0 + wa)) e^(-3 wa (1 - a)).
fn dark_energy_growth([w0, wa]: [f64; 2], a: f64) -> f64 {
    a.powf(-3.0 * (1.0 + w0 + wa)) * (-3.0 * wa * (1.0 - a)).exp()
}

impl Cosmology {
    /// Returns the comoving mean density of matter, Omega_m times [`CRITICAL_DENSITY`], in
    /// (Msun/h)/(Mpc/h)^3.
    #[must_use]
    pub fn matter_density(&self) -> f64 {
        self.omega_m() * CRITICAL_DENSITY
    }

    /// Returns the mass in Msun/h of each of `count` particles that share the matter of a comoving
    /// box of `side` Mpc/h.
    #[must_use]
    pub fn particle_mass(&self, side: f64, count: u64) -> f64 {
        self.matter_density() * side.powi(3) / count as f64
    }

    /// E(a) = H(a)/H0, for a > 0: [`expansion_rate`].
    #[must_use]
    pub fn expansion_rate(&self, a: f64) -> f64 {
        expansion_rate([self.omega_m(), self.omega_r(), self.omega_de()], self.dark_energy(), a)
    }

    /// Densities of matter, radiation and dark energy at scale factor a > 0, times a^3, so that
    /// nothing overflows for small a.
    fn densities(&self, a: f64) -> [f64; 3] {
        [self.omega_m(), self.omega_r() / a, self.omega_de() * dark_energy_growth(self.dark_energy(), a) * a * a * a]
    }

    /// Omega_m(a): the share of matter in the critical density at scale factor a > 0.
    #[must_use]
    pub fn matter_fraction(&self, a: f64) -> f64 {
        self.matter_fraction_and_slope(a)[0]
    }

    /// Omega_de(a): the share of dark energy in the critical density at scale factor a > 0.
    #[must_use]
    pub fn dark_energy_fraction(&self, a: f64) -> f64 {
        let [matter, radiation, dark] = self.densities(a);
        dark / (matter + dark + radiation)
    }

    /// Returns [`matter_fraction`](Self::matter_fraction) and d ln H / d ln a = -3/2 (Omega_m(a) +
    /// 4/3 Omega_r(a) + (1 + w(a)) Omega_de(a)), for a > 0.
    pub(super) fn matter_fraction_and_slope(&self, a: f64) -> [f64; 2] {
        let ([matter, radiation, dark], [w0, wa]) = (self.densities(a), self.dark_energy());
        let (all, pressure) = (matter + dark + radiation, 4.0 / 3.0 * radiation + (1.0 + w0 + wa * (1.0 - a)) * dark);
        [matter / all, -1.5 * ((matter + pressure) / all)]
    }

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
    fn today_is_today() {
        let cosmology = Cosmology::simple();
        assert_eq!(cosmology.expansion_rate(1.0), 1.0);
        assert_eq!(cosmology.matter_fraction(1.0), 0.3);
    }

    /// All that an expansion may have.
    fn universes() -> [Cosmology; 3] {
        let base = Parameters { radiation: Some(3.046), ..Parameters::default() };
        let dark = |w0, wa| Cosmology::new(Parameters { w0, wa, ..base }).unwrap();
        [Cosmology::planck18(), dark(-0.8, 0.3), dark(-1.2, -0.5)]
    }

    #[test]
    fn densities_today_are_those_of_the_parameters() {
        for cosmology in universes() {
            assert!((cosmology.expansion_rate(1.0) - 1.0).abs() < 1e-15);
            assert!((cosmology.matter_fraction(1.0) - 0.3111).abs() < 1e-15);
            // 2.473e-5 of photons and 0.2271 of that for each neutrino, over h^2 (Komatsu et al.
            // 2011, section 3.3).
            let published = 2.473e-5 * (1.0 + 0.2271 * 3.046) / 0.6766f64.powi(2);
            assert!((cosmology.omega_r() / published - 1.0).abs() < 2e-4, "{}", cosmology.omega_r());
        }
        // Matter and radiation are as dense at a = Omega_r / Omega_m; dark energy is nothing then.
        let cosmology = Cosmology::planck18();
        assert!((cosmology.matter_fraction(cosmology.omega_r() / cosmology.omega_m()) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn slope_is_the_derivative_of_the_rate() {
        for (cosmology, a) in universes().iter().flat_map(|c| [1e-4, 0.01, 0.2, 0.7, 1.0_f64].map(|a| (c, a))) {
            // A central difference of step s errs by about s^2 and by rounding / s: 1e-10 at s =
            // 1e-5.
            let s = 1e-5_f64;
            let (above, below) = (cosmology.expansion_rate(a * s.exp()), cosmology.expansion_rate(a * (-s).exp()));
            let slope = (above.ln() - below.ln()) / (2.0 * s);
            assert!((slope - cosmology.matter_fraction_and_slope(a)[1]).abs() < 1e-9);
        }
    }

    #[test]
    fn matter_alone_expands_as_einstein_de_sitter() {
        let eds = Cosmology::new(Parameters { omega_m: 1.0, ..Default::default() }).unwrap();
        for a in [1e-6, 0.25, 1.0_f64] {
            assert!((eds.expansion_rate(a) * a.powf(1.5) - 1.0).abs() < 1e-14);
            assert_eq!(eds.matter_fraction(a), 1.0);
        }
    }

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
