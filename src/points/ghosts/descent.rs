//! Finding which points of this rank are near which points of others: ranks descend their trees together.
//!
//! A rank that wants to know sends the boxes of its topmost nodes to the ranks near them. Each answers with the box around what it has
//! there, and the next round sends the nodes below those that got an answer and reach that box, down to leaves. So a rank
//! sends few boxes far from other ranks' points, and none of them is tested against all boxes of another rank.

use bytemuck::{Pod, Zeroable};

use super::ask::ask;
use super::bounding_box::BoundingBox;
use super::region::{Reach, Region};
use crate::comm::{CommError, Communicator};
use crate::grid::Cost;

/// What all ranks know of each other.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Outline {
    bounds: BoundingBox,
    levels: u32,
}

/// A node of the present level, the rank that is asked, and the box around what that has near it.
#[derive(Clone, Copy)]
struct Ask {
    rank: u32,
    node: u64,
    near: BoundingBox,
}

/// A point of this rank, and a rank that may have points within its reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub rank: u32,
    /// Place along the curve.
    pub at: usize,
}

/// One descent of this rank's tree; all ranks descend together.
pub(crate) struct Descent<'a> {
    comm: &'a Communicator,
    region: &'a Region,
    reach: &'a Reach,
    /// By rank.
    asks: Vec<Ask>,
    rounds: usize,
    cost: Cost,
}

impl<'a> Descent<'a> {
    /// Begins with the topmost nodes of `region`, and the ranks for which `asked` holds. `others` is this rank's own points as others ask
    /// about them. One all-gather of 28 bytes a rank. All ranks call it.
    pub fn new(
        comm: &'a Communicator,
        region: &'a Region,
        reach: &'a Reach,
        others: &Region,
        asked: impl Fn(usize) -> bool,
    ) -> Result<Self, CommError> {
        let outlines = comm.all_gather(&[Outline { bounds: others.bounds(), levels: region.levels.count() as u32 }])?;
        let rounds = outlines.iter().map(|outline| outline.levels as usize).max().unwrap_or(0);
        let mut descent = Descent { comm, region, reach, asks: Vec::new(), rounds, cost: Cost::default() };
        for (rank, &Outline { bounds: near, .. }) in outlines.iter().enumerate() {
            if rank != comm.rank() && asked(rank) && !near.is_empty() {
                let ask = |node| Ask { rank: rank as u32, node, near };
                let top = region.top().map(ask).filter(|ask| descent.reaches(region.levels.count() - 1, ask));
                descent.asks.extend(top.collect::<Vec<_>>());
            }
        }
        Ok(descent)
    }

    /// Descends to the points. `request` makes what is sent for a node, given its level and its number there; `answer` takes what a rank has sent, and gives the box around what is near it here, or an empty one. Returns this rank's points that are
    /// within reach of the last answers, by rank and place, and what it has cost. Two exchanges of the host a level. All ranks call it.
    pub fn run<T: Pod>(
        mut self,
        request: impl Fn(usize, u64) -> T,
        mut answer: impl FnMut(usize, &T) -> BoundingBox,
    ) -> Result<(Vec<Pending>, Cost), CommError> {
        let own = self.region.levels.count();
        for round in 0..self.rounds {
            // Ranks with fewer levels are done earlier, and only answer then.
            let level = own.checked_sub(round + 1);
            let requests =
                level.map_or_else(Vec::new, |level| self.asks.iter().map(|ask| request(level, ask.node)).collect());
            let ranks = level.map_or_else(Vec::new, |_| self.asks.iter().map(|ask| ask.rank).collect());
            let (answers, cost) = ask(self.comm, &requests, &ranks, &mut answer)?;
            self.cost += cost;
            let Some(level) = level else { continue };
            self.asks.iter_mut().zip(answers).for_each(|(ask, near)| ask.near = near);
            self.asks.retain(|ask| !ask.near.is_empty());
            if let Some(below) = level.checked_sub(1) {
                self.asks = self.children(level, below);
            }
        }
        Ok((self.points(), self.cost))
    }

    /// The nodes below those that were asked about, as far as they reach what is near.
    fn children(&self, level: usize, below: usize) -> Vec<Ask> {
        let held = |ask: &Ask| {
            let ask = *ask;
            self.region.levels.children(level, ask.node).map(move |node| Ask { node, ..ask })
        };
        self.asks.iter().flat_map(held).filter(|ask| self.reaches(below, ask)).collect()
    }

    /// Whether a node reaches what is near.
    fn reaches(&self, level: usize, ask: &Ask) -> bool {
        let reach = self.reach.of_node(self.region, level, ask.node);
        self.region.node(level, ask.node).may_reach(&ask.near, reach, &self.region.side)
    }

    /// The points of leaves that reach what is near.
    fn points(&self) -> Vec<Pending> {
        let mut points = Vec::new();
        for ask in &self.asks {
            let held = self.region.levels.points(0, ask.node).map(|at| at as usize);
            let reaches = |at: &usize| {
                let point = BoundingBox::point(self.region.point(*at));
                point.may_reach(&ask.near, self.reach.of_point(*at), &self.region.side)
            };
            points.extend(held.filter(reaches).map(|at| Pending { rank: ask.rank, at }));
        }
        points
    }
}
