//! Linear power spectra from tables, as CAMB and CLASS write them.

use super::CosmologyError;
use crate::hash::{START, fnv1a};

/// A linear power spectrum today from a table: P in (Mpc/h)^3 at wavenumbers k in h/Mpc.
///
/// Between its rows ln P is a cubic spline of ln k with zero curvature at the ends; outside of them
/// it is continued as a power law, which [`mode_amplitudes`](super::mode_amplitudes) refuses for
/// the modes of a box.
///
/// ```
/// use meshloom::cosmology::PowerTable;
///
/// let table = PowerTable::parse("# k/h  P\n 0.01 2e4\n 0.1 5e3\n 1 60\n 10 0.3\n")?;
/// assert!((table.at(0.1) - 5e3).abs() < 1e-9);
/// assert_eq!(table.range(), [0.01, 10.0]);
/// assert!(PowerTable::parse("# k (1/Mpc)  P (Mpc^3)\n 0.01 2e4\n 0.1 5e3\n 1 60\n 10 0.3\n").is_err());
/// # Ok::<(), meshloom::cosmology::CosmologyError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct PowerTable {
    /// The first and the last wavenumber, as they were given: exp(ln k) is another number.
    range: [f64; 2],
    /// ln k, ascending.
    x: Vec<f64>,
    /// ln P.
    y: Vec<f64>,
    /// The spline's second derivatives.
    curvature: Vec<f64>,
}

/// Fewest rows of a table.
const FEWEST: usize = 4;

impl PowerTable {
    /// Reads the first two columns of a text: k in h/Mpc and P in (Mpc/h)^3. Lines that begin with
    /// `#` are comments.
    ///
    /// # Errors
    /// [`CosmologyError::Table`] for a row that is not two positive numbers or whose k does not
    /// ascend, for less than four rows, and for comments that name other units (1/Mpc, Mpc^3).
    pub fn parse(text: &str) -> Result<Self, CosmologyError> {
        let (mut k, mut x, mut y) = (Vec::new(), Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |why: String| CosmologyError::Table { line: number, why };
            let line = line.trim();
            if let Some(comment) = line.strip_prefix('#') {
                check_units(comment).map_err(wrong)?;
                continue;
            }
            if line.is_empty() {
                continue;
            }
            let mut numbers = line.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
            let mut positive = |what: &str| {
                let word = numbers.next().unwrap_or("");
                let value = word.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
                value.ok_or_else(|| format!("{what} is `{word}`, and must be a positive number"))
            };
            let (wavenumber, power) = (positive("k").map_err(wrong)?, positive("P").map_err(wrong)?);
            let ln_k = wavenumber.ln();
            if x.last().is_some_and(|&last| last >= ln_k) {
                return Err(wrong("k must ascend from row to row".into()));
            }
            k.push(wavenumber);
            x.push(ln_k);
            y.push(power.ln());
        }
        if x.len() < FEWEST {
            let why = format!("there are {} rows of k and P, and {FEWEST} are needed at least", x.len());
            return Err(CosmologyError::Table { line: text.lines().count(), why });
        }
        let curvature = curvature(&x, &y);
        Ok(PowerTable { range: [k[0], k[k.len() - 1]], x, y, curvature })
    }

    /// Returns the first and the last wavenumber, in h/Mpc.
    #[must_use]
    pub fn range(&self) -> [f64; 2] {
        self.range
    }

