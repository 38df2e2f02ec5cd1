//! Special functions in f64: what quantiles of priors are made of.

/// The logarithm of the gamma function, for x > 0: Stirling's series above 10, the recurrence below.
fn ln_gamma(mut x: f64) -> f64 {
    // One logarithm of a product is rounded once; a sum of logarithms as often as it has terms.
    let mut product = 1.0;
    while x < 10.0 {
        product *= x;
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let tail = 1.0 / 1188.0 - inverse * (691.0 / 360_360.0 - inverse / 156.0);
    let series = inverse * (-1.0 / 360.0 + inverse * (1.0 / 1260.0 + inverse * (-1.0 / 1680.0 + inverse * tail)));
    (x - 0.5) * x.ln() - x + (2.0 * std::f64::consts::PI).ln() / 2.0 + (1.0 / 12.0 + series) / x - product.ln()
}

/// The logarithm of `x^a e^-x / Gamma(a)`.
fn ln_kernel(a: f64, x: f64) -> f64 {
    a * x.ln() - x - ln_gamma(a)
}

/// Logarithms of the regularised incomplete gamma functions P(a, x) and Q = 1 - P, each to rounding but for the smaller part of 1, which is a
/// difference of 1 and loses as much as it is smaller: a series where x is small, a continued
/// fraction elsewhere (Lentz's algorithm).
pub(super) fn ln_gamma_p_q(a: f64, x: f64) -> [f64; 2] {
    if x < a + 1.0 {
        let (mut term, mut sum, mut n) = (1.0 / a, 1.0 / a, a);
        while term > sum * f64::EPSILON / 4.0 {
            n += 1.0;
            term *= x / n;
            sum += term;
        }
        let p = ln_kernel(a, x) + sum.ln();
        return [p, (-p.exp()).ln_1p()];
    }
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut fraction = d;
    for n in 1..10_000 {
        let n = f64::from(n);
        let factor = -n * (n - a);
        b += 2.0;
        d = 1.0 / (factor * d + b);
        c = b + factor / c;
        fraction *= c * d;
        if (c * d - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    let q = ln_kernel(a, x) + fraction.ln();
    [(-q.exp()).ln_1p(), q]
}

/// The logarithm of the probability that a standard normal number is less than x.
pub(super) fn ln_normal(x: f64) -> f64 {
    if x == 0.0 {
        return -std::f64::consts::LN_2;
    }
    // Half of erfc(|x| / sqrt(2)) is beyond |x|.
    let beyond = ln_gamma_p_q(0.5, x * x / 2.0)[1] - std::f64::consts::LN_2;
    if x < 0.0 { beyond } else { (-beyond.exp()).ln_1p() }
}

/// The density of a standard normal number.
pub(super) fn normal_density(x: f64) -> f64 {
    (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The y with `P(a, y)` = the probability that a standard normal number is less than x, as its logarithm: by halving, on the side that is not rounded away.
pub(super) fn ln_gamma_quantile(a: f64, x: f64) -> f64 {
    let side = usize::from(x > 0.0);
    let wanted = ln_normal(-x.abs());
    // P grows with y, Q falls.
    let is_above = |ln_y: f64| {
        let found = ln_gamma_p_q(a, ln_y.exp())[side];
        if side == 0 { found > wanted } else { found < wanted }
    };
    let (mut low, mut high) = (-700.0, 700.0);
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if is_above(middle) { high = middle } else { low = middle }
    }
    0.5 * (low + high)
}

/// The density of a Gamma number of shape a at `e^ln_y`.
pub(super) fn gamma_density(a: f64, ln_y: f64) -> f64 {
    (ln_kernel(a, ln_y.exp()) - ln_y).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) {
        close_beside(found, wanted, 1.0);
    }

    /// Errors grow by `condition`: that of `ln(1 - p)` is p / (1 - p).
    fn close_beside(found: f64, wanted: f64, condition: f64) {
        assert!((found - wanted).abs() < 2e-14 * wanted.abs().max(1.0) * condition.max(1.0), "{found} {wanted}");
    }

    #[test]
    fn known_values_are_met() {
        close(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln());
        close(ln_gamma(1.0), 0.0);
        close(ln_gamma(21.0), (2..=20).map(|n| f64::from(n).ln()).sum());
        // P(1, x) = 1 - e^-x; P(2, x) = 1 - (1 + x) e^-x.
        for x in [1e-3, 0.5, 1.9, 2.1, 10.0, 40.0] {
            close_beside(ln_gamma_p_q(1.0, x)[1], -x, if x < 2.0 { x.exp_m1() } else { 1.0 });
            close(ln_gamma_p_q(2.0, x)[1], (1.0 + x).ln() - x);
            close(ln_gamma_p_q(2.0, x)[0].exp(), -((1.0 + x) * (-x).exp() - 1.0));
        }
        // Of tables: the normal distribution at -3, -1 and 2.
        close(ln_normal(-3.0).exp(), 0.001349898031630095);
        close(ln_normal(-1.0).exp(), 0.15865525393145707);
        close(ln_normal(2.0).exp(), 0.9772498680518208);
        // A Gamma number of shape 1 has the quantile -ln(1 - p).
        for x in [-6.0, -1.0, 0.0, 0.3, 2.0] {
            let y = ln_gamma_quantile(1.0, x).exp();
            close(y.ln(), (-ln_normal(-x)).ln());
        }
    }
}
