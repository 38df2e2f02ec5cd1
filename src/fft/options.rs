//! Options of transforms and filters.

use super::boxes::Boxes;
use super::callbacks::TransformCallbacks;
use super::core::Limits;
use crate::gpu::{CommonLimits, Gpu, Profile};

/// Options of a [`Transform`](super::Transform).
///
/// ```
/// use meshloom::fft::{TransformOptions, TransformTuning};
/// use meshloom::gpu::Profile;
///
/// let options = TransformOptions::default().tuning(TransformTuning::profile(Profile::Gpu));
/// assert!(options.boxes.is_none());
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TransformOptions {
    /// Shapes of kernels and pieces of exchanges; `None`: [`TransformTuning::of`] the device.
    pub tuning: Option<TransformTuning>,
    /// Functions on elements as they are read and written.
    pub callbacks: TransformCallbacks,
    /// The boxes in which fields and spectra lie; `None`: the parts of the plan.
    pub boxes: Option<Boxes>,
}

impl TransformOptions {
    /// Sets the tuning, which must be the same on all ranks.
    #[must_use]
    pub fn tuning(mut self, tuning: TransformTuning) -> Self {
        self.tuning = Some(tuning);
        self
    }

    /// Sets the callbacks.
    #[must_use]
    pub fn callbacks(mut self, callbacks: TransformCallbacks) -> Self {
        self.callbacks = callbacks;
        self
    }

    /// Sets the boxes in which fields and spectra lie, the same on all ranks.
    #[must_use]
    pub fn boxes(mut self, boxes: Boxes) -> Self {
        self.boxes = Some(boxes);
        self
    }

    pub(super) fn tuning_on(&self, gpu: &Gpu) -> TransformTuning {
        self.tuning.unwrap_or_else(|| TransformTuning::of(gpu))
    }
}

/// Options of a [`Filter`](super::Filter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterOptions {
    /// Results of each field; 1 by default.
    pub results: u32,
    /// Shapes of kernels and pieces of exchanges; `None`: [`TransformTuning::of`] the device.
    pub tuning: Option<TransformTuning>,
}

impl Default for FilterOptions {
    fn default() -> Self {
        FilterOptions { results: 1, tuning: None }
    }
}

impl FilterOptions {
    /// Sets the number of results of each field.
    #[must_use]
    pub fn results(mut self, results: u32) -> Self {
        self.results = results;
        self
    }

    /// Sets the tuning, which must be the same on all ranks.
    #[must_use]
    pub fn tuning(mut self, tuning: TransformTuning) -> Self {
        self.tuning = Some(tuning);
        self
    }
}

/// Parameters of a transform that change its speed, and its rounding where `points`, `alone`, `shared`
/// or `columns` differ. They must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransformTuning {
    /// Complex points that an invocation holds in registers, approximately.
    pub points: u64,
    /// The longest line that one invocation transforms in registers.
    pub alone: u64,
    /// Whether several invocations share a longer line, with barriers.
    pub shared: bool,
    /// Neighboring lines that a workgroup transforms together along strided axes, if its memory suffices.
    pub columns: u64,
    /// The largest number of pieces of an exchange: one is sent while the next is transformed.
    pub pieces: u64,
}

impl TransformTuning {
    /// Returns the tuning for a class of devices.
    ///
    /// The values for software renderers are measured. Those for GPUs follow from counts of memory
    /// traffic; a search on an H100 found at most one sixth more speed (`docs/performance.md`).
    pub const fn profile(profile: Profile) -> Self {
        match profile {
            Profile::Gpu => TransformTuning { points: 16, alone: 16, shared: true, columns: 16, pieces: 4 },
            // Barriers are slow, and long straight-line code takes long to compile.
            Profile::Software => TransformTuning { points: 16, alone: 32, shared: false, columns: 16, pieces: 1 },
        }
    }

    /// Returns the tuning for the class of the device, or for the class that the devices of all ranks
    /// have [in common](Gpu::common).
    pub fn of(gpu: &Gpu) -> Self {
        Self::profile(gpu.common().profile)
    }

    /// Returns limits that every device of the class has, for plans without a device: those of common
    /// GPUs if several invocations share a line, else the minimum that WebGPU requires.
    pub fn usual_limits(&self) -> Limits {
        let [workgroup_bytes, invocations] = if self.shared { [32 << 10, 1024] } else { [16 << 10, 256] };
        let TransformTuning { points, alone, shared, columns, .. } = *self;
        Limits { workgroup_bytes, invocations, points, alone, shared, columns }
    }

    /// Returns the limits that kernels are planned with. All ranks use the limits that their devices have
    /// in common, so that they plan the same passes and messages.
    pub fn limits(&self, common: &CommonLimits) -> Limits {
        Limits {
            workgroup_bytes: u64::from(common.workgroup_bytes),
            // With barriers, a workgroup may be as large as a tile of full sectors needs.
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
