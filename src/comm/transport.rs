//! What a backend must do: move whole byte vectors between two ranks, in order.

use super::Result;
use super::call::Call;

/// Streams that never match each other's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// Messages of the caller, by tag (at most `MAX_TAG`).
    User(u32),
    /// Messages of collectives, each with its call at the head.
    Collective,
}

/// One rank's end of a communicator.
///
/// - Messages between two ranks on one lane arrive in the order sent; receives match them in the order posted.
/// - Both ends own their buffers while a message is under way.
/// - A wait for what can no longer come ends with an error: where the other rank has failed, has returned from its body, has
///   dropped the communicator or, on the lane of collectives, has called something else.
pub(super) trait Transport: Send + Sync {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;

    /// Notes which collective this rank is in, so that ranks that wait for it can learn it.
    fn begin(&self, call: &Call);

    /// Starts to send. The result's `wait` gives the buffer back, or an empty one where it went to the receiver.
    fn send(&self, to: usize, lane: Lane, data: Vec<u8>) -> Result<Box<dyn Pending>>;

    /// Starts to receive. What comes may be shorter or longer than `bytes`: the caller compares.
    fn receive(&self, from: usize, lane: Lane, bytes: usize) -> Result<Box<dyn Pending>>;

    /// A number for a communicator that no other has; given to no rank twice.
    fn new_context(&self) -> u64;

    /// Collective, and only after every rank has said what it wants of the split: none is late any more.
    fn split(&self, mine: Option<Group>) -> Result<Option<Box<dyn Transport>>>;

    /// Ends all ranks with this message.
    fn abort(&self, message: &str) -> !;
}

/// The new communicator that this rank becomes part of.
pub(super) struct Group {
    /// Its number among those of this split, which MPI asks for.
    #[cfg_attr(not(feature = "mpi"), expect(dead_code))]
    pub number: usize,
    /// Its ranks, in their new order.
    pub members: Vec<usize>,
    /// This rank's place among them.
    pub rank: usize,
    /// A number that no other communicator has.
    pub context: u64,
}

/// What has come.
pub(super) struct Arrived {
    pub data: Vec<u8>,
    /// Whether there was more than was asked for; `data` is the beginning then.
    pub more: bool,
}

impl Arrived {
    /// All of a message.
    pub fn whole(data: Vec<u8>) -> Arrived {
        Arrived { data, more: false }
    }
}

/// A message under way. Dropping one whose message has not come withdraws it.
pub(super) trait Pending: Send {
    /// Whether `wait` would return at once.
    fn is_done(&mut self) -> Result<bool>;
    /// Waits, then gives the buffer.
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
