//! Functions in WGSL that a caller gives to a kernel of the library.

use std::fmt;
use std::sync::Arc;

use super::array::{Array, DeviceElement, RawArray};
use super::error::DeviceError;
use super::params::{KernelParams, ParamField, declarations};
use super::pipeline::Trust;
use super::slot::{Access, Element, Slot};
use super::source::KernelSource;
use super::words::words;

/// Functions in WGSL that run inside kernels of the library, with the arrays and parameters that
/// they use. They need no pass over memory and no intermediate array.
///
/// The functions that the text must define are documented where a callback is used:
/// [`TransformCallbacks`](crate::fft::TransformCallbacks) and [`Filter`](crate::fft::Filter) for
/// transforms, [`neighbors`](crate::points::neighbors) for searches.
///
/// - Arrays are reached by name: [`read`](Self::read) gives `load_x(i: u32)`,
///   [`write`](Self::write) and [`atomic`](Self::atomic) the other accessors of [`KernelSource`]. A
///   kernel binds at most eight arrays on the smallest devices, of which up to five are its own.
/// - Parameters are fields of `params`.
/// - Names are shared with the kernel and with other callbacks in it: begin yours with a prefix of
///   your own. A duplicate name is a compile error when the kernel is first used.
/// - The kernels are compiled with run-time checks, as [`Kernel::new`](super::Kernel::new) says,
///   unless the callback was made with [`new_unchecked`](Self::new_unchecked). Entry points and
///   bindings of the text's own are refused.
///
/// ```
/// use meshloom::gpu::Callback;
///
/// meshloom::kernel_params! { struct LowPass { low_pass_end: u32 } }
/// let low_pass = Callback::new(
///     "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
///          return select(Complex(), value, all(at.xyz < vec3<u32>(params.low_pass_end)));
///      }",
/// )
/// .params(&LowPass { low_pass_end: 8 });
/// assert!(low_pass.text().contains("on_mode"));
/// ```
#[derive(Clone)]
pub struct Callback {
    text: Arc<str>,
    arrays: Vec<(Slot, RawArray)>,
    fields: Vec<ParamField>,
    values: Vec<u8>,
    loop_rounds: u32,
    trust: Trust,
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots: Vec<&Slot> = self.arrays.iter().map(|(slot, _)| slot).collect();
        let Callback { text, fields, trust, .. } = self;
        f.debug_struct("Callback")
            .field("text", text)
            .field("arrays", &slots)
            .field("params", fields)
            .field("trust", trust)
            .finish()
    }
}

/// Key of a callback's kernels: the text, the bindings of arrays, the types of parameters, and the
/// trust in the text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct CallbackKey {
    text: String,
    fields: String,
    trust: Trust,
}

