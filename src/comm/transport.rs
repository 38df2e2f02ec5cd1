//! What a backend must do: move whole byte vectors between two ranks, in order.

use super::Result;

/// Streams that never match each other's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// Messages of the caller, by tag (at most `MAX_TAG`).
    User(u32),
    /// Data of collectives.
    Collective,
    /// Records of the check that precedes a collective. A wait here ends only when the peer itself is gone, not when
    /// any rank fails: a rank that has seen a mismatch and returned must not hide that mismatch from the others.
    Check,
}

/// One rank's end of a communicator.
///
/// - Messages between two ranks on one lane arrive in the order sent; receives match them in the order posted.
/// - Both ends own their buffers while a message is under way.
/// - A receive whose message can no longer come ends with an error.
pub(super) trait Transport: Send + Sync {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;

    /// Starts to send. The result's `wait` gives the buffer back, or an empty one where it went to the receiver.
    fn send(&self, to: usize, lane: Lane, data: Vec<u8>) -> Result<Box<dyn Pending>>;

    /// Starts to receive. The vector that comes may be shorter or longer than `bytes`: the caller compares.
    fn receive(&self, from: usize, lane: Lane, bytes: usize) -> Result<Box<dyn Pending>>;

    /// Collective. `groups` lists the ranks of each new communicator in their new order and is the same on all ranks;
    /// `mine` is the index of this rank's group.
    fn split(&self, groups: &[Vec<usize>], mine: Option<usize>) -> Result<Option<Box<dyn Transport>>>;

    /// Whether a rank has returned from its body without an error.
    fn has_left(&self, rank: usize) -> bool;

    /// Ends all ranks with this message.
    fn abort(&self, message: &str) -> !;
}

/// A message under way. Dropping one whose message has not come withdraws it.
pub(super) trait Pending: Send {
    /// Whether `wait` would return at once.
    fn is_done(&mut self) -> Result<bool>;
    /// Waits, then gives the buffer.
    fn wait(self: Box<Self>) -> Result<Vec<u8>>;
}

/// A send that was complete when it was made.
pub(super) struct Sent;

impl Pending for Sent {
    fn is_done(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn wait(self: Box<Self>) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}
