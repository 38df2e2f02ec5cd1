//! Grouping of queries in a search.

use crate::gpu::{Capabilities, Gpu, Profile};
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