impl Callback {
    /// Creates a callback with this text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self::with_trust(Trust::Nobody, text)
    }

    /// Same as [`new`](Self::new), for kernels without run-time checks.
    ///
    /// # Safety
    /// For all arguments that it may be called with, the text must satisfy the requirements of
    /// [`Kernel::new_unchecked`](super::Kernel::new_unchecked).
    pub unsafe fn new_unchecked(text: impl Into<Arc<str>>) -> Self {
        Self::with_trust(Trust::Caller, text)
    }

    /// Returns a callback with the same arrays, this text, and the parameters of another callback.
    pub(crate) fn with_text(self, text: impl Into<Arc<str>>, params: Option<&Callback>) -> Self {
        let (fields, values) = params.map(|other| (other.fields.clone(), other.values.clone())).unwrap_or_default();
        Callback { text: text.into(), fields, values, ..self }
    }

    /// Creates a callback of the library.
    pub(crate) fn trusted(text: impl Into<Arc<str>>) -> Self {
        Self::with_trust(Trust::Library, text)
    }

    fn with_trust(trust: Trust, text: impl Into<Arc<str>>) -> Self {
        let (arrays, fields, values) = (Vec::new(), Vec::new(), Vec::new());
        Callback { text: text.into(), arrays, fields, values, loop_rounds: 0, trust }
    }

    fn array<T: DeviceElement>(mut self, name: &str, array: &Array<T>, access: Access) -> Self {
        self.arrays.push((Slot { name: name.into(), element: T::ELEMENT, access }, array.raw().clone()));
        self
    }

    /// Gives it an array to read, as `load_name(i)`.
    #[must_use]
    pub fn read<T: DeviceElement>(self, name: &str, array: &Array<T>) -> Self {
        self.array(name, array, Access::Read)
    }

    /// Gives it an array of any type to read.
    pub(crate) fn read_raw(mut self, name: &str, element: Element, array: &RawArray) -> Self {
        self.arrays.push((Slot { name: name.into(), element, access: Access::Read }, array.clone()));
        self
    }

    /// Gives it an array to read and write; no two invocations may touch one element. Not for
    /// transforms, which may call a function for points that are not stored.
    #[must_use]
    pub fn write<T: DeviceElement>(self, name: &str, array: &Array<T>) -> Self {
        self.array(name, array, Access::ReadWrite)
    }

    /// Gives it an array of `u32` or `i32` that is changed by atomic operations. Not for
    /// transforms, as [`write`](Self::write).
    #[must_use]
    pub fn atomic<T: DeviceElement>(self, name: &str, array: &Array<T>) -> Self {
        self.array(name, array, Access::Atomic)
    }

    /// Gives it parameters, made with [`kernel_params!`](crate::kernel_params): at most 96 bytes
    /// for all callbacks of a kernel. Fields that WGSL would put elsewhere than Rust are an error
    /// where the callback is given.
    #[must_use]
    pub fn params<P: KernelParams>(mut self, values: &P) -> Self {
        self.fields = P::fields();
        self.values = bytemuck::bytes_of(values).to_vec();
        self
    }

    /// Sets the maximum number of rounds of loops in one call (0 by default). Searches on drivers
    /// that limit the rounds of an invocation
    /// ([`Capabilities::loop_rounds`](super::Capabilities::loop_rounds)) are cut into portions
    /// accordingly.
    #[must_use]
    pub fn loop_rounds(mut self, rounds: u32) -> Self {
        self.loop_rounds = rounds;
        self
    }

    /// Returns its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the rounds of loops of one call.
    pub(crate) fn rounds(&self) -> u32 {
        self.loop_rounds
    }

    /// Returns the trust in the text.
    pub(crate) fn trust(&self) -> Trust {
        self.trust
    }

    /// Returns its arrays, in the order of their declarations.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &RawArray> {
        self.arrays.iter().map(|(_, array)| array)
    }

    /// Returns its arrays as they are declared.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.arrays.iter().map(|(slot, _)| slot)
    }

    /// Returns the values of its parameters, to follow those of a kernel and of other callbacks at
    /// a multiple of 16 bytes.
    pub(crate) fn values(&self) -> Vec<u8> {
        let mut values = self.values.clone();
        values.resize(values.len().next_multiple_of(16), 0);
        values
    }

    fn fields(&self) -> String {
        if self.fields.is_empty() { String::new() } else { format!("@align(16) {}", declarations(&self.fields)) }
    }

    /// Returns the declarations of its arrays and its text.
    pub(crate) fn wgsl(&self) -> String {
        let declaration = |slot: &Slot| {
            let (name, element) = (&slot.name, slot.element.wgsl());
            match slot.access {
                Access::Read => format!("var<storage, read> {name}: array<{element}>;\n"),
                Access::ReadWrite => format!("var<storage, read_write> {name}: array<{element}>;\n"),
                Access::Atomic => format!("var<storage, read_write> {name}: array<atomic<{element}>>;\n"),
            }
        };
        self.slots().map(declaration).collect::<String>() + &self.text
    }

    /// A kernel that says `#import module` where the text is to stand, with the text and its
    /// parameters.
    pub(crate) fn bind(&self, source: KernelSource, module: &'static str) -> KernelSource {
        source.callers_module(module, self.wgsl()).more_params(&self.fields())
    }

    /// Returns what distinguishes its kernels from those of other callbacks.
    pub(crate) fn key(&self) -> CallbackKey {
        CallbackKey { text: self.wgsl(), fields: self.fields(), trust: self.trust }
    }

    /// Returns `true` if the text has this definition: its keyword and its name.
    pub(crate) fn defines(&self, definition: &str) -> bool {
        let wanted = words(definition);
        words(&self.text).windows(wanted.len()).any(|found| found == wanted)
    }

    /// Refuses a text without the functions (or other definitions) that `place` calls, and
    /// parameters that WGSL has at other offsets, before a driver says so less clearly.
    pub(crate) fn check(&self, place: &str, definitions: &[&str]) -> Result<(), DeviceError> {
        let misuse = |why: String| Err(DeviceError::misuse(place, why));
        if let Some(missing) = definitions.iter().find(|definition| !self.defines(definition)) {
            return misuse(format!("the text has no `{missing}`"));
        }
        for field in &self.fields {
            let align = match &field.wgsl {
                wgsl if wgsl.starts_with("vec2") => 8,
                wgsl if wgsl.contains("vec4") => 16,
                _ => 4,
            };
            field.check_offset(field.offset.next_multiple_of(align)).or_else(misuse)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_not_what_a_comment_or_another_name_says() {
        let defines = |text: &str| Callback::new(text).check("a test", &["fn on_load"]).is_ok();
        assert!(defines("fn on_load(value: Real) -> Real { return value; }"));
        assert!(defines("fn\n  on_load (value: Real) -> Real { return value; }"));
        assert!(!defines("// fn on_load(value: Real) as it was\nfn on_store(value: Real) -> Real { return value; }"));
        assert!(!defines("/* fn on_load( */ fn on_load_2(value: Real) -> Real { return value; }"));
        assert!(!defines("fn my_on_load(value: Real) -> Real { return on_load(value); }"));
    }
}
