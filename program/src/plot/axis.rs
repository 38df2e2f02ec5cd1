//! Logarithmic axes: positions of values, ticks and their labels.

/// A logarithmic axis of a plot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogAxis<'a> {
    /// The quantity, with its unit.
    pub label: &'a str,
    /// The least and the greatest value shown: positive, finite and ascending.
    pub range: [f64; 2],
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

/// The most labels of an axis.
const LABELS: i32 = 10;

impl LogAxis<'_> {
    pub(super) fn is_possible(&self) -> bool {
        let [low, high] = self.range;
        low > 0.0 && low < high && high.is_finite() && (high / low).is_finite()
    }

    /// Returns the position of a value: 0 at the least shown, 1 at the greatest; infinite or NaN
    /// for values without a logarithm.
    pub(super) fn position(&self, value: f64) -> f64 {
        let [low, high] = self.range.map(f64::log10);
        (value.log10() - low) / (high - low)
    }

    /// Ticks at powers of ten and their multiples, or at powers alone where they are many. Short
    /// axes have labels at 2 and 5 too.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        // With a tolerance, so that rounding does not exclude a power of ten at the end of the
        // range.
        let [low, high] = self.range.map(f64::log10);
        let inside = |log: f64| (low - 1e-9..=high + 1e-9).contains(&log);
        let (first, last) = (low.floor() as i32, high.ceil() as i32);
        let powers = (first..=last).filter(|&power| inside(f64::from(power))).count() as i32;
        let stride = (powers + LABELS - 1) / LABELS;
        let mut ticks = Vec::new();
        for power in first..=last {
            for multiple in 1..=9 {
                let log = f64::from(power) + f64::from(multiple).log10();
                let long = multiple == 1;
                if !inside(log) || (!long && stride > 1) {
                    continue;
                }
                let label = match multiple {
                    1 if power.rem_euclid(stride.max(1)) == 0 => power_of_ten(power),
                    2 | 5 if powers < 2 => format!("{multiple}\u{d7}{}", power_of_ten(power)),
                    _ => String::new(),
                };
                ticks.push(Tick { position: (log - low) / (high - low), long, label });
            }
        }
        ticks
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

    fn labels(low: f64, high: f64) -> Vec<String> {
        let ticks = LogAxis { label: "", range: [low, high] }.ticks();
        ticks.into_iter().map(|tick| tick.label).filter(|label| !label.is_empty()).collect()
    }

    #[test]
    fn powers_of_ten_are_labelled_and_never_too_many() {
        assert_eq!(labels(1e-2, 1e1), ["10⁻²", "10⁻¹", "10⁰", "10¹"]);
        assert_eq!(labels(3e12, 4e15), ["10¹³", "10¹⁴", "10¹⁵"]);
        assert_eq!(labels(3.0, 6.0), ["5×10⁰"]);
        assert_eq!(labels(1.5, 15.0), ["2×10⁰", "5×10⁰", "10¹"]);
        assert!(labels(1e-100, 1e100).len() <= LABELS as usize + 1);
    }

    #[test]
    fn ticks_lie_where_values_do() {
        let axis = LogAxis { label: "", range: [1.0, 100.0] };
        let ticks = axis.ticks();
        assert_eq!(ticks.len(), 19);
        assert_eq!((ticks[0].position, ticks[18].position), (0.0, 1.0));
        assert!((axis.position(20.0) - ticks[10].position).abs() < 1e-15);
        assert_eq!(ticks.iter().filter(|tick| tick.long).count(), 3);
    }

    #[test]
    fn ranges_without_logarithms_are_impossible() {
        for range in [[0.0, 1.0], [-1.0, 1.0], [1.0, 1.0], [2.0, 1.0], [1.0, f64::INFINITY], [f64::NAN, 1.0]] {
            assert!(!LogAxis { label: "", range }.is_possible());
        }
    }
}
