//! Errors of cosmological quantities.

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

/// Returns `value` if `ok`, else the error that it is out of range.
pub(super) fn require(
    ok: bool,
    quantity: &'static str,
    value: f64,
    allowed: impl Into<String>,
    remedy: &'static str,
) -> Result<f64, CosmologyError> {
    if ok { Ok(value) } else { Err(CosmologyError::OutOfRange { quantity, value, allowed: allowed.into(), remedy }) }
}
