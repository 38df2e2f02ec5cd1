//! The sending half of an exchange: chunks out of an array into messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::channel::{
    Channel, ChunkedArray, InFlight, Lent, MappedArray, part_of, span, span_in_chunk, staged_copies, staged_copy,
};
use super::error::ExchangeError;
use super::ring::{Slot, Storage};
use crate::comm::{CommError, Sending, Span};
use crate::gpu::{
    Completion, DeviceError, Loan, Map, MemoryKind, RawArray, Recorder, StagedCopy, Staging, StagingDirection,
};
use crate::grid::{Chunk, Message};
use crate::timeline;

/// Source of the sent bytes.
enum Source {
    /// The array itself.
    Mapped(MappedArray),
    /// Staging buffers or slots of the ring, to which the device copies chunks of the array.
    Staged { copied: VecDeque<StagedChunk>, _loan: Loan },
    /// All is sent, and the array is the caller's again.
    Released,
}

/// A chunk that the device copies to staging buffers or slots.
struct StagedChunk {
    chunk: Chunk,
    copy: HostCopy,
    /// The time of its submission, for the timeline.
    begin: Option<Instant>,
}

/// The memory that messages of a chunk are sent from.
enum HostCopy {
    /// A staging buffer. It is unmapped before it is given back: fields are dropped in this order.
    Staging { map: Map, staging: Staging },
    /// Slots of the ring.
    Slots { completion: Completion, slots: ChunkSlots },
}

impl HostCopy {
    /// Returns `true` if the device has copied.
    fn is_ready(&self) -> Result<bool, DeviceError> {
        match self {
            HostCopy::Staging { map, .. } => map.is_ready(),
            HostCopy::Slots { completion, .. } => Ok(completion.is_done()),
        }
    }
}

/// A message on its way.
enum Outgoing {
    Sent(InFlight<Sending>),
    Lent(Box<InFlight<Lent>>),
}

impl Outgoing {
    /// Returns `true` if the receiver no longer needs its bytes here.
    fn is_done(&mut self) -> Result<bool, CommError> {
        match self {
            Outgoing::Sent(sending) => sending.transfer.is_done(),
            Outgoing::Lent(lent) => lent.transfer.is_returned(),
        }
    }

    /// Returns the receiver, as a rank of the whole run.
    fn peer(&self) -> usize {
        match self {
            Outgoing::Sent(sending) => sending.peer,
            Outgoing::Lent(lent) => lent.peer,
        }
    }
}

/// Sends chunks of an array, in order.
pub(super) struct Sender {
    channel: Channel,
    /// Chunks that have not been sent yet.
    chunks: VecDeque<Chunk>,
    /// Stands before `array`, to be dropped before it: buffers must not be mapped when they go back
    /// to the pool.
    source: Source,
    array: RawArray,
    /// Chunk by chunk.
    sending: VecDeque<VecDeque<Outgoing>>,
}

impl Sender {
    pub fn new(recorder: &Recorder, channel: Channel, outgoing: ChunkedArray) -> Result<Self, DeviceError> {
        let ChunkedArray { chunks, array } = outgoing;
        let source = if chunks.is_empty() {
            Source::Released
        } else if MappedArray::suits(&array, MemoryKind::Outgoing) {
            Source::Mapped(MappedArray::begin(recorder.gpu(), &array, wgpu::MapMode::Read)?)
        } else {
            Source::Staged { copied: VecDeque::new(), _loan: array.lend()? }
        };
        Ok(Sender { channel, chunks, source, array, sending: VecDeque::new() })
    }

    /// Returns `true` if all messages are sent.
    pub fn done(&self) -> bool {
        matches!(self.source, Source::Released)
    }

    /// Returns the rank of the whole run to which the first message under way goes.
    pub fn peer(&self) -> Option<usize> {
        self.sending.iter().flatten().next().map(Outgoing::peer)
    }

    /// Returns `true` if mappings are under way.
    pub fn awaits_device(&self) -> bool {
        match &self.source {
            Source::Mapped(mapped) => mapped.awaits_device(),
            Source::Staged { copied, .. } => !copied.is_empty(),
            Source::Released => false,
        }
    }

