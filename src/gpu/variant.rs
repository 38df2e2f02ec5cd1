//! The whole shader of a kernel for a device and for the sizes of its arrays: bindings and
//! accessors in place of the declarations of its author. Pure.

use std::fmt::Write as _;

use super::assemble::Origin;
use super::params::{PARAMS, ParamField};
use super::stack::refusal;
use super::{Access, DeviceError, Element, Slot, WorkgroupShape};

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

/// A kernel's text with the declarations of its author.
#[derive(Clone, Debug)]
pub(super) struct Assembled {
    pub label: String,
    pub slots: Vec<Slot>,
    /// Fields of the parameters in WGSL, and the Rust layout of the kernel's own fields.
    pub fields: String,
    pub layout: Vec<ParamField>,
    /// Size of the parameters in bytes, a multiple of 16: the largest allowed if a caller's text
    /// adds fields.
    pub params_bytes: u64,
    /// Whether each of its dispatches can be one over copies, as far as its text tells.
    pub serves_stacks: bool,
    pub group: Option<u32>,
    pub loop_rounds: u32,
    pub is_elementwise: bool,
    pub text: String,
    /// The origin of each line of the text.
    pub origins: Vec<Option<Origin>>,
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

/// Returns `true` if the entry point can begin with the places of a workgroup's copy.
pub(super) fn takes_copies(text: &str) -> bool {
    body_of_main(text).is_some() && workgroup_id_of_main(text).is_some()
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
        // Returns the old value, and 1 if it was exchanged.
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
