//! Whole numbers up to 2^64 - 1 in TOML files, whose numbers end at 2^63 - 1: larger ones are text, and read from either.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A whole number, such as a seed.
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
