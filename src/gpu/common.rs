//! What devices that work together have in common.

use super::capabilities::Capabilities;
use super::profile::Profile;

/// What each of several devices has: what is planned for it is planned alike on all of them, down
/// to the messages that ranks send each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommonLimits {
    /// The class that kernels are shaped for: [`Profile::Software`] where one of them is a software
    /// renderer, since the others wait for it anyway.
    pub profile: Profile,
    /// Workgroup memory in bytes.
    pub workgroup_bytes: u32,
    /// Invocations per workgroup.
    pub invocations: u32,
}

impl CommonLimits {
    /// Those of one device.
    pub fn of(capabilities: &Capabilities) -> Self {
        let &Capabilities { profile, workgroup_bytes, invocations, .. } = capabilities;
        CommonLimits { profile, workgroup_bytes, invocations }
    }

    /// As numbers, of which those of several devices together have the least.
    pub(crate) fn numbers(self) -> [u64; 3] {
        let profile = u64::from(self.profile == Profile::Gpu);
        [profile, u64::from(self.workgroup_bytes), u64::from(self.invocations)]
    }

    /// Those with these [`numbers`](Self::numbers).
    pub(crate) fn from_numbers([profile, workgroup_bytes, invocations]: [u64; 3]) -> Self {
        let profile = if profile == 0 { Profile::Software } else { Profile::Gpu };
        CommonLimits { profile, workgroup_bytes: workgroup_bytes as u32, invocations: invocations as u32 }
    }
}
