//! Transport of the messages of an exchange, which [`crate::grid`] puts into chunks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::ring::{Descriptor, PeerMessage, Pull, SharedRing, Slot, Storage, refused};
use crate::comm::{CommError, Communicator, EXCHANGE_TAGS, Receiving, Sending, Span, Subject};
use crate::gpu::{DeviceError, PeerCopies, RawArray, StagedCopy};
use crate::grid::{Chunk, Chunking, Message};
use crate::timeline;

/// Returns the copies of a chunk between an array and the place `at_bytes` of a host buffer.
pub(super) fn staged_copies<'a>(
    chunk: &'a Chunk,
    element_bytes: u64,
    (host, mut at_bytes): (&'a wgpu::Buffer, u64),
) -> impl Iterator<Item = StagedCopy<'a>> {
    chunk.ranges.iter().map(move |&(start, len)| {
        let copy = StagedCopy { start, len, host, at_bytes };
        at_bytes += len * element_bytes;
        copy
    })
}

/// Returns the span of the elements of a message, of `element_bytes` bytes each, in the span
/// `whole` of its chunk.
pub(super) fn span_in_chunk(message: &Message, element_bytes: u64, whole: &Span) -> Span {
    whole.part((message.at * element_bytes) as usize, (message.part.len * element_bytes) as usize)
}

/// The chunks of an array that travel to or from other ranks.
pub(super) struct ChunkedArray {
    pub chunks: VecDeque<Chunk>,
    pub array: RawArray,
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
    /// Size and number of chunks.
    pub chunking: Chunking,
    /// Memory that this rank shares with others, if there is any.
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
    /// Returns the memory that this rank and `peer` share; `None` if their messages go through the
    /// hosts.
    pub fn storage(&self, peer: usize) -> Option<Storage> {
        self.ring.as_ref().and_then(|ring| ring.storage(peer))
    }

    /// Returns the ring, which must exist.
    fn ring(&self) -> Result<&SharedRing, DeviceError> {
        self.ring.as_ref().ok_or_else(|| refused(Storage::Pages, self.comm.rank(), "there is no ring".into()))
    }

    /// Takes a slot of at least `bytes` bytes of the ring, which must exist.
    pub fn take_slot(&self, storage: Storage, bytes: u64) -> Result<Slot, DeviceError> {
        self.ring()?.take(&self.comm, storage, bytes)
    }

    /// Finds the message that its sender has described.
    pub fn find(&self, message: &Message, element_bytes: u64, span: &Span) -> Result<PeerMessage, DeviceError> {
        let descriptor = bytemuck::pod_read_unaligned(&span.to_vec());
        self.ring()?.find(message.part.peer, &descriptor, message.part.len * element_bytes)
    }

    /// Begins to copy messages in device memory of peers to slots of this rank.
    pub fn pull(&self, pulls: &[Pull<'_>]) -> Result<PeerCopies, DeviceError> {
        self.ring()?.pull(&self.comm, pulls)
    }

    /// Returns the error of memory of `peer` that cannot be used.
    pub fn refused(&self, peer: usize, why: String) -> DeviceError {
        refused(self.storage(peer).unwrap_or(Storage::Pages), peer, why)
    }

    /// Returns the subject of a message, if it begins with one. Both ranks must share the same
    /// memory.
    fn subject(&self, message: &Message) -> Option<Subject> {
        let storage = match self.storage(message.part.peer) {
            None => return message.first.then_some(self.subject),
            Some(Storage::Pages) => 1,
            Some(Storage::Device) => 2,
        };
        message.first.then(|| self.subject.with(&[storage]))
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

    /// Lends a message in `slot` to a peer that shares memory.
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

    /// Starts to receive the descriptor of a message of a peer that shares memory.
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
