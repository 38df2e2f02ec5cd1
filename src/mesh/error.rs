//! Errors of points and fields.

use crate::comm::CommError;
use crate::exchange::ExchangeError;
use crate::field::FieldError;
use crate::gpu::DeviceError;
use crate::grid::LayoutError;
use crate::host_memory::HostMemoryError;
use crate::points::ParticleError;
use crate::points::sort::SortError;

/// An error of the numbers that a caller hands over, the same on every rank, or of what carries
/// them.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// A value is NaN or infinite.
    #[error("the value at {index:?} is {value}; remove or repair it, every value must be finite")]
    NotFinite {
        /// The first of all ranks' such values: row and axis of a point, the cell of a field.
        index: Vec<u64>,
        /// The value there.
        value: f64,
    },
    /// Positions of particles that are not finite, or that f32 does not resolve in cells.
    #[error(
        "{count} positions of all ranks are not finite or at least 2^22 cells from the origin; give finite positions near \
         the box, into which they are wrapped"
    )]
    Unresolved {
        /// Number of such positions of all ranks.
        count: u64,
    },
    /// A mode whose power is NaN or infinite.
    #[error(
        "the mode {index:?} has the power {power}, from a field that is not finite or too large for f32; remove or repair \
         values that are not finite, or scale the field"
    )]
    Mode {
        /// The first of all ranks' such modes, the last axis being the half one.
        index: [u64; 3],
        /// The power of the mode.
        power: f64,
    },
    /// A field that is not a density, so that it cannot be divided by its mean.
    #[error(
        "expected a density, which is not negative and is divided by its mean; got a field of mean {mean:.3e} with {:.2} % of \
         its magnitude in negative values; measure it as a contrast", 100.0 * negative
    )]
    NotDensity {
        /// The mean of the field.
        mean: f64,
        /// The share of negative values in the sum of all magnitudes, from 0 to 1.
        negative: f64,
    },
    /// A weight that is negative or not finite.
    #[error("the weight of point {index} is {value}; weights must be finite and not negative")]
    Weight {
        /// The first such point of all ranks.
        index: u64,
        /// Its weight.
        value: f64,
    },
    /// Weights that are not one for each point, or whose sum is 0.
    #[error(
        "{found} weights for {points} points of all ranks, with the sum {sum}; give one for each point of a rank, not all 0"
    )]
    Weights {
        /// Points of all ranks.
        points: u64,
        /// Weights of all ranks.
        found: u64,
        /// Their sum.
        sum: f64,
    },
    /// An invalid side of a box.
    #[error("side {axis} of the box is {size:?}; it must be a length from 1e-60 to 1e60")]
    Size {
        /// The axis.
        axis: usize,
        /// Its length.
        size: f64,
    },
    /// Particles in a box with other sides than a mesh, or with an open axis.
    #[error(
        "side {axis} of the box of the particles is {found}: expected {mesh}, that of the periodic mesh; make both with the same sides"
    )]
    Sides {
        /// The first axis that differs.
        axis: usize,
        /// Side of the mesh.
        mesh: f64,
        /// Side of the particles' box; 0 if it is open or absent.
        found: f64,
    },
    /// A spectrum of more bins than wavenumbers are told apart in.
    #[error(
        "the spectrum would have {bins} bins, each as wide as the fundamental mode of the longest side, and {most} are the most; \
         use a mesh of fewer cells (of a field, means of neighboring cells), or measure parts of the longest side"
    )]
    Bins {
        /// The Nyquist frequency of the coarsest axis in fundamental modes.
        bins: u64,
        /// Maximum number of bins.
        most: u64,
    },
    /// Particles, such as an attribute that is missing.
    #[error(transparent)]
    Particles(ParticleError),
    /// A process grid, or ghost cells.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
}

message_debug!(MeshError);

error_from! {
    MeshError from FieldError { Comm, Device, Layout } or misuse "field"
    MeshError from ParticleError { Comm, Device; Particles }
    MeshError from SortError { Comm, Device, Particles } or misuse "points"
    MeshError from HostMemoryError via DeviceError
    MeshError from ExchangeError { Comm, Device }
}
