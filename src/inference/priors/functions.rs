//! Functions of one number in f64 for quantiles of priors, and their approximations in WGSL.

use std::f64::consts::PI;
use std::fmt::Write as _;

/// Returns the logarithm of the gamma function for x > 0: Stirling's series, and the recurrence
/// below 10.
fn ln_gamma(mut x: f64) -> f64 {
    // The logarithm of a product is rounded once, a sum of logarithms for each term.
    let mut product = 1.0;
    while x < 10.0 {
        product *= x;
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let tail = 1.0 / 1188.0 - inverse * (691.0 / 360_360.0 - inverse / 156.0);
    let series = inverse * (-1.0 / 360.0 + inverse * (1.0 / 1260.0 + inverse * (-1.0 / 1680.0 + inverse * tail)));
    (x - 0.5) * x.ln() - x + (2.0 * PI).ln() / 2.0 + (1.0 / 12.0 + series) / x - product.ln()
}

/// Returns the logarithm of `x^a e^-x / Gamma(a)`.
fn ln_kernel(a: f64, x: f64) -> f64 {
    a * x.ln() - x - ln_gamma(a)
}

/// Returns the logarithms of the regularized incomplete gamma functions P(a, x) and Q = 1 - P.
///
/// P is a series for small x, Q a continued fraction (Lentz's algorithm) elsewhere, exact to
/// rounding; the other one is its difference to 1 and loses digits if it is small.
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

/// Returns the logarithm of the probability that a standard normal number is less than x.
pub(super) fn ln_normal(x: f64) -> f64 {
    if x == 0.0 {
        return -std::f64::consts::LN_2;
    }
    // Half of erfc(|x| / sqrt(2)) is beyond |x|.
    let beyond = ln_gamma_p_q(0.5, x * x / 2.0)[1] - std::f64::consts::LN_2;
    if x < 0.0 { beyond } else { (-beyond.exp()).ln_1p() }
}

/// Returns the last interval about the place where `is_above` becomes true, by bisection up to
/// rounding.
fn bisect([mut low, mut high]: [f64; 2], is_above: impl Fn(f64) -> bool) -> [f64; 2] {
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if is_above(middle) { high = middle } else { low = middle }
    }
    [low, high]
}

/// Returns the number of 0 or less for which [`ln_normal`] is `ln_p`, by bisection; `ln_p` is at
/// most ln(1/2).
pub(super) fn normal_quantile(ln_p: f64) -> f64 {
    // The probability beyond x is less than exp(-x^2 / 2).
    bisect([-(-2.0 * ln_p).sqrt(), 0.0], |x| ln_normal(x) > ln_p)[1]
}

/// Returns the density of a standard normal number.
pub(super) fn normal_density(x: f64) -> f64 {
    (-x * x / 2.0).exp() / (2.0 * PI).sqrt()
}

/// Returns the logarithm of the y for which `P(a, y)` is the probability that a standard normal
/// number is less than x, by bisection of the smaller one of P and Q.
pub(super) fn ln_gamma_quantile(a: f64, x: f64) -> f64 {
    let side = usize::from(x > 0.0);
    let wanted = ln_normal(-x.abs());
    // P grows with y, Q falls.
    let is_above = |ln_y: f64| {
        let found = ln_gamma_p_q(a, ln_y.exp())[side];
        if side == 0 { found > wanted } else { found < wanted }
    };
    let [low, high] = bisect([-700.0, 700.0], is_above);
    0.5 * (low + high)
}

/// Returns the density of a Gamma number of shape a at `e^ln_y`.
pub(super) fn gamma_density(a: f64, ln_y: f64) -> f64 {
    (ln_kernel(a, ln_y.exp()) - ln_y).exp()
}

/// A smooth function on an interval as a sum of Chebyshev polynomials.
pub(super) struct Chebyshev {
    range: [f64; 2],
    coefficients: Vec<f64>,
}

/// Points at which the function is sampled.
const NODES: usize = 96;

impl Chebyshev {
    /// Approximates `f` on an interval, up to the last coefficient above `least`.
    pub fn fit(range: [f64; 2], least: f64, f: impl Fn(f64) -> f64) -> Self {
        let angle = |node: usize| PI * (node as f64 + 0.5) / NODES as f64;
        let place = |node: usize| 0.5 * (range[0] + range[1]) + 0.5 * (range[1] - range[0]) * angle(node).cos();
        let values: Vec<f64> = (0..NODES).map(|node| f(place(node))).collect();
        let coefficient = |number: usize| {
            let sum: f64 =
                values.iter().enumerate().map(|(node, value)| value * (number as f64 * angle(node)).cos()).sum();
            sum * if number == 0 { 1.0 } else { 2.0 } / NODES as f64
        };
        let mut coefficients: Vec<f64> = (0..NODES).map(coefficient).collect();
        while coefficients.len() > 2 && coefficients.last().is_some_and(|last| last.abs() < least) {
            coefficients.pop();
        }
        Chebyshev { range, coefficients }
    }

    /// Returns statements that define `name` as the value at `at`, by Clenshaw's recurrence;
    /// constant beyond the interval.
    pub fn wgsl(&self, name: &str, at: &str) -> String {
        let [low, high] = self.range;
        let (factor, shift) = (2.0 / (high - low), -(high + low) / (high - low));
        let mut text =
            format!("let {name}_x = clamp({at} * f32({:?}) + f32({:?}), -1.0, 1.0);\n", factor as f32, shift as f32);
        let top = self.coefficients.len();
        let _ = writeln!(text, "let {name}_{top} = 0.0;\nlet {name}_{} = 0.0;", top + 1);
        for number in (1..top).rev() {
            let (one, two) = (number + 1, number + 2);
            let coefficient = self.coefficients[number] as f32;
            let _ = writeln!(
                text,
                "let {name}_{number} = 2.0 * {name}_x * {name}_{one} - {name}_{two} + f32({coefficient:?});"
            );
        }
        let _ = writeln!(text, "let {name} = {name}_x * {name}_1 - {name}_2 + f32({:?});", self.coefficients[0] as f32);
        text
    }
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
        close(ln_gamma(0.5), PI.sqrt().ln());
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
