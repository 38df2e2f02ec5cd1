//! Axes: positions of values, ticks and their labels.

use std::path::Path;

use meshloom::io::IoError;

/// The scale of an axis or of colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Positions are proportional to values.
    Linear,
    /// Positions are proportional to the logarithms of values, which are positive.
    Logarithmic,
}

/// An axis of a picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Axis<'a> {
    /// The quantity, with its unit.
    pub label: &'a str,
    /// The least and the greatest value shown: finite and ascending; positive on a logarithmic
    /// scale.
    pub range: [f64; 2],
    /// The scale.
    pub scale: Scale,
}

/// A tick of an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// Position: 0 at the least value, 1 at the greatest.
    pub position: f64,
    /// Whether it is long, as those of powers of ten.
    pub long: bool,
    /// Its label, or an empty string.
    pub label: String,
}

/// Tolerance of positions, so that rounding does not exclude a tick at the end of the range.
const TOLERANCE: f64 = 1e-9;

impl<'a> Axis<'a> {
    /// Creates a linear axis.
    #[must_use]
    pub fn linear(label: &'a str, range: [f64; 2]) -> Self {
        Axis { label, range, scale: Scale::Linear }
    }

    /// Creates a logarithmic axis.
    #[must_use]
    pub fn logarithmic(label: &'a str, range: [f64; 2]) -> Self {
        Axis { label, range, scale: Scale::Logarithmic }
    }

    /// Returns `true` if positions of values are finite.
    pub(super) fn is_possible(&self) -> bool {
        let [low, high] = self.range;
        let has_scale = self.scale == Scale::Linear || (low > 0.0 && (high / low).is_finite());
        low < high && (high - low).is_finite() && has_scale
    }

    /// Refuses an axis that cannot be drawn in the picture at `path`.
    pub(super) fn check(&self, path: &Path) -> Result<(), IoError> {
        let ([low, high], label) = (self.range, self.label);
        if self.is_possible() {
            return Ok(());
        }
        Err(IoError::picture(path, format!("the axis `{label}` cannot go from {low} to {high}")))
    }

    /// Returns the value as the scale counts it: itself or its logarithm.
    fn scaled(&self, value: f64) -> f64 {
        if self.scale == Scale::Linear { value } else { value.log10() }
    }

    /// Returns the position of a value: 0 at the least shown, 1 at the greatest; infinite or NaN
    /// for values without a place on the scale.
    pub(super) fn position(&self, value: f64) -> f64 {
        let [low, high] = self.range.map(|end| self.scaled(end));
        (self.scaled(value) - low) / (high - low)
    }

    /// Returns the ticks, with `most` labels or a few more.
    ///
    /// A logarithmic axis has ticks at powers of ten and their multiples, or at powers alone where
    /// they are many; a short one has labels at 2 and 5 too, and a very short one has those of a
    /// linear axis.
    pub(super) fn ticks(&self, most: usize) -> Vec<Tick> {
        let most = most.max(2);
        match self.scale {
            Scale::Linear => self.round_ticks(most),
            Scale::Logarithmic => {
                let ticks = self.decade_ticks(most);
                let labels = ticks.iter().filter(|tick| !tick.label.is_empty()).count();
                if labels < 2 { self.round_ticks(most) } else { ticks }
            }
        }
    }

    /// Returns ticks at multiples of a round step.
    fn round_ticks(&self, most: usize) -> Vec<Tick> {
        let [low, high] = self.range;
        let raw = (high - low) / most as f64;
        let power = raw.log10().floor();
        let multiple = [1.0, 2.0, 5.0, 10.0].into_iter().find(|multiple| multiple * 10f64.powf(power) >= raw * 0.999);
        let step = multiple.unwrap_or(10.0) * 10f64.powf(power);
        let (first, last) = ((low / step - TOLERANCE).ceil(), (high / step + TOLERANCE).floor());
        if !(step > 0.0 && last - first <= 4.0 * most as f64 && first.abs().max(last.abs()) < 1e15) {
            return Vec::new();
        }
        let step_power = step.log10().floor() as i32;
        (0..=(last - first) as u64)
            .map(|i| {
                let value = (first + i as f64) * step;
                let label = decimal(value, step_power, low.abs().max(high.abs()));
                Tick { position: self.position(value), long: true, label }
            })
            .collect()
    }

    /// Returns ticks at powers of ten and their multiples.
    fn decade_ticks(&self, most: usize) -> Vec<Tick> {
        let [low, high] = self.range.map(f64::log10);
        let inside = |log: f64| (low - TOLERANCE..=high + TOLERANCE).contains(&log);
        let (first, last) = (low.floor() as i32, high.ceil() as i32);
        let powers = (first..=last).filter(|&power| inside(f64::from(power))).count();
        let stride = powers.div_ceil(most).max(1) as i32;
        let log = |power: i32, multiple: i32| f64::from(power) + f64::from(multiple).log10();
        let round = [1, 2, 5];
        let labels =
            (first..=last).flat_map(|power| round.map(|multiple| log(power, multiple))).filter(|&log| inside(log));
        let all_round = labels.count() <= most;
        let is_plain = (-3.0 - TOLERANCE..=4.0 + TOLERANCE).contains(&low) && high <= 4.0 + TOLERANCE;
        let mut ticks = Vec::new();
        for power in first..=last {
            for multiple in 1..=9 {
                let (log, long) = (log(power, multiple), multiple == 1);
                if !inside(log) || (!long && stride > 1) {
                    continue;
                }
                let has_label = match multiple {
                    1 => power.rem_euclid(stride) == 0,
                    multiple => all_round && (is_plain || powers < 2) && round.contains(&multiple),
                };
                let label = match (has_label, multiple) {
                    (false, _) => String::new(),
                    (true, _) if is_plain => {
                        format!("{:.*}", (-power).max(0) as usize, f64::from(multiple) * 10f64.powi(power))
                    }
                    (true, 1) => power_of_ten(power),
                    (true, _) => format!("{multiple}\u{d7}{}", power_of_ten(power)),
                };
                ticks.push(Tick { position: (log - low) / (high - low), long, label });
            }
        }
        ticks
    }
}

