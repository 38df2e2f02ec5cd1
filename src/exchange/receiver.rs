//! The receiving half of an exchange: messages into chunks of an array.

use std::collections::VecDeque;

use super::{Chunk, ExchangeError, TAG};
use crate::comm::{Communicator, Receiving};
use crate::device::{DeviceError, RawArray, Recorder};

pub(super) struct Receiver<'a> {
    comm: &'a Communicator,
    chunks: VecDeque<Chunk>,
    array: &'a RawArray,
    element: u64,
    receiving: VecDeque<(Chunk, Receiving)>,
    mapped: bool,
}

impl<'a> Receiver<'a> {
    pub fn new(comm: &'a Communicator, chunks: VecDeque<Chunk>, array: &'a RawArray, element: u64) -> Self {
        Receiver { comm, chunks, array, element, receiving: VecDeque::new(), mapped: false }
    }

    pub fn open(&mut self, recorder: &mut Recorder) -> Result<(), DeviceError> {
        if self.array.mappable() && !self.chunks.is_empty() {
            for buffer in self.array.buffers() {
                recorder.await_map(buffer, wgpu::MapMode::Write, 0, buffer.size())?;
            }
            self.mapped = true;
        }
        Ok(())
    }

    pub fn done(&self) -> bool {
        self.chunks.is_empty() && self.receiving.is_empty()
    }

    pub fn progress(&mut self, recorder: &mut Recorder, depth: usize) -> Result<bool, ExchangeError> {
        let mut moved = false;
        while self.receiving.len() < depth {
            let Some(chunk) = self.chunks.pop_front() else { break };
            let receiving = self.comm.receive(chunk.peer, TAG, chunk.len * self.element)?;
            self.receiving.push_back((chunk, receiving));
        }
        while let Some((_, first)) = self.receiving.front_mut() {
            if !first.is_done()? {
                break;
            }
            let Some((chunk, received)) = self.receiving.pop_front() else { break };
            let message = received.wait()?;
            let mut at = 0;
            for (buffer, offset, bytes) in self.array.pieces(chunk.start, chunk.len) {
                let part = &message[at..at + bytes as usize];
                if self.mapped {
                    // Views of mapped buffers begin at multiples of this.
                    let skip = offset % wgpu::MAP_ALIGNMENT;
                    let view = buffer.get_mapped_range_mut(offset - skip..offset + bytes);
                    let mut view = view.map_err(|e| DeviceError::Lost(e.to_string()))?;
                    view.slice(skip as usize..).copy_from_slice(part);
                } else {
                    recorder.gpu().queue().write_buffer(buffer, offset, part);
                }
                at += bytes as usize;
            }
            moved = true;
        }
        Ok(moved)
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.mapped) {
            self.array.buffers().for_each(wgpu::Buffer::unmap);
        }
    }
}

impl Drop for Receiver<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
