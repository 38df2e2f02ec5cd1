//! Numbers and words of a call, parsed and checked: one form and one message for all commands.

use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::failure::Failure;

/// Wrong usage, in these words.
pub fn usage(message: impl Into<String>) -> Failure {
    Failure::Usage(message.into())
}

/// Returns a count in a range of numbers from 0 on. The command line takes any integer, so that one
/// message covers all wrong ones.
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

/// Returns the standard deviation of noise.
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

/// A whole number, such as a seed. TOML has numbers up to 2^63 - 1: larger ones are text there, and
/// read from either.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Whole(pub u64);

impl FromStr for Whole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.trim().parse().map(Whole).map_err(|_| "it must be a whole number from 0 to 2^64 - 1".into())
    }
}

impl Serialize for Whole {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if i64::try_from(self.0).is_ok() { to.serialize_u64(self.0) } else { to.serialize_str(&self.0.to_string()) }
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "it must be a whole number from 0 to 2^64 - 1")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Number(number) => Ok(Whole(number)),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
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

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Options {
        seed: Whole,
    }

    #[test]
    fn every_seed_is_read_as_it_was_written() {
        for seed in [0, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX].map(Whole) {
            let text = toml::to_string(&Options { seed }).unwrap();
            assert_eq!(toml::from_str::<Options>(&text).unwrap(), Options { seed }, "{text}");
        }
        for wrong in ["seed = -1", "seed = 1.5", "seed = \"x\"", "seed = \"18446744073709551616\""] {
            assert!(toml::from_str::<Options>(wrong).is_err(), "{wrong}");
        }
    }
}
