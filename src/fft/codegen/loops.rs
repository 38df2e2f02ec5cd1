//! The transform of a line by one invocation, in loops over the butterflies of each stage: short
//! code without barriers.

use super::{Condition, Index, Point, Writer};
use crate::fft::core::{Core, RadixStages};
use crate::fft::line::{LineFormat, Work};
use crate::fft::tables::Section;

/// Returns the value at an index of the line.
type Feed<'a, 'f> = dyn FnMut(&mut Writer<'a>, &str) -> String + 'f;
/// Returns the value of a slot, which holds the given mode.
type SlotFeed<'a, 'f> = dyn FnMut(&mut Writer<'a>, &str, &str) -> String + 'f;
/// Receives an index or mode, the slot in which it may be kept, and its value.
type Sink<'a, 'f> = dyn FnMut(&mut Writer<'a>, &str, &str, &str) + 'f;

/// A butterfly of a loop: its first slot, and the digits above and below its own.
struct Butterfly {
    base: String,
    high: String,
    low: String,
}

impl<'a> Writer<'a> {
    /// Transforms a line by one invocation, stage by stage without barriers, in an array of its own
    /// or, if the line is long, in its part of workgroup memory.
    ///
    /// llvmpipe reads and writes workgroup memory lane by lane with a branch for each. Arrays of an
    /// invocation are quicker, the more so with real and imaginary parts in arrays of their own.
    pub(super) fn loops(&mut self, core: &Core) {
        let n = self.kernel.core_points();
        let split = self.kernel.packed() && self.kernel.output.format == LineFormat::Half;
        let load: &mut Feed<'a, '_> = &mut |w, at| w.load(&Index::Text(at.into()));
        let sign = if self.kernel.work == Work::Forward { -1.0 } else { 1.0 };
        match self.kernel.work {
            Work::Filter(results) => {
                self.looped(core, load, -1.0, 0, &mut |w, _, slot, value| w.keep(0, slot, value));
                let buffer = self.kernel.buffers() - 1;
                let each = self.each_result(results);
                self.code.line(each);
                self.filtered(core, buffer);
                self.code.line("}");
            }
            _ if split => {
                self.looped(core, load, sign, 0, &mut |w, _, slot, value| w.keep(0, slot, value));
                self.code.line(format!("for (var k = 0u; k <= {n}u; k++) {{"));
                let places = ["select(k, 0u, k == {n}u)", "select({n}u - k, 0u, k == 0u)"];
                let both = places.map(|place| {
                    let at = self.code.value(place.replace("{n}", &n.to_string()));
                    let slot = self.slot_of_mode(core, &at);
                    self.kept(0, &slot)
                });
                let k = Index::Text("k".into());
                let [even, odd] = self.even_and_odd(&k, &both[0], &both[1]);
                let value = self.code.value(format!("{even} + {odd}"));
                self.put_mode(&k, &value, Condition::Always);
                self.code.line("}");
            }
            work => {
                let result = if matches!(work, Work::Spread { .. }) { "result" } else { "" };
                self.looped(core, load, sign, 0, &mut |w, at, _, value| {
                    let point = Point { at: Index::Text(at.into()), value: value.into(), valid: Condition::Always };
                    w.store(vec![point], result);
                });
            }
        }
    }

    /// Computes the result `result` of a filter from the modes in buffer 0, with `buffer` as
    /// scratch.
    fn filtered(&mut self, core: &Core, buffer: u64) {
        let more = ", result";
        let store: &mut Sink<'a, '_> = &mut |w, at, _, value| {
            let point = Point { at: Index::Text(at.into()), value: value.into(), valid: Condition::Always };
            w.store(vec![point], "result");
        };
        match core {
            Core::Direct(stages) => {
                let feed: &mut SlotFeed<'a, '_> = &mut |w, slot, mode| {
                    let value = w.kept(0, slot);
                    let value = w.called("on_mode", &value, &Index::Text(mode.into()), more);
                    w.kept_apart(&value, LineFormat::Complex)
                };
                self.backwards(&stages.radices, feed, buffer, store);
            }
            Core::Bluestein { .. } => {
                let n = self.kernel.core_points();
                let feed: &mut Feed<'a, '_> = &mut |w, at| {
                    let within = w.code.value(format!("min({at}, {}u)", n - 1));
                    let value = w.kept(0, &within);
                    let value = w.called("on_mode", &value, &Index::Text(within), more);
                    w.kept_apart(&value, LineFormat::Complex)
                };
                self.looped(core, feed, 1.0, buffer, store);
            }
        }
    }

    /// Transforms the values of `feed`. `emit` receives the mode, the slot in which it may be kept,
    /// and its value. Overwrites the slots of `buffer`.
    fn looped(&mut self, core: &Core, feed: &mut Feed<'a, '_>, sign: f64, buffer: u64, emit: &mut Sink<'a, '_>) {
        match core {
            Core::Direct(stages) => self.forwards(&stages.radices, feed, sign, buffer, emit),
            Core::Bluestein { padded, stages } => {
                let (n, padded) = (self.kernel.core_points(), *padded);
                self.forwards(
                    &stages.radices,
                    &mut |w, at| {
                        let within = w.code.value(format!("min({at}, {}u)", n - 1));
                        let value = feed(w, &within);
                        let chirp = w.entry(Section::Chirp(n), &Index::Text(within), sign);
                        w.code.value(format!("select(Complex(), multiply({value}, {chirp}), {at} < {n}u)"))
                    },
                    -1.0,
                    buffer,
                    &mut |w, mode, slot, value| {
                        let factor = w.entry(Section::ChirpSpectrum { n, padded }, &Index::Text(mode.into()), sign);
                        w.keep(buffer, slot, &format!("multiply({value}, {factor})"));
                    },
                );
                self.backwards(
                    &stages.radices,
                    &mut |w, slot, _| w.kept(buffer, slot),
                    buffer,
                    &mut |w, at, slot, value| {
                        w.code.line(format!("if {at} < {n}u {{"));
                        let chirp = w.entry(Section::Chirp(n), &Index::Text(at.into()), sign);
                        let value = w.code.value(format!("multiply({value}, {chirp})"));
                        emit(w, at, slot, &value);
                        w.code.line("}");
                    },
                );
            }
        }
    }

    /// Returns the slot in which [`looped`](Self::looped) keeps a mode.
    fn slot_of_mode(&mut self, core: &Core, mode: &str) -> String {
        let Core::Direct(RadixStages { radices, .. }) = core else { return mode.to_string() };
        let n: u64 = radices.iter().product();
        let (mut done, mut terms) = (1, Vec::new());
        for &radix in radices {
            done *= radix;
            terms.push(format!("{mode} / {}u % {radix}u * {}u", done / radix, n / done));
        }
        self.code.value(terms.join(" + "))
    }

    /// Returns the index of slot `at` of a buffer of this invocation.
    fn slot(&self, buffer: u64, at: &str) -> String {
        let first = buffer * self.shape.core.exchanged(self.kernel.core_points());
        match self.shape.has_own_arrays() {
            true => format!("{at} + {first}u"),
            false => format!("place(column, {at}) + {}u", first * self.shape.lines),
        }
    }

    /// Returns the value of a slot.
    fn kept(&mut self, buffer: u64, at: &str) -> String {
        let slot = self.slot(buffer, at);
        self.code.value(match self.shape.has_own_arrays() {
            true => format!("Complex(own_real[{slot}], own_imaginary[{slot}])"),
            false => format!("shared_line[{slot}]"),
        })
    }

    /// Writes a value to a slot.
    fn keep(&mut self, buffer: u64, at: &str, value: &str) {
        let slot = self.slot(buffer, at);
        if self.shape.has_own_arrays() {
            let value = self.code.value(value);
            self.code.line(format!("own_real[{slot}] = {value}.x;"));
            self.code.line(format!("own_imaginary[{slot}] = {value}.y;"));
        } else {
            self.code.line(format!("shared_line[{slot}] = {value};"));
        }
    }

    /// Decimation in frequency, in place: natural order in, digit-reversed order out.
    fn forwards(&mut self, radices: &[u64], feed: &mut Feed<'a, '_>, sign: f64, buffer: u64, emit: &mut Sink<'a, '_>) {
        let n: u64 = radices.iter().product();
        let (mut done, last) = (1, radices.len() - 1);
        for (stage, &radix) in radices.iter().enumerate() {
            done *= radix;
            let stride = n / done;
            let butterfly = self.butterflies(stage, n / radix, radix, stride);
            let mut x = Vec::new();
            for i in 0..radix {
                let at = self.code.value(format!("{} + {}u", butterfly.base, i * stride));
                x.push(if stage == 0 { feed(self, &at) } else { self.kept(buffer, &at) });
            }
            let y = self.code.transform(&x, sign);
            if stage < last {
                let y = self.powers(y, &butterfly.low, n / (stride * radix), n, sign);
                for (k, value) in y.into_iter().enumerate() {
                    let at = self.code.value(format!("{} + {}u", butterfly.base, k as u64 * stride));
                    self.keep(buffer, &at, &value);
                }
            } else {
                let high = self.mode_of_high(&radices[..last], &butterfly.high);
                for (k, value) in y.into_iter().enumerate() {
                    let at = self.code.value(format!("{} + {k}u", butterfly.base));
                    let mode = self.code.value(format!("{high} + {}u", k as u64 * (n / radix)));
                    emit(self, &mode, &at, &value);
                }
            }
            self.code.line("}");
        }
    }

    /// Decimation in time, in place: digit-reversed order in, natural order out. The first stage
    /// takes values of slots from `feed`.
    fn backwards(&mut self, radices: &[u64], feed: &mut SlotFeed<'a, '_>, buffer: u64, emit: &mut Sink<'a, '_>) {
        let n: u64 = radices.iter().product();
        let last = radices.len() - 1;
        for (stage, &radix) in radices.iter().enumerate().rev() {
            let done: u64 = radices[..=stage].iter().product();
            let stride = n / done;
            let butterfly = self.butterflies(stage, n / radix, radix, stride);
            let high = if stage == last { self.mode_of_high(&radices[..last], &butterfly.high) } else { String::new() };
            let (mut x, mut places) = (Vec::new(), Vec::new());
            for i in 0..radix {
                let at = self.code.value(format!("{} + {}u", butterfly.base, i * stride));
                x.push(if stage == last {
                    let mode = self.code.value(format!("{high} + {}u", i * (n / radix)));
                    feed(self, &at, &mode)
                } else {
                    self.kept(buffer, &at)
                });
                places.push(at);
            }
            if stage < last {
                x = self.powers(x, &butterfly.low, n / (stride * radix), n, 1.0);
            }
            let y = self.code.transform(&x, 1.0);
            for (at, value) in places.iter().zip(y) {
                if stage == 0 {
                    emit(self, at, at, &value);
                } else {
                    self.keep(buffer, at, &value);
                }
            }
            self.code.line("}");
        }
    }

    /// Opens the loop over the butterflies of a stage; the caller closes it.
    fn butterflies(&mut self, stage: usize, count: u64, radix: u64, stride: u64) -> Butterfly {
        let j = format!("j{stage}");
        self.code.line(format!("for (var {j} = 0u; {j} < {count}u; {j}++) {{"));
        let high = self.code.value(format!("{j} / {stride}u"));
        let low = self.code.value(format!("{j} % {stride}u"));
        let base = self.code.value(format!("{high} * {}u + {low}", radix * stride));
        Butterfly { base, high, low }
    }

    /// Returns the part of a mode that comes from the digits above the last one.
    fn mode_of_high(&mut self, radices: &[u64], high: &str) -> String {
        let total: u64 = radices.iter().product();
        let (mut done, mut terms) = (1, Vec::new());
        for &radix in radices {
            terms.push(format!("{high} / {}u % {radix}u * {done}u", total / done / radix));
            done *= radix;
        }
        self.code.value(terms.join(" + "))
    }

    /// Returns `x[k]` times the power `k low step` of the first root of order `n`.
    ///
    /// Roots whose `k` is a power of four are read; the others are products of at most six of these
    /// in butterflies of 16. Reading all roots would take registers and scattered loads. Powers of
    /// one root alone would be wrong by its rounding times `k`, which doubles the error of a whole
    /// transform, although not with butterflies of up to 7 points. Filters of several results use
    /// powers of one root: they also hold a spectrum and have no registers left.
    pub(super) fn powers(&mut self, x: Vec<String>, low: &str, step: u64, n: u64, sign: f64) -> Vec<String> {
        let radix = x.len();
        let one = radix <= 7 || matches!(self.kernel.work, Work::Filter(2..));
        let (mut powers, mut y) = (vec!["Complex()".to_string()], vec![x[0].clone()]);
        for k in 1..radix {
            let read = if one { 1 } else { 1 << (k.ilog2() & !1) };
            let power = if k == read {
                self.entry(Section::Roots(n), &Index::Text(format!("{low} * {}u", step * read as u64)), sign)
            } else {
                let part = if k % read == 0 { read } else { k % read };
                self.code.value(format!("multiply({}, {})", powers[k - part], powers[part]))
            };
            y.push(self.code.value(format!("multiply({}, {power})", x[k])));
            powers.push(power);
        }
        y
    }
}
