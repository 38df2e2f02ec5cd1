//! Kernels that transform all lines of an array along one axis in one dispatch, and their
//! parameters.
//!
//! ```text
//! load -> transform inside a workgroup (see `core`) -> store
//! ```
//!
//! The points of a line may lie at a fixed stride or in the blocks of a transpose. They may be
//! fewer in memory than in the transform (zero padding, truncated spectra). A line may be one
//! factor of a longer axis (four-step algorithm).

use std::fmt;
use std::ops::Range;

use super::core::{Core, Limits};
use super::spec::Precision;
use crate::gpu::{REGISTERS, ROW, SECTOR};

/// The minimum of workgroup memory that WebGPU requires.
const FLOOR_BYTES: u64 = 16384;
/// Points that an invocation of a copy moves.
const MOVED: u64 = 16;

/// The operation on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// None: the line is only moved.
    Copy,
    /// `exp(-2 pi i j k / n)`.
    Forward,
    /// `exp(+2 pi i j k / n)`.
    Backward,
    /// A forward transform, a multiplication by a callback and a backward transform, once for each
    /// of the given number of results.
    Filter(u32),
    /// Backward transforms of `from` fields that make `to` results: result `r` is that of field
    /// `r`, or of the last field, times a callback. The results of the last field are made first,
    /// so that they may replace the fields.
    Spread {
        /// Number of fields.
        from: u32,
        /// Number of results.
        to: u32,
    },
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Spread { from, to } => write!(f, "Spread({from}, {to})"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// The numbers of a line in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LineFormat {
    /// Complex points.
    Complex,
    /// Real points.
    Real,
    /// Half a Hermitian line: points `0..=n/2`. Imaginary parts that a Hermitian line cannot have
    /// are ignored.
    Half,
    /// Real points of a Hartley transform: the sums of real and imaginary parts when they are
    /// written.
    Hartley,
    /// Real points of lines of several fields as the numbers of `vec4<f32>` cells, when they are
    /// written. A dispatch writes the given number of them: all, or one. The other numbers of a
    /// cell are undefined.
    Vectors(u32),
}

impl LineFormat {
    /// Returns whether a point is one real number in memory.
    pub fn is_real(self) -> bool {
        matches!(self, LineFormat::Real | LineFormat::Hartley | LineFormat::Vectors(_))
    }
}

/// The order of the points of a line in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// At a fixed stride.
    Strided,
    /// In the blocks of a transpose: the axis is cut into parts, each an array in C order. Their
    /// lengths differ by at most one, the larger ones come first.
    Blocked,
    /// In blocks of any lengths. A table of 8 bytes per element of the axis has the block of each
    /// element; kernels read it once per element, lanes of a row the same entry.
    Listed,
}

impl Order {
    /// Returns whether lines are in blocks.
    pub fn is_blocked(self) -> bool {
        self != Order::Strided
    }
}

/// The points of a line that are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Span {
    /// All points.
    Whole,
    /// The first points, of the given number; the others are zero.
    Head(u64),
    /// The lowest modes, those of a line of the given number of points, in the order of a
    /// transform. The others are zero, and so is the unpaired mode of an even number.
    Modes(u64),
}

/// The input or the output of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Side {
    /// The numbers in memory.
    pub format: LineFormat,
    /// The order of points.
    pub order: Order,
    /// The points that are in memory.
    pub span: Span,
}

impl Side {
    /// Returns the points in memory of a line whose transform has `n` points.
    pub fn stored(&self, n: u64) -> u64 {
        let points = match self.span {
            Span::Whole => n,
            Span::Head(points) | Span::Modes(points) => points,
        };
        if self.format == LineFormat::Half { points / 2 + 1 } else { points }
    }

    /// Returns the bytes of a line in memory.
    pub fn bytes(&self, n: u64, precision: Precision) -> u64 {
        self.stored(n) * self.number(precision)
    }

    /// Returns the bytes of a number in memory.
    pub(super) fn number(&self, precision: Precision) -> u64 {
        match self.format {
            LineFormat::Vectors(_) => 4 * precision.bytes(),
            format if format.is_real() => precision.bytes(),
            _ => 2 * precision.bytes(),
        }
    }
}

