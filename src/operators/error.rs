//! What is wrong with operators and their fields.

use std::fmt::{Debug, Display};

use super::pointwise::PointwiseError;
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
    /// A space that cannot be.
    #[error("the leaf `{leaf}` of a space: {why}")]
    Space {
        /// Its name.
        leaf: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// Operators, or an operator and a field, that do not fit together.
    #[error("operator `{operator}`, leaf `{leaf}`: {why}")]
    Fit {
        /// The operator that cannot take it.
        operator: String,
        /// The leaf.
        leaf: String,
        /// What it is, and what it should be.
        why: String,
    },
    /// Something that an operator cannot be made of.
    #[error("operator `{operator}`: {why}")]
    Invalid {
        /// The operator.
        operator: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A result that is NaN or infinite.
    #[error(
        "operator `{operator}` gives {value} for {what}; its arguments, or the function itself there, are not finite"
    )]
    NotFinite {
        /// The operator.
        operator: String,
        /// What is not finite.
        what: String,
        /// Its value.
        value: f64,
    },
    /// A check that an operator does not pass.
    #[error("operator `{operator}` fails its check: {why}")]
    Check {
        /// The operator.
        operator: String,
        /// What was found, and what was expected.
        why: String,
    },
    /// A pointwise function.
    #[error("operator `{operator}`: {error}")]
    Pointwise {
        /// The operator.
        operator: String,
        /// What is wrong with its text.
        error: PointwiseError,
    },
    /// What an operator fails with that is made elsewhere.
    #[error("operator `{operator}`: {error}")]
    Failed {
        /// The operator.
        operator: String,
        /// Its own error.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A transform.
    #[error(transparent)]
    Fft(FftError),
    /// Particles on meshes.
    #[error(transparent)]
    Mesh(MeshError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
}

message_debug!(OperatorError);

impl From<HostMemoryError> for OperatorError {
    fn from(error: HostMemoryError) -> Self {
        OperatorError::Device(error.into())
    }
}

impl OperatorError {
    /// A leaf that is another than the operator takes.
    pub(super) fn fit<T: Debug + Display>(operator: &str, leaf: &str, wanted: &T, found: &T) -> Self {
        let (mut wanted_text, mut found_text) = (wanted.to_string(), found.to_string());
        if wanted_text == found_text {
            // They differ in what is not shown otherwise: sizes, ranks.
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
}

impl OperatorError {
    /// The error of an operator that is made elsewhere.
    pub fn failed(operator: &str, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        OperatorError::Failed { operator: operator.into(), error: Box::new(error) }
    }
}

impl From<ExchangeError> for OperatorError {
    fn from(error: ExchangeError) -> Self {
        error.flatten()
    }
}

impl From<FftError> for OperatorError {
    fn from(error: FftError) -> Self {
        match error {
            FftError::Device(error) => OperatorError::Device(error),
            error => OperatorError::Fft(error),
        }
    }
}

impl From<MeshError> for OperatorError {
    fn from(error: MeshError) -> Self {
        match error {
            MeshError::Device(error) => OperatorError::Device(error),
            MeshError::Comm(error) => OperatorError::Comm(error),
            error => OperatorError::Mesh(error),
        }
    }
}
