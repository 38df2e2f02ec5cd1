//! Reading the points of a line: real, complex or half lines, whole or padded or truncated, with hooks.

use super::{At, If, Writer};
use crate::fft::line::{Digit, LineKernel, Side, Span, View};
use crate::fft::tables::Section;

impl<'a> Writer<'a> {
    /// The value of the point `at` of the core's transform.
    pub(super) fn load(&mut self, at: &At) -> String {
        let LineKernel { n, input, .. } = self.kernel;
        match (self.kernel.packed(), input.view) {
            (true, View::Real) => {
                let [even, odd] = match at {
                    At::Known(at) => [At::Known(2 * at), At::Known(2 * at + 1)],
                    At::Text(at) => {
                        let even = self.code.value(format!("2u * {at}"));
                        [At::Text(even.clone()), At::Text(self.code.value(format!("{even} + 1u")))]
                    }
                };
                let (even, odd) = (self.load_stored(&even), self.load_stored(&odd));
                self.code.value(format!("Complex({even}, {odd})"))
            }
            (true, _) => {
                // Two half lines make one complex line: Z[k] = X[k] + conj X[n/2 - k] + i (X[k] - conj X[n/2 - k]) w^k.
                let half = n / 2;
                let mirrored = match at {
                    At::Known(at) => At::Known(half - at),
                    At::Text(at) => At::Text(self.code.value(format!("{half}u - {at}"))),
                };
                let (x, y) = (self.load_mode(at), self.load_mode(&mirrored));
                let y = self.code.value(format!("Complex({y}.x, -{y}.y)"));
                let root = self.entry(Section::Roots(n), at, 1.0);
                let odd = self.code.value(format!("multiply({x} - {y}, {root})"));
                self.code.value(format!("{x} + {y} + Complex(-{odd}.y, {odd}.x)"))
            }
            (false, _) => {
                let position = self.position(at, true);
                let value = match input.view {
                    View::Complex => self.load_stored(&position),
                    View::Real => {
                        let value = self.load_stored(&position);
                        self.code.value(format!("Complex({value}, Real())"))
                    }
                    View::Half => self.load_mirrored(&position),
                };
                if self.kernel.digit.is_some_and(|digit| digit.load_factor) {
                    let position = position.text();
                    self.code.value(format!("multiply({value}, load_load_factors({position}))"))
                } else {
                    value
                }
            }
        }
    }

    /// Any point of a Hermitian line of which half is stored.
    fn load_mirrored(&mut self, position: &At) -> String {
        let n = self.kernel.n;
        match position {
            At::Known(p) => {
                let value = self.load_mode(&At::Known((*p).min(n - p)));
                if 2 * p > n { self.code.value(format!("Complex({value}.x, -{value}.y)")) } else { value }
            }
            At::Text(p) => {
                let k = self.code.value(format!("min({p}, {n}u - min({p}, {n}u))"));
                let value = self.load_mode(&At::Text(k));
                let value =
                    self.code.value(format!("Complex({value}.x, select({value}.y, -{value}.y, {p} > {}u))", n / 2));
                if self.beyond() { self.code.value(format!("select(Complex(), {value}, {p} < {n}u)")) } else { value }
            }
        }
    }

    /// Whether positions may lie beyond the axis.
    fn beyond(&self) -> bool {
        self.kernel.digit.is_some_and(|digit| digit.positions > self.kernel.n)
    }

    /// Mode `k <= n / 2` of half a Hermitian line, without the imaginary parts that it cannot have.
    fn load_mode(&mut self, k: &At) -> String {
        if let Some(value) = self.loaded.get(k) {
            return value.clone();
        }
        let n = self.kernel.n;
        let kept = if let Span::Modes(kept) = self.kernel.input.span { kept } else { n };
        // The last mode that is kept; an unpaired one is dropped.
        let last = if kept < n { (kept - 1) / 2 } else { n / 2 };
        let (index, there) = match k {
            At::Known(k) if *k > last => return self.remember(At::Known(*k), "Complex()".into()),
            At::Known(k) => (At::Known(*k), If::Always),
            At::Text(k) if kept < n => {
                (At::Text(self.code.value(format!("min({k}, {last}u)"))), If::Text(format!("{k} <= {last}u")))
            }
            At::Text(k) => (At::Text(k.clone()), If::Always),
        };
        let value = self.fetch(View::Half, &index);
        let value = self.hooked_load(&value, &index);
        let value = match (&index, n % 2) {
            (At::Known(0), _) => self.code.value(format!("Complex({value}.x, Real())")),
            (At::Known(k), 0) if 2 * k == n => self.code.value(format!("Complex({value}.x, Real())")),
            (At::Known(_), _) => self.code.value(format!("{value} * interior()")),
            (At::Text(k), even) => {
                let own = if even == 0 { format!("{k} == 0u || {k} == {}u", n / 2) } else { format!("{k} == 0u") };
                self.code.value(format!("select({value} * interior(), Complex({value}.x, Real()), {own})"))
            }
        };
        let value = match there {
            If::Text(there) => self.code.value(format!("select(Complex(), {value}, {there})")),
            _ => value,
        };
        self.remember(k.clone(), value)
    }

