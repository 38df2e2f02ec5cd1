//! The fit of the nonlinear matter power by Takahashi et al. (2012), ApJ 761, 152, appendix, for a cosmological constant.

use std::f64::consts::PI;

/// The fit for one linear spectrum.
pub struct Halofit<F> {
    linear: F,
    omega_m: f64,
    /// Where the variance in Gaussian spheres is 1, in h/Mpc.
    pub k_sigma: f64,
    /// The effective spectral index there, and its curvature.
    pub index: f64,
    pub curvature: f64,
}

impl<F: Fn(f64) -> f64> Halofit<F> {
    /// For the linear power `linear` in (Mpc/h)^3 at k in h/Mpc, of the moment at which matter has the share `omega_m`.
    pub fn new(linear: F, omega_m: f64) -> Self {
        // Variance, and its first and second derivative by ln R: a trapezium in ln k, whose integrand vanishes at both ends.
        let moments = |r: f64| -> [f64; 3] {
            let (step, mut sums) = (0.01, [0.0; 3]);
            for i in 0..2500 {
                let k = 1e-5 * (step * f64::from(i)).exp();
                let x2 = (k * r).powi(2);
                let term = contrast(linear(k), k) * (-x2).exp() * step;
                sums[0] += term;
                sums[1] += term * -2.0 * x2;
                sums[2] += term * (4.0 * x2 * x2 - 4.0 * x2);
            }
            sums
        };
        let (mut low, mut high) = (1e-2f64, 1e2f64);
        for _ in 0..60 {
            let middle = (low * high).sqrt();
            if moments(middle)[0] > 1.0 { low = middle } else { high = middle }
        }
        let [variance, first, second] = moments(low);
        let slope = first / variance;
        let curvature = -(second / variance - slope * slope);
        Halofit { linear, omega_m, k_sigma: 1.0 / low, index: -3.0 - slope, curvature }
    }

    /// The nonlinear power over the linear one.
    pub fn boost(&self, k: f64) -> f64 {
        let (n, c) = (self.index, self.curvature);
        let a = 10f64.powf(1.5222 + n * (2.8553 + n * (2.3706 + n * (0.9903 + n * 0.2250))) - 0.6038 * c);
        let b = 10f64.powf(-0.5642 + n * (0.5864 + n * 0.5716) - 1.5474 * c);
        let cn = 10f64.powf(0.3698 + n * (2.0404 + n * 0.8161) + 0.5869 * c);
        let gamma = 0.1971 - 0.0843 * n + 0.8460 * c;
        let alpha = (6.0835 + n * (1.3373 - n * 0.1959) - 5.5274 * c).abs();
        let beta = 2.0379 + n * (-0.7354 + n * (0.3157 + n * (1.2490 + n * 0.3980))) - 0.1682 * c;
        let nu = 10f64.powf(5.2105 + 3.6902 * n);
        let [f1, f2, f3] = [-0.0307, -0.0585, 0.0743].map(|power| self.omega_m.powf(power));
        let (y, linear) = (k / self.k_sigma, contrast((self.linear)(k), k));
        let quasilinear = linear * (1.0 + linear).powf(beta) / (1.0 + alpha * linear) * (-y / 4.0 - y * y / 8.0).exp();
        let halo = a * y.powf(3.0 * f1) / (1.0 + b * y.powf(f2) + (cn * f3 * y).powf(3.0 - gamma));
        (quasilinear + halo / (1.0 + nu / (y * y))) / linear
    }
}

fn contrast(power: f64, k: f64) -> f64 {
    k.powi(3) * power / (2.0 * PI * PI)
}
