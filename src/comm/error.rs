//! Errors of communication and of runs.

use std::error::Error;
use std::fmt;

use super::MAX_TAG;
use crate::host_memory::HostMemoryError;

/// The result of a communication.
pub type Result<T, E = CommError> = std::result::Result<T, E>;

/// A communication failed. Each message says on which rank, what happened and what to do.
///
/// Ranks count within the communicator that was used, except in
/// [`PeerFailed`](CommError::PeerFailed) and [`Deadlock`](CommError::Deadlock), where they count
/// within the whole run.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// Another rank failed, panicked, aborted or left while this one waited for it or before it
    /// could send to it.
    #[error("rank {rank} is gone: {message}; the cause lies on that rank, fix it there")]
    PeerFailed {
        /// The rank that failed first, or that left, counted in the whole run.
        rank: usize,
        /// Its error, or what it did.
        message: String,
    },
    /// Local work failed on a rank, which all ranks report.
    #[error("{}", with_rank(*.rank, .message))]
    Elsewhere {
        /// The first rank that failed.
        rank: usize,
        /// Its error.
        message: String,
    },
    /// Ranks called an operation with different arguments.
    #[error(
        "{call}: `{argument}` differs between ranks: rank 0 has {reference}, rank {rank} has {value}; \
         pass the same value on all ranks"
    )]
    Differ {
        /// The operation.
        call: String,
        /// The first argument that differs.
        argument: String,
        /// The first rank whose arguments differ from those of rank 0.
        rank: usize,
        /// The argument on that rank.
        value: String,
        /// The argument on rank 0.
        reference: String,
    },
    /// The ranks of a communicator called different collectives, or exchanged different device
    /// data.
    #[error(
        "rank {rank} called {called}, but rank {other} {other_called}; \
         every rank must call the same collectives in the same order with shapes that agree"
    )]
    Mismatch {
        /// This rank.
        rank: usize,
        /// Call of this rank.
        called: String,
        /// A rank that did otherwise.
        other: usize,
        /// Call of the other rank.
        other_called: String,
    },
    /// Ranks wait for each other in different collectives or exchanges, such as one that has left
    /// out an exchange and one that waits in it. All ranks whose waits this ends get the same
    /// error.
    #[error(
        "ranks wait for each other: {}{}; call the same operations in the same order on all ranks",
        .ranks.iter().map(BlockedRank::to_string).collect::<Vec<_>>().join(", "),
        if *.others > 0 { format!(", and {others} more ranks") } else { String::new() }
    )]
    Deadlock {
        /// Ranks, each of which waits for the next; at most 8.
        ranks: Vec<BlockedRank>,
        /// The number of ranks between the last of `ranks` and the first.
        others: usize,
    },
    /// All ranks are done, but messages of collectives were sent that no rank has received: some
    /// ranks called collectives that others did not, without having to wait for them.
    #[error(
        "{messages} messages of collectives were sent that no rank took before all were done; \
         every rank must call the same collectives in the same order with shapes that agree"
    )]
    Untaken {
        /// The number of these messages.
        messages: u64,
    },
    /// A slice or count that does not fit the call.
    #[error("rank {rank}: {what} must be {expected}, but is {got}; correct the argument on this rank")]
    Length {
        /// This rank.
        rank: usize,
        /// The argument.
        what: String,
        /// The value it must have.
        expected: u64,
        /// The value it has.
        got: u64,
    },
    /// Shares of another number of ranks.
    #[error("expected {ranks} shares, got {shares}; give one for each rank, in rank order")]
    Shares {
        /// The number of shares.
        shares: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// A message of another size than the receive asked for. Later messages between the two ranks
    /// do not match their receives any more.
    #[error(
        "rank {rank} expected {expected} bytes from rank {from}, but {got} bytes{} came; \
         make the sizes and the largest message of both ranks agree",
        if got > expected { " or more" } else { "" }
    )]
    MessageSize {
        /// This rank.
        rank: usize,
        /// The sender.
        from: usize,
        /// Bytes asked for.
        expected: u64,
        /// Bytes received; a lower bound where it exceeds `expected`.
        got: u64,
    },
    /// A rank number that the communicator does not have.
    #[error("rank {rank}: {what} names rank {named}, but the communicator has {size} ranks; use 0 to size - 1")]
    BadRank {
        /// This rank.
        rank: usize,
        /// The call and argument.
        what: &'static str,
        /// The rank asked for.
        named: usize,
        /// Ranks there are.
        size: usize,
    },
    /// A tag above [`MAX_TAG`].
    #[error("rank {rank}: tag {tag} is too large; use 0 to {}", MAX_TAG)]
    BadTag {
        /// This rank.
        rank: usize,
        /// The tag.
        tag: u32,
    },
    /// Host memory for a message was refused.
    #[error(transparent)]
    HostMemory(#[from] HostMemoryError),
    /// An MPI call failed.
    #[error("rank {rank}: {call} failed: {text}; see the documentation of the MPI library for this error")]
    Mpi {
        /// This rank.
        rank: usize,
        /// The MPI function.
        call: &'static str,
        /// The MPI library's text.
        text: String,
    },
    /// Ranks could not be started.
    #[error("cannot start ranks: {0}")]
    Start(String),
}

