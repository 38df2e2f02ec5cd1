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
//! | `atomic` | `load_x`, `store_x`, `add_x`, `min_x`, `max_x` `(i: u32, value: T) -> T` (the old value), `exchange_x(i: u32, old: T, new: T) -> bool` (whether `old` was there and `new` is now; may fail though it was) |
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

use super::assemble::{Module, Origin, Parts, Text, assemble};
use super::error::DeviceError;
use super::params::{KernelParams, PARAMS, ParamField, declarations};
use super::profile::WorkgroupShape;
use super::stack::refusal;

/// Element type of an array in WGSL.
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
    /// `vec4<f32>`: four numbers that are read and written together
    Vec4,
    /// `vec2<u32>`: two words that are read and written together
    Words2,
    /// `u64`, on devices that have it: only to be added to
    U64,
}

impl Element {
    /// Returns the bytes of one element.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Element::F32 | Element::U32 | Element::I32 => 4,
            Element::Complex32 | Element::Words2 | Element::F64 | Element::U64 => 8,
            Element::Complex64 | Element::Vec4 => 16,
        }
    }

    /// Returns the WGSL type.
    #[must_use]
    pub const fn wgsl(self) -> &'static str {
        match self {
            Element::F32 => "f32",
            Element::U32 => "u32",
            Element::I32 => "i32",
            Element::Complex32 => "vec2<f32>",
            Element::F64 => "f64",
            Element::Complex64 => "vec2<f64>",
            Element::Vec4 => "vec4<f32>",
            Element::Words2 => "vec2<u32>",
            Element::U64 => "u64",
        }
    }

    /// Returns `true` if it is of double precision, which only some devices have.
    pub(crate) const fn is_double(self) -> bool {
        matches!(self, Element::F64 | Element::Complex64)
    }

    const ALL: [Element; 9] = {
        use Element::{Complex32, Complex64, F32, F64, I32, U32, U64, Vec4, Words2};
        [F32, U32, I32, Complex32, Vec4, Words2, F64, Complex64, U64]
    };

    fn of(wgsl: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.wgsl() == wgsl)
    }
}

/// Access of a kernel to an array.
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
    pub name: String,
    /// Type of the elements.
    pub element: Element,
    /// Access of the kernel.
    pub access: Access,
}

impl Slot {
    /// Returns the array that a line declares, if it does; `elements` are names of types that stand
    /// for others.
    fn declared(line: &str, elements: &[(&'static str, Element)]) -> Option<Result<Self, String>> {
        let declaration = line.trim_start().strip_prefix("var<storage")?;
        let split = || {
            let (access, rest) = declaration.split_once('>')?;
            let (name, rest) = rest.split_once(':')?;
            let ty = rest.trim_start().strip_prefix("array<")?.split_once(';')?.0.trim_end().strip_suffix('>')?.trim();
            let (ty, atomic) = match ty.strip_prefix("atomic<").and_then(|ty| ty.strip_suffix('>')) {
                Some(ty) => (ty, true),
                None => (ty, false),
            };
            let access = match (access.trim_start_matches(',').trim(), atomic) {
                ("read", false) => Access::Read,
                ("read_write", false) => Access::ReadWrite,
                ("read_write", true) => Access::Atomic,
                _ => return None,
            };
            Some((name.trim(), ty, access))
        };
        let Some((name, ty, access)) = split() else {
            return Some(Err(format!(
                "`{}`: expected `var<storage, read> name: array<T>;` or `var<storage, read_write> name: array<T>;`",
                line.trim()
            )));
        };
        let named = elements.iter().find(|(name, _)| *name == ty).map(|(_, element)| *element);
        let Some(element) = named.or_else(|| Element::of(ty)) else {
            let supported = Element::ALL.map(Element::wgsl).join(", ");
            return Some(Err(format!("`{name}`: unsupported element type {ty}; expected one of {supported}")));
        };
        Some(Ok(Slot { name: name.into(), element, access }))
    }
}

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

/// Address space of a kernel's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamsSpace {
    /// In a uniform buffer, as kernels are written.
    Uniform,
    /// Immediate data, which is part of the commands: no buffer holds it.
    Immediate,
    /// A storage buffer. Lavapipe recompiles a kernel for every set of uniforms, or of immediate
    /// data, that its loops and conditions depend on, which takes longer than most kernels run. In
    /// a loop it reads a storage buffer once for each lane, and again in each round, so that `main`
    /// begins with a copy of the parameters.
    Storage,
}

/// Properties that the text of a kernel depends on besides the kernel itself: the device, and the
/// size of its arrays.
#[derive(Clone, Copy, Debug)]
pub struct Variant<'a> {
    /// Number of windows of each array, in the order of the slots.
    pub windows: &'a [u32],
    /// *Words* (4 bytes) of a window: a power of two, ignored for arrays in one window.
    pub window: u64,
    /// Workgroup size and elements per invocation of kernels that do not fix them.
    pub shape: WorkgroupShape,
    /// Address space of the parameters.
    pub params: ParamsSpace,
    /// Binding of windows.
    pub binding: WindowBinding,
    /// Whether `reconverge()` is a barrier of the subgroup. Else it is nothing.
    pub subgroup_barrier: bool,
    /// Whether dispatches run over copies of arrays of one window each: the workgroups of a copy
    /// have its number as their third coordinate. The parameters begin with rows of four strides,
    /// one for each slot, which are 0 for arrays that all copies share.
    pub stacked: bool,
}

