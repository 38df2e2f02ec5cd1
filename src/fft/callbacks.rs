//! Functions of the caller inside transforms: on elements as a pass loads or stores them, and between the
//! two halves of a filter.

use crate::gpu::{Access, Callback, DeviceError, KernelSource, RawArray, Trust};

/// The [`Callback`]s of a transform. They cost no pass over memory.
///
/// | where | must define |
/// |---|---|
/// | [`load`](Self::load) | `fn on_load(value: T, at: vec4<u32>) -> T` |
/// | [`store`](Self::store) | `fn on_store(value: T, at: vec4<u32>) -> T` |
/// | [`forward`](Self::forward), [`inverse`](Self::inverse), [`Filter`](super::Filter) | `fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex` |
///
/// - `T` is `Real` or `Complex`, the element of the field. Both are aliases for the precision of the
///   transform. `multiply(a, b)` multiplies complex numbers.
/// - `at` is the global index of the cell or mode along the three axes, and the number of the field of a
///   batch. Mode `m` has the index `m mod n`. `result` counts the results of a
///   [`Filter`](super::Filter), and is 0 in transforms.
/// - The kernel's own parameters begin with `line_`. Its arrays are `input`, `output`, `roots`,
///   `load_factors` and `store_factors`.
/// - The functions must have no side effects, as they may run for points that are not stored. They can only
///   read arrays.
/// - Kernels with callbacks are compiled with run-time checks, the other passes of a transform are not.
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
    /// Returns whether there are no callbacks.
    pub(super) fn is_empty(&self) -> bool {
        [&self.load, &self.forward, &self.inverse, &self.store].into_iter().all(Option::is_none)
    }
}

/// The callbacks of one pass.
#[derive(Clone, Default)]
pub struct PassCallbacks {
    /// `on_load` on elements that are read.
    pub load: Option<Callback>,
    /// `on_mode` on elements that are read.
    pub load_mode: Option<Callback>,
    /// `on_mode` inside a filter.
    pub filter: Option<Callback>,
    /// `on_mode` on elements that are written.
    pub store_mode: Option<Callback>,
    /// `on_store` on elements that are written.
    pub store: Option<Callback>,
    /// The number of the result for which `load_mode` is called.
    pub result: u32,
}

/// The names of the WGSL modules of callbacks, in the order of [`PassCallbacks::all`].
const MODULES: [&str; 5] = ["fft::load", "fft::load_mode", "fft::filter", "fft::store_mode", "fft::store"];

impl PassCallbacks {
    fn all(&self) -> impl Iterator<Item = (&'static str, &Callback)> {
        let all = [&self.load, &self.load_mode, &self.filter, &self.store_mode, &self.store];
        MODULES.into_iter().zip(all).filter_map(|(module, callback)| Some((module, callback.as_ref()?)))
    }

    /// Refuses texts without their function, and arrays for writing.
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

    /// Returns the lowest trust of all callbacks.
    pub fn trust(&self) -> Trust {
        self.all().map(|(_, callback)| callback.trust()).max().unwrap_or(Trust::Library)
    }

    /// Returns whether there are no callbacks.
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

    /// Returns the values of all parameters, which follow those of the kernel.
    pub fn values(&self) -> Vec<u8> {
        self.all().flat_map(|(_, callback)| callback.values()).collect()
    }

    /// Returns the arrays in the order of their declaration.
    pub fn arrays(&self) -> impl Iterator<Item = &RawArray> {
        self.all().flat_map(|(_, callback)| callback.arrays())
    }
}
