//! Why a command failed, and with which exit code.

use std::error::Error as StdError;
use std::fmt::{self, Display};

use meshloom::Error;
use meshloom::comm::CommError;
use meshloom::cosmology::CosmologyError;
use meshloom::exchange::ExchangeError;
use meshloom::fft::FftError;
use meshloom::gpu::DeviceError;
use meshloom::grid::LayoutError;
use meshloom::host_memory::HostMemoryError;
use meshloom::inference::InferenceError;
use meshloom::io::IoError;
use meshloom::operators::OperatorError;
use meshloom::pm::SimulationError;
use meshloom::points::fof::FofError;
use meshloom::points::sort::SortError;
use meshloom_program::models::shallow_water::ShallowWaterError;

/// Why a command failed, which decides the exit code.
pub enum Failure {
    /// Arguments that the parser refuses, with its message: exit code 2.
    Words(String),
    /// Arguments that are wrong in value or together: exit code 2.
    Usage(String),
    /// Work or files that failed: exit code 1.
    Failed(String),
    /// Work that a signal has stopped where it can be resumed: 128 and the signal's number.
    Stopped {
        /// The signal's number.
        signal: u8,
        /// The place where it stopped, and how to continue.
        message: String,
    },
}

impl Failure {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Words(_) | Failure::Usage(_) => 2,
            Failure::Failed(_) => 1,
            Failure::Stopped { signal, .. } => 128 + signal,
        }
    }

    /// Returns the message on standard error.
    pub fn message(&self) -> String {
        let program = if let Failure::Words(_) = self { "" } else { "meshloom: " };
        format!("{program}{self}")
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        use meshloom::Error as E;
        match error {
            // Values of options that the library refuses.
            E::Cosmology(_) | E::Fft(_) | E::Layout(_) | E::Device(DeviceError::UnknownAdapter { .. }) => {
                Failure::Usage(error.to_string())
            }
            E::Simulation(meshloom::pm::SimulationError::OutOfRange { .. }) => Failure::Usage(error.to_string()),
            _ => Failure::Failed(error.to_string()),
        }
    }
}

impl From<&ShallowWaterError> for Failure {
    fn from(error: &ShallowWaterError) -> Self {
        match error {
            ShallowWaterError::Library(error) => error.into(),
            ShallowWaterError::OutOfRange { .. } | ShallowWaterError::NoDouble { .. } => {
                Failure::Usage(error.to_string())
            }
            _ => Failure::Failed(error.to_string()),
        }
    }
}

impl From<ShallowWaterError> for Failure {
    fn from(error: ShallowWaterError) -> Self {
        Failure::from(&error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::from(&error)
    }
}

impl From<IoError> for Failure {
    fn from(error: IoError) -> Self {
        Failure::Failed(error.to_string())
    }
}

impl From<CommError> for Failure {
    fn from(error: CommError) -> Self {
        Failure::Failed(error.to_string())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Words(text)
            | Failure::Usage(text)
            | Failure::Failed(text)
            | Failure::Stopped { message: text, .. } => f.write_str(text.trim_end()),
        }
    }
}

/// Why the work of a rank ended.
pub enum Ended {
    /// A failure that all ranks have: they end together.
    Together(Failure),
    /// An error of this rank, which ends the others.
    Alone(Box<dyn StdError + Send + Sync>),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Ended::Together(failure)
    }
}

macro_rules! alone {
    ($($error:ty),*) => {
        $(impl From<$error> for Ended {
            fn from(error: $error) -> Self {
                Ended::Alone(Error::from(error).into())
            }
        })*
    };
}

alone!(
    Error,
    CommError,
    CosmologyError,
    DeviceError,
    ExchangeError,
    FftError,
    FofError,
    HostMemoryError,
    InferenceError,
    IoError,
    LayoutError,
    OperatorError,
    SimulationError,
    SortError
);

impl From<ShallowWaterError> for Ended {
    fn from(error: ShallowWaterError) -> Self {
        Ended::Alone(error.into())
    }
}
