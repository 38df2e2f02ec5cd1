//! The expansion of the homogeneous universe.
//!
//! The functions are defined for a > 0 and do not check their argument: for a <= 0 they return infinities or NaN.

use super::Cosmology;

/// The critical density today, 3 H0^2/(8 pi G), in (Msun/h)/(Mpc/h)^3.
pub const CRITICAL_DENSITY: f64 = 2.77536627e11;

/// The peculiar velocity `a dx/dt` in km/s of a canonical momentum `p = a^2 dx/dt` in units of H0 Mpc/h: `100 p / a`.
pub fn peculiar_velocity(momentum: f64, a: f64) -> f64 {
    100.0 * momentum / a
}

impl Cosmology {
    /// The comoving mean density of matter, Omega_m times [`CRITICAL_DENSITY`], in (Msun/h)/(Mpc/h)^3.
    pub fn matter_density(&self) -> f64 {
        self.omega_m() * CRITICAL_DENSITY
    }

    /// The mass in Msun/h of each of `count` particles that share the matter of a comoving box of `side` Mpc/h.
    pub fn particle_mass(&self, side: f64, count: u64) -> f64 {
        self.matter_density() * side.powi(3) / count as f64
    }

    /// E(a) = H(a)/H0 = sqrt(Omega_m a^-3 + 1 - Omega_m), for a > 0 (Friedmann's equation).
    pub fn expansion_rate(&self, a: f64) -> f64 {
        let omega_m = self.omega_m();
        (omega_m / (a * a * a) + (1.0 - omega_m)).sqrt()
    }

    /// Omega_m(a): the share of matter in the critical density at scale factor a > 0.
    pub fn matter_fraction(&self, a: f64) -> f64 {
        // Multiplied by a^3, so that nothing overflows for small a.
        let omega_m = self.omega_m();
        omega_m / (omega_m + (1.0 - omega_m) * a * a * a)
    }

    /// d ln H / d ln a = -3/2 Omega_m(a), for a > 0.
    pub fn expansion_slope(&self, a: f64) -> f64 {
        -1.5 * self.matter_fraction(a)
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

    #[test]
    fn slope_is_the_derivative_of_the_rate() {
        let cosmology = Cosmology::planck18();
        for a in [0.01, 0.2, 0.7, 1.0_f64] {
            // A central difference of step s errs by about s^2 and by rounding / s: 1e-10 at s = 1e-5.
            let s = 1e-5_f64;
            let (above, below) = (cosmology.expansion_rate(a * s.exp()), cosmology.expansion_rate(a * (-s).exp()));
            let slope = (above.ln() - below.ln()) / (2.0 * s);
            assert!((slope - cosmology.expansion_slope(a)).abs() < 1e-9);
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
}