    /// Does what can be done without waiting; true if something moved.
    pub fn progress(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let retired = self.retire()?;
        let moved = self.advance(recorder)?;
        if self.chunks.is_empty() && self.sending.is_empty() && !self.awaits_device() {
            self.source = Source::Released;
        }
        Ok(retired | moved)
    }

    /// Removes messages that have been sent.
    fn retire(&mut self) -> Result<bool, ExchangeError> {
        let mut moved = false;
        while let Some(chunk) = self.sending.front_mut() {
            let Some(first) = chunk.front_mut() else {
                self.sending.pop_front();
                continue;
            };
            if !first.is_done()? {
                break;
            }
            match chunk.pop_front() {
                Some(Outgoing::Sent(sent)) => _ = sent.ended("sent").wait()?,
                Some(Outgoing::Lent(lent)) => drop(lent.ended("sent")),
                None => {}
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Sends chunks, as many as may be under way.
    fn advance(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let (channel, array, sending) = (&self.channel, &self.array, &mut self.sending);
        let before = sending.len();
        match &mut self.source {
            Source::Mapped(mapped) => {
                let Some(whole) = mapped.span()? else { return Ok(false) };
                // All at once: they take no buffers.
                while let Some(chunk) = self.chunks.pop_front() {
                    let send = |message: &Message| {
                        channel.send(message, &part_of(array, &message.part, whole)).map(Outgoing::Sent)
                    };
                    sending.push_back(chunk.messages.iter().map(send).collect::<Result<_, _>>()?);
                }
            }
            Source::Staged { copied, .. } => {
                // In two submissions at first, so that one is copied while the other is sent.
                while let most @ 1.. = channel.chunking.batch(self.chunks.len(), copied.len() + sending.len()) {
                    let chunks = self.chunks.drain(..most);
                    copied.extend(match channel.ring {
                        Some(_) => copy_to_slots(recorder, channel, array, chunks)?,
                        None => copy(recorder, array, chunks)?,
                    });
                }
                while copied.front().map_or(Ok(false), |first| first.copy.is_ready())? {
                    let Some(StagedChunk { chunk, copy, begin }) = copied.pop_front() else { break };
                    timeline::chunk("staged", chunk.len() * array.element_bytes(), begin);
                    sending.push_back(match copy {
                        HostCopy::Staging { map, staging } => {
                            let (whole, bytes) = (span(map, staging)?, array.element_bytes());
                            let send = |message: &Message| {
                                channel.send(message, &span_in_chunk(message, bytes, &whole)).map(Outgoing::Sent)
                            };
                            chunk.messages.iter().map(send).collect::<Result<_, _>>()?
                        }
                        HostCopy::Slots { slots, .. } => {
                            send_from_slots(channel, &chunk, array.element_bytes(), &slots)?
                        }
                    });
                }
            }
            Source::Released => {}
        }
        Ok(sending.len() > before)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let Source::Staged { copied, .. } = &self.source else { return };
        for chunk in copied {
            // The device may still write to the slots.
            if let HostCopy::Slots { completion, slots } = &chunk.copy
                && !completion.is_done()
            {
                slots.abandon();
            }
        }
    }
}

/// Submits the copies of chunks to staging buffers and asks for their mapping.
fn copy(
    recorder: &mut Recorder,
    array: &RawArray,
    chunks: impl Iterator<Item = Chunk>,
) -> Result<Vec<StagedChunk>, DeviceError> {
    let direction = StagingDirection::ToHost;
    let bytes = |chunk: &Chunk| chunk.len() * array.element_bytes();
    let stage = |chunk: Chunk| {
        let staging = recorder.staging_buffer(direction, bytes(&chunk))?;
        Ok((chunk, staging))
    };
    let staged: Vec<(Chunk, Staging)> = chunks.map(stage).collect::<Result<_, DeviceError>>()?;
    let element_bytes = array.element_bytes();
    let of_chunks = staged.iter().map(|(chunk, staging)| staged_copies(chunk, element_bytes, (&staging.buffer, 0)));
    let copies: Vec<StagedCopy<'_>> = of_chunks.flatten().collect();
    let begin = timeline::now();
    recorder.stage(direction, array, &copies)?;
    let map = |(chunk, staging): (Chunk, Staging)| {
        let map = Map::begin(recorder.gpu(), &staging.buffer, direction.map_mode(), bytes(&chunk));
        StagedChunk { chunk, copy: HostCopy::Staging { map, staging }, begin }
    };
    Ok(staged.into_iter().map(map).collect())
}

/// Submits the copies of chunks to slots of the ring.
fn copy_to_slots(
    recorder: &mut Recorder,
    channel: &Channel,
    array: &RawArray,
    chunks: impl Iterator<Item = Chunk>,
) -> Result<Vec<StagedChunk>, DeviceError> {
    let element_bytes = array.element_bytes();
    let take = |chunk: Chunk| Ok((ChunkSlots::take(channel, &chunk, element_bytes)?, chunk));
    let taken: Vec<(ChunkSlots, Chunk)> = chunks.map(take).collect::<Result<_, DeviceError>>()?;
    let mut copies = Vec::new();
    for (slots, chunk) in &taken {
        copies.extend(slots.copies(channel, chunk, element_bytes)?);
    }
    let begin = timeline::now();
    let completion = recorder.copy_imported(StagingDirection::ToHost, array, &copies)?;
    let staged = |(slots, chunk): (ChunkSlots, Chunk)| {
        let copy = HostCopy::Slots { completion: completion.clone(), slots };
        StagedChunk { chunk, copy, begin }
    };
    Ok(taken.into_iter().map(staged).collect())
}

/// Lends the messages of a chunk to peers that share memory, and sends the others.
fn send_from_slots(
    channel: &Channel,
    chunk: &Chunk,
    element_bytes: u64,
    slots: &ChunkSlots,
) -> Result<VecDeque<Outgoing>, ExchangeError> {
    let send = |message: &Message| {
        let slot = slots.of(channel, message)?;
        Ok(if channel.storage(message.part.peer).is_some() {
            Outgoing::Lent(Box::new(channel.lend(message, element_bytes, slot)?))
        } else {
            Outgoing::Sent(channel.send(message, &span_in_chunk(message, element_bytes, &Span::new(slot.clone())))?)
        })
    };
    chunk.messages.iter().map(send).collect()
}

/// The slots of a chunk: one in pages if any of its messages needs pages, and one in device memory
/// if any needs that. In either, messages have the same places.
struct ChunkSlots {
    pages: Option<Arc<Slot>>,
    device: Option<Arc<Slot>>,
}

/// Returns the kind of slot that a message is sent from.
fn storage_of(channel: &Channel, message: &Message) -> Storage {
    channel.storage(message.part.peer).unwrap_or(Storage::Pages)
}

impl ChunkSlots {
    /// Takes the slots of a chunk.
    pub fn take(channel: &Channel, chunk: &Chunk, element_bytes: u64) -> Result<ChunkSlots, DeviceError> {
        let take = |storage| {
            let is_needed = chunk.messages.iter().any(|message| storage_of(channel, message) == storage);
            let slot = || channel.take_slot(storage, chunk.len() * element_bytes).map(Arc::new);
            is_needed.then(slot).transpose()
        };
        Ok(ChunkSlots { pages: take(Storage::Pages)?, device: take(Storage::Device)? })
    }

    /// Returns the copies of a chunk to its slots.
    pub fn copies<'a>(
        &'a self,
        channel: &Channel,
        chunk: &'a Chunk,
        element_bytes: u64,
    ) -> Result<Vec<StagedCopy<'a>>, DeviceError> {
        if let (Some(slot), None) | (None, Some(slot)) = (&self.pages, &self.device) {
            return Ok(staged_copies(chunk, element_bytes, slot.place_on_device()).collect());
        }
        let copy = |message: &'a Message| Ok(staged_copy(message, element_bytes, self.of(channel, message)?));
        chunk.messages.iter().map(copy).collect()
    }

    /// Returns the slot of a message.
    pub fn of(&self, channel: &Channel, message: &Message) -> Result<&Arc<Slot>, DeviceError> {
        let slot = match storage_of(channel, message) {
            Storage::Pages => self.pages.as_ref(),
            Storage::Device => self.device.as_ref(),
        };
        slot.ok_or_else(|| channel.refused(message.part.peer, "its chunk has no slot of this kind".into()))
    }

    /// Keeps the slots out of use: the device may still write to them.
    pub fn abandon(&self) {
        self.pages.iter().chain(&self.device).for_each(|slot| slot.abandon());
    }
}
