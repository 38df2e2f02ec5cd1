//! Shapes of kernels and pieces of exchanges, which change speed and not results.

use super::core::Limits;
use crate::gpu::{Capabilities, Gpu, Profile};

/// Parameters of a transform that change its speed, and its rounding where `points`, `alone` or `shared` differ. They must be
/// the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransformTuning {
    /// Complex points that an invocation holds in registers, about.
    pub points: u64,
    /// Longest line that one invocation transforms in registers.
    pub alone: u64,
    /// Whether invocations share longer lines, with barriers.
    pub shared: bool,
    /// Neighbouring lines that a workgroup takes along strided axes.
    pub columns: u64,
    /// Most pieces of an exchange: one is sent while the next is transformed.
    pub pieces: u64,
}

impl TransformTuning {
    /// The fastest that was measured for a class of devices (`docs/performance.md`).
    pub const fn profile(profile: Profile) -> Self {
        match profile {
            Profile::Gpu => TransformTuning { points: 16, alone: 16, shared: true, columns: 16, pieces: 4 },
            // Barriers are slow, and long straight-line code takes long to compile.
            Profile::Software => TransformTuning { points: 16, alone: 32, shared: false, columns: 16, pieces: 1 },
        }
    }

    /// The tuning for the class of this device.
    pub fn of(gpu: &Gpu) -> Self {
        Self::profile(gpu.capabilities().profile)
    }

    /// The limits that kernels are planned with.
    pub fn limits(&self, capabilities: &Capabilities) -> Limits {
        Limits {
            workgroup_bytes: u64::from(capabilities.workgroup_bytes),
            invocations: u64::from(capabilities.invocations.min(256)),
            points: self.points,
            alone: self.alone,
            shared: self.shared,
            columns: self.columns,
        }
    }
}
