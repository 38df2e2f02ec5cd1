//! Messages between two ranks, and how a long one is cut.
//!
//! A message of `n` bytes travels as `n / cut` full pieces and one that is shorter, possibly empty. The short piece marks
//! the end, so a receive that asked for another size notices and never takes a piece of the next message for its own. The
//! head of a message of a collective travels with the first piece and does not count.

use std::collections::VecDeque;
use std::sync::PoisonError;

use bytemuck::Zeroable;

use super::call::Call;
use super::communicator::Communicator;
use super::envelope::HEAD;
use super::transport::{Arrived, Lane, Pending};
use super::{CommError, Result};

/// A message being sent; see [`Communicator::send`].
///
/// - It may be dropped: the message is still delivered.
/// - On MPI a large message may only move while the sender is inside a call of this module.
#[must_use = "wait for it, or drop it on purpose"]
pub struct Sending {
    pieces: VecDeque<Box<dyn Pending>>,
    /// The buffer of the caller; of an uncut message the only piece has it.
    buffer: Vec<u8>,
}

impl Sending {
    /// Whether [`wait`](Sending::wait) would return at once. Does not block.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn is_done(&mut self) -> Result<bool> {
        while let Some(piece) = self.pieces.front_mut() {
            if !piece.is_done()? {
                return Ok(false);
            }
            self.take_front()?;
        }
        Ok(true)
    }

    /// Waits until the buffer is free and gives it back for reuse; an empty one where the vector itself went to the
    /// receiver (as threads do). Says nothing of whether the receiver has the message.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn wait(mut self) -> Result<Vec<u8>> {
        while !self.pieces.is_empty() {
            self.take_front()?;
        }
        Ok(self.buffer)
    }

    fn take_front(&mut self) -> Result<()> {
        if let Some(piece) = self.pieces.pop_front() {
            let buffer = piece.wait()?.data;
            // Of a cut message `buffer` is the copy of a piece, and the caller's own vector is already here.
            if self.buffer.is_empty() {
                self.buffer = buffer;
            }
        }
        Ok(())
    }
}

/// A message being received; see [`Communicator::receive`].
///
/// Dropping it withdraws the receive; a message already matched to it is lost.
#[must_use = "wait for it: the message arrives here"]
pub struct Receiving {
    pieces: VecDeque<Box<dyn Pending>>,
    buffer: Vec<u8>,
    bytes: usize,
    cut: usize,
    rank: usize,
    from: usize,
    /// Of a collective: the call that must stand at the head.
    call: Option<Call>,
}

impl Receiving {
    /// Whether [`wait`](Receiving::wait) would return at once. Does not block.
    ///
    /// # Errors
    /// [`CommError::PeerFailed`] if the message cannot come any more, [`CommError::MessageSize`] if it has another size.
    pub fn is_done(&mut self) -> Result<bool> {
        while let Some(piece) = self.pieces.front_mut() {
            if !piece.is_done()? {
                return Ok(false);
            }
            self.take_front()?;
        }
        Ok(true)
    }

    /// Waits for the message.
    ///
    /// # Errors
    /// [`CommError::PeerFailed`] if the message cannot come any more, [`CommError::MessageSize`] if it has another size.
    pub fn wait(mut self) -> Result<Vec<u8>> {
        while !self.pieces.is_empty() {
            self.take_front()?;
        }
        Ok(self.buffer)
    }

    fn take_front(&mut self) -> Result<()> {
        let Some(piece) = self.pieces.pop_front() else { return Ok(()) };
        let Arrived { data, more } = piece.wait()?;
        let is_first = self.buffer.is_empty();
        let head = if self.call.is_some() { HEAD } else { 0 };
        if let Some(call) = self.call.filter(|_| is_first) {
            let theirs = data.get(..HEAD).map_or(Call::zeroed(), bytemuck::pod_read_unaligned);
            if theirs != call {
                return Err(call.mismatch(self.rank, self.from, &theirs));
            }
        }
        let limit = if is_first { head + self.cut } else { self.cut };
        if more || data.len() != limit.min(head + self.bytes - self.buffer.len()) {
            let (rank, from, before) = (self.rank, self.from, self.buffer.len().saturating_sub(head));
            let got = if more { self.bytes + 1 } else { before + data.len() - if is_first { head } else { 0 } };
            return Err(CommError::MessageSize { rank, from, expected: self.bytes as u64, got: got as u64 });
        }
        if is_first {
            self.buffer = data; // no copy of an uncut message
            if !self.pieces.is_empty() {
                self.buffer.reserve_exact(head + self.bytes - self.buffer.len());
            }
        } else {
            self.buffer.extend_from_slice(&data);
        }
        Ok(())
    }
}

