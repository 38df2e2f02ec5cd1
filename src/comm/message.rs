//! Messages between two ranks, which travel in pieces if they are long.
//!
//! A message of `n` bytes travels as `n / max_piece` full pieces and one that is shorter, possibly
//! empty. The short piece marks the end, so a receive of another size is an error and never gets a
//! piece of the next message. The header of a message of a collective travels with the first piece
//! and does not count; so does the subject of a message of a layer above, or, where the message is
//! long, as a piece of its own before it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytemuck::Zeroable;

use super::communicator::Core;
use super::{
    Arrived, Call, CommError, Communicator, Did, Differing, HEADER_BYTES, Lane, MAX_TAG, Mismatch, Payload, Pending,
    RESERVED_TAGS, Result, SUBJECT_BYTES, Span, Subject, Target,
};
use crate::host_memory::{self, HostMemoryError};
use crate::parallel::locked;
use crate::timeline;

/// Bytes up to which a message from memory of others is copied behind its subject. To copy more
/// would take longer than another message.
const SHORT: usize = 1 << 14;

/// The pieces of a message under way, in order.
struct Pieces(VecDeque<Box<dyn Pending>>);

impl Pieces {
    /// Returns the next piece, waited for; `None` after the last.
    fn wait_next(&mut self) -> Result<Option<Arrived>> {
        self.0.pop_front().map(Pending::wait).transpose()
    }

    /// Returns the next piece, if it is done.
    fn next_done(&mut self) -> Result<Option<Arrived>> {
        match self.0.front_mut().map(|piece| piece.is_done()).transpose()? {
            Some(true) => self.wait_next(),
            _ => Ok(None),
        }
    }
}

/// A message being sent; see [`Communicator::send`].
///
/// - It may be dropped: the message is still delivered.
/// - On MPI a large message may only move while the sender is inside a call of this module.
#[must_use = "wait for it, or drop it on purpose"]
pub struct Sending {
    pieces: Pieces,
    /// The caller's buffer. That of a message in one piece is in the piece, until it is done.
    buffer: Vec<u8>,
    /// The receiver, as a rank of the whole run.
    peer: usize,
}

impl fmt::Debug for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sending({} pieces under way)", self.pieces.0.len())
    }
}

impl Sending {
    /// Returns whether [`wait`](Sending::wait) would return at once. Does not block.
    ///
    /// # Errors
    /// Errors of the backend.
    pub fn is_done(&mut self) -> Result<bool> {
        while let Some(piece) = self.pieces.next_done()? {
            self.keep_buffer(piece);
        }
        Ok(self.pieces.0.is_empty())
    }

    /// Waits until the buffer is free and returns it for reuse; an empty one if the vector itself
    /// went to the receiver (as between threads). The receiver may not have the message yet.
    ///
    /// # Errors
    /// Errors of the backend.
    pub fn wait(mut self) -> Result<Vec<u8>> {
        let waits = timeline::is_enabled() && !self.is_done()?;
        let _activity = waits.then(|| timeline::activity!("wait for rank", peer = self.peer, to = "send"));
        while let Some(piece) = self.pieces.wait_next()? {
            self.keep_buffer(piece);
        }
        Ok(self.buffer)
    }

    /// Keeps the buffer of a piece, unless it is a copy: the caller's own is here already.
    fn keep_buffer(&mut self, piece: Arrived) {
        if self.buffer.is_empty() {
            self.buffer = piece.data;
        }
    }
}

/// A message being received; see [`Communicator::receive`].
///
/// Dropping it withdraws the receive; a message already matched to it is lost.
#[must_use = "wait for it: the message arrives here"]
pub struct Receiving {
    pieces: Pieces,
    buffer: Vec<u8>,
    /// Bytes of the pieces that have come, without the header; `None` before the first.
    came: Option<usize>,
    bytes: usize,
    max_piece: usize,
    rank: usize,
    from: usize,
    /// The sender, as a rank of the whole run.
    peer: usize,
    head: Option<Head>,
}

