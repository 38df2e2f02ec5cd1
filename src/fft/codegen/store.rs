//! Writing the points of a line, likewise.

use super::{At, If, Point, Writer};
use crate::fft::line::{LineKernel, Order, Span, View, Work};
use crate::fft::tables::Section;

impl<'a> Writer<'a> {
    pub(super) fn store(&mut self, points: Vec<Point>) {
        self.store_result(points, "");
    }

    /// Stores what the last stage left.
    pub(super) fn store_result(&mut self, points: Vec<Point>, result: &str) {
        let LineKernel { n, output, .. } = self.kernel;
        match (self.kernel.packed(), output.view) {
            (true, View::Half) => self.split(points),
            (true, _) => {
                for Point { at, value, there } in points {
                    for (offset, part) in [(0, "x"), (1, "y")] {
                        let at = match &at {
                            At::Known(at) => At::Known(2 * at + offset),
                            At::Text(at) => At::Text(self.code.value(format!("2u * {at} + {offset}u"))),
                        };
                        self.put(&at, &format!("{value}.{part}"), there.clone(), result);
                    }
                }
            }
            (false, view) => {
                for Point { at, value, there } in points {
                    let value = self.turned(&at, value);
                    let position = self.position(&at, false);
                    let value = if self.kernel.digit.is_some_and(|digit| digit.store_factor) {
                        self.code.value(format!("multiply({value}, load_store_factors({}))", position.text()))
                    } else {
                        value
                    };
                    match view {
                        View::Complex => self.put(&position, &value, there, result),
                        View::Real => self.put(&position, &format!("{value}.x"), there, result),
                        View::Half => {
                            let lower = match &position {
                                At::Known(p) => If::known(2 * p <= n),
                                At::Text(p) => If::Text(format!("{p} <= {}u", n / 2)),
                            };
                            self.put_mode(&position, &value, there.and(lower));
                        }
                    }
                }
            }
        }
    }

    /// Turns the results of a digit.
    fn turned(&mut self, at: &At, value: String) -> String {
        let Some(digit) = self.kernel.digit.filter(|digit| digit.turn > 0) else { return value };
        // Two tables, of steps and of single turns: their product is right to two roundings.
        let low = 1u64 << (digit.turn.ilog2() / 2);
        let index = self.code.value(format!("{} * (digit / {}u) % {}u", at.text(), digit.input[1], digit.turn));
        let sign = if self.kernel.work == Work::Backward { 1.0 } else { -1.0 };
        let fine = Section::Every { n: digit.turn, step: 1, count: low };
        let fine = self.entry(fine, &At::Text(format!("({index} & {}u)", low - 1)), sign);
        let coarse = Section::Every { n: digit.turn, step: low, count: digit.turn.div_ceil(low) };
        let coarse = self.entry(coarse, &At::Text(format!("({index} >> {}u)", low.ilog2())), sign);
        self.code.value(format!("multiply({value}, multiply({coarse}, {fine}))"))
    }

    /// The half spectrum of a real line from the spectrum of its packed line.
    fn split(&mut self, points: Vec<Point>) {
        let half = self.kernel.n / 2;
        let lanes = self.shape.lanes;
        let mut modes: Vec<(At, If)> = Vec::new();
        if lanes == 1 {
            modes.extend((0..=half).map(|k| (At::Known(k), If::Always)));
        } else {
            for b in 0..(half + 1).div_ceil(lanes) {
                let first = b * lanes;
                let index = self.lane_index(first, lanes, half + 1);
                let partial = first + lanes > half + 1;
                let there = if partial { If::Text(format!("lane + {first}u <= {half}u")) } else { If::Always };
                modes.push((At::Text(index), there));
            }
        }
        let mut both = Vec::new();
        for (k, _) in &modes {
            both.push(match k {
                At::Known(k) => At::Known(k % half),
                At::Text(k) => At::Text(self.code.value(format!("select({k}, 0u, {k} == {half}u)"))),
            });
        }
        for (k, _) in &modes {
            both.push(match k {
                At::Known(k) => At::Known((half - k) % half),
                At::Text(k) => At::Text(self.code.value(format!("select({half}u - {k}, 0u, {k} == 0u)"))),
            });
        }
        let values = self.exchange(&points, &both);
        let (here, there) = values.split_at(modes.len());
        let pairs: Vec<_> = here.iter().cloned().zip(there.iter().cloned()).collect();
        for ((k, valid), (x, y)) in modes.into_iter().zip(pairs) {
            self.split_mode(&k, &x, &y, valid);
        }
    }

