//! Smooth functions of one number as sums of Chebyshev polynomials, written in WGSL.

use std::f64::consts::PI;
use std::fmt::Write as _;

/// A smooth function on an interval.
pub(super) struct Chebyshev {
    range: [f64; 2],
    coefficients: Vec<f64>,
}

/// Points at which a function is taken.
const NODES: usize = 96;

impl Chebyshev {
    /// `f` on an interval, as many polynomials as coefficients are above `least`.
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

    /// Statements that define `name`, the value at the number `at`, by Clenshaw's recurrence. Beyond the interval it is that at its end.
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