/// One pass of the four-step algorithm. The length of the axis, `positions`, is a product of
/// factors. The pass transforms along one factor; the others are the `count` values of a counter
/// `d`.
///
/// ```text
/// position of point k of line d:   k a + d / q + (d mod q) r   with [a, q, r] = `input` when it is read, `output` when written
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FourStep {
    /// Positions of the whole axis.
    pub positions: u64,
    /// Number of values of the counter.
    pub count: u64,
    /// The coefficients of the position at which a point is read.
    pub input: [u64; 3],
    /// The coefficients of the position at which a point is written.
    pub output: [u64; 3],
    /// The order of the twiddles `exp(-+2 pi i k (d / q) / twiddle)` that multiply results; 0 for
    /// none.
    pub twiddle: u64,
    /// Whether points are multiplied by a factor for each position as they are read.
    pub load_factor: bool,
    /// Whether points are multiplied by a factor for each position as they are written.
    pub store_factor: bool,
}

/// A kernel that transforms lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LineKernel {
    /// Single or double.
    pub precision: Precision,
    /// The axis of the array along which lines run.
    pub axis: usize,
    /// Points of the axis.
    pub n: u64,
    /// Points of the transform: all points of the axis, or of one factor.
    pub points: u64,
    /// The operation on a line.
    pub work: Work,
    /// The input.
    pub input: Side,
    /// The output.
    pub output: Side,
    /// The pass of the four-step algorithm, if the axis takes several passes.
    pub four_step: Option<FourStep>,
    /// Whether the kernel writes into the array that it reads.
    pub in_place: bool,
}

/// The numbers that invocations exchange at a time through workgroup memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Complex numbers.
    Together,
    /// Real parts, then imaginary parts, in half the memory.
    Apart,
    /// Real parts of the first half of the lines, then of the second half, then imaginary parts, in
    /// a quarter of the memory.
    Halves,
}

impl Exchange {
    /// Returns the lines that have cells at the same time.
    pub fn lines_at_once(self, lines: u64) -> u64 {
        if self == Exchange::Halves { lines / 2 } else { lines }
    }

    /// Returns the bytes of a cell, for real numbers of `bytes` bytes.
    pub fn cell_bytes(self, bytes: u64) -> u64 {
        if self == Exchange::Together { 2 * bytes } else { bytes }
    }
}

/// The layout of lines over a workgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineWorkgroup {
    pub(super) core: Core,
    /// Invocations per line.
    pub lanes: u64,
    /// Lines per workgroup.
    pub lines: u64,
    /// The numbers that are exchanged at a time.
    pub exchange: Exchange,
    /// The layout of points in workgroup memory; of the points of one line if an invocation keeps
    /// them in an array of its own.
    pub(super) cells: LineCells,
}

/// The layout of the points of lines in workgroup memory: cell `column * columns + padded(at) *
/// points`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LineCells {
    /// Cells from a line to the next.
    pub columns: u64,
    /// Cells from a point of a line to the next.
    pub points: u64,
    /// Whether a cell is left free after each [`LineCells::RUN`] points, so that powers of two fall
    /// into different banks.
    pub padded: bool,
    /// Total number of cells.
    pub count: u64,
}

impl LineCells {
    /// Points between two free cells: the complex numbers of a row of banks.
    pub const RUN: u64 = 16;

    fn new(lines: u64, exchanged: u64, interleaved: bool, padded: bool) -> Self {
        let length = if padded { exchanged + exchanged / Self::RUN } else { exchanged };
        let [columns, points] = if interleaved { [1, lines] } else { [length, 1] };
        LineCells { columns, points, padded, count: lines * length }
    }

    /// Returns the cells from the first point of a line to the point `at`.
    pub fn offset(&self, at: u64) -> u64 {
        (at + if self.padded { at / Self::RUN } else { 0 }) * self.points
    }

    /// Returns whether the points `base + step` lie as far behind the points `base` as `step`
    /// behind the first point, for all `bases`.
    pub fn steady(&self, mut bases: impl Iterator<Item = u64>, step: u64) -> bool {
        bases.all(|base| self.offset(base + step) == self.offset(base) + self.offset(step))
    }
}

