//! Messages of an exchange, and the chunks in which devices copy them: pure data.

use std::collections::VecDeque;

use super::Transfer;

/// Size and number of the chunks of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunking {
    /// Bytes of a chunk, and of a message, at most.
    pub bytes: u64,
    /// Chunks in flight each way that lie in buffers.
    pub depth: usize,
}

impl Chunking {
    /// The usual chunks. Larger ones gain nothing by the model of nodes of H100s, and take memory.
    pub const USUAL: Chunking = Chunking { bytes: 2 << 20, depth: 8 };

    /// Returns the elements of a chunk at most, of elements of `element_bytes` bytes.
    pub fn elements(&self, element_bytes: u64) -> u64 {
        (self.bytes / element_bytes).max(1)
    }

    /// Returns the chunks that leave `depth` room for, if `waiting` have not been copied and
    /// `in_flight` are under way: half of them at most in one submission, so that some are copied
    /// while others are sent.
    pub fn batch(&self, waiting: usize, in_flight: usize) -> usize {
        (self.depth - in_flight.min(self.depth)).min(self.depth.div_ceil(2)).min(waiting)
    }
}

/// Content of one message: a part of the array, and its place in its chunk, in elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Message {
    pub part: Transfer,
    pub at: u64,
    /// Whether it begins what one rank sends to another: it says what that is.
    pub first: bool,
}

/// Content of one staging buffer. Short parts of several peers share one: a buffer costs the device
/// a submission, and the host a mapping, however little it holds.
#[derive(Debug, PartialEq)]
pub(crate) struct Chunk {
    /// In the order of the peers.
    pub messages: Vec<Message>,
    /// Ranges of the array, (start, length), in the order in which they lie in the chunk: parts
    /// next to each other are copied together.
    pub ranges: Vec<(u64, u64)>,
}

impl Chunk {
    /// Returns a chunk of messages, none of them empty, whose places it finds.
    fn new(mut messages: Vec<Message>) -> Chunk {
        let mut along: Vec<usize> = (0..messages.len()).collect();
        along.sort_by_key(|&i| messages[i].part.start);
        let (mut at, mut ranges): (u64, Vec<(u64, u64)>) = (0, Vec::new());
        for i in along {
            let Transfer { start, len, .. } = messages[i].part;
            messages[i].at = at;
            at += len;
            match ranges.last_mut() {
                Some((first, so_far)) if *first + *so_far == start => *so_far += len,
                _ => ranges.push((start, len)),
            }
        }
        Chunk { messages, ranges }
    }

    /// Elements in it.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|&(_, len)| len).sum()
    }
}

/// Returns the chunks of the parts of each peer of `order` in turn, of `per` elements at most.
pub(crate) fn chunks(parts: &[Transfer], order: &[usize], per: u64) -> VecDeque<Chunk> {
    packed(in_order(parts, order).flat_map(|part| cut(part, per)), per)
}

/// Messages of up to `per` elements in chunks of as many, in their order.
fn packed(messages: impl Iterator<Item = Message>, per: u64) -> VecDeque<Chunk> {
    let (mut chunks, mut open, mut len) = (VecDeque::new(), Vec::new(), 0);
    for message in messages {
        if len + message.part.len > per && !open.is_empty() {
            chunks.push_back(Chunk::new(std::mem::take(&mut open)));
            len = 0;
        }
        len += message.part.len;
        open.push(message);
    }
    if !open.is_empty() {
        chunks.push_back(Chunk::new(open));
    }
    chunks
}

/// Returns the parts of the peers of `order`, in that order, and of one peer as they stand. Sorted
/// by their peers' places: to look for the parts of each peer would take as many steps as there are
/// pairs of both.
fn in_order(parts: &[Transfer], order: &[usize]) -> impl Iterator<Item = Transfer> + use<> {
    let mut places = vec![usize::MAX; order.iter().max().map_or(0, |last| last + 1)];
    order.iter().enumerate().for_each(|(place, &peer)| places[peer] = place);
    let placed = |part: &Transfer| (places.get(part.peer).copied().unwrap_or(usize::MAX), *part);
    let mut placed: Vec<_> = parts.iter().map(placed).filter(|&(place, _)| place != usize::MAX).collect();
    placed.sort_by_key(|&(place, _)| place); // stable
    placed.into_iter().map(|(_, part)| part)
}

/// A part as messages of up to `per` elements.
fn cut(Transfer { peer, start, len }: Transfer, per: u64) -> impl Iterator<Item = Message> {
    (0..len).step_by(per as usize).map(move |at| {
        let part = Transfer { peer, start: start + at, len: (len - at).min(per) };
        Message { part, at: 0, first: at == 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::super::transfers::peers;
    use super::*;

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
    fn a_part_is_cut_into_messages() {
        let messages = |len| cut(Transfer { peer: 1, start: 10, len }, 4).map(|m| (m.part.start, m.part.len, m.first));
        assert!(messages(9).eq([(10, 4, true), (14, 4, false), (18, 1, false)]) && messages(0).next().is_none());
    }

    /// Parts of 3 elements in chunks of 8: two share one, in the order of the array, and what lies
    /// next to each other there is one range.
    #[test]
    fn short_parts_of_several_peers_share_a_chunk() {
        let part = |peer, start, len| Transfer { peer, start, len };
        let parts = [part(4, 23, 3), part(3, 20, 3), part(1, 0, 8), part(0, 40, 3), part(2, 30, 3)];
        let chunks = packed(parts.into_iter().flat_map(|part| cut(part, 8)), 8);
        let messages: Vec<Vec<(usize, u64)>> =
            chunks.iter().map(|chunk| chunk.messages.iter().map(|m| (m.part.peer, m.at)).collect()).collect();
        assert_eq!(messages, [vec![(4, 3), (3, 0)], vec![(1, 0)], vec![(0, 3), (2, 0)]]);
        let ranges: Vec<&[(u64, u64)]> = chunks.iter().map(|chunk| &chunk.ranges[..]).collect();
        assert_eq!(ranges, [&[(20, 6)][..], &[(0, 8)], &[(30, 3), (40, 3)]]);
        assert!(chunks.iter().map(Chunk::len).eq([6, 8, 6]));
        assert!(packed([].into_iter(), 8).is_empty());
    }
}
