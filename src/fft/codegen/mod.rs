//! The text of line kernels. Pure.
//!
//! Stages are Stockham's autosort (Cochran et al. 1967). With `L` the product of the radices done
//! so far, butterfly `j` of a stage of radix `R` takes the points `j + i n / R`, multiplies them by
//! the twiddles `exp(-+2 pi i (j mod L) i / (L R))` and writes them to `(j - j mod L) R + j mod L +
//! i L`. Between stages the invocations of a line exchange points through workgroup memory, in one
//! of the ways of [`Exchange`](super::line::Exchange).
//!
//! Other lengths are a convolution of `x_j exp(-i pi j^2 / n)` with the conjugate chirp (Bluestein
//! 1970). Real lines of even length are transformed as complex lines of half the length (Press et
//! al., *Numerical Recipes*, 12.3), odd ones with a zero imaginary part. Two real rows are never
//! packed into one complex line: the arithmetic of a line would depend on its neighbor, and results
//! on the distribution.
//!
//! Idle invocations and lines beyond the end load from a clamped position and store nothing, so
//! that all barriers are in uniform control flow.

mod load;
mod loops;
mod stages;
mod store;
mod whole;

use std::collections::HashMap;

use super::butterfly::Code;
use super::core::Core;
use super::line::{Exchange, LineCells, LineFormat, LineKernel, LineParams, LineWorkgroup, Order, Work};
use super::options::PassCallbacks;
use super::spec::Precision;
use super::tables::Table;
use crate::gpu::KernelSource;

/// An index along a line: a number known when the text is written, or an expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Index {
    Known(u64),
    Text(String),
}

impl Index {
    fn text(&self) -> String {
        match self {
            Index::Known(at) => format!("{at}u"),
            Index::Text(text) => text.clone(),
        }
    }
}

/// A condition: known when the text is written, or an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Always,
    Never,
    Text(String),
}

impl Condition {
    fn known(holds: bool) -> Self {
        if holds { Condition::Always } else { Condition::Never }
    }

    /// Returns the condition that an index is below `end`.
    fn below(at: &Index, end: u64) -> Self {
        match at {
            Index::Known(at) => Condition::known(*at < end),
            Index::Text(at) => Condition::Text(format!("{at} < {end}u")),
        }
    }

    fn and(self, other: Condition) -> Condition {
        match (self, other) {
            (Condition::Never, _) | (_, Condition::Never) => Condition::Never,
            (Condition::Always, other) => other,
            (this, Condition::Always) => this,
            (Condition::Text(a), Condition::Text(b)) => Condition::Text(format!("({a}) && ({b})")),
        }
    }
}

/// A point of a line between stages: its index, the expression of its value, and the condition that
/// it belongs to the line.
#[derive(Clone, Debug)]
struct Point {
    at: Index,
    value: String,
    valid: Condition,
}

/// The source of the points of a transform.
enum Source {
    Memory,
    /// The results of a stage, which the next stage takes from other invocations.
    Points(Vec<Point>),
    /// The results of a transform, in the order in which the next one takes them if its stages turn
    /// (`RadixStages::turns`).
    Held(Vec<Point>),
    /// The first `n` points times a chirp; zero beyond.
    Chirped {
        n: u64,
        sign: f64,
        inner: Box<Source>,
    },
}

/// The place of the lines of a part of a whole transform: `cell` is the first cell of a line in the
/// array, `exchanged` that of its exchanges.
#[derive(Clone, Copy, Debug)]
struct Cells {
    /// Whether points are read from the array in workgroup memory.
    read: bool,
    /// Whether points are written to it.
    written: bool,
    /// Cells from a point of a line to the next.
    stride: u64,
    /// Cells from a point to the next as they are exchanged.
    exchange_stride: u64,
}

impl Cells {
    /// Returns the cell of a point in the array.
    fn at(&self, index: &Index) -> String {
        format!("shared_line[cell + {} * {}u]", index.text(), self.stride)
    }

    /// Returns the number of the cell in which a point is exchanged.
    fn exchanged(&self, at: &str) -> String {
        format!("exchanged + {at} * {}u", self.exchange_stride)
    }
}