crate::gpu::kernel_params! {
/// Parameters of a dispatch. The lines of an array are counted by `c0` (fastest), `c1` and `c2`
/// (the field of a batch): the axes across the lines, in C order.
///
/// | side | first vector | second vector |
/// |---|---|---|
/// | strided: `at = offset + s . c + p stride` | `offset, s0, s1, s2` | `stride, first result or number of a cell, end of these, 0` |
/// | blocked: `at = lines start + (outer size + p - start) width + inner`, `outer = o . c + o_first`, `inner = i . c + i_first` | `lines, o0, o1, o2` | `width, i0, i1, 0` |
///
/// All names begin with `line_`, to avoid clashes with callbacks.
pub struct LineParams {
    /// The lengths of `c0` and `c1`, the elements from one result of a filter to the next, and the
    /// number of lines.
    pub line_sizes: [u32; 4],
    /// Addresses of the input, first vector.
    pub line_input: [u32; 4],
    /// Addresses of the input, second vector.
    pub line_input_more: [u32; 4],
    /// Addresses of the output, first vector.
    pub line_output: [u32; 4],
    /// Addresses of the output, second vector.
    pub line_output_more: [u32; 4],
    /// For blocked sides: points of all larger parts together and points of a smaller part; for
    /// listed ones: the first entry of the table, and 0; input, then output.
    pub line_blocks: [u32; 4],
    /// For blocked sides: `o_first`, `i_first`; input, then output.
    pub line_starts: [u32; 4],
    /// For blocked sides: inverses of the points of a larger and of a smaller part; input, then
    /// output.
    pub line_inverse: [f32; 4],
    /// For callbacks: index of the first point along each axis, and first field.
    pub line_first: [u32; 4],
    /// The factor of the output as a sum of three numbers, exact in f64, and the factor of the
    /// modes that stand for two in half a Hermitian line.
    pub line_scale: [f32; 4],
}
}

impl LineParams {
    /// Sets the factor of the output, and the factor of modes that stand for two.
    pub fn scaled(mut self, factor: f64, interior: f32) -> Self {
        let high = factor as f32;
        let middle = (factor - f64::from(high)) as f32;
        self.line_scale = [high, middle, (factor - f64::from(high) - f64::from(middle)) as f32, interior];
        self
    }

    /// Sets the results of a filter, or the numbers of cells, that are computed. Results that go to
    /// blocks are computed together.
    pub fn of_results(mut self, results: Range<u32>) -> Self {
        [self.line_output_more[1], self.line_output_more[2]] = [results.start, results.end];
        self
    }
}

/// Lines of a workgroup at most where each invocation keeps one in an array of its own: few lines,
/// so that small fields keep all cores of a software renderer busy.
const OWN_LINES: u64 = 16;

/// Points of the longest array of an invocation. The time that lavapipe takes to compile an array
/// grows with the square of its length, mostly for the zeros that it begins with: a kernel of 64
/// points takes 0.2 s and one of 128 0.6 s. With lines in workgroup memory kernels compile in 0.1 s
/// and run up to a third longer.
const OWN_POINTS: u64 = 64;

impl LineWorkgroup {
    /// Returns `true` if each invocation keeps the points of its line in an array of its own.
    pub(super) fn has_own_arrays(&self) -> bool {
        self.core.loops() && self.cells.count <= OWN_POINTS
    }
}

impl LineKernel {
    /// Returns whether a real line is transformed as a complex line of half the length.
    pub(super) fn packed(&self) -> bool {
        let real = matches!(
            (self.input.format, self.output.format),
            (LineFormat::Real, LineFormat::Half) | (LineFormat::Half, LineFormat::Real | LineFormat::Vectors(_))
        );
        real && self.four_step.is_none() && self.n.is_multiple_of(2) && self.work != Work::Copy
    }

    /// Returns whether the kernel reads the table of [`Order::Listed`].
    pub(super) fn is_listed(&self) -> bool {
        [self.input, self.output].iter().any(|side| side.order == Order::Listed)
    }

    /// Returns the lines of the kernel for each line of the axis: the lines of a factor, or the
    /// pieces of a copy. A loop over a whole axis would leave most of a device idle, and some
    /// drivers end it early ([`Capabilities::loop_rounds`](crate::gpu::Capabilities::loop_rounds)).
    pub(super) fn count(&self) -> u64 {
        match self.four_step {
            Some(step) => step.count,
            None if self.work == Work::Copy => self.input.stored(self.n).div_ceil(self.moved_points()).max(1),
            None => 1,
        }
    }

    /// Returns whether points are written to other positions than they were read from, so that the
    /// axis needs two arrays.
    pub(super) fn moves(&self) -> bool {
        self.four_step.is_some_and(|step| step.input != step.output)
    }

    /// Returns the fields whose lines are transformed together.
    pub(super) fn fields(&self) -> u64 {
        match (self.work, self.output.format) {
            (Work::Spread { from, .. }, _) => from.into(),
            (_, LineFormat::Vectors(fields)) => fields.into(),
            _ => 1,
        }
    }

