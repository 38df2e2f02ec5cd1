//! Errors of searches.

use crate::comm::CommError;
use crate::exchange::ExchangeError;
use crate::gpu::DeviceError;
use crate::host_memory::HostMemoryError;
use crate::points::ParticleError;
use crate::points::sort::SortError;

/// A search that failed.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NeighborError {
    /// More neighbors than lists hold.
    #[error("{k} neighbors were asked for, at most 1024 can be; use a radius search for more")]
    TooManyNeighbors {
        /// The given number.
        k: u64,
    },
    /// Invalid radius.
    #[error("a radius of {radius} was given; it must be 0 or more, and a number")]
    Radius {
        /// The given radius.
        radius: f64,
    },
    /// Invalid density of spheres.
    #[error("a density of {density} points per volume was given; it must be above 0, and a number")]
    Density {
        /// The given density.
        density: f64,
    },
    /// Queries in another domain than the tree.
    #[error("the queries lie in another domain ({queries}) than the points ({points}); make both with the same one")]
    Domain {
        /// Sides of the queries' domain.
        queries: String,
        /// Sides of the points' domain.
        points: String,
    },
    /// More entries than 32 bits count.
    #[error(
        "{rows} lists of {each} entries were asked for at once, at most 2^32 entries can be; ask for fewer queries at a time"
    )]
    TooLong {
        /// Lists.
        rows: u64,
        /// Entries of each, or in the mean.
        each: u64,
    },
    /// Invalid edges of bins.
    #[error(
        "edge {index} of the bins is {value}: expected 2 to 4097 edges, finite, non-negative and strictly ascending"
    )]
    Edges {
        /// The first wrong one.
        index: usize,
        /// Its value.
        value: f64,
    },
    /// Edges of bins that differ by more than squares of `f32` can.
    #[error(
        "edge {index} of the bins is {value:e} and the last one {last:e}: squares of distances tell apart what lies within a factor of \
         1e33; count the pairs in two parts, each with bins of its own"
    )]
    EdgesApart {
        /// The first edge above 0.
        index: usize,
        /// Its value.
        value: f64,
        /// The last edge.
        last: f64,
    },
    /// A weight that is negative or not finite; the same error on all ranks.
    #[error("weight {index} is {value}; weights must be finite and not negative")]
    Weight {
        /// The first such weight, among those of all ranks.
        index: u64,
        /// Its value.
        value: f64,
    },
    /// Another number of weights than points; the same error on all ranks.
    #[error("{found} weights for {points} points; give one for each point of a rank")]
    Weights {
        /// Weights of the rank.
        found: u64,
        /// Points of the rank.
        points: u64,
    },
    /// Points.
    #[error(transparent)]
    Particles(ParticleError),
    /// Distributing points.
    #[error(transparent)]
    Sort(SortError),
    /// A device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
}

message_debug!(NeighborError);

error_from! {
    NeighborError from ExchangeError via SortError
    NeighborError from ParticleError { Device, Comm; Particles }
    NeighborError from HostMemoryError via DeviceError
    NeighborError from SortError { Particles, Device, Comm; Sort }
}