impl<'a> Variant<'a> {
    /// Creates the form that every device takes, with windows of `window` words.
    #[must_use]
    pub const fn plain(windows: &'a [u32], window: u64, shape: WorkgroupShape) -> Self {
        let (params, binding) = (ParamsSpace::Uniform, WindowBinding::Switch);
        Variant { windows, window, shape, params, binding, subgroup_barrier: false, stacked: false }
    }
}

/// Method of binding the windows of an array that has several, and of finding the one that holds an
/// element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowBinding {
    /// Each by itself; a `switch` chooses. All devices have it, and each access branches.
    Switch,
    /// All together as a `binding_array`, indexed like memory: takes features that GPUs have
    /// natively. Parameters are in group 1 then, since wgpu lets no group have both such an array
    /// and a uniform buffer.
    BindingArray,
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
#[derive(Clone, Debug, Default)]
pub struct KernelSource {
    label: String,
    body: Cow<'static, str>,
    /// Fields of the parameters, as WGSL and as Rust has them.
    fields: String,
    layout: Vec<ParamField>,
    params_type: Option<TypeId>,
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
    #[must_use]
    pub fn params<P: KernelParams>(mut self) -> Self {
        (self.layout, self.params_type) = (P::fields(), Some(TypeId::of::<P>()));
        self.params_bytes = (size_of::<P>() as u64).next_multiple_of(16);
        self.fields = declarations(&self.layout);
        self
    }

    /// More parameters behind the others, as WGSL.
    #[must_use]
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
    #[must_use]
    pub fn module(mut self, name: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        self.modules.push(Module { name, text: text.into(), verbatim: false });
        self
    }

    /// Same as [`module`](Self::module), for a caller's text, which is used as it is, without
    /// directives. It may declare arrays.
    #[must_use]
    pub(crate) fn callers_module(mut self, name: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        self.modules.push(Module { name, text: text.into(), verbatim: true });
        self
    }

    /// Sets a flag: the body and its modules may have lines between `#if name` (or `#if !name`),
    /// `#else` and `#endif`. One that is set on and off makes [`wgsl`](Self::wgsl) fail.
    #[must_use]
    pub fn flag(mut self, name: &'static str, on: bool) -> Self {
        self.flags.push((name, on));
        self
    }

    /// Defines `const name: u32 = value;`.
    #[must_use]
    pub fn constant(mut self, name: &str, value: u32) -> Self {
        let _ = writeln!(self.constants, "const {name}: u32 = {value}u;");
        self
    }

    /// Defines `alias name = T;`, also for declarations of arrays: kernels over elements of several
    /// types.
    #[must_use]
    pub fn element(mut self, name: &'static str, element: Element) -> Self {
        self.elements.push((name, element));
        self
    }

    /// Repeats functions that have `mark` in their name, and other lines that have it, `times`
    /// times, with the numbers from 0 on instead of it: what an invocation keeps for several
    /// queries without an array, which would leave the registers.
    #[must_use]
    pub fn repeat(mut self, mark: char, times: u32) -> Self {
        self.marks.push((mark, times));
        self
    }

    /// Fixes the workgroup size (the device's tuned size otherwise).
    #[must_use]
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
    #[must_use]
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

