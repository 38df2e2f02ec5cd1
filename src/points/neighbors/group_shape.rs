//! Grouping of queries in a search, and the rounds of loops that a traversal may take.
//!
//! Some drivers end all loops of an invocation after a number of rounds without an error (llvmpipe:
//! 65,535). A traversal that could take more is cut into portions, each a dispatch.

use crate::comm::Op;
use crate::gpu::primitives::{Count, Reduce};
use crate::gpu::{Array, Capabilities, DeviceError, Gpu, Profile, Recorder};
use crate::points::tree::{FAN, LEAF};

/// Which invocations traverse a tree together, and through what they share what they load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lanes {
    /// Each by itself: no optional feature, no workgroup memory.
    Alone,
    /// The invocations of a subgroup, of any size. They share through registers.
    Subgroup {
        /// The fewest there can be: a power of two from 4 on, up to the device's own least.
        least: u32,
        /// Invocations of a workgroup, rounded up to whole subgroups of any size that the device
        /// has.
        workgroup: u32,
    },
    /// This number of invocations, a workgroup: a power of two, at least 32. They share through
    /// workgroup memory, with barriers: no optional feature.
    Workgroup(u32),
}

/// The shape of a group of queries that traverse a tree together: `slots` queries in each of its
/// lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupShape {
    /// Its invocations.
    pub lanes: Lanes,
    /// Queries per invocation, which follow each other on the curve: a power of two of at most 32.
    pub slots: u32,
}

/// Invocations of a workgroup of groups that are subgroups, on GPUs. Cores hold a number of
/// workgroups, 32 on an H100, whatever their size: with one group each half of its 64 subgroups
/// would stay empty.
const SUBGROUPS: u32 = 64;
/// Maximum number of queries of a subgroup. NVIDIA's compiler (580.159 on an H100) miscompiles
/// kernels with eight lists of eight entries in each of 32 lanes: they miss neighbors, always the
/// same ones. An interpreter of the same text finds them all, and up to 128 queries all forms
/// agree. No device gets such groups by default.
const MOST_QUERIES: u32 = 128;
/// Invocations of a workgroup of groups of one.
const ALONE: u32 = 32;

impl GroupShape {
    /// Creates the shape for devices of this kind. On GPUs the lanes of a subgroup with one query
    /// each, since more would not fit into registers, or where votes need workgroup memory a leaf
    /// of them. On software renderers the shape that measured fastest (`benches/results`): the
    /// lanes of one subgroup with up to four queries each, at most a leaf in all, where there are
    /// subgroup operations; else four queries per invocation.
    #[must_use]
    pub fn of(gpu: &Gpu) -> Self {
        Self::fitting(gpu.capabilities())
    }

    fn fitting(capabilities: &Capabilities) -> Self {
        let Capabilities { subgroup_least, subgroup_most, .. } = *capabilities;
        let leaf = LEAF as u32;
        match capabilities.profile {
            Profile::Gpu if subgroup_least < 8 => GroupShape { lanes: Lanes::Workgroup(leaf), slots: 1 },
            Profile::Gpu => GroupShape::subgroups(subgroup_least, SUBGROUPS.max(subgroup_most), 1),
            Profile::Software if subgroup_least < 4 => GroupShape { lanes: Lanes::Alone, slots: 4 },
            // More than four lists per invocation take long to compile, and crash SwiftShader's
            // compiler.
            Profile::Software => {
                GroupShape::subgroups(subgroup_least, subgroup_most, (leaf / subgroup_least).clamp(1, 4))
            }
        }
    }

    /// Lanes of subgroups.
    const fn subgroups(least: u32, workgroup: u32, slots: u32) -> Self {
        GroupShape { lanes: Lanes::Subgroup { least, workgroup }, slots }
    }

    /// Creates the shape for linking, which keeps little per query: eight queries per invocation on
    /// software renderers (measured), for which loading a word once per invocation takes as long as
    /// once per subgroup.
    #[must_use]
    pub fn linking(gpu: &Gpu) -> Self {
        let form = GroupShape::of(gpu);
        match (gpu.capabilities().profile, form.lanes) {
            (Profile::Software, Lanes::Subgroup { .. }) => GroupShape { slots: 8, ..form },
            _ => form,
        }
    }

    /// Returns the shape limited to what a device allows: whole subgroups of its sizes, groups of
    /// at most 128 queries, and workgroup memory if it has no subgroups.
    pub(super) fn on(self, gpu: &Gpu) -> Self {
        let Capabilities { subgroup_least, subgroup_most, .. } = *gpu.capabilities();
        let slots = self.slots.clamp(1, 32).next_power_of_two();
        let slots = match self.lanes {
            Lanes::Subgroup { .. } => slots.min((MOST_QUERIES / subgroup_most).max(1)),
            Lanes::Workgroup(_) | Lanes::Alone => slots,
        };
        let lanes = match self.lanes {
            Lanes::Subgroup { .. } if subgroup_least < 4 => Lanes::Workgroup(LEAF as u32),
            Lanes::Subgroup { least, workgroup } => Lanes::Subgroup {
                least: least.clamp(4, subgroup_least),
                workgroup: workgroup.clamp(1, 256).next_multiple_of(subgroup_most),
            },
            Lanes::Workgroup(lanes) => Lanes::Workgroup(lanes.clamp(LEAF as u32, 256).next_power_of_two()),
            Lanes::Alone => Lanes::Alone,
        };
        GroupShape { lanes, slots }
    }

    /// Returns `true` if accepted sources wait in queues to be inserted into lists together: with
    /// one query per lane of a subgroup, as on GPUs. Software renderers take longer with queues,
    /// and votes of workgroups need barriers.
    pub(super) fn queues(&self) -> bool {
        matches!(self.lanes, Lanes::Subgroup { .. }) && self.slots == 1
    }

    /// Lanes of a group at least.
    pub(super) fn least_lanes(&self) -> u32 {
        match self.lanes {
            Lanes::Alone => 1,
            Lanes::Subgroup { least: lanes, .. } | Lanes::Workgroup(lanes) => lanes,
        }
    }

    /// Queries per group, at least.
    #[must_use]
    pub fn queries(&self) -> u64 {
        u64::from(self.least_lanes() * self.slots)
    }

    /// Children of a node that a lane looks at.
    pub(super) fn children(&self) -> u32 {
        (FAN as u32).div_ceil(self.least_lanes())
    }

    /// Invocations of a workgroup.
    pub(super) fn workgroup(&self) -> u32 {
        match self.lanes {
            Lanes::Alone => ALONE,
            Lanes::Subgroup { workgroup, .. } | Lanes::Workgroup(workgroup) => workgroup,
        }
    }

    /// Queries per workgroup.
    pub(super) fn block(&self) -> u64 {
        u64::from(self.workgroup() * self.slots)
    }

    /// Workgroups for this number of queries.
    pub(super) fn workgroups(&self, queries: u64) -> u64 {
        queries.div_ceil(self.block())
    }
}

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
