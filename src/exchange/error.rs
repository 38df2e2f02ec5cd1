//! What can go wrong in an exchange.

use crate::comm::CommError;
use crate::gpu::DeviceError;

/// An exchange that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// On the device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Between the ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
}

/// Gives an error that has variants for the device and for the ranks its `From<ExchangeError>`.
macro_rules! from_exchange_error {
    ($error:ty) => {
        impl From<$crate::exchange::ExchangeError> for $error {
            fn from(error: $crate::exchange::ExchangeError) -> Self {
                match error {
                    $crate::exchange::ExchangeError::Device(error) => error.into(),
                    $crate::exchange::ExchangeError::Comm(error) => error.into(),
                }
            }
        }
    };
}
pub(crate) use from_exchange_error;
