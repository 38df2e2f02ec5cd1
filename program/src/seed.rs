//! Seeds in TOML files, whose numbers end at 2^63 - 1: larger ones are written as text, and read from either.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub fn serialize<S: Serializer>(seed: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    match *seed {
        None => to.serialize_none(),
        Some(seed) if i64::try_from(seed).is_ok() => to.serialize_u64(seed),
        Some(seed) => to.serialize_str(&seed.to_string()),
    }
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a seed must be a whole number from 0 to 2^64 - 1")]
    enum Written {
        Number(u64),
        Text(String),
    }
    match Option::<Written>::deserialize(from)? {
        None => Ok(None),
        Some(Written::Number(seed)) => Ok(Some(seed)),
        Some(Written::Text(text)) => {
            let wrong =
                |_| D::Error::custom(format!("`{text}` is no seed: it must be a whole number from 0 to 2^64 - 1"));
            text.trim().parse().map(Some).map_err(wrong)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Options {
        #[serde(default, with = "super")]
        seed: Option<u64>,
    }

    #[test]
    fn every_seed_is_read_as_it_was_written() {
        for seed in [None, Some(0), Some(i64::MAX as u64), Some(i64::MAX as u64 + 1), Some(u64::MAX)] {
            let text = toml::to_string(&Options { seed }).unwrap();
            assert_eq!(toml::from_str::<Options>(&text).unwrap(), Options { seed }, "{text}");
        }
        for wrong in ["seed = -1", "seed = 1.5", "seed = \"x\"", "seed = \"18446744073709551616\""] {
            assert!(toml::from_str::<Options>(wrong).is_err(), "{wrong}");
        }
    }
}
