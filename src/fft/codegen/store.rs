//! Writes the points of a line: real, complex or half lines, whole or truncated, with callbacks.
//!
//! Lines of several fields in one kernel: as the numbers of vectors, or with several results of one
//! field.
//!
//! Vectors: the kernel transforms a line of each field and writes cells of `vec4<f32>`. An
//! invocation takes the lines one after the other and keeps its points of all but the last in
//! registers, so each cell is written once, by a store of 16 bytes. In loops over butterflies, and
//! where a dispatch has one number of a cell only, it writes each number by itself.
//!
//! Spread fields: the kernel makes the results of the last field first, so that it may work in
//! place.

use super::{Condition, Index, Point, Writer};
use crate::fft::core::Core;
use crate::fft::line::{LineFormat, LineKernel, Order, Span, Work};
use crate::fft::tables::Section;

impl<'a> Writer<'a> {
    /// Stores the points of the last stage. `result` is the number of a filter's result, or empty.
    pub(super) fn store(&mut self, points: Vec<Point>, result: &str) {
        let LineKernel { n, output, .. } = self.kernel;
        match (self.kernel.packed(), output.format) {
            (true, LineFormat::Half) => self.split(points),
            (true, _) => {
                for Point { at, value, valid } in points {
                    for (offset, part) in [(0, "x"), (1, "y")] {
                        let at = self.index(&at, |at| 2 * at + offset, |at| format!("2u * {at} + {offset}u"));
                        self.put(&at, &format!("{value}.{part}"), valid.clone(), result);
                    }
                }
            }
            (false, format) => {
                for Point { at, value, valid } in points {
                    let value = self.twiddled(&at, value);
                    let position = self.position(&at, false);
                    let value = if self.kernel.four_step.is_some_and(|step| step.store_factor) {
                        self.code.value(format!("multiply({value}, load_store_factors({}))", position.text()))
                    } else {
                        value
                    };
                    match format {
                        LineFormat::Complex => self.put(&position, &value, valid, result),
                        LineFormat::Real | LineFormat::Vectors(_) => {
                            self.put(&position, &format!("{value}.x"), valid, result);
                        }
                        LineFormat::Hartley => {
                            let apart = self.code.value(format!("kept_apart({value})"));
                            self.put(&position, &format!("({apart}.x + {apart}.y)"), valid, result);
                        }
                        LineFormat::Half => {
                            let lower = match &position {
                                Index::Known(p) => Condition::known(2 * p <= n),
                                Index::Text(p) => Condition::Text(format!("{p} <= {}u", n / 2)),
                            };
                            self.put_mode(&position, &value, valid.and(lower));
                        }
                    }
                }
            }
        }
    }

    /// Returns the results of a pass of the four-step algorithm times their twiddles.
    fn twiddled(&mut self, at: &Index, value: String) -> String {
        let Some(step) = self.kernel.four_step.filter(|step| step.twiddle > 0) else { return value };
        // The product of a coarse and a fine root instead of one large table, with two more
        // roundings.
        let n = step.twiddle;
        let low = 1u64 << (n.ilog2() / 2);
        let index = self.code.value(format!("{} * (counter / {}u) % {n}u", at.text(), step.input[1]));
        let sign = if self.kernel.work == Work::Backward { 1.0 } else { -1.0 };
        let fine = Section::Every { n, step: 1, count: low };
        let fine = self.entry(fine, &Index::Text(format!("({index} & {}u)", low - 1)), sign);
        let coarse = Section::Every { n, step: low, count: n.div_ceil(low) };
        let coarse = self.entry(coarse, &Index::Text(format!("({index} >> {}u)", low.ilog2())), sign);
        self.code.value(format!("multiply({value}, multiply({coarse}, {fine}))"))
    }