    /// Returns the type of its parameters.
    pub(super) fn params_type(&self) -> Option<TypeId> {
        self.params_type
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
        let slots = slots.collect::<Result<_, _>>().map_err(refused)?;
        let mut constants = self.constants.clone();
        for (name, element) in &self.elements {
            let _ = writeln!(constants, "alias {name} = {};", element.wgsl());
        }
        origins.splice(0..0, constants.lines().map(|_| None));
        let &KernelSource { params_bytes, group, loop_rounds, .. } = self;
        let (label, fields, layout) = (self.label.clone(), self.fields.clone(), self.layout.clone());
        let text = constants + &text;
        Ok(Assembled { label, slots, fields, layout, params_bytes, group, loop_rounds, is_elementwise, text, origins })
    }
}

/// A kernel's text with the declarations of its author.
#[derive(Clone, Debug)]
pub(super) struct Assembled {
    pub label: String,
    pub slots: Vec<Slot>,
    /// Fields of the parameters in WGSL, and the Rust layout of the kernel's own fields.
    pub fields: String,
    pub layout: Vec<ParamField>,
    /// Bytes that hold the parameters: whole vectors of four, and the most that a kernel may have
    /// where a caller's text adds fields.
    pub params_bytes: u64,
    group: Option<u32>,
    loop_rounds: u32,
    is_elementwise: bool,
    text: String,
    /// The origin of each line of the text.
    origins: Vec<Option<Origin>>,
}

/// A whole shader, with the origin of each line.
pub(super) struct Shader {
    pub text: String,
    origins: Vec<Option<Origin>>,
}

impl Shader {
    /// Replaces the places in a compiler's message (`wgsl:13:19`) by lines of the author's text.
    pub fn locate(&self, message: &str) -> String {
        const PLACE: &str = "wgsl:";
        let mut located = String::with_capacity(message.len());
        let mut rest = message;
        while let Some(at) = rest.find(PLACE) {
            let place = &rest[at + PLACE.len()..];
            let len = place.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(place.len());
            let origin = place[..len].split_once(':').and_then(|(line, column)| {
                let line = line.parse::<usize>().ok()?.checked_sub(1)?;
                let Origin { module, line } = (*self.origins.get(line)?)?;
                let text = module.map_or("the kernel's text".into(), |module| format!("`{module}`"));
                Some(format!("line {line} of {text}, column {column}"))
            });
            located.push_str(&rest[..at]);
            located.push_str(origin.as_deref().unwrap_or(&rest[at..at + PLACE.len() + len]));
            rest = &place[len..];
        }
        located + rest
    }
}

impl Assembled {
    /// Returns the loop rounds of one invocation that treats up to `items` elements.
    pub fn loop_rounds(&self, items: u32) -> u64 {
        let rounds = u64::from(self.loop_rounds);
        // The loop over the elements counts, too.
        if self.is_elementwise { (rounds + 1) * u64::from(items) } else { rounds }
    }

    /// Returns advice on a compiler's message about a name that is missing, if the name is that of
    /// an array or of an accessor that the array's declaration does not have.
    pub fn hint(&self, message: &str) -> Option<String> {
        let missing = |name: &str| message.contains(&format!("no definition in scope for identifier: `{name}`"));
        self.slots.iter().find_map(|Slot { name, element, access }| {
            let element = element.wgsl();
            let atomic = ["add", "min", "max", "exchange"].iter().any(|verb| missing(&format!("{verb}_{name}")));
            if missing(name) {
                let store = format!(", write them with `store_{name}(i, value)`");
                let store = if *access == Access::Read { "" } else { &store };
                Some(format!("`{name}` is an array; read its elements with `load_{name}(i)`{store}"))
            } else if missing(&format!("store_{name}")) {
                Some(format!("`{name}` is only read; declare `var<storage, read_write> {name}: array<{element}>;`"))
            } else if atomic {
                Some(format!("declare `var<storage, read_write> {name}: array<atomic<{element}>>;`"))
            } else {
                None
            }
        })
    }

    /// Returns the bytes of the parameters of a variant.
    pub fn params_bytes_of(&self, stacked: bool) -> u64 {
        let strides = if stacked { stride_bytes(self.slots.len()) } else { 0 };
        (strides + self.params_bytes).min(PARAMS)
    }

