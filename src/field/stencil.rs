//! Functions of cells and their neighbors, in WGSL.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Field, FieldError, Result, on_mesh};
use crate::gpu::{
    Callback, CallbackKey, DeviceElement, Element, Kernel, KernelCache, KernelParams, KernelSource, RawArray, WgslWords,
};
use crate::grid::{Mesh, MeshOptions, extent};
use crate::rank::Rank;

/// The most components that WGSL has vectors for.
const MOST_COMPONENTS: u64 = 4;

crate::gpu::kernel_params! {
    struct StencilParams {
        /// Own cells along each axis, and elements from one component to the next.
        stencil_own: [u32; 4],
        /// Index of the first own cell, and its place in the array.
        stencil_first: [u32; 4],
        /// Elements from one plane to the next, from one row to the next; bits of NaN; own cells.
        stencil_strides: [u32; 4],
        /// Ghost cells below along each axis.
        stencil_below: [i32; 4],
        /// Ghost cells above along each axis.
        stencil_above: [i32; 4],
        /// Size of a cell.
        stencil_cell: [f32; 4],
    }
}

/// Returns the kernel for results of this element with `components` components, without the
/// caller's text.
fn source(element: Element, components: u64) -> KernelSource {
    KernelSource::new("field::stencil", include_str!("../../shaders/field/stencil.wgsl"))
        .params::<StencilParams>()
        .element("Value", element)
        .flag("single", components == 1)
        .constant("COMPONENTS", components as u32)
}

/// Returns a stencil with all kinds of accessors, for tests of kernels.
pub(crate) fn kernels() -> Vec<KernelSource> {
    let form = |element: Element, components: u64| {
        let input = Input { name: "x", element, components };
        let result = value_type(element, components);
        let cell = format!("fn cell(c: Cell) -> {result} {{ return x(c) + x_at(c, -1, 0, 1); }}\n");
        let array = format!("var<storage, read> x_cells: array<{}>;\n", element.wgsl());
        source(element, components).module("field::cell", array + &cell).module("field::inputs", input.accessors(3))
    };
    let numbers = [Element::F32, Element::U32, Element::I32];
    let all = numbers.into_iter().flat_map(|element| [1, 3].map(|components| form(element, components)));
    all.chain([form(Element::Complex32, 1)]).collect()
}

/// Returns the WGSL type of a cell's value.
fn value_type(element: Element, components: u64) -> String {
    match components {
        1 => element.wgsl().into(),
        count => format!("vec{count}<{}>", element.wgsl()),
    }
}

/// An input field as the text sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Input<'a> {
    name: &'a str,
    element: Element,
    components: u64,
}

impl Input<'_> {
    /// Returns the functions that load values of the field on a mesh of `axes` axes.
    fn accessors(&self, axes: usize) -> String {
        let Input { name, element, components } = self;
        let value = value_type(*element, *components);
        let loads: Vec<String> =
            (0..*components).map(|n| format!("load_{name}_cells(place + {n}u * params.stencil_own.w)")).collect();
        let loaded = match components {
            1 => format!("load_{name}_cells(place)"),
            _ => format!("{value}({})", loads.join(", ")),
        };
        let nan = match element {
            Element::F32 => "bitcast<f32>(params.stencil_strides.z)".to_string(),
            Element::Complex32 => "vec2<f32>(bitcast<f32>(params.stencil_strides.z))".into(),
            Element::F64 => "f64(bitcast<f32>(params.stencil_strides.z))".into(),
            Element::Complex64 => "vec2<f64>(f64(bitcast<f32>(params.stencil_strides.z)))".into(),
            Element::I32 => "bitcast<i32>(params.stencil_strides.z)".into(),
            _ => "params.stencil_strides.z".into(),
        };
        let outside = if *components == 1 { nan } else { format!("{value}({nan})") };
        let offsets = ["di", "dj", "dk"];
        let arguments: String = offsets[3 - axes..].iter().map(|offset| format!(", {offset}: i32")).collect();
        let offset = |axis: usize| if axis < 3 - axes { "0" } else { offsets[axis] };
        format!(
            "fn {name}_place(place: u32) -> {value} {{ return {loaded}; }}\n\
             fn {name}(c: Cell) -> {value} {{ return {name}_place(c.place); }}\n\
             fn {name}_at(c: Cell{arguments}) -> {value} {{\n    \
                 let by = vec3<i32>({}, {}, {});\n    \
                 if any(by < -params.stencil_below.xyz) || any(by > params.stencil_above.xyz) {{ return {outside}; }}\n    \
                 let strides = vec3<i32>(vec2<i32>(params.stencil_strides.xy), 1);\n    \
                 return {name}_place(u32(i32(c.place) + by.x * strides.x + by.y * strides.y + by.z * strides.z));\n}}\n",
            offset(0),
            offset(1),
            offset(2),
        )
    }
}