/// Header of the first piece of a message.
enum Head {
    /// Header of a collective: its call, and the core that records a different one.
    Call(Call, Arc<Core>),
    /// The subject, where the rest of the message goes, if it is short (otherwise the subject is a
    /// piece by itself), and where to say that it is another.
    Subject(Subject, Option<Span>, Arc<Core>),
}

impl Head {
    fn bytes(&self) -> usize {
        match self {
            Head::Call(..) => HEADER_BYTES,
            Head::Subject(..) => SUBJECT_BYTES,
        }
    }

    /// Returns `true` if no data comes with it.
    fn is_alone(&self) -> bool {
        matches!(self, Head::Subject(_, None, _))
    }

    /// Checks that a message for `rank` from rank `from` begins with it.
    fn check(&self, rank: usize, from: usize, data: &[u8]) -> Result<()> {
        let (is_equal, differing, core) = match self {
            Head::Call(call, core) => {
                let theirs = data.get(..HEADER_BYTES).map_or(Call::zeroed(), bytemuck::pod_read_unaligned);
                (theirs == *call, Differing::Collectives(*call, Did::Called(theirs)), core)
            }
            Head::Subject(subject, _, core) => {
                let theirs = Subject::of_message(data);
                (theirs == *subject, Differing::Exchanges([*subject, theirs]), core)
            }
        };
        if is_equal {
            return Ok(());
        }
        let found = Mismatch { rank, other: from, differing };
        core.transport.announce(&found);
        Err(found.error())
    }
}

impl fmt::Debug for Receiving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiving({} bytes from rank {}, {} pieces under way)", self.bytes, self.from, self.pieces.0.len())
    }
}

impl Receiving {
    /// Returns whether [`wait`](Receiving::wait) would return at once. Does not block.
    ///
    /// # Errors
    /// [`CommError::PeerFailed`] if the message cannot come any more, [`CommError::MessageSize`] if
    /// it has another size.
    pub fn is_done(&mut self) -> Result<bool> {
        while let Some(piece) = self.pieces.next_done()? {
            self.append(piece)?;
        }
        Ok(self.pieces.0.is_empty())
    }

    /// Waits for the message.
    ///
    /// # Errors
    /// [`CommError::PeerFailed`] if the message cannot come any more, [`CommError::MessageSize`] if
    /// it has another size.
    pub fn wait(mut self) -> Result<Vec<u8>> {
        let waits = timeline::is_enabled() && !self.is_done()?;
        let _activity = waits.then(|| timeline::activity!("wait for rank", peer = self.peer, to = "receive"));
        while let Some(piece) = self.pieces.wait_next()? {
            self.append(piece)?;
        }
        Ok(self.buffer)
    }

    /// Checks the next piece and appends it.
    fn append(&mut self, Arrived { data, bytes, more }: Arrived) -> Result<()> {
        let (rank, from, before) = (self.rank, self.from, self.came.unwrap_or(0));
        let head = if self.came.is_none() { self.head.take() } else { None };
        let (mut header, mut most) = (0, self.max_piece);
        if let Some(head) = &head {
            head.check(rank, from, &data)?;
            (header, most) = (head.bytes(), if head.is_alone() { 0 } else { most });
        }
        if more || bytes != header + most.min(self.bytes - before) {
            let got = if more { self.bytes + 1 } else { before + bytes - header };
            return Err(CommError::MessageSize { rank, from, expected: self.bytes as u64, got: got as u64 });
        }
        match head {
            Some(Head::Subject(_, Some(span), _)) => span.receive(&data[header..]),
            Some(Head::Subject(_, None, _)) => {}
            _ if self.came.is_none() => {
                self.buffer = data; // a message in one piece is not copied
                if !self.pieces.0.is_empty() && !self.buffer.is_empty() {
                    let missing = header + self.bytes - self.buffer.len();
                    host_memory::grow("a message", &mut self.buffer, missing)?;
                }
            }
            _ => self.buffer.extend_from_slice(&data),
        }
        self.came = Some(before + bytes - header);
        Ok(())
    }
}

