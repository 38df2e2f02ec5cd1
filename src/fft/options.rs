//! Options of transforms and filters.

use super::line::Work;
use super::{Boxes, Limits};
use crate::gpu::{Access, Callback, CommonLimits, DeviceError, Gpu, KernelSource, Profile, RawArray, Trust};

/// Options of a [`Transform`](super::Transform).
///
/// ```
/// use meshloom::fft::{TransformOptions, TransformTuning};
/// use meshloom::gpu::Profile;
///
/// let options = TransformOptions::default().tuning(TransformTuning::profile(Profile::Gpu));
/// assert!(options.boxes.is_none());
/// ```
#[must_use = "options do nothing until a transform is made with them"]
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
    pub fn tuning(mut self, tuning: TransformTuning) -> Self {
        self.tuning = Some(tuning);
        self
    }

    /// Sets the callbacks.
    pub fn callbacks(mut self, callbacks: TransformCallbacks) -> Self {
        self.callbacks = callbacks;
        self
    }

    /// Sets the boxes in which fields and spectra lie, the same on all ranks.
    pub fn boxes(mut self, boxes: Boxes) -> Self {
        self.boxes = Some(boxes);
        self
    }
}

/// Options of a [`Filter`](super::Filter).
#[must_use = "options do nothing until a filter is made with them"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterOptions {
    /// Results of each field; 1 by default.
    pub results: u32,
    /// Shapes of kernels and pieces of exchanges; `None`: [`TransformTuning::of`] the device.
    pub tuning: Option<TransformTuning>,
    /// Bytes that a dispatch may reach before its results are computed by a dispatch each; `None`:
    /// 9 GiB on GPUs, no limit on software renderers. An H100 translates the addresses of some 8.6
    /// GB at full speed; a pass along the slowest axis that reaches twice as much took three times
    /// as long as its bytes.
    pub reach: Option<u64>,
}

impl Default for FilterOptions {
    fn default() -> Self {
        FilterOptions { results: 1, tuning: None, reach: None }
    }
}

impl FilterOptions {
    /// Sets the bytes that a dispatch may reach.
    pub fn reach(mut self, bytes: u64) -> Self {
        self.reach = Some(bytes);
        self
    }

    pub(super) fn reach_on(&self, gpu: &Gpu) -> u64 {
        let usual = if gpu.capabilities().profile == Profile::Gpu { 9 << 30 } else { u64::MAX };
        self.reach.unwrap_or(usual)
    }

    /// Sets the number of results of each field.
    pub fn results(mut self, results: u32) -> Self {
        self.results = results;
        self
    }

    /// Sets the tuning, which must be the same on all ranks.
    pub fn tuning(mut self, tuning: TransformTuning) -> Self {
        self.tuning = Some(tuning);
        self
    }
}

/// Parameters of a transform that change its speed, and its rounding where `points`, `alone`,
/// `shared` or `columns` differ. They must be the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransformTuning {
    /// Complex points that an invocation holds in registers, approximately.
    pub points: u64,
    /// The longest line that one invocation transforms in registers.
    pub alone: u64,
    /// Whether several invocations share a longer line, with barriers.
    pub shared: bool,
    /// Neighboring lines that a workgroup transforms together along strided axes, if its memory
    /// suffices.
    pub columns: u64,
    /// The largest number of pieces of an exchange: one is sent while the next is transformed.
    pub pieces: u64,
    /// Bytes of the device's cache through which two axes may pass, which then take one round trip
    /// to memory instead of two; 0 for one axis after the other.
    ///
    /// Lines along z and y lie in planes of x. Layers of planes that fit pass both axes before the
    /// next ones do. A transform whose elements the cache holds, or of which it holds no plane, is
    /// not changed. A layer takes two dispatches. The first of many are submitted before the last
    /// ones are recorded, so work for
    /// [`Recorder::encode_into`](crate::gpu::Recorder::encode_into) needs 0 here.
    pub cache_bytes: u64,
}

