//! The text of kernels that transform all axes of a field in one workgroup.

use super::{COORDINATES, Cells, Condition, Writer, pass_source};
use crate::fft::line::{LineKernel, Order};
use crate::fft::options::{PassCallbacks, PassPosition};
use crate::fft::plan::{Route, Stage, Whole, WholePart};
use crate::fft::tables::Table;
use crate::gpu::KernelSource;

impl Writer<'_> {
    /// Writes a point into the array in workgroup memory. Other invocations of the line may still
    /// read what they exchanged.
    pub(super) fn put_cell(&mut self, cell: &str, value: &str, valid: Condition) {
        if std::mem::replace(&mut self.dirty, false) && self.shape.lanes > 1 {
            self.code.line("workgroupBarrier();");
        }
        let Condition::Text(valid) = valid.and(Condition::Text("present".into())) else { return };
        self.code.line(format!("if {valid} {{ {cell} = {value}; }}"));
    }
}

impl Whole {
    /// Returns the kernel for the route that this whole transform replaces, and its table.
    /// `callbacks` belong to the whole route.
    pub(in crate::fft) fn source(&self, route: &Route, callbacks: &PassCallbacks) -> (KernelSource, Table) {
        let (mut table, mut text) = (Table::default(), String::new());
        for (i, part) in self.parts.iter().enumerate() {
            let stage = &route.stages[part.stage];
            let kernel = stage.passes[0].kernel;
            let position = PassPosition { first: i == 0, last: i + 1 == self.parts.len() };
            let own = callbacks.of_pass(position, kernel.work);
            let (read, written) = (!position.first, !position.last);
            let stride = self.strides[stage.axis];
            let cells = Cells { read, written, stride, exchange_stride: if part.apart.is_some() { 1 } else { stride } };
            let mut writer = Writer::new(kernel, &part.shape, &own);
            writer.table = std::mem::take(&mut table);
            writer.dirty = read || part.apart.is_some();
            writer.cells = Some(cells);
            let (code, grown) = writer.body();
            table = grown;
            if read {
                text.push_str("    workgroupBarrier();\n");
            }
            text.push_str(&self.rounds(part, stage, &cells, &code));
        }
        let text = self.frame(route, callbacks, &table, &text);
        let axes: String = self.parts.iter().map(|part| ["x", "y", "z"][route.stages[part.stage].axis]).collect();
        let kernel = self.kernel(route, 0);
        let label = format!("fft::whole {:?} {:?}, axes {axes}", kernel.work, route.stages[self.parts[0].stage].before);
        let source = pass_source(label, text, kernel.precision, [Order::Strided; 2], self.group);
        (callbacks.bind(source), table)
    }

    /// Returns the kernel of a part's pass.
    pub(in crate::fft) fn kernel(&self, route: &Route, part: usize) -> LineKernel {
        route.stages[self.parts[part].stage].passes[0].kernel
    }

    /// Returns the loop over the lines of a part around the code of a line.
    fn rounds(&self, part: &WholePart, stage: &Stage, cells: &Cells, code: &str) -> String {
        let WholePart { shape, lines: all, apart, .. } = part;
        let (lanes, lines, axis) = (shape.lanes, shape.lines, stage.axis);
        let [slow, fast] = stage.across();
        let numbers = if axis < 2 {
            format!("let slot = local % {lines}u;\n    let lane = min(local / {lines}u, {}u);", lanes - 1)
        } else {
            format!("let slot = min(local / {lanes}u, {}u);\n    let lane = local % {lanes}u;", lines - 1)
        };
        // Counters of the axes across: along the array of the workgroup, or among workgroups.
        let mut rest = "line".to_string();
        let mut counter = |a: usize| {
            if self.strides[a] == 0 {
                return "batch".to_string();
            }
            let extent = stage.before[a];
            let own = format!("{rest} % {extent}u");
            rest = format!("{rest} / {extent}u");
            own
        };
        let (fast_counter, slow_counter) = (counter(fast), counter(slow));
        let exchanged = match apart {
            Some(first) => format!("{first}u + slot * {}u", shape.core.exchanged(0)),
            None => "cell".to_string(),
        };
        let addresses = match (cells.read, cells.written) {
            (false, true) => "let line_in = input_line(c);\n    ",
            (true, false) => "let line_out = output_line(c);\n    ",
            _ => "",
        };
        format!(
            "    for (var first = 0u; first < {all}u; first += {lines}u) {{\n    {numbers}\n    \
             let line = min(first + slot, {}u);\n    \
             let present = inside && local < {}u && first + slot < {all}u;\n    \
             let c = vec3<u32>({fast_counter}, {slow_counter}, field);\n    \
             let cell = c.x * {}u + c.y * {}u;\n    let exchanged = {exchanged};\n    {addresses}\n{code}    }}\n",
            all - 1,
            lanes * lines,
            self.strides[fast],
            self.strides[slow],
        )
    }

    /// Returns the whole text: declarations, workgroup memory, callbacks and the entry point.
    fn frame(&self, route: &Route, callbacks: &PassCallbacks, table: &Table, code: &str) -> String {
        let element = |is_real: bool| if is_real { "Real" } else { "Complex" };
        let last = self.kernel(route, self.parts.len() - 1);
        let (input, output) = (self.kernel(route, 0).input.format.is_real(), last.output.format.is_real());
        let roots = if table.is_empty() { "" } else { "var<storage, read> roots: array<Complex>;\n" };
        let mut places = String::new();
        if !callbacks.is_empty() {
            for (axis, at) in COORDINATES.into_iter().enumerate().filter(|&(axis, _)| self.strides[axis] > 0) {
                places.push_str(&format!(
                    "fn coordinates_{axis}(at: u32, c: vec3<u32>) -> vec4<u32> {{ return params.line_first + {at}; }}\n"
                ));
            }
            places.push_str(&callbacks.imports());
        }
        let bytes = self.cells * 2 * last.precision.bytes();
        format!(
            "// All axes of a field: one workgroup holds it.\n\
             // Workgroup: {} invocations, a field; workgroup memory {bytes} bytes.\n\
             var<uniform> params: Params;\nvar<storage, read> input: array<{}>;\n\
             var<storage, read_write> output: array<{}>;\n{roots}\
             var<workgroup> shared_line: array<Complex, {}>;\n#import fft::line\n{places}\
             @compute @workgroup_size(GROUP) fn main(\n    @builtin(workgroup_id) id: vec3<u32>,\n    \
             @builtin(num_workgroups) count: vec3<u32>,\n    @builtin(local_invocation_index) local: u32,\n) {{\n    \
             let number = group_number(id, count);\n    let inside = number < params.line_sizes.w;\n    \
             let own = min(number, params.line_sizes.w - 1u);\n    let batch = own % params.line_sizes.x;\n    \
             let field = own / params.line_sizes.x;\n{code}}}\n",
            self.group,
            element(input),
            element(output),
            self.cells,
        )
    }
}
