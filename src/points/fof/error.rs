//! Errors of groups.

use crate::comm::CommError;
use crate::exchange::ExchangeError;
use crate::gpu::{DeviceError, Element};
use crate::host_memory::HostMemoryError;
use crate::points::ParticleError;
use crate::points::neighbors::NeighborError;
use crate::points::sort::SortError;

/// An error of groups of points. Points are identified by their indices in the input of all ranks.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FofError {
    /// An array whose length does not fit the number of points.
    #[error("{have} values of `{what}` were given, but {want} are needed for the points; correct the slice")]
    WrongLength {
        /// The array.
        what: &'static str,
        /// Values it has.
        have: u64,
        /// Values it should have.
        want: u64,
    },
    /// An attribute of another type or width; the same error on all ranks.
    #[error("the attribute `{what}` has {width} values of type {} for each point; catalogs take {wanted} of type f32", found.wgsl())]
    Attribute {
        /// The attribute.
        what: &'static str,
        /// The type of its values.
        found: Element,
        /// Values for each point.
        width: u64,
        /// Values for each point that are needed.
        wanted: u64,
    },
    /// Invalid mass; the same error on all ranks.
    #[error("the mass of point {number} is {value}; masses must be numbers from 0 on")]
    Mass {
        /// The first point of all ranks that has a bad value.
        number: u64,
        /// Its mass.
        value: f32,
    },
    /// A value that is NaN or infinite; the same error on all ranks.
    #[error("`{what}` of point {number} is not finite; remove or repair it")]
    NonFinite {
        /// Which value.
        what: &'static str,
        /// The first point of all ranks that has a bad value.
        number: u64,
    },
    /// A quantity of a group that overflows `f32`, in which it is to be written; the same error on
    /// all ranks.
    #[error(
        "`{what}` of the group with label {label} is {value:e}, beyond the range of f32 (3.4e38), in which catalogs are \
         written; scale positions, masses or velocities to other units"
    )]
    OutOfRange {
        /// The column of the catalog.
        what: &'static str,
        /// The first such group of all ranks.
        label: u64,
        /// The value.
        value: f64,
    },
    /// Invalid observer.
    #[error("the observer stands at {at:?}; every coordinate must be finite")]
    Observer {
        /// The coordinates given.
        at: [f64; 3],
    },
    /// A label that is not the least index of its group, or an index that several points have.
    #[error(
        "the group with label {label} has no point of that number or several, or a lesser number; a label is the least \
         number in its group, and no two points have the same number"
    )]
    Label {
        /// The label.
        label: u64,
    },
    /// Points of several ranks with the same index.
    #[error("two points of a group have the same number; number the points of all ranks without repetition")]
    Repeated,
    /// More points than one rank can hold.
    #[error("{count} points on one rank, which numbers fewer than 2^32; use more ranks")]
    TooMany {
        /// The points of the rank.
        count: u64,
    },
    /// Invalid linking length.
    #[error("the linking length is {value}; it must be a number from 0 on")]
    Length {
        /// The given value.
        value: f64,
    },
    /// A linking length in mean separations, in a box with an open axis, which has no volume.
    #[error("the mean separation needs a box: make every axis periodic, or give an absolute linking length")]
    Volume,
    /// Linking points.
    #[error(transparent)]
    Neighbors(NeighborError),
    /// Points.
    #[error(transparent)]
    Particles(#[from] ParticleError),
    /// A device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
}

message_debug!(FofError);

error_from! {
    FofError from ExchangeError via SortError
    FofError from HostMemoryError via DeviceError
    FofError from NeighborError { Device, Comm, Particles, Sort; Neighbors }
}

impl From<SortError> for FofError {
    fn from(error: SortError) -> Self {
        match error {
            SortError::Device(error) => error.into(),
            SortError::Comm(error) => error.into(),
            SortError::Particles(error) => error.into(),
            SortError::Repeated => FofError::Repeated,
        }
    }
}
