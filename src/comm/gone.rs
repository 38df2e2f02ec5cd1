//! How a rank can no longer send or take what another waits for, and what is said of it.

use super::CommError;
use super::call::Call;

/// Why nothing more comes from a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// It has returned from its body without an error.
    Left,
    /// It has dropped the communicator.
    Dropped,
}

impl Gone {
    fn did(self) -> &'static str {
        match self {
            Gone::Left => "returned from its body",
            Gone::Dropped => "dropped the communicator",
        }
    }

    /// Where this rank, `rank` of its communicator, waits in a collective for rank `other`.
    pub fn in_collective(self, call: &Call, rank: usize, other: usize) -> CommError {
        call.mismatch_with(rank, other, format!("has {}", self.did()))
    }

    /// Where this rank waits for a message of a rank, counted in the whole run.
    pub fn in_wait_for_message(self, rank: usize) -> CommError {
        self.while_waited_for(rank, "a message of it was waited for")
    }

    /// Where this rank waits for a rank, counted in the whole run, to take a message. Threads never do.
    #[cfg(feature = "mpi")]
    pub fn in_wait_to_send(self, rank: usize) -> CommError {
        self.while_waited_for(rank, "a message to it waited to be received")
    }

    fn while_waited_for(self, rank: usize, what: &str) -> CommError {
        CommError::PeerFailed { rank, message: format!("it {} while {what}", self.did()) }
    }
}