/// Writes one kernel.
pub(super) struct Writer<'a> {
    kernel: LineKernel,
    shape: &'a LineWorkgroup,
    callbacks: &'a PassCallbacks,
    code: Code,
    table: Table,
    /// Whether other lanes may still read workgroup memory.
    dirty: bool,
    /// Whether the next transform takes its stages in reverse. Its first butterflies then need the
    /// points that the last butterflies left in the same invocations, so nothing is exchanged
    /// between the two transforms.
    turned: bool,
    /// Number of transforms of convolutions so far.
    convolved: u32,
    /// The term added to indices of tables: nothing, or a zero that compilers do not know.
    zero: String,
    /// Modes that are loaded already.
    loaded: HashMap<Index, String>,
    /// The cells of its lines, if the kernel is a part of a whole transform.
    cells: Option<Cells>,
    /// The numbers of vectors that are kept until those of the last line are known.
    held: Option<store::Line>,
    /// Indices that are the sum of another index and a number, if their offsets in padded workgroup
    /// memory are sums, too.
    sums: HashMap<String, (String, u64)>,
}

impl<'a> Writer<'a> {
    pub fn new(kernel: LineKernel, shape: &'a LineWorkgroup, callbacks: &'a PassCallbacks) -> Self {
        let (code, table) = (Code::new(kernel.precision), Table::default());
        let (loaded, sums) = (HashMap::new(), HashMap::new());
        let (dirty, turned, convolved, zero, cells, held) = (false, false, 0, String::new(), None, None);
        Writer { kernel, shape, callbacks, code, table, dirty, turned, convolved, zero, loaded, cells, held, sums }
    }

    /// Returns the text and the table of the kernel.
    pub fn write(mut self) -> (String, Table) {
        self.line();
        let text = self.frame();
        (text, self.table)
    }

    /// Returns the code of a line and the table.
    fn body(mut self) -> (String, Table) {
        self.line();
        (self.code.text, self.table)
    }

    /// Writes the code of a line, or of the lines that are transformed together.
    fn line(&mut self) {
        let core = &self.shape.core;
        match (self.kernel.work, self.kernel.output.format) {
            (Work::Spread { from, to }, _) => self.spread(core, from, to),
            (_, LineFormat::Vectors(fields)) => self.vectors(core, fields),
            _ => self.line_of(core),
        }
    }

    fn line_of(&mut self, core: &Core) {
        match self.kernel.work {
            Work::Copy => self.copy(),
            _ if core.loops() => self.loops(core),
            Work::Filter(results) => self.filter(core, results),
            work => {
                let points = self.core(core, Source::Memory, if work == Work::Forward { -1.0 } else { 1.0 });
                self.store(points, if matches!(work, Work::Spread { .. }) { "result" } else { "" });
            }
        }
    }

    /// Returns a function of an index: a number if the index is one, and an expression otherwise.
    fn index(&mut self, at: &Index, known: impl Fn(u64) -> u64, text: impl Fn(&str) -> String) -> Index {
        match at {
            Index::Known(at) => Index::Known(known(*at)),
            Index::Text(at) => Index::Text(self.code.value(text(at))),
        }
    }

    /// Returns the head of the loop over the results of a filter that a dispatch computes: all of
    /// them where they go to blocks.
    fn each_result(&self, results: u32) -> String {
        match self.kernel.output.order {
            Order::Strided => {
                let [first, end] = ["y", "z"].map(|part| format!("params.line_output_more.{part}"));
                format!("for (var result = {first}; result < {end}; result++) {{")
            }
            Order::Blocked | Order::Listed => format!("for (var result = 0u; result < {results}u; result++) {{"),
        }
    }

    fn filter(&mut self, core: &Core, results: u32) {
        let mut modes = self.core(core, Source::Memory, -1.0);
        // A loop, since compilers mix repeated code, which takes registers for all of it at the
        // same time.
        if results > 1 {
            let each = self.each_result(results);
            self.code.line(each);
            // Compilers do not see that this is the same lane. Otherwise they would compute all
            // positions before the loop and keep them beside the spectrum in more registers than
            // there are.
            self.code.line("let lane = lane + result * unknown_zero(0u);");
        }
        let result = if results > 1 { "result" } else { "0u" };
        for Point { at, value, .. } in &mut modes {
            let of_callback = self.called("on_mode", value, at, &format!(", {result}"));
            *value = self.kept_apart(&of_callback, LineFormat::Complex);
        }
        let points = self.core(core, Source::Held(modes), 1.0);
        self.store(points, result);
        if results > 1 {
            self.code.line("}");
        }
    }

