//! Errors of maps.

use crate::comm::CommError;
use crate::exchange::ExchangeError;
use crate::gpu::DeviceError;
use crate::host_memory::HostMemoryError;

/// An error of a map, or of the layers below it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// A mapping that cannot be, or items that do not fit it.
    #[error("map: {0}")]
    Invalid(String),
    /// A single item that takes more memory than is allowed.
    #[error(
        "map: a chunk of one item takes {needed} bytes of device memory with what comes out, {budget} are allowed; \
         allow more, or let an item make less"
    )]
    Budget {
        /// Bytes that were taken.
        needed: u64,
        /// Bytes that may be.
        budget: u64,
    },
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
}

message_debug!(MapError);

error_from! {
    MapError from HostMemoryError via DeviceError
    MapError from ExchangeError { Comm, Device }
}
