//! Errors of inference.

use std::path::PathBuf;

use crate::comm::CommError;
use crate::exchange::ExchangeError;
use crate::gpu::DeviceError;
use crate::host_memory::HostMemoryError;
use crate::io::{IoError, printable_path};
use crate::operators::OperatorError;

/// An error of inference, or of the layers below it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InferenceError {
    /// An option is invalid.
    #[error("{option}: {why}")]
    Options {
        /// The option.
        option: String,
        /// The fault and the expectation.
        why: String,
    },
    /// An input of a likelihood, a prior or a field is invalid.
    #[error("{what}: {why}")]
    Invalid {
        /// The object with the invalid input.
        what: String,
        /// The fault and the expectation.
        why: String,
    },
    /// A likelihood has no coordinates, which curved samples need.
    #[error(
        "the likelihood `{likelihood}` has no transformation, which geoVI needs; take linear samples (MGVI), or another likelihood"
    )]
    NoTransformation {
        /// Its name.
        likelihood: String,
    },
    /// A result is NaN or infinite.
    #[error(
        "{what} is {value}; begin nearer to the data, or look for overflow in the model and for rates of counts below zero (take the exponential)"
    )]
    NotFinite {
        /// The result.
        what: String,
        /// Its value.
        value: f64,
    },
    /// A metric is not positive.
    #[error("{what}: the operator has curvature {curvature}; it must be symmetric and positive")]
    NotPositive {
        /// The computation that found it.
        what: String,
        /// `d.M d` of the direction.
        curvature: f64,
    },
    /// Ranks cannot form these groups of samples.
    #[error("{groups} groups of samples on {ranks} ranks: {why}")]
    Groups {
        /// Number of groups.
        groups: usize,
        /// Number of ranks.
        ranks: usize,
        /// The fault and the expectation.
        why: String,
    },
    /// A fit exceeds its budget of device memory.
    #[error(
        "an iteration takes {needed} bytes of device memory with the {samples} samples of a group, even where none keeps what its derivatives need; \
         {budget} are allowed: allow more, or give more groups of ranks, or fewer samples"
    )]
    Memory {
        /// Bytes needed at least.
        needed: u64,
        /// Bytes allowed.
        budget: u64,
        /// Samples of a group.
        samples: usize,
    },
    /// A fit cannot resume from a state, or would replace it.
    #[error("the state in {}: {why}", printable_path(path))]
    State {
        /// Its file or directory.
        path: PathBuf,
        /// The fault and the remedy.
        why: String,
    },
    /// Operators and their fields.
    #[error(transparent)]
    Operators(OperatorError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A file.
    #[error(transparent)]
    Io(#[from] IoError),
}

message_debug!(InferenceError);

error_from! {
    InferenceError from HostMemoryError via DeviceError
    InferenceError from ExchangeError { Comm, Device }
}

impl From<OperatorError> for InferenceError {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::Device(error) => error.into(),
            OperatorError::Comm(error) => error.into(),
            // A search tries a smaller step, as after an energy that is not finite.
            OperatorError::NotFinite { operator, what, value } => {
                InferenceError::NotFinite { what: format!("operator `{operator}`: {what}"), value }
            }
            error => InferenceError::Operators(error),
        }
    }
}

impl InferenceError {
    pub(super) fn options(option: &str, why: impl Into<String>) -> Self {
        InferenceError::Options { option: option.into(), why: why.into() }
    }

    /// Returns `value` if it is finite.
    pub(super) fn finite(what: &str, value: f64) -> Result<f64, Self> {
        if value.is_finite() { Ok(value) } else { Err(InferenceError::NotFinite { what: what.into(), value }) }
    }
}

/// Returns `None` in place of the error of a value that is not finite.
pub(super) fn if_finite<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(InferenceError::NotFinite { .. }) => Ok(None),
        found => found.map(Some),
    }
}

/// Results of this module.
pub(super) type Result<T, E = InferenceError> = std::result::Result<T, E>;
