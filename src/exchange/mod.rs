//! Staged exchange: device data of one rank to device data of another, through the host.
//!
//! [`Exchange::run`] moves the parts that [`Transfers`] describe out of one array into another:
//!
//! ```text
//! outgoing array -> (staging) -> message | message -> (staging) -> incoming array
//! ```
//!
//! Parts are cut into chunks of [`Exchange::chunk_bytes`]; a fixed number of chunks is in flight in either direction, so
//! that copying, sending, receiving and uploading overlap and the memory in use stays small enough for the last-level
//! cache. Peers are served in the order of [`peers`](crate::layout::peers). What a rank sends itself is copied on the
//! device. Where device memory is host memory anyway ([`Memory::Outgoing`](crate::device::Memory), software renderers,
//! integrated GPUs), messages are read from and written to the arrays themselves.
//!
//! An exchange submits what was recorded before it, and returns when its data has been handed to the device: work
//! recorded after it sees it. All ranks of the communicator take part.

mod lines;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

pub use lines::Lines;

use crate::comm::{CommError, Communicator, Receiving, Sending};
use crate::device::{Array, DeviceError, Plain, RawArray, Recorder};
use crate::layout::{Cost, Part, Transfers, peers};

/// An exchange that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// On the device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Between the ranks.
    #[error(transparent)]
    Comm(#[from] CommError),
}

/// How data travels: the communicator and the size and number of chunks.
#[derive(Clone)]
pub struct Exchange {
    comm: Communicator,
    chunk_bytes: u64,
    depth: usize,
    cost: Cost,
}

/// User tag of all exchanges; messages of one tag arrive in the order they were sent.
const TAG: u32 = 0x6d65;

/// One chunk on its way: which peer, and which elements of the array.
#[derive(Clone, Copy)]
struct Chunk {
    peer: usize,
    start: u64,
    len: u64,
}

impl Exchange {
    /// Exchanges over `comm` in chunks of 2 MiB, eight in flight each way.
    pub fn new(comm: Communicator) -> Self {
        Exchange { comm, chunk_bytes: 2 << 20, depth: 8, cost: Cost::default() }
    }

    /// The same with other chunks: `chunk_bytes` a chunk (rounded to whole elements, at least one) and `depth` of them
    /// in flight each way. Must be equal on all ranks.
    #[must_use]
    pub fn with_chunks(mut self, chunk_bytes: u64, depth: usize) -> Self {
        (self.chunk_bytes, self.depth) = (chunk_bytes.max(1), depth.max(1));
        self
    }

    /// The ranks it runs over.
    pub fn comm(&self) -> &Communicator {
        &self.comm
    }

    /// Bytes a chunk.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// What all exchanges so far have cost this rank.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Moves the parts of `transfers` from `outgoing` to `incoming`, two different arrays.
    ///
    /// # Errors
    /// [`ExchangeError`] when the device or another rank fails, or a part does not lie in its array.
    pub fn run<T: Plain>(
        &mut self,
        recorder: &mut Recorder,
        transfers: &Transfers,
        outgoing: &Array<T>,
        incoming: &Array<T>,
    ) -> Result<(), ExchangeError> {
        let me = self.comm.rank();
        let own = |parts: &[Part]| parts.iter().find(|part| part.peer == me && part.len > 0).copied();
        if let (Some(from), Some(to)) = (own(&transfers.send), own(&transfers.receive)) {
            recorder.copy(outgoing, from.start, incoming, to.start, from.len)?;
        }
        let element = T::ELEMENT.bytes();
        let (to, from) = peers(self.comm.size(), me);
        let per = (self.chunk_bytes / element).max(1);
        let (out, inn) = (chunks(&transfers.send, &to, per), chunks(&transfers.receive, &from, per));
        for (parts, array) in [(&transfers.send, outgoing), (&transfers.receive, incoming)] {
            if let Some(part) = parts.iter().find(|part| part.start + part.len > array.len()) {
                let why = format!("{} elements from {} of an array of {}", part.len, part.start, array.len());
                return Err(DeviceError::Misuse { what: "Exchange::run".into(), why }.into());
            }
        }
        if out.is_empty() && inn.is_empty() {
            return Ok(());
        }
        recorder.submit()?;
        let cost = transfers.cost(me, element, per * element);
        let (mut receiver, mut idle) = (Receiver::new(&self.comm, inn, incoming.raw(), element), 0);
        let mut sender = Sender::new(recorder, &self.comm, out, outgoing.raw(), element, self.depth)?;
        receiver.open(recorder)?;
        loop {
            let moved = sender.progress(recorder)? | receiver.progress(recorder, self.depth)?;
            if sender.done() && receiver.done() {
                break;
            }
            idle = if moved { 0 } else { idle + 1 };
            // Spinning wins while the other side is quick; then leave the core to it.
            match idle {
                0..64 => std::hint::spin_loop(),
                64..256 => std::thread::yield_now(),
                _ => std::thread::sleep(std::time::Duration::from_micros(50)),
            }
        }
        self.cost += cost;
        Ok(())
    }
}

fn chunks(parts: &[Part], order: &[usize], per: u64) -> VecDeque<Chunk> {
    let of = |&peer: &usize| parts.iter().filter(move |part| part.peer == peer);
    let cut = |part: &Part| {
        let Part { peer, start, len } = *part;
        (0..len).step_by(per as usize).map(move |at| Chunk { peer, start: start + at, len: (len - at).min(per) })
    };
    order.iter().flat_map(of).flat_map(cut).collect()
}

/// Where the sender's bytes come from.
enum Source {
    /// The array itself, mapped while the exchange runs.
    Mapped,
    /// Staging buffers that chunks are copied to by the device.
    Staged { free: Vec<wgpu::Buffer>, copying: VecDeque<(Chunk, wgpu::Buffer, Arc<AtomicU8>)> },
}

struct Sender<'a> {
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
    fn new(
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

    fn done(&self) -> bool {
        let copied = !matches!(&self.source, Source::Staged { copying, .. } if !copying.is_empty());
        self.chunks.is_empty() && copied && self.sending.is_empty()
    }

    fn progress(&mut self, recorder: &mut Recorder) -> Result<bool, ExchangeError> {
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

struct Receiver<'a> {
    comm: &'a Communicator,
    chunks: VecDeque<Chunk>,
    array: &'a RawArray,
    element: u64,
    receiving: VecDeque<(Chunk, Receiving)>,
    mapped: bool,
}

impl<'a> Receiver<'a> {
    fn new(comm: &'a Communicator, chunks: VecDeque<Chunk>, array: &'a RawArray, element: u64) -> Self {
        Receiver { comm, chunks, array, element, receiving: VecDeque::new(), mapped: false }
    }

    fn open(&mut self, recorder: &mut Recorder) -> Result<(), DeviceError> {
        if self.array.mappable() && !self.chunks.is_empty() {
            for buffer in self.array.buffers() {
                recorder.await_map(buffer, wgpu::MapMode::Write, 0, buffer.size())?;
            }
            self.mapped = true;
        }
        Ok(())
    }

    fn done(&self) -> bool {
        self.chunks.is_empty() && self.receiving.is_empty()
    }

    fn progress(&mut self, recorder: &mut Recorder, depth: usize) -> Result<bool, ExchangeError> {
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