    /// Stores the half spectrum of a real line from the spectrum of its packed line: modes `k` and
    /// `n / 2 - k` together, which both follow from these two modes of the packed line.
    fn split(&mut self, points: Vec<Point>) {
        let half = self.kernel.n / 2;
        let (lanes, pairs) = (self.shape.lanes, half / 2 + 1);
        let mut modes: Vec<(Index, Condition)> = Vec::new();
        if lanes == 1 {
            modes.extend((0..pairs).map(|k| (Index::Known(k), Condition::Always)));
        } else {
            for first in (0..pairs).step_by(lanes as usize) {
                let index = self.lane_index(first, lanes, pairs);
                let partial = first + lanes > pairs;
                let valid =
                    if partial { Condition::Text(format!("lane + {first}u < {pairs}u")) } else { Condition::Always };
                modes.push((Index::Text(index), valid));
            }
        }
        let mut mirrored = |k: &Index| self.index(k, |k| half - k, |k| format!("{half}u - {k}"));
        let mirrors: Vec<Index> = modes.iter().map(|(k, _)| mirrored(k)).collect();
        // Mode n / 2 of the packed line is its mode 0.
        let mut both: Vec<Index> = modes.iter().map(|(k, _)| k.clone()).collect();
        for mirror in &mirrors {
            both.push(self.index(mirror, |k| k % half, |k| format!("select({k}, 0u, {k} == {half}u)")));
        }
        let values = self.exchange(&points, &both);
        let (here, there) = values.split_at(modes.len());
        for (((k, valid), mirror), (x, y)) in modes.into_iter().zip(mirrors).zip(here.iter().zip(there)) {
            let [even, odd] = self.even_and_odd(&k, x, y);
            let value = self.code.value(format!("{even} + {odd}"));
            self.put_mode(&k, &value, valid.clone());
            // The mode in the middle is its own mirror.
            let apart = match &k {
                Index::Known(k) => Condition::known(2 * k != half),
                Index::Text(_) if half % 2 == 1 => Condition::Always,
                Index::Text(k) => Condition::Text(format!("{k} != {}u", half / 2)),
            };
            let value = self.code.value(format!("Complex({even}.x - {odd}.x, {odd}.y - {even}.y)"));
            self.put_mode(&mirror, &value, valid.and(apart));
        }
    }

    /// Returns the contributions of even and odd points to mode `k`. The mirrored mode is the
    /// conjugate of their difference.
    pub(super) fn even_and_odd(&mut self, k: &Index, x: &str, y: &str) -> [String; 2] {
        let one_half = self.code.literal(0.5);
        let y = self.code.value(format!("Complex({y}.x, -{y}.y)"));
        let even = self.code.value(format!("({x} + {y}) * {one_half}"));
        let odd = self.code.value(format!("Complex({x}.y - {y}.y, {y}.x - {x}.x) * {one_half}"));
        let root = self.entry(Section::Roots(self.kernel.n), k, -1.0);
        [even, self.code.value(format!("multiply({odd}, {root})"))]
    }

    /// Stores mode `k <= n / 2` of half a Hermitian line.
    pub(super) fn put_mode(&mut self, k: &Index, value: &str, valid: Condition) {
        let n = self.kernel.n;
        let kept = if let Span::Modes(kept) = self.kernel.output.span { kept } else { n };
        let (unpaired, last) = (kept < n && kept % 2 == 0, kept / 2);
        let (value, inside) = match k {
            Index::Known(k) => {
                let own = *k == 0 || 2 * k == n;
                let value = if own { value.to_string() } else { self.code.value(format!("{value} * interior()")) };
                let zero = unpaired && *k == last;
                (if zero { "Complex()".to_string() } else { value }, Condition::known(*k <= last))
            }
            Index::Text(k) => {
                let own =
                    if n.is_multiple_of(2) { format!("{k} == 0u || {k} == {}u", n / 2) } else { format!("{k} == 0u") };
                let value = self.code.value(format!("select({value} * interior(), {value}, {own})"));
                let value = if unpaired {
                    self.code.value(format!("select({value}, Complex(), {k} == {last}u)"))
                } else {
                    value
                };
                (value, if kept < n { Condition::Text(format!("{k} <= {last}u")) } else { Condition::Always })
            }
        };
        self.emit(k, &value, valid.and(inside), "");
    }

    /// Stores a real or complex point of the axis.
    fn put(&mut self, position: &Index, value: &str, valid: Condition, result: &str) {
        let span = self.kernel.output.span;
        let n = self.kernel.n;
        let (index, inside) = self.stored(span, position, true);
        let unpaired = match span {
            Span::Modes(kept) if kept < n && kept % 2 == 0 => Some(kept / 2),
            _ => None,
        };
        let zero = if self.kernel.output.format.is_real() { "Real()" } else { "Complex()" };
        let value = match (unpaired, position) {
            (Some(mode), Index::Known(p)) if *p == mode => zero.to_string(),
            (Some(mode), Index::Text(p)) => self.code.value(format!("select({value}, {zero}, {p} == {mode}u)")),
            _ => value.to_string(),
        };
        self.emit(&index, &value, valid.and(inside), result);
    }

