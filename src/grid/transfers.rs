//! What one rank sends and receives in an exchange, as data.

/// A contiguous part of an array that goes to, or comes from, a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the peer in its communicator.
    pub peer: usize,
    /// First element.
    pub start: u64,
    /// Number of elements.
    pub len: u64,
}

/// The parts that this rank sends and those it receives. The part it sends to itself moves inside the device.
///
/// At most one part a peer and direction; a peer without a part gets no message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Parts of the outgoing array.
    pub send: Vec<Part>,
    /// Parts of the incoming array.
    pub receive: Vec<Part>,
}

/// What an exchange costs one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Bytes sent to other ranks.
    pub sent: u64,
    /// Bytes received from other ranks.
    pub received: u64,
    /// Messages sent to other ranks.
    pub messages: u64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.sent += other.sent;
        self.received += other.received;
        self.messages += other.messages;
    }
}

impl Transfers {
    /// The cost for the rank number `me`, with elements of `element` bytes in messages of at most `chunk` bytes.
    pub fn cost(&self, me: usize, element: u64, chunk: u64) -> Cost {
        let others = |parts: &[Part]| {
            parts.iter().filter(|part| part.peer != me).map(|part| part.len * element).collect::<Vec<_>>()
        };
        let sent = others(&self.send);
        Cost {
            sent: sent.iter().sum(),
            received: others(&self.receive).iter().sum(),
            messages: sent.iter().map(|bytes| bytes.div_ceil(chunk)).sum(),
        }
    }
}