impl TransformTuning {
    /// Returns the tuning for a class of devices.
    ///
    /// The values for software renderers are measured. Those for GPUs follow from counts of memory
    /// traffic; a search on an H100 found at most one sixth more speed (`benches/results`).
    #[must_use]
    pub const fn profile(profile: Profile) -> Self {
        match profile {
            Profile::Gpu => {
                TransformTuning { points: 16, alone: 16, shared: true, columns: 16, pieces: 4, cache_bytes: 0 }
            }
            // Barriers are slow, and long straight-line code takes long to compile.
            Profile::Software => {
                TransformTuning { points: 16, alone: 32, shared: false, columns: 16, pieces: 1, cache_bytes: 0 }
            }
        }
    }

    /// Returns the tuning for the class of the device, or for the class that the devices of all
    /// ranks have [in common](Gpu::common). Two axes may pass through 35 % of the cache that all
    /// devices have: 17.5 MB of an H100, whose cache has two halves of 25 MB.
    #[must_use]
    pub fn of(gpu: &Gpu) -> Self {
        let common = gpu.common();
        TransformTuning { cache_bytes: common.cache_bytes / 20 * 7, ..Self::profile(common.profile) }
    }

    /// Returns limits that every device of the class has, for plans without a device: those of
    /// common GPUs if several invocations share a line, else the minimum that WebGPU requires.
    #[must_use]
    pub fn usual_limits(&self) -> Limits {
        self.limits_within(if self.shared { [32 << 10, 1024] } else { [16 << 10, 256] })
    }

    /// Returns the limits that kernels are planned with. All ranks use the limits that their
    /// devices have in common, so that they plan the same passes and messages.
    #[must_use]
    pub fn limits(&self, common: &CommonLimits) -> Limits {
        let invocations = common.invocations.min(if self.shared { 1024 } else { 256 });
        self.limits_within([common.workgroup_bytes, invocations].map(u64::from))
    }

    /// Returns the limits for workgroups of these bytes and invocations.
    fn limits_within(&self, [workgroup_bytes, invocations]: [u64; 2]) -> Limits {
        let TransformTuning { points, alone, shared, columns, cache_bytes, .. } = *self;
        Limits { workgroup_bytes, invocations, points, alone, shared, columns, cache_bytes }
    }
}

/// The [`Callback`]s of a transform. They cost no pass over memory.
///
/// | where | must define |
/// |---|---|
/// | [`load`](Self::load) | `fn on_load(value: T, at: vec4<u32>) -> T` |
/// | [`store`](Self::store) | `fn on_store(value: T, at: vec4<u32>) -> T` |
/// | [`forward`](Self::forward), [`inverse`](Self::inverse), [`Filter`](super::Filter) | `fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex` |
///
/// - `T` is `Real` or `Complex`, the element of the field. Both are aliases for the precision of
///   the transform. `multiply(a, b)` multiplies complex numbers.
/// - `at` is the global index of the cell or mode along the three axes, and the number of the field
///   of a batch. Mode `m` has the index `m mod n`. `result` counts the results of a
///   [`Filter`](super::Filter), and is 0 in transforms.
/// - The kernel's own parameters begin with `line_`. Its arrays are `input`, `output`, `roots`,
///   `load_factors` and `store_factors`.
/// - The functions must have no side effects, as they may run for points that are not stored. They
///   can only read arrays.
/// - Kernels with callbacks are compiled with run-time checks, the other passes of a transform are
///   not.
#[derive(Clone, Debug, Default)]
pub struct TransformCallbacks {
    /// `on_load` on the field that the forward transform reads.
    pub load: Option<Callback>,
    /// `on_mode` on the spectrum that the forward transform writes.
    pub forward: Option<Callback>,
    /// `on_mode` on the spectrum that the inverse transform reads.
    pub inverse: Option<Callback>,
    /// `on_store` on the field that the inverse transform writes.
    pub store: Option<Callback>,
}

impl TransformCallbacks {
    /// Returns `true` without callbacks.
    pub(super) fn is_empty(&self) -> bool {
        [&self.load, &self.forward, &self.inverse, &self.store].into_iter().all(Option::is_none)
    }
}

/// The position of a pass in its route.
#[derive(Clone, Copy)]
pub struct PassPosition {
    pub first: bool,
    pub last: bool,
}