    /// Returns a 64-bit mark of the contents.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let numbers = self.x.iter().chain(&self.y);
        numbers.fold(START, |hash, number| fnv1a(hash, &number.to_bits().to_le_bytes()))
    }

    /// P at `k` > 0.
    #[must_use]
    pub fn at(&self, k: f64) -> f64 {
        let (at, last) = (k.ln(), self.x.len() - 1);
        let i = self.x.partition_point(|&x| x <= at).clamp(1, last);
        let ([a, b], step) = ([self.y[i - 1], self.y[i]], self.x[i] - self.x[i - 1]);
        let [ca, cb] = [self.curvature[i - 1], self.curvature[i]];
        // Slopes at the ends, for what lies beyond them.
        let outside = if at < self.x[0] {
            Some((self.x[0], a, (b - a) / step - step * (2.0 * ca + cb) / 6.0))
        } else if at > self.x[last] {
            Some((self.x[last], b, (b - a) / step + step * (ca + 2.0 * cb) / 6.0))
        } else {
            None
        };
        if let Some((x, y, slope)) = outside {
            return (y + slope * (at - x)).exp();
        }
        let t = (at - self.x[i - 1]) / step;
        let u = 1.0 - t;
        let bend = ((u * u * u - u) * ca + (t * t * t - t) * cb) * step * step / 6.0;
        (u * a + t * b + bend).exp()
    }

    /// Returns the table with every P times `factor` > 0.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.y.iter_mut().for_each(|y| *y += factor.ln());
        self
    }

    /// Checks shape and, where `amplitude` asks for it, strength against what is `expected` today
    /// at some k, from transfer functions of the same cosmology: a table in 1/Mpc or Mpc^3 differs
    /// by factors of h.
    ///
    /// # Errors
    /// [`CosmologyError::Table`] where P(0.5)/P(0.02) is farther than a factor 1.25 from what is
    /// expected, or P(0.02) than a factor 1.6.
    pub fn check(&self, expected: impl Fn(f64) -> f64, amplitude: bool) -> Result<(), CosmologyError> {
        let [strengths, there] = [0.02, 0.5].map(|k| self.at(k) / expected(k));
        let shapes = there / strengths;
        let far = |ratio: f64, factor: f64| !(1.0 / factor..=factor).contains(&ratio);
        if far(shapes, 1.25) || amplitude && far(strengths, 1.6) {
            let why = format!(
                "P(k = 0.02 h/Mpc) is {strengths:.3} and P(0.5)/P(0.02) {shapes:.3} times what is expected of this cosmology; the columns must be \
                 k in h/Mpc and P in (Mpc/h)^3 at redshift 0, of the cosmology that is given; or set sigma8, which sets the strength"
            );
            return Err(CosmologyError::Table { line: 1, why });
        }
        Ok(())
    }
}

/// Refuses the units without h that comments of CLASS and CAMB name.
fn check_units(comment: &str) -> Result<(), String> {
    let words: String = comment.to_lowercase().chars().filter(|c| !c.is_whitespace()).collect();
    let without_h = ["(1/mpc)", "[1/mpc]", "mpc^-1", "(mpc^3)", "[mpc^3]", "(mpc)^3"];
    let has_h = words.contains("h/mpc") || words.contains("mpc/h") || words.contains("k/h") || words.contains("hmpc");
    match without_h.iter().find(|unit| words.contains(*unit)) {
        Some(unit) if !has_h => Err(format!(
            "the comment names the unit {unit}, and columns in h/Mpc and (Mpc/h)^3 are needed; convert or export them so"
        )),
        _ => Ok(()),
    }
}

