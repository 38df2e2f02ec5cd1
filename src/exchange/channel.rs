//! Transport of the messages of an exchange, which [`crate::grid`] puts into chunks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::ring::{Descriptor, PeerMessage, Pull, SharedRing, Slot, Storage, refused};
use crate::comm::{CommError, Communicator, EXCHANGE_TAGS, Receiving, Sending, Span, Subject};
use crate::gpu::{DeviceError, Gpu, Loan, Map, MappedBytes, MemoryKind, PeerCopies, RawArray, StagedCopy};
use crate::grid::{Chunk, Chunking, Message, Transfer};
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

/// Returns the copy between an array and a message in a slot of its chunk.
pub(super) fn staged_copy<'a>(message: &Message, element_bytes: u64, slot: &'a Slot) -> StagedCopy<'a> {
    let (host, first) = slot.place_on_device();
    let Transfer { start, len, .. } = message.part;
    StagedCopy { start, len, host, at_bytes: first + message.at * element_bytes }
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

/// An array that is mapped, or will be as soon as the device has finished with it. Nothing else can
/// use it meanwhile.
pub(super) enum MappedArray {
    Asked { map: Map, loan: Loan },
    Mapped(Span),
    Failed,
}

impl MappedArray {
    /// Returns `true` if an array of `kind` can be: where the host sees the device's memory, and
    /// the array lies in one buffer.
    pub fn suits(array: &RawArray, kind: MemoryKind) -> bool {
        array.maps_as(kind) && array.buffers().count() == 1
    }

    /// Asks for the mapping; does not wait.
    pub fn begin(gpu: &Gpu, array: &RawArray, mode: wgpu::MapMode) -> Result<Self, DeviceError> {
        let loan = array.lend()?;
        let buffer = array.buffers().next();
        let buffer = buffer.ok_or_else(|| DeviceError::Lost("an array has no buffer".into()))?;
        Ok(MappedArray::Asked { map: Map::begin(gpu, buffer, mode, buffer.size()), loan })
    }

    /// Returns `true` if the mapping is still to come.
    pub fn awaits_device(&self) -> bool {
        matches!(self, MappedArray::Asked { .. })
    }

    /// Returns the bytes of its buffer, once they are mapped.
    pub fn span(&mut self) -> Result<Option<&Span>, DeviceError> {
        if let MappedArray::Asked { map, .. } = self
            && map.is_ready()?
            && let MappedArray::Asked { map, loan } = std::mem::replace(self, MappedArray::Failed)
        {
            *self = MappedArray::Mapped(span(map, loan)?);
        }
        Ok(match self {
            MappedArray::Mapped(span) => Some(span),
            _ => None,
        })
    }
}

/// Returns the bytes of a part, given the bytes `whole` of the buffer of `array`.
pub(super) fn part_of(array: &RawArray, part: &Transfer, whole: &Span) -> Span {
    let pieces = array.pieces(part.start, part.len);
    let [start, bytes] = pieces.first().map_or([0; 2], |&(_, offset, bytes)| [offset, bytes].map(|n| n as usize));
    whole.part(start, bytes)
}

/// Returns the bytes of a mapping that is ready. They are unmapped, and then `keeper` is dropped,
/// when the last message that uses them is done.
pub(super) fn span(map: Map, keeper: impl Send + Sync + 'static) -> Result<Span, DeviceError> {
    Ok(Span::new(Arc::new(MappedBytes::new(keeper, map)?)))
}