/// A field that a [`Stencil`] reads: a [`Field`] of any element type with up to 4 components.
pub trait StencilInput: sealed::Sealed {}

mod sealed {
    use super::{Element, Mesh, RawArray, Result};
    use crate::rank::Rank;

    /// Methods of inputs of stencils.
    pub trait Sealed {
        fn mesh(&self) -> &Mesh;
        fn element(&self) -> Element;
        fn components(&self) -> u64;
        fn raw(&self) -> &RawArray;
        fn fill_ghosts(&self, rank: &mut Rank) -> Result<()>;
    }
}

impl<T: DeviceElement> StencilInput for Field<T> {}

impl<T: DeviceElement> sealed::Sealed for Field<T> {
    fn mesh(&self) -> &Mesh {
        self.mesh()
    }

    fn element(&self) -> Element {
        T::ELEMENT
    }

    fn components(&self) -> u64 {
        self.components()
    }

    fn raw(&self) -> &RawArray {
        self.array().raw()
    }

    fn fill_ghosts(&self, rank: &mut Rank) -> Result<()> {
        rank.fill_ghosts(self)
    }
}

/// Key of the kernels of a stencil.
#[derive(PartialEq, Eq, Hash)]
struct Form {
    callback: CallbackKey,
    accessors: String,
    result: Element,
    components: u64,
}

/// A function of each cell of a mesh and its neighbors, in WGSL. [`Rank::stencil`] creates it.
///
/// The text defines `fn cell(c: Cell) -> T`, the value of one cell of the result. In it
///
/// - `x(c)` is the value of the input `x` in the cell,
/// - `x_at(c, di, dj, dk)` is its value `[di, dj, dk]` cells away, with as many offsets as the mesh
///   has axes; offsets must not reach beyond the ghost cells of the mesh,
/// - `c.index: vec3<u32>` is the index of the cell in the mesh, `c.position: vec3<f32>` the point
///   that it stands for; with fewer than three axes the shape is padded in front, so that the last
///   axis is always `z`,
/// - `params` has the fields of the parameters.
///
/// The value of a field is its element type, such as `f32`, or with 2 to 4 components a vector such
/// as `vec3<f32>`. Names of functions of your own must not be `each`, `main` or begin with `load_`,
/// `store_` or `stencil_`.
pub struct Stencil {
    mesh: Mesh,
    text: String,
    kernels: KernelCache<Form>,
    /// Whether ranks have compared their texts.
    is_agreed: AtomicBool,
}

impl fmt::Debug for Stencil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stencil").field("mesh", &self.mesh).field("text", &self.text).finish_non_exhaustive()
    }
}

