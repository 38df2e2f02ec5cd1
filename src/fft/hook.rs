//! Pieces of WGSL that run inside a transform: as it loads, as it stores, and between the two halves of a filter.

use std::sync::Arc;

use crate::gpu::{Access, Array, DeviceElement, Element, KernelSource, RawArray, Trust};

/// A function in WGSL with the arrays and parameters that it reads. It costs no pass over memory.
///
/// | where | must define |
/// |---|---|
/// | as the field is read | `fn on_load(value: T, at: vec4<u32>) -> T` |
/// | as the field is written | `fn on_store(value: T, at: vec4<u32>) -> T` |
/// | on modes | `fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex` |
///
/// - `T` is `Real` or `Complex`, what the field is made of; both are aliases for the precision at hand, and
///   `multiply(a, b)` multiplies complex numbers.
/// - `at` is the global index of the cell or mode along the three axes and the number of the field of a batch. Mode `m`
///   stands at `m mod n`. `result` counts the results of a [`Filter`](super::Filter), and is 0 elsewhere.
/// - Arrays given with [`array`](Self::array) are read by `load_name(i: u32)`, parameters by `params.name`.
/// - Names of functions, arrays and parameters are shared by the hooks of a kernel: choose different ones. The kernel's
///   own parameters begin with `line_`; its arrays are `input`, `output`, `roots`, `load_factors` and `store_factors`.
/// - The function must not have side effects: it may run for points that are not stored.
/// - Kernels with hooks are compiled with run-time checks, as [`Kernel::new`](crate::gpu::Kernel::new) says; the passes of a
///   transform that have none are not.
///
/// ```
/// use meshloom::fft::Hook;
/// let low_pass = Hook::new(
///     "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
///          return select(Complex(), value, all(at.xyz < vec3<u32>(params.cutoff)));
///      }",
/// )
/// .params("cutoff: u32", &8u32);
/// assert!(low_pass.text().contains("on_mode"));
/// ```
#[derive(Clone)]
pub struct Hook {
    text: Arc<str>,
    arrays: Vec<(&'static str, Element, RawArray)>,
    fields: String,
    values: Vec<u8>,
    trust: Trust,
}

impl Hook {
    /// A hook with this text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self::on_word_of(Trust::Nobody, text)
    }

    /// As [`new`](Self::new), for kernels without run-time checks.
    ///
    /// # Safety
    /// For all values and places of the transforms that it is given to, also of points that are not stored, the text must do what
    /// [`Kernel::new_unchecked`](crate::gpu::Kernel::new_unchecked) asks for.
    pub unsafe fn new_unchecked(text: impl Into<Arc<str>>) -> Self {
        Self::on_word_of(Trust::Caller, text)
    }

    /// A hook of the library.
    pub(super) fn trusted(text: impl Into<Arc<str>>) -> Self {
        Self::on_word_of(Trust::Library, text)
    }

    fn on_word_of(trust: Trust, text: impl Into<Arc<str>>) -> Self {
        Hook { text: text.into(), arrays: Vec::new(), fields: String::new(), values: Vec::new(), trust }
    }

    /// Gives it an array to read. A kernel binds at most eight, of which up to four are its own.
    #[must_use]
    pub fn array<T: DeviceElement>(mut self, name: &'static str, array: &Array<T>) -> Self {
        self.arrays.push((name, T::ELEMENT, array.raw().clone()));
        self
    }

    /// Gives it parameters: fields as WGSL, and the same in Rust (16 bytes are the alignment of `vec3` and `vec4`, and
    /// they begin at a multiple of 16). At most 96 bytes for all hooks of a kernel. Where fields and values take another multiple of
    /// 16 bytes, the transform is refused ([`DeviceError::Misuse`](crate::gpu::DeviceError::Misuse)).
    #[must_use]
    pub fn params<P: bytemuck::NoUninit>(mut self, fields: impl Into<String>, values: &P) -> Self {
        self.fields = fields.into();
        self.values = bytemuck::bytes_of(values).to_vec();
        self
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The hooks of one kernel.
#[derive(Clone, Default)]
pub struct Hooks {
    /// `on_load` on what is read.
    pub load: Option<Hook>,
    /// `on_mode` on what is read.
    pub load_mode: Option<Hook>,
    /// `on_mode` inside a filter.
    pub filter: Option<Hook>,
    /// `on_mode` on what is written.
    pub store_mode: Option<Hook>,
    /// `on_store` on what is written.
    pub store: Option<Hook>,
    /// Which result `load_mode` is called for.
    pub result: u32,
}

impl Hooks {
    fn all(&self) -> impl Iterator<Item = &Hook> {
        [&self.load, &self.load_mode, &self.filter, &self.store_mode, &self.store].into_iter().flatten()
    }

    /// The least trust that any of them deserves.
    pub(super) fn trust(&self) -> Trust {
        self.all().map(|hook| hook.trust).max().unwrap_or(Trust::Library)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Fields of all parameters.
    pub(super) fn params(&self) -> Option<String> {
        // Those of each hook begin at a multiple of 16, whatever stands before.
        let fields =
            self.all().filter(|hook| !hook.fields.is_empty()).map(|hook| format!("@align(16) {}", hook.fields));
        let fields: Vec<String> = fields.collect();
        (!fields.is_empty()).then(|| fields.join(", "))
    }

    /// Values of all parameters, to follow those of the kernel.
    pub(super) fn values(&self) -> Vec<u8> {
        let mut values = Vec::new();
        for hook in self.all().filter(|hook| !hook.values.is_empty()) {
            values.extend_from_slice(&hook.values);
            values.resize(values.len().next_multiple_of(16), 0);
        }
        values
    }

    /// The functions.
    pub(super) fn text(&self) -> String {
        self.all().map(|hook| format!("{}\n", hook.text)).collect()
    }

    /// Declares the arrays.
    pub(super) fn declare(&self, source: KernelSource) -> KernelSource {
        self.all()
            .flat_map(|hook| &hook.arrays)
            .fold(source, |source, (name, element, _)| source.array(name, *element, Access::Read))
    }

    /// The arrays, in the order they are declared.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &RawArray> {
        self.all().flat_map(|hook| &hook.arrays).map(|(_, _, array)| array)
    }
}
