//! The interface of a backend, which moves byte vectors between two ranks in order.

use super::Result;
use super::call::Call;
use super::lane::Lane;

/// One rank's end of a communicator.
///
/// - Messages between two ranks on one lane arrive in the order sent; receives match them in the order posted.
/// - Both ends own their buffers while a message is under way.
/// - A wait for what can no longer come ends with an error: where the other rank has failed, has returned from its body, has
///   dropped the communicator or, on the lane of collectives, has called something else.
pub(super) trait Transport: Send + Sync {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;

    /// Notes which collective this rank is in, so that ranks that wait for it can tell a mismatch.
    fn begin(&self, call: &Call);

    /// Starts to send. The result's `wait` returns the buffer, or an empty one where it went to the receiver.
    fn send(&self, to: usize, lane: Lane, data: Vec<u8>) -> Result<Box<dyn Pending>>;

    /// Starts to receive a message of `bytes` bytes. The one received may be shorter or longer: the caller compares.
    fn receive(&self, from: usize, lane: Lane, bytes: usize) -> Result<Box<dyn Pending>>;

    /// A number for a new communicator; unique over all ranks and calls.
    fn new_context(&self) -> u64;

    /// Makes the communicators of a split; `mine` is the part of this rank. Collective, and called after an exchange of all
    /// ranks, so that none of them is late.
    fn split(&self, mine: Option<Group>) -> Result<Option<Box<dyn Transport>>>;

    /// Ends all ranks with this message.
    fn abort(&self, message: &str) -> !;
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

/// A message that was received, or the buffer of one that was sent.
pub(super) struct Arrived {
    pub data: Vec<u8>,
    /// Whether the message is longer than was asked for; `data` is its beginning then.
    pub more: bool,
}

impl Arrived {
    /// A message of the length asked for.
    pub fn whole(data: Vec<u8>) -> Arrived {
        Arrived { data, more: false }
    }
}

/// A piece of a message under way. Dropping a receive before its message has come withdraws it.
pub(super) trait Pending: Send {
    /// Whether `wait` would return at once.
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
