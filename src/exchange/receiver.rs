//! The receiving half of an exchange: messages into chunks of an array.

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;

use super::channel::{Channel, ChunkedArray, InFlight, span_in_chunk, staged_copies};
use super::error::ExchangeError;
use super::host_memory::{slot_span, span};
use super::mapped_array::{MappedArray, part_of};
use super::ring::{PeerMessage, Slot};
use crate::comm::{Receiving, Span};
use crate::gpu::{
    Completion, DeviceError, Loan, Map, MemoryKind, RawArray, Recorder, StagedCopy, Staging, StagingDirection,
};
use crate::grid::{Chunk, Message, Transfer};
use crate::timeline;

/// Target of the received bytes.
enum Target {
    /// Into the array itself.
    Mapped(MappedArray),
    /// Into staging buffers, from which the device copies them to the array. A buffer can be mapped
    /// when the device has copied what it held before, so that no more memory is in use than the
    /// buffers of the chunks in flight. With a ring, into slots of this rank or its peers.
    Staged { empty: VecDeque<EmptyBuffer>, _loan: Loan },
    /// All is written, and the array is the caller's again.
    Released,
}

/// A staging buffer for a chunk, to be mapped. It is unmapped before it is given back: fields are
/// dropped in this order.
struct EmptyBuffer {
    chunk: Chunk,
    map: Map,
    staging: Staging,
}

/// A chunk that is being received.
struct Arriving {
    chunk: Chunk,
    /// Messages that have not arrived yet, without those of peers that share pages.
    messages: VecDeque<InFlight<Receiving>>,
    /// Messages of peers that share pages and have not been described yet. They are handled in the
    /// order in which they come: a sender may wait for its credit before it sends what another
    /// message of the chunk depends on.
    awaited: Vec<Awaited>,
    /// Host memory of the messages, if it is not the array itself.
    memory: Option<ChunkMemory>,
}

/// A message of a peer that shares pages.
struct Awaited {
    message: Message,
    receiving: InFlight<Receiving>,
    /// The descriptor, once it has been received.
    descriptor: Span,
}

/// Host memory of a chunk.
enum ChunkMemory {
    Staging(Arc<Staging>),
    Slot(Arc<Slot>),
}

/// Copies from shared pages that the device has not finished.
struct Copying {
    completion: Completion,
    /// Messages of peers, each with its sender, which gets a credit.
    lent: Vec<(usize, PeerMessage)>,
    /// Slots of this rank.
    slots: Vec<Arc<Slot>>,
}

/// Receives chunks of an array, in order.
pub(super) struct Receiver {
    channel: Channel,
    /// Chunks that have not been requested yet.
    chunks: VecDeque<Chunk>,
    /// Stands before `array`, to be dropped before it: buffers must not be mapped when they go back
    /// to the pool.
    target: Target,
    array: RawArray,
    arriving: VecDeque<Arriving>,
    copying: VecDeque<Copying>,
}

impl Receiver {
    pub fn new(recorder: &Recorder, channel: Channel, incoming: ChunkedArray) -> Result<Self, DeviceError> {
        let ChunkedArray { chunks, array } = incoming;
        let target = if chunks.is_empty() {
            Target::Released
        } else if MappedArray::suits(&array, MemoryKind::Incoming) {
            Target::Mapped(MappedArray::begin(recorder.gpu(), &array, wgpu::MapMode::Write)?)
        } else {
            Target::Staged { empty: VecDeque::new(), _loan: array.lend()? }
        };
        Ok(Receiver { channel, chunks, target, array, arriving: VecDeque::new(), copying: VecDeque::new() })
    }

    /// Returns `true` if all messages have arrived and are written.
    pub fn done(&self) -> bool {
        matches!(self.target, Target::Released)
    }

    /// Returns the rank of the whole run from which the first message under way comes.
    pub fn peer(&self) -> Option<usize> {
        let peers = |chunk: &Arriving| {
            let message = chunk.messages.front().map(|message| message.peer);
            message.or(chunk.awaited.first().map(|awaited| awaited.receiving.peer))
        };
        self.arriving.iter().find_map(peers)
    }

