//! The sending half of an exchange: chunks out of an array into messages.

use std::collections::VecDeque;

use super::channel::{Channel, Chunk, ChunkedArray};
use super::error::ExchangeError;
use super::mapped_array::MappedArray;
use crate::comm::Sending;
use crate::gpu::{DeviceError, Map, MemoryKind, RawArray, Recorder, Staging, read_mapped};

/// Where the sender's bytes come from.
enum Source {
    /// The array itself, mapped until all is read.
    Mapped(Option<MappedArray>),
    /// Staging buffers, to which the device copies chunks.
    Staged(VecDeque<StagedChunk>),
}

/// A chunk that is copied to a staging buffer, which is unmapped before it is given back: fields are dropped in this order.
struct StagedChunk {
    chunk: Chunk,
    map: Map,
    staging: Staging,
}

/// What is sent: chunks of an array, in order.
pub(super) struct Sender {
    channel: Channel,
    /// Those that are not under way yet.
    chunks: VecDeque<Chunk>,
    /// Stands before `array`, to be dropped before it: buffers must not be mapped when they go back to the pool.
    source: Source,
    array: RawArray,
    sending: VecDeque<Sending>,
}

impl Sender {
    pub fn new(recorder: &Recorder, channel: Channel, outgoing: ChunkedArray) -> Result<Self, DeviceError> {
        let ChunkedArray { chunks, array } = outgoing;
        let source = if array.maps_as(MemoryKind::Outgoing) && !chunks.is_empty() {
            Source::Mapped(Some(MappedArray::begin(recorder.gpu(), &array, wgpu::MapMode::Read)?))
        } else {
            Source::Staged(VecDeque::new())
        };
        Ok(Sender { channel, chunks, source, array, sending: VecDeque::new() })
    }

    /// Whether all messages are sent.
    pub fn done(&self) -> bool {
        self.chunks.is_empty() && !self.awaits_device() && self.sending.is_empty()
    }

    /// Whether mappings are under way or in use.
    pub fn awaits_device(&self) -> bool {
        match &self.source {
            Source::Mapped(mapped) => mapped.is_some(),
            Source::Staged(staged) => !staged.is_empty(),
        }
    }

    /// Does what can be done without waiting; true if something moved.
    pub fn progress(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let moved = self.retire()?;
        Ok(self.advance(recorder)? | moved)
    }

    /// Takes back the buffers of messages that are sent.
    fn retire(&mut self) -> Result<bool, ExchangeError> {
        let mut moved = false;
        while let Some(first) = self.sending.front_mut() {
            if !first.is_done()? {
                break;
            }
            if let Some(sent) = self.sending.pop_front() {
                self.channel.buffers.give(sent.wait()?, self.channel.depth);
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Copies chunks out of the array and sends them, as many as may be under way.
    fn advance(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let (channel, array, mut moved) = (&self.channel, &self.array, false);
        match &mut self.source {
            Source::Mapped(mapped) => {
                if !mapped.as_ref().map_or(Ok(true), MappedArray::is_ready)? {
                    return Ok(false);
                }
                while self.sending.len() < channel.depth {
                    let Some(chunk) = self.chunks.pop_front() else { break };
                    let mut message = channel.buffers.take();
                    for (buffer, offset, bytes) in array.pieces(chunk.start, chunk.len) {
                        read_mapped(buffer, offset, bytes, |view| message.extend_from_slice(view))?;
                    }
                    self.sending.push_back(channel.comm.send(chunk.peer, channel.tag, message)?);
                    moved = true;
                }
                if self.chunks.is_empty() {
                    *mapped = None;
                }
            }
            Source::Staged(staged) => {
                let element = array.element_bytes();
                while staged.len() < channel.depth {
                    let Some(chunk) = self.chunks.pop_front() else { break };
                    let bytes = chunk.len * element;
                    let staging = recorder.staging_buffer(bytes)?;
                    recorder.stage(array, chunk.start, chunk.len, staging.buffer())?;
                    let map = Map::begin(recorder.gpu(), staging.buffer(), wgpu::MapMode::Read, bytes);
                    staged.push_back(StagedChunk { chunk, map, staging });
                    moved = true;
                }
                while self.sending.len() < channel.depth {
                    let Some(StagedChunk { chunk, map, staging }) = staged.front() else { break };
                    if !map.is_ready()? {
                        break;
                    }
                    let (Chunk { peer, len, .. }, mut message) = (*chunk, channel.buffers.take());
                    read_mapped(staging.buffer(), 0, len * element, |view| message.extend_from_slice(view))?;
                    staged.pop_front();
                    self.sending.push_back(channel.comm.send(peer, channel.tag, message)?);
                    moved = true;
                }
            }
        }
        Ok(moved)
    }
}
