//! The variance of a field smoothed with a spherical top hat, from its power spectrum.

use std::f64::consts::PI;

use super::quadrature::panel;

/// The result of [`top_hat`].
pub(super) struct TopHat {
    /// sigma^2.
    pub variance: f64,
    /// d sigma^2/d ln R.
    pub derivative: f64,
}

/// Returns the integral of k^3 P/(2 pi^2) W(kR)^2 over ln k, and its derivative by ln R.
///
/// Gauss-Legendre panels in ln k, each at most 0.05 wide (the acoustic wiggles) and at most 1 wide
/// in x = kR (the window's). Beyond x = 1000 (for large spheres beyond k = 1, where power falls
/// steeply) the window's square is replaced by its mean, 9/(2 x^4). For spheres of more than 1
/// Mpc/h less than 1e-8 of the integral is there, and the oscillation about the mean is a small
/// part of that.
pub(super) fn top_hat(radius: f64, power: impl Fn(f64) -> f64) -> TopHat {
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

    let [mut variance, mut derivative] = [0.0; 2];
    let mut add = |[first, second]: [f64; 2]| {
        variance += first;
        derivative += second;
    };
    let mut k = LOWEST.min(1e-6 / radius);
    let end = (WINDOW_RESOLVED / radius).max(1.0);
    while k < end {
        let next = (k * 0.05_f64.exp()).min(k + 1.0 / radius).min(end);
        add(panel(k, next, resolved));
        k = next;
    }
    // The integrand falls at least as x^-1, so nothing is left after five decades.
    let last = 1e5 * end;
    while k < last {
        let next = (k * 0.05_f64.exp()).min(last);
        add(panel(k, next, averaged));
        k = next;
    }
    TopHat { variance, derivative }
}

/// Fourier transform of a sphere of radius 1 and volume 1, W(x) = 3 (sin x - x cos x)/x^3, and
/// dW/dln x.
pub(super) fn sphere(x: f64) -> [f64; 2] {
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
                // What lies below the first k is 1e-6 of the n = -2 integral and less of the
                // others'; what lies where the window is averaged oscillates by 9/(4 x^3) sin(2x),
                // at n = 0 by 1e-6 of the whole at x = 1000.
                assert!((variance / exact - 1.0).abs() < 2e-6, "n = {n}, R = {radius}: {variance} {exact}");
                // The window's derivative falls more slowly: 9/x sin(2x) at n = 0, which leaves
                // 5e-3 of 14.
                let tolerance = if n == 0 { 1e-3 } else { 1e-5 };
                assert!((derivative / variance + f64::from(n + 3)).abs() < tolerance, "n = {n}, R = {radius}");
            }
        }
    }
}
