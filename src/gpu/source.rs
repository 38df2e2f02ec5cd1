//! The text of a kernel: a WGSL body, the arrays it binds and the parameters it takes.
//!
//! A body never declares bindings. It names its arrays through accessors that this module writes, so that one body
//! serves an array that lies in one binding and an array that is cut into many *windows* (see
//! [`Array`](super::Array)):
//!
//! | slot access | accessors of a slot called `x` with element `T` |
//! |---|---|
//! | [`Access::Read`] | `load_x(i: u32) -> T` |
//! | [`Access::ReadWrite`] | `load_x`, `store_x(i: u32, value: T)` |
//! | [`Access::Atomic`] | `load_x`, `store_x`, `add_x`, `min_x`, `max_x` `(i: u32, value: T) -> T` (the old value), `exchange_x(i: u32, old: T, new: T) -> bool` (whether `old` was there and `new` is now; may fail though it was) |
//!
//! One window compiles to plain indexing. Every body also gets
//!
//! - `params`, a uniform of type `Params` with the fields given to [`KernelSource::params`],
//! - `const GROUP: u32`, the workgroup size, and `const ITEMS: u32`, how many elements an invocation of an elementwise
//!   kernel should treat,
//! - `fn group_number(id: vec3<u32>, count: vec3<u32>) -> u32`, the number of a workgroup in a dispatch that was folded
//!   into two dimensions because it has more than 65,535 workgroups.
//!
//! This module is pure: it makes text and needs no device.

use std::fmt::Write as _;

use super::assemble::{Parts, assemble};
use super::error::DeviceError;

/// What an array is made of, as WGSL sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// `f32`
    F32,
    /// `u32`
    U32,
    /// `i32`
    I32,
    /// `vec2<f32>`: a complex number (real, imaginary)
    Complex32,
    /// `f64`, on devices that have it
    F64,
    /// `vec2<f64>`: a complex number (real, imaginary), on devices that have it
    Complex64,
}

impl Element {
    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            Element::F32 | Element::U32 | Element::I32 => 4,
            Element::Complex32 | Element::F64 => 8,
            Element::Complex64 => 16,
        }
    }

    /// The WGSL type.
    pub const fn wgsl(self) -> &'static str {
        match self {
            Element::F32 => "f32",
            Element::U32 => "u32",
            Element::I32 => "i32",
            Element::Complex32 => "vec2<f32>",
            Element::F64 => "f64",
            Element::Complex64 => "vec2<f64>",
        }
    }
}

/// How a kernel uses an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Only read.
    Read,
    /// Read and written; no two invocations touch one element.
    ReadWrite,
    /// Changed by atomic operations (`u32` or `i32`).
    Atomic,
}

/// One array that a kernel binds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The name that the accessors carry.
    pub name: &'static str,
    /// Type of the elements.
    pub element: Element,
    /// How it is used.
    pub access: Access,
}

/// A kernel as text, before it is compiled for a device. Built by chaining; see the module's documentation for what
/// the body may use.
///
/// ```
/// use meshloom::gpu::{Access, Element, KernelSource};
///
/// let source = KernelSource::new("example::scale", r"
///     @compute @workgroup_size(GROUP) fn main(
///         @builtin(workgroup_id) id: vec3<u32>,
///         @builtin(num_workgroups) count: vec3<u32>,
///         @builtin(local_invocation_index) lane: u32,
///     ) {
///         for (var k = 0u; k < ITEMS; k++) {
///             let i = (group_number(id, count) * ITEMS + k) * GROUP + lane;
///             if i < params.count { store_x(i, load_x(i) * params.factor); }
///         }
///     }")
///     .params("count: u32, factor: f32")
///     .array("x", Element::F32, Access::ReadWrite);
/// let wgsl = source.wgsl(&[3], 1 << 10, 64, 4).unwrap(); // an array in three windows of 1024 elements
/// assert!(wgsl.contains("x_2"));
/// ```
#[derive(Clone, Debug)]
pub struct KernelSource {
    pub(crate) label: String,
    pub(crate) body: String,
    pub(crate) params: String,
    pub(crate) slots: Vec<Slot>,
    pub(crate) modules: Vec<(&'static str, &'static str)>,
    pub(crate) flags: Vec<(&'static str, bool)>,
    pub(crate) group: Option<u32>,
}

impl KernelSource {
    /// A kernel called `label` (`area::kernel`, shown by profilers and in errors) with an entry point `main` in `body`.
    pub fn new(label: impl Into<String>, body: impl Into<String>) -> Self {
        KernelSource {
            label: label.into(),
            body: body.into(),
            params: String::new(),
            slots: Vec::new(),
            modules: Vec::new(),
            flags: Vec::new(),
            group: None,
        }
    }

    /// Fields of the uniform `params`, as WGSL: `"count: u32, factor: f32"`. At most 256 bytes in all. A dispatch takes a Rust value
    /// of as many bytes (with or without the padding behind the last field).
    #[must_use]
    pub fn params(mut self, fields: impl Into<String>) -> Self {
        self.params = fields.into();
        self
    }

