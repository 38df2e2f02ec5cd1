//! Ranks that will send and receive nothing more, and the errors of those that wait for them.

use super::CommError;

/// Why a rank sends and receives nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// It has returned from its body without an error.
    Left,
    /// It has dropped the communicator.
    Dropped,
}

impl Gone {
    pub fn action(self) -> &'static str {
        match self {
            Gone::Left => "returned from its body",
            Gone::Dropped => "dropped the communicator",
        }
    }

    /// Returns the error of a wait for a message of the rank `rank`, counted in the whole run, that
    /// is gone.
    pub fn in_wait_for_message(self, rank: usize) -> CommError {
        self.while_waited_for(rank, "a message of it was waited for")
    }

    /// Returns the error of a wait for a send to the rank `rank`, counted in the whole run, that is
    /// gone.
    pub fn in_wait_to_send(self, rank: usize) -> CommError {
        self.while_waited_for(rank, "a message to it waited to be received")
    }

    fn while_waited_for(self, rank: usize, what: &str) -> CommError {
        CommError::PeerFailed { rank, message: format!("it {} while {what}", self.action()) }
    }
}