impl Communicator {
    /// Starts to send a message to a rank, itself included. Not collective; returns without waiting
    /// for the receiver.
    ///
    /// - `tag` is at most [`MAX_TAG`]; higher tags are reserved for exchanges of device data.
    ///   Messages to one rank with one tag arrive in the order sent.
    /// - An empty message is delivered like any other. No copy is made of up to
    ///   [`max_message`](Communicator::max_message) bytes.
    ///
    /// # Errors
    /// [`CommError::BadRank`], [`CommError::BadTag`], or errors of the backend.
    pub fn send(&self, to: usize, tag: u32, data: Vec<u8>) -> Result<Sending> {
        self.valid_rank("the receiver of send", to)?;
        self.post_send(to, self.user_lane(tag)?, data)
    }

    /// Starts to receive a message of exactly `bytes` bytes. Not collective; returns at once.
    ///
    /// Several receives from one rank with one tag are matched in the order of these calls,
    /// regardless of the order in which they are waited for.
    ///
    /// # Errors
    /// [`CommError::BadRank`], [`CommError::BadTag`], [`CommError::HostMemory`], or errors of the
    /// backend.
    pub fn receive(&self, from: usize, tag: u32, bytes: u64) -> Result<Receiving> {
        self.valid_rank("the sender of receive", from)?;
        let lane = self.user_lane(tag)?;
        let length = usize::try_from(bytes).ok().filter(|&length| isize::try_from(length).is_ok());
        let length = length.ok_or(HostMemoryError { what: "a message", bytes })?;
        self.post_receive(from, lane, length, None)
    }

    fn user_lane(&self, tag: u32) -> Result<Lane> {
        if tag > MAX_TAG { Err(CommError::BadTag { rank: self.rank(), tag }) } else { Ok(Lane::User(tag)) }
    }

    /// Same as [`user_lane`](Self::user_lane), also for reserved tags.
    fn any_lane(&self, tag: u32) -> Result<Lane> {
        if RESERVED_TAGS.contains(&tag) { Ok(Lane::User(tag)) } else { self.user_lane(tag) }
    }

    /// Starts to send the pieces of a message, which has its header if it is of a collective.
    pub(super) fn post_send(&self, to: usize, lane: Lane, data: Vec<u8>) -> Result<Sending> {
        let (max_piece, transport) = (self.max_piece, &self.core.transport);
        let header = if lane == Lane::Collective { HEADER_BYTES } else { 0 };
        // Pieces of two messages sent from two threads must not mix.
        let _posting = locked(&self.core.posting);
        if data.len() - header < max_piece {
            let pieces = Pieces(VecDeque::from([transport.send(to, lane, Payload::Bytes(data))?]));
            return Ok(Sending { pieces, buffer: Vec::new(), peer: self.rank_in_run(to) });
        }
        let (first, others) = data.split_at(header + max_piece);
        let full = others.chunks_exact(max_piece);
        let rest = full.remainder();
        let pieces = [first].into_iter().chain(full).chain([rest]);
        let send = |piece: &[u8]| transport.send(to, lane, Payload::Bytes(host_memory::copy("a message", piece)?));
        let pieces = pieces.map(send).collect::<Result<_>>()?;
        Ok(Sending { pieces: Pieces(pieces), buffer: data, peer: self.rank_in_run(to) })
    }

    /// Starts to receive the pieces of a message of `bytes` bytes without its header; `call` is
    /// that of a collective.
    pub(super) fn post_receive(&self, from: usize, lane: Lane, bytes: usize, call: Option<Call>) -> Result<Receiving> {
        let max_piece = self.max_piece;
        let mut pieces = VecDeque::new();
        let reserved = host_memory::handled(|| pieces.try_reserve_exact(bytes / max_piece + 1));
        reserved.map_err(|_| HostMemoryError { what: "a message", bytes: bytes as u64 })?;
        let _posting = locked(&self.core.posting);
        for piece in 0..=bytes / max_piece {
            let header = if call.is_some() && piece == 0 { HEADER_BYTES } else { 0 };
            let size = header + max_piece.min(bytes - piece * max_piece);
            pieces.push_back(self.core.transport.receive(from, lane, Target::Bytes(size))?);
        }
        let head = call.map(|call| Head::Call(call, self.core.clone()));
        Ok(self.receiving(Pieces(pieces), from, bytes, head))
    }

