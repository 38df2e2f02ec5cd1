//! Errors of exchanges.

use crate::comm::CommError;
use crate::gpu::DeviceError;
use crate::host_memory::HostMemoryError;

/// An exchange that failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// On the device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Between the ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
}

message_debug!(ExchangeError);

error_from! {
    ExchangeError from HostMemoryError via DeviceError
}