/// Returns a multiple of ten to the `step_power` as text, with a power of ten behind it if the
/// `largest` of the axis is far from 1.
fn decimal(value: f64, step_power: i32, largest: f64) -> String {
    let exponent = largest.log10().floor() as i32;
    let exponent = if (-3..=4).contains(&exponent) { 0 } else { exponent };
    let decimals = (exponent - step_power).clamp(0, 15) as usize;
    let digits = format!("{:.decimals$}", (value / 10f64.powi(exponent)).abs());
    let is_zero = digits.chars().all(|digit| matches!(digit, '0' | '.'));
    let sign = if value < 0.0 && !is_zero { "\u{2212}" } else { "" };
    match exponent {
        0 => format!("{sign}{digits}"),
        _ if is_zero => "0".into(),
        _ => format!("{sign}{digits}\u{d7}{}", power_of_ten(exponent)),
    }
}

/// `10` with its exponent in superscript digits.
fn power_of_ten(power: i32) -> String {
    const DIGITS: [char; 10] = [
        '\u{2070}', '\u{b9}', '\u{b2}', '\u{b3}', '\u{2074}', '\u{2075}', '\u{2076}', '\u{2077}', '\u{2078}',
        '\u{2079}',
    ];
    let exponent = power.to_string();
    let raised = exponent.chars().map(|c| c.to_digit(10).map_or('\u{207b}', |digit| DIGITS[digit as usize]));
    std::iter::once("10".to_string()).chain(raised.map(String::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: Axis<'_>) -> Vec<String> {
        axis.ticks(8).into_iter().map(|tick| tick.label).filter(|label| !label.is_empty()).collect()
    }

    fn logarithmic(low: f64, high: f64) -> Vec<String> {
        labels(Axis::logarithmic("", [low, high]))
    }

    fn linear(low: f64, high: f64) -> Vec<String> {
        labels(Axis::linear("", [low, high]))
    }

    #[test]
    fn powers_of_ten_have_labels_and_are_few() {
        assert_eq!(logarithmic(1e-2, 1e3), ["0.01", "0.1", "1", "10", "100", "1000"]);
        assert_eq!(logarithmic(1e-5, 1e1), ["10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "10⁰", "10¹"]);
        assert_eq!(logarithmic(3e12, 4e15), ["10¹³", "10¹⁴", "10¹⁵"]);
        assert_eq!(logarithmic(0.4, 30.0), ["0.5", "1", "2", "5", "10", "20"]);
        assert_eq!(logarithmic(1.5e7, 15e7), ["2×10⁷", "5×10⁷", "10⁸"]);
        assert_eq!(logarithmic(3.0, 6.0), ["3.0", "3.5", "4.0", "4.5", "5.0", "5.5", "6.0"]);
        assert!((2..=9).contains(&logarithmic(1e-100, 1e100).len()));
    }

    #[test]
    fn linear_axes_have_round_numbers() {
        assert_eq!(linear(0.0, 128.0), ["0", "20", "40", "60", "80", "100", "120"]);
        assert_eq!(linear(-1.0, 1.0), ["−1.0", "−0.5", "0.0", "0.5", "1.0"]);
        assert_eq!(linear(0.0, 3e-8), ["0", "0.5×10⁻⁸", "1.0×10⁻⁸", "1.5×10⁻⁸", "2.0×10⁻⁸", "2.5×10⁻⁸", "3.0×10⁻⁸"]);
        assert_eq!(linear(0.0, 1.0), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(linear(99.99, 100.01).first().unwrap(), "99.990");
        for (low, high) in [(0.0, 1e300), (-1e-300, 1e-300), (1e6, 1e6 + 1.0), (0.0, f64::MIN_POSITIVE)] {
            let found = linear(low, high);
            assert!((2..=11).contains(&found.len()), "{low}, {high}: {found:?}");
        }
        // Steps that numbers cannot count have no ticks.
        assert!(linear(1e18, 1e18 + 256.0).is_empty());
    }

    #[test]
    fn ticks_lie_where_values_do() {
        let axis = Axis::logarithmic("", [1.0, 100.0]);
        let ticks = axis.ticks(8);
        assert_eq!(ticks.len(), 19);
        assert_eq!((ticks[0].position, ticks[18].position), (0.0, 1.0));
        assert!((axis.position(20.0) - ticks[10].position).abs() < 1e-15);
        assert_eq!(ticks.iter().filter(|tick| tick.long).count(), 3);
        let axis = Axis::linear("", [-2.0, 2.0]);
        assert!(axis.ticks(4).iter().map(|tick| tick.position).eq([0.0, 0.25, 0.5, 0.75, 1.0]));
    }

    #[test]
    fn ranges_that_scales_do_not_have_are_impossible() {
        for range in [[0.0, 1.0], [-1.0, 1.0], [1.0, 1.0], [2.0, 1.0], [1.0, f64::INFINITY], [f64::NAN, 1.0]] {
            assert!(!Axis::logarithmic("", range).is_possible());
        }
        for range in [[1.0, 1.0], [2.0, 1.0], [f64::NEG_INFINITY, 1.0], [0.0, f64::NAN], [-f64::MAX, f64::MAX]] {
            assert!(!Axis::linear("", range).is_possible());
        }
        assert!(Axis::linear("", [-1.0, 0.0]).is_possible());
    }
}
