//! The nonlinear power spectrum by halofit, in the form that Takahashi et al. (2012) revised.

use std::f64::consts::PI;

use super::error::given;
use super::quadrature::panels;
use super::{Cosmology, CosmologyError, LinearPower};

/// Spheres in which the linear contrast is looked for, in Mpc/h: beyond the smaller one all is
/// linear.
const RADII: [f64; 2] = [1e-4, 1e5];

/// Halofit at one scale factor: the nonlinear power of matter from the linear one, as
///
/// ```text
/// Delta^2 = Delta_Q^2 + Delta_H^2         Delta^2 = k^3 P/(2 pi^2)
/// ```
///
/// of correlated halos and of matter within halos, with coefficients that follow from the scale
/// k_sigma on which the contrast is 1, and from slope and curvature of the linear spectrum there.
///
/// - Fitted to simulations at k <= 30 h/Mpc and 0 <= z <= 10, to 5 % for k <= 1 h/Mpc and z <= 3,
///   to 10 % for k <= 10; what lies beyond is an extrapolation.
/// - Matter without massive neutrinos. The fit has a constant w; for others w(a) of the epoch takes
///   its place.
/// - A linear spectrum from a table is continued beyond its rows, which should reach past k_sigma:
///   some h/Mpc.
///
/// Source: Takahashi, Sato, Nishimichi, Taruya & Oguri (2012), ApJ 761, 152, appendix; Smith et al.
/// (2003), MNRAS 341, 1311.
///
/// ```
/// use meshloom::cosmology::{Cosmology, Halofit, LinearPower, TransferKind};
///
/// let power = LinearPower::new(Cosmology::planck18(), TransferKind::Full)?;
/// let today = Halofit::new(&power, 1.0)?;
/// assert!((today.at(0.01) / power.at(0.01, 1.0)? - 1.0).abs() < 0.02); // large scales stay linear
/// assert!(today.at(1.0) > 5.0 * power.at(1.0, 1.0)?);
/// # Ok::<(), meshloom::cosmology::CosmologyError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Halofit<'a> {
    power: &'a LinearPower,
    /// D1(a)^2.
    growth: f64,
    /// `None` if the contrast is below 1 on all scales: all power is linear.
    fit: Option<Fit>,
}

/// Coefficients that follow from the spectrum and the background at one epoch.
#[derive(Debug, Clone, Copy)]
struct Fit {
    scale: NonlinearScale,
    /// a_n, b_n, c_n, gamma_n.
    halo: [f64; 4],
    /// alpha_n and beta_n.
    quasilinear: [f64; 2],
    nu: f64,
    /// f_1, f_2 and f_3.
    matter: [f64; 3],
}

/// Scale at which fluctuations become nonlinear: the linear contrast of the field, smoothed with a
/// Gaussian of radius 1/k, is 1.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct NonlinearScale {
    /// k_sigma in h/Mpc.
    pub k: f64,
    /// n_eff = -3 - d ln sigma^2/d ln R, the effective spectral index there.
    pub index: f64,
    /// C = -d^2 ln sigma^2/d ln R^2, the curvature.
    pub curvature: f64,
}

impl<'a> Halofit<'a> {
    /// Halofit of the linear `power` at scale factor `a`.
    ///
    /// # Errors
    /// Same as [`Growth::at`](super::Growth::at); [`CosmologyError::OutOfRange`] where the contrast
    /// is above 1 on all scales.
    pub fn new(power: &'a LinearPower, a: f64) -> Result<Self, CosmologyError> {
        let growth = power.growth().at(a)?.d1.powi(2);
        let scale = nonlinear_scale(|k| power.unit(k) * growth)?;
        Ok(Halofit { power, growth, fit: scale.map(|scale| Fit::new(scale, power.cosmology(), a)) })
    }

    /// Returns the scale at which fluctuations become nonlinear; `None` if it is below 1e-4 Mpc/h.
    #[must_use]
    pub fn scale(&self) -> Option<NonlinearScale> {
        self.fit.map(|fit| fit.scale)
    }

    /// Returns the nonlinear P in (Mpc/h)^3, at `k` >= 0 in h/Mpc.
    #[must_use]
    pub fn at(&self, k: f64) -> f64 {
        let linear = self.power.unit(k) * self.growth;
        match &self.fit {
            Some(fit) if k > 0.0 => {
                let volume = k.powi(3) / (2.0 * PI * PI);
                fit.contrast(k, linear * volume) / volume
            }
            _ => linear,
        }
    }
}

impl Fit {
    /// Equations A6-A12 of Takahashi et al.
    fn new(scale: NonlinearScale, cosmology: &Cosmology, a: f64) -> Self {
        let NonlinearScale { index: n, curvature: c, .. } = scale;
        let matter = cosmology.matter_fraction(a);
        let [w0, wa] = cosmology.dark_energy();
        // Omega_w(a) (1 + w): nothing for a cosmological constant.
        let dark = cosmology.dark_energy_fraction(a) * (1.0 + w0 + wa * (1.0 - a));
        let power =
            |coefficients: &[f64]| coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * n + coefficient);
        Fit {
            scale,
            halo: [
                10f64.powf(power(&[1.5222, 2.8553, 2.3706, 0.9903, 0.2250]) - 0.6038 * c + 0.1749 * dark),
                10f64.powf(power(&[-0.5642, 0.5864, 0.5716]) - 1.5474 * c + 0.2279 * dark),
                10f64.powf(power(&[0.3698, 2.0404, 0.8161]) + 0.5869 * c),
                power(&[0.1971, -0.0843]) + 0.8460 * c,
            ],
            quasilinear: [
                (power(&[6.0835, 1.3373, -0.1959]) - 5.5274 * c).abs(),
                power(&[2.0379, -0.7354, 0.3157, 1.2490, 0.3980]) - 0.1682 * c,
            ],
            nu: 10f64.powf(power(&[5.2105, 3.6902])),
            matter: [-0.0307, -0.0585, 0.0743].map(|exponent| matter.powf(exponent)),
        }
    }

    /// Delta^2 where the linear one is `linear`: equations A1-A3, whose mu_n is 0.
    fn contrast(&self, k: f64, linear: f64) -> f64 {
        let Fit { halo: [a, b, c, gamma], quasilinear: [alpha, beta], nu, matter: [f1, f2, f3], .. } = *self;
        let y = k / self.scale.k;
        let quasilinear = linear * (1.0 + linear).powf(beta) / (1.0 + alpha * linear) * (-y / 4.0 - y * y / 8.0).exp();
        let halo = a * y.powf(3.0 * f1) / (1.0 + b * y.powf(f2) + (c * f3 * y).powf(3.0 - gamma));
        quasilinear + halo / (1.0 + nu / (y * y))
    }
}