/// The callbacks of one pass, or of all passes of a route.
#[derive(Clone, Default)]
pub struct PassCallbacks {
    /// `on_source`, which returns the elements that no array holds; see [`PassInput::Source`].
    ///
    /// [`PassInput::Source`]: super::reach::PassInput::Source
    pub source: Option<Callback>,
    /// `on_load` on elements that are read.
    pub load: Option<Callback>,
    /// `on_mode` on elements that are read.
    pub load_mode: Option<Callback>,
    /// `on_mode` inside a filter.
    pub filter: Option<Callback>,
    /// `on_mode` on elements that are read where fields are spread.
    pub spread: Option<Callback>,
    /// `on_mode` on elements that are written.
    pub store_mode: Option<Callback>,
    /// `on_store` on elements that are written.
    pub store: Option<Callback>,
    /// The number of the result for which `load_mode` is called.
    pub result: u32,
}

/// The names of the WGSL modules of callbacks, in the order of [`PassCallbacks::all`].
const MODULES: [&str; 7] =
    ["fft::source", "fft::load", "fft::load_mode", "fft::filter", "fft::spread", "fft::store_mode", "fft::store"];

impl PassCallbacks {
    fn all(&self) -> impl Iterator<Item = (&'static str, &Callback)> {
        let PassCallbacks { source, load, load_mode, filter, spread, store_mode, store, .. } = self;
        let all = [source, load, load_mode, filter, spread, store_mode, store];
        MODULES.into_iter().zip(all).filter_map(|(module, callback)| Some((module, callback.as_ref()?)))
    }

    /// Returns the callbacks of a pass of the route that has these: the first pass loads elements,
    /// the last one stores them, and filters and spreads multiply modes.
    pub fn of_pass(&self, position: PassPosition, work: Work) -> PassCallbacks {
        let own = |callback: &Option<Callback>, holds: bool| callback.clone().filter(|_| holds);
        PassCallbacks {
            source: None,
            load: own(&self.load, position.first),
            load_mode: own(&self.load_mode, position.first),
            filter: own(&self.filter, matches!(work, Work::Filter(_))),
            spread: own(&self.spread, matches!(work, Work::Spread { .. })),
            store_mode: own(&self.store_mode, position.last),
            store: own(&self.store, position.last),
            result: self.result,
        }
    }

    /// Refuses texts without their function, and arrays for writing.
    pub fn check(&self) -> Result<(), DeviceError> {
        for (module, callback) in self.all() {
            let (place, function) = match module {
                "fft::source" => ("Source of a transform", "fn on_source"),
                "fft::load" => ("Callback of a transform, as it loads", "fn on_load"),
                "fft::store" => ("Callback of a transform, as it stores", "fn on_store"),
                _ => ("Callback of a transform, on modes", "fn on_mode"),
            };
            callback.check(place, &[function])?;
            if let Some(slot) = callback.slots().find(|slot| slot.access != Access::Read) {
                let why = format!("`{}` is given for writing; transforms only read arrays of callbacks", slot.name);
                return Err(DeviceError::misuse(place, why));
            }
        }
        Ok(())
    }

    /// Returns the lowest trust of all callbacks.
    pub fn trust(&self) -> Trust {
        self.all().map(|(_, callback)| callback.trust()).max().unwrap_or(Trust::Library)
    }

    /// Returns `true` without callbacks.
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Returns the lines by which a kernel imports the callbacks.
    pub fn imports(&self) -> String {
        self.all().map(|(module, _)| format!("#import {module}\n")).collect()
    }

    /// Returns the kernel with the texts and parameters of the callbacks.
    pub fn bind(&self, source: KernelSource) -> KernelSource {
        self.all().fold(source, |source, (module, callback)| callback.bind(source, module))
    }

    /// Returns the values of all parameters, which follow the kernel's own.
    pub fn values(&self) -> Vec<u8> {
        self.all().flat_map(|(_, callback)| callback.values()).collect()
    }

    /// Returns the arrays in the order of their declaration.
    pub fn arrays(&self) -> impl Iterator<Item = &RawArray> {
        self.all().flat_map(|(_, callback)| callback.arrays())
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
