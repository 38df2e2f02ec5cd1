//! The receiving half of an exchange: messages into chunks of an array.

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::sync::Arc;

use super::channel::{
    Channel, ChunkedArray, InFlight, MappedArray, part_of, span, span_in_chunk, staged_copies, staged_copy,
};
use super::error::ExchangeError;
use super::ring::{PeerMessage, Pull, Slot, Storage};
use crate::comm::{Receiving, Span};
use crate::gpu::{
    Completion, DeviceError, Loan, Map, MemoryKind, PeerCopies, RawArray, Recorder, StagedCopy, Staging,
    StagingDirection,
};
use crate::grid::{Chunk, Message};
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
    /// Messages that have not arrived yet, without those of peers that share memory.
    messages: VecDeque<InFlight<Receiving>>,
    /// Messages of peers that share memory and have not been described yet. They are handled in the
    /// order in which they come: a sender may wait for its credit before it sends what another
    /// message of the chunk depends on.
    awaited: Vec<Awaited>,
    /// Host memory of the messages, if it is not the array itself.
    memory: Option<ChunkMemory>,
    /// Slot for the messages in device memory of peers, if there are any.
    landing: Option<Arc<Slot>>,
}

/// A message of a peer that shares memory.
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

/// Messages in device memory of peers that the driver copies to slots of this rank.
struct Pulling {
    /// Dropped before the memory of the copies.
    copies: PeerCopies,
    messages: Vec<Pulled>,
}

/// A message of [`Pulling`].
struct Pulled {
    message: Message,
    lent: PeerMessage,
    landing: Arc<Slot>,
}

impl Pulled {
    /// Returns the copy of the message, of elements of `element_bytes` bytes, to its slot.
    fn pull(&self, element_bytes: u64) -> Pull<'_> {
        Pull { message: &self.lent, slot: &self.landing, at: self.message.at * element_bytes }
    }
}

/// Copies from slots that the device has not finished.
struct Copying {
    completion: Completion,
    /// Messages in pages of peers, each with its sender, which gets a credit.
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
    pulling: VecDeque<Pulling>,
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
        let (arriving, pulling, copying) = Default::default();
        Ok(Receiver { channel, chunks, target, array, arriving, pulling, copying })
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

