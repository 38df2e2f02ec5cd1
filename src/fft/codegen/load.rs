//! Reads the points of a line: real, complex or half lines, whole, padded or truncated, with
//! callbacks.

use super::{Condition, Index, Writer};
use crate::fft::line::{FourStep, LineFormat, LineKernel, Side, Span};
use crate::fft::options::PassCallbacks;
use crate::fft::tables::Section;

impl<'a> Writer<'a> {
    /// Returns the value of the point `at` of the transform.
    pub(super) fn load(&mut self, at: &Index) -> String {
        let LineKernel { n, input, .. } = self.kernel;
        match (self.kernel.packed(), input.format) {
            (true, LineFormat::Real) => {
                let even = self.index(at, |at| 2 * at, |at| format!("2u * {at}"));
                let odd = self.index(&even, |even| even + 1, |even| format!("{even} + 1u"));
                let (even, odd) = (self.load_stored(&even), self.load_stored(&odd));
                self.code.value(format!("Complex({even}, {odd})"))
            }
            (true, _) => {
                // Two half lines make one complex line: Z[k] = X[k] + conj X[n/2 - k] + i (X[k] -
                // conj X[n/2 - k]) w^k.
                let half = n / 2;
                let mirrored = self.index(at, |at| half - at, |at| format!("{half}u - {at}"));
                let (x, y) = (self.load_mode(at), self.load_mode(&mirrored));
                let y = self.code.value(format!("Complex({y}.x, -{y}.y)"));
                let root = self.entry(Section::Roots(n), at, 1.0);
                let odd = self.code.value(format!("multiply({x} - {y}, {root})"));
                self.code.value(format!("{x} + {y} + Complex(-{odd}.y, {odd}.x)"))
            }
            (false, _) => {
                let position = self.position(at, true);
                let value = match input.format {
                    LineFormat::Complex => self.load_stored(&position),
                    LineFormat::Real => {
                        let value = self.load_stored(&position);
                        self.code.value(format!("Complex({value}, Real())"))
                    }
                    // The process grid decides which pass reads real numbers, and arithmetic with a
                    // known zero might round in another way.
                    LineFormat::Hartley => {
                        let value = self.load_stored(&position);
                        self.code.value(format!("from_real({value})"))
                    }
                    LineFormat::Half => self.load_mirrored(&position),
                    LineFormat::Vectors(_) => unreachable!("vectors are only written"),
                };
                if self.kernel.four_step.is_some_and(|step| step.load_factor) {
                    let position = position.text();
                    self.code.value(format!("multiply({value}, load_load_factors({position}))"))
                } else {
                    value
                }
            }
        }
    }

    /// Returns any point of a Hermitian line of which half is stored.
    fn load_mirrored(&mut self, position: &Index) -> String {
        let n = self.kernel.n;
        match position {
            Index::Known(p) => {
                let value = self.load_mode(&Index::Known((*p).min(n - p)));
                if 2 * p > n { self.code.value(format!("Complex({value}.x, -{value}.y)")) } else { value }
            }
            Index::Text(p) => {
                let k = self.code.value(format!("min({p}, {n}u - min({p}, {n}u))"));
                let value = self.load_mode(&Index::Text(k));
                let value =
                    self.code.value(format!("Complex({value}.x, select({value}.y, -{value}.y, {p} > {}u))", n / 2));
                if self.beyond() { self.code.value(format!("select(Complex(), {value}, {p} < {n}u)")) } else { value }
            }
        }
    }

    /// Returns whether positions may lie beyond the axis, as in a padded convolution.
    fn beyond(&self) -> bool {
        self.kernel.four_step.is_some_and(|step| step.positions > self.kernel.n)
    }

    /// Returns mode `k <= n / 2` of half a Hermitian line, without imaginary parts that it cannot
    /// have.
    fn load_mode(&mut self, k: &Index) -> String {
        if let Some(value) = self.loaded.get(k) {
            return value.clone();
        }
        let n = self.kernel.n;
        let kept = if let Span::Modes(kept) = self.kernel.input.span { kept } else { n };
        // The last mode that is kept; an unpaired one is dropped.
        let last = if kept < n { (kept - 1) / 2 } else { n / 2 };
        let (index, valid) = match k {
            Index::Known(k) if *k > last => return self.remember(Index::Known(*k), "Complex()".into()),
            Index::Known(k) => (Index::Known(*k), Condition::Always),
            Index::Text(k) if kept < n => {
                (Index::Text(self.code.value(format!("min({k}, {last}u)"))), Condition::Text(format!("{k} <= {last}u")))
            }
            Index::Text(k) => (Index::Text(k.clone()), Condition::Always),
        };
        let value = self.fetch(LineFormat::Half, &index);
        let value = self.after_load(&value, &index);
        let value = match (&index, n % 2) {
            (Index::Known(0), _) => self.code.value(format!("Complex({value}.x, Real())")),
            (Index::Known(k), 0) if 2 * k == n => self.code.value(format!("Complex({value}.x, Real())")),
            (Index::Known(_), _) => self.code.value(format!("{value} * interior()")),
            (Index::Text(k), even) => {
                let own = if even == 0 { format!("{k} == 0u || {k} == {}u", n / 2) } else { format!("{k} == 0u") };
                self.code.value(format!("select({value} * interior(), Complex({value}.x, Real()), {own})"))
            }
        };
        let value = match valid {
            Condition::Text(valid) => self.code.value(format!("select(Complex(), {value}, {valid})")),
            _ => value,
        };
        self.remember(k.clone(), value)
    }