    fn copy(&mut self) {
        let stored = self.kernel.input.stored(self.kernel.n);
        let (lanes, points) = (self.shape.lanes, self.kernel.moved_points());
        let [first, end] = match self.kernel.count() {
            1 => ["lane".to_string(), format!("{stored}u")],
            _ => [format!("counter * {points}u + lane"), format!("min((counter + 1u) * {points}u, {stored}u)")],
        };
        self.code.line(format!("for (var at = {first}; at < {end}; at += {lanes}u) {{"));
        let at = Index::Text("at".into());
        let value = self.fetch(self.kernel.input.format, &at);
        let value = self.after_load(&value, &at);
        self.emit(&at, &value, Condition::Always, "");
        self.code.line("}");
    }
}

/// Coordinates of the point `at` of a line along each axis, whose counters are `c`.
const COORDINATES: [&str; 3] =
    ["vec4<u32>(at, c.y, c.x, c.z)", "vec4<u32>(c.y, at, c.x, c.z)", "vec4<u32>(c.y, c.x, at, c.z)"];

/// Returns the kernel of a pass, with everything that passes of all kinds import.
fn pass_source(
    label: String,
    text: String,
    precision: Precision,
    [input, output]: [Order; 2],
    group: u64,
) -> KernelSource {
    KernelSource::new(label, text)
        .params::<LineParams>()
        .element("Real", precision.real())
        .element("Complex", precision.complex())
        .module("fft::line", include_str!("../../../shaders/fft/line.wgsl"))
        .flag("double", precision == Precision::Double)
        .flag("input_blocked", input.is_blocked())
        .flag("output_blocked", output.is_blocked())
        .flag("input_listed", input == Order::Listed)
        .flag("output_listed", output == Order::Listed)
        .group(group as u32)
}

impl LineKernel {
    /// Returns the kernel for `shape` and its table.
    pub fn source(&self, shape: &LineWorkgroup, callbacks: &PassCallbacks) -> (KernelSource, Table) {
        let (text, table) = Writer::new(*self, shape, callbacks).write();
        let from = if callbacks.source.is_some() { " from a source" } else { "" };
        let to = if let LineFormat::Vectors(fields) = self.output.format {
            format!(" to vectors, {fields} at a time")
        } else {
            String::new()
        };
        let label = format!("fft::{}({}){from}{to}, axis {}", self.work, self.points, self.axis);
        let orders = [self.input.order, self.output.order];
        let source = pass_source(label, text, self.precision, orders, shape.lanes * shape.lines);
        (callbacks.bind(source), table)
    }
}