/// Second derivatives of the natural cubic spline: a tridiagonal system, solved by elimination.
fn curvature(x: &[f64], y: &[f64]) -> Vec<f64> {
    let n = x.len();
    let (mut upper, mut right) = (vec![0.0; n], vec![0.0; n]);
    for i in 1..n - 1 {
        let (before, after) = (x[i] - x[i - 1], x[i + 1] - x[i]);
        let jump = 6.0 * ((y[i + 1] - y[i]) / after - (y[i] - y[i - 1]) / before);
        let pivot = 2.0 * (before + after) - before * upper[i - 1];
        upper[i] = after / pivot;
        right[i] = (jump - before * right[i - 1]) / pivot;
    }
    for i in (1..n - 1).rev() {
        right[i] -= upper[i] * right[i + 1];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::{Cosmology, LinearPower, TransferKind};

    fn text(rows: impl Iterator<Item = (f64, f64)>) -> String {
        rows.map(|(k, p)| format!("  {k:.9e}   {p:.9e} 0.5\n")).collect()
    }

    /// Returns a table of the analytic spectrum, with k times `stretch` and P times `factor`.
    fn table(stretch: f64, factor: f64) -> PowerTable {
        let power = LinearPower::new(Cosmology::simple(), TransferKind::Full).unwrap();
        let rows = (0..600).map(|i| 1e-4 * (1e6f64).powf(f64::from(i) / 599.0));
        PowerTable::parse(&text(rows.map(|k| (k * stretch, factor * power.at(k, 1.0).unwrap())))).unwrap()
    }

    #[test]
    fn a_spline_of_a_power_law_is_the_power_law_everywhere() {
        let table =
            PowerTable::parse(&text((0..9).map(|i| (f64::from(1 << i), f64::from(1 << i).powf(-2.5))))).unwrap();
        for k in [1e-3, 1.0, 1.7, 100.0, 256.0, 1e4f64] {
            assert!((table.at(k) / k.powf(-2.5) - 1.0).abs() < 1e-7, "{k}"); // nine digits are printed
        }
    }

    #[test]
    fn rows_between_give_the_spectrum() {
        let (table, power) = (table(1.0, 1.0), LinearPower::new(Cosmology::simple(), TransferKind::Full).unwrap());
        for i in 0..1000 {
            let k = 1.1e-4 * (8e5f64).powf(f64::from(i) / 999.0);
            // Splines err by step^4 / 384 times the fourth derivative: 0.023^4 / 384 times (2 pi k
            // s)^4 A, the wiggles' at k = 0.3: 1e-4.
            assert!((table.at(k) / power.at(k, 1.0).unwrap() - 1.0).abs() < 2e-4, "{k}");
        }
        let linear = LinearPower::tabulated(Cosmology::simple(), table).unwrap();
        assert!((linear.sigma8() / power.sigma8() - 1.0).abs() < 1e-5);
        assert!((linear.at(0.1, 0.5).unwrap() / power.at(0.1, 0.5).unwrap() - 1.0).abs() < 2e-4);
    }

    #[test]
    fn other_units_are_found() {
        let power = LinearPower::new(Cosmology::simple(), TransferKind::Full).unwrap();
        let expected = |k: f64| power.at(k, 1.0).unwrap();
        let h = 0.7f64;
        assert!(table(1.0, 1.0).check(expected, true).is_ok() && table(1.0, 1.3).check(expected, true).is_ok());
        // k in 1/Mpc, P in Mpc^3, and both.
        for (stretch, factor) in [(h, 1.0), (1.0, h.powi(-3)), (h, h.powi(-3))] {
            let error = table(stretch, factor).check(expected, true).unwrap_err();
            assert!(error.to_string().contains("h/Mpc"), "{stretch} {factor}: {error}");
        }
        // Another strength is allowed where it will be scaled, another shape is not.
        assert!(table(1.0, 3.0).check(expected, false).is_ok() && table(h, 1.0).check(expected, false).is_err());
        let refused = |text: &str| PowerTable::parse(text).unwrap_err().to_string();
        let rows = "1 1\n2 1\n3 1\n4 1\n";
        assert!(refused(&format!("# 1:k (1/Mpc)  2:P (Mpc)^3\n{rows}")).contains("(1/mpc)"));
        assert!(PowerTable::parse(&format!("#    1:k (h/Mpc)              2:P (Mpc/h)^3\n{rows}")).is_ok());
        assert!(refused("1 1\n2 1\n3 1\n").contains("3 rows"));
        assert!(refused("1 1\n1 2\n").contains("line 2") && refused("1 -1\n").contains("P is `-1`"));
        assert!(refused("1 nan\n").contains("nan") && refused("k P\n").contains("k is `k`"));
    }
}
