//! Errors of operators.

use std::fmt::{Debug, Display};

use super::PointwiseError;
use crate::comm::CommError;
use crate::exchange::ExchangeError;
use crate::fft::FftError;
use crate::gpu::DeviceError;
use crate::host_memory::HostMemoryError;
use crate::mesh::MeshError;

/// An error of operators, or of the layers below them.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// A leaf of a space is invalid.
    #[error("the leaf `{leaf}` of a space: {why}")]
    Space {
        /// Name of the leaf.
        leaf: String,
        /// The problem and its remedy.
        why: String,
    },
    /// Two operators, or an operator and a vector, have different spaces.
    #[error("operator `{operator}`, leaf `{leaf}`: {why}")]
    Fit {
        /// The operator.
        operator: String,
        /// The leaf.
        leaf: String,
        /// The actual and the expected leaf.
        why: String,
    },
    /// An operator cannot be created from its arguments.
    #[error("operator `{operator}`: {why}")]
    Invalid {
        /// The operator.
        operator: String,
        /// The problem and its remedy.
        why: String,
    },
    /// A result is NaN or infinite.
    #[error(
        "operator `{operator}` gives {value} for {what}; its arguments, or the function itself there, are not finite"
    )]
    NotFinite {
        /// The operator.
        operator: String,
        /// The quantity that is not finite.
        what: String,
        /// Its value: NaN or infinite.
        value: f64,
    },
    /// An operator fails a check of its derivative.
    #[error("operator `{operator}` fails its check: {why}")]
    Check {
        /// The operator.
        operator: String,
        /// The measured and the expected values.
        why: String,
    },
    /// The text of a pointwise function is invalid.
    #[error("operator `{operator}`: {error}")]
    Pointwise {
        /// The operator.
        operator: String,
        /// The error in the text.
        error: PointwiseError,
    },
    /// An operator of another module or crate failed.
    #[error("operator `{operator}`: {error}")]
    Failed {
        /// The operator.
        operator: String,
        /// The error.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A transform failed.
    #[error(transparent)]
    Fft(FftError),
    /// An operation on a mesh failed.
    #[error(transparent)]
    Mesh(MeshError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Another rank failed, or ranks disagree.
    #[error(transparent)]
    Comm(#[from] CommError),
}

message_debug!(OperatorError);

error_from! {
    OperatorError from HostMemoryError via DeviceError
    OperatorError from ExchangeError { Comm, Device }
    OperatorError from FftError { Device; Fft }
    OperatorError from MeshError { Device, Comm; Mesh }
}

impl OperatorError {
    /// Creates the error of a leaf that differs from the expected one.
    pub(super) fn fit<T: Debug + Display>(operator: &str, leaf: &str, wanted: &T, found: &T) -> Self {
        let (mut wanted_text, mut found_text) = (wanted.to_string(), found.to_string());
        if wanted_text == found_text {
            // `Display` omits sizes and ranks, in which the leaves differ.
            (wanted_text, found_text) = (format!("{wanted:?}"), format!("{found:?}"));
        }
        let why = format!("it is {found_text}, the operator takes {wanted_text}");
        OperatorError::Fit { operator: operator.into(), leaf: leaf.into(), why }
    }

    pub(super) fn missing(operator: &str, leaf: &str, found: &impl Display) -> Self {
        let why = format!("it is not among those that are given, {found}; give or compute it, or name another so");
        OperatorError::Fit { operator: operator.into(), leaf: leaf.into(), why }
    }

    pub(super) fn surplus(operator: &str, leaf: &str, wanted: &impl Display) -> Self {
        let why = format!("the operator has no such leaf, it takes {wanted}; leave it out, or select what is needed");
        OperatorError::Fit { operator: operator.into(), leaf: leaf.into(), why }
    }

    pub(super) fn invalid(operator: &str, why: impl Into<String>) -> Self {
        OperatorError::Invalid { operator: operator.into(), why: why.into() }
    }

    /// Creates the error of an operator of another module or crate.
    pub fn failed(operator: &str, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        OperatorError::Failed { operator: operator.into(), error: Box::new(error) }
    }
}

/// Results of this module.
pub(super) type Result<T, E = OperatorError> = std::result::Result<T, E>;

/// Refuses a wrong use of `operator`.
pub(super) fn refuse<T>(operator: &str, why: impl Into<String>) -> Result<T> {
    Err(OperatorError::invalid(operator, why))
}
