//! The text of a line kernel. Pure.
//!
//! Stages are Stockham's autosort (Cochran et al. 1967): with `L` the product of the radices done so far, the butterfly
//! `j` of a stage of radix `R` takes the points `j + i n / R`, turns them by `exp(-+2 pi i (j mod L) i / (L R))` and puts
//! them to `(j - j mod L) R + j mod L + i L`. Between stages points change hands through workgroup memory, real and
//! imaginary parts together where both fit, else one after the other.
//!
//! Other lengths: `x_j exp(-i pi j^2 / n)` convolved with the conjugate chirp (Bluestein 1970). Real lines of even length are
//! transformed as complex ones of half the length (Press et al., *Numerical Recipes*, 12.3), odd ones with a zero imaginary
//! part. Never two rows at once: the arithmetic of a line does not depend on its neighbours, so results are the same
//! for every distribution.
//!
//! Idle lanes and lines beyond the end load a clamped place and store nothing: all barriers stand in uniform flow.

mod load;
mod loops;
mod stages;
mod store;

use std::collections::HashMap;

use super::butterfly::Code;
use super::core::Core;
use super::hook::Hooks;
use super::line::{LineKernel, Order, PARAMS, Shape, Side, View, Work};
use super::tables::Table;
use crate::gpu::{Access, KernelSource};

/// A place along a line: known when the text is written, or an expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum At {
    Known(u64),
    Text(String),
}

impl At {
    fn text(&self) -> String {
        match self {
            At::Known(at) => format!("{at}u"),
            At::Text(text) => text.clone(),
        }
    }
}

/// Whether something holds: known when the text is written, or an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
enum If {
    Always,
    Never,
    Text(String),
}

impl If {
    fn known(holds: bool) -> Self {
        if holds { If::Always } else { If::Never }
    }

    fn and(self, other: If) -> If {
        match (self, other) {
            (If::Never, _) | (_, If::Never) => If::Never,
            (If::Always, other) => other,
            (this, If::Always) => this,
            (If::Text(a), If::Text(b)) => If::Text(format!("({a}) && ({b})")),
        }
    }
}

/// A point of a line on its way: where it stands, what it is called and whether it is there at all.
#[derive(Clone, Debug)]
struct Point {
    at: At,
    value: String,
    there: If,
}

/// Where the points of a transform come from.
enum Source {
    Memory,
    Points(Vec<Point>),
    /// The first `n` of these times a chirp; zero beyond.
    Chirped {
        n: u64,
        sign: f64,
        inner: Box<Source>,
    },
}

pub(super) struct Writer<'a> {
    kernel: LineKernel,
    shape: &'a Shape,
    hooks: &'a Hooks,
    code: Code,
    table: Table,
    /// Whether workgroup memory may still be read by other lanes.
    dirty: bool,
    /// Modes that were loaded already.
    loaded: HashMap<At, String>,
}

impl<'a> Writer<'a> {
    pub fn new(kernel: LineKernel, shape: &'a Shape, hooks: &'a Hooks) -> Self {
        let (code, table) = (Code::new(kernel.precision), Table::default());
        Writer { kernel, shape, hooks, code, table, dirty: false, loaded: HashMap::new() }
    }

    /// The text and the table it reads.
    pub fn write(mut self) -> (String, Table) {
        let core = &self.shape.core;
        match self.kernel.work {
            Work::Copy => self.copy(),
            _ if core.loops() => self.loops(core),
            Work::Forward => {
                let points = self.core(core, Source::Memory, -1.0);
                self.store(points);
            }
            Work::Backward => {
                let points = self.core(core, Source::Memory, 1.0);
                self.store(points);
            }
            Work::Filter(results) => self.filter(core, results),
        }
        let text = self.frame();
        (text, self.table)
    }

    fn filter(&mut self, core: &Core, results: u32) {
        let modes = self.core(core, Source::Memory, -1.0);
        for result in 0..results {
            let mut points = Vec::new();
            for Point { at, value, there } in &modes {
                let value = self.hooked("on_mode", value, at, &format!(", {result}u"));
                points.push(Point { at: at.clone(), value, there: there.clone() });
            }
            let points = self.core(core, Source::Points(points), 1.0);
            self.store_result(points, &format!("{result}u"));
        }
    }

