
use std::ops::Range;

use crate::grid::{Cost, Transfer, Transfers, split};

/// An exchange among the ranks of one axis of the process grid, which cuts `from_axis` and makes `to_axis`
/// whole.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transpose {
    /// The axis of the process grid along which ranks exchange.
    pub grid_axis: usize,
    /// The axis of the mesh that is whole before and cut after.
    pub from_axis: usize,
    /// The axis of the mesh that is cut before and whole after.
    pub to_axis: usize,
    /// The axis that the exchange does not change and that is cut into pieces.
    pub third: usize,
    /// The pieces, as ranges of this rank's extent of the third axis.
    pub pieces: Vec<Range<u64>>,
    /// Ranks along the axis of the grid, and this rank's position among them.
    pub(super) ranks: [u64; 2],
    /// Elements of the whole array along `from_axis` and `to_axis`.
    pub(super) lengths: [u64; 2],
    /// Number of fields.
    pub(super) fields: u64,
}

impl Transpose {
    /// Returns this rank's elements along `from_axis` when it is cut.
    pub fn share(&self) -> u64 {
        let part = split(self.lengths[0], self.ranks[0], self.ranks[1]);
        part.end - part.start
    }

    /// Returns the elements along `to_axis` when it is whole.
    pub fn whole(&self) -> u64 {
        self.lengths[1]
    }

    /// Returns the elements of the arrays of one piece, before and after.
    pub fn elements(&self, piece: usize) -> [u64; 2] {
        let transfers = self.transfers(piece);
        let end = |parts: &[Transfer]| parts.iter().map(|part| part.start + part.len).max().unwrap_or(0);
        [end(&transfers.send), end(&transfers.receive)]
    }

    /// Returns the elements that this rank sends and receives in one piece.
    pub fn transfers(&self, piece: usize) -> Transfers {
        let [ranks, me] = self.ranks;
        let [from_axis, to_axis] = self.lengths;
        let planes = self.fields * (self.pieces[piece].end - self.pieces[piece].start);
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
            send: parts(&|peer| planes * len(to_axis, me) * len(from_axis, peer)),
            receive: parts(&|peer| planes * len(to_axis, peer) * len(from_axis, me)),
        }
    }

    /// Returns the elements of one piece that this rank keeps.
    pub fn kept(&self, piece: usize) -> u64 {
        self.transfers(piece).send.iter().filter(|part| part.peer as u64 == self.ranks[1]).map(|part| part.len).sum()
    }

    /// Returns the cost of all pieces for this rank, with elements of `element` bytes in messages of at most
    /// `chunk` bytes.
    pub fn cost(&self, element: u64, chunk: u64) -> Cost {
        let mut cost = Cost::default();
        let chunk = (chunk / element).max(1) * element;
        (0..self.pieces.len())
            .for_each(|piece| cost += self.transfers(piece).cost(self.ranks[1] as usize, element, chunk));
        cost
    }
}
