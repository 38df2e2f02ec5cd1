//! Messages of an exchange: parts of arrays as messages, and messages in chunks, which the device
//! copies.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::ring::{Descriptor, PeerMessage, SharedRing, Slot};
use crate::comm::{CommError, Communicator, EXCHANGE_TAGS, Receiving, Sending, Span, Subject};
use crate::gpu::{DeviceError, RawArray, StagedCopy};
use crate::grid::Transfer;
use crate::timeline;

/// Content of one message: a part of the array, and its place in its chunk, in elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Message {
    pub part: Transfer,
    pub at: u64,
    /// Whether it begins what one rank sends to another: it says what that is.
    pub first: bool,
}

/// Content of one staging buffer. Short parts of several peers share one: a buffer costs the device
/// a submission, and the host a mapping, however little it holds.
#[derive(Debug, PartialEq)]
pub(super) struct Chunk {
    /// In the order of the peers.
    pub messages: Vec<Message>,
    /// Ranges of the array, (start, length), in the order in which they lie in the chunk: parts
    /// next to each other are copied together.
    pub ranges: Vec<(u64, u64)>,
}

impl Chunk {
    /// Returns a chunk of messages, none of them empty, whose places it finds.
    fn new(mut messages: Vec<Message>) -> Chunk {
        let mut along: Vec<usize> = (0..messages.len()).collect();
        along.sort_by_key(|&i| messages[i].part.start);
        let (mut at, mut ranges): (u64, Vec<(u64, u64)>) = (0, Vec::new());
        for i in along {
            let Transfer { start, len, .. } = messages[i].part;
            messages[i].at = at;
            at += len;
            match ranges.last_mut() {
                Some((first, so_far)) if *first + *so_far == start => *so_far += len,
                _ => ranges.push((start, len)),
            }
        }
        Chunk { messages, ranges }
    }

    /// Elements in it.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|&(_, len)| len).sum()
    }

    /// Returns its copies between an array and the place `at_bytes` of a host buffer.
    pub fn copies<'a>(
        &'a self,
        element_bytes: u64,
        (host, mut at_bytes): (&'a wgpu::Buffer, u64),
    ) -> impl Iterator<Item = StagedCopy<'a>> {
        self.ranges.iter().map(move |&(start, len)| {
            let copy = StagedCopy { start, len, host, at_bytes };
            at_bytes += len * element_bytes;
            copy
        })
    }
}

impl Message {
    /// Returns the span of its elements, of `element_bytes` bytes each, in the span `whole` of its
    /// chunk.
    pub fn in_chunk(&self, element_bytes: u64, whole: &Span) -> Span {
        whole.part((self.at * element_bytes) as usize, (self.part.len * element_bytes) as usize)
    }
}

/// The chunks of an array that travel to or from other ranks.
pub(super) struct ChunkedArray {
    pub chunks: VecDeque<Chunk>,
    pub array: RawArray,
}

impl ChunkedArray {
    /// Creates the parts of each peer in turn, in chunks of `per` elements at most.
    pub fn new(parts: &[Transfer], order: &[usize], per: u64, array: &RawArray) -> Self {
        let messages = in_order(parts, order).flat_map(|part| cut(part, per));
        ChunkedArray { chunks: packed(messages, per), array: array.clone() }
    }
}

/// Messages of up to `per` elements in chunks of as many, in their order.
fn packed(messages: impl Iterator<Item = Message>, per: u64) -> VecDeque<Chunk> {
    let (mut chunks, mut open, mut len) = (VecDeque::new(), Vec::new(), 0);
    for message in messages {
        if len + message.part.len > per && !open.is_empty() {
            chunks.push_back(Chunk::new(std::mem::take(&mut open)));
            len = 0;
        }
        len += message.part.len;
        open.push(message);
    }
    if !open.is_empty() {
        chunks.push_back(Chunk::new(open));
    }
    chunks
}

/// Returns the parts of the peers of `order`, in that order, and of one peer as they stand. Sorted
/// by their peers' places: to look for the parts of each peer would take as many steps as there are
/// pairs of both.
fn in_order(parts: &[Transfer], order: &[usize]) -> impl Iterator<Item = Transfer> + use<> {
    let mut places = vec![usize::MAX; order.iter().max().map_or(0, |last| last + 1)];
    order.iter().enumerate().for_each(|(place, &peer)| places[peer] = place);
    let placed = |part: &Transfer| (places.get(part.peer).copied().unwrap_or(usize::MAX), *part);
    let mut placed: Vec<_> = parts.iter().map(placed).filter(|&(place, _)| place != usize::MAX).collect();
    placed.sort_by_key(|&(place, _)| place); // stable
    placed.into_iter().map(|(_, part)| part)
}