/// Returns the scale at which smoothing with a Gaussian of radius R leaves a contrast of 1; `None`
/// if it is below the first of [`RADII`].
fn nonlinear_scale(power: impl Fn(f64) -> f64) -> Result<Option<NonlinearScale>, CosmologyError> {
    let above = |radius: f64| gaussian(radius, &power)[0] > 1.0;
    let [mut low, mut high] = RADII.map(f64::ln);
    if !above(RADII[0]) {
        return Ok(None);
    }
    let widest = gaussian(RADII[1], &power)[0].sqrt();
    given("sigma", widest).require(!above(RADII[1]), "below 1 on 1e5 Mpc/h", "give less power")?;
    // sigma falls with R: as many halvings as leave rounding.
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if above(middle.exp()) { low = middle } else { high = middle }
    }
    let radius = low.exp();
    let [variance, second, fourth] = gaussian(radius, &power);
    // d sigma^2/d ln R = -2 I2 and d^2 sigma^2/d ln R^2 = 4 (I4 - I2), where I2 and I4 have x^2 and
    // x^4 beside the filter.
    let (slope, bend) = (-2.0 * second / variance, 4.0 * (fourth - second) / variance);
    Ok(Some(NonlinearScale { k: 1.0 / radius, index: -3.0 - slope, curvature: slope * slope - bend }))
}

/// Returns the integrals of k^3 P/(2 pi^2) exp(-x^2) over ln k, alone and with x^2 and x^4, where
/// x = k R.
///
/// Gauss-Legendre panels of 0.1 in ln k, from where the power is nothing to x = 8, beyond which
/// e^-64 is left.
fn gaussian(radius: f64, power: &impl Fn(f64) -> f64) -> [f64; 3] {
    let range = [1e-6f64.min(1e-3 / radius), 8.0 / radius];
    panels(
        [0.0; 3],
        range,
        |k| k * 0.1f64.exp(),
        |k| {
            let x2 = (k * radius).powi(2);
            let smooth = k.powi(3) * power(k) / (2.0 * PI * PI) * (-x2).exp();
            [smooth, smooth * x2, smooth * x2 * x2]
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::{Amplitude, Parameters, TransferKind};

    #[test]
    fn power_laws_have_their_index_and_no_curvature() {
        // For P = A k^n: sigma^2 = A Gamma((n + 3)/2)/(4 pi^2) R^-(n+3); Gamma(1/2) = sqrt(pi),
        // Gamma(1) = 1.
        for (n, gamma) in [(-2, PI.sqrt()), (-1, 1.0)] {
            for amplitude in [0.1, 40.0] {
                let found = nonlinear_scale(|k| amplitude * k.powi(n)).unwrap().unwrap();
                let k = (4.0 * PI * PI / (amplitude * gamma)).powf(1.0 / f64::from(n + 3));
                // Below the first k lies 1e-3 of the power of n = -2 on the smallest scales, and
                // less than 1e-6 of that of n = -1.
                let tolerance = if n == -2 { 3e-3 } else { 1e-5 };
                assert!((found.k / k - 1.0).abs() < tolerance, "{found:?} {k}");
                assert!(
                    (found.index - f64::from(n)).abs() < tolerance && found.curvature.abs() < tolerance,
                    "{found:?}"
                );
            }
        }
    }

    #[test]
    fn weak_fields_are_linear_and_strong_ones_refused_or_finite() {
        let universe = |sigma8: f64| {
            let parameters = Parameters { amplitude: Amplitude::Sigma8(sigma8), ..Default::default() };
            LinearPower::new(Cosmology::new(parameters).unwrap(), TransferKind::Full).unwrap()
        };
        let weak = universe(1e-3);
        let halofit = Halofit::new(&weak, 1.0).unwrap();
        assert_eq!(halofit.scale(), None);
        assert!((halofit.at(0.3) / weak.at(0.3, 1.0).unwrap() - 1.0).abs() < 1e-15);
        for (sigma8, a) in [(0.8, 1.0), (0.8, 0.02), (100.0, 1.0), (0.2, 0.5)] {
            let power = universe(sigma8);
            let halofit = Halofit::new(&power, a).unwrap();
            assert_eq!(halofit.at(0.0), 0.0);
            for k in [1e-4, 0.01, 0.3, 5.0, 1e3] {
                assert!(halofit.at(k).is_finite() && halofit.at(k) > 0.0, "sigma8 = {sigma8}, a = {a}, k = {k}");
            }
        }
        // sigma^2 = 1e12/(4 pi^2 R^2), 2.5 on 1e5 Mpc/h.
        assert!(nonlinear_scale(|k| 1e12 / k).is_err());
        assert!(Halofit::new(&weak, 2.0).is_err());
    }
}
