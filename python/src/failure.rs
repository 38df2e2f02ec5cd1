//! Conversion of errors to Python exceptions.

use meshloom::comm::{CommError, RunError};
use meshloom::fft::FftError;
use meshloom::gpu::DeviceError;
use meshloom::inference::InferenceError;
use meshloom::io::{IoError, IoErrorKind};
use meshloom::map::MapError;
use meshloom::mesh::MeshError;
use meshloom::operators::OperatorError;
use meshloom::pm::SimulationError;
use meshloom::points::ParticleError;
use meshloom::points::fof::FofError;
use meshloom::points::neighbors::NeighborError;
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyRuntimeError, PyValueError};
use pyo3::{PyErr, Python, create_exception};

create_exception!(
    meshloom,
    Error,
    PyRuntimeError,
    "Failure of a device, its memory, a rank, a kernel or a file.\n\n\
     The message has the cause and a remedy. Invalid values are `ValueError`, invalid types\n\
     `TypeError`, and lack of host memory is `MemoryError`."
);

create_exception!(meshloom._native, NotFinite, Error, "An energy, or a result that it needs, is NaN or infinite.");

/// The failure of a call.
pub enum Failure {
    /// An error of the library.
    Library(meshloom::Error),
    /// An invalid argument.
    Value(String),
    /// A Python exception, such as one of a callback.
    Python(PyErr),
    /// A panic, which is a defect of the library.
    Panic(String),
    /// The call was interrupted.
    Interrupted,
    /// Another rank has failed and reports the error.
    Elsewhere,
}

impl Failure {
    /// Returns the failure of a call on `ranks` ranks in which a caller's function has raised
    /// `error`: on one rank this exception itself. On several ranks it is the cause of a
    /// `meshloom.Error`, because the other ranks have an error of that type.
    pub fn caused_by(self, error: PyErr, ranks: usize) -> Self {
        if ranks == 1 {
            return Failure::Python(error);
        }
        Python::attach(|py| {
            let outer = Error::new_err(self.to_string());
            outer.set_cause(py, Some(error));
            Failure::Python(outer)
        })
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Library(error) => error.fmt(f),
            Failure::Value(text) => f.write_str(text),
            Failure::Python(error) => error.fmt(f),
            Failure::Panic(text) => write!(f, "an error of meshloom itself, please report it: {text}"),
            Failure::Interrupted => f.write_str("interrupted"),
            Failure::Elsewhere => f.write_str("another rank has failed"),
        }
    }
}

macro_rules! library_errors {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Failure::Library(error.into())
            }
        }
    )*};
}

meshloom::every_error!(library_errors);

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Failure::Python(error)
    }
}

impl std::fmt::Debug for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failure {}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        // The body of a rank fails with a `Failure`; opening its device and starting the ranks fail
        // with errors of the library.
        let failed = error.downcast::<Failure>();
        let failed = failed.or_else(|error| error.downcast::<DeviceError>().map(Failure::from));
        let failed = failed.or_else(|error| error.downcast::<CommError>().map(Failure::from));
        failed.unwrap_or_else(|error| Failure::Panic(error.to_string()))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        let text = failure.to_string();
        match failure {
            Failure::Library(error) if is_about_values(&error) => PyValueError::new_err(text),
            Failure::Library(error) if lacks_host_memory(&error) => PyMemoryError::new_err(text),
            Failure::Value(_) => PyValueError::new_err(text),
            Failure::Library(meshloom::Error::Inference(InferenceError::NotFinite { .. })) => NotFinite::new_err(text),
            Failure::Library(_) | Failure::Panic(_) | Failure::Elsewhere => Error::new_err(text),
            Failure::Python(error) => error,
            Failure::Interrupted => PyKeyboardInterrupt::new_err(()),
        }
    }
}

/// Returns `true` if host memory is exhausted.
fn lacks_host_memory(error: &meshloom::Error) -> bool {
    use meshloom::Error as E;
    match error {
        E::Device(DeviceError::HostMemory(_))
        | E::Comm(CommError::HostMemory(_))
        | E::Io(IoError { kind: IoErrorKind::Memory, .. }) => true,
        E::Operators(OperatorError::Failed { error, .. }) => matches!(
            error.downcast_ref::<SimulationError>(),
            Some(SimulationError::Device(DeviceError::HostMemory(_)) | SimulationError::Comm(CommError::HostMemory(_)))
        ),
        _ => false,
    }
}

/// Returns `true` if an argument of the caller is invalid, and `false` for errors of the device,
/// the ranks or their limits.
fn is_about_values(error: &meshloom::Error) -> bool {
    use meshloom::Error as E;
    match error {
        E::Cosmology(_) | E::Layout(_) | E::Comm(CommError::Differ { .. }) => true,
        E::Fft(error) => {
            !matches!(error, FftError::NoDouble { .. } | FftError::NoMemory { .. } | FftError::TooLarge { .. })
        }
        E::Fof(error) => !matches!(error, FofError::TooMany { .. }),
        E::Mesh(error) => {
            matches!(
                error,
                MeshError::NotFinite { .. }
                    | MeshError::Size { .. }
                    | MeshError::Bins { .. }
                    | MeshError::Weight { .. }
                    | MeshError::Weights { .. }
                    | MeshError::Unresolved { .. }
            )
        }
        E::Neighbors(error) => !matches!(error, NeighborError::TooLong { .. }),
        E::Inference(error) => {
            use InferenceError as I;
            matches!(error, I::Options { .. } | I::Invalid { .. } | I::NoTransformation { .. } | I::Groups { .. })
        }
        E::Map(error) => matches!(error, MapError::Invalid(_)),
        E::Operators(OperatorError::Failed { error, .. }) => {
            error.downcast_ref::<SimulationError>().is_some_and(is_about_a_run)
        }
        E::Operators(error) => !matches!(error, OperatorError::NotFinite { .. } | OperatorError::Check { .. }),
        E::Particles(error) => !matches!(error, ParticleError::TooMany { .. }),
        E::Simulation(error) => is_about_a_run(error),
        _ => false,
    }
}

/// Same for an error of a simulation.
fn is_about_a_run(error: &SimulationError) -> bool {
    use SimulationError as S;
    matches!(error, S::OutOfRange { .. } | S::NotFinite { .. } | S::WrongLength { .. })
}
