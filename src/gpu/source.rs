//! The text of a kernel: complete WGSL except for what depends on the device and on the size of
//! arrays.
//!
//! A kernel declares its parameters and arrays without bindings, each on a line of its own:
//!
//! ```wgsl
//! var<uniform> params: Params;                       // the struct of KernelSource::params
//! var<storage, read> x: array<f32>;                  // read
//! var<storage, read_write> y: array<vec2<f32>>;      // read and written; no two invocations touch one element
//! var<storage, read_write> n: array<atomic<u32>>;    // changed by atomic operations
//! ```
//!
//! It reaches arrays through accessors that replace the declarations, so that one text serves an
//! array that lies in one binding and an array that is cut into many *windows* (see
//! [`Array`](super::Array)):
//!
//! | declared as | accessors of `x` with elements `T` |
//! |---|---|
//! | `read` | `load_x(i: u32) -> T` |
//! | `read_write` | `load_x`, `store_x(i: u32, value: T)` |
//! | `read_write` of `vec4<f32>` | also `set_x(i: u32, n: u32, value: f32)`, which writes number `n` of the four |
//! | `atomic` of `u64` | `add_x(i: u32, value: u64)`, which returns nothing |
//! | `atomic` | `load_x`, `store_x`, `add_x`, `min_x`, `max_x` `(i: u32, value: T) -> T` (the old value), `exchange_x(i: u32, old: T, new: T) -> vec2<T>` (the old value, and 1 if `new` is there now, else 0; may be 0 though `old` was there) |
//!
//! One window compiles to plain indexing. Every kernel also gets
//!
//! - `const GROUP: u32`, the workgroup size, and `const ITEMS: u32`, how many elements an
//!   invocation of an elementwise kernel should treat,
//! - `fn group_number(id: vec3<u32>, count: vec3<u32>) -> u32`, the number of a workgroup in a
//!   dispatch that was folded into two dimensions because it has more than 65,535 workgroups,
//! - the directives `#import`, `#if`, `#else`, `#endif`, and `#each COUNT`, `#each_invocation
//!   COUNT`, `#each_workgroup`, `#each_subgroup`, which write the entry point `main` (see
//!   [`KernelSource`]).
//!
//! This module is pure: it makes text and needs no device.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt::Write as _;

use super::assemble::{Module, Parts, Text, assemble};
use super::params::{KernelParams, PARAMS, ParamField, declarations};
use super::variant::{Assembled, Variant, stride_bytes, takes_copies};
use super::{DeviceError, Element, Slot};

/// Checks that nothing follows a declaration of the kernel's own in its line, which is replaced as
/// a whole.
fn is_alone(line: &str) -> Result<(), String> {
    let line = line.trim();
    let declares = ["var<storage", "var<uniform> params:"].iter().any(|start| line.starts_with(start));
    match line.split_once(';').map(|(_, rest)| rest.trim_start()) {
        Some(rest) if declares && !rest.is_empty() && !rest.starts_with("//") => {
            Err(format!("expected a declaration on a line of its own, got `{line}`; begin a new line after `;`"))
        }
        _ => Ok(()),
    }
}

