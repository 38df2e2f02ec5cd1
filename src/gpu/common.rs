//! Limits that cooperating devices share.

use super::capabilities::Capabilities;
use super::profile::Profile;

/// Limits that all of several devices satisfy. Plans made for them are equal on all ranks, down to
/// the messages that ranks exchange.
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
    /// Returns the limits of one device.
    #[must_use]
    pub fn of(capabilities: &Capabilities) -> Self {
        let &Capabilities { profile, workgroup_bytes, invocations, .. } = capabilities;
        CommonLimits { profile, workgroup_bytes, invocations }
    }

    /// Returns the limits as numbers; the limits of several devices are their minima.
    pub(crate) fn numbers(self) -> [u64; 3] {
        let profile = u64::from(self.profile == Profile::Gpu);
        [profile, u64::from(self.workgroup_bytes), u64::from(self.invocations)]
    }

    /// Creates limits from their [`numbers`](Self::numbers).
    pub(crate) fn from_numbers([profile, workgroup_bytes, invocations]: [u64; 3]) -> Self {
        let profile = if profile == 0 { Profile::Software } else { Profile::Gpu };
        CommonLimits { profile, workgroup_bytes: workgroup_bytes as u32, invocations: invocations as u32 }
    }
}
