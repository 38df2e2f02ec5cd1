//! How queries are grouped in a search.

use crate::gpu::{Gpu, Profile};
use crate::points::tree::{FAN, LEAF};

/// The shape of a group of queries that traverse a tree together: `slots` queries in each of `lanes` invocations. Lanes of one
/// subgroup share what they load; a single lane needs no optional feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupShape {
    /// Invocations of a group: 1, or a power of two of at most 32 that fits the device's least subgroup.
    pub lanes: u32,
    /// Queries per invocation, which follow each other on the curve: a power of two of at most 32.
    pub slots: u32,
}

impl GroupShape {
    /// The shape that measured fastest on devices of this kind (`docs/particles.md`): the lanes of one subgroup with up to four queries
    /// each, at most a leaf in all, where there are subgroup operations; else four queries per invocation.
    pub fn of(gpu: &Gpu) -> Self {
        let most = gpu.capabilities().subgroup_least.min(LEAF as u32);
        if most < 4 {
            return GroupShape { lanes: 1, slots: 4 };
        }
        let lanes = 1 << most.ilog2();
        // More than four lists per invocation take long to compile, and crash SwiftShader's compiler.
        GroupShape { lanes, slots: (LEAF as u32 / lanes).min(4) }
    }

    /// The shape that measured fastest for linking, which keeps little per query: eight queries per invocation on software renderers, for
    /// which loading a word once per invocation takes as long as once per subgroup.
    pub fn linking(gpu: &Gpu) -> Self {
        let form = GroupShape::of(gpu);
        match gpu.capabilities().profile {
            Profile::Software if form.lanes > 1 => GroupShape { slots: 8, ..form },
            _ => form,
        }
    }

    /// Queries per group.
    pub fn queries(&self) -> u64 {
        u64::from(self.lanes * self.slots)
    }

    /// Children of a node that a lane looks at.
    pub(super) fn children(&self) -> u32 {
        (FAN as u32).div_ceil(self.lanes)
    }

    /// Invocations of a workgroup.
    pub(super) fn group(&self) -> u32 {
        if self.lanes == 1 { 32 } else { self.lanes }
    }

    /// Workgroups for this number of groups.
    pub(super) fn workgroups(&self, groups: u64) -> u64 {
        if self.lanes == 1 { groups.div_ceil(u64::from(self.group())) } else { groups }
    }
}
