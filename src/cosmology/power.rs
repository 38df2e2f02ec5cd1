//! The linear matter power spectrum and its variance in spheres.

use std::f64::consts::PI;

use super::error::require;
use super::{Cosmology, CosmologyError, Growth, Transfer, TransferKind};

/// c/H0 in Mpc/h.
pub const HUBBLE_DISTANCE: f64 = 2997.92458;

/// The linear power spectrum of a cosmology:
///
/// ```text
/// P(k, a) = 2 pi^2/k^3 * 4/25 A_s (k/k_p)^(n_s - 1) T(k)^2 (c k/H0)^4 / Omega_m^2 * D1(a)^2,   k_p = 0.05/Mpc
/// ```
///
/// - k in h/Mpc, P in (Mpc/h)^3.
/// - P(0) = 0: the mean has no power.
///
/// ```
/// use meshloom::cosmology::{Cosmology, LinearPower, TransferKind};
///
/// let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full)?;
/// assert!((power.sigma8() - 0.8316117).abs() < 1e-7);
/// assert!((power.at(0.1, 1.0)? - 5894.274).abs() < 1e-3);
/// # Ok::<(), meshloom::cosmology::CosmologyError>(())
/// ```
#[derive(Debug, Clone)]
pub struct LinearPower {
    growth: Growth,
    transfer: Transfer,
    /// Everything in P that depends neither on k nor on a.
    scale: f64,
    pivot: f64,
    d1_today: f64,
}

impl LinearPower {
    /// Prepares the growth and the transfer function of `cosmology`.
    ///
    /// # Errors
    /// As [`Transfer::new`].
    pub fn new(cosmology: Cosmology, transfer: TransferKind) -> Result<Self, CosmologyError> {
        let growth = Growth::new(cosmology);
        let d1_today = growth.at(1.0)?.d1;
        let poisson = HUBBLE_DISTANCE.powi(2) / cosmology.omega_m();
        Ok(Self {
            transfer: Transfer::new(&cosmology, transfer)?,
            scale: 2.0 * PI * PI * (4.0 / 25.0) * cosmology.primordial_amplitude() * poisson * poisson,
            pivot: 0.05 / cosmology.h(),
            d1_today,
            growth,
        })
    }

    /// The cosmology whose power this is.
    pub fn cosmology(&self) -> &Cosmology {
        self.growth.cosmology()
    }

    /// The growth that carries this power through time.
    pub fn growth(&self) -> &Growth {
        &self.growth
    }

    /// The transfer function in use.
    pub fn transfer(&self) -> &Transfer {
        &self.transfer
    }

    /// P(k, a)/D1(a)^2: the power of the D = 1 field, in (Mpc/h)^3, at `k` >= 0 in h/Mpc.
    pub fn unit(&self, k: f64) -> f64 {
        if k == 0.0 {
            return 0.0;
        }
        let transfer = self.transfer.at(k);
        self.scale * k * (k / self.pivot).powf(self.cosmology().n_s() - 1.0) * transfer * transfer
    }

    /// P(k, a) in (Mpc/h)^3, at `k` >= 0 in h/Mpc.
    ///
    /// # Errors
    /// As [`Growth::at`]. For many k at one epoch, multiply [`unit`](Self::unit) by D1(a)^2.
    pub fn at(&self, k: f64, a: f64) -> Result<f64, CosmologyError> {
        let d1 = self.growth.at(a)?.d1;
        Ok(self.unit(k) * d1 * d1)
    }

    /// sigma_8: the linear rms contrast in spheres of 8 Mpc/h at a = 1.
    pub fn sigma8(&self) -> f64 {
        self.unit_variance(8.0).sqrt() * self.d1_today
    }

    /// sigma(R, a): the linear rms contrast in spheres of `radius` Mpc/h. At 8 Mpc/h it agrees with an
    /// independent quadrature to 1e-9.
    ///
    /// # Errors
    /// [`CosmologyError::OutOfRange`] unless 1e-3 <= radius <= 1e3 and [`A_MIN`](super::A_MIN) <= a <= 1.
    pub fn sigma(&self, radius: f64, a: f64) -> Result<f64, CosmologyError> {
        require((1e-3..=1e3).contains(&radius), "R", radius, "in [1e-3, 1e3]", "give the sphere's radius in Mpc/h")?;
        Ok(self.unit_variance(radius).sqrt() * self.growth.at(a)?.d1)
    }

