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
        ChunkedArray { chunks: in_order(parts, order).flat_map(|part| cut(part, per)).collect(), array: array.clone() }
    }
}

/// The parts of the peers of `order`, in that order, and of one peer as they stand. Sorted by their peers' places: to look for the parts of each
/// peer would take as many steps as there are pairs of both.
fn in_order(parts: &[Transfer], order: &[usize]) -> impl Iterator<Item = Transfer> + use<> {
    let mut places = vec![usize::MAX; order.iter().max().map_or(0, |last| last + 1)];
    order.iter().enumerate().for_each(|(place, &peer)| places[peer] = place);
    let placed = |part: &Transfer| (places.get(part.peer).copied().unwrap_or(usize::MAX), *part);
    let mut placed: Vec<_> = parts.iter().map(placed).filter(|&(place, _)| place != usize::MAX).collect();
    placed.sort_by_key(|&(place, _)| place); // stable
    placed.into_iter().map(|(_, part)| part)
}

/// A part in chunks of `per` elements.
fn cut(Transfer { peer, start, len }: Transfer, per: u64) -> impl Iterator<Item = Chunk> {
    (0..len).step_by(per as usize).map(move |at| Chunk { peer, start: start + at, len: (len - at).min(per) })
}

/// What carries the chunks of one exchange.
#[derive(Clone)]
pub(super) struct Channel {
    pub comm: Communicator,
    pub tag: u32,
    /// Chunks in flight each way.
    pub depth: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::peers;

    #[test]
    fn parts_stand_in_the_order_of_peers_and_of_one_peer_as_they_stood() {
        let part = |peer, start| Transfer { peer, start, len: 3 };
        let parts = [part(2, 0), part(1, 5), part(0, 9), part(2, 7), part(3, 1)];
        // Rank 1 of 4 sends to 0, 3 and 2, and has nothing of its own in messages.
        let (order, _) = peers(4, 1);
        let found: Vec<Transfer> = in_order(&parts, &order).collect();
        assert_eq!(found, [part(0, 9), part(3, 1), part(2, 0), part(2, 7)]);
        assert_eq!(in_order(&parts, &[]).count(), 0);
    }

    /// More pairs of parts and peers than can be looked at one by one.
    #[test]
    fn many_parts_of_many_peers_are_ordered() {
        let (to, _) = peers(1 << 20, 5);
        let parts: Vec<_> = (0..1 << 20).map(|peer| Transfer { peer, start: peer as u64, len: 1 }).collect();
        let found = in_order(&parts, &to).map(|part| part.peer);
        assert!(found.eq(to.iter().copied()));
    }

    #[test]
    fn a_part_is_cut_into_chunks() {
        let chunks = |len| cut(Transfer { peer: 1, start: 10, len }, 4).map(|chunk| (chunk.start, chunk.len));
        assert!(chunks(9).eq([(10, 4), (14, 4), (18, 1)]) && chunks(0).next().is_none());
    }
}