    /// Returns the results of each line, or of lines that are transformed together.
    pub(super) fn results(&self) -> u64 {
        match self.work {
            Work::Filter(results) | Work::Spread { to: results, .. } => results.into(),
            _ => 1,
        }
    }

    /// Returns the invocations that move a piece of a line.
    fn movers(&self) -> u64 {
        if self.strided() { 8 } else { self.n.clamp(1, 64) }
    }

    /// Returns the points of a piece that is moved.
    pub(super) fn moved_points(&self) -> u64 {
        MOVED * self.movers()
    }

    /// Returns the points of the complex transform inside the kernel.
    pub(super) fn core_points(&self) -> u64 {
        if self.packed() { self.n / 2 } else { self.points }
    }

    /// Returns whether neighboring lines, instead of neighboring points, are neighbors in memory.
    pub(super) fn strided(&self) -> bool {
        self.axis < 2 || self.four_step.is_some()
    }

    /// Returns the buffers of a line that is transformed in loops: two for several results, whose
    /// spectrum is kept.
    pub(super) fn buffers(&self) -> u64 {
        if matches!(self.work, Work::Filter(results) if results > 1) { 2 } else { 1 }
    }

    /// Returns the layout over a workgroup; `None` if a line does not fit.
    pub fn shape(&self, limits: Limits) -> Option<LineWorkgroup> {
        if self.work == Work::Copy {
            let lanes = self.movers();
            let core = Core::Direct(super::core::RadixStages { lanes, radices: vec![1] });
            let cells = LineCells::default();
            let lines = 64u64.div_ceil(lanes);
            return Some(LineWorkgroup { core, lanes, lines, exchange: Exchange::Together, cells });
        }
        let bytes = self.precision.bytes();
        // A filter has at least two transforms; in loops its code stays short.
        let alone = if matches!(self.work, Work::Filter(_)) { limits.alone.min(16) } else { limits.alone };
        // With more than 16 points in an invocation, contiguous lines and filters spill registers.
        let many = !limits.shared || self.strided() && !matches!(self.work, Work::Filter(_));
        let points = if many { limits.points } else { limits.points.min(16) };
        let core = |alone, points| Core::new(self.core_points(), Limits { alone, points, ..limits }, bytes);
        let usual = core(alone, points)?;
        // An invocation that does not loop keeps its points of all lines of a vector.
        let keeps_lines = matches!(self.output.format, LineFormat::Vectors(2..));
        let few = if keeps_lines && !usual.loops() { core(alone.min(8), points.min(8)) } else { None };
        let core = few.filter(|few| matches!(few, Core::Direct(_))).unwrap_or(usual);
        let lanes = core.stages().lanes;
        let exchanged = core.exchanged(self.core_points());
        let wanted = match (self.strided(), lanes) {
            // One invocation per line, in a workgroup of a few dozen.
            (_, 1) => 64,
            (true, _) => limits.columns,
            (false, _) => (128 / lanes).clamp(1, 32),
        };
        // Two words per point, spectrum and result of a filter, the lines of several fields, and
        // some for addresses and factors.
        let held = match (self.work, self.output.format) {
            (Work::Filter(_), _) => 2 * core.stages().held(),
            (_, LineFormat::Vectors(fields)) => u64::from(fields) * core.stages().held(),
            _ => core.stages().held(),
        };
        let registers = held * bytes / 2 + 32;
        let most = wanted.min(limits.invocations / lanes).min((REGISTERS / (lanes * registers)).max(1));
        if core.loops() {
            let points = self.buffers() * exchanged;
            let is_own = points <= OWN_POINTS;
            let most = if is_own { most.min(OWN_LINES) } else { most };
            let lines = most.min(limits.workgroup_bytes / (points * 2 * bytes));
            return (lines > 0).then(|| {
                let lines = 1 << lines.ilog2();
                let cells = LineCells::new(if is_own { 1 } else { lines }, points, true, false);
                LineWorkgroup { core, lanes, lines, exchange: Exchange::Together, cells }
            });
        }
        let laid_out = |padded: bool| {
            let length = if padded { exchanged + exchanged / LineCells::RUN } else { exchanged };
            let fit = |exchange: Exchange| {
                let line = length * exchange.cell_bytes(bytes);
                let times = if exchange == Exchange::Halves { 2 } else { 1 };
                if exchanged == 0 { most } else { most.min(times * (limits.workgroup_bytes / line)) }
            };
            // Halves take twice the barriers, with half of the invocations idle between them.
            let long = limits.shared && self.strided() && fit(Exchange::Halves) >= self.wide_tile(limits);
            let last = if long { Exchange::Halves } else { Exchange::Apart };
            let wanted = self.wide_tile(limits).min(fit(last));
            let all = [Exchange::Together, Exchange::Apart, last];
            let exchange = all.into_iter().find(|&exchange| fit(exchange) >= wanted)?;
            let lines = fit(exchange).checked_ilog2().map(|log| 1 << log)?;
            let cells = LineCells::new(exchange.lines_at_once(lines), exchanged, self.strided(), padded);
            Some(LineWorkgroup { core: core.clone(), lanes, lines, exchange, cells })
        };
        let plain = laid_out(false)?;
        // The first butterflies write points far apart. Later stages write runs, which spread over
        // the banks. Every second transform of several takes its stages in reverse.
        let several = matches!((self.work, &core), (Work::Filter(_), _) | (_, Core::Bluestein { .. }));
        let turns = several && core.stages().turns();
        let [first, last] = [core.stages().radices.first(), core.stages().radices.last()];
        let apart = [first, last.filter(|_| turns)].into_iter().flatten().any(|radix| radix.is_multiple_of(4));
        // Neighboring columns that fill half a row of banks conflict at most in pairs.
        let words = plain.exchange.cell_bytes(bytes) / 4;
        let crowded = apart && (!self.strided() || plain.exchange.lines_at_once(plain.lines) * words < 16);
        // At the minimum of workgroup memory every byte is used, and software renderers have no
        // banks.
        let pads = lanes > 1 && crowded && limits.shared && limits.workgroup_bytes > FLOOR_BYTES;
        // A narrower tile costs more than conflicts, and so does one more exchange if columns are
        // neighbors.
        let as_good = |padded: &LineWorkgroup| {
            padded.lines == plain.lines && (padded.exchange == plain.exchange || !self.strided())
        };
        let padded = pads.then(|| laid_out(true)).flatten().filter(as_good);
        Some(padded.unwrap_or(plain))
    }