impl Writer<'_> {
    /// Returns the whole text of the kernel: declarations, workgroup memory, callbacks, the entry
    /// point and the code of a line.
    pub(super) fn frame(&self) -> String {
        let LineKernel { n, work, points, .. } = self.kernel;
        let LineWorkgroup { lanes, lines, .. } = self.shape;
        let work = match work {
            Work::Copy => "moves".to_string(),
            work => format!("{work}, {points} points"),
        };
        let (bytes, shared) = self.shared_memory();
        let is_vectors = matches!(self.kernel.output.format, LineFormat::Vectors(_));
        // Where lines of several fields are transformed together, their loop finds each of them.
        let is_loop = is_vectors || matches!(self.kernel.work, Work::Spread { .. });
        let line_in = if is_loop { "" } else { "let line_in = input_line(c);\n    " };
        format!(
            "// Lines of {n} points: {work}.\n\
             // Workgroup: {lines} lines of {lanes} invocations; workgroup memory {bytes} bytes.\n\
             {}{shared}#import fft::line\n{}\
             @compute @workgroup_size(GROUP) fn main(\n    @builtin(workgroup_id) id: vec3<u32>,\n    \
             @builtin(num_workgroups) count: vec3<u32>,\n    @builtin(local_invocation_index) local: u32,\n) {{\n    {}\n    \
             let line = group_number(id, count) * {lines}u + column;\n    let present = line < params.line_sizes.w;\n    \
             let clamped = min(line, params.line_sizes.w - 1u);\n    {}\n    \
             {line_in}let line_out = output_line(c);\n{}}}\n",
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
        let element = |format: LineFormat| match format {
            LineFormat::Vectors(_) => "vec4<f32>",
            format if format.is_real() => "Real",
            _ => "Complex",
        };
        let mut text = "var<uniform> params: Params;\n".to_string();
        let mut array = |access: &str, name: &str, element: &str| {
            text.push_str(&format!("var<storage, {access}> {name}: array<{element}>;\n"));
        };
        if in_place {
            // Real cells and complex modes in one array are both read and written as real numbers.
            array("read_write", "output", if self.kernel.as_reals() { "Real" } else { element(output.format) });
        } else {
            if self.callbacks.source.is_none() {
                array("read", "input", element(input.format));
            }
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
        if self.kernel.is_listed() {
            array("read", "line_parts", "vec2<u32>");
        }
        text
    }

    /// Returns the bytes of workgroup memory, and its declaration with the function for the cell of
    /// a point.
    fn shared_memory(&self) -> (u64, String) {
        let LineWorkgroup { lines, exchange, cells, .. } = self.shape;
        let LineCells { columns, points, padded, count } = *cells;
        if count == 0 {
            return (0, String::new());
        }
        if self.shape.has_own_arrays() {
            let array = |name: &str| format!("var<private> {name}: array<Real, {count}>;\n");
            return (0, array("own_real") + &array("own_imaginary"));
        }
        let real = self.kernel.precision.bytes();
        let cell = if *exchange == Exchange::Together { "Complex" } else { "Real" };
        let column = match exchange {
            Exchange::Halves => format!("column % {}u", exchange.lines_at_once(*lines)),
            _ => "column".to_string(),
        };
        let run = LineCells::RUN;
        let place = match (columns, padded) {
            (1, false) => format!("at * {points}u + {column}"),
            (1, true) => format!("(at + at / {run}u) * {points}u + {column}"),
            (_, false) => format!("column * {columns}u + at"),
            (_, true) => format!("column * {columns}u + at + at / {run}u"),
        };
        let text = format!(
            "var<workgroup> shared_line: array<{cell}, {count}>;\n\
             fn place(column: u32, at: u32) -> u32 {{ return {place}; }}\n"
        );
        (count * exchange.cell_bytes(real), text)
    }

    /// Returns the code for the line of the workgroup on which an invocation works, and its number
    /// in the line.
    fn invocation(&self) -> String {
        let LineWorkgroup { lanes, lines, .. } = self.shape;
        match (self.kernel.strided(), lanes) {
            (_, 1) => "let column = local;\n    let lane = 0u;".to_string(),
            (true, _) => format!("let column = local % {lines}u;\n    let lane = local / {lines}u;"),
            (false, _) => format!("let lane = local % {lanes}u;\n    let column = local / {lanes}u;"),
        }
    }

    /// Returns the code for the counters of a line: of the other axes and fields, and of the other
    /// factors or pieces of the axis.
    fn counters(&self) -> String {
        let count = self.kernel.count();
        match (count, self.kernel.axis) {
            (1, _) => "let c = counters(clamped);".to_string(),
            // The counter of factors is the fastest one, unless other axes lie between it and
            // memory.
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
        let at = COORDINATES[self.kernel.axis];
        format!(
            "fn coordinates(at: u32, c: vec3<u32>) -> vec4<u32> {{ return params.line_first + {at}; }}\n{}",
            self.callbacks.imports()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fft::core::FLOOR;
    use crate::fft::line::{LineFormat, Side, Span};

    #[test]
    fn the_pieces_of_a_copy_cover_its_line() {
        let side = Side { format: LineFormat::Complex, order: Order::Strided, span: Span::Whole };
        let (precision, work, four_step, in_place) = (Precision::Single, Work::Copy, None, false);
        for axis in [1, 2] {
            let kernel = |n: u64| LineKernel {
                precision,
                axis,
                n,
                points: n,
                work,
                input: side,
                output: side,
                four_step,
                in_place,
            };
            for n in [1, 5, 128, 129, 1024, 1025, 600_000, 4_400_000] {
                let (kernel, lanes) = (kernel(n), kernel(n).shape(FLOOR).unwrap().lanes);
                let (count, points) = (kernel.count(), kernel.moved_points());
                assert!((count - 1) * points < n && n <= count * points, "{n}: {count} of {points}");
                assert!(points <= 16 * lanes, "{n}: an invocation takes few rounds");
            }
        }
    }
}
