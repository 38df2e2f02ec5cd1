//! Errors of distributed sorts.

use crate::comm::CommError;
use crate::exchange::ExchangeError;
use crate::gpu::DeviceError;
use crate::host_memory::HostMemoryError;
use crate::points::ParticleError;

/// An error of a sort over ranks.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SortError {
    /// Two elements have the same key where keys must be unique.
    #[error("two elements have the same key; number them so that no two of all ranks are alike")]
    Repeated,
    /// The points.
    #[error(transparent)]
    Particles(ParticleError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
}

message_debug!(SortError);

error_from! {
    SortError from HostMemoryError via DeviceError
    SortError from ParticleError { Device, Comm; Particles }
    SortError from ExchangeError { Comm, Device }
}