    fn receiving(&self, pieces: Pieces, from: usize, bytes: usize, head: Option<Head>) -> Receiving {
        let (max_piece, rank, peer) = (self.max_piece, self.rank(), self.rank_in_run(from));
        Receiving { pieces, buffer: Vec::new(), came: None, bytes, max_piece, rank, from, peer, head }
    }

    /// [`send`](Self::send) with any tag straight from memory of others, which must not be written
    /// until it is done; `subject` goes ahead of it. The wait returns an empty vector.
    pub(crate) fn send_from(&self, to: usize, tag: u32, span: &Span, subject: Option<&Subject>) -> Result<Sending> {
        self.valid_rank("the receiver of send", to)?;
        let lane = self.any_lane(tag)?;
        let _posting = locked(&self.core.posting);
        let send = |payload| self.core.transport.send(to, lane, payload);
        let mut pieces = VecDeque::new();
        let short = subject.is_some() && self.is_short(span);
        if let Some(subject) = subject {
            let data = if short { span.sent() } else { &[] };
            pieces.push_back(send(Payload::Bytes([bytemuck::bytes_of(subject), data].concat()))?);
        }
        if !short {
            self.pieces(span).try_for_each(|piece| send(Payload::Span(piece)).map(|piece| pieces.push_back(piece)))?;
        }
        Ok(Sending { pieces: Pieces(pieces), buffer: Vec::new(), peer: self.rank_in_run(to) })
    }

    /// Same as [`receive`](Self::receive), with any tag, directly into memory of others, as many
    /// bytes as it has. Nothing else may access the memory until the receive is done. If there is a
    /// `subject`, a message with another one is refused. The wait returns an empty vector.
    ///
    /// # Errors
    /// Same as [`receive`](Self::receive); its wait as [`Receiving::wait`], and
    /// [`CommError::Mismatch`] for another subject.
    pub(crate) fn receive_into(
        &self,
        from: usize,
        tag: u32,
        span: &Span,
        subject: Option<&Subject>,
    ) -> Result<Receiving> {
        self.valid_rank("the sender of receive", from)?;
        let lane = self.any_lane(tag)?;
        let _posting = locked(&self.core.posting);
        let receive = |target| self.core.transport.receive(from, lane, target);
        let mut pieces = VecDeque::new();
        let head = subject.map(|subject| {
            let inline = self.is_short(span).then(|| span.clone());
            Head::Subject(*subject, inline, self.core.clone())
        });
        if let Some(head) = &head {
            let data = if head.is_alone() { 0 } else { span.bytes() };
            pieces.push_back(receive(Target::Bytes(SUBJECT_BYTES + data))?);
        }
        if head.as_ref().is_none_or(Head::is_alone) {
            self.pieces(span)
                .try_for_each(|piece| receive(Target::Span(piece)).map(|piece| pieces.push_back(piece)))?;
        }
        Ok(self.receiving(Pieces(pieces), from, span.bytes(), head))
    }

    /// Returns `true` if a message travels in one piece with its subject; the same at both ends.
    fn is_short(&self, span: &Span) -> bool {
        span.bytes() <= SHORT.min(self.max_piece - 1)
    }

    /// Returns the pieces that a message of these bytes travels in.
    fn pieces<'a>(&'a self, span: &'a Span) -> impl Iterator<Item = Span> + 'a {
        let (bytes, most) = (span.bytes(), self.max_piece);
        (0..=bytes / most).map(move |piece| span.part(piece * most, most.min(bytes - piece * most)))
    }
}