    /// Returns the lines of a tile whose rows are whole sectors, at most as many as the limits
    /// allow; 1 if lines do not lie side by side.
    pub(super) fn full_tile(&self, limits: Limits) -> u64 {
        if self.strided() { limits.columns.min(SECTOR / (2 * self.precision.bytes())) } else { 1 }
    }

    /// Returns the lines of a tile whose rows are as long as GPUs want them, as
    /// [`full_tile`](Self::full_tile) does.
    fn wide_tile(&self, limits: Limits) -> u64 {
        let row = if limits.shared { ROW } else { SECTOR };
        if self.strided() { limits.columns.min(row / (2 * self.precision.bytes())) } else { 1 }
    }

    /// Returns whether input and output of an in-place kernel, of which one is real, are both used
    /// as real numbers.
    pub(super) fn as_reals(&self) -> bool {
        self.in_place && self.input.format.is_real() != self.output.format.is_real()
    }

    /// Returns the bytes that memory moves to read and write a line by tiles of `lines` lines, if
    /// `across` lines lie side by side: whole sectors. Sectors that neighboring rows of a tile
    /// share count once.
    pub(super) fn moved(&self, lines: u64, across: u64) -> u64 {
        let along = |side: &Side, step: Option<[u64; 3]>| {
            let bytes = side.bytes(self.n, self.precision);
            // A line of a factor has its share of the elements in memory.
            let bytes = self.four_step.map_or(bytes, |step| (bytes * self.points).div_ceil(step.positions));
            let run = match step {
                _ if !self.strided() => return bytes,
                // Lines are counted along the axis; see `FourStep` for the position of the next
                // line.
                Some([apart, together, _]) if self.axis == 2 && together > 1 => {
                    if apart == 1 {
                        return bytes;
                    }
                    1
                }
                _ if lines >= across => return bytes,
                _ => lines,
            };
            let run = run * side.number(self.precision);
            bytes * run.next_multiple_of(SECTOR) / run
        };
        let [input, output] = self.four_step.map_or([None; 2], |step| [Some(step.input), Some(step.output)]);
        // A number alone fills a part of a sector, which memory reads and writes.
        let times = if self.output.format == LineFormat::Vectors(1) { 2 } else { self.results() };
        self.fields() * along(&self.input, input) + times * along(&self.output, output)
    }
}
