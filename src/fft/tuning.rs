//! Shapes of kernels and pieces of exchanges, which change speed and not results.

use super::core::Limits;
use crate::gpu::{CommonLimits, Gpu, Profile};

/// Parameters of a transform that change its speed, and its rounding where `points`, `alone`, `shared` or `columns` differ. They must be
/// the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransformTuning {
    /// Complex points that an invocation holds in registers, about.
    pub points: u64,
    /// Longest line that one invocation transforms in registers.
    pub alone: u64,
    /// Whether invocations share longer lines, with barriers.
    pub shared: bool,
    /// Neighbouring lines that a workgroup takes along strided axes, where they fit its memory.
    pub columns: u64,
    /// Most pieces of an exchange: one is sent while the next is transformed.
    pub pieces: u64,
}

impl TransformTuning {
    /// That for a class of devices: measured on software renderers, chosen by counting for GPUs, where a search on an H100 found what is at most a sixth
    /// faster (`docs/performance.md`).
    pub const fn profile(profile: Profile) -> Self {
        match profile {
            Profile::Gpu => TransformTuning { points: 16, alone: 16, shared: true, columns: 16, pieces: 4 },
            // Barriers are slow, and long straight-line code takes long to compile.
            Profile::Software => TransformTuning { points: 16, alone: 32, shared: false, columns: 16, pieces: 1 },
        }
    }

    /// The tuning for the class of this device, or of those of all ranks where they have [agreed](Gpu::common) on one.
    pub fn of(gpu: &Gpu) -> Self {
        Self::profile(gpu.common().profile)
    }

    /// The limits that every device of the class has, for plans without a device: where invocations share lines those of
    /// common GPUs, else the floor of WebGPU.
    pub fn usual_limits(&self) -> Limits {
        let [workgroup_bytes, invocations] = if self.shared { [32 << 10, 1024] } else { [16 << 10, 256] };
        let TransformTuning { points, alone, shared, columns, .. } = *self;
        Limits { workgroup_bytes, invocations, points, alone, shared, columns }
    }

    /// The limits that kernels are planned with: what all ranks' devices have, so that all make the same passes and send the same messages.
    pub fn limits(&self, common: &CommonLimits) -> Limits {
        Limits {
            workgroup_bytes: u64::from(common.workgroup_bytes),
            // Where lines take barriers a workgroup is as large as a tile of full sectors wants.
            invocations: u64::from(common.invocations.min(if self.shared { 1024 } else { 256 })),
            points: self.points,
            alone: self.alone,
            shared: self.shared,
            columns: self.columns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshloom_sanitizer::machine::GPUS;

    #[test]
    fn every_gpu_has_the_limits_of_its_class() {
        let usual = TransformTuning::profile(Profile::Gpu).usual_limits();
        assert_eq!(GPUS.iter().map(|gpu| u64::from(gpu.workgroup_memory[1])).min(), Some(usual.workgroup_bytes));
        assert!(GPUS.iter().all(|gpu| u64::from(gpu.invocations) >= usual.invocations));
    }
}
