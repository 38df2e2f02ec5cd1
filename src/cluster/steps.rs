//! Steps of one rank, as a forecast gives them to the model.

use crate::grid::{Grid, Transfers};

/// A step of the host thread of a rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Records a pass.
    Pass {
        work: Work,
        /// Bytes of device memory that it reads and writes.
        bytes: u64,
    },
    /// Submits what was recorded and starts an exchange.
    Start(Start),
    /// Waits until the first exchange in flight is done; the others move meanwhile.
    Finish,
}

/// The kind of a pass, which decides its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A pass of a transform, or one that packs or unpacks messages.
    Mesh,
    /// A pass over particles.
    Particles,
    /// A copy within a device.
    Copy,
}

/// An exchange of one rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Start {
    /// The ranks of its communicator.
    pub line: Line,
    /// Elements that this rank sends and receives.
    pub transfers: Transfers,
    /// Bytes of an element.
    pub element_bytes: u64,
}

/// The ranks along one axis of a process grid, or all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The axis; the last one for all ranks, which it does not cut.
    pub axis: usize,
    first: usize,
    stride: usize,
    /// Ranks of the line.
    pub len: usize,
    /// The place of this rank in the line.
    pub place: usize,
}

impl Line {
    /// Returns the line along `axis` of `grid` through `rank`.
    pub fn new(grid: &Grid, rank: usize, axis: usize) -> Self {
        let (at, stride) = (grid.at(rank), if axis == 0 { grid.along(1) } else { 1 });
        Line { axis, first: rank - at[axis] * stride, stride, len: grid.along(axis), place: at[axis] }
    }

    /// Returns the line of all ranks of `grid`, with the place of `rank`.
    pub fn world(grid: &Grid, rank: usize) -> Self {
        Line { axis: 2, first: 0, stride: 1, len: grid.ranks(), place: rank }
    }

    /// Returns the number among all ranks of rank `peer` of the line.
    pub fn rank(&self, peer: usize) -> usize {
        self.first + peer * self.stride
    }
}

impl Step {
    /// Returns the exchange that the step starts.
    pub fn start(&self) -> Option<&Start> {
        if let Step::Start(start) = self { Some(start) } else { None }
    }
}

impl Start {
    /// Returns the bytes that the rank keeps, which its device copies.
    pub fn kept_bytes(&self) -> u64 {
        let kept = self.transfers.send.iter().filter(|part| part.peer == self.line.place);
        kept.map(|part| part.len * self.element_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_ranks_of_its_axis() {
        let grid = Grid::new([3, 4], 12).unwrap();
        for rank in 0..12 {
            for axis in 0..2 {
                let line = Line::new(&grid, rank, axis);
                let ranks: Vec<usize> = (0..line.len).map(|peer| line.rank(peer)).collect();
                assert_eq!(ranks, grid.neighbors(rank, axis));
                assert_eq!(ranks[line.place], rank);
            }
        }
    }
}
