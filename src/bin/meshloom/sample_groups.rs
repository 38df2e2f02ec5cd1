//! `--sample-groups`: groups of ranks that samples of a posterior are dealt to.

use std::convert::Infallible;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::checked::usage;
use crate::failure::Failure;

/// Groups as they are written: their number, or `auto`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum SampleGroups {
    Number(i64),
    Word(String),
}

impl FromStr for SampleGroups {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| SampleGroups::Word(text.into()), SampleGroups::Number))
    }
}

impl SampleGroups {
    /// As many as ranks and samples allow.
    pub fn auto() -> Self {
        SampleGroups::Word("auto".into())
    }

    /// Their number; none for `auto`.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub fn number(&self) -> Result<Option<usize>, Failure> {
        match self {
            SampleGroups::Number(groups) if *groups > 0 => Ok(Some(*groups as usize)),
            SampleGroups::Number(groups) => {
                Err(usage(format!("--sample-groups is {groups}; it must be 1 or more, or auto")))
            }
            SampleGroups::Word(word) if word == "auto" => Ok(None),
            SampleGroups::Word(word) => Err(usage(format!("--sample-groups is `{word}`; it must be a number or auto"))),
        }
    }
}
