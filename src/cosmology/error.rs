//! Errors of cosmological quantities.

use std::ops::RangeInclusive;

/// Why a cosmological quantity cannot be computed from what was given.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CosmologyError {
    /// A parameter is outside its allowed range (or is not a number).
    #[error("{quantity} = {value} is not allowed: it must be {allowed}; {remedy}")]
    OutOfRange {
        /// Name of the parameter, as the user writes it.
        quantity: &'static str,
        /// The value that was given.
        value: f64,
        /// The values that are allowed, in words.
        allowed: String,
        /// Remedy for the user.
        remedy: &'static str,
    },
    /// A table of a power spectrum that is none, or in other units.
    #[error("line {line} of the power table: {why}")]
    Table {
        /// The line, from 1 on.
        line: usize,
        /// The fault, and the remedy.
        why: String,
    },
    /// A step was asked for that the schedule does not contain.
    #[error(
        "step {step} is not in this schedule, whose last step is {last}; resume with the parameters of the first run"
    )]
    UnknownStep {
        /// The step that was asked for.
        step: usize,
        /// The last step of the schedule.
        last: usize,
    },
}

message_debug!(CosmologyError);

/// A number that a caller gave, by its name in messages.
pub(super) struct Given {
    quantity: &'static str,
    value: f64,
}

/// Names `value` for checks.
pub(super) fn given(quantity: &'static str, value: f64) -> Given {
    Given { quantity, value }
}

impl Given {
    /// Returns the error that the number must be `allowed` unless `ok`.
    pub fn require(self, ok: bool, allowed: impl Into<String>, remedy: &'static str) -> Result<(), CosmologyError> {
        let Given { quantity, value } = self;
        if ok { Ok(()) } else { Err(CosmologyError::OutOfRange { quantity, value, allowed: allowed.into(), remedy }) }
    }

    /// Returns an error unless the number is in `range`.
    pub fn within(self, range: RangeInclusive<f64>, remedy: &'static str) -> Result<(), CosmologyError> {
        let ok = range.contains(&self.value);
        self.require(ok, format!("in [{}, {}]", range.start(), range.end()), remedy)
    }

    /// Returns an error unless the number is positive and finite.
    pub fn positive(self, remedy: &'static str) -> Result<(), CosmologyError> {
        let ok = self.value > 0.0 && self.value.is_finite();
        self.require(ok, "positive and finite", remedy)
    }
}
