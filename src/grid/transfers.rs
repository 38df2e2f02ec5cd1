//! The messages that one rank sends and receives in an exchange, and the order of its peers.

use super::Cost;

/// A contiguous part of an array that is sent to a peer, or received from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Number of the peer in its communicator.
    pub peer: usize,
    /// First element.
    pub start: u64,
    /// Number of elements.
    pub len: u64,
}

/// All parts that this rank sends and receives. The part for itself is copied on the device.
///
/// At most one part per peer and direction; a peer without a part gets no message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Parts of the outgoing array.
    pub send: Vec<Transfer>,
    /// Parts of the incoming array.
    pub receive: Vec<Transfer>,
}

impl Transfer {
    /// Returns the same part of an array with `words` words for each element.
    #[must_use]
    pub fn in_words(self, words: u64) -> Self {
        Transfer { peer: self.peer, start: words * self.start, len: words * self.len }
    }
}

impl Transfers {
    /// Returns the cost for rank `me`, with elements of `element` bytes in messages of at most
    /// `chunk` bytes.
    #[must_use]
    pub fn cost(&self, me: usize, element: u64, chunk: u64) -> Cost {
        let others = |parts: &[Transfer]| {
            parts.iter().filter(|part| part.peer != me).map(|part| part.len * element).collect::<Vec<_>>()
        };
        let sent = others(&self.send);
        Cost {
            sent_bytes: sent.iter().sum(),
            received_bytes: others(&self.receive).iter().sum(),
            messages: sent.iter().map(|bytes| bytes.div_ceil(chunk)).sum(),
            ..Cost::default()
        }
    }
}

/// Returns the other ranks of `ranks`, in the order in which `rank` sends to them, and in the order
/// in which it receives from them. In each step every rank sends to one other and receives from
/// one: the partner of the exclusive-or with the step where `ranks` is a power of two, else ranks
/// at a distance of the step around the ring.
///
/// ```
/// use meshloom::grid::peers;
/// assert_eq!(peers(4, 1), (vec![0, 3, 2], vec![0, 3, 2]));
/// assert_eq!(peers(3, 1), (vec![2, 0], vec![0, 2]));
/// ```
#[must_use]
pub fn peers(ranks: usize, rank: usize) -> (Vec<usize>, Vec<usize>) {
    if ranks.is_power_of_two() {
        let order: Vec<_> = (1..ranks).map(|step| rank ^ step).collect();
        return (order.clone(), order);
    }
    let to = (1..ranks).map(|step| (rank + step) % ranks).collect();
    let from = (1..ranks).map(|step| (rank + ranks - step) % ranks).collect();
    (to, from)
}