impl Rank {
    /// Creates a function of each cell of `mesh` and its neighbors. The kernel is compiled when it
    /// runs first.
    ///
    /// ```
    /// meshloom::kernel_params! { struct Decay { rate: f32 } }
    ///
    /// meshloom::run(|rank| {
    ///     let mesh = rank.mesh([16]).ghosts(1).build()?;
    ///     let x = rank.fill(&mesh, |[_, _, x]| x)?;
    ///     let mut y = rank.zeros::<f32>(&mesh)?;
    ///     let step = rank.stencil(&mesh, "fn cell(c: Cell) -> f32 { return params.rate * (x_at(c, 1) - x(c)); }");
    ///     step.run(rank, &Decay { rate: 0.5 }, &[("x", &x)], &mut y)?;
    ///     if let Some(y) = rank.gather(&y, 0)? {
    ///         assert_eq!(y[..2], [0.5, 0.5]);
    ///         assert_eq!(y[15], -7.5); // the box is periodic
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    pub fn stencil(&self, mesh: &Mesh, text: impl Into<String>) -> Stencil {
        Stencil {
            mesh: mesh.clone(),
            text: text.into(),
            kernels: KernelCache::default(),
            is_agreed: AtomicBool::new(false),
        }
    }
}

impl Stencil {
    /// Computes `output` from the named `inputs`. Exchanges the ghost cells of inputs that the text
    /// reads with `x_at`; ghost cells of `output` are not set. [Collective](Rank); records, and
    /// blocks only for exchanges between ranks.
    ///
    /// An offset that is not a literal and reaches beyond the ghost cells yields NaN, and for
    /// integers the bits of NaN.
    ///
    /// # Errors
    /// - [`FieldError::Layout`] if a field is on another mesh.
    /// - [`FieldError::Stencil`] if a literal offset reaches beyond the ghost cells, a call has
    ///   another number of offsets than the mesh has axes, `cell` returns another type than the
    ///   output has, a field has more than 4 components, or a name is not usable.
    /// - [`FieldError::Device`] if the text does not compile or does not match the fields.
    /// - [`FieldError::Comm`] if the text differs between ranks, or another rank fails.
    pub fn run<T: DeviceElement, P: KernelParams>(
        &self,
        rank: &mut Rank,
        params: &P,
        inputs: &[(&str, &dyn StencilInput)],
        output: &mut Field<T>,
    ) -> Result<()> {
        on_mesh("Stencil::run", &self.mesh, output.mesh())?;
        let axes = self.mesh.options().axes;
        let words = WgslWords::new(&self.text);
        let mut accessors = String::new();
        let mut arrays = Vec::new();
        for (name, field) in inputs {
            on_mesh("Stencil::run", &self.mesh, field.mesh())?;
            self.check(&words, name, field.components())?;
            accessors += &Input { name, element: field.element(), components: field.components() }.accessors(axes);
            arrays.push((format!("{name}_cells"), field.element(), field.raw()));
        }
        self.check(&words, "output", output.components())?;
        if !self.is_agreed.load(Ordering::Relaxed) {
            // Ranks with other texts would wait for other ghost cells.
            let names: Vec<&str> = inputs.iter().map(|(name, _)| *name).collect();
            rank.comm
                .agree("Stencil::run", &[("mesh", &self.mesh.to_string()), ("text", &self.text), ("inputs", &names)])?;
            self.is_agreed.store(true, Ordering::Relaxed);
        }
        for (name, field) in inputs {
            if words.contains(&format!("{name}_at")) {
                field.fill_ghosts(rank)?;
            }
        }
        let callback = arrays.into_iter().fold(Callback::new(self.text.as_str()), |callback, (name, element, raw)| {
            callback.read_raw(&name, element, raw)
        });
        let callback = if size_of::<P>() == 0 { callback } else { callback.params(params) };
        callback.check("Stencil", &["fn cell"])?;
        self.check_result(&words, &value_type(T::ELEMENT, output.components()))?;
        let kernel = self.kernel(&callback, accessors, T::ELEMENT, output.components());
        let params = self.params();
        let bytes = [bytemuck::bytes_of(&params), &callback.values()].concat();
        let mut arrays: Vec<&RawArray> = callback.arrays().collect();
        arrays.push(output.array().raw());
        Ok(rank.recorder.each_bytes(&kernel, &arrays, &bytes, self.mesh.own_cells())?)
    }

