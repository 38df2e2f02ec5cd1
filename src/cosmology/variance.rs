//! The variance of the linear density in spheres, by radius and by mass, the amplitude that gives a
//! sigma_8, and the variance of displacements.

use std::f64::consts::PI;

use super::error::given;
use super::quadrature::panels;
use super::{Amplitude, Cosmology, CosmologyError, LinearPower, Parameters, TransferKind};

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
    /// Checks the parameters and, for [`Amplitude::Sigma8`], finds the A_s that belongs to it.
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] for the first parameter that is outside the range given at
    /// its field.
    pub fn new(parameters: Parameters) -> Result<Self, CosmologyError> {
        parameters.check()?;
        match parameters.amplitude {
            Amplitude::Primordial(value) => Ok(Self::from_checked(&parameters, value)),
            Amplitude::Sigma8(value) => {
                // sigma_8^2 is proportional to A_s, so one evaluation at A_s = 1 is enough.
                let unit = LinearPower::new(Self::from_checked(&parameters, 1.0), TransferKind::Full)?.sigma8();
                Ok(Self::from_checked(&parameters, (value / unit).powi(2)))
            }
        }
    }

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
        let range = [low.max(first), high.min(last)];
        // Narrow panels, to resolve the acoustic oscillations.
        let [square] = panels([0.0], range, |k| k * 0.05_f64.exp(), |k| [k * self.unit(k) / (6.0 * PI * PI)]);
        Ok(square.sqrt() * d1)
    }

    /// sigma_8: the linear rms contrast in spheres of 8 Mpc/h at a = 1.
    #[must_use]
    pub fn sigma8(&self) -> f64 {
        top_hat(8.0, |k| self.unit(k)).variance.sqrt() * self.d1_today
    }
}

/// The result of [`top_hat`].
struct TopHat {
    /// sigma^2.
    variance: f64,
    /// d sigma^2/d ln R.
    derivative: f64,
}

/// Returns the integral of k^3 P/(2 pi^2) W(kR)^2 over ln k, and its derivative by ln R.
///
/// Gauss-Legendre panels in ln k, each at most 0.05 wide (the acoustic wiggles) and at most 1 wide
/// in x = kR (the window's). Beyond x = 1000 (for large spheres beyond k = 1, where power falls
/// steeply) the window's square is replaced by its mean, 9/(2 x^4). For spheres of more than 1
/// Mpc/h less than 1e-8 of the integral is there, and the oscillation about the mean is a small
/// part of that.
fn top_hat(radius: f64, power: impl Fn(f64) -> f64) -> TopHat {
    const WINDOW_RESOLVED: f64 = 1e3;
    const LOWEST: f64 = 1e-7;
    let contrast = |k: f64| k.powi(3) * power(k) / (2.0 * PI * PI);
    let resolved = |k: f64| {
        let (contrast, [window, derivative]) = (contrast(k), sphere(k * radius));
        [contrast * window.powi(2), contrast * 2.0 * window * derivative]
    };
    let averaged = |k: f64| {
        let mean = contrast(k) * 4.5 / (k * radius).powi(4);
        [mean, -4.0 * mean]
    };

    let wiggles = |k: f64| k * 0.05_f64.exp();
    let end = (WINDOW_RESOLVED / radius).max(1.0);
    let range = [LOWEST.min(1e-6 / radius), end];
    let sums = panels([0.0; 2], range, |k| wiggles(k).min(k + 1.0 / radius), resolved);
    let [variance, derivative] = panels(sums, [end, 1e5 * end], wiggles, averaged);
    TopHat { variance, derivative }
}

/// Fourier transform of a sphere of radius 1 and volume 1, W(x) = 3 (sin x - x cos x)/x^3, and
/// dW/dln x.
fn sphere(x: f64) -> [f64; 2] {
    if x < 0.3 {
        // The closed forms cancel here; the next terms of the series are below 1e-15.
        let x2 = x * x;
        let value = 1.0 - x2 / 10.0 * (1.0 - x2 / 28.0 * (1.0 - x2 / 54.0 * (1.0 - x2 / 88.0 * (1.0 - x2 / 130.0))));
        let slope = -x2 / 5.0 * (1.0 - x2 / 14.0 * (1.0 - x2 / 36.0 * (1.0 - x2 / 66.0 * (1.0 - x2 / 104.0))));
        [value, slope]
    } else {
        let (sin, cos) = x.sin_cos();
        let value = 3.0 * (sin - x * cos) / (x * x * x);
        [value, 3.0 * (sin / x - value)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn window_is_continuous_where_its_forms_meet() {
        let closed = |x: f64| 3.0 * (x.sin() - x * x.cos()) / (x * x * x);
        // The closed form loses 3 eps/x^3 to cancellation: 3e-14 at 0.3; the slope's three times
        // that.
        for x in [0.25, 0.2999, 0.3] {
            let [value, slope] = sphere(x);
            assert!((value - closed(x)).abs() < 5e-14);
            assert!((slope - 3.0 * (x.sin() / x - closed(x))).abs() < 2e-13);
        }
        assert_eq!(sphere(0.0), [1.0, 0.0]);
    }

    #[test]
    fn power_laws_have_their_closed_forms() {
        // For P = k^n: sigma^2 = R^-(n+3)/(2 pi^2) times the integral of x^(n+2) W^2, which is 3
        // pi/5 for n = -2 and 3 pi/2 for n = 0; and sigma goes as M^-(n+3)/6.
        for (n, integral) in [(-2, 0.6 * PI), (0, 1.5 * PI)] {
            for radius in [1e-4, 1.0, 20.0, 500.0_f64] {
                let TopHat { variance, derivative } = top_hat(radius, |k| k.powi(n));
                let exact = radius.powi(-n - 3) * integral / (2.0 * PI * PI);
                // The integral below the first k is 1e-6 of the whole for n = -2, and less for
                // other n. The part where the window is averaged oscillates by 9/(4 x^3) sin(2x):
                // for n = 0 by 1e-6 of the whole at x = 1000.
                assert!((variance / exact - 1.0).abs() < 2e-6, "n = {n}, R = {radius}: {variance} {exact}");
                // The window's derivative falls more slowly: 9/x sin(2x) at n = 0, which leaves
                // 5e-3 of 14.
                let tolerance = if n == 0 { 1e-3 } else { 1e-5 };
                assert!((derivative / variance + f64::from(n + 3)).abs() < tolerance, "n = {n}, R = {radius}");
            }
        }
    }

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
