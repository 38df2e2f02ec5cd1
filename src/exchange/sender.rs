//! The sending half of an exchange: chunks out of an array into messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{Chunk, ExchangeError, TAG};
use crate::comm::{Communicator, Sending};
use crate::device::{DeviceError, RawArray, Recorder};

/// Where the sender's bytes come from.
enum Source {
    /// The array itself, mapped while the exchange runs.
    Mapped,
    /// Staging buffers that chunks are copied to by the device.
    Staged { free: Vec<wgpu::Buffer>, copying: VecDeque<(Chunk, wgpu::Buffer, Arc<AtomicU8>)> },
}

pub(super) struct Sender<'a> {
    comm: &'a Communicator,
    chunks: VecDeque<Chunk>,
    array: &'a RawArray,
    element: u64,
    source: Source,
    depth: usize,
    sending: VecDeque<Sending>,
    spare: Vec<Vec<u8>>,
}

const PENDING: u8 = 0;
const MAPPED: u8 = 1;
const FAILED: u8 = 2;

impl<'a> Sender<'a> {
    pub fn new(
        recorder: &mut Recorder,
        comm: &'a Communicator,
        chunks: VecDeque<Chunk>,
        array: &'a RawArray,
        element: u64,
        depth: usize,
    ) -> Result<Self, DeviceError> {
        let source = if array.mappable() && !chunks.is_empty() {
            for buffer in array.buffers() {
                recorder.await_map(buffer, wgpu::MapMode::Read, 0, buffer.size())?;
            }
            Source::Mapped
        } else {
            let bytes = chunks.iter().map(|chunk| chunk.len * element).max().unwrap_or(0);
            let free = recorder.staging_set(bytes, if chunks.is_empty() { 0 } else { depth.min(chunks.len()) })?;
            Source::Staged { free, copying: VecDeque::new() }
        };
        Ok(Sender { comm, chunks, array, element, source, depth, sending: VecDeque::new(), spare: Vec::new() })
    }

    pub fn done(&self) -> bool {
        let copied = !matches!(&self.source, Source::Staged { copying, .. } if !copying.is_empty());
        self.chunks.is_empty() && copied && self.sending.is_empty()
    }

    pub fn progress(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
        let mut moved = false;
        while let Some(first) = self.sending.front_mut() {
            if !first.is_done()? {
                break;
            }
            if let Some(sent) = self.sending.pop_front() {
                self.spare.push(sent.wait()?);
            }
            moved = true;
        }
        match &mut self.source {
            Source::Mapped => {
                while self.sending.len() < self.depth {
                    let Some(chunk) = self.chunks.pop_front() else { break };
                    let mut message = self.spare.pop().unwrap_or_default();
                    message.clear();
                    for (buffer, offset, bytes) in self.array.pieces(chunk.start, chunk.len) {
                        let skip = offset % wgpu::MAP_ALIGNMENT;
                        let view = buffer.get_mapped_range(offset - skip..offset + bytes);
                        message
                            .extend_from_slice(&view.map_err(|e| DeviceError::Lost(e.to_string()))?[skip as usize..]);
                    }
                    self.sending.push_back(self.comm.send(chunk.peer, TAG, message)?);
                    moved = true;
                }
            }
            Source::Staged { free, copying } => {
                while let Some(chunk) = self.chunks.front().copied().filter(|_| !free.is_empty()) {
                    let Some(staging) = free.pop() else { break };
                    self.chunks.pop_front();
                    let mapped = Arc::new(AtomicU8::new(PENDING));
                    recorder.stage(self.array, chunk.start, chunk.len, &staging)?;
                    let flag = mapped.clone();
                    staging.map_async(wgpu::MapMode::Read, 0..chunk.len * self.element, move |result| {
                        flag.store(if result.is_ok() { MAPPED } else { FAILED }, Ordering::Release);
                    });
                    copying.push_back((chunk, staging, mapped));
                    moved = true;
                }
                if !copying.is_empty() {
                    recorder.poke()?;
                }
                while self.sending.len() < self.depth {
                    let Some((chunk, staging, mapped)) = copying.front() else { break };
                    match mapped.load(Ordering::Acquire) {
                        PENDING => break,
                        FAILED => return Err(DeviceError::Lost("a staging buffer could not be mapped".into()).into()),
                        _ => {}
                    }
                    let mut message = self.spare.pop().unwrap_or_default();
                    message.clear();
                    let view = staging
                        .get_mapped_range(0..chunk.len * self.element)
                        .map_err(|e| DeviceError::Lost(e.to_string()))?;
                    message.extend_from_slice(&view);
                    drop(view);
                    staging.unmap();
                    self.sending.push_back(self.comm.send(chunk.peer, TAG, message)?);
                    if let Some((_, staging, _)) = copying.pop_front() {
                        free.push(staging);
                    }
                    moved = true;
                }
            }
        }
        Ok(moved)
    }

    fn close(&mut self) {
        let empty = Source::Staged { free: Vec::new(), copying: VecDeque::new() };
        if matches!(std::mem::replace(&mut self.source, empty), Source::Mapped) {
            self.array.buffers().for_each(wgpu::Buffer::unmap);
        }
    }
}

impl Drop for Sender<'_> {
    fn drop(&mut self) {
        // After an error too, the array must not stay mapped: its buffers go back to the pool.
        self.close();
    }
}