    /// The integral of k^3 P/(2 pi^2) W(kR)^2 over ln k, for D = 1.
    ///
    /// Gauss-Legendre panels in ln k, each at most 0.05 wide (the acoustic wiggles) and at most 1 wide in x = kR (the
    /// window's). Beyond x = 1000 the window's square is replaced by its mean, 9/(2 x^4): what is left there is below
    /// 1e-8 of the whole even for the largest spheres, and its oscillation is a small part of that.
    fn unit_variance(&self, radius: f64) -> f64 {
        const WINDOW_RESOLVED: f64 = 1e3;
        const LOWEST: f64 = 1e-7;
        let contrast = |k: f64| k.powi(3) * self.unit(k) / (2.0 * PI * PI);
        let resolved = |k: f64| contrast(k) * sphere(k * radius).powi(2);
        let averaged = |k: f64| contrast(k) * 4.5 / (k * radius).powi(4);

        let mut sum = 0.0;
        let mut k = LOWEST.min(1e-6 / radius);
        let end = WINDOW_RESOLVED / radius;
        while k < end {
            let next = (k * 0.05_f64.exp()).min(k + 1.0 / radius).min(end);
            sum += panel(k, next, resolved);
            k = next;
        }
        // Contrast grows slower than k^3 and falls off against x^4, so five decades leave nothing.
        let last = 1e5 * end;
        while k < last {
            let next = (k * 0.05_f64.exp()).min(last);
            sum += panel(k, next, averaged);
            k = next;
        }
        sum
    }
}

/// Five-point Gauss-Legendre quadrature over ln k between `low` and `high`.
fn panel(low: f64, high: f64, integrand: impl Fn(f64) -> f64) -> f64 {
    // Roots of the Legendre polynomial P5, and weights: 0 and (1/3) sqrt(5 -+ 2 sqrt(10/7)).
    let inner = (10.0_f64 / 7.0).sqrt() * 2.0;
    let roots = [0.0, (5.0 - inner).sqrt() / 3.0, (5.0 + inner).sqrt() / 3.0];
    let seventy = 70.0_f64.sqrt() * 13.0;
    let weights = [128.0 / 225.0, (322.0 + seventy) / 900.0, (322.0 - seventy) / 900.0];
    let (center, half) = ((low * high).sqrt(), 0.5 * (high / low).ln());
    let mut sum = weights[0] * integrand(center);
    for (root, weight) in roots.iter().zip(weights).skip(1) {
        let shift = (half * root).exp();
        sum += weight * (integrand(center * shift) + integrand(center / shift));
    }
    sum * half
}

/// Fourier transform of a sphere of radius 1 and volume 1: 3 (sin x - x cos x)/x^3.
fn sphere(x: f64) -> f64 {
    if x < 0.3 {
        // The closed form cancels here; the next term of the series is below 1e-15.
        let x2 = x * x;
        1.0 - x2 / 10.0 * (1.0 - x2 / 28.0 * (1.0 - x2 / 54.0 * (1.0 - x2 / 88.0 * (1.0 - x2 / 130.0))))
    } else {
        3.0 * (x.sin() - x * x.cos()) / (x * x * x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_continuous_where_its_forms_meet() {
        let closed = |x: f64| 3.0 * (x.sin() - x * x.cos()) / (x * x * x);
        // The closed form loses 3 eps/x^3 to cancellation: 3e-14 at 0.3.
        for x in [0.25, 0.2999, 0.3] {
            assert!((sphere(x) - closed(x)).abs() < 5e-14);
        }
        assert_eq!(sphere(0.0), 1.0);
    }

    #[test]
    fn variance_agrees_with_a_plain_trapezium() {
        let power = LinearPower::new(Cosmology::simple(), TransferKind::Full).unwrap();
        for radius in [0.5, 8.0, 60.0] {
            // On a smooth integrand that vanishes at both ends the trapezium converges faster than any power; the
            // window is resolved up to x = 300, beyond which less than 1e-7 is left.
            let step = 1e-3;
            let steps = ((3e2_f64 / 1e-7).ln() / step) as i32;
            let sum: f64 = (0..steps)
                .map(|i| {
                    let k = 1e-7 / radius * (f64::from(i) * step).exp();
                    k.powi(3) * power.unit(k) / (2.0 * PI * PI) * sphere(k * radius).powi(2) * step
                })
                .sum();
            let today = power.growth().at(1.0).unwrap().d1;
            let found = power.sigma(radius, 1.0).unwrap();
            assert!((found / (sum.sqrt() * today) - 1.0).abs() < 1e-6, "R = {radius}");
        }
    }

    #[test]
    fn grows_with_the_square_of_the_growth_factor() {
        let power = LinearPower::new(Cosmology::simple(), TransferKind::NoWiggle).unwrap();
        let half = power.growth().at(0.5).unwrap().d1;
        assert_eq!(power.at(0.2, 0.5).unwrap(), power.unit(0.2) * half * half);
        assert_eq!(power.at(0.0, 0.5).unwrap(), 0.0);
        assert!(power.at(0.2, 2.0).is_err());
        assert!(power.sigma(0.0, 1.0).is_err());
        assert!(power.sigma(f64::NAN, 1.0).is_err());
    }
}