message_debug!(CommError);

/// A rank that waits for another one, counted in the whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedRank {
    /// The rank.
    pub rank: usize,
    /// Operation in which it waits.
    pub operation: String,
    /// The rank that it waits for.
    pub awaited: usize,
}

impl fmt::Display for BlockedRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} waits for rank {} in {}", self.rank, self.awaited, self.operation)
    }
}

impl CommError {
    /// Returns the error of a wait for a message to itself that the rank has not sent.
    pub(super) fn not_sent_to_self(rank: usize) -> CommError {
        CommError::PeerFailed { rank, message: "it waits for a message to itself that it has not sent".to_owned() }
    }

    /// Names the operation of this rank in a mismatch of collectives.
    pub(super) fn within(self, call: &str) -> CommError {
        match self {
            CommError::Mismatch { rank, called, other, other_called } => {
                CommError::Mismatch { rank, called: format!("{call} ({called})"), other, other_called }
            }
            error => error,
        }
    }
}

/// Failure of a rank.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The body, or the runner itself, returned this error.
    #[error(transparent)]
    Error(Box<dyn Error + Send + Sync>),
    /// The body panicked or aborted with this message.
    #[error("panicked: {0}")]
    Panic(String),
}

/// The first failure of a run. `{:?}` prints the message, `{:#?}` the fields.
///
/// ```
/// use meshloom::comm::{CommError, run_threads};
///
/// let error = run_threads(2, |comm| comm.broadcast(7, &mut [0u8])).unwrap_err();
/// assert!(matches!(error.downcast_ref(), Some(CommError::BadRank { named: 7, .. })));
/// assert_eq!(format!("{error:?}"), error.to_string());
/// ```
pub struct RunError {
    /// The rank that failed first.
    pub rank: usize,
    /// Its failure.
    pub failure: Failure,
}

impl RunError {
    pub(crate) fn new(rank: usize, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        RunError { rank, failure: Failure::Error(error.into()) }
    }

    /// Returns the error of the rank if it has the type `E`.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        match &self.failure {
            Failure::Error(error) => error.downcast_ref(),
            Failure::Panic(_) => None,
        }
    }

    /// Converts to the error of the rank if it has the type `E`.
    ///
    /// # Errors
    /// The value itself if the failure is a panic or an error of another type.
    pub fn downcast<E: Error + 'static>(self) -> Result<E, Self> {
        let rank = self.rank;
        match self.failure {
            Failure::Error(error) => error.downcast().map(|error| *error).map_err(|error| RunError::new(rank, error)),
            failure => Err(RunError { rank, failure }),
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_rank(self.rank, &self.failure.to_string()))
    }
}

impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.alternate() {
            true => f.debug_struct("RunError").field("rank", &self.rank).field("failure", &self.failure).finish(),
            false => fmt::Display::fmt(self, f),
        }
    }
}

impl Error for RunError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.failure {
            Failure::Error(error) => Some(error.as_ref()),
            Failure::Panic(_) => None,
        }
    }
}

/// Returns `rank R: message`, or the message alone if it begins with the name of a rank.
pub(super) fn with_rank(rank: usize, message: &str) -> String {
    let number = message.strip_prefix("rank ").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    let is_named = number.is_some_and(|rest| rest.len() + 5 < message.len() && rest.starts_with([' ', ':']));
    if is_named { message.to_owned() } else { format!("rank {rank}: {message}") }
}

/// Returns the text of a caught panic.
pub(super) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").to_owned()
}
