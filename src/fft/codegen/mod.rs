//! The text of line kernels. Pure.
//!
//! Stages are Stockham's autosort (Cochran et al. 1967). With `L` the product of the radices done so far,
//! butterfly `j` of a stage of radix `R` takes the points `j + i n / R`, multiplies them by the twiddles
//! `exp(-+2 pi i (j mod L) i / (L R))` and writes them to `(j - j mod L) R + j mod L + i L`. Between stages
//! the invocations of a line exchange points through workgroup memory: real and imaginary parts together if
//! both fit, else one after the other.
//!
//! Other lengths are a convolution of `x_j exp(-i pi j^2 / n)` with the conjugate chirp (Bluestein 1970).
//! Real lines of even length are transformed as complex lines of half the length (Press et al., *Numerical
//! Recipes*, 12.3), odd ones with a zero imaginary part. Two real rows are never packed into one complex
//! line: the arithmetic of a line would depend on its neighbor, and results on the distribution.
//!
//! Idle invocations and lines beyond the end load from a clamped position and store nothing, so that all
//! barriers are in uniform control flow.

mod frame;
mod load;
mod loops;
mod stages;
mod store;

use std::collections::HashMap;

use super::butterfly::Code;
use super::callbacks::PassCallbacks;
use super::core::Core;
use super::line::{LineFormat, LineKernel, LineParams, LineWorkgroup, Order, Work};
use super::precision::Precision;
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

impl From<String> for Condition {
    fn from(text: String) -> Self {
        Condition::Text(text)
    }
}

impl Condition {
    fn known(holds: bool) -> Self {
        if holds { Condition::Always } else { Condition::Never }
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

/// A point of a line between stages: its index, the expression of its value, and the condition that it
/// belongs to the line.
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

/// Writes one kernel.
pub(super) struct Writer<'a> {
    kernel: LineKernel,
    shape: &'a LineWorkgroup,
    callbacks: &'a PassCallbacks,
    code: Code,
    table: Table,
    /// Whether other lanes may still read workgroup memory.
    dirty: bool,
    /// Whether the next transform takes its stages in reverse. Its first butterflies then need the points that
    /// the last butterflies left in the same invocations, so nothing is exchanged between the two transforms.
    turned: bool,
    /// Number of transforms of convolutions so far.
    convolved: u32,
    /// The term added to indices of tables: nothing, or a zero that compilers do not know.
    zero: String,
    /// Modes that are loaded already.
    loaded: HashMap<Index, String>,
    /// Indices that are the sum of another index and a number, if their offsets in padded workgroup memory are
    /// sums, too.
    sums: HashMap<String, (String, u64)>,
}

impl<'a> Writer<'a> {
    pub fn new(kernel: LineKernel, shape: &'a LineWorkgroup, callbacks: &'a PassCallbacks) -> Self {
        let (code, table) = (Code::new(kernel.precision), Table::default());
        let (loaded, sums) = (HashMap::new(), HashMap::new());
        let (dirty, turned, convolved, zero) = (false, false, 0, String::new());
        Writer { kernel, shape, callbacks, code, table, dirty, turned, convolved, zero, loaded, sums }
    }

    /// Returns the text and the table of the kernel.
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
        let mut modes = self.core(core, Source::Memory, -1.0);
        // A loop, since compilers mix repeated code, which takes registers for all of it at the same time.
        if results > 1 {
            self.code.line(format!("for (var result = 0u; result < {results}u; result++) {{"));
            // Compilers do not see that this is the same lane. Otherwise they would compute all positions before the
            // loop and keep them beside the spectrum in more registers than there are.
            self.code.line("let lane = lane + result * unknown_zero(0u);");
        }
        let result = if results > 1 { "result" } else { "0u" };
        for Point { at, value, .. } in &mut modes {
            let of_callback = self.called("on_mode", value, at, &format!(", {result}"));
            *value = self.kept_apart(&of_callback, LineFormat::Complex);
        }
        let points = self.core(core, Source::Held(modes), 1.0);
        self.store_result(points, result);
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

impl LineKernel {
    /// Returns the kernel for `shape` and its table.
    pub fn source(&self, shape: &LineWorkgroup, callbacks: &PassCallbacks) -> (KernelSource, Table) {
        let (text, table) = Writer::new(*self, shape, callbacks).write();
        let source = KernelSource::new(format!("fft::{:?}({}), axis {}", self.work, self.points, self.axis), text)
            .params::<LineParams>()
            .element("Real", self.precision.real())
            .element("Complex", self.precision.complex())
            .module("fft::line", include_str!("../../../shaders/fft/line.wgsl"))
            .flag("double", self.precision == Precision::Double)
            .flag("input_blocked", self.input.order == Order::Blocked)
            .flag("output_blocked", self.output.order == Order::Blocked)
            .group((shape.lanes * shape.lines) as u32);
        (callbacks.bind(source), table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fft::core::Limits;
    use crate::fft::line::{LineFormat, Side, Span};

    #[test]
    fn the_pieces_of_a_copy_cover_its_line() {
        let limits =
            Limits { workgroup_bytes: 16384, invocations: 256, points: 16, alone: 16, shared: true, columns: 16 };
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
                let (kernel, lanes) = (kernel(n), kernel(n).shape(limits).unwrap().lanes);
                let (count, points) = (kernel.count(), kernel.moved_points());
                assert!((count - 1) * points < n && n <= count * points, "{n}: {count} of {points}");
                assert!(points <= 16 * lanes, "{n}: an invocation takes few rounds");
            }
        }
    }
}
