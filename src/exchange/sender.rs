//! The sending half of an exchange: chunks out of an array into messages.

use std::collections::VecDeque;

use super::channel::{Channel, Chunk, ChunkedArray, Message};
use super::error::ExchangeError;
use super::host_memory::span;
use super::mapped_array::{MappedArray, part_of};
use crate::comm::Sending;
use crate::gpu::{DeviceError, Loan, Map, MemoryKind, RawArray, Recorder, StagedCopy, Staging, StagingDirection};

/// Source of the sent bytes.
enum Source {
    /// The array itself.
    Mapped(MappedArray),
    /// Staging buffers, to which the device copies chunks of the array.
    Staged { copied: VecDeque<StagedChunk>, _loan: Loan },
    /// All is sent, and the array is the caller's again.
    Released,
}

/// A chunk that the device copies to a staging buffer. That is unmapped before it is given back:
/// fields are dropped in this order.
struct StagedChunk {
    chunk: Chunk,
    map: Map,
    staging: Staging,
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
    sending: VecDeque<VecDeque<Sending>>,
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
            if let Some(sent) = chunk.pop_front() {
                sent.wait()?;
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Sends chunks, as many as may be under way.
    fn advance(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let (channel, array, sending) = (&self.channel, &self.array, &mut self.sending);
        let depth = channel.depth;
        let before = sending.len();
        match &mut self.source {
            Source::Mapped(mapped) => {
                let Some(whole) = mapped.span()? else { return Ok(false) };
                while sending.len() < depth {
                    let Some(chunk) = self.chunks.pop_front() else { break };
                    let send = |message: &Message| channel.send(message, &part_of(array, &message.part, whole));
                    sending.push_back(chunk.messages.iter().map(send).collect::<Result<_, _>>()?);
                }
            }
            Source::Staged { copied, .. } => {
                // In two submissions at first, so that one is copied while the other is sent.
                while let most @ 1.. =
                    (depth - copied.len() - sending.len()).min(depth.div_ceil(2)).min(self.chunks.len())
                {
                    copied.extend(copy(recorder, array, self.chunks.drain(..most))?);
                }
                while copied.front().map_or(Ok(false), |first| first.map.is_ready())? {
                    let Some(StagedChunk { chunk, map, staging }) = copied.pop_front() else { break };
                    let (whole, bytes) = (span(map, staging)?, array.element_bytes());
                    let send = |message: &Message| channel.send(message, &message.in_chunk(bytes, &whole));
                    sending.push_back(chunk.messages.iter().map(send).collect::<Result<_, _>>()?);
                }
            }
            Source::Released => {}
        }
        Ok(sending.len() > before)
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
    let copies: Vec<StagedCopy<'_>> = staged.iter().flat_map(|(chunk, staging)| chunk.copies(staging)).collect();
    recorder.stage(direction, array, &copies)?;
    let map = |(chunk, staging): (Chunk, Staging)| {
        let map = Map::begin(recorder.gpu(), staging.buffer(), direction.map_mode(), bytes(&chunk));
        StagedChunk { chunk, map, staging }
    };
    Ok(staged.into_iter().map(map).collect())
}
