//! What carries the data of an exchange: chunks of arrays as messages.

use std::collections::VecDeque;

use crate::comm::Communicator;
use crate::gpu::RawArray;
use crate::grid::Transfer;

/// One chunk on its way: which peer, and which elements of the array.
#[derive(Clone, Copy)]
pub(super) struct Chunk {
    pub peer: usize,
    pub start: u64,
    pub len: u64,
}

/// The chunks of an array that travel to or from other ranks.
pub(super) struct ChunkedArray {
    pub chunks: VecDeque<Chunk>,
    pub array: RawArray,
}

impl ChunkedArray {
    /// The parts of each peer in turn, in chunks of `per` elements.
    pub fn new(parts: &[Transfer], order: &[usize], per: u64, array: &RawArray) -> Self {
        let of = |&peer: &usize| parts.iter().filter(move |part| part.peer == peer);
        let cut = |part: &Transfer| {
            let Transfer { peer, start, len } = *part;
            (0..len).step_by(per as usize).map(move |at| Chunk { peer, start: start + at, len: (len - at).min(per) })
        };
        let chunks = order.iter().flat_map(of).flat_map(cut).collect();
        ChunkedArray { chunks, array: array.clone() }
    }
}

/// What carries the chunks of one exchange.
#[derive(Clone)]
pub(super) struct Channel {
    pub comm: Communicator,
    pub tag: u32,
    /// Chunks in flight each way.
    pub depth: usize,
}
