//! Kernels of pointwise functions: they read arguments and write results at each place.
//!
//! Neighboring invocations treat neighboring places, so that reads and writes are whole sectors.
//! The cost is that of memory: each argument that matters is read once, and each result is written
//! once.

use std::collections::HashMap;
use std::fmt::Write as _;

use wgpu::naga::back::binary_operation_str;
use wgpu::naga::common::wgsl::TryToWgsl;

use super::function::ranges;
use super::{Argument, Binary, Graph, Node, Op, Pointwise};
use crate::gpu::{Element, KernelSource};

/// The layout of the components of an argument or a result in its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Each component is a whole field, one after the other.
    Apart,
    /// Two adjacent components: complex numbers.
    Pairs,
    /// Components of one value for all places of a batch, one after the other; for arguments only.
    Uniform,
}

crate::gpu::kernel_params! {
    /// Parameters of the kernel.
    pub struct PointwiseParams {
        /// Values of a component in all batches.
        pub count: u32,
        /// Values of a component in one batch.
        pub places: u32,
    }
}

/// Returns the kernel of `function`, whose arguments and results have these `forms`, and the
/// numbers of the arguments that it reads. Its arrays are those arguments, then all results.
///
/// An element of an array is a `value`: [`Element::F32`], or [`Element::Vec4`] if all forms are
/// [`Form::Apart`]. Parameters count elements.
pub fn kernel(
    label: String,
    function: &Pointwise,
    forms: [&[Form]; 2],
    batched: bool,
    value: Element,
) -> (KernelSource, Vec<usize>) {
    let read: Vec<usize> = (0..).zip(function.used()).filter(|(_, used)| *used).map(|(number, _)| number).collect();
    let form = |form: Form| if form == Form::Pairs { "vec2<f32>" } else { "Value" };
    let mut text = String::from(
        "// A pointwise function, written from its graph.\n//\n// Layout: arguments x, results y; components one after the other within a \
         batch, or pairs.\n// Workgroup: GROUP invocations, ITEMS elements each. No workgroup memory.\n\nvar<uniform> params: Params;\n",
    );
    for &number in &read {
        let _ = writeln!(text, "var<storage, read> x{number}: array<{}>;", form(forms[0][number]));
    }
    for (number, result) in forms[1].iter().enumerate() {
        let _ = writeln!(text, "var<storage, read_write> y{number}: array<{}>;", form(*result));
    }
    text.push_str("\nfn each(i: u32) {\n");
    let wide = |arguments: &[Argument], forms: &[Form]| {
        arguments.iter().zip(forms).any(|(argument, form)| argument.width > 1 && *form == Form::Apart)
    };
    let uniform = read.iter().any(|&number| forms[0][number] == Form::Uniform);
    if batched && (uniform || wide(function.arguments(), forms[0]) || wide(function.results(), forms[1])) {
        text.push_str("    let batch = i / params.places;\n    let first = batch * params.places;\n");
    }
    for &number in &read {
        if forms[0][number] == Form::Pairs {
            let _ = writeln!(text, "    let pair{number} = load_x{number}(i);");
        }
    }
    let read_component = |argument: usize, component: u32| match forms[0][argument] {
        Form::Pairs => format!("pair{argument}.{}", if component == 0 { "x" } else { "y" }),
        Form::Apart => format!("load_x{argument}({})", place(&function.arguments()[argument], component, batched)),
        Form::Uniform if batched => {
            format!("load_x{argument}(batch * {}u + {component}u)", function.arguments()[argument].width)
        }
        Form::Uniform => format!("load_x{argument}({component}u)"),
    };
    let (statements, outputs) = function.wgsl(read_component);
    text.push_str(&statements);
    for ((number, result), range) in function.results().iter().enumerate().zip(ranges(function.results())) {
        let outputs = &outputs[range];
        match forms[1][number] {
            Form::Pairs => {
                let _ = writeln!(text, "    store_y{number}(i, vec2<f32>({}));", outputs.join(", "));
            }
            Form::Apart | Form::Uniform => (0..).zip(outputs).for_each(|(component, output)| {
                let _ = writeln!(text, "    store_y{number}({}, {output});", place(result, component, batched));
            }),
        }
    }
    text.push_str("}\n\n#each params.count\n");
    (KernelSource::new(label, text).params::<PointwiseParams>().element("Value", value), read)
}

/// Returns the index of a component at place `i`, counted over all batches.
fn place(argument: &Argument, component: u32, batched: bool) -> String {
    match (argument.width, component, batched) {
        (1, ..) | (_, 0, false) => "i".into(),
        (_, component, false) => format!("i + {component}u * params.places"),
        (width, component, true) => format!("i + first * {}u + {component}u * params.places", width - 1),
    }
}

