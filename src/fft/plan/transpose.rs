//! What ranks exchange between two visits.

use std::ops::Range;

use crate::grid::{Cost, Transfer, Transfers, split};

/// An exchange between two visits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transpose {
    /// Axis of the process grid along which ranks exchange.
    pub line: usize,
    /// The axis that goes: whole before, cut after.
    pub goes: usize,
    /// The axis that comes: cut before, whole after.
    pub comes: usize,
    /// The axis that takes no part and is cut into pieces.
    pub third: usize,
    /// The pieces, as ranges of this rank's extent of the third axis.
    pub pieces: Vec<Range<u64>>,
    /// Ranks in the line, and this rank's place.
    pub(super) ranks: [u64; 2],
    /// Elements of the whole array along the axes that go and come.
    pub(super) lengths: [u64; 2],
    /// Fields.
    pub(super) fields: u64,
}

impl Transpose {
    /// This rank's elements along the axis that goes, when it is cut.
    pub fn share(&self) -> u64 {
        let part = split(self.lengths[0], self.ranks[0], self.ranks[1]);
        part.end - part.start
    }

    /// Elements along the axis that comes, when it is whole.
    pub fn whole(&self) -> u64 {
        self.lengths[1]
    }

    /// Elements of one piece's arrays, before and after.
    pub fn elements(&self, piece: usize) -> [u64; 2] {
        let transfers = self.transfers(piece);
        let end = |parts: &[Transfer]| parts.iter().map(|part| part.start + part.len).max().unwrap_or(0);
        [end(&transfers.send), end(&transfers.receive)]
    }

    /// What goes where in one piece, in elements.
    pub fn transfers(&self, piece: usize) -> Transfers {
        let [ranks, me] = self.ranks;
        let [goes, comes] = self.lengths;
        let thick = self.fields * (self.pieces[piece].end - self.pieces[piece].start);
        let len = |n: u64, i: u64| {
            let part = split(n, ranks, i);
            part.end - part.start
        };
        let parts = |size: &dyn Fn(u64) -> u64| {
            let mut start = 0;
            (0..ranks)
                .map(|peer| {
                    let part = Transfer { peer: peer as usize, start, len: size(peer) };
                    start += part.len;
                    part
                })
                .collect()
        };
        Transfers {
            send: parts(&|peer| thick * len(comes, me) * len(goes, peer)),
            receive: parts(&|peer| thick * len(comes, peer) * len(goes, me)),
        }
    }

    /// Elements of one piece that this rank keeps.
    pub fn kept(&self, piece: usize) -> u64 {
        self.transfers(piece).send.iter().filter(|part| part.peer as u64 == self.ranks[1]).map(|part| part.len).sum()
    }

    /// What all pieces cost this rank, with elements of `element` bytes in messages of at most `chunk` bytes.
    pub fn cost(&self, element: u64, chunk: u64) -> Cost {
        let mut cost = Cost::default();
        let chunk = (chunk / element).max(1) * element;
        (0..self.pieces.len())
            .for_each(|piece| cost += self.transfers(piece).cost(self.ranks[1] as usize, element, chunk));
        cost
    }
}
