//! Errors of simulations.

use std::fmt::Display;

use crate::comm::CommError;
use crate::cosmology::CosmologyError;
use crate::exchange::ExchangeError;
use crate::fft::FftError;
use crate::field::FieldError;
use crate::gpu::DeviceError;
use crate::grid::LayoutError;
use crate::host_memory::HostMemoryError;
use crate::io::IoError;
use crate::mesh::MeshError;
use crate::points::ParticleError;
use crate::points::sort::SortError;

/// An error of a simulation, or of the layers below it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// A parameter is out of its range.
    #[error("{what} is {value}; it must be {allowed}")]
    OutOfRange {
        /// The parameter.
        what: &'static str,
        /// Its value.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },
    /// The device has too little memory.
    #[error(
        "the run needs {} of device memory on each rank ({detail}), and there are {} for each of the {sharing} rank(s) on \
         this device; use a smaller mesh, fewer particles or more ranks on more devices",
        crate::gpu::bytes(*needed), crate::gpu::bytes(*available)
    )]
    Memory {
        /// Bytes that a rank needs.
        needed: u64,
        /// For what it needs them.
        detail: String,
        /// Bytes that a rank can have.
        available: u64,
        /// Ranks on the device.
        sharing: usize,
    },
    /// White noise, or the state of particles, with a value that is not a number; the same on all
    /// ranks.
    #[error("the {what} hold {value} at index {index}; every value must be finite")]
    NotFinite {
        /// Meaning of the values.
        what: &'static str,
        /// The first such site of all ranks, counted in C order.
        index: u64,
        /// The value.
        value: f32,
    },
    /// An array that has not one value per site of this rank.
    #[error("{have} values of the {what} were given, but {want} are needed for this rank's sites; correct the slice")]
    WrongLength {
        /// Meaning of the values.
        what: &'static str,
        /// Values it has.
        have: u64,
        /// Values it should have.
        want: u64,
    },
    /// A schedule kicks particles that have drifted since the last force.
    #[error("a kick needs the force of where particles are, and there is none; put a force before it in the schedule")]
    NoForce,
    /// Particles without a finite position, or so far from their site that they cannot be painted.
    #[error(
        "{particles} time(s) a force was computed without a particle that has no finite position; the run cannot go on: check \
         that every value of the white noise is finite, or use more steps"
    )]
    Lost {
        /// Number of lost particles on all ranks, counted once per force.
        particles: u64,
    },
    /// A loss, or what follows from it, is not finite.
    #[error(
        "the gradient of a simulation: {what} is not finite; check what the loss adds to the cotangents, and its value"
    )]
    Loss {
        /// Name of the quantity.
        what: &'static str,
    },
    /// A snapshot that does not belong to the run.
    #[error("{why}")]
    Resume {
        /// The difference, and the remedy.
        why: String,
    },
    /// The ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Scale factors, steps or the linear power.
    #[error(transparent)]
    Cosmology(#[from] CosmologyError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A transform.
    #[error(transparent)]
    Fft(#[from] FftError),
    /// A file.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The process grid.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Painting, or a spectrum.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// Points.
    #[error(transparent)]
    Points(#[from] ParticleError),
    /// A sort of rows over ranks.
    #[error(transparent)]
    Sort(#[from] SortError),
}

message_debug!(SimulationError);

/// The result of a call on a simulation.
pub(super) type Result<T, E = SimulationError> = std::result::Result<T, E>;

/// Returns an error unless `ok`: `what` is `value`, and must be `allowed`.
pub(super) fn require(ok: bool, what: &'static str, value: impl Display, allowed: impl Into<String>) -> Result<()> {
    let out_of_range = || SimulationError::OutOfRange { what, value: value.to_string(), allowed: allowed.into() };
    if ok { Ok(()) } else { Err(out_of_range()) }
}

error_from! {
    SimulationError from HostMemoryError via DeviceError
    SimulationError from ExchangeError { Comm, Device }
    SimulationError from FieldError { Comm, Device, Io, Layout } or misuse "field of a simulation"
}