/// Returns the kernels of a sample: its value and both derivatives, with all forms.
pub fn samples() -> Vec<KernelSource> {
    let text = "fn sample(v: vec3<f32>, mode: vec2<f32>, rate: f32) -> vec2<f32> {
        let damped = mode * exp(-rate * v.x * v.x) / (1.0 + dot(v, v));
        return select(damped, vec2<f32>(tanh(v.y), sqrt(abs(v.z))), v.x > length(mode));
    }";
    let Ok(function) = Pointwise::new(text, "sample") else { return Vec::new() };
    let (given, result) = ([Form::Apart, Form::Pairs, Form::Uniform], [Form::Pairs]);
    let adjoints = [Form::Apart, Form::Pairs, Form::Apart];
    let tangents = [given, given].concat();
    let cotangents = [&given[..], &result].concat();
    let calls: [(&str, Pointwise, &[Form], &[Form]); 3] = [
        ("apply", function.clone(), &given, &result),
        ("jvp", function.jvp(), &tangents, &result),
        ("vjp", function.vjp(), &cotangents, &adjoints),
    ];
    let forms = |(call, function, arguments, results): (&str, Pointwise, &[Form], &[Form])| {
        let label = format!("operators::pointwise_{call}");
        [false, true].map(|batched| kernel(label.clone(), &function, [arguments, results], batched, Element::F32).0)
    };
    let text = "fn fours(x: f32, rate: vec2<f32>) -> f32 {
        if x < 0.0 || x > 2.0 { return max(exp(-rate.x * x), 0.1); }
        return select(rate.y, pow(x, 1.5), x != 1.0);
    }";
    let fours = Pointwise::new(text, "fours").ok();
    let fours = fours.into_iter().flat_map(|function| {
        let apart = [Form::Apart; 2];
        let label = "operators::pointwise_fours".to_string();
        [false, true].map(|batched| kernel(label.clone(), &function, [&apart, &apart[1..]], batched, Element::Vec4).0)
    });
    calls.into_iter().flat_map(forms).chain(fours).collect()
}

impl Graph {
    /// Returns WGSL statements that define `v0`, `v1`, .. for `outputs`, and the expressions of the
    /// outputs. `input` returns the expression of a component of the input. It is a `Value`: a
    /// number, or a vector of numbers that are treated alike.
    pub fn wgsl(&self, outputs: &[Node], input: impl Fn(u32) -> String) -> (String, Vec<String>) {
        let (mut text, mut names) = (String::new(), HashMap::new());
        for node in self.needed(outputs.iter().copied()) {
            let of = |node: Node| -> &String { &names[&node] };
            let expression = match self.op(node) {
                Op::Number(bits) => {
                    names.insert(node, number(f64::from_bits(bits) as f32));
                    continue;
                }
                Op::Input(component) => input(component),
                Op::Flag(flag) => format!("Value() {} Value()", if flag { "==" } else { "!=" }),
                Op::Neg(a) => format!("-{}", of(a)),
                Op::Unary(function, a) => format!("{}({})", function.try_to_wgsl().unwrap_or_default(), of(a)),
                Op::Binary(function, a, b) => binary(function, of(a), of(b)),
                Op::Fma(a, b, c) => format!("fma({}, {}, {})", of(a), of(b), of(c)),
                Op::Test(how, a, b) => format!("{} {} {}", of(a), binary_operation_str(how), of(b)),
                Op::Not(a) => format!("!{}", of(a)),
                Op::Select(condition, [accept, reject]) => {
                    format!("select({}, {}, {})", of(reject), of(accept), of(condition))
                }
            };
            let name = format!("v{}", names.len());
            let _ = writeln!(text, "    let {name} = {expression};");
            names.insert(node, name);
        }
        (text, outputs.iter().map(|node| names[node].clone()).collect())
    }
}

/// Returns a `Value` of a number, which WGSL reads to the same bits.
fn number(value: f32) -> String {
    format!("Value({value:?}f)")
}

fn binary(function: Binary, a: &str, b: &str) -> String {
    match function {
        Binary::Add => format!("{a} + {b}"),
        Binary::Sub => format!("{a} - {b}"),
        Binary::Mul => format!("{a} * {b}"),
        Binary::Div => format!("{a} / {b}"),
        Binary::Rem => format!("{a} % {b}"),
        Binary::Pow => format!("pow({a}, {b})"),
        Binary::Min => format!("min({a}, {b})"),
        Binary::Max => format!("max({a}, {b})"),
        Binary::Atan2 => format!("atan2({a}, {b})"),
    }
}
