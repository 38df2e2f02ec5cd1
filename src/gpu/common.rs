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
    /// Bytes of the cache in front of device memory; 0 if that of a device is unknown.
    pub cache_bytes: u64,
}

impl CommonLimits {
    /// Returns the limits of one device.
    #[must_use]
    pub fn of(capabilities: &Capabilities) -> Self {
        let &Capabilities { profile, workgroup_bytes, invocations, cache_bytes, .. } = capabilities;
        CommonLimits { profile, workgroup_bytes, invocations, cache_bytes }
    }

    /// Returns the limits as numbers; the limits of several devices are their minima.
    pub(crate) fn numbers(self) -> [u64; 4] {
        let profile = u64::from(self.profile == Profile::Gpu);
        [profile, u64::from(self.workgroup_bytes), u64::from(self.invocations), self.cache_bytes]
    }

    /// Creates limits from their [`numbers`](Self::numbers).
    pub(crate) fn from_numbers([profile, workgroup_bytes, invocations, cache_bytes]: [u64; 4]) -> Self {
        let profile = if profile == 0 { Profile::Software } else { Profile::Gpu };
        let [workgroup_bytes, invocations] = [workgroup_bytes, invocations].map(|number| number as u32);
        CommonLimits { profile, workgroup_bytes, invocations, cache_bytes }
    }
}
