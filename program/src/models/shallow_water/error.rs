//! Errors of the shallow-water model.

use std::fmt;

use meshloom::Error;
use meshloom::comm::CommError;
use meshloom::exchange::ExchangeError;
use meshloom::gpu::{DeviceError, bytes};
use meshloom::grid::LayoutError;
use meshloom::host_memory::HostMemoryError;
use meshloom::io::IoError;

/// An error of a run of the shallow-water model, or of the layers below it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ShallowWaterError {
    /// A parameter is out of its range.
    #[error("the {what} is {value}; it must be {allowed}")]
    OutOfRange {
        /// The parameter.
        what: &'static str,
        /// Its value.
        value: f64,
        /// The values that are allowed.
        allowed: &'static str,
    },
    /// Double precision on a device without it.
    #[error("double precision is not what `{device}` has in kernels; use f32, or another device")]
    NoDouble {
        /// The device.
        device: String,
    },
    /// The device has too little memory.
    #[error(
        "the run needs {} of device memory on each rank, and there are {} for each of the {sharing} rank(s) on this device; use fewer cells or \
         more ranks on more devices",
        bytes(*needed), bytes(*available)
    )]
    Memory {
        /// Bytes that a rank needs.
        needed: u64,
        /// Bytes that a rank can have.
        available: u64,
        /// Ranks on the device.
        sharing: usize,
    },
    /// The flow is not finite any more; the same on all ranks.
    #[error(
        "the flow at step {step} has values that are not finite; it has become unstable: use a gentler start, or more depth or viscosity"
    )]
    Unstable {
        /// The step.
        step: u64,
    },
    /// A state that has not one value for each cell of this rank and each of its fields.
    #[error("{have} values of the state were given, but {want} are needed for this rank's cells; correct the slice")]
    WrongLength {
        /// Values it has.
        have: u64,
        /// Values it should have.
        want: u64,
    },
    /// An error of the library.
    #[error(transparent)]
    Library(#[from] Error),
}

impl fmt::Debug for ShallowWaterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Conversions through the library's own error.
macro_rules! from_library {
    ($($error:ty),*) => {
        $(impl From<$error> for ShallowWaterError {
            fn from(error: $error) -> Self {
                ShallowWaterError::Library(error.into())
            }
        })*
    };
}

from_library!(CommError, DeviceError, ExchangeError, HostMemoryError, IoError, LayoutError);