    /// Returns `true` if mappings or copies from shared pages are under way.
    pub fn awaits_device(&self) -> bool {
        if !self.copying.is_empty() {
            return true;
        }
        match &self.target {
            Target::Mapped(mapped) => mapped.awaits_device(),
            Target::Staged { empty, .. } => !empty.is_empty(),
            Target::Released => false,
        }
    }

    /// Does what can be done without waiting; true if something moved.
    pub fn progress(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        self.ask(recorder)?;
        let arrived = self.take_arrived(recorder)?;
        if arrived {
            self.ask(recorder)?;
        }
        let returned = self.return_credits()?;
        if self.chunks.is_empty() && self.arriving.is_empty() && !self.awaits_device() {
            self.target = Target::Released;
        }
        Ok(arrived | returned)
    }

    /// Sends the credits of the messages that the device has copied from the pages of peers.
    fn return_credits(&mut self) -> Result<bool, ExchangeError> {
        let mut moved = false;
        while self.copying.front().is_some_and(|first| first.completion.is_done()) {
            let Some(Copying { lent, .. }) = self.copying.pop_front() else { break };
            for (peer, message) in lent {
                message.check().map_err(|why| DeviceError::SharedPages { rank: peer, why })?;
                // A message that is dropped is delivered as well.
                drop(self.channel.send_credit(peer)?);
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Asks for chunks, as many as may be in flight and have a place.
    fn ask(&mut self, recorder: &Recorder) -> Result<(), ExchangeError> {
        let (channel, array, arriving) = (&self.channel, &self.array, &mut self.arriving);
        match &mut self.target {
            Target::Mapped(mapped) => {
                let Some(whole) = mapped.span()? else { return Ok(()) };
                while arriving.len() < channel.chunking.depth {
                    let Some(chunk) = self.chunks.pop_front() else { break };
                    let receive = |message: &Message| channel.receive(message, &part_of(array, &message.part, whole));
                    let messages = chunk.messages.iter().map(receive).collect::<Result<_, _>>()?;
                    arriving.push_back(Arriving { chunk, messages, awaited: Vec::new(), memory: None });
                }
            }
            Target::Staged { .. } if channel.ring.is_some() => {
                while arriving.len() < channel.chunking.depth {
                    let Some(chunk) = self.chunks.pop_front() else { break };
                    arriving.push_back(receive_with_ring(channel, array.element_bytes(), chunk)?);
                }
            }
            Target::Staged { empty, .. } => {
                let direction = StagingDirection::ToDevice;
                while empty.len() + arriving.len() < channel.chunking.depth {
                    let Some(chunk) = self.chunks.pop_front() else { break };
                    let bytes = chunk.len() * array.element_bytes();
                    let staging = recorder.staging_buffer(direction, bytes)?;
                    let map = Map::begin(recorder.gpu(), staging.buffer(), direction.map_mode(), bytes);
                    empty.push_back(EmptyBuffer { chunk, map, staging });
                }
                while empty.front().map_or(Ok(false), |first| first.map.is_ready())? {
                    let Some(EmptyBuffer { chunk, map, staging }) = empty.pop_front() else { break };
                    let staging = Arc::new(staging);
                    let (whole, bytes) = (span(map, staging.clone())?, array.element_bytes());
                    let receive = |message: &Message| channel.receive(message, &span_in_chunk(message, bytes, &whole));
                    let messages = chunk.messages.iter().map(receive).collect::<Result<_, _>>()?;
                    let memory = Some(ChunkMemory::Staging(staging));
                    arriving.push_back(Arriving { chunk, messages, awaited: Vec::new(), memory });
                }
            }
            Target::Released => {}
        }
        Ok(())
    }

    /// Takes what has come, and submits the copies of what is in host memory.
    fn take_arrived(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let (bytes, mut moved) = (self.array.element_bytes(), false);
        let mut lent: Vec<(Message, PeerMessage)> = Vec::new();
        // Credits do not name their message: those of one peer are returned in its order.
        let mut pending_peers = BTreeSet::new();
        for chunk in self.arriving.iter_mut().filter(|chunk| !chunk.awaited.is_empty()) {
            for mut awaited in mem::take(&mut chunk.awaited) {
                let peer = awaited.message.part.peer;
                if pending_peers.contains(&peer) || !awaited.receiving.transfer.is_done()? {
                    pending_peers.insert(peer);
                    chunk.awaited.push(awaited);
                    continue;
                }
                let Awaited { message, receiving, descriptor } = awaited;
                receiving.ended("received").wait()?;
                lent.push((message, self.channel.find(&message, bytes, &descriptor)?));
                moved = true;
            }
        }
        let mut received = Vec::new();
        while let Some(chunk) = self.arriving.front_mut() {
            if let Some(first) = chunk.messages.front_mut() {
                if !first.transfer.is_done()? {
                    break;
                }
                if let Some(message) = chunk.messages.pop_front() {
                    message.ended("received").wait()?; // lets go of its share of the mapping
                }
                moved = true;
                continue;
            }
            if !chunk.awaited.is_empty() {
                break;
            }
            if let Some(Arriving { chunk, memory: Some(memory), .. }) = self.arriving.pop_front() {
                received.push((chunk, memory));
            }
        }
        let mut copies = Vec::new();
        for (message, lent) in &lent {
            let (host, at_bytes) = lent.place_on_device();
            copies.push(StagedCopy { start: message.part.start, len: message.part.len, host, at_bytes });
        }
        for (chunk, memory) in &received {
            match memory {
                ChunkMemory::Staging(staging) => copies.extend(staged_copies(chunk, bytes, (staging.buffer(), 0))),
                ChunkMemory::Slot(slot) => {
                    let (host, slot_start) = slot.place_on_device();
                    let own = chunk.messages.iter().filter(|message| !self.channel.shares_pages(message.part.peer));
                    copies.extend(own.map(|message| {
                        let Transfer { start, len, .. } = message.part;
                        StagedCopy { start, len, host, at_bytes: slot_start + message.at * bytes }
                    }));
                }
            }
        }
        if copies.is_empty() {
            return Ok(moved);
        }
        let begin = timeline::now();
        recorder.stage(StagingDirection::ToDevice, &self.array, &copies)?;
        timeline::chunk("copied", copies.iter().map(|copy| copy.len * bytes).sum(), begin);
        if self.channel.ring.is_some() {
            let lent = lent.into_iter().map(|(message, lent)| (message.part.peer, lent)).collect();
            let slots = received.into_iter().filter_map(|(_, memory)| match memory {
                ChunkMemory::Slot(slot) => Some(slot),
                ChunkMemory::Staging(_) => None,
            });
            self.copying.push_back(Copying { completion: recorder.completion(), lent, slots: slots.collect() });
        }
        Ok(moved)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // The device may still read the slots.
        let unfinished = self.copying.iter().filter(|copying| !copying.completion.is_done());
        unfinished.flat_map(|copying| &copying.slots).for_each(|slot| slot.abandon());
    }
}

/// Starts to receive a chunk: descriptors from peers that share pages, and messages of others into
/// a slot.
fn receive_with_ring(channel: &Channel, bytes: u64, chunk: Chunk) -> Result<Arriving, ExchangeError> {
    let is_remote = |message: &Message| !channel.shares_pages(message.part.peer);
    let slot = match chunk.messages.iter().any(is_remote) {
        true => Some(Arc::new(channel.take_slot(chunk.len() * bytes)?)),
        false => None,
    };
    let whole = slot.as_ref().map(slot_span);
    let (mut messages, mut awaited) = (VecDeque::new(), Vec::new());
    for message in &chunk.messages {
        match &whole {
            Some(whole) if is_remote(message) => {
                messages.push_back(channel.receive(message, &span_in_chunk(message, bytes, whole))?);
            }
            _ => {
                let (receiving, descriptor) = channel.receive_descriptor(message, bytes)?;
                awaited.push(Awaited { message: *message, receiving, descriptor });
            }
        }
    }
    Ok(Arriving { chunk, messages, awaited, memory: slot.map(ChunkMemory::Slot) })
}
