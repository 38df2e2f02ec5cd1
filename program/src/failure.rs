//! Failures of commands, and their exit codes.

use std::error::Error as StdError;
use std::fmt::{self, Display};

use meshloom::Error;
use meshloom::gpu::DeviceError;
use meshloom::pm::SimulationError;
use meshloom_program::models::shallow_water::ShallowWaterError;

/// The failure of a command, which decides the exit code.
pub enum Failure {
    /// Arguments that the parser refuses, with its message; exit code 2.
    Words(String),
    /// Arguments with invalid values, alone or together; exit code 2.
    Usage(String),
    /// Work or files that failed; exit code 1.
    Failed(String),
    /// Work that a signal has stopped and that can be resumed; exit code 128 plus the number of the
    /// signal.
    Stopped {
        /// The number of the signal.
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
            // Invalid values of options.
            E::Cosmology(_) | E::Fft(_) | E::Layout(_) | E::Device(DeviceError::UnknownAdapter { .. }) => {
                Failure::Usage(error.to_string())
            }
            E::Simulation(SimulationError::OutOfRange { .. }) => Failure::Usage(error.to_string()),
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

/// The reason why the work of a rank ended.
pub enum Ended {
    /// A failure that all ranks have, so that they end together.
    Together(Failure),
    /// An error of this rank, which ends the others.
    Alone(Box<dyn StdError + Send + Sync>),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Ended::Together(failure)
    }
}

macro_rules! library_errors {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Failure::from(&Error::from(error))
            }
        }

        impl From<$error> for Ended {
            fn from(error: $error) -> Self {
                Ended::Alone(Error::from(error).into())
            }
        }
    )*};
}

meshloom::every_error!(library_errors);

impl From<ShallowWaterError> for Ended {
    fn from(error: ShallowWaterError) -> Self {
        Ended::Alone(error.into())
    }
}