/// A kernel as text, before it is compiled for a device. Built by chaining; [`wgsl`](Self::wgsl) is
/// the whole shader.
///
/// ```
/// use meshloom::gpu::KernelSource;
///
/// meshloom::kernel_params! { struct Scale { count: u32, factor: f32 } }
/// let source = KernelSource::new("example::scale", "
///     // Multiplies the elements of x.
///     var<uniform> params: Params;
///     var<storage, read_write> x: array<f32>;
///
///     fn each(i: u32) { store_x(i, load_x(i) * params.factor); }
///
///     #each params.count
/// ").params::<Scale>();
/// assert_eq!(source.slots()?[0].name, "x");
/// # Ok::<(), meshloom::gpu::DeviceError>(())
/// ```
///
/// # Directives
/// Each has a line to itself.
///
/// | line | meaning |
/// |---|---|
/// | `#import name` | the text of a [`module`](Self::module), the first time it is asked for |
/// | `#if flag`, `#if !flag`, `#else`, `#endif` | lines of some variants, by [`flag`](Self::flag) |
/// | `#each COUNT` | the entry point of an elementwise kernel: calls `each(i: u32)` for every `i` below COUNT, `ITEMS` elements per invocation; dispatch [`Recorder::each`](super::Recorder::each) |
/// | `#each_invocation COUNT` | the same for `each_invocation(i: u32)`, one element per invocation |
/// | `#each_workgroup` | calls `each_workgroup(number: u32, lane: u32)` in all invocations of each workgroup |
/// | `#each_subgroup` | the same for `each_subgroup(number: u32, lane: u32, size: u32, place: u32)`, with the size of the subgroup and the place in it |
#[must_use = "a source does nothing until a kernel is made of it"]
#[derive(Clone, Debug, Default)]
pub struct KernelSource {
    label: String,
    body: Cow<'static, str>,
    /// Fields of the parameters, as WGSL and as Rust has them.
    fields: String,
    layout: Vec<ParamField>,
    pub(super) params_type: Option<TypeId>,
    params_bytes: u64,
    modules: Vec<Module>,
    flags: Vec<(&'static str, bool)>,
    constants: String,
    elements: Vec<(&'static str, Element)>,
    marks: Vec<(char, u32)>,
    group: Option<u32>,
    loop_rounds: u32,
}

impl KernelSource {
    /// Creates a kernel called `label` (`room::kernel`, shown by profilers and in errors).
    pub fn new(label: impl Into<String>, body: impl Into<Cow<'static, str>>) -> Self {
        KernelSource { label: label.into(), body: body.into(), ..Default::default() }
    }

    /// Creates the parameters: what stands behind `Params` in `var<uniform> params: Params;`. A
    /// dispatch takes a value of this type.
    pub fn params<P: KernelParams>(mut self) -> Self {
        (self.layout, self.params_type) = (P::fields(), Some(TypeId::of::<P>()));
        self.params_bytes = (size_of::<P>() as u64).next_multiple_of(16);
        self.fields = declarations(&self.layout);
        self
    }

    /// More parameters behind the others, as WGSL.
    pub(crate) fn more_params(mut self, fields: &str) -> Self {
        if fields.is_empty() {
            return self;
        }
        if !self.fields.is_empty() {
            self.fields.push_str(", ");
        }
        self.fields.push_str(fields);
        self.params_bytes = PARAMS;
        self
    }

    /// Makes `text` a module, which stands where the body or another module says `#import name`,
    /// once.
    pub fn module(mut self, name: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        self.modules.push(Module { name, text: text.into(), verbatim: false });
        self
    }

    /// Same as [`module`](Self::module), for a caller's text, which is used as it is, without
    /// directives. It may declare arrays.
    pub(crate) fn callers_module(mut self, name: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        self.modules.push(Module { name, text: text.into(), verbatim: true });
        self
    }

    /// Sets a flag: the body and its modules may have lines between `#if name` (or `#if !name`),
    /// `#else` and `#endif`. One that is set on and off makes [`wgsl`](Self::wgsl) fail.
    pub fn flag(mut self, name: &'static str, on: bool) -> Self {
        self.flags.push((name, on));
        self
    }

    /// Defines `const name: u32 = value;`.
    pub fn constant(mut self, name: &str, value: u32) -> Self {
        let _ = writeln!(self.constants, "const {name}: u32 = {value}u;");
        self
    }

    /// Defines `alias name = T;`, also for declarations of arrays: kernels over elements of several
    /// types.
    pub fn element(mut self, name: &'static str, element: Element) -> Self {
        self.elements.push((name, element));
        self
    }

    /// Repeats functions that have `mark` in their name, and other lines that have it, `times`
    /// times, with the numbers from 0 on instead of it: what an invocation keeps for several
    /// queries without an array, which would leave the registers.
    pub fn repeat(mut self, mark: char, times: u32) -> Self {
        self.marks.push((mark, times));
        self
    }

    /// Fixes the workgroup size (the device's tuned size otherwise).
    pub fn group(mut self, invocations: u32) -> Self {
        self.group = Some(invocations);
        self
    }

    /// Sets the number of loop rounds of one call of `each`, `each_invocation`, `each_workgroup` or
    /// `each_subgroup`: the most that its loops take together (0 by default).
    ///
    /// Some drivers silently end all loops of an invocation after
    /// [`Capabilities::loop_rounds`](super::Capabilities::loop_rounds) rounds. A dispatch on such a
    /// device fails if the kernel needs more, so declare the rounds of every kernel with long
    /// loops.
    pub fn loop_rounds(mut self, rounds: u32) -> Self {
        self.loop_rounds = rounds;
        self
    }

    /// Name of the kernel.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the arrays it binds, in order.
    ///
    /// # Errors
    /// Same as [`wgsl`](Self::wgsl).
    pub fn slots(&self) -> Result<Vec<Slot>, DeviceError> {
        Ok(self.assemble()?.slots)
    }

    /// Returns its parameters as Rust has them.
    #[must_use]
    pub fn param_fields(&self) -> &[ParamField] {
        &self.layout
    }

    /// Returns the invocations of its workgroup, if it fixes them.
    #[must_use]
    pub fn fixed_group(&self) -> Option<u32> {
        self.group
    }

    /// Returns the whole shader in one variant.
    ///
    /// # Errors
    /// [`DeviceError::Shader`] when a directive is wrong, or names a module or flag that is
    /// missing, a flag is set on and off, or a declaration is not an array's;
    /// [`DeviceError::Misuse`] unless there is one number of windows per slot.
    pub fn wgsl(&self, variant: &Variant<'_>) -> Result<String, DeviceError> {
        Ok(self.assemble()?.wgsl(variant)?.text)
    }

    /// Assembles the part of the text that does not depend on the variant.
    pub(super) fn assemble(&self) -> Result<Assembled, DeviceError> {
        let refused = |why| DeviceError::Shader { kernel: self.label.clone(), why };
        let parts = Parts { modules: &self.modules, flags: &self.flags, marks: &self.marks };
        let Text { text, mut origins, is_elementwise, .. } = assemble(&self.body, parts).map_err(refused)?;
        text.lines().try_for_each(is_alone).map_err(refused)?;
        let slots = text.lines().filter_map(|line| Slot::declared(line, &self.elements));
        let slots: Vec<Slot> = slots.collect::<Result<_, _>>().map_err(refused)?;
        let mut constants = self.constants.clone();
        for (name, element) in &self.elements {
            let _ = writeln!(constants, "alias {name} = {};", element.wgsl());
        }
        origins.splice(0..0, constants.lines().map(|_| None));
        let &KernelSource { params_bytes, group, loop_rounds, .. } = self;
        let (label, fields, layout) = (self.label.clone(), self.fields.clone(), self.layout.clone());
        let text = constants + &text;
        let has_room = params_bytes + stride_bytes(slots.len()) <= PARAMS;
        Ok(Assembled {
            serves_stacks: has_room && takes_copies(&text),
            label,
            slots,
            fields,
            layout,
            params_bytes,
            group,
            loop_rounds,
            is_elementwise,
            text,
            origins,
        })
    }
}
