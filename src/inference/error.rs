//! What is wrong with an inference.

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
    /// An option that cannot be.
    #[error("{option}: {why}")]
    Options {
        /// The option.
        option: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// Something that a likelihood, a prior or a field cannot be made of.
    #[error("{what}: {why}")]
    Invalid {
        /// What cannot be made.
        what: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A likelihood without coordinates in which its metric is that of a plane.
    #[error(
        "the likelihood `{likelihood}` has no transformation, which geoVI needs; take linear samples (MGVI), or another likelihood"
    )]
    NoTransformation {
        /// Its name.
        likelihood: String,
    },
    /// A result that is NaN or infinite.
    #[error("{what} is {value}; begin nearer to the data, or look for overflow in the model")]
    NotFinite {
        /// What is not finite.
        what: String,
        /// Its value.
        value: f64,
    },
    /// A metric that is not positive, as metrics are.
    #[error("{what}: the operator has curvature {curvature}; it must be symmetric and positive")]
    NotPositive {
        /// Where it was found.
        what: String,
        /// `d.M d` of the direction.
        curvature: f64,
    },
    /// Ranks that cannot be dealt to groups of samples.
    #[error("{groups} groups of samples on {ranks} ranks: {why}")]
    Groups {
        /// Groups wanted.
        groups: usize,
        /// Ranks there are.
        ranks: usize,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A fit that takes more memory of a device than it may.
    #[error(
        "an iteration takes {needed} bytes of device memory with the {samples} samples of a group, even where none keeps what its derivatives need; \
         {budget} are allowed: allow more, or give more groups of ranks, or fewer samples"
    )]
    Memory {
        /// Bytes that it takes at least.
        needed: u64,
        /// Bytes that it may take.
        budget: u64,
        /// Samples of a group.
        samples: usize,
    },
    /// Saved state that cannot be resumed from.
    #[error("the state in {}: {why}", printable_path(path))]
    State {
        /// Its file or directory.
        path: PathBuf,
        /// What is wrong, and what to do.
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

impl From<HostMemoryError> for InferenceError {
    fn from(error: HostMemoryError) -> Self {
        InferenceError::Device(error.into())
    }
}

impl InferenceError {
    pub(super) fn options(option: &str, why: impl Into<String>) -> Self {
        InferenceError::Options { option: option.into(), why: why.into() }
    }

    /// `value`, if it is finite.
    pub(super) fn finite(what: &str, value: f64) -> Result<f64, Self> {
        if value.is_finite() { Ok(value) } else { Err(InferenceError::NotFinite { what: what.into(), value }) }
    }
}

impl From<OperatorError> for InferenceError {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::Device(error) => InferenceError::Device(error),
            OperatorError::Comm(error) => InferenceError::Comm(error),
            error => InferenceError::Operators(error),
        }
    }
}

impl From<ExchangeError> for InferenceError {
    fn from(error: ExchangeError) -> Self {
        error.flatten()
    }
}
