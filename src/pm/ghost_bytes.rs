//! Bytes of the ghost cells of a force between ranks. Pure.

use crate::grid::{GhostPlan, Sweep};

/// 32-bit words of a cell: a painted 64-bit integer, and three components of a force.
pub(super) const PAINTED: u64 = 2;
pub(super) const COMPONENTS: u64 = 3;

/// Returns the bytes that a rank sends for the ghost cells of a force.
pub(super) fn ghost_bytes(plan: &GhostPlan) -> u64 {
    let of_sweep = |sweep: &Sweep| {
        let place = plan.grid.at(plan.rank)[sweep.axis];
        let sent =
            |words: u64, is_reduction: bool| sweep.transfers(words, is_reduction).cost(place, 4, u64::MAX).sent_bytes;
        sent(PAINTED, true) + sent(COMPONENTS, false)
    };
    plan.sweeps.iter().map(of_sweep).sum()
}