    /// Stores mode `k` of a real line from modes `k` and `-k` of its packed line.
    pub(super) fn split_mode(&mut self, k: &At, x: &str, y: &str, there: If) {
        let one_half = self.code.literal(0.5);
        let y = self.code.value(format!("Complex({y}.x, -{y}.y)"));
        let even = self.code.value(format!("({x} + {y}) * {one_half}"));
        let odd = self.code.value(format!("Complex({x}.y - {y}.y, {y}.x - {x}.x) * {one_half}"));
        let root = self.entry(Section::Roots(self.kernel.n), k, -1.0);
        let value = self.code.value(format!("{even} + multiply({odd}, {root})"));
        self.put_mode(k, &value, there);
    }

    /// Stores mode `k <= n / 2` of half a Hermitian line.
    fn put_mode(&mut self, k: &At, value: &str, there: If) {
        let n = self.kernel.n;
        let kept = if let Span::Modes(kept) = self.kernel.output.span { kept } else { n };
        let (unpaired, last) = (kept < n && kept % 2 == 0, kept / 2);
        let (value, inside) = match k {
            At::Known(k) => {
                let own = *k == 0 || 2 * k == n;
                let value = if own { value.to_string() } else { self.code.value(format!("{value} * interior()")) };
                let zero = unpaired && *k == last;
                (if zero { "Complex()".to_string() } else { value }, If::known(*k <= last))
            }
            At::Text(k) => {
                let own =
                    if n.is_multiple_of(2) { format!("{k} == 0u || {k} == {}u", n / 2) } else { format!("{k} == 0u") };
                let value = self.code.value(format!("select({value} * interior(), {value}, {own})"));
                let value = if unpaired {
                    self.code.value(format!("select({value}, Complex(), {k} == {last}u)"))
                } else {
                    value
                };
                (value, if kept < n { If::Text(format!("{k} <= {last}u")) } else { If::Always })
            }
        };
        self.emit(k, &value, there.and(inside), "");
    }

    /// Stores a real or complex point of the axis.
    fn put(&mut self, position: &At, value: &str, there: If, result: &str) {
        let span = self.kernel.output.span;
        let n = self.kernel.n;
        let (index, inside) = self.stored(span, position, true);
        let unpaired = match span {
            Span::Modes(kept) if kept < n && kept % 2 == 0 => Some(kept / 2),
            _ => None,
        };
        let zero = if self.kernel.output.view == View::Real { "Real()" } else { "Complex()" };
        let value = match (unpaired, position) {
            (Some(mode), At::Known(p)) if *p == mode => zero.to_string(),
            (Some(mode), At::Text(p)) => self.code.value(format!("select({value}, {zero}, {p} == {mode}u)")),
            _ => value.to_string(),
        };
        self.emit(&index, &value, there.and(inside), result);
    }

    /// Writes an element.
    pub(super) fn emit(&mut self, index: &At, value: &str, there: If, result: &str) {
        if there == If::Never {
            return;
        }
        let mut value = self.code.value(format!("{value} * factor()"));
        if self.hooks.store_mode.is_some() {
            value = self.hooked("on_mode", &value, index, ", 0u");
        }
        if self.hooks.store.is_some() {
            value = self.hooked("on_store", &value, index, "");
        }
        let result = if result.is_empty() { String::new() } else { format!(" + {result} * params.line_sizes.z") };
        let address = match self.kernel.output.order {
            Order::DeviceElement => format!("output_at(line_out, {}){result}", index.text()),
            Order::Blocked => format!("output_at(line_out + vec2<u32>(0u{result}, 0u), {})", index.text()),
        };
        let stores = if self.kernel.numbers() && self.kernel.output.view != View::Real {
            let address = self.code.value(address);
            format!("store_output(2u * {address}, {value}.x); store_output(2u * {address} + 1u, {value}.y);")
        } else {
            format!("store_output({address}, {value});")
        };
        self.code.line(match there.and(If::Text("present".into())) {
            If::Text(there) => format!("if {there} {{ {stores} }}"),
            _ => stores,
        });
    }
}