/// A part as messages of up to `per` elements.
fn cut(Transfer { peer, start, len }: Transfer, per: u64) -> impl Iterator<Item = Message> {
    (0..len).step_by(per as usize).map(move |at| {
        let part = Transfer { peer, start: start + at, len: (len - at).min(per) };
        Message { part, at: 0, first: at == 0 }
    })
}

/// A message under way.
pub(super) struct InFlight<T> {
    pub transfer: T,
    /// The other end, as a rank of the whole run.
    pub peer: usize,
    bytes: u64,
    begin: Option<Instant>,
}

impl<T> InFlight<T> {
    /// Adds the message, which has been sent or received, to the timeline.
    pub fn ended(self, name: &str) -> T {
        timeline::message(name, self.peer, self.bytes, self.begin);
        self.transfer
    }
}

/// Transport of the chunks of one exchange.
#[derive(Clone)]
pub(super) struct Channel {
    pub comm: Communicator,
    pub tag: u32,
    /// Identity of the exchange.
    pub subject: Subject,
    /// Chunks in flight each way.
    pub depth: usize,
    /// Pages that this rank shares with others, if there are any.
    pub ring: Option<SharedRing>,
    /// Bytes of messages that went through host memory so far.
    pub carried_bytes: Arc<AtomicU64>,
}

/// A message of a slot that its receiver may copy from. Dropping it before the credit has come
/// takes the slot out of use.
pub(super) struct Lent {
    descriptor: Option<Sending>,
    credit: Option<Receiving>,
    slot: Arc<Slot>,
}

impl Lent {
    /// Returns `true` once the receiver has returned its credit.
    pub fn is_returned(&mut self) -> Result<bool, CommError> {
        if !self.credit.as_mut().map_or(Ok(true), Receiving::is_done)? {
            return Ok(false);
        }
        self.descriptor.take().map(Sending::wait).transpose()?;
        self.credit.take().map(Receiving::wait).transpose()?;
        Ok(true)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.credit.is_some() {
            self.slot.abandon();
        }
    }
}

