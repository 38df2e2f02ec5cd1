//! Integrals over a logarithm.

/// Integrates several integrands over ln x from `low` to `high` in panels, and adds the integrals
/// to `sums`; `next` returns the end of a panel from its beginning.
pub(super) fn panels<const N: usize>(
    mut sums: [f64; N],
    [low, high]: [f64; 2],
    next: impl Fn(f64) -> f64,
    integrands: impl Fn(f64) -> [f64; N],
) -> [f64; N] {
    let mut x = low;
    while x < high {
        let end = next(x).min(high);
        let part = panel(x, end, &integrands);
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        x = end;
    }
    sums
}

/// Five-point Gauss-Legendre quadrature of several integrands over ln x between `low` and `high`.
///
/// Exact for polynomials in ln x of up to the ninth degree.
pub(super) fn panel<const N: usize>(low: f64, high: f64, mut integrands: impl FnMut(f64) -> [f64; N]) -> [f64; N] {
    // Roots of the Legendre polynomial P5, and weights: 0 and (1/3) sqrt(5 -+ 2 sqrt(10/7)).
    let inner = (10.0_f64 / 7.0).sqrt() * 2.0;
    let roots = [0.0, (5.0 - inner).sqrt() / 3.0, (5.0 + inner).sqrt() / 3.0];
    let seventy = 70.0_f64.sqrt() * 13.0;
    let weights = [128.0 / 225.0, (322.0 + seventy) / 900.0, (322.0 - seventy) / 900.0];
    let (center, half) = ((low * high).sqrt(), 0.5 * (high / low).ln());
    let mut sums = integrands(center).map(|value| weights[0] * value);
    for (root, weight) in roots.iter().zip(weights).skip(1) {
        let shift = (half * root).exp();
        let (above, below) = (integrands(center * shift), integrands(center / shift));
        for (sum, (above, below)) in sums.iter_mut().zip(above.iter().zip(below)) {
            *sum += weight * (above + below);
        }
    }
    sums.map(|sum| sum * half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninth_degree_is_exact() {
        let (low, high) = (0.3_f64, 7.0_f64);
        for degree in 0..=9 {
            let [found] = panel(low, high, |x| [x.ln().powi(degree)]);
            let primitive = |x: f64| x.ln().powi(degree + 1) / f64::from(degree + 1);
            // Sums of some ten terms of up to ln(7)^9 = 400.
            assert!((found - (primitive(high) - primitive(low))).abs() < 1e-12, "{degree}: {found}");
        }
    }
}
