//! Every error of the library as one type.

use crate::cluster::MachineError;
use crate::comm::{CommError, RunError};
use crate::cosmology::CosmologyError;
use crate::exchange::ExchangeError;
use crate::fft::{FftError, TransformError};
use crate::field::FieldError;
use crate::gpu::DeviceError;
use crate::grid::LayoutError;
use crate::host_memory::HostMemoryError;
use crate::inference::InferenceError;
use crate::io::IoError;
use crate::map::MapError;
use crate::mesh::MeshError;
use crate::operators::OperatorError;
use crate::pm::SimulationError;
use crate::points::fof::FofError;
use crate::points::neighbors::NeighborError;
use crate::points::sort::SortError;
use crate::points::{ParticleError, ParticleFileError};

/// An error of any module. Its message says what happened and what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Communication between ranks failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// Cosmological parameters or schedules.
    #[error(transparent)]
    Cosmology(#[from] CosmologyError),
    /// A device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A transform.
    #[error(transparent)]
    Fft(FftError),
    /// A field.
    #[error(transparent)]
    Field(FieldError),
    /// Friends-of-friends groups.
    #[error(transparent)]
    Fof(FofError),
    /// An inference.
    #[error(transparent)]
    Inference(InferenceError),
    /// A file.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A process grid or a layout of boxes.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The description of a machine.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A map over items.
    #[error(transparent)]
    Map(MapError),
    /// Painting, readout or a power spectrum.
    #[error(transparent)]
    Mesh(MeshError),
    /// A neighbor search.
    #[error(transparent)]
    Neighbors(NeighborError),
    /// An operator or a vector.
    #[error(transparent)]
    Operators(OperatorError),
    /// Particles and their attributes.
    #[error(transparent)]
    Particles(ParticleError),
    /// A rank of [`run`](crate::run) or [`launch`](crate::launch()).
    #[error(transparent)]
    Run(#[from] RunError),
    /// A transform of a field.
    #[error(transparent)]
    Transform(TransformError),
    /// A simulation.
    #[error(transparent)]
    Simulation(SimulationError),
    /// A sort of points over ranks.
    #[error(transparent)]
    Sort(SortError),
}

message_debug!(Error);

error_from! {
    Error from HostMemoryError via DeviceError
    Error from ExchangeError { Comm, Device }
    Error from FieldError { Comm, Device, Io, Layout; Field }
    Error from FftError { Device; Fft }
    Error from TransformError { Fft, Exchange; Transform }
    Error from MeshError { Layout, Device, Comm; Mesh }
    Error from MapError { Device, Comm; Map }
    Error from OperatorError { Device, Comm, Fft, Mesh; Operators }
    Error from InferenceError { Device, Comm, Io, Operators; Inference }
    Error from ParticleError { Device, Comm; Particles }
    Error from ParticleFileError { Particles, Io }
    Error from SortError { Device, Comm, Particles; Sort }
    Error from NeighborError { Device, Comm, Particles, Sort; Neighbors }
    Error from FofError { Device, Comm, Particles, Neighbors; Fof }
    Error from SimulationError { Comm, Cosmology, Device, Fft, Io, Layout, Mesh, Points, Sort; Simulation }
}

/// Calls the macro `$use` with the list of all error types that become an [`Error`](crate::Error):
/// for the error types of the program and the Python package.
#[doc(hidden)]
#[macro_export]
macro_rules! every_error {
    ($use:ident) => {
        $use! {
            $crate::Error,
            $crate::comm::CommError,
            $crate::cosmology::CosmologyError,
            $crate::exchange::ExchangeError,
            $crate::fft::FftError,
            $crate::fft::TransformError,
            $crate::field::FieldError,
            $crate::gpu::DeviceError,
            $crate::grid::LayoutError,
            $crate::host_memory::HostMemoryError,
            $crate::inference::InferenceError,
            $crate::io::IoError,
            $crate::map::MapError,
            $crate::mesh::MeshError,
            $crate::operators::OperatorError,
            $crate::pm::SimulationError,
            $crate::points::ParticleError,
            $crate::points::ParticleFileError,
            $crate::points::fof::FofError,
            $crate::points::neighbors::NeighborError,
            $crate::points::sort::SortError,
        }
    };
}