impl Channel {
    /// Returns `true` if a peer copies messages from the pages of this rank, and this rank from the
    /// peer's.
    pub fn shares_pages(&self, peer: usize) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.reaches(peer))
    }

    /// Takes a slot of at least `bytes` bytes of the ring, which must exist.
    pub fn take_slot(&self, bytes: u64) -> Result<Slot, DeviceError> {
        let no_ring = || DeviceError::SharedPages { rank: self.comm.rank(), why: "there is no ring".into() };
        self.ring.as_ref().ok_or_else(no_ring)?.take(&self.comm, bytes)
    }

    /// Finds the message that its sender has described.
    pub fn find(&self, message: &Message, element_bytes: u64, span: &Span) -> Result<PeerMessage, DeviceError> {
        let (peer, descriptor) = (message.part.peer, bytemuck::pod_read_unaligned(&span.to_vec()));
        let no_ring = || DeviceError::SharedPages { rank: peer, why: "there is no ring".into() };
        self.ring.as_ref().ok_or_else(no_ring)?.find(peer, &descriptor, message.part.len * element_bytes)
    }

    /// Returns the subject of a message, if it begins with one. Both ranks must share pages or not.
    fn subject(&self, message: &Message) -> Option<Subject> {
        let shared = self.shares_pages(message.part.peer);
        message.first.then(|| if shared { self.subject.with(&[1]) } else { self.subject })
    }

    /// Starts to send a message that lies in `span`.
    pub fn send(&self, message: &Message, span: &Span) -> Result<InFlight<Sending>, CommError> {
        let begin = timeline::now();
        self.carried_bytes.fetch_add(span.bytes() as u64, Ordering::Relaxed);
        let transfer = self.comm.send_from(message.part.peer, self.tag, span, self.subject(message).as_ref())?;
        Ok(self.in_flight(transfer, message.part.peer, span.bytes() as u64, begin))
    }

    /// Starts to receive a message into `span`.
    pub fn receive(&self, message: &Message, span: &Span) -> Result<InFlight<Receiving>, CommError> {
        let begin = timeline::now();
        self.carried_bytes.fetch_add(span.bytes() as u64, Ordering::Relaxed);
        let transfer = self.comm.receive_into(message.part.peer, self.tag, span, self.subject(message).as_ref())?;
        Ok(self.in_flight(transfer, message.part.peer, span.bytes() as u64, begin))
    }

    fn in_flight<T>(&self, transfer: T, peer: usize, bytes: u64, begin: Option<Instant>) -> InFlight<T> {
        InFlight { transfer, peer: self.comm.rank_in_run(peer), bytes, begin }
    }

    /// Lends a message in `slot` to a peer that shares pages.
    pub fn lend(&self, message: &Message, element_bytes: u64, slot: &Arc<Slot>) -> Result<InFlight<Lent>, CommError> {
        let (begin, bytes) = (timeline::now(), message.part.len * element_bytes);
        let descriptor = slot.describe(message.at * element_bytes, bytes);
        let (peer, subject) = (message.part.peer, self.subject(message));
        let credit = self.comm.receive_into(peer, self.tag + EXCHANGE_TAGS, &Span::of_bytes(&[]), None)?;
        let span = Span::of_bytes(bytemuck::bytes_of(&descriptor));
        let descriptor = self.comm.send_from(peer, self.tag, &span, subject.as_ref())?;
        let lent = Lent { descriptor: Some(descriptor), credit: Some(credit), slot: slot.clone() };
        Ok(self.in_flight(lent, peer, bytes, begin))
    }

    /// Starts to receive the descriptor of a message of a peer that shares pages.
    pub fn receive_descriptor(
        &self,
        message: &Message,
        element_bytes: u64,
    ) -> Result<(InFlight<Receiving>, Span), CommError> {
        let begin = timeline::now();
        let span = Span::of_bytes(&[0; size_of::<Descriptor>()]);
        let subject = self.subject(message);
        let receiving = self.comm.receive_into(message.part.peer, self.tag, &span, subject.as_ref())?;
        let bytes = message.part.len * element_bytes;
        Ok((self.in_flight(receiving, message.part.peer, bytes, begin), span))
    }

    /// Returns the credit of a message that has been copied.
    pub fn send_credit(&self, peer: usize) -> Result<Sending, CommError> {
        self.comm.send_from(peer, self.tag + EXCHANGE_TAGS, &Span::of_bytes(&[]), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::peers;

    #[test]
    fn parts_stand_in_the_order_of_peers_and_of_one_peer_as_they_stood() {
        let part = |peer, start| Transfer { peer, start, len: 3 };
        let parts = [part(2, 0), part(1, 5), part(0, 9), part(2, 7), part(3, 1)];
        // Rank 1 of 4 sends to 0, 3 and 2, and has nothing of its own in messages.
        let (order, _) = peers(4, 1);
        let found: Vec<Transfer> = in_order(&parts, &order).collect();
        assert_eq!(found, [part(0, 9), part(3, 1), part(2, 0), part(2, 7)]);
        assert_eq!(in_order(&parts, &[]).count(), 0);
    }

    /// More pairs of parts and peers than can be looked at one by one.
    #[test]
    fn many_parts_of_many_peers_are_ordered() {
        let (to, _) = peers(1 << 20, 5);
        let parts: Vec<_> = (0..1 << 20).map(|peer| Transfer { peer, start: peer as u64, len: 1 }).collect();
        let found = in_order(&parts, &to).map(|part| part.peer);
        assert!(found.eq(to.iter().copied()));
    }

    #[test]
    fn a_part_is_cut_into_messages() {
        let messages = |len| cut(Transfer { peer: 1, start: 10, len }, 4).map(|m| (m.part.start, m.part.len, m.first));
        assert!(messages(9).eq([(10, 4, true), (14, 4, false), (18, 1, false)]) && messages(0).next().is_none());
    }

    /// Parts of 3 elements in chunks of 8: two share one, in the order of the array, and what lies
    /// next to each other there is one range.
    #[test]
    fn short_parts_of_several_peers_share_a_chunk() {
        let part = |peer, start, len| Transfer { peer, start, len };
        let parts = [part(4, 23, 3), part(3, 20, 3), part(1, 0, 8), part(0, 40, 3), part(2, 30, 3)];
        let chunks = packed(parts.into_iter().flat_map(|part| cut(part, 8)), 8);
        let messages: Vec<Vec<(usize, u64)>> =
            chunks.iter().map(|chunk| chunk.messages.iter().map(|m| (m.part.peer, m.at)).collect()).collect();
        assert_eq!(messages, [vec![(4, 3), (3, 0)], vec![(1, 0)], vec![(0, 3), (2, 0)]]);
        let ranges: Vec<&[(u64, u64)]> = chunks.iter().map(|chunk| &chunk.ranges[..]).collect();
        assert_eq!(ranges, [&[(20, 6)][..], &[(0, 8)], &[(30, 3), (40, 3)]]);
        assert!(chunks.iter().map(Chunk::len).eq([6, 8, 6]));
        assert!(packed([].into_iter(), 8).is_empty());
    }
}