    /// Keeps a value for the next who asks, where places are known.
    fn remember(&mut self, at: At, value: String) -> String {
        if matches!(at, At::Known(_)) {
            self.loaded.insert(at, value.clone());
        }
        value
    }

    /// The real or complex point at a position of the axis, zero where nothing is stored.
    fn load_stored(&mut self, position: &At) -> String {
        let Side { view, .. } = self.kernel.input;
        let zero = if view == View::Real { "Real()" } else { "Complex()" };
        let (index, there) = self.stored(self.kernel.input.span, position, false);
        if there == If::Never {
            return zero.to_string();
        }
        let value = self.fetch(view, &index);
        let value = self.hooked_load(&value, &index);
        match there {
            If::Text(there) => self.code.value(format!("select({zero}, {value}, {there})")),
            _ => value,
        }
    }

    /// Where in memory a position is, and whether it is there. For stores, the unpaired mode has a place (and is zero).
    pub(super) fn stored(&mut self, span: Span, position: &At, store: bool) -> (At, If) {
        let n = self.kernel.n;
        match (span, position) {
            (Span::Whole, _) if !self.beyond() => (position.clone(), If::Always),
            (Span::Whole, At::Known(p)) => (At::Known((*p).min(n - 1)), If::known(*p < n)),
            (Span::Whole, At::Text(p)) => {
                (At::Text(self.code.value(format!("min({p}, {}u)", n - 1))), If::Text(format!("{p} < {n}u")))
            }
            (Span::Head(head), At::Known(p)) => (At::Known((*p).min(head - 1)), If::known(*p < head)),
            (Span::Head(head), At::Text(p)) => {
                (At::Text(self.code.value(format!("min({p}, {}u)", head - 1))), If::Text(format!("{p} < {head}u")))
            }
            (Span::Modes(kept), position) => {
                // Modes from 0 to low - 1, from n - high on, and the unpaired one of an even number.
                let (low, high) = (kept.div_ceil(2), (kept - 1) / 2);
                let low = if store && kept % 2 == 0 { low + 1 } else { low };
                match position {
                    At::Known(p) if *p < low => (At::Known(*p), If::Always),
                    At::Known(p) if *p + high >= n && *p < n => (At::Known(p + kept - n), If::Always),
                    At::Known(_) => (At::Known(0), If::Never),
                    At::Text(p) => {
                        let end = if self.beyond() { format!(" && {p} < {n}u") } else { String::new() };
                        let top = self.code.value(format!("{p} >= {}u{end}", n - high));
                        let there = self.code.value(format!("{p} < {low}u || {top}"));
                        let index = format!("select(0u, select({p}, {p} - {}u, {top}), {there})", n - kept);
                        (At::Text(self.code.value(index)), If::Text(there))
                    }
                }
            }
        }
    }

    /// Reads an element.
    pub(super) fn fetch(&mut self, view: View, index: &At) -> String {
        let address = format!("input_at(line_in, {})", index.text());
        let name = if self.kernel.in_place { "load_output" } else { "load_input" };
        if self.kernel.numbers() && view != View::Real {
            let address = self.code.value(address);
            return self.code.value(format!("Complex({name}(2u * {address}), {name}(2u * {address} + 1u))"));
        }
        self.code.value(format!("{name}({address})"))
    }

    /// The value after the hooks on what is read.
    pub(super) fn hooked_load(&mut self, value: &str, index: &At) -> String {
        let mut value = value.to_string();
        if self.hooks.load.is_some() {
            value = self.hooked("on_load", &value, index, "");
        }
        if self.hooks.load_mode.is_some() {
            value = self.hooked("on_mode", &value, index, &format!(", {}u", self.hooks.result));
        }
        value
    }

    pub(super) fn hooked(&mut self, function: &str, value: &str, index: &At, more: &str) -> String {
        self.code.value(format!("{function}({value}, coordinates({}, c){more})", index.text()))
    }

    /// The position of a point on the whole axis.
    pub(super) fn position(&mut self, at: &At, input: bool) -> At {
        let Some(Digit { input: read, output: written, .. }) = self.kernel.digit else { return at.clone() };
        let (at, [a, q, r]) = (at.text(), if input { read } else { written });
        let text = format!("{at} * {a}u + digit / {q}u + digit % {q}u * {r}u");
        At::Text(self.code.value(text))
    }
}
