//! Errors of transforms.

use crate::comm::CommError;
use crate::exchange::ExchangeError;
use crate::field::FieldError;
use crate::gpu::DeviceError;
use crate::grid::LayoutError;
use crate::host_memory::HostMemoryError;

/// A transform that cannot be created, and what would work instead.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FftError {
    /// An axis of length 0, or no field at all.
    #[error(
        "an axis of length 0 cannot be transformed; every axis needs one point, and a transform one field at least"
    )]
    Empty,
    /// Numbers of cells, points and modes that do not fit each other.
    #[error(
        "axis {axis} has {cells} cells, {points} points and {modes} modes; a transformed axis needs at least as many points as cells \
         and modes, another one as many"
    )]
    Order {
        /// The axis.
        axis: usize,
        /// Cells of the field.
        cells: u64,
        /// Points of the transform.
        points: u64,
        /// Modes that are kept.
        modes: u64,
    },
    /// An axis of more points than kernels can index.
    #[error(
        "axis {axis} has {points} points, and a line of a transform 2^32 - 2^17 at most; use a shorter axis, or leave it out of the transform"
    )]
    Line {
        /// The axis.
        axis: usize,
        /// Points of the transform along it.
        points: u64,
    },
    /// A real transform that leaves out the last axis.
    #[error("a real transform halves the last axis, so it must be among those that are transformed; use a complex one")]
    RealAxis,
    /// A line that no number of passes can transform.
    #[error(
        "length {n} is beyond what this device transforms (lines of {limit} points at once, up to three passes); use a shorter axis"
    )]
    TooLong {
        /// The length.
        n: u64,
        /// The longest line of one pass.
        limit: u64,
    },
    /// More elements than kernels can index.
    #[error(
        "expected at most 2^32 - 2^17 elements on one rank, which kernels can index, got {elements}; use at least {} times as many ranks",
        elements.div_ceil((1 << 32) - (1 << 17))
    )]
    TooLarge {
        /// Elements of the largest array.
        elements: u128,
    },
    /// A host array that is not as long as its shape requires.
    #[error("the {what} has {have} elements, but this shape has {want}; give an array of that length, in C order")]
    Length {
        /// `field` or `spectrum`.
        what: &'static str,
        /// Elements of the array.
        have: usize,
        /// Elements that the shape requires.
        want: u64,
    },
    /// A specification of elements that the transform or filter does not have.
    #[error(
        "the spec describes fields of {found}, but the transform has elements of {expected}; create the spec with \
         `Spec::of::<{expected}>`"
    )]
    Elements {
        /// The element type of the transform, as Rust names it.
        expected: &'static str,
        /// The element type that the specification describes.
        found: &'static str,
    },
    /// Double precision on a device without `f64`.
    #[error(
        "{device} has no double precision (f64); use single precision or a device that `meshloom devices` lists with f64"
    )]
    NoDouble {
        /// The device.
        device: String,
    },
    /// A transform that does not fit into the memory of some rank, whatever the tuning.
    #[error(
        "rank {rank} has too little device memory for this transform, however it is done; use more ranks on more devices, or a smaller field"
    )]
    NoMemory {
        /// The first such rank.
        rank: usize,
    },
    /// An error of the process grid or of boxes.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

message_debug!(FftError);

/// A transform that failed: while it was planned, or while it ran.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    /// The transform cannot be created.
    #[error(transparent)]
    Fft(#[from] FftError),
    /// The device or another rank failed.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// A factor of a filter that is not finite.
    #[error("the factor of the mode k = {k:?}: expected finite numbers, got {value:?}")]
    Factor {
        /// The wavevector.
        k: [f64; 3],
        /// The real and the imaginary part of the factor.
        value: [f64; 2],
    },
    /// A factor that makes real fields complex.
    #[error(
        "the factor is {value:?} at k = {k:?} and {opposite:?} at -k, but of real fields these must be complex conjugates; \
         make odd factors imaginary, as `[0.0, k[0]]`, or filter a complex field"
    )]
    NotConjugate {
        /// The wavevector.
        k: [f64; 3],
        /// The real and the imaginary part of its factor.
        value: [f64; 2],
        /// The parts of the factor of `-k`.
        opposite: [f64; 2],
    },
}

message_debug!(TransformError);

error_from! {
    TransformError from FieldError { Comm, Device, Layout } or misuse "field"
    TransformError from DeviceError via FftError
    TransformError from CommError via ExchangeError
    TransformError from LayoutError via FftError
    TransformError from HostMemoryError via DeviceError
}