    /// Returns `true` if mappings or copies from slots are under way.
    pub fn awaits_device(&self) -> bool {
        if !self.pulling.is_empty() || !self.copying.is_empty() {
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
                return_credit(&self.channel, peer, &message)?;
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
                // All at once: they take no buffers.
                while let Some(chunk) = self.chunks.pop_front() {
                    let receive = |message: &Message| channel.receive(message, &part_of(array, &message.part, whole));
                    let messages = chunk.messages.iter().map(receive).collect::<Result<_, _>>()?;
                    arriving.push_back(Arriving { chunk, messages, awaited: Vec::new(), memory: None, landing: None });
                }
            }
            Target::Staged { .. } if channel.ring.is_some() => {
                // A message under way between devices may hold a slot of a chunk that has left.
                let pulled: usize = self.pulling.iter().map(|pulling| pulling.messages.len()).sum();
                while arriving.len() + pulled < channel.chunking.depth {
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
                    let map = Map::begin(recorder.gpu(), &staging.buffer, direction.map_mode(), bytes);
                    empty.push_back(EmptyBuffer { chunk, map, staging });
                }
                while empty.front().map_or(Ok(false), |first| first.map.is_ready())? {
                    let Some(EmptyBuffer { chunk, map, staging }) = empty.pop_front() else { break };
                    let staging = Arc::new(staging);
                    let (whole, bytes) = (span(map, staging.clone())?, array.element_bytes());
                    let receive = |message: &Message| channel.receive(message, &span_in_chunk(message, bytes, &whole));
                    let messages = chunk.messages.iter().map(receive).collect::<Result<_, _>>()?;
                    let memory = Some(ChunkMemory::Staging(staging));
                    arriving.push_back(Arriving { chunk, messages, awaited: Vec::new(), memory, landing: None });
                }
            }
            Target::Released => {}
        }
        Ok(())
    }

    /// Takes what has come, and submits the copies of what is in slots and staging buffers.
    fn take_arrived(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let (lent, described) = self.take_described()?;
        let landed = self.take_landed()?;
        let (received, arrived) = self.take_received()?;
        let moved = described || arrived || !landed.is_empty();
        self.copy(recorder, lent, landed, received)?;
        Ok(moved)
    }

    /// Takes the descriptors that have come: returns the messages in pages, and begins to copy
    /// those in device memory. Also returns `true` if any came.
    fn take_described(&mut self) -> Result<(Vec<(Message, PeerMessage)>, bool), ExchangeError> {
        let (mut lent, mut pulled) = (Vec::new(), Vec::new());
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
                let found = self.channel.find(&message, self.array.element_bytes(), &descriptor)?;
                match &chunk.landing {
                    Some(landing) if found.place_on_device().is_none() => {
                        pulled.push(Pulled { message, lent: found, landing: landing.clone() });
                    }
                    _ => lent.push((message, found)),
                }
            }
        }
        let moved = !lent.is_empty() || !pulled.is_empty();
        if !pulled.is_empty() {
            let bytes = self.array.element_bytes();
            let pulls: Vec<Pull<'_>> = pulled.iter().map(|pulled| pulled.pull(bytes)).collect();
            let copies = self.channel.pull(&pulls)?;
            self.pulling.push_back(Pulling { copies, messages: pulled });
        }
        Ok((lent, moved))
    }

    /// Takes the messages that the driver has copied from device memory of peers, and returns their
    /// credits: the peers may use the slots again.
    fn take_landed(&mut self) -> Result<Vec<Pulled>, ExchangeError> {
        let (mut landed, rank) = (Vec::new(), self.channel.comm.rank());
        let failed = |why| DeviceError::PeerMemory { rank, why };
        while let Some(first) = self.pulling.front()
            && first.copies.is_done().map_err(failed)?
        {
            landed.extend(self.pulling.pop_front().into_iter().flat_map(|pulling| pulling.messages));
        }
        for Pulled { message, lent, .. } in &landed {
            return_credit(&self.channel, message.part.peer, lent)?;
        }
        Ok(landed)
    }

    /// Takes the chunks of which all messages have arrived in host memory, and those in memory of
    /// peers have been described. Also returns `true` if any message arrived.
    fn take_received(&mut self) -> Result<(Vec<(Chunk, ChunkMemory)>, bool), ExchangeError> {
        let (mut received, mut moved) = (Vec::new(), false);
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
        Ok((received, moved))
    }

    /// Submits the copies to the array: of messages in pages of peers, of messages that have landed
    /// in slots, and of chunks in host memory.
    fn copy(
        &mut self,
        recorder: &mut Recorder,
        lent: Vec<(Message, PeerMessage)>,
        landed: Vec<Pulled>,
        received: Vec<(Chunk, ChunkMemory)>,
    ) -> Result<(), ExchangeError> {
        let (bytes, mut copies, mut staged) = (self.array.element_bytes(), Vec::new(), Vec::new());
        for (message, lent) in &lent {
            let no_pages = || self.channel.refused(message.part.peer, "the message is not in pages".into());
            let (host, at_bytes) = lent.place_on_device().ok_or_else(no_pages)?;
            copies.push(StagedCopy { start: message.part.start, len: message.part.len, host, at_bytes });
        }
        copies.extend(landed.iter().map(|pulled| staged_copy(&pulled.message, bytes, &pulled.landing)));
        for (chunk, memory) in &received {
            match memory {
                ChunkMemory::Staging(staging) => staged.extend(staged_copies(chunk, bytes, (&staging.buffer, 0))),
                ChunkMemory::Slot(slot) => {
                    let own = chunk.messages.iter().filter(|message| self.channel.storage(message.part.peer).is_none());
                    copies.extend(own.map(|message| staged_copy(message, bytes, slot)));
                }
            }
        }
        let begin = timeline::now();
        if !staged.is_empty() {
            recorder.stage(StagingDirection::ToDevice, &self.array, &staged)?;
            timeline::chunk("copied", staged.iter().map(|copy| copy.len * bytes).sum(), begin);
        }
        if !copies.is_empty() {
            let completion = recorder.copy_imported(StagingDirection::ToDevice, &self.array, &copies)?;
            timeline::chunk("copied", copies.iter().map(|copy| copy.len * bytes).sum(), begin);
            let lent = lent.into_iter().map(|(message, lent)| (message.part.peer, lent)).collect();
            let slots = received.into_iter().filter_map(|(_, memory)| match memory {
                ChunkMemory::Slot(slot) => Some(slot),
                ChunkMemory::Staging(_) => None,
            });
            let slots = slots.chain(landed.into_iter().map(|pulled| pulled.landing)).collect();
            self.copying.push_back(Copying { completion, lent, slots });
        }
        Ok(())
    }
}

/// Returns the credit of a message that has been copied to its peer, after a check that the message
/// was still there.
fn return_credit(channel: &Channel, peer: usize, message: &PeerMessage) -> Result<(), ExchangeError> {
    message.check().map_err(|why| channel.refused(peer, why))?;
    // A message that is dropped is delivered as well.
    drop(channel.send_credit(peer)?);
    Ok(())
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // The device may still read the slots.
        let unfinished = self.copying.iter().filter(|copying| !copying.completion.is_done());
        unfinished.flat_map(|copying| &copying.slots).for_each(|slot| slot.abandon());
    }
}

/// Starts to receive a chunk: descriptors from peers that share memory, and messages of others into
/// a slot.
fn receive_with_ring(channel: &Channel, bytes: u64, chunk: Chunk) -> Result<Arriving, ExchangeError> {
    // Messages in pages of peers need no slot: the device copies them from there.
    let slot_for = |messages_in: Option<Storage>, slot: Storage| {
        let is_needed = chunk.messages.iter().any(|message| channel.storage(message.part.peer) == messages_in);
        is_needed.then(|| channel.take_slot(slot, chunk.len() * bytes).map(Arc::new)).transpose()
    };
    let slot = slot_for(None, Storage::Pages)?;
    let landing = slot_for(Some(Storage::Device), Storage::Device)?;
    let whole = slot.clone().map(|slot| Span::new(slot));
    let (mut messages, mut awaited) = (VecDeque::new(), Vec::new());
    for message in &chunk.messages {
        match &whole {
            Some(whole) if channel.storage(message.part.peer).is_none() => {
                messages.push_back(channel.receive(message, &span_in_chunk(message, bytes, whole))?);
            }
            _ => {
                let (receiving, descriptor) = channel.receive_descriptor(message, bytes)?;
                awaited.push(Awaited { message: *message, receiving, descriptor });
            }
        }
    }
    Ok(Arriving { chunk, messages, awaited, memory: slot.map(ChunkMemory::Slot), landing })
}
