//! Transforms of a few points as straight-line WGSL.
//!
//! Composite lengths use the decomposition of Cooley and Tukey with constant twiddles, factors of
//! four first. Odd primes `p` use the symmetric form `y_j = x_0 + sum_k cos(2 pi j k / p) (x_k +
//! x_{p-k}) -+ i sum_k sin(2 pi j k / p) (x_k - x_{p-k})`, whose cost grows as `p^2`; it serves the
//! primes of [`RADICES`](super::core::RADICES).
//!
//! The text names its numbers `Real` and `Complex`, so it serves both precisions.

use super::spec::Precision;
use super::tables::root;

/// Straight-line WGSL with named values.
pub(super) struct Code {
    pub text: String,
    names: usize,
    precision: Precision,
}

impl Code {
    pub fn new(precision: Precision) -> Self {
        Code { text: String::new(), names: 0, precision }
    }

    /// Appends a line.
    pub fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str("    ");
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// Appends a named value and returns its name.
    pub fn value(&mut self, expression: impl AsRef<str>) -> String {
        self.names += 1;
        let name = format!("v{}", self.names);
        self.line(format!("let {name} = {};", expression.as_ref()));
        name
    }

    /// Appends a variable of a type and returns its name.
    pub fn variable(&mut self, element: &str) -> String {
        self.names += 1;
        let name = format!("v{}", self.names);
        self.line(format!("var {name}: {element};"));
        name
    }

    /// Returns an exact literal of the precision.
    pub fn literal(&self, value: f64) -> String {
        self.precision.literal(value)
    }

    /// Returns the transform of `x`, of sign -1 (forward) or +1.
    pub fn transform(&mut self, x: &[String], sign: f64) -> Vec<String> {
        let n = x.len();
        match n {
            1 => x.to_vec(),
            2 => vec![self.value(format!("{} + {}", x[0], x[1])), self.value(format!("{} - {}", x[0], x[1]))],
            4 => self.four(x, sign),
            _ => match outer_factor(n) {
                p if p == n => self.odd(x, sign),
                p => self.composite(x, p, sign),
            },
        }
    }

    fn four(&mut self, x: &[String], sign: f64) -> Vec<String> {
        let [a, b] = [(0, 2), (1, 3)].map(|(i, j)| self.value(format!("{} + {}", x[i], x[j])));
        let [c, d] = [(0, 2), (1, 3)].map(|(i, j)| self.value(format!("{} - {}", x[i], x[j])));
        let d = self.value(quarter(&d, sign));
        [format!("{a} + {b}"), format!("{c} + {d}"), format!("{a} - {b}"), format!("{c} - {d}")]
            .map(|v| self.value(v))
            .into()
    }

    /// Returns the transform of `n = p q` points: `p` transforms of `q` points, twiddles, then `q`
    /// transforms of `p` points.
    fn composite(&mut self, x: &[String], p: usize, sign: f64) -> Vec<String> {
        let (n, q) = (x.len(), x.len() / p);
        let inner: Vec<Vec<String>> = (0..p)
            .map(|i| {
                let part: Vec<String> = x.iter().skip(i).step_by(p).cloned().collect();
                let part = self.transform(&part, sign);
                part.iter().enumerate().map(|(k, v)| self.twiddle(v, i * k, n, sign)).collect()
            })
            .collect();
        let mut y = vec![String::new(); n];
        for k in 0..q {
            let column: Vec<String> = inner.iter().map(|part| part[k].clone()).collect();
            for (j, value) in self.transform(&column, sign).into_iter().enumerate() {
                y[k + j * q] = value;
            }
        }
        y
    }

    /// Returns `x` times `exp(sign 2 pi i k / n)`.
    pub fn twiddle(&mut self, x: &str, k: usize, n: usize, sign: f64) -> String {
        let k = k % n;
        if k == 0 {
            return x.to_string();
        }
        if 2 * k == n {
            return self.value(format!("-{x}"));
        }
        if 4 * k == n || 4 * k == 3 * n {
            return self.value(quarter(x, if 4 * k == n { sign } else { -sign }));
        }
        if (8 * k).is_multiple_of(n) {
            // (1 -+ i) / sqrt 2 and its products with i, -1 and -i.
            let s = self.literal(0.5f64.sqrt());
            let turned = self.value(quarter(x, sign));
            let sum = match 8 * k / n {
                1 => format!("{x} + {turned}"),
                3 => format!("{turned} - {x}"),
                5 => format!("-{x} - {turned}"),
                _ => format!("{x} - {turned}"),
            };
            return self.value(format!("({sum}) * {s}"));
        }
        let [c, s] = root(k as u64, n as u64);
        let (c, s) = (self.literal(c), self.literal(-sign * s));
        self.value(format!("multiply({x}, Complex({c}, {s}))"))
    }

    fn odd(&mut self, x: &[String], sign: f64) -> Vec<String> {
        let (n, half) = (x.len(), x.len() / 2);
        let sums: Vec<_> = (1..=half).map(|k| self.value(format!("{} + {}", x[k], x[n - k]))).collect();
        let differences: Vec<_> = (1..=half).map(|k| self.value(format!("{} - {}", x[k], x[n - k]))).collect();
        let mut y = vec![self.value(format!("{} + {}", x[0], sums.join(" + ")))];
        y.resize(n, String::new());
        for j in 1..=half {
            let weighted = |terms: &[String], weight: &dyn Fn([f64; 2]) -> f64| {
                let terms = terms
                    .iter()
                    .zip(1..)
                    .map(|(term, k)| format!("{} * {term}", self.literal(weight(root((j * k) as u64, n as u64)))));
                terms.collect::<Vec<_>>().join(" + ")
            };
            let (cosines, sines) = (weighted(&sums, &|[c, _]| c), weighted(&differences, &|[_, s]| -sign * s));
            let real = self.value(format!("{} + {cosines}", x[0]));
            let imaginary = self.value(sines);
            let turned = self.value(quarter(&imaginary, 1.0));
            y[j] = self.value(format!("{real} + {turned}"));
            y[n - j] = self.value(format!("{real} - {turned}"));
        }
        y
    }
}

/// Returns `x` times `i sign`.
fn quarter(x: &str, sign: f64) -> String {
    if sign < 0.0 { format!("Complex({x}.y, -{x}.x)") } else { format!("Complex(-{x}.y, {x}.x)") }
}

/// Returns the factor by which a composite length is split: 4 or 2 if possible, else its smallest
/// prime.
fn outer_factor(n: usize) -> usize {
    match n {
        _ if n.is_multiple_of(4) => 4,
        _ if n.is_multiple_of(2) => 2,
        _ => (3..).step_by(2).find(|p| n.is_multiple_of(*p) || p * p > n).filter(|p| n.is_multiple_of(*p)).unwrap_or(n),
    }
}