    fn copy(&mut self) {
        let stored = self.kernel.input.stored(self.kernel.n);
        let lanes = self.shape.lanes;
        self.code.line(format!("for (var at = lane; at < {stored}u; at += {lanes}u) {{"));
        let at = At::Text("at".into());
        let value = self.fetch(self.kernel.input.view, &at);
        let value = self.hooked_load(&value, &at);
        self.emit(&at, &value, If::Always, "");
        self.code.line("}");
    }

    fn frame(&mut self) -> String {
        let LineKernel { axis, n, work, precision, points, .. } = self.kernel;
        let Shape { core, lanes, lines, together } = self.shape;
        let exchanged = if work == Work::Copy { 0 } else { core.exchanged(self.kernel.core_points()) };
        let (cell, cell_bytes) =
            if *together { ("Complex", 2 * precision.bytes()) } else { ("Real", precision.bytes()) };
        let buffers = if core.loops() { self.kernel.buffers() } else { 1 };
        let strided = self.kernel.strided();
        let split = match (strided, lanes) {
            (_, 1) => "let column = local;\n    let lane = 0u;".to_string(),
            (true, _) => format!("let column = local % {lines}u;\n    let lane = local / {lines}u;"),
            (false, _) => format!("let lane = local % {lanes}u;\n    let column = local / {lanes}u;"),
        };
        let shared = if exchanged == 0 {
            String::new()
        } else {
            let place = if strided || core.loops() {
                format!("at * {lines}u + column")
            } else {
                format!("column * {exchanged}u + at")
            };
            format!(
                "var<workgroup> shared_line: array<{cell}, {}>;\nfn place(column: u32, at: u32) -> u32 {{ return {place}; }}\n",
                lines * exchanged * buffers
            )
        };
        let digits = self.kernel.digit.map_or(1, |digit| digit.count);
        let counters = match (digits, axis) {
            (1, _) => "let c = counters(clamped);".to_string(),
            // The digit is the fastest, unless other axes lie between it and memory.
            (_, 2) => format!("let digit = clamped % {digits}u;\n    let c = counters(clamped / {digits}u);"),
            _ => format!(
                "let fast = clamped % params.line_sizes.x;\n    let digit = clamped / params.line_sizes.x % {digits}u;\n    \
                 let c = counters(clamped / params.line_sizes.x / {digits}u * params.line_sizes.x + fast);"
            ),
        };
        let hooks = if self.hooks.is_empty() {
            String::new()
        } else {
            let at =
                ["vec4<u32>(at, c.y, c.x, c.z)", "vec4<u32>(c.y, at, c.x, c.z)", "vec4<u32>(c.y, c.x, at, c.z)"][axis];
            format!(
                "fn coordinates(at: u32, c: vec3<u32>) -> vec4<u32> {{ return params.line_first + {at}; }}\n{}",
                self.hooks.text()
            )
        };
        let bytes = lines * exchanged * buffers * cell_bytes;
        let work = match work {
            Work::Copy => "moves".to_string(),
            work => format!("{work:?}, {points} points"),
        };
        format!(
            "// GridComms of {n} points along axis {axis}: {work}.\n\
             // Workgroup: {lines} lines of {lanes} invocations; workgroup memory {bytes} bytes.\n\
             {}{shared}{}{}{}{}{hooks}\
             @compute @workgroup_size(GROUP) fn main(\n    @builtin(workgroup_id) id: vec3<u32>,\n    \
             @builtin(num_workgroups) count: vec3<u32>,\n    @builtin(local_invocation_index) local: u32,\n) {{\n    {split}\n    \
             let line = group_number(id, count) * {lines}u + column;\n    let present = line < params.line_sizes.w;\n    \
             let clamped = min(line, params.line_sizes.w - 1u);\n    {counters}\n    \
             let line_in = input_line(c);\n    let line_out = output_line(c);\n{}}}\n",
            precision.aliases(),
            common(precision.aliases().contains("f64")),
            address(
                "input",
                self.kernel.input,
                "params.line_blocks.xy",
                "params.line_starts.xy",
                "params.line_inverse.xy"
            ),
            address(
                "output",
                self.kernel.output,
                "params.line_blocks.zw",
                "params.line_starts.zw",
                "params.line_inverse.zw"
            ),
            if self.kernel.input.order == Order::Blocked || self.kernel.output.order == Order::Blocked {
                BLOCKED
            } else {
                ""
            },
            self.code.text
        )
    }
}

