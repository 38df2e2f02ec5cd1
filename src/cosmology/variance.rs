//! The variance of the linear density in spheres, by radius and by mass.

use std::f64::consts::PI;

use super::error::given;
use super::top_hat::{TopHat, top_hat};
use super::{Cosmology, CosmologyError, LinearPower};

/// Radii that are accepted, in Mpc/h.
const RADII: [f64; 2] = [1e-5, 1e5];

/// The linear density contrast in spheres that hold a given mass on average:
/// [`LinearPower::mass_variance`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MassVariance {
    /// The scale factor.
    pub a: f64,
    /// M, the mean mass of a sphere in Msun/h.
    pub mass: f64,
    /// R = (3 M/(4 pi rho_m))^(1/3), its radius in Mpc/h.
    pub radius: f64,
    /// sigma(M, a), the rms contrast in such spheres.
    pub sigma: f64,
    /// d ln sigma/d ln M: negative, and the same at every epoch.
    pub slope: f64,
    /// rho_m, the mean density of matter in (Msun/h)/(Mpc/h)^3.
    pub matter_density: f64,
}

impl Cosmology {
    /// Returns the mean mass of a comoving sphere, 4 pi/3 rho_m R^3, in Msun/h; `radius` in Mpc/h.
    #[must_use]
    pub fn sphere_mass(&self, radius: f64) -> f64 {
        4.0 / 3.0 * PI * self.matter_density() * radius.powi(3)
    }
}

impl LinearPower {
    /// sigma(M, a), the linear rms contrast in spheres of mean mass `mass` (Msun/h), and its
    /// logarithmic slope.
    ///
    /// Converged to 1e-6; the slope is integrated with the derivative of the window, not by
    /// differences.
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] unless the sphere's radius is in [1e-5, 1e5] Mpc/h (at
    /// Omega_m = 0.3 from 3.5e-4 to 3.5e26 Msun/h) and [`A_MIN`](super::A_MIN) <= a <= 1.
    ///
    /// ```
    /// use meshloom::cosmology::{Cosmology, LinearPower, TransferKind};
    ///
    /// let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full)?;
    /// let eight = power.cosmology().sphere_mass(8.0); // 1.85e14 Msun/h
    /// let found = power.mass_variance(eight, 1.0)?;
    /// assert!((found.radius - 8.0).abs() < 1e-12);
    /// assert!((found.sigma - power.sigma8()).abs() < 1e-12);
    /// assert!(found.slope < 0.0); // less contrast in larger spheres
    /// # Ok::<(), meshloom::cosmology::CosmologyError>(())
    /// ```
    pub fn mass_variance(&self, mass: f64, a: f64) -> Result<MassVariance, CosmologyError> {
        let [lowest, highest] = RADII.map(|radius| self.cosmology().sphere_mass(radius));
        given("M", mass).require(
            (lowest..=highest).contains(&mass),
            format!("in [{lowest:.2e}, {highest:.2e}]"),
            "give the mass of a halo in Msun/h",
        )?;
        let d1 = self.growth().at(a)?.d1;
        let matter_density = self.cosmology().matter_density();
        let radius = (mass / (4.0 / 3.0 * PI * matter_density)).cbrt();
        let TopHat { variance, derivative } = top_hat(radius, |k| self.unit(k));
        // sigma is the square root of the variance, and R^3 goes as M.
        Ok(MassVariance {
            a,
            mass,
            radius,
            sigma: variance.sqrt() * d1,
            slope: derivative / variance / 6.0,
            matter_density,
        })
    }

    /// sigma(R, a): the linear rms contrast in spheres of `radius` Mpc/h. At 8 Mpc/h it agrees with
    /// an independent quadrature to 1e-9.
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] unless 1e-5 <= radius <= 1e5 and [`A_MIN`](super::A_MIN) <= a
    /// <= 1.
    pub fn sigma(&self, radius: f64, a: f64) -> Result<f64, CosmologyError> {
        given("R", radius).within(RADII[0]..=RADII[1], "give the sphere's radius in Mpc/h")?;
        Ok(top_hat(radius, |k| self.unit(k)).variance.sqrt() * self.growth().at(a)?.d1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::top_hat::sphere;
    use super::*;
    use crate::cosmology::{Cosmology, TransferKind};

    #[test]
    fn variance_and_slope_agree_with_a_plain_trapezium() {
        let power = LinearPower::new(Cosmology::simple(), TransferKind::Full).unwrap();
        for radius in [0.5, 8.0, 60.0] {
            // On a smooth integrand that vanishes at both ends the trapezium converges faster than
            // any power; the window is resolved up to x = 300, beyond which less than 1e-7 is left.
            let step = 1e-3;
            let steps = ((3e2_f64 / 1e-7).ln() / step) as i32;
            let sum = |radius: f64| -> f64 {
                (0..steps)
                    .map(|i| {
                        let x = 1e-7 * (f64::from(i) * step).exp();
                        let k = x / radius;
                        k.powi(3) * power.unit(k) / (2.0 * PI * PI) * sphere(x)[0].powi(2) * step
                    })
                    .sum()
            };
            let today = power.growth().at(1.0).unwrap().d1;
            let variance = sum(radius);
            let found = power.sigma(radius, 1.0).unwrap();
            assert!((found / (variance.sqrt() * today) - 1.0).abs() < 1e-6, "R = {radius}");

            // A central difference of step s errs by about s^2/6, 2e-7.
            let s = 1e-3_f64;
            let slope = (sum(radius * s.exp()).ln() - sum(radius * (-s).exp()).ln()) / (2.0 * s) / 6.0;
            let found = power.mass_variance(power.cosmology().sphere_mass(radius), 1.0).unwrap();
            assert!((found.slope - slope).abs() < 2e-6, "R = {radius}: {} {slope}", found.slope);
        }
    }

    #[test]
    fn what_is_no_mass_or_epoch_is_refused() {
        let power = LinearPower::new(Cosmology::simple(), TransferKind::Full).unwrap();
        let refused = |mass, a| match power.mass_variance(mass, a) {
            Err(CosmologyError::OutOfRange { quantity, .. }) => quantity,
            other => panic!("{other:?}"),
        };
        for mass in [0.0, -1e12, f64::NAN, f64::INFINITY, 1e-5, 1e30] {
            assert_eq!(refused(mass, 1.0), "M");
        }
        for a in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY] {
            assert_eq!(refused(1e12, a), "a");
        }
        assert!(power.sigma(0.0, 1.0).is_err());
        assert!(power.sigma(f64::NAN, 1.0).is_err());
    }
}
