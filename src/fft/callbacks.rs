//! A caller's functions inside transforms: as a pass loads, as it stores, and between the two halves of a filter.

use crate::gpu::{Access, Callback, DeviceError, KernelSource, RawArray, Trust};

/// The [`Callback`]s of a transform. They cost no pass over memory.
///
/// | where | must define |
/// |---|---|
/// | [`load`](Self::load) | `fn on_load(value: T, at: vec4<u32>) -> T` |
/// | [`store`](Self::store) | `fn on_store(value: T, at: vec4<u32>) -> T` |
/// | [`forward`](Self::forward), [`inverse`](Self::inverse), [`Filter`](super::Filter) | `fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex` |
///
/// - `T` is `Real` or `Complex`, what the field is made of; both are aliases for the precision at hand, and
///   `multiply(a, b)` multiplies complex numbers.
/// - `at` is the global index of the cell or mode along the three axes and the number of the field of a batch. Mode `m`
///   stands at `m mod n`. `result` counts the results of a [`Filter`](super::Filter), and is 0 elsewhere.
/// - The kernel's own parameters begin with `line_`; its arrays are `input`, `output`, `roots`, `load_factors` and `store_factors`.
/// - The functions must have no side effects, as they may run for points that are not stored: arrays are given for reading only.
/// - Kernels with callbacks are compiled with run-time checks, the other passes of a transform are not.
#[derive(Clone, Debug, Default)]
pub struct TransformCallbacks {
    /// `on_load`, as the forward transform reads the field.
    pub load: Option<Callback>,
    /// `on_mode`, as the forward transform writes the spectrum.
    pub forward: Option<Callback>,
    /// `on_mode`, as the inverse transform reads the spectrum.
    pub inverse: Option<Callback>,
    /// `on_store`, as the inverse transform writes the field.
    pub store: Option<Callback>,
}

impl TransformCallbacks {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        [&self.load, &self.forward, &self.inverse, &self.store].into_iter().all(Option::is_none)
    }
}

/// The callbacks of one pass.
#[derive(Clone, Default)]
pub struct PassCallbacks {
    /// `on_load` on what is read.
    pub load: Option<Callback>,
    /// `on_mode` on what is read.
    pub load_mode: Option<Callback>,
    /// `on_mode` inside a filter.
    pub filter: Option<Callback>,
    /// `on_mode` on what is written.
    pub store_mode: Option<Callback>,
    /// `on_store` on what is written.
    pub store: Option<Callback>,
    /// Which result `load_mode` is called for.
    pub result: u32,
}

/// Names of the modules that callbacks become, in the order of [`PassCallbacks::all`].
const MODULES: [&str; 5] = ["fft::load", "fft::load_mode", "fft::filter", "fft::store_mode", "fft::store"];

impl PassCallbacks {
    fn all(&self) -> impl Iterator<Item = (&'static str, &Callback)> {
        let all = [&self.load, &self.load_mode, &self.filter, &self.store_mode, &self.store];
        MODULES.into_iter().zip(all).filter_map(|(module, callback)| Some((module, callback.as_ref()?)))
    }

    /// Refuses texts without their function, and arrays that are written.
    pub fn check(&self) -> Result<(), DeviceError> {
        for (module, callback) in self.all() {
            let (place, function) = match module {
                "fft::load" => ("Callback of a transform, as it loads", "fn on_load"),
                "fft::store" => ("Callback of a transform, as it stores", "fn on_store"),
                _ => ("Callback of a transform, on modes", "fn on_mode"),
            };
            callback.check(place, &[function])?;
            if let Some(slot) = callback.slots().find(|slot| slot.access != Access::Read) {
                let why = format!("`{}` is given for writing; transforms only read arrays of callbacks", slot.name);
                return Err(DeviceError::Misuse { what: place.into(), why });
            }
        }
        Ok(())
    }

    /// The least trust that any of them deserves.
    pub fn trust(&self) -> Trust {
        self.all().map(|(_, callback)| callback.trust()).max().unwrap_or(Trust::Library)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Where a kernel imports them.
    pub fn imports(&self) -> String {
        self.all().map(|(module, _)| format!("#import {module}\n")).collect()
    }

    /// The kernel with their texts and parameters.
    pub fn bind(&self, source: KernelSource) -> KernelSource {
        self.all().fold(source, |source, (module, callback)| callback.bind(source, module))
    }

    /// Values of all parameters, to follow those of the kernel.
    pub fn values(&self) -> Vec<u8> {
        self.all().flat_map(|(_, callback)| callback.values()).collect()
    }

    /// The arrays, in the order they are declared.
    pub fn arrays(&self) -> impl Iterator<Item = &RawArray> {
        self.all().flat_map(|(_, callback)| callback.arrays())
    }
}
