
use super::Writer;
use crate::fft::line::{LineCells, LineFormat, LineKernel, LineWorkgroup, Work};

impl Writer<'_> {
    /// Returns the whole text of the kernel: declarations, workgroup memory, callbacks, the entry point and
    /// the code of a line.
    pub(super) fn frame(&self) -> String {
        let LineKernel { n, work, points, .. } = self.kernel;
        let LineWorkgroup { lanes, lines, .. } = self.shape;
        let work = match work {
            Work::Copy => "moves".to_string(),
            work => format!("{work:?}, {points} points"),
        };
        let (bytes, shared) = self.shared_memory();
        format!(
            "// Lines of {n} points: {work}.\n\
             // Workgroup: {lines} lines of {lanes} invocations; workgroup memory {bytes} bytes.\n\
             {}{shared}#import fft::line\n{}\
             @compute @workgroup_size(GROUP) fn main(\n    @builtin(workgroup_id) id: vec3<u32>,\n    \
             @builtin(num_workgroups) count: vec3<u32>,\n    @builtin(local_invocation_index) local: u32,\n) {{\n    {}\n    \
             let line = group_number(id, count) * {lines}u + column;\n    let present = line < params.line_sizes.w;\n    \
             let clamped = min(line, params.line_sizes.w - 1u);\n    {}\n    \
             let line_in = input_line(c);\n    let line_out = output_line(c);\n{}}}\n",
            self.declarations(),
            self.callbacks(),
            self.invocation(),
            self.counters(),
            self.code.text
        )
    }

    /// Returns the declarations of parameters and arrays.
    fn declarations(&self) -> String {
        let LineKernel { input, output, in_place, four_step, .. } = self.kernel;
        let element = |format: LineFormat| if format.is_real() { "Real" } else { "Complex" };
        let mut text = "var<uniform> params: Params;\n".to_string();
        let mut array = |access: &str, name: &str, element: &str| {
            text.push_str(&format!("var<storage, {access}> {name}: array<{element}>;\n"));
        };
        if in_place {
            // Real cells and complex modes in one array are both read and written as real numbers.
            array("read_write", "output", if self.kernel.as_reals() { "Real" } else { element(output.format) });
        } else {
            array("read", "input", element(input.format));
            array("read_write", "output", element(output.format));
        }
        if !self.table.is_empty() {
            array("read", "roots", "Complex");
        }
        if four_step.is_some_and(|step| step.load_factor) {
            array("read", "load_factors", "Complex");
        }
        if four_step.is_some_and(|step| step.store_factor) {
            array("read", "store_factors", "Complex");
        }
        text
    }

    /// Returns the bytes of workgroup memory, and its declaration with the function for the cell of a point.
    fn shared_memory(&self) -> (u64, String) {
        let LineWorkgroup { lines, together, cells, .. } = self.shape;
        let LineCells { columns, padded, count, .. } = *cells;
        if count == 0 {
            return (0, String::new());
        }
        let real = self.kernel.precision.bytes();
        let (cell, cell_bytes) = if *together { ("Complex", 2 * real) } else { ("Real", real) };
        let run = LineCells::RUN;
        let place = match (columns, padded) {
            (1, false) => format!("at * {lines}u + column"),
            (1, true) => format!("(at + at / {run}u) * {lines}u + column"),
            (_, false) => format!("column * {columns}u + at"),
            (_, true) => format!("column * {columns}u + at + at / {run}u"),
        };
        let text = format!(
            "var<workgroup> shared_line: array<{cell}, {count}>;\n\
             fn place(column: u32, at: u32) -> u32 {{ return {place}; }}\n"
        );
        (count * cell_bytes, text)
    }

    /// Returns the code for the line of the workgroup on which an invocation works, and its number in the line.
    fn invocation(&self) -> String {
        let LineWorkgroup { lanes, lines, .. } = self.shape;
        match (self.kernel.strided(), lanes) {
            (_, 1) => "let column = local;\n    let lane = 0u;".to_string(),
            (true, _) => format!("let column = local % {lines}u;\n    let lane = local / {lines}u;"),
            (false, _) => format!("let lane = local % {lanes}u;\n    let column = local / {lanes}u;"),
        }
    }

    /// Returns the code for the counters of a line: of the other axes and fields, and of the other factors or
    /// pieces of the axis.
    fn counters(&self) -> String {
        let count = self.kernel.count();
        match (count, self.kernel.axis) {
            (1, _) => "let c = counters(clamped);".to_string(),
            // The counter of factors is the fastest one, unless other axes lie between it and memory.
            (_, 2) => format!("let counter = clamped % {count}u;\n    let c = counters(clamped / {count}u);"),
            _ => format!(
                "let fast = clamped % params.line_sizes.x;\n    let counter = clamped / params.line_sizes.x % {count}u;\n    \
                 let c = counters(clamped / params.line_sizes.x / {count}u * params.line_sizes.x + fast);"
            ),
        }
    }

    /// Returns the functions of callbacks and the function for their coordinates.
    fn callbacks(&self) -> String {
        if self.callbacks.is_empty() {
            return String::new();
        }
        let at = ["vec4<u32>(at, c.y, c.x, c.z)", "vec4<u32>(c.y, at, c.x, c.z)", "vec4<u32>(c.y, c.x, at, c.z)"]
            [self.kernel.axis];
        format!(
            "fn coordinates(at: u32, c: vec3<u32>) -> vec4<u32> {{ return params.line_first + {at}; }}\n{}",
            self.callbacks.imports()
        )
    }
}
