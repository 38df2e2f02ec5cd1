//! Every error of the library as one type.

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

/// An error of any layer. Messages say what happened and what to do about it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Communication between ranks.
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
    /// A map over items.
    #[error(transparent)]
    Map(MapError),
    /// Painting, fields or spectra.
    #[error(transparent)]
    Mesh(MeshError),
    /// Searches of neighbours.
    #[error(transparent)]
    Neighbors(NeighborError),
    /// Operators and their fields.
    #[error(transparent)]
    Operators(OperatorError),
    /// Points and their attributes.
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

impl From<HostMemoryError> for Error {
    fn from(error: HostMemoryError) -> Self {
        Error::Device(error.into())
    }
}

impl From<ExchangeError> for Error {
    fn from(error: ExchangeError) -> Self {
        error.flatten()
    }
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::Comm(error) => Error::Comm(error),
            FieldError::Device(error) => Error::Device(error),
            FieldError::Io(error) => Error::Io(error),
            FieldError::Layout(error) => Error::Layout(error),
            error => Error::Field(error),
        }
    }
}

impl From<FftError> for Error {
    fn from(error: FftError) -> Self {
        match error {
            FftError::Device(error) => Error::Device(error),
            error => Error::Fft(error),
        }
    }
}

impl From<TransformError> for Error {
    fn from(error: TransformError) -> Self {
        match error {
            TransformError::Fft(error) => error.into(),
            TransformError::Exchange(error) => error.into(),
            error => Error::Transform(error),
        }
    }
}

impl From<MeshError> for Error {
    fn from(error: MeshError) -> Self {
        match error {
            MeshError::Layout(error) => Error::Layout(error),
            MeshError::Device(error) => Error::Device(error),
            MeshError::Comm(error) => Error::Comm(error),
            error => Error::Mesh(error),
        }
    }
}

impl From<MapError> for Error {
    fn from(error: MapError) -> Self {
        match error {
            MapError::Device(error) => Error::Device(error),
            MapError::Comm(error) => Error::Comm(error),
            error => Error::Map(error),
        }
    }
}

impl From<OperatorError> for Error {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::Device(error) => Error::Device(error),
            OperatorError::Comm(error) => Error::Comm(error),
            OperatorError::Fft(error) => error.into(),
            OperatorError::Mesh(error) => error.into(),
            error => Error::Operators(error),
        }
    }
}

impl From<InferenceError> for Error {
    fn from(error: InferenceError) -> Self {
        match error {
            InferenceError::Device(error) => Error::Device(error),
            InferenceError::Comm(error) => Error::Comm(error),
            InferenceError::Io(error) => Error::Io(error),
            InferenceError::Operators(error) => error.into(),
            error => Error::Inference(error),
        }
    }
}

impl From<ParticleError> for Error {
    fn from(error: ParticleError) -> Self {
        match error {
            ParticleError::Device(error) => Error::Device(error),
            ParticleError::Comm(error) => Error::Comm(error),
            error => Error::Particles(error),
        }
    }
}

impl From<ParticleFileError> for Error {
    fn from(error: ParticleFileError) -> Self {
        match error {
            ParticleFileError::Particles(error) => error.into(),
            ParticleFileError::Io(error) => Error::Io(error),
        }
    }
}

impl From<SortError> for Error {
    fn from(error: SortError) -> Self {
        match error {
            SortError::Device(error) => Error::Device(error),
            SortError::Comm(error) => Error::Comm(error),
            SortError::Particles(error) => error.into(),
            error => Error::Sort(error),
        }
    }
}

impl From<NeighborError> for Error {
    fn from(error: NeighborError) -> Self {
        match error {
            NeighborError::Device(error) => Error::Device(error),
            NeighborError::Comm(error) => Error::Comm(error),
            NeighborError::Particles(error) => error.into(),
            NeighborError::Sort(error) => error.into(),
            error => Error::Neighbors(error),
        }
    }
}

impl From<FofError> for Error {
    fn from(error: FofError) -> Self {
        match error {
            FofError::Device(error) => Error::Device(error),
            FofError::Comm(error) => Error::Comm(error),
            FofError::Particles(error) => error.into(),
            FofError::Sort(error) => error.into(),
            FofError::Neighbors(error) => error.into(),
            error => Error::Fof(error),
        }
    }
}

impl From<SimulationError> for Error {
    fn from(error: SimulationError) -> Self {
        match error {
            SimulationError::Comm(error) => error.into(),
            SimulationError::Cosmology(error) => error.into(),
            SimulationError::Device(error) => error.into(),
            SimulationError::Fft(error) => error.into(),
            SimulationError::Io(error) => error.into(),
            SimulationError::Layout(error) => error.into(),
            SimulationError::Mesh(error) => error.into(),
            SimulationError::Points(error) => error.into(),
            SimulationError::Sort(error) => error.into(),
            error => Error::Simulation(error),
        }
    }
}
