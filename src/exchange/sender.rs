//! The sending half of an exchange: chunks out of an array into messages.

use std::collections::VecDeque;

use super::{Chunk, ExchangeError, Route};
use crate::comm::Sending;
use crate::gpu::{DeviceError, Loan, Map, MemoryKind, RawArray, Recorder, Staging, read_mapped};

/// Where the sender's bytes come from.
enum Source {
    /// The array itself, mapped until all is read; it is unmapped before it is given back.
    Mapped(Vec<Map>, Option<Loan>),
    /// Staging buffers that chunks are copied to by the device.
    Staged(VecDeque<Copying>),
}

/// A chunk on its way to a staging buffer, which is unmapped before it is given back: fields are dropped in this order.
struct Copying {
    chunk: Chunk,
    map: Map,
    staging: Staging,
}

pub(super) struct Sender {
    route: Route,
    chunks: VecDeque<Chunk>,
    /// Stands before `array`, to be dropped before it: what goes back to the pool must not be mapped.
    source: Source,
    array: RawArray,
    sending: VecDeque<Sending>,
}

impl Sender {
    pub fn new(
        recorder: &Recorder,
        route: Route,
        chunks: VecDeque<Chunk>,
        array: RawArray,
    ) -> Result<Self, DeviceError> {
        let source = if array.maps_as(MemoryKind::Outgoing) && !chunks.is_empty() {
            let loan = array.lend()?;
            let map = |buffer: &wgpu::Buffer| Map::begin(recorder.gpu(), buffer, wgpu::MapMode::Read, buffer.size());
            Source::Mapped(array.buffers().map(map).collect(), Some(loan))
        } else {
            Source::Staged(VecDeque::new())
        };
        Ok(Sender { route, chunks, source, array, sending: VecDeque::new() })
    }

    pub fn done(&self) -> bool {
        self.chunks.is_empty() && !self.awaits_device() && self.sending.is_empty()
    }

    /// Whether mappings are under way or in use.
    pub fn awaits_device(&self) -> bool {
        match &self.source {
            Source::Mapped(maps, _) => !maps.is_empty(),
            Source::Staged(copying) => !copying.is_empty(),
        }
    }

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
                self.route.spare.give(sent.wait()?, self.route.depth);
            }
            moved = true;
        }
        Ok(moved)
    }

    fn advance(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let (route, mut moved) = (&self.route, false);
        match &mut self.source {
            Source::Mapped(maps, loan) => {
                if !all_ready(maps)? {
                    return Ok(false);
                }
                while self.sending.len() < route.depth {
                    let Some(chunk) = self.chunks.pop_front() else { break };
                    let mut message = route.spare.take();
                    for (buffer, offset, bytes) in self.array.pieces(chunk.start, chunk.len) {
                        read_mapped(buffer, offset, bytes, |view| message.extend_from_slice(view))?;
                    }
                    self.sending.push_back(route.comm.send(chunk.peer, route.tag, message)?);
                    moved = true;
                }
                if self.chunks.is_empty() {
                    maps.clear();
                    *loan = None;
                }
            }
            Source::Staged(copying) => {
                let element = self.array.element_bytes();
                while copying.len() < route.depth {
                    let Some(chunk) = self.chunks.pop_front() else { break };
                    let bytes = chunk.len * element;
                    let staging = recorder.staging_buffer(bytes)?;
                    recorder.stage(&self.array, chunk.start, chunk.len, staging.buffer())?;
                    let map = Map::begin(recorder.gpu(), staging.buffer(), wgpu::MapMode::Read, bytes);
                    copying.push_back(Copying { chunk, map, staging });
                    moved = true;
                }
                while self.sending.len() < route.depth {
                    let Some(Copying { chunk, map, staging }) = copying.front() else { break };
                    if !map.is_ready()? {
                        break;
                    }
                    let (chunk, mut message) = (*chunk, route.spare.take());
                    let bytes = chunk.len * element;
                    read_mapped(staging.buffer(), 0, bytes, |view| message.extend_from_slice(view))?;
                    copying.pop_front();
                    self.sending.push_back(route.comm.send(chunk.peer, route.tag, message)?);
                    moved = true;
                }
            }
        }
        Ok(moved)
    }
}

/// Whether all of these are mapped.
pub(super) fn all_ready(maps: &[Map]) -> Result<bool, DeviceError> {
    maps.iter().try_fold(true, |ready, map| Ok(ready & map.is_ready()?))
}
