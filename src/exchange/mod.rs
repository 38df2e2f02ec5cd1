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
mod receiver;
mod sender;

use std::collections::VecDeque;

pub use lines::Lines;
use receiver::Receiver;
use sender::Sender;

use crate::comm::{CommError, Communicator};
use crate::device::{Array, DeviceError, Plain, Recorder};
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

    /// Chunks in flight each way.
    pub fn depth(&self) -> usize {
        self.depth
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