/// How a side's points are addressed: what is known of a line, and a point of it.
fn address(name: &str, side: Side, blocks: &str, starts: &str, inverse: &str) -> String {
    match side.order {
        Order::DeviceElement => format!(
            "fn {name}_line(c: vec3<u32>) -> u32 {{ return params.line_{name}.x + params.line_{name}.y * c.x + params.line_{name}.z * c.y + params.line_{name}.w * c.z; }}\n\
             fn {name}_at(line: u32, at: u32) -> u32 {{ return line + at * params.line_{name}_more.x; }}\n"
        ),
        Order::Blocked => format!(
            "fn {name}_line(c: vec3<u32>) -> vec2<u32> {{\n    \
             return {starts} + vec2<u32>(params.line_{name}.y * c.x + params.line_{name}.z * c.y + params.line_{name}.w * c.z,\n        \
             params.line_{name}_more.y * c.x + params.line_{name}_more.z * c.y + params.line_{name}_more.w * c.z);\n}}\n\
             fn {name}_at(line: vec2<u32>, at: u32) -> u32 {{\n    \
             return blocked(line, at, params.line_{name}.x, params.line_{name}_more.x, {blocks}, {inverse});\n}}\n"
        ),
    }
}

/// The address of a point in an array whose axis is cut into parts, the larger ones first, as
/// [`split`](crate::grid::split) does. Processors divide integers slowly: the quotient is guessed and mended.
const BLOCKED: &str = "\
fn blocked(line: vec2<u32>, at: u32, lines: u32, width: u32, blocks: vec2<u32>, inverse: vec2<f32>) -> u32 {
    let larger = at < blocks.x;
    let size = select(blocks.y, blocks.y + 1u, larger);
    let first = select(blocks.x, 0u, larger);
    let offset = at - first;
    var part = u32(f32(offset) * select(inverse.y, inverse.x, larger));
    part -= select(0u, 1u, part * size > offset);
    part += select(0u, 1u, (part + 1u) * size <= offset);
    let start = first + part * size;
    return lines * start + (line.x * size + at - start) * width + line.y;
}
";

/// Helpers of every kernel.
fn common(double: bool) -> String {
    let (factor, interior) = if double {
        (
            "Real(params.line_scale.x) + Real(params.line_scale.y) + Real(params.line_scale.z)",
            "Real(params.line_scale.w)",
        )
    } else {
        ("params.line_scale.x", "params.line_scale.w")
    };
    format!(
        "fn multiply(a: Complex, b: Complex) -> Complex {{\n    return Complex(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);\n}}\n\
         fn counters(line: u32) -> vec3<u32> {{\n    let rest = line / params.line_sizes.x;\n    \
         return vec3<u32>(line % params.line_sizes.x, rest % params.line_sizes.y, rest / params.line_sizes.y);\n}}\n\
         fn factor() -> Real {{ return {factor}; }}\nfn interior() -> Real {{ return {interior}; }}\n"
    )
}

impl LineKernel {
    /// The kernel for `shape`, and the table that it reads.
    pub fn source(&self, shape: &Shape, hooks: &Hooks) -> (KernelSource, Table) {
        let element = |view: View| if view == View::Real { self.precision.real() } else { self.precision.complex() };
        let (input, output) = (element(self.input.view), element(self.output.view));
        let name = format!("fft::{:?}({})", self.work, self.points);
        let (text, table) = Writer::new(*self, shape, hooks).write();
        let params = hooks.params().map_or(PARAMS.to_string(), |fields| format!("{PARAMS}, {fields}"));
        let mut source = KernelSource::new(name, text).fields(params);
        if self.in_place {
            // Two views of one array are its plain numbers.
            let element = if self.numbers() { self.precision.real() } else { output };
            source = source.array("output", element, Access::ReadWrite);
        } else {
            source = source.array("input", input, Access::Read).array("output", output, Access::ReadWrite);
        }
        let complex = self.precision.complex();
        if !table.is_empty() {
            source = source.array("roots", complex, Access::Read);
        }
        if self.digit.is_some_and(|digit| digit.load_factor) {
            source = source.array("load_factors", complex, Access::Read);
        }
        if self.digit.is_some_and(|digit| digit.store_factor) {
            source = source.array("store_factors", complex, Access::Read);
        }
        (hooks.declare(source).group((shape.lanes * shape.lines) as u32), table)
    }
}
