//! Numbers and words of a call, parsed and checked: one form and one message for all commands.

use std::ops::RangeInclusive;

use crate::failure::Failure;

/// Wrong usage, in these words.
pub fn usage(message: impl Into<String>) -> Failure {
    Failure::Usage(message.into())
}

/// A count in a range of numbers from 0 on. The command line takes any integer, so that one message covers all wrong ones.
///
/// # Errors
/// [`Failure::Usage`].
pub fn count(option: &str, value: i64, range: RangeInclusive<i64>) -> Result<u64, Failure> {
    if range.contains(&value) {
        return Ok(value as u64);
    }
    let to = if *range.end() == i64::MAX { "on".into() } else { format!("to {}", range.end()) };
    Err(usage(format!("--{option} is {value}; it must be a whole number from {} {to}", range.start())))
}

/// Lists names: `a, b or c`.
pub fn one_of(names: &[&str]) -> String {
    let (last, others) = names.split_last().map_or(("", &[][..]), |(last, others)| (*last, others));
    format!("{} or {last}", others.join(", "))
}

/// The standard deviation of noise.
///
/// # Errors
/// [`Failure::Usage`] unless it is above 0, also as f32.
pub fn sigma(sigma: f64) -> Result<f64, Failure> {
    if sigma > 0.0 && (sigma as f32).is_normal() {
        Ok(sigma)
    } else {
        Err(usage(format!("--noise is {sigma}; it must be a standard deviation above 0")))
    }
}

/// Parses a length, or one in another length's units: a number from 0 on in the range of f32.
pub fn length(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(length) if length >= 0.0 && (length as f32).is_finite() => Ok(length + 0.0),
        _ => Err("it must be a number from 0 to 3.4e38".into()),
    }
}

/// Parses a [`length`] that devices have, in f32.
pub fn distance(text: &str) -> Result<f32, String> {
    length(text).map(|length| length as f32)
}

/// Parses a [`distance`], or `inf` for no limit.
pub fn limit(text: &str) -> Result<f32, String> {
    match text.trim().parse::<f64>() {
        Ok(f64::INFINITY) => Ok(f32::INFINITY),
        _ => distance(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_numbers_from_zero_on() {
        assert_eq!(
            ["0", "-0", "0.25", " 1e3", "1e-60"].map(|text| distance(text).map(f32::to_bits)),
            [0.0f32, 0.0, 0.25, 1000.0, 0.0].map(|length| Ok(length.to_bits()))
        );
        for wrong in ["-1", "nan", "inf", "1e39", "", "one", "-1e-60"] {
            assert!(distance(wrong).is_err(), "{wrong}");
        }
        assert_eq!((limit("inf"), limit("2").ok()), (Ok(f32::INFINITY), Some(2.0)));
        assert!(limit("-inf").is_err() && limit("nan").is_err() && limit("1e39").is_err());
    }

    #[test]
    fn what_is_wrong_is_said_with_what_would_do() {
        let said = |found: Result<u64, Failure>| found.map_err(|failure| failure.message());
        assert_eq!(said(count("steps", 7, 1..=i64::MAX)), Ok(7));
        assert!(said(count("steps", 0, 1..=i64::MAX)).is_err_and(|text| text.ends_with("number from 1 on")));
        assert!(
            said(count("samples", 0, 1..=9))
                .is_err_and(|text| text.ends_with("--samples is 0; it must be a whole number from 1 to 9"))
        );
        assert_eq!(one_of(&["a", "b", "c"]), "a, b or c");
    }
}
