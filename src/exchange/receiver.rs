//! The receiving half of an exchange: messages into chunks of an array.

use std::collections::VecDeque;

use super::sender::all_ready;
use super::{Chunk, ExchangeError, Route};
use crate::comm::Receiving;
use crate::gpu::{DeviceError, Loan, Map, MemoryKind, RawArray, Recorder, write_mapped};

pub(super) struct Receiver {
    route: Route,
    chunks: VecDeque<Chunk>,
    /// The buffers of an array that is written to directly, until all is there. Stands before `array`, to be dropped
    /// before it: what goes back to the pool must not be mapped.
    maps: Vec<Map>,
    /// Given back after it is unmapped.
    loan: Option<Loan>,
    array: RawArray,
    receiving: VecDeque<(Chunk, Receiving)>,
}

impl Receiver {
    pub fn new(
        recorder: &Recorder,
        route: Route,
        chunks: VecDeque<Chunk>,
        array: RawArray,
    ) -> Result<Self, DeviceError> {
        let map = |buffer: &wgpu::Buffer| Map::begin(recorder.gpu(), buffer, wgpu::MapMode::Write, buffer.size());
        let direct = array.maps_as(MemoryKind::Incoming) && !chunks.is_empty();
        let loan = if direct { Some(array.lend()?) } else { None };
        let maps = if direct { array.buffers().map(map).collect() } else { Vec::new() };
        Ok(Receiver { route, chunks, maps, loan, array, receiving: VecDeque::new() })
    }

    pub fn done(&self) -> bool {
        self.chunks.is_empty() && self.receiving.is_empty()
    }

    /// Whether mappings are under way or in use.
    pub fn awaits_device(&self) -> bool {
        !self.maps.is_empty()
    }

    pub fn progress(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let (route, mut moved) = (&self.route, false);
        let element = self.array.element_bytes();
        loop {
            while self.receiving.len() < route.depth {
                let Some(chunk) = self.chunks.pop_front() else { break };
                let receiving = route.comm.receive(chunk.peer, route.tag, chunk.len * element)?;
                self.receiving.push_back((chunk, receiving));
            }
            let Some((_, first)) = self.receiving.front_mut() else { break };
            // Asked even if nothing can be written yet: a peer that failed is seen here.
            if !first.is_done()? || !all_ready(&self.maps)? {
                break;
            }
            let Some((chunk, received)) = self.receiving.pop_front() else { break };
            let message = received.wait()?;
            if self.maps.is_empty() {
                recorder.write(&self.array, chunk.start, &message);
            } else {
                let mut rest = &message[..];
                for (buffer, offset, bytes) in self.array.pieces(chunk.start, chunk.len) {
                    let (piece, after) = rest.split_at(bytes as usize);
                    write_mapped(buffer, offset, piece)?;
                    rest = after;
                }
            }
            route.spare.give(message, route.depth);
            moved = true;
        }
        if self.done() {
            self.maps.clear();
            self.loan = None;
        }
        Ok(moved)
    }
}