    /// See [`KernelSource::wgsl`].
    pub fn wgsl(&self, variant: &Variant<'_>) -> Result<Shader, DeviceError> {
        let &Variant { windows, window, shape, params, binding, subgroup_barrier, stacked } = variant;
        let WorkgroupShape { group, items } = shape;
        let why = || format!("{} numbers of windows for {} arrays", windows.len(), self.slots.len());
        DeviceError::ensure(windows.len() == self.slots.len(), &self.label, why)?;
        let mut text = String::with_capacity(self.text.len() + 4096);
        if binding == WindowBinding::BindingArray && windows.iter().any(|&windows| windows > 1) {
            text.push_str("enable wgpu_binding_array;\n");
        }
        let fields = match stacked {
            true => format!("copy_strides: array<vec4<u32>, {}>, {}", self.slots.len().div_ceil(4), self.fields),
            false => self.fields.clone(),
        };
        let body = body_of_main(&self.text);
        let copies = body.is_some() && params == ParamsSpace::Storage && !fields.is_empty();
        let name = if copies { "stored_params" } else { "params" };
        let begin = self.begin_of_main(copies, stacked)?;
        if !fields.is_empty() {
            let group = u32::from(binding == WindowBinding::BindingArray);
            let declaration = match params {
                ParamsSpace::Uniform => format!("@group({group}) @binding(0) var<uniform>"),
                ParamsSpace::Storage => format!("@group({group}) @binding(0) var<storage, read>"),
                ParamsSpace::Immediate => "var<immediate>".into(),
            };
            let _ = writeln!(text, "struct Params {{ {fields} }}\n{declaration} {name}: Params;");
            if copies {
                text.push_str("var<private> params: Params;\n");
            }
        }
        let _ = writeln!(
            text,
            "const GROUP: u32 = {}u;\nconst ITEMS: u32 = {items}u;\n\
             fn group_number(id: vec3<u32>, count: vec3<u32>) -> u32 {{ return id.y * count.x + id.x; }}",
            self.group.unwrap_or(group)
        );
        if self.text.contains("reconverge()") {
            let barrier = if subgroup_barrier { "subgroupBarrier();" } else { "" };
            let _ = writeln!(text, "fn reconverge() {{ {barrier} }}");
        }
        let mut first = 1;
        let mut slots = self.slots.iter().zip(windows);
        let mut declare_next = |text: &mut String| {
            if let Some((slot, &windows)) = slots.next() {
                let place = if stacked { format!("i + copy_of_{}", slot.name) } else { "i".into() };
                if stacked {
                    let _ = writeln!(text, "var<private> copy_of_{}: u32;", slot.name);
                }
                first = declare(text, slot, windows, window * 4 / slot.element.bytes(), (first, binding), &place);
            }
        };
        let generated = |text: &str| std::iter::repeat_n(None, text.lines().count());
        let mut origins: Vec<Option<Origin>> = generated(&text).collect();
        for ((number, line), origin) in self.text.lines().enumerate().zip(&self.origins) {
            let (trimmed, before) = (line.trim_start(), text.len());
            if trimmed.starts_with("var<storage") {
                declare_next(&mut text);
                origins.extend(generated(&text[before..]));
            } else if !trimmed.starts_with("var<uniform> params:") {
                match body.filter(|body| body.line == number) {
                    Some(body) => {
                        let (head, rest) = line.split_at(body.column);
                        text.extend([head, &begin, rest]);
                    }
                    None => text.push_str(line),
                }
                text.push('\n');
                origins.push(*origin);
            }
        }
        Ok(Shader { text, origins })
    }

    /// Returns the first statements of the entry point: copies of parameters that lie in a storage
    /// buffer, and the place of the workgroup's copy in each array of a stack.
    fn begin_of_main(&self, copies_params: bool, stacked: bool) -> Result<String, DeviceError> {
        let mut begin = if copies_params { " params = stored_params;".to_string() } else { String::new() };
        if !stacked {
            return Ok(begin);
        }
        let id = workgroup_id_of_main(&self.text)
            .ok_or_else(|| refusal(&self.label, "its entry point does not take the number of the workgroup"))?;
        for (number, slot) in self.slots.iter().enumerate() {
            let (name, row, column) = (&slot.name, number / 4, number % 4);
            let _ = write!(begin, " copy_of_{name} = {id}.z * params.copy_strides[{row}][{column}];");
        }
        Ok(begin)
    }
}

/// Returns the bytes of the strides of a number of arrays.
pub(super) fn stride_bytes(arrays: usize) -> u64 {
    16 * arrays.div_ceil(4) as u64
}

