//! Traversals that take no more rounds of loops than a driver allows.
//!
//! Some drivers end all loops of an invocation after a number of rounds without an error (llvmpipe:
//! 65,535). A traversal that could take more is cut into portions, each a dispatch.

use super::group_shape::{GroupShape, Lanes};
use crate::comm::Op;
use crate::gpu::primitives::{Count, Reduce};
use crate::gpu::{Array, DeviceError, Gpu, Recorder};
use crate::points::tree::LEAF;

/// Rounds that a traversal may take beside those that it counts: on its way to a leaf, in the loops
/// of a callback's `begin` and `end`.
const SLACK: u32 = 8192;
/// The most invocations whose rounds a driver counts together.
const VECTOR: u32 = 16;
/// The least number of rounds in which a portion makes progress.
const LEAST: u32 = 1024;

/// Groups whose cursors are downloaded rather than reduced on the device first.
pub(super) const FEW: u64 = 64;

/// After how many rounds a traversal stops, if ever; see
/// [`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds).
#[derive(Clone, Copy, Debug)]
pub(super) struct LoopBudget(Option<u32>);

/// A traversal that is cut into portions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Portions {
    /// Rounds after which a portion ends.
    pub rounds: u32,
    /// Rounds that a leaf takes at most.
    pub leaf: u32,
}

/// Upper bound of the rounds of loops per leaf: all sources are loaded by the lanes, tested one by
/// one, and accepted. llvmpipe counts one round extra per loop, also for loops that a condition
/// skips.
pub(super) fn scan(form: GroupShape) -> u32 {
    let (leaf, loads) = (LEAF as u32, LEAF as u32 / form.least_lanes() + 1);
    // One for what is emptied before a leaf.
    1 + loads + (leaf + loads) + (leaf + 1)
}

/// Returns the rounds of linking, without the steps to roots: each source is joined with the trees
/// of a lane's queries, each tree at most once per source and once when two trees are joined.
pub(super) fn link(form: GroupShape) -> u32 {
    scan(form) + 3 * LEAF as u32 + form.slots + 1
}

/// Returns `true` if no group of queries has to go on.
pub(super) fn is_complete(cursor: &[u32]) -> bool {
    cursor.iter().all(|&leaf| leaf == u32::MAX)
}

/// Returns `true` if any group of queries has to go on. Blocks.
pub(super) fn any_unfinished(
    recorder: &mut Recorder,
    reduce: &Reduce,
    cursor: &Array<u32>,
) -> Result<bool, DeviceError> {
    if cursor.len() <= FEW {
        return Ok(!is_complete(&recorder.download(cursor, 0, cursor.len())?));
    }
    let least = recorder.gpu().array::<u32>("neighbors::least", 1)?;
    reduce.record(recorder, Op::Min, cursor, &least, Count::All)?;
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

    /// Refuses rows of lists that an invocation cannot process: the longest has `longest` entries,
    /// and a callback takes `each` rounds per entry.
    ///
    /// # Errors
    /// [`DeviceError::LoopRounds`].
    pub fn check_rows(&self, kernel: &str, longest: u32, each: u32) -> Result<(), DeviceError> {
        // Each loop of the callback takes one round extra.
        let rounds = u64::from(longest) * (1 + u64::from(each));
        match self.0.map(u64::from).filter(|&limit| rounds > limit) {
            Some(limit) => Err(DeviceError::LoopRounds { kernel: kernel.into(), rounds, limit }),
            None => Ok(()),
        }
    }

    /// Returns `true` if there is one.
    pub fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// After how many rounds a linking traversal stops: each lane may take up to a 64th of these
    /// for its own steps to roots besides.
    pub fn linking(&self, form: GroupShape) -> Option<u32> {
        let rounds = if form.lanes == Lanes::Alone { (self.0? / VECTOR).max(LEAST) } else { self.0? };
        Some(rounds / (64 + VECTOR) * 64)
    }

    /// Returns the portions of a traversal of a tree with `leaves` leaves, if it could take too
    /// many rounds. `each` are the rounds that a callback takes per neighbor.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] if a single leaf would take more rounds than the driver allows.
    pub fn portions(&self, form: GroupShape, leaves: u64, each: u32) -> Result<Option<Portions>, DeviceError> {
        let Some(mut rounds) = self.0 else { return Ok(None) };
        if form.lanes == Lanes::Alone {
            // Drivers count the rounds of a vector of invocations, which are groups of their own
            // here.
            rounds = (rounds / VECTOR).max(LEAST);
        }
        let accepted = (LEAF as u32 + 1) * form.slots;
        let leaf = scan(form).saturating_add(accepted.saturating_mul(each.saturating_add(u32::from(each > 0))));
        // A node costs 18 rounds, and there are leaves / 7 nodes; each portion repeats the path to
        // where it begins.
        let all = leaves * u64::from(leaf.saturating_add(3));
        let usable = rounds - LEAST / 2;
        if all <= u64::from(usable) {
            return Ok(None);
        }
        if leaf > usable {
            let most = (usable.saturating_sub(scan(form)) / accepted).saturating_sub(1);
            let why = format!("this driver ends loops early: a neighbor can have {most} rounds here, not {each}");
            return Err(DeviceError::misuse("Callback::loop_rounds", why));
        }
        Ok(Some(Portions { rounds, leaf }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: GroupShape = GroupShape { lanes: Lanes::Subgroup { least: 8, workgroup: 8 }, slots: 4 };

    #[test]
    fn large_trees_are_traversed_in_portions() {
        let form = FORM;
        assert_eq!(LoopBudget::new(None).portions(form, 1 << 26, 0).unwrap(), None);
        let rounds = LoopBudget::new(Some(57_343));
        assert_eq!(rounds.portions(form, 719, 0).unwrap(), None);
        let portions = rounds.portions(form, 31_250, 0).unwrap().unwrap();
        assert_eq!((portions.rounds, portions.leaf), (57_343, 76));
        // Each portion makes progress.
        let least = LoopBudget::new(Some(1)).portions(form, 31_250, 0).unwrap().unwrap();
        assert!(least.rounds > least.leaf + 17 * 12);
    }

    #[test]
    fn a_leaf_that_no_portion_holds_is_refused() {
        let (form, rounds) = (FORM, LoopBudget::new(Some(57_343)));
        assert!(rounds.portions(form, 31_250, 428).unwrap().is_some());
        assert!(rounds.portions(form, 31_250, 430).is_err());
        assert!(rounds.portions(form, 31_250, u32::MAX).is_err());
        assert!(LoopBudget::new(None).portions(form, 31_250, u32::MAX).unwrap().is_none());
    }
}
