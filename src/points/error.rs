//! Errors of points.

use crate::comm::CommError;
use crate::exchange::ExchangeError;
use crate::gpu::DeviceError;
use crate::host_memory::HostMemoryError;
use crate::io::IoError;

/// An error of points, of a device or of the ranks. Axes count from 0.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParticleError {
    /// A coordinate is NaN or infinite.
    #[error("coordinate {axis} of point {index} is not finite; remove or repair it, every coordinate must be finite")]
    NonFinite {
        /// The first such point.
        index: u64,
        /// Its first such axis.
        axis: usize,
    },
    /// A coordinate becomes NaN or infinite in [`Rank::each`](crate::Rank::each).
    #[error(
        "Rank::each makes coordinate {axis} of point {index} NaN or infinite; check the statements that assign to `x`"
    )]
    Moved {
        /// The first such point.
        index: u64,
        /// Its first such axis.
        axis: usize,
    },
    /// A finite `f64` coordinate along an open axis rounds to no finite `f32`.
    #[error(
        "coordinate {axis} of point {index} is {value:e}, beyond the range of f32 (3.4e38); scale the data to other \
         units"
    )]
    OutOfRange {
        /// The first such point.
        index: u64,
        /// Its first such axis.
        axis: usize,
        /// The coordinate.
        value: f64,
    },
    /// Points whose extent along an open axis overflows `f32`.
    #[error(
        "the points reach from {low:e} to {high:e} along axis {axis}, farther than f32 holds (3.4e38); scale the data to other units"
    )]
    Extent {
        /// The axis.
        axis: usize,
        /// The least coordinate.
        low: f32,
        /// The greatest.
        high: f32,
    },
    /// A side of a domain that is out of range.
    #[error("side {axis} of the box is {side}; it must be a length from 1e-30 to 1e30, or 0 for an open axis")]
    Sides {
        /// The axis.
        axis: usize,
        /// The given side.
        side: f64,
    },
    /// A number of axes that is neither 2 nor 3.
    #[error("{found} axes; points have 2 or 3")]
    Dims {
        /// The axes asked for.
        found: usize,
    },
    /// More points than one rank can number.
    #[error("{count} points on one rank, which holds {most} of {dims} axes at most; use more ranks")]
    TooMany {
        /// The points of the rank.
        count: u64,
        /// Maximum number of points.
        most: u64,
        /// Their axes.
        dims: usize,
    },
    /// Coordinates that are not a whole number of points.
    #[error("`positions`: expected a multiple of {dims} values, one for each axis, got {found}")]
    Coordinates {
        /// Axes of the points.
        dims: u64,
        /// Coordinates given.
        found: u64,
    },
    /// An attribute of another length than the points and its width require.
    #[error("`{name}`: expected {want} values, its width for each point, got {have}")]
    Shape {
        /// The attribute.
        name: String,
        /// Values it has.
        have: u64,
        /// Values it should have.
        want: u64,
    },
    /// No attribute has this name.
    #[error("no attribute `{name}`: expected one of {known}")]
    Missing {
        /// The name asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The values of an attribute are of another type.
    #[error("`{name}`: expected {found} values, its type, got {asked}")]
    Type {
        /// The attribute.
        name: String,
        /// The type of its values.
        found: &'static str,
        /// The type asked for.
        asked: &'static str,
    },
    /// A name that attributes cannot have.
    #[error(
        "`{name}` is the name of positions: expected another name for an attribute; use `moved` to change positions"
    )]
    Reserved {
        /// The name.
        name: String,
    },
    /// An attribute has more values per particle than an operation takes.
    #[error("`{name}`: expected at most {most} values per particle, got {found}")]
    Width {
        /// The attribute.
        name: String,
        /// Values per particle.
        found: u64,
        /// Values that the operation takes at most.
        most: u64,
    },
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
}

message_debug!(ParticleError);

/// An error of particles, or of a file of theirs.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ParticleFileError {
    /// Particles, a device or the ranks.
    #[error(transparent)]
    Particles(#[from] ParticleError),
    /// A file.
    #[error(transparent)]
    Io(#[from] IoError),
}

message_debug!(ParticleFileError);

error_from! {
    ParticleFileError from DeviceError via ParticleError
    ParticleFileError from CommError via ParticleError
    ParticleError from HostMemoryError via DeviceError
    ParticleError from ExchangeError { Comm, Device }
}
