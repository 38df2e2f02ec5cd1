//! Walks that take no more rounds of loops than a driver allows.

use super::group_shape::GroupShape;
use crate::gpu::primitives::{Count, Reduce};
use crate::gpu::{Array, DeviceError, Gpu, Recorder};
use crate::points::tree::LEAF;

/// Rounds that a walk may take besides those that it counts: on its way to a leaf, in the loops of a callback's `begin` and `end`.
const SLACK: u32 = 8192;
/// Invocations at most whose rounds a driver counts together.
const VECTOR: u32 = 16;
/// Rounds to get anywhere.
const LEAST: u32 = 1024;

/// After how many rounds walks stop; see [`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds).
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopBudget(Option<u32>);

/// A walk that is cut into portions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Portions {
    /// Rounds after which a portion ends.
    pub rounds: u32,
    /// Rounds that a leaf takes at most.
    pub leaf: u32,
}

/// Rounds that looking at the points of a leaf takes at most: a loop takes one more than it goes round, for llvmpipe counts how often its end
/// is met, by loops behind a condition that does not hold too. That is, all sources loaded by the lanes, tried one by one, and offered.
pub(super) fn scan(form: GroupShape) -> u32 {
    let (leaf, loads) = (LEAF as u32, LEAF as u32 / form.lanes + 1);
    loads + (leaf + loads) + (leaf + 1)
}

/// The same where points are linked, but for the way to roots: each source is joined with the trees of a lane's queries, each at most once for
/// every source and once when two become one.
pub(super) fn link(form: GroupShape) -> u32 {
    scan(form) + 3 * LEAF as u32 + form.slots + 1
}

/// Whether any group of queries has to go on. Waits.
pub(super) fn unfinished(recorder: &mut Recorder, reduce: &Reduce, cursor: &Array<u32>) -> Result<bool, DeviceError> {
    let least = recorder.gpu().array::<u32>("neighbors::least", 1)?;
    reduce.min(recorder, cursor, &least, Count::All)?;
    Ok(recorder.download(&least, 0, 1)?[0] != u32::MAX)
}

impl LoopBudget {
    pub fn of(gpu: &Gpu) -> Self {
        LoopBudget(gpu.capabilities().loop_rounds.map(|rounds| rounds - SLACK))
    }

    /// Other rounds, for tests and for drivers that are not known.
    pub fn new(rounds: Option<u32>) -> Self {
        LoopBudget(rounds.map(|rounds| rounds.max(LEAST)))
    }

    /// After how many rounds a walk stops that links what it finds, where ways to roots take rounds of each lane's own: up to a 64th of
    /// these besides, in each lane.
    pub fn linking(&self, form: GroupShape) -> Option<u32> {
        let rounds = if form.lanes == 1 { (self.0? / VECTOR).max(LEAST) } else { self.0? };
        Some(rounds / (64 + VECTOR) * 64)
    }

    /// How a walk through a tree of so many `leaves` is cut, if it could take too many rounds. `each` are those that what is
    /// done with a neighbour takes.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] where a single leaf would take more rounds than there are.
    pub fn portions(&self, form: GroupShape, leaves: u64, each: u32) -> Result<Option<Portions>, DeviceError> {
        let Some(mut rounds) = self.0 else { return Ok(None) };
        if form.lanes == 1 {
            // Drivers count the rounds of a vector of invocations, which here go ways of their own.
            rounds = (rounds / VECTOR).max(LEAST);
        }
        let offered = (LEAF as u32 + 1) * form.slots;
        let leaf = scan(form).saturating_add(offered.saturating_mul(each.saturating_add(u32::from(each > 0))));
        // A node costs 18 rounds, and there are leaves / 7 nodes; paths to where a portion begins are gone again.
        let all = leaves * u64::from(leaf.saturating_add(3));
        let usable = rounds - LEAST / 2;
        if all <= u64::from(usable) {
            return Ok(None);
        }
        if leaf > usable {
            let most = (usable.saturating_sub(scan(form)) / offered).saturating_sub(1);
            let why = format!("this driver ends loops early: a neighbour can have {most} rounds here, not {each}");
            return Err(DeviceError::Misuse { what: "Callback::loop_rounds".into(), why });
        }
        Ok(Some(Portions { rounds, leaf }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_trees_are_walked_in_portions() {
        let form = GroupShape { lanes: 8, slots: 4 };
        assert_eq!(LoopBudget::new(None).portions(form, 1 << 26, 0).unwrap(), None);
        let rounds = LoopBudget::new(Some(57_343));
        assert_eq!(rounds.portions(form, 720, 0).unwrap(), None);
        let portions = rounds.portions(form, 31_250, 0).unwrap().unwrap();
        assert_eq!((portions.rounds, portions.leaf), (57_343, 75));
        // Each portion gets somewhere.
        let least = LoopBudget::new(Some(1)).portions(form, 31_250, 0).unwrap().unwrap();
        assert!(least.rounds > least.leaf + 17 * 12);
    }

    #[test]
    fn a_leaf_that_no_portion_holds_is_refused() {
        let (form, rounds) = (GroupShape { lanes: 8, slots: 4 }, LoopBudget::new(Some(57_343)));
        assert!(rounds.portions(form, 31_250, 428).unwrap().is_some());
        assert!(rounds.portions(form, 31_250, 430).is_err());
        assert!(rounds.portions(form, 31_250, u32::MAX).is_err());
        assert!(LoopBudget::new(None).portions(form, 31_250, u32::MAX).unwrap().is_none());
    }
}