impl Communicator {
    /// Starts to send a message to a rank, itself included. Not collective; returns without waiting for the receiver.
    ///
    /// - `tag` is at most [`MAX_TAG`](super::MAX_TAG). Messages to one rank with one tag arrive in the order sent.
    /// - An empty message is a message. Up to [`max_message`](Communicator::max_message) bytes no copy is made.
    ///
    /// # Errors
    /// [`CommError::BadRank`], [`CommError::BadTag`], or those of the backend.
    pub fn send(&self, to: usize, tag: u32, data: Vec<u8>) -> Result<Sending> {
        self.valid_rank("the receiver of send", to)?;
        self.post_send(to, self.user_lane(tag)?, data)
    }

    /// Starts to receive a message of exactly `bytes` bytes. Not collective; returns at once.
    ///
    /// Several receives from one rank with one tag are matched in the order of these calls, whatever the order in which
    /// they are waited for.
    ///
    /// # Errors
    /// [`CommError::BadRank`], [`CommError::BadTag`], [`CommError::Memory`], or those of the backend.
    pub fn receive(&self, from: usize, tag: u32, bytes: u64) -> Result<Receiving> {
        self.valid_rank("the sender of receive", from)?;
        let lane = self.user_lane(tag)?;
        let length = usize::try_from(bytes).ok().filter(|&length| isize::try_from(length).is_ok());
        let length = length.ok_or(CommError::Memory { rank: self.rank(), bytes })?;
        self.post_receive(from, lane, length, None)
    }

    fn user_lane(&self, tag: u32) -> Result<Lane> {
        if tag > super::MAX_TAG { Err(CommError::BadTag { rank: self.rank(), tag }) } else { Ok(Lane::User(tag)) }
    }

    pub(super) fn post_send(&self, to: usize, lane: Lane, data: Vec<u8>) -> Result<Sending> {
        let (cut, transport) = (self.cut, &self.core.transport);
        let head = if lane == Lane::Collective { HEAD } else { 0 };
        // Pieces of two messages sent from two threads must not mix.
        let _posting = self.core.posting.lock().unwrap_or_else(PoisonError::into_inner);
        if data.len() - head < cut {
            let pieces = VecDeque::from([transport.send(to, lane, data)?]);
            return Ok(Sending { pieces, buffer: Vec::new() });
        }
        let (first, others) = data.split_at(head + cut);
        let full = others.chunks_exact(cut);
        let rest = full.remainder();
        let pieces = [first].into_iter().chain(full).chain([rest]);
        let pieces = pieces.map(|piece| transport.send(to, lane, piece.to_vec())).collect::<Result<_>>()?;
        Ok(Sending { pieces, buffer: data })
    }

    pub(super) fn post_receive(&self, from: usize, lane: Lane, bytes: usize, call: Option<Call>) -> Result<Receiving> {
        let cut = self.cut;
        let mut pieces = VecDeque::new();
        let memory = |_| CommError::Memory { rank: self.rank(), bytes: bytes as u64 };
        pieces.try_reserve_exact(bytes / cut + 1).map_err(memory)?;
        let _posting = self.core.posting.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in 0..=bytes / cut {
            let head = if call.is_some() && piece == 0 { HEAD } else { 0 };
            pieces.push_back(self.core.transport.receive(from, lane, head + cut.min(bytes - piece * cut))?);
        }
        Ok(Receiving { pieces, buffer: Vec::new(), bytes, cut, rank: self.rank(), from, call })
    }
}
