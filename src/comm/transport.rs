//! The interface of a backend, which moves bytes between two ranks in order.

use std::sync::Arc;

use super::{Call, Lane, Mismatch, Result, Span, Waits};

/// One rank's end of a communicator.
///
/// - Messages between two ranks on one lane arrive in the order sent; receives match them in the
///   order posted.
/// - Both ends own their buffers while a message is under way, or keep the memory of others alive
///   that they use.
/// - A wait for what can no longer come ends with an error: where the other rank has failed, has
///   returned from its body, has dropped the communicator or, on the lane of collectives, has
///   called something else, and where ranks wait for each other in different operations.
pub(super) trait Transport: Send + Sync {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;

    /// Returns the number that rank `rank` of this communicator has in the whole run.
    fn rank_in_run(&self, rank: usize) -> usize;

    /// Notes which collective this rank is in, so that ranks that wait for it can tell a mismatch.
    fn begin(&self, call: &Call);

    /// Notes a mismatch that this rank has found, so that ranks that wait for it, and those that
    /// wait for them, end too, also where this rank does nothing more.
    fn announce(&self, found: &Mismatch);

    /// Returns `true` if a mismatch was found here, or ranks that wait for each other, by this rank
    /// or one that has told it.
    fn is_out_of_step(&self) -> bool;

    /// Starts to send. The result's `wait` returns the buffer, or an empty one where it went to the
    /// receiver.
    fn send(&self, to: usize, lane: Lane, data: Payload) -> Result<Box<dyn Pending>>;

    /// Starts to receive a message of the target's size. The message may be shorter or longer: the
    /// caller compares.
    fn receive(&self, from: usize, lane: Lane, target: Target) -> Result<Box<dyn Pending>>;

    /// Returns its number, which no other communicator of the run has.
    fn context(&self) -> u64;

    /// Returns the waits of this rank for others.
    fn waits(&self) -> &Arc<Waits>;

    /// Returns its own collectives, if it has any.
    fn native(&self) -> Option<&dyn Native> {
        None
    }

    /// Returns a number for a new communicator; unique over all ranks and calls.
    fn new_context(&self) -> u64;

    /// Makes the communicators of a split; `mine` is the part of this rank. Collective, and called
    /// after an exchange of all ranks, so that none of them is late.
    fn split(&self, mine: Option<Group>) -> Result<Option<Box<dyn Transport>>>;

    /// Ends all ranks with this message.
    fn abort(&self, message: &str) -> !;
}

/// Collectives of bytes that a backend has. All ranks have met in the same call; these calls return
/// when this rank's part is done, and never before the backend has done with their memory.
pub(super) trait Native {
    /// Copies the data of `root` to all.
    fn broadcast(&self, root: usize, data: &mut [u8]) -> Result<()>;
    /// Gives `root` the equally long data of all, in the order of ranks. Only its `all` is written.
    fn gather(&self, root: usize, mine: &[u8], all: &mut [u8]) -> Result<()>;
    /// Gives every rank the data of all, in the order of ranks.
    fn all_gather(&self, mine: &[u8], all: &mut [u8]) -> Result<()>;
    /// Gives each rank its one of equal blocks of the data of each, in the order of ranks.
    fn all_to_all(&self, data: &[u8], all: &mut [u8]) -> Result<()>;
}

/// This rank's part of a split.
pub(super) struct Group {
    /// Its number among the parts of this split, for `MPI_Comm_split`.
    #[cfg_attr(not(feature = "mpi"), expect(dead_code))]
    pub number: usize,
    /// Its ranks, in their new order.
    pub members: Vec<usize>,
    /// This rank's index among them.
    pub rank: usize,
    /// A number that no other communicator has.
    pub context: u64,
}

/// Data that are sent.
pub(super) enum Payload {
    Bytes(Vec<u8>),
    Span(Span),
}

/// Target of a receive.
pub(super) enum Target {
    /// A vector of this number of bytes.
    Bytes(#[cfg_attr(not(feature = "mpi"), expect(dead_code))] usize),
    Span(Span),
}

/// A message that was received, or the buffer of one that was sent.
pub(super) struct Arrived {
    /// The message; empty where it lies in a span.
    pub data: Vec<u8>,
    /// Its length, or what of it there is.
    pub bytes: usize,
    /// Whether the message is longer than was asked for; `data` is its beginning then.
    pub more: bool,
}

impl Arrived {
    /// Returns a message of the length asked for.
    pub fn whole(data: Vec<u8>) -> Arrived {
        Arrived { bytes: data.len(), data, more: false }
    }

    /// Returns a message that was sent as `payload` by a rank of this process, brought to `target`.
    /// Memory of others that the two use is let go.
    pub fn delivered(payload: Payload, target: Target) -> Arrived {
        let span = match target {
            Target::Span(span) => span,
            Target::Bytes(_) => return Arrived::whole(payload.into_bytes()),
        };
        let sent = match &payload {
            Payload::Bytes(data) => data,
            Payload::Span(span) => span.sent(),
        };
        span.receive(sent);
        Arrived { data: Vec::new(), bytes: sent.len(), more: sent.len() > span.bytes() }
    }
}

impl Payload {
    /// Converts the message to a vector.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Payload::Bytes(data) => data,
            Payload::Span(span) => span.sent().to_vec(),
        }
    }
}

/// A piece of a message under way. Dropping a receive before its message has come withdraws it.
pub(super) trait Pending: Send {
    /// Returns whether `wait` would return at once.
    fn is_done(&mut self) -> Result<bool>;
    /// Waits, then returns the buffer.
    fn wait(self: Box<Self>) -> Result<Arrived>;
}

/// A send that was complete when it was made.
pub(super) struct Sent;

impl Pending for Sent {
    fn is_done(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn wait(self: Box<Self>) -> Result<Arrived> {
        Ok(Arrived::whole(Vec::new()))
    }
}
