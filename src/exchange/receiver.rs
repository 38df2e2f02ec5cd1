//! The receiving half of an exchange: messages into chunks of an array.

use std::collections::VecDeque;
use std::sync::Arc;

use super::channel::{Channel, Chunk, ChunkedArray, Message};
use super::error::ExchangeError;
use super::host_memory::span;
use super::mapped_array::{MappedArray, part_of};
use crate::comm::Receiving;
use crate::gpu::{DeviceError, Loan, Map, MemoryKind, RawArray, Recorder, StagedCopy, Staging, StagingDirection};

/// Target of the received bytes.
enum Target {
    /// Into the array itself.
    Mapped(MappedArray),
    /// Into staging buffers, from which the device copies them to the array. A buffer can be mapped
    /// when the device has copied what it held before, so that no more memory is in use than the
    /// buffers of the chunks in flight.
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

/// A chunk that is being received, into a staging buffer if it is not the array itself.
struct Arriving {
    chunk: Chunk,
    /// Messages that have not arrived yet.
    messages: VecDeque<Receiving>,
    staging: Option<Arc<Staging>>,
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
        Ok(Receiver { channel, chunks, target, array, arriving: VecDeque::new() })
    }

    /// Returns `true` if all messages have arrived and are written.
    pub fn done(&self) -> bool {
        matches!(self.target, Target::Released)
    }

    /// Returns `true` if mappings are under way.
    pub fn awaits_device(&self) -> bool {
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
        if self.chunks.is_empty() && self.arriving.is_empty() && !self.awaits_device() {
            self.target = Target::Released;
        }
        Ok(arrived)
    }

    /// Asks for chunks, as many as may be in flight and have a place.
    fn ask(&mut self, recorder: &Recorder) -> Result<(), ExchangeError> {
        let (channel, array, arriving) = (&self.channel, &self.array, &mut self.arriving);
        match &mut self.target {
            Target::Mapped(mapped) => {
                let Some(whole) = mapped.span()? else { return Ok(()) };
                while arriving.len() < channel.depth {
                    let Some(chunk) = self.chunks.pop_front() else { break };
                    let receive = |message: &Message| channel.receive(message, &part_of(array, &message.part, whole));
                    let messages = chunk.messages.iter().map(receive).collect::<Result<_, _>>()?;
                    arriving.push_back(Arriving { chunk, messages, staging: None });
                }
            }
            Target::Staged { empty, .. } => {
                let direction = StagingDirection::ToDevice;
                while empty.len() + arriving.len() < channel.depth {
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
                    let receive = |message: &Message| channel.receive(message, &message.in_chunk(bytes, &whole));
                    let messages = chunk.messages.iter().map(receive).collect::<Result<_, _>>()?;
                    arriving.push_back(Arriving { chunk, messages, staging: Some(staging) });
                }
            }
            Target::Released => {}
        }
        Ok(())
    }

    /// Takes the chunks that have come, and submits the copies of those that are in staging
    /// buffers.
    fn take_arrived(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let (mut moved, mut staged) = (false, Vec::new());
        while let Some(chunk) = self.arriving.front_mut() {
            if let Some(first) = chunk.messages.front_mut() {
                if !first.is_done()? {
                    break;
                }
                if let Some(message) = chunk.messages.pop_front() {
                    message.wait()?; // lets go of its share of the mapping
                }
                moved = true;
                continue;
            }
            if let Some(Arriving { chunk, staging: Some(staging), .. }) = self.arriving.pop_front() {
                staged.push((chunk, staging));
            }
        }
        if !staged.is_empty() {
            let copies: Vec<StagedCopy<'_>> =
                staged.iter().flat_map(|(chunk, staging)| chunk.copies(staging)).collect();
            recorder.stage(StagingDirection::ToDevice, &self.array, &copies)?;
        }
        Ok(moved)
    }
}
