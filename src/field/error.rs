//! Errors of operations on fields.

use crate::comm::CommError;
use crate::exchange::ExchangeError;
use crate::gpu::DeviceError;
use crate::grid::LayoutError;
use crate::host_memory::HostMemoryError;
use crate::io::IoError;

/// An operation on a field that failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// Communication between ranks, or an error of another rank.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A file.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A mesh, or fields on different meshes.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A slice of the wrong length, or a wrong number of components.
    #[error("{what}: expected {expected}, got {found}")]
    Length {
        /// The operation and the argument.
        what: &'static str,
        /// The number that is needed.
        expected: u64,
        /// The number that was passed.
        found: u64,
    },
    /// A stencil whose text and fields do not match.
    #[error("stencil: {why}")]
    Stencil {
        /// The fault and its remedy.
        why: String,
    },
}

message_debug!(FieldError);

impl FieldError {
    /// Refuses another number of `what` than is expected.
    pub(super) fn check_length(what: &'static str, expected: u64, found: u64) -> Result<(), Self> {
        if expected == found { Ok(()) } else { Err(FieldError::Length { what, expected, found }) }
    }
}

error_from! {
    FieldError from ExchangeError { Comm, Device }
    FieldError from HostMemoryError via DeviceError
}