    /// Binds one more array; the order is the order of the arrays given to a dispatch.
    #[must_use]
    pub fn array(mut self, name: &'static str, element: Element, access: Access) -> Self {
        self.slots.push(Slot { name, element, access });
        self
    }

    /// Makes `text` a module, which stands where the body or another module says `#import name`, once.
    #[must_use]
    pub fn module(mut self, name: &'static str, text: &'static str) -> Self {
        self.modules.push((name, text));
        self
    }

    /// Sets a flag: the body and its modules may have lines between `#if name` (or `#if !name`), `#else` and `#endif`, each on a line
    /// of its own.
    #[must_use]
    pub fn flag(mut self, name: &'static str, on: bool) -> Self {
        self.flags.push((name, on));
        self
    }

    /// Fixes the workgroup size (the device's tuned size otherwise).
    #[must_use]
    pub fn group(mut self, invocations: u32) -> Self {
        self.group = Some(invocations);
        self
    }

    /// Name of the kernel.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The arrays it binds, in order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The whole shader. `windows[s]` is the number of windows of slot `s`, each of `window` *words* (4 bytes; a power
    /// of two, ignored for arrays in one window); `group` and `items` are the tuned workgroup size and elements per
    /// invocation.
    ///
    /// # Errors
    /// [`DeviceError::Shader`] when a module or flag is missing, [`DeviceError::Misuse`] unless there is one number of windows
    /// a slot.
    pub fn wgsl(&self, windows: &[u32], window: u64, group: u32, items: u32) -> Result<String, DeviceError> {
        if windows.len() != self.slots.len() {
            let why = format!("{} numbers of windows for {} arrays", windows.len(), self.slots.len());
            return Err(DeviceError::Misuse { what: self.label.clone(), why });
        }
        let mut text = String::new();
        if !self.params.is_empty() {
            let _ = writeln!(
                text,
                "struct Params {{ {} }}\n@group(0) @binding(0) var<uniform> params: Params;",
                self.params
            );
        }
        let _ = writeln!(
            text,
            "const GROUP: u32 = {}u;\nconst ITEMS: u32 = {items}u;\n\
             fn group_number(id: vec3<u32>, count: vec3<u32>) -> u32 {{ return id.y * count.x + id.x; }}",
            self.group.unwrap_or(group)
        );
        let mut binding = 1;
        for (slot, &windows) in self.slots.iter().zip(windows) {
            binding = declare(&mut text, slot, windows, window * 4 / slot.element.bytes(), binding);
        }
        let parts = Parts { modules: &self.modules, flags: &self.flags };
        let body =
            assemble(&self.body, &parts).map_err(|why| DeviceError::Shader { kernel: self.label.clone(), why })?;
        text.push_str(&body);
        Ok(text)
    }
}

/// Writes bindings and accessors of one slot; returns the next free binding.
fn declare(text: &mut String, slot: &Slot, windows: u32, window: u64, first: u32) -> u32 {
    let Slot { name, element, access } = slot;
    let (ty, atomic) = (element.wgsl(), *access == Access::Atomic);
    let space = if *access == Access::Read { "storage, read" } else { "storage, read_write" };
    let stored = if atomic { format!("atomic<{ty}>") } else { ty.to_string() };
    for w in 0..windows {
        let _ = writeln!(text, "@group(0) @binding({}) var<{space}> {name}_{w}: array<{stored}>;", first + w);
    }
    let mut function = |head: String, body: &dyn Fn(String) -> String| {
        let _ = writeln!(text, "fn {head} {{");
        if windows == 1 {
            let _ = writeln!(text, "    {}", body(format!("{name}_0[i]")));
        } else {
            let _ = writeln!(text, "    let j = i & {}u;\n    switch i >> {}u {{", window - 1, window.trailing_zeros());
            for w in 0..windows {
                let case = if w + 1 == windows { "default".to_string() } else { format!("case {w}u") };
                let _ = writeln!(text, "        {case}: {{ {} }}", body(format!("{name}_{w}[j]")));
            }
            let _ = writeln!(text, "    }}");
        }
        let _ = writeln!(text, "}}");
    };
    if atomic {
        function(format!("load_{name}(i: u32) -> {ty}"), &|x| format!("return atomicLoad(&{x});"));
        function(format!("store_{name}(i: u32, value: {ty})"), &|x| format!("atomicStore(&{x}, value);"));
        for (verb, builtin) in [("add", "atomicAdd"), ("min", "atomicMin"), ("max", "atomicMax")] {
            function(format!("{verb}_{name}(i: u32, value: {ty}) -> {ty}"), &|x| {
                format!("return {builtin}(&{x}, value);")
            });
        }
        function(format!("exchange_{name}(i: u32, old: {ty}, new_value: {ty}) -> bool"), &|x| {
            format!("return atomicCompareExchangeWeak(&{x}, old, new_value).exchanged;")
        });
    } else {
        function(format!("load_{name}(i: u32) -> {ty}"), &|x| format!("return {x};"));
        if *access == Access::ReadWrite {
            function(format!("store_{name}(i: u32, value: {ty})"), &|x| format!("{x} = value;"));
        }
    }
    first + windows
}
