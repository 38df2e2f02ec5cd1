//! `--sample-groups`: groups of ranks that samples of a posterior are dealt to.

use std::convert::Infallible;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::checked::usage;
use crate::common::GridParts;
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
    /// Returns their number; none for `auto`.
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

/// The limits of the number of groups.
pub struct GroupLimits {
    pub ranks: usize,
    /// The most samples that an iteration has: a group without one has nothing to do.
    pub samples: usize,
    /// The process grid of each group.
    pub grid: GridParts,
}

impl GroupLimits {
    /// Returns how many groups there are: those that were `asked` for, those that have the ranks of
    /// the process grid, or else the most that divide the ranks, have a sample each and that `fits`
    /// says yes to, or one.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub fn groups(&self, asked: Option<usize>, fits: impl Fn(usize) -> bool) -> Result<usize, Failure> {
        let GroupLimits { ranks, samples, grid } = *self;
        let groups = match (asked, grid) {
            (Some(groups), _) => groups,
            (None, Some([rows, columns])) if ranks.is_multiple_of(rows * columns) => ranks / (rows * columns),
            (None, Some(_)) => 1,
            (None, None) => {
                let dividing = (1..=ranks.min(samples)).rev().filter(|groups| ranks.is_multiple_of(*groups));
                return Ok(dividing.into_iter().find(|&groups| fits(groups)).unwrap_or(1));
            }
        };
        let what = match (asked, grid) {
            (None, Some([rows, columns])) => format!("--grid {rows}x{columns} makes {groups} group(s) of samples"),
            _ => format!("--sample-groups is {groups}"),
        };
        match grid {
            _ if !ranks.is_multiple_of(groups) => Err(usage(format!("{what}; it must divide the {ranks} rank(s)"))),
            _ if groups > samples => {
                Err(usage(format!("{what}; there are {samples} sample(s), and a group without one has nothing to do")))
            }
            Some([rows, columns]) if rows * columns * groups != ranks => Err(usage(format!(
                "--grid: {rows}x{columns} is of {} rank(s), and each of {groups} group(s) of samples has {}",
                rows * columns,
                ranks / groups
            ))),
            _ => Ok(groups),
        }
    }
}