/// Returns the name of the number of the workgroup in the entry point `main`.
fn workgroup_id_of_main(text: &str) -> Option<&str> {
    const BUILTIN: &str = "@builtin(workgroup_id)";
    let head = &text[text.find("fn main(")?..];
    let head = &head[..head.find(") {")?];
    let name = head[head.find(BUILTIN)? + BUILTIN.len()..].split(':').next()?;
    Some(name.trim())
}

/// The place behind the brace that opens a function.
#[derive(Clone, Copy)]
struct BodyStart {
    line: usize,
    column: usize,
}

/// Returns where the body of the entry point `main` begins; `None` if its head is not written as
/// `@compute .. fn main(..) {`.
fn body_of_main(text: &str) -> Option<BodyStart> {
    const END: &str = ") {";
    let mut lines = text.lines().enumerate().skip_while(|(_, line)| !line.trim_start().starts_with("@compute"));
    let (line, first) = lines.next()?;
    let name = first.find("fn main(")?;
    if let Some(at) = first[name..].find(END) {
        return Some(BodyStart { line, column: name + at + END.len() });
    }
    lines.find_map(|(line, text)| Some(BodyStart { line, column: text.find(END)? + END.len() }))
}

/// Writes bindings and accessors of one slot, whose element `i` of one window lies at `place`;
/// returns the next free binding.
fn declare(
    text: &mut String,
    slot: &Slot,
    windows: u32,
    window: u64,
    (first, binding): (u32, WindowBinding),
    place: &str,
) -> u32 {
    let Slot { name, element, access } = slot;
    let (ty, atomic) = (element.wgsl(), *access == Access::Atomic);
    let space = if *access == Access::Read { "storage, read" } else { "storage, read_write" };
    let stored = if atomic { format!("atomic<{ty}>") } else { ty.to_string() };
    let together = windows > 1 && binding == WindowBinding::BindingArray;
    if together {
        let _ = writeln!(
            text,
            "struct Window_{name} {{ at: array<{stored}> }}\n\
             @group(0) @binding({first}) var<{space}> {name}_windows: binding_array<Window_{name}, {windows}>;"
        );
    } else {
        for w in 0..windows {
            let _ = writeln!(text, "@group(0) @binding({}) var<{space}> {name}_{w}: array<{stored}>;", first + w);
        }
    }
    let mut function = |head: String, body: &dyn Fn(String) -> String| {
        let _ = writeln!(text, "fn {head} {{");
        if windows == 1 {
            let _ = writeln!(text, "    {}", body(format!("{name}_0[{place}]")));
        } else if together {
            // A buffer beyond the array of bindings is undefined even for a lane that is masked
            // off: SwiftShader looks every lane's binding up, with whatever place the lane has
            // left. The last window takes such places, as with the `switch`.
            let (shift, mask, last) = (window.trailing_zeros(), window - 1, windows - 1);
            let at = format!("{name}_windows[min(i >> {shift}u, {last}u)].at[i & {mask}u]");
            let _ = writeln!(text, "    {}", body(at));
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
    if atomic && *element == Element::U64 {
        // Without the old value, which a device need not send back then.
        function(format!("add_{name}(i: u32, value: {ty})"), &|x| format!("atomicAdd(&{x}, value);"));
    } else if atomic {
        function(format!("load_{name}(i: u32) -> {ty}"), &|x| format!("return atomicLoad(&{x});"));
        function(format!("store_{name}(i: u32, value: {ty})"), &|x| format!("atomicStore(&{x}, value);"));
        for (verb, builtin) in [("add", "atomicAdd"), ("min", "atomicMin"), ("max", "atomicMax")] {
            function(format!("{verb}_{name}(i: u32, value: {ty}) -> {ty}"), &|x| {
                format!("return {builtin}(&{x}, value);")
            });
        }
        // What was there, and 1 if it was exchanged.
        function(format!("exchange_{name}(i: u32, old: {ty}, new_value: {ty}) -> vec2<{ty}>"), &|x| {
            format!(
                "let found = atomicCompareExchangeWeak(&{x}, old, new_value); return vec2<{ty}>(found.old_value, {ty}(found.exchanged));"
            )
        });
    } else {
        function(format!("load_{name}(i: u32) -> {ty}"), &|x| format!("return {x};"));
        if *access == Access::ReadWrite {
            function(format!("store_{name}(i: u32, value: {ty})"), &|x| format!("{x} = value;"));
            if *element == Element::Vec4 {
                function(format!("set_{name}(i: u32, n: u32, value: f32)"), &|x| format!("{x}[n] = value;"));
            }
        }
    }
    first + if together { 1 } else { windows }
}