    fn kernel(&self, callback: &Callback, accessors: String, result: Element, components: u64) -> Arc<Kernel> {
        let inputs = accessors.clone();
        let form = Form { callback: callback.key(), accessors, result, components };
        self.kernels.get(form, callback.trust(), || {
            callback.bind(source(result, components).callers_module("field::inputs", inputs), "field::cell")
        })
    }

    fn params(&self) -> StencilParams {
        let layout = self.mesh.layout();
        let (own, strides, cell) = (extent(&layout.own), layout.strides(), self.mesh.cell_size());
        let [below, above] = [0, 1].map(|side| [0, 1, 2].map(|a| layout.ghosts[a][side] as i32));
        let first = [0, 1, 2].map(|a| layout.own[a].start as u32);
        StencilParams {
            stencil_own: [own[0] as u32, own[1] as u32, own[2] as u32, layout.len() as u32],
            stencil_first: [first[0], first[1], first[2], layout.offset() as u32],
            stencil_strides: [strides[0] as u32, strides[1] as u32, f32::NAN.to_bits(), self.mesh.own_cells() as u32],
            stencil_below: [below[0], below[1], below[2], 0],
            stencil_above: [above[0], above[1], above[2], 0],
            stencil_cell: [cell[0] as f32, cell[1] as f32, cell[2] as f32, 0.0],
        }
    }

    /// Checks that `cell` returns the value of the output, unless the type is an alias of the text.
    fn check_result(&self, words: &WgslWords<'_>, expected: &str) -> Result<()> {
        let Some(found) = words.result_of("cell") else { return Ok(()) };
        let is_builtin = ["f32", "u32", "i32", "f64", "bool"].contains(&found.as_str()) || found.starts_with("vec");
        let long = |text: &str| match text.strip_prefix("vec").and_then(|rest| rest.split_at_checked(1)) {
            Some((n, "f")) => format!("vec{n}<f32>"),
            Some((n, "u")) => format!("vec{n}<u32>"),
            Some((n, "i")) => format!("vec{n}<i32>"),
            _ => text.to_string(),
        };
        if !is_builtin || long(&found) == expected {
            return Ok(());
        }
        Err(FieldError::Stencil { why: format!("`cell` returns {found}: expected {expected}, a value of the output") })
    }

    /// Checks the name and the components of a field, and the literal offsets with which the text
    /// reads it.
    fn check(&self, words: &WgslWords<'_>, name: &str, components: u64) -> Result<()> {
        let wrong = |why: String| Err(FieldError::Stencil { why });
        if components > MOST_COMPONENTS {
            return wrong(format!("`{name}` has {components} components; at most {MOST_COMPONENTS} are possible"));
        }
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !["cell", "params", "each", "main"].contains(&name);
        if !is_name {
            return wrong(format!("`{name}` cannot name an input; use letters and digits, for example `x`"));
        }
        let MeshOptions { axes, ghosts, .. } = *self.mesh.options();
        for arguments in words.calls(&format!("{name}_at")) {
            if arguments.len() != axes + 1 {
                let offsets = arguments.len().saturating_sub(1);
                return wrong(format!(
                    "`{name}_at` takes the cell and an offset for each axis of the mesh: expected {axes} offsets, got {offsets}"
                ));
            }
            for (axis, text) in (3 - axes..3).zip(arguments.iter().skip(1)) {
                let Ok(offset) = text.trim_end_matches('i').parse::<i64>() else { continue };
                let [below, above] = ghosts[axis].map(|width| width as i64);
                if offset < -below || offset > above {
                    return wrong(format!(
                        "`{name}_at` reads {offset} cells away along axis {}, but the mesh has {below} ghost cells below and \
                         {above} above; create the mesh with more",
                        axis + axes - 3
                    ));
                }
            }
        }
        Ok(())
    }
}
