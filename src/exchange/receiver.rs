//! The receiving half of an exchange: messages into chunks of an array.

use std::collections::VecDeque;

use super::channel::{Channel, Chunk, ChunkedArray};
use super::error::ExchangeError;
use super::mapped_array::MappedArray;
use crate::comm::Receiving;
use crate::gpu::{DeviceError, MemoryKind, RawArray, Recorder, write_mapped};

/// What is received: chunks of an array, in order.
pub(super) struct Receiver {
    channel: Channel,
    /// Those that were not asked for yet.
    chunks: VecDeque<Chunk>,
    /// The array, where it is written to directly, until all is there. Stands before `array`, to be dropped before it: buffers must not
    /// be mapped when they go back to the pool.
    mapped: Option<MappedArray>,
    array: RawArray,
    receiving: VecDeque<(Chunk, Receiving)>,
}

impl Receiver {
    pub fn new(recorder: &Recorder, channel: Channel, incoming: ChunkedArray) -> Result<Self, DeviceError> {
        let ChunkedArray { chunks, array } = incoming;
        let mapped = if array.maps_as(MemoryKind::Incoming) && !chunks.is_empty() {
            Some(MappedArray::begin(recorder.gpu(), &array, wgpu::MapMode::Write)?)
        } else {
            None
        };
        Ok(Receiver { channel, chunks, mapped, array, receiving: VecDeque::new() })
    }

    /// Whether all messages have arrived and are written.
    pub fn done(&self) -> bool {
        self.chunks.is_empty() && self.receiving.is_empty()
    }

    /// Whether mappings are under way or in use.
    pub fn awaits_device(&self) -> bool {
        self.mapped.is_some()
    }

    /// Does what can be done without waiting; true if something moved.
    pub fn progress(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let (channel, mut moved) = (&self.channel, false);
        let element = self.array.element_bytes();
        loop {
            while self.receiving.len() < channel.depth {
                let Some(chunk) = self.chunks.pop_front() else { break };
                let receiving = channel.comm.receive(chunk.peer, channel.tag, chunk.len * element)?;
                self.receiving.push_back((chunk, receiving));
            }
            let Some((_, first)) = self.receiving.front_mut() else { break };
            // Asked even if nothing can be written yet: a peer that failed is seen here.
            if !first.is_done()? || !self.mapped.as_ref().map_or(Ok(true), MappedArray::is_ready)? {
                break;
            }
            let Some((chunk, received)) = self.receiving.pop_front() else { break };
            let message = received.wait()?;
            if self.mapped.is_none() {
                recorder.write(&self.array, chunk.start, &message);
            } else {
                let mut rest = &message[..];
                for (buffer, offset, bytes) in self.array.pieces(chunk.start, chunk.len) {
                    let (piece, after) = rest.split_at(bytes as usize);
                    write_mapped(buffer, offset, piece)?;
                    rest = after;
                }
            }
            channel.buffers.give(message, channel.depth);
            moved = true;
        }
        if self.done() {
            self.mapped = None;
        }
        Ok(moved)
    }
}
