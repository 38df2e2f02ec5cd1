//! What cannot be transformed.

use crate::device::DeviceError;

/// An error of a transform: which length, why, and which lengths would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FftError {
    /// An axis of length 0.
    #[error("an axis of length 0 cannot be transformed; every axis needs one point at least")]
    Empty,
    /// A length with a prime factor beyond 7.
    #[error("length {n} has the prime factor {factor}; use a product of 2, 3, 5 and 7, such as {below} or {above}")]
    Factor {
        /// The length.
        n: u64,
        /// Its largest prime factor.
        factor: u64,
        /// The next good length below.
        below: u64,
        /// The next good length above.
        above: u64,
    },
    /// A line that does not fit into one workgroup.
    #[error("length {n} is beyond the {limit} points that this device transforms in one pass; use a shorter axis")]
    TooLong {
        /// The length.
        n: u64,
        /// The longest line.
        limit: u64,
    },
    /// More elements than kernels index.
    #[error("the part of one rank has {elements} elements, more than the 2^32 that kernels index; use more ranks")]
    TooLarge {
        /// Elements of the largest array.
        elements: u64,
    },
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
