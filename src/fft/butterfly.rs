//! Transforms of 2 to 8 points as straight-line WGSL.
//!
//! Powers of two by decimation in time, odd lengths by the symmetric form
//! `y_j = x_0 + sum_k cos(2 pi j k / p) (x_k + x_{p-k}) -+ i sum_k sin(2 pi j k / p) (x_k - x_{p-k})`.

use std::f64::consts::PI;

/// Straight-line WGSL with names for its values.
#[derive(Default)]
pub(super) struct Code {
    pub text: String,
    names: usize,
}

impl Code {
    /// Appends a line.
    pub fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str("    ");
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// Names a value.
    pub fn value(&mut self, expression: impl AsRef<str>) -> String {
        self.names += 1;
        let name = format!("v{}", self.names);
        self.line(format!("let {name} = {};", expression.as_ref()));
        name
    }

    /// The transform of `x`, of sign -1 (forward) or +1.
    pub fn transform(&mut self, x: &[String], sign: f64) -> Vec<String> {
        match x.len() {
            1 => x.to_vec(),
            2 => vec![self.value(format!("{} + {}", x[0], x[1])), self.value(format!("{} - {}", x[0], x[1]))],
            n if n % 2 == 0 => self.even(x, sign),
            _ => self.odd(x, sign),
        }
    }

    fn even(&mut self, x: &[String], sign: f64) -> Vec<String> {
        let half = x.len() / 2;
        let part = |from: usize| x.iter().skip(from).step_by(2).cloned().collect::<Vec<_>>();
        let (even, odd) = (self.transform(&part(0), sign), self.transform(&part(1), sign));
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for k in 0..half {
            let turned = self.turn(&odd[k], k, x.len(), sign);
            low.push(self.value(format!("{} + {turned}", even[k])));
            high.push(self.value(format!("{} - {turned}", even[k])));
        }
        low.extend(high);
        low
    }

    /// `x` times the `k`-th power of the first root of unity of order `n`; `k < n / 2`, `n` of 2, 4, 8.
    fn turn(&mut self, x: &str, k: usize, n: usize, sign: f64) -> String {
        let quarter = |x: &str| {
            if sign < 0.0 { format!("vec2<f32>({x}.y, -{x}.x)") } else { format!("vec2<f32>(-{x}.y, {x}.x)") }
        };
        match 8 * k / n {
            0 => x.to_string(),
            2 => self.value(quarter(x)),
            eighth => {
                // (1 -+ i) / sqrt 2, and for three eighths a quarter more.
                let s = literal(0.5f64.sqrt());
                let turned = self.value(quarter(x));
                let x = if eighth == 1 { format!("{x} + {turned}") } else { format!("{turned} - {x}") };
                self.value(format!("({x}) * {s}"))
            }
        }
    }

    fn odd(&mut self, x: &[String], sign: f64) -> Vec<String> {
        let (n, half) = (x.len(), x.len() / 2);
        let sums: Vec<_> = (1..=half).map(|k| self.value(format!("{} + {}", x[k], x[n - k]))).collect();
        let differences: Vec<_> = (1..=half).map(|k| self.value(format!("{} - {}", x[k], x[n - k]))).collect();
        let mut y = vec![self.value(format!("{} + {}", x[0], sums.join(" + ")))];
        y.resize(n, String::new());
        for j in 1..=half {
            let angle = |k: usize| 2.0 * PI * ((j * k) % n) as f64 / n as f64;
            let weighted = |terms: &[String], weight: &dyn Fn(f64) -> f64| {
                let terms =
                    terms.iter().enumerate().map(|(k, term)| format!("{} * {term}", literal(weight(angle(k + 1)))));
                terms.collect::<Vec<_>>().join(" + ")
            };
            let real = self.value(format!("{} + {}", x[0], weighted(&sums, &f64::cos)));
            let imaginary = self.value(weighted(&differences, &|a| sign * a.sin()));
            let turned = self.value(format!("vec2<f32>(-{imaginary}.y, {imaginary}.x)"));
            y[j] = self.value(format!("{real} + {turned}"));
            y[n - j] = self.value(format!("{real} - {turned}"));
        }
        y
    }
}

/// An `f32` literal, exact.
pub(super) fn literal(value: f64) -> String {
    let text = format!("{:?}", value as f32);
    if text.starts_with('-') { format!("({text}f)") } else { format!("{text}f") }
}
