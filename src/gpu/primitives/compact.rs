//! The indices of flags that are set.

use super::count::{Count, Counted, distinct, index};
use super::scan::{Job, Passes, Scan};
use crate::gpu::{Array, DeviceError, KernelSource, Profile, Recorder};

/// Stream compaction: which flags are set, in ascending order; how many stays on the device.
pub struct Compact {
    scan: Scan,
    gpu: Passes,
    software: Passes,
}

impl Default for Compact {
    fn default() -> Self {
        Self::new()
    }
}

impl Compact {
    /// In the form that the device wants.
    pub fn new() -> Self {
        Self::over(Scan::new())
    }

    /// In the form for such devices, on any device.
    pub fn with(profile: Profile) -> Self {
        Self::over(Scan::with(profile))
    }

    fn over(scan: Scan) -> Self {
        let flags = include_str!("../../../shaders/gpu/scan/flags.wgsl");
        let [gpu, software] =
            [Profile::Gpu, Profile::Software].map(|profile| Passes::new(profile, "compact", flags, &["number"]));
        Compact { scan, gpu, software }
    }

    /// Records: `indices` = the indices of the `flags` that are not 0, of those that count, ascending; `number[0]` =
    /// how many they are. If `indices` is shorter than that, it receives the first ones, and `number` still counts them
    /// all; what it has beyond stays as it is.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when an array is given twice; as [`Recorder::dispatch`].
    pub fn indices(
        &self,
        recorder: &mut Recorder,
        flags: &Array<u32>,
        indices: &Array<u32>,
        number: &Array<u32>,
        count: Count<'_>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Compact::indices";
        let counted = Counted::new(recorder.gpu(), WHAT, count, flags.len())?;
        distinct(WHAT, indices.raw(), &[flags.raw(), number.raw(), counted.raw()])?;
        distinct(WHAT, number.raw(), &[flags.raw(), counted.raw()])?;
        super::count::holds(WHAT, "number", number.len(), 1)?;
        let own = match self.scan.profile(recorder) {
            Profile::Gpu => &self.gpu,
            Profile::Software => &self.software,
        };
        // One more than counted: there the number is known.
        let span = index(WHAT, u64::from(counted.most) + 1)?;
        let job = Job { input: flags, counted: &counted, output: indices, span, more: &[number.raw()] };
        self.scan.run(recorder, own, &job)
    }

    /// Its own kernels of both forms.
    pub(super) fn sources(&self) -> Vec<KernelSource> {
        [&self.gpu, &self.software].into_iter().flat_map(Passes::sources).collect()
    }
}
