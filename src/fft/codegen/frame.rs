//! What stands around the code of a line: workgroup memory, addresses, hooks, the entry point.

use super::Writer;
use crate::fft::line::{LineKernel, Order, Side, Work, WorkgroupShape};

impl Writer<'_> {
    /// The whole text of the kernel.
    pub(super) fn frame(&self) -> String {
        let LineKernel { n, axis, work, points, precision, input, output, .. } = self.kernel;
        let WorkgroupShape { lanes, lines, .. } = self.shape;
        let work = match work {
            Work::Copy => "moves".to_string(),
            work => format!("{work:?}, {points} points"),
        };
        let (bytes, shared) = self.shared_memory();
        format!(
            "// Lines of {n} points along axis {axis}: {work}.\n\
             // Workgroup: {lines} lines of {lanes} invocations; workgroup memory {bytes} bytes.\n\
             {}{shared}{}{}{}{}{}\
             @compute @workgroup_size(GROUP) fn main(\n    @builtin(workgroup_id) id: vec3<u32>,\n    \
             @builtin(num_workgroups) count: vec3<u32>,\n    @builtin(local_invocation_index) local: u32,\n) {{\n    {}\n    \
             let line = group_number(id, count) * {lines}u + column;\n    let present = line < params.line_sizes.w;\n    \
             let clamped = min(line, params.line_sizes.w - 1u);\n    {}\n    \
             let line_in = input_line(c);\n    let line_out = output_line(c);\n{}}}\n",
            precision.aliases(),
            common(precision.aliases().contains("f64")),
            address("input", input, "xy"),
            address("output", output, "zw"),
            if [input.order, output.order].contains(&Order::Blocked) { BLOCKED } else { "" },
            self.hook_functions(),
            self.invocation(),
            self.counters(),
            self.code.text
        )
    }

    /// Bytes of workgroup memory, and its declaration with the place of a point in it.
    fn shared_memory(&self) -> (u64, String) {
        let WorkgroupShape { core, lines, together, .. } = self.shape;
        let exchanged = if self.kernel.work == Work::Copy { 0 } else { core.exchanged(self.kernel.core_points()) };
        if exchanged == 0 {
            return (0, String::new());
        }
        let real = self.kernel.precision.bytes();
        let (cell, cell_bytes) = if *together { ("Complex", 2 * real) } else { ("Real", real) };
        let buffers = if core.loops() { self.kernel.buffers() } else { 1 };
        let cells = lines * exchanged * buffers;
        let place = if self.kernel.strided() || core.loops() {
            format!("at * {lines}u + column")
        } else {
            format!("column * {exchanged}u + at")
        };
        let text = format!(
            "var<workgroup> shared_line: array<{cell}, {cells}>;\n\
             fn place(column: u32, at: u32) -> u32 {{ return {place}; }}\n"
        );
        (cells * cell_bytes, text)
    }

    /// Which line of its workgroup an invocation works on, and as which of the line's invocations.
    fn invocation(&self) -> String {
        let WorkgroupShape { lanes, lines, .. } = self.shape;
        match (self.kernel.strided(), lanes) {
            (_, 1) => "let column = local;\n    let lane = 0u;".to_string(),
            (true, _) => format!("let column = local % {lines}u;\n    let lane = local / {lines}u;"),
            (false, _) => format!("let lane = local % {lanes}u;\n    let column = local / {lanes}u;"),
        }
    }

    /// The counters of a line: of the other axes and fields, and of the other factors of the axis.
    fn counters(&self) -> String {
        let count = self.kernel.four_step.map_or(1, |step| step.count);
        match (count, self.kernel.axis) {
            (1, _) => "let c = counters(clamped);".to_string(),
            // That of the factors is the fastest, unless other axes lie between it and memory.
            (_, 2) => format!("let counter = clamped % {count}u;\n    let c = counters(clamped / {count}u);"),
            _ => format!(
                "let fast = clamped % params.line_sizes.x;\n    let counter = clamped / params.line_sizes.x % {count}u;\n    \
                 let c = counters(clamped / params.line_sizes.x / {count}u * params.line_sizes.x + fast);"
            ),
        }
    }

    /// The functions of hooks, and the coordinates that they are given.
    fn hook_functions(&self) -> String {
        if self.hooks.is_empty() {
            return String::new();
        }
        let at = ["vec4<u32>(at, c.y, c.x, c.z)", "vec4<u32>(c.y, at, c.x, c.z)", "vec4<u32>(c.y, c.x, at, c.z)"]
            [self.kernel.axis];
        format!(
            "fn coordinates(at: u32, c: vec3<u32>) -> vec4<u32> {{ return params.line_first + {at}; }}\n{}",
            self.hooks.text()
        )
    }
}

/// The address of a line of a side, and of a point of that line. `part` names the side's half of the parameters of blocks.
fn address(name: &str, side: Side, part: &str) -> String {
    match side.order {
        Order::Strided => format!(
            "fn {name}_line(c: vec3<u32>) -> u32 {{ return params.line_{name}.x + params.line_{name}.y * c.x + params.line_{name}.z * c.y + params.line_{name}.w * c.z; }}\n\
             fn {name}_at(line: u32, at: u32) -> u32 {{ return line + at * params.line_{name}_more.x; }}\n"
        ),
        Order::Blocked => format!(
            "fn {name}_line(c: vec3<u32>) -> vec2<u32> {{\n    \
             return params.line_starts.{part} + vec2<u32>(params.line_{name}.y * c.x + params.line_{name}.z * c.y + params.line_{name}.w * c.z,\n        \
             params.line_{name}_more.y * c.x + params.line_{name}_more.z * c.y + params.line_{name}_more.w * c.z);\n}}\n\
             fn {name}_at(line: vec2<u32>, at: u32) -> u32 {{\n    \
             return blocked(line, at, params.line_{name}.x, params.line_{name}_more.x, params.line_blocks.{part}, params.line_inverse.{part});\n}}\n"
        ),
    }
}

/// The address of a point in an array whose axis is cut into parts, the larger ones first, as
/// [`split`](crate::grid::split) does. The quotient comes from a multiplication in `f32` and is corrected by one, which is faster than an integer
/// division.
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

/// Functions of every kernel.
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