    /// Writes an element.
    pub(super) fn emit(&mut self, index: &Index, value: &str, valid: Condition, result: &str) {
        if valid == Condition::Never {
            return;
        }
        if let Some(cells) = self.cells.filter(|cells| cells.written) {
            return self.put_cell(&cells.at(index), value, valid);
        }
        let mut value = self.code.value(format!("{value} * factor()"));
        if self.callbacks.store_mode.is_some() || self.callbacks.store.is_some() {
            value = self.kept_apart(&value, self.kernel.output.format);
        }
        if self.callbacks.store_mode.is_some() {
            value = self.called("on_mode", &value, index, ", 0u");
        }
        if self.callbacks.store.is_some() {
            value = self.called("on_store", &value, index, "");
        }
        let result = if result.is_empty() { String::new() } else { format!(" + {result} * params.line_sizes.z") };
        let address = match self.kernel.output.order {
            Order::Strided => format!("output_at(line_out, {}){result}", index.text()),
            Order::Blocked | Order::Listed => {
                format!("output_at(line_out + vec2<u32>(0u{result}, 0u), {})", index.text())
            }
        };
        if let LineFormat::Vectors(_) = self.kernel.output.format {
            return self.put_number(&address, value, valid);
        }
        let stores = if self.kernel.as_reals() && !self.kernel.output.format.is_real() {
            let address = self.code.value(address);
            format!("store_output(2u * {address}, {value}.x); store_output(2u * {address} + 1u, {value}.y);")
        } else {
            format!("store_output({address}, {value});")
        };
        self.code.line(match valid.and(Condition::Text("present".into())) {
            Condition::Text(valid) => format!("if {valid} {{ {stores} }}"),
            _ => stores,
        });
    }
}

/// A number of a cell.
struct Number {
    address: String,
    value: String,
    valid: Condition,
}

/// The numbers of a line, until they are stored with those of the other lines.
#[derive(Default)]
pub(super) struct Line(Vec<Number>);

impl Writer<'_> {
    /// Writes the loop over the lines of `fields` fields.
    pub(super) fn vectors(&mut self, core: &Core, fields: u32) {
        // Other invocations may still read what the line before exchanged.
        self.dirty = self.shape.lanes > 1;
        let start = self.code.text.len();
        let [first, end] = ["y", "z"].map(|part| format!("params.line_output_more.{part}"));
        self.code.line(format!("for (var number = {first}; number < {end}; number++) {{"));
        self.code.line(format!("let line_in = input_line(vec3<u32>(c.xy, {fields}u * c.z + number - {first}));"));
        if fields == 1 || core.loops() {
            self.line_of(core);
        } else {
            // As in the loop over the results of a filter.
            self.code.line("let lane = lane + number * unknown_zero(0u);");
            self.held = Some(Line::default());
            self.line_of(core);
            let numbers = self.held.take().unwrap_or_default().0;
            let variables = self.store_together(&numbers, fields);
            self.code.text.insert_str(start, &variables);
        }
        self.code.line("}");
    }

    /// Writes the loop over the results of `from` fields, those of the last field first.
    pub(super) fn spread(&mut self, core: &Core, from: u32, to: u32) {
        self.dirty = self.shape.lanes > 1;
        // A number of rounds that compilers do not know: they would mix the code of all.
        self.code.line(format!("for (var round = 0u; round < {to}u + unknown_zero(1u); round++) {{"));
        self.code.line(format!("let result = {}u - round;", to - 1));
        let field = format!("{from}u * c.z + min(result, {}u)", from - 1);
        self.code.line(format!("let line_in = input_line(vec3<u32>(c.xy, {field}));"));
        if !core.loops() {
            self.code.line("let lane = lane + round * unknown_zero(0u);");
        }
        self.line_of(core);
        self.code.line("}");
    }

    /// Writes a number of the cell at `address`, or keeps it for the store of the whole cell.
    pub(super) fn put_number(&mut self, address: &str, value: String, valid: Condition) {
        let address = self.code.value(address);
        let valid = valid.and(Condition::Text("present".into()));
        if let Some(line) = &mut self.held {
            return line.0.push(Number { address, value, valid });
        }
        let Condition::Text(valid) = valid else { return };
        self.code.line(format!("if {valid} {{ set_output({address}, number, {value}); }}"));
    }

    /// Writes the stores of cells, of the last line with those before it. Returns the declarations
    /// of the variables that keep these.
    fn store_together(&mut self, numbers: &[Number], fields: u32) -> String {
        let kept = |point: usize, line: u32| format!("kept_{point}_{line}");
        self.code.line(format!("if number == {}u {{", fields - 1));
        for (point, Number { address, value, valid }) in numbers.iter().enumerate() {
            let Condition::Text(valid) = valid else { continue };
            let mut cell: Vec<String> = (0..fields - 1).map(|line| kept(point, line)).collect();
            cell.push(value.clone());
            cell.resize(4, "Real()".to_string());
            self.code.line(format!("if {valid} {{ store_output({address}, vec4<f32>({})); }}", cell.join(", ")));
        }
        self.code.line("}");
        let mut variables = String::new();
        for (point, Number { value, .. }) in numbers.iter().enumerate() {
            for line in 0..fields - 1 {
                variables.push_str(&format!("    var {}: Real;\n", kept(point, line)));
                let next = if line + 2 < fields { kept(point, line + 1) } else { value.clone() };
                self.code.line(format!("{} = {next};", kept(point, line)));
            }
        }
        variables
    }
}
