//! Why a command failed, and with which exit code.

use meshloom::Error;
use meshloom::gpu::DeviceError;
use meshloom::io::IoError;
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
        /// Where it stopped, and how it goes on.
        message: String,
    },
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Words(_) | Failure::Usage(_) => 2,
            Failure::Failed(_) => 1,
            Failure::Stopped { signal, .. } => 128 + signal,
        }
    }

    /// The message on standard error.
    pub fn message(&self) -> String {
        match self {
            Failure::Words(message) => message.trim_end().into(),
            Failure::Usage(message) | Failure::Failed(message) | Failure::Stopped { message, .. } => {
                format!("meshloom: {message}")
            }
        }
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