    /// Stores the value of a known index, so that it is loaded once.
    fn remember(&mut self, at: Index, value: String) -> String {
        if matches!(at, Index::Known(_)) {
            self.loaded.insert(at, value.clone());
        }
        value
    }

    /// Returns the real or complex point at a position of the axis, zero if it is not stored.
    fn load_stored(&mut self, position: &Index) -> String {
        let Side { format, .. } = self.kernel.input;
        let zero = if format.is_real() { "Real()" } else { "Complex()" };
        let (index, valid) = self.stored(self.kernel.input.span, position, false);
        if valid == Condition::Never {
            return zero.to_string();
        }
        let value = self.fetch(format, &index);
        let value = self.after_load(&value, &index);
        match valid {
            Condition::Text(valid) => self.code.value(format!("select({zero}, {value}, {valid})")),
            _ => value,
        }
    }

    /// Returns the index in memory of a position, and whether it is stored there. For stores, the
    /// unpaired mode has an index (and is zero).
    pub(super) fn stored(&mut self, span: Span, position: &Index, store: bool) -> (Index, Condition) {
        let n = self.kernel.n;
        match (span, position) {
            (Span::Whole, _) if !self.beyond() => (position.clone(), Condition::Always),
            (Span::Whole, position) => (self.clamped(position, n), Condition::below(position, n)),
            (Span::Head(head), position) => (self.clamped(position, head), Condition::below(position, head)),
            (Span::Modes(kept), position) => {
                // Modes from 0 to low - 1, from n - high on, and the unpaired one of an even
                // number.
                let (low, high) = (kept.div_ceil(2), (kept - 1) / 2);
                let low = if store && kept % 2 == 0 { low + 1 } else { low };
                match position {
                    Index::Known(p) if *p < low => (Index::Known(*p), Condition::Always),
                    Index::Known(p) if *p + high >= n && *p < n => (Index::Known(p + kept - n), Condition::Always),
                    Index::Known(_) => (Index::Known(0), Condition::Never),
                    Index::Text(p) => {
                        let end = if self.beyond() { format!(" && {p} < {n}u") } else { String::new() };
                        let top = self.code.value(format!("{p} >= {}u{end}", n - high));
                        let valid = self.code.value(format!("{p} < {low}u || {top}"));
                        let index = format!("select(0u, select({p}, {p} - {}u, {top}), {valid})", n - kept);
                        (Index::Text(self.code.value(index)), Condition::Text(valid))
                    }
                }
            }
        }
    }

    /// Reads an element, or takes it from the source.
    pub(super) fn fetch(&mut self, format: LineFormat, index: &Index) -> String {
        if self.callbacks.source.is_some() {
            return self.code.value(format!("on_source(coordinates({}, c))", index.text()));
        }
        if let Some(cells) = self.cells.filter(|cells| cells.read) {
            return self.code.value(cells.at(index));
        }
        let address = format!("input_at(line_in, {})", index.text());
        let name = if self.kernel.in_place { "load_output" } else { "load_input" };
        if self.kernel.as_reals() && !format.is_real() {
            let address = self.code.value(address);
            return self.code.value(format!("Complex({name}(2u * {address}), {name}(2u * {address} + 1u))"));
        }
        self.code.value(format!("{name}({address})"))
    }

    /// Returns the value after the callbacks on elements that are read. Compilers must not contract
    /// a product of a callback or a source with a sum of the transform: kernels with the same input
    /// would round differently.
    pub(super) fn after_load(&mut self, value: &str, index: &Index) -> String {
        let mut value = value.to_string();
        let PassCallbacks { source, load, load_mode, spread, .. } = self.callbacks;
        if [source, load, load_mode, spread].into_iter().all(Option::is_none) {
            return value;
        }
        if self.callbacks.load.is_some() {
            value = self.called("on_load", &value, index, "");
        }
        if self.callbacks.load_mode.is_some() {
            value = self.called("on_mode", &value, index, &format!(", {}u", self.callbacks.result));
        }
        if spread.is_some() {
            value = self.called("on_mode", &value, index, ", result");
        }
        self.kept_apart(&value, self.kernel.input.format)
    }

    /// Returns a value of this format that compilers do not contract with operations before or
    /// after.
    pub(super) fn kept_apart(&mut self, value: &str, format: LineFormat) -> String {
        let function = if format.is_real() { "kept_apart_real" } else { "kept_apart" };
        self.code.value(format!("{function}({value})"))
    }

    pub(super) fn called(&mut self, function: &str, value: &str, index: &Index, more: &str) -> String {
        let coordinates =
            if self.cells.is_some() { format!("coordinates_{}", self.kernel.axis) } else { "coordinates".into() };
        self.code.value(format!("{function}({value}, {coordinates}({}, c){more})", index.text()))
    }

    /// Returns the position of a point on the whole axis.
    pub(super) fn position(&mut self, at: &Index, input: bool) -> Index {
        let Some(FourStep { input: read, output: written, .. }) = self.kernel.four_step else { return at.clone() };
        let (at, [a, q, r]) = (at.text(), if input { read } else { written });
        let text = format!("{at} * {a}u + counter / {q}u + counter % {q}u * {r}u");
        Index::Text(self.code.value(text))
    }
}
