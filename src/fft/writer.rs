//! The text of a line kernel. Pure.
//!
//! Stages are Stockham's autosort (Cochran et al. 1967): with `L` the product of the radices done so far, the butterfly
//! `j` of a stage of radix `R` takes the points `j + i n / R`, turns them by `exp(-+2 pi i (j mod L) i / (L R))` and puts
//! them to `(j - j mod L) R + j mod L + i L`. Between stages points change hands through workgroup memory, real and
//! imaginary parts together where both fit, else one after the other.
//!
//! Other lengths: `x_j exp(-i pi j^2 / n)` convolved with the conjugate chirp (Bluestein 1970). Real lines of even length are
//! transformed as complex ones of half the length (Press et al., *Numerical Recipes*, 12.3), odd ones with a zero imaginary
//! part. Never two rows at once: the arithmetic of a line does not depend on its neighbours, so results are the same
//! for every distribution.
//!
//! Idle lanes and lines beyond the end load a clamped place and store nothing: all barriers stand in uniform flow.

use std::collections::HashMap;

use super::butterfly::Code;
use super::core::{Core, Stages};
use super::hook::Hooks;
use super::line::{Digit, LineKernel, Order, Shape, Side, Span, View, Work};
use super::tables::{Section, Table, root};

/// A place along a line: known when the text is written, or an expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum At {
    Known(u64),
    Text(String),
}

impl At {
    fn text(&self) -> String {
        match self {
            At::Known(at) => format!("{at}u"),
            At::Text(text) => text.clone(),
        }
    }
}

/// Whether something holds: known when the text is written, or an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
enum If {
    Always,
    Never,
    Text(String),
}

impl If {
    fn known(holds: bool) -> Self {
        if holds { If::Always } else { If::Never }
    }

    fn and(self, other: If) -> If {
        match (self, other) {
            (If::Never, _) | (_, If::Never) => If::Never,
            (If::Always, other) => other,
            (this, If::Always) => this,
            (If::Text(a), If::Text(b)) => If::Text(format!("({a}) && ({b})")),
        }
    }
}

/// A point of a line on its way: where it stands, what it is called and whether it is there at all.
#[derive(Clone, Debug)]
struct Point {
    at: At,
    value: String,
    there: If,
}

/// Where the points of a transform come from.
enum Source {
    Memory,
    Points(Vec<Point>),
    /// The first `n` of these times a chirp; zero beyond.
    Chirped {
        n: u64,
        sign: f64,
        inner: Box<Source>,
    },
}

/// Gives the value of a place of the line.
type Feed<'a, 'f> = dyn FnMut(&mut Writer<'a>, &str) -> String + 'f;
/// Gives the value of a slot, which holds that mode.
type SlotFeed<'a, 'f> = dyn FnMut(&mut Writer<'a>, &str, &str) -> String + 'f;
/// Takes a place or mode, the slot in which it may be kept, and its value.
type Sink<'a, 'f> = dyn FnMut(&mut Writer<'a>, &str, &str, &str) + 'f;

/// A butterfly of a loop: its first slot, and the digits above and below its own.
struct Butterfly {
    base: String,
    high: String,
    low: String,
}

pub(super) struct Writer<'a> {
    kernel: LineKernel,
    shape: &'a Shape,
    hooks: &'a Hooks,
    code: Code,
    table: Table,
    /// Whether workgroup memory may still be read by other lanes.
    dirty: bool,
    /// Modes that were loaded already.
    loaded: HashMap<At, String>,
}

impl<'a> Writer<'a> {
    pub fn new(kernel: LineKernel, shape: &'a Shape, hooks: &'a Hooks) -> Self {
        let (code, table) = (Code::new(kernel.precision), Table::default());
        Writer { kernel, shape, hooks, code, table, dirty: false, loaded: HashMap::new() }
    }

    /// The text and the table it reads.
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
        let modes = self.core(core, Source::Memory, -1.0);
        for result in 0..results {
            let mut points = Vec::new();
            for Point { at, value, there } in &modes {
                let value = self.hooked("on_mode", value, at, &format!(", {result}u"));
                points.push(Point { at: at.clone(), value, there: there.clone() });
            }
            let points = self.core(core, Source::Points(points), 1.0);
            self.store_result(points, &format!("{result}u"));
        }
    }

    // ---------------------------------------------------------------- the transform

    fn core(&mut self, core: &Core, source: Source, sign: f64) -> Vec<Point> {
        match core {
            Core::Direct(stages) => self.stages(stages, source, sign),
            Core::Bluestein { padded, stages } => {
                let (n, padded) = (self.kernel.core_points(), *padded);
                let chirped = Source::Chirped { n, sign, inner: Box::new(source) };
                let mut points = self.stages(stages, chirped, -1.0);
                for point in &mut points {
                    let factor = self.entry(Section::ChirpSpectrum { n, padded }, &point.at, sign);
                    point.value = self.code.value(format!("multiply({}, {factor})", point.value));
                }
                let points = self.stages(stages, Source::Points(points), 1.0);
                let mut kept = Vec::new();
                for Point { at, value, there } in points {
                    let inside = match &at {
                        At::Known(at) => If::known(*at < n),
                        At::Text(at) => If::Text(format!("{at} < {n}u")),
                    };
                    let there = there.and(inside);
                    if there == If::Never {
                        continue;
                    }
                    let within = self.clamped(&at, n);
                    let chirp = self.entry(Section::Chirp(n), &within, sign);
                    let value = self.code.value(format!("multiply({value}, {chirp})"));
                    // Hooks index arrays by it, stored or not.
                    kept.push(Point { at: within, value, there });
                }
                kept
            }
        }
    }

    /// `min(at, n - 1)`.
    fn clamped(&mut self, at: &At, n: u64) -> At {
        match at {
            At::Known(at) => At::Known((*at).min(n - 1)),
            At::Text(at) => At::Text(self.code.value(format!("min({at}, {}u)", n - 1))),
        }
    }

    fn stages(&mut self, stages: &Stages, source: Source, sign: f64) -> Vec<Point> {
        let Stages { lanes, radices } = stages;
        let n: u64 = radices.iter().product();
        if *lanes == 1 {
            let places: Vec<At> = (0..n).map(At::Known).collect();
            let values = self.gather(&source, &places);
            let results = self.code.transform(&values, sign);
            let point = |(at, value): (u64, String)| Point { at: At::Known(at), value, there: If::Always };
            return (0..n).zip(results).map(point).collect();
        }
        let mut source = source;
        let mut done = 1;
        for &radix in radices {
            let butterflies = n / radix;
            let per_lane = butterflies.div_ceil(*lanes);
            let j: Vec<String> = (0..per_lane).map(|b| self.lane_index(b * lanes, *lanes, butterflies)).collect();
            let mut places = Vec::new();
            for j in &j {
                for i in 0..radix {
                    places.push(At::Text(self.code.value(format!("{j} + {}u", i * butterflies))));
                }
            }
            let values = self.gather(&source, &places);
            let mut moving = Vec::new();
            for (b, j) in j.iter().enumerate() {
                let mut x = values[b * radix as usize..(b + 1) * radix as usize].to_vec();
                let mut low = "0u".to_string();
                if done > 1 {
                    low = self.code.value(format!("{j} % {done}u"));
                    for (i, x) in x.iter_mut().enumerate().skip(1) {
                        let index = At::Text(format!("{low} * {}u", i as u64 * (n / (done * radix))));
                        let root = self.entry(Section::Roots(n), &index, sign);
                        *x = self.code.value(format!("multiply({x}, {root})"));
                    }
                }
                let y = self.code.transform(&x, sign);
                let base = self.code.value(format!("({j} - {low}) * {radix}u + {low}"));
                let first = b as u64 * lanes;
                let there = if first + lanes > butterflies {
                    If::Text(format!("lane + {first}u < {butterflies}u"))
                } else {
                    If::Always
                };
                for (i, value) in y.into_iter().enumerate() {
                    let at = At::Text(self.code.value(format!("{base} + {}u", i as u64 * done)));
                    moving.push(Point { at, value, there: there.clone() });
                }
            }
            done *= radix;
            source = Source::Points(moving);
        }
        if let Source::Points(points) = source { points } else { Vec::new() }
    }

    /// A lane's index from `first` on, held below `end` where it could go beyond.
    fn lane_index(&mut self, first: u64, lanes: u64, end: u64) -> String {
        let index = if first == 0 { "lane".to_string() } else { format!("lane + {first}u") };
        if first + lanes > end {
            self.code.value(format!("min({index}, {}u)", end - 1))
        } else {
            self.code.value(index)
        }
    }

    /// The values of `source` at `places`.
    fn gather(&mut self, source: &Source, places: &[At]) -> Vec<String> {
        match source {
            Source::Memory => places.iter().map(|at| self.load(at)).collect(),
            Source::Points(points) => self.exchange(points, places),
            Source::Chirped { n, sign, inner } => {
                let n = *n;
                let mut within = Vec::new();
                for at in places {
                    within.push(self.clamped(at, n));
                }
                // Known places beyond the end are zero and need not be fetched.
                let beyond = |at: &At| matches!(at, At::Known(at) if *at >= n);
                let wanted: Vec<At> =
                    within.iter().zip(places).filter(|(_, at)| !beyond(at)).map(|(w, _)| w.clone()).collect();
                let mut values = self.gather(inner, &wanted).into_iter();
                let mut chirped = Vec::new();
                for (at, within) in places.iter().zip(&within) {
                    if beyond(at) {
                        chirped.push("Complex()".to_string());
                        continue;
                    }
                    let value = values.next().unwrap_or_default();
                    let chirp = self.entry(Section::Chirp(n), within, *sign);
                    let value = self.code.value(format!("multiply({value}, {chirp})"));
                    chirped.push(match at {
                        At::Known(_) => value,
                        At::Text(at) => self.code.value(format!("select(Complex(), {value}, {at} < {n}u)")),
                    });
                }
                chirped
            }
        }
    }

    /// An entry of a table for a transform of this sign: tables are made for forward ones, others take conjugates.
    fn entry(&mut self, section: Section, index: &At, sign: f64) -> String {
        if let (Section::Roots(n), At::Known(k)) = (section, index) {
            let [re, im] = root(*k, n);
            return format!("Complex({}, {})", self.code.literal(re), self.code.literal(-sign * im));
        }
        let start = self.table.at(section);
        let entry = self.code.value(format!("load_roots({start}u + {})", index.text()));
        if sign < 0.0 { entry } else { self.code.value(format!("Complex({entry}.x, -{entry}.y)")) }
    }

    /// Moves points between lanes; returns the values at `places`.
    fn exchange(&mut self, points: &[Point], places: &[At]) -> Vec<String> {
        if self.shape.lanes == 1 {
            let by_place: HashMap<&At, &String> = points.iter().map(|point| (&point.at, &point.value)).collect();
            return places
                .iter()
                .map(|at| by_place.get(at).map_or("Complex()".to_string(), |value| (*value).clone()))
                .collect();
        }
        let parts: &[&str] = if self.shape.together { &[""] } else { &[".x", ".y"] };
        let mut targets = Vec::new();
        for point in points {
            targets.push(self.code.value(format!("place(column, {})", point.at.text())));
        }
        let mut origins = Vec::new();
        for at in places {
            origins.push(self.code.value(format!("place(column, {})", at.text())));
        }
        let mut read = Vec::new();
        for part in parts {
            if std::mem::replace(&mut self.dirty, true) {
                self.code.line("workgroupBarrier();");
            }
            for (point, target) in points.iter().zip(&targets) {
                let write = format!("shared_line[{target}] = {}{part};", point.value);
                match &point.there {
                    If::Always => self.code.line(write),
                    If::Text(there) => self.code.line(format!("if {there} {{ {write} }}")),
                    If::Never => {}
                }
            }
            self.code.line("workgroupBarrier();");
            read.push(origins.iter().map(|at| self.code.value(format!("shared_line[{at}]"))).collect::<Vec<_>>());
        }
        match <[Vec<String>; 2]>::try_from(read) {
            Ok([x, y]) => x.iter().zip(&y).map(|(x, y)| self.code.value(format!("Complex({x}, {y})"))).collect(),
            Err(mut whole) => whole.pop().unwrap_or_default(),
        }
    }

    // ---------------------------------------------------------------- the transform in loops

    /// All of a line by one invocation, stage by stage in its own workgroup memory: no barrier.
    fn loops(&mut self, core: &Core) {
        let n = self.kernel.core_points();
        let split = self.kernel.packed() && self.kernel.output.view == View::Half;
        let load: &mut Feed<'a, '_> = &mut |w, at| w.load(&At::Text(at.into()));
        match self.kernel.work {
            Work::Filter(results) => {
                self.looped(core, load, -1.0, 0, &mut |w, _, slot, value| {
                    w.code.line(format!("{} = {value};", w.slot(0, slot)));
                });
                let buffer = self.kernel.buffers() - 1;
                self.code.line(format!("for (var result = 0u; result < {results}u; result++) {{"));
                self.filtered(core, buffer);
                self.code.line("}");
            }
            work => {
                let sign = if work == Work::Forward { -1.0 } else { 1.0 };
                if split {
                    self.looped(core, load, sign, 0, &mut |w, _, slot, value| {
                        w.code.line(format!("{} = {value};", w.slot(0, slot)));
                    });
                    self.code.line(format!("for (var k = 0u; k <= {n}u; k++) {{"));
                    let places = ["select(k, 0u, k == {n}u)", "select({n}u - k, 0u, k == 0u)"];
                    let mut both = Vec::new();
                    for place in places {
                        let at = self.code.value(place.replace("{n}", &n.to_string()));
                        let slot = self.slot_of_mode(core, &at);
                        both.push(self.code.value(self.slot(0, &slot)));
                    }
                    self.split_mode(&At::Text("k".into()), &both[0], &both[1], If::Always);
                    self.code.line("}");
                } else {
                    self.looped(core, load, sign, 0, &mut |w, at, _, value| {
                        w.store(vec![Point { at: At::Text(at.into()), value: value.into(), there: If::Always }]);
                    });
                }
            }
        }
    }

    /// The result `result` of a filter from the modes in buffer 0, by way of `buffer`.
    fn filtered(&mut self, core: &Core, buffer: u64) {
        let more = ", result";
        let store: &mut Sink<'a, '_> = &mut |w, at, _, value| {
            w.store_result(vec![Point { at: At::Text(at.into()), value: value.into(), there: If::Always }], "result");
        };
        match core {
            Core::Direct(stages) => {
                let feed: &mut SlotFeed<'a, '_> = &mut |w, slot, mode| {
                    let value = w.code.value(w.slot(0, slot));
                    w.hooked("on_mode", &value, &At::Text(mode.into()), more)
                };
                self.backwards(&stages.radices, feed, 1.0, buffer, store);
            }
            Core::Bluestein { .. } => {
                let n = self.kernel.core_points();
                let feed: &mut Feed<'a, '_> = &mut |w, at| {
                    let within = w.code.value(format!("min({at}, {}u)", n - 1));
                    let value = w.code.value(w.slot(0, &within));
                    w.hooked("on_mode", &value, &At::Text(within), more)
                };
                self.looped(core, feed, 1.0, buffer, store);
            }
        }
    }

    /// The transform of what `feed` gives for places of the line. `emit` gets the mode, the slot in which it may be kept
    /// and its value. Slots of `buffer` are overwritten.
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
                        let chirp = w.entry(Section::Chirp(n), &At::Text(within), sign);
                        w.code.value(format!("select(Complex(), multiply({value}, {chirp}), {at} < {n}u)"))
                    },
                    -1.0,
                    buffer,
                    &mut |w, mode, slot, value| {
                        let factor = w.entry(Section::ChirpSpectrum { n, padded }, &At::Text(mode.into()), sign);
                        w.code.line(format!("{} = multiply({value}, {factor});", w.slot(buffer, slot)));
                    },
                );
                self.backwards(
                    &stages.radices,
                    &mut |w, slot, _| w.code.value(w.slot(buffer, slot)),
                    1.0,
                    buffer,
                    &mut |w, at, slot, value| {
                        w.code.line(format!("if {at} < {n}u {{"));
                        let chirp = w.entry(Section::Chirp(n), &At::Text(at.into()), sign);
                        let value = w.code.value(format!("multiply({value}, {chirp})"));
                        emit(w, at, slot, &value);
                        w.code.line("}");
                    },
                );
            }
        }
    }

    /// The slot in which [`looped`](Self::looped) keeps a mode.
    fn slot_of_mode(&mut self, core: &Core, mode: &str) -> String {
        let Core::Direct(Stages { radices, .. }) = core else { return mode.to_string() };
        let n: u64 = radices.iter().product();
        let (mut done, mut terms) = (1, Vec::new());
        for &radix in radices {
            done *= radix;
            terms.push(format!("{mode} / {}u % {radix}u * {}u", done / radix, n / done));
        }
        self.code.value(terms.join(" + "))
    }

    /// Slot `at` of a buffer of this invocation.
    fn slot(&self, buffer: u64, at: &str) -> String {
        format!(
            "shared_line[place(column, {at}) + {}u]",
            buffer * self.shape.lines * self.shape.core.exchanged(self.kernel.core_points())
        )
    }

    /// Decimation in frequency, in place: natural order in, digits reversed out.
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
                x.push(if stage == 0 { feed(self, &at) } else { self.code.value(self.slot(buffer, &at)) });
            }
            let y = self.code.transform(&x, sign);
            if stage < last {
                let y = self.powers(y, &butterfly.low, n / (stride * radix), n, sign);
                for (k, value) in y.into_iter().enumerate() {
                    let at = self.code.value(format!("{} + {}u", butterfly.base, k as u64 * stride));
                    self.code.line(format!("{} = {value};", self.slot(buffer, &at)));
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

    /// Decimation in time, in place: digits reversed in, natural order out. The first stage asks `feed` for the value of a
    /// slot, which holds that mode.
    fn backwards(
        &mut self,
        radices: &[u64],
        feed: &mut SlotFeed<'a, '_>,
        sign: f64,
        buffer: u64,
        emit: &mut Sink<'a, '_>,
    ) {
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
                    self.code.value(self.slot(buffer, &at))
                });
                places.push(at);
            }
            if stage < last {
                x = self.powers(x, &butterfly.low, n / (stride * radix), n, sign);
            }
            let y = self.code.transform(&x, sign);
            for (at, value) in places.iter().zip(y) {
                if stage == 0 {
                    emit(self, at, at, &value);
                } else {
                    self.code.line(format!("{} = {value};", self.slot(buffer, at)));
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

    /// The part of a mode that the digits above the last one make.
    fn mode_of_high(&mut self, radices: &[u64], high: &str) -> String {
        let total: u64 = radices.iter().product();
        let (mut done, mut terms) = (1, Vec::new());
        for &radix in radices {
            terms.push(format!("{high} / {}u % {radix}u * {done}u", total / done / radix));
            done *= radix;
        }
        self.code.value(terms.join(" + "))
    }

    /// `x[k]` times the power `k low step` of the first root of order `n`. One root is read, the others are its powers:
    /// the fewest products that lead to each.
    fn powers(&mut self, x: Vec<String>, low: &str, step: u64, n: u64, sign: f64) -> Vec<String> {
        let first = self.entry(Section::Roots(n), &At::Text(format!("{low} * {step}u")), sign);
        let mut powers = vec!["Complex()".to_string(), first];
        for k in 2..x.len() {
            let (a, b) = (k / 2, k - k / 2);
            let power = self.code.value(format!("multiply({}, {})", powers[a], powers[b]));
            powers.push(power);
        }
        let turn =
            |(k, x): (usize, String)| if k == 0 { x } else { self.code.value(format!("multiply({x}, {})", powers[k])) };
        x.into_iter().enumerate().map(turn).collect()
    }

    // ---------------------------------------------------------------- loads

    /// The value of the point `at` of the core's transform.
    fn load(&mut self, at: &At) -> String {
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
    fn stored(&mut self, span: Span, position: &At, store: bool) -> (At, If) {
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
    fn fetch(&mut self, view: View, index: &At) -> String {
        let address = format!("input_at(line_in, {})", index.text());
        let name = if self.kernel.in_place { "load_output" } else { "load_input" };
        if self.kernel.numbers() && view != View::Real {
            let address = self.code.value(address);
            return self.code.value(format!("Complex({name}(2u * {address}), {name}(2u * {address} + 1u))"));
        }
        self.code.value(format!("{name}({address})"))
    }

    /// The value after the hooks on what is read.
    fn hooked_load(&mut self, value: &str, index: &At) -> String {
        let mut value = value.to_string();
        if self.hooks.load.is_some() {
            value = self.hooked("on_load", &value, index, "");
        }
        if self.hooks.load_mode.is_some() {
            value = self.hooked("on_mode", &value, index, &format!(", {}u", self.hooks.result));
        }
        value
    }

    fn hooked(&mut self, function: &str, value: &str, index: &At, more: &str) -> String {
        self.code.value(format!("{function}({value}, coordinates({}, c){more})", index.text()))
    }

    /// The position of a point on the whole axis.
    fn position(&mut self, at: &At, input: bool) -> At {
        let Some(Digit { input: read, output: written, .. }) = self.kernel.digit else { return at.clone() };
        let (at, [a, q, r]) = (at.text(), if input { read } else { written });
        let text = format!("{at} * {a}u + digit / {q}u + digit % {q}u * {r}u");
        At::Text(self.code.value(text))
    }

    // ---------------------------------------------------------------- stores

    fn store(&mut self, points: Vec<Point>) {
        self.store_result(points, "");
    }

    /// Stores what the last stage left.
    fn store_result(&mut self, points: Vec<Point>, result: &str) {
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
    fn split_mode(&mut self, k: &At, x: &str, y: &str, there: If) {
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
                let own = if n % 2 == 0 { format!("{k} == 0u || {k} == {}u", n / 2) } else { format!("{k} == 0u") };
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
    fn emit(&mut self, index: &At, value: &str, there: If, result: &str) {
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
            Order::Plain => format!("output_at(line_out, {}){result}", index.text()),
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

    // ---------------------------------------------------------------- moving

    fn copy(&mut self) {
        let stored = self.kernel.input.stored(self.kernel.n);
        let lanes = self.shape.lanes;
        self.code.line(format!("for (var at = lane; at < {stored}u; at += {lanes}u) {{"));
        let at = At::Text("at".into());
        let value = self.fetch(self.kernel.input.view, &at);
        let value = self.hooked_load(&value, &at);
        self.emit(&at, &value, If::Always, "");
        self.code.line("}");
    }

    // ---------------------------------------------------------------- the frame

    fn frame(&mut self) -> String {
        let LineKernel { axis, n, work, precision, points, .. } = self.kernel;
        let Shape { core, lanes, lines, together } = self.shape;
        let exchanged = if work == Work::Copy { 0 } else { core.exchanged(self.kernel.core_points()) };
        let (cell, cell_bytes) =
            if *together { ("Complex", 2 * precision.bytes()) } else { ("Real", precision.bytes()) };
        let buffers = if core.loops() { self.kernel.buffers() } else { 1 };
        let strided = self.kernel.strided();
        let split = match (strided, lanes) {
            (_, 1) => "let column = local;\n    let lane = 0u;".to_string(),
            (true, _) => format!("let column = local % {lines}u;\n    let lane = local / {lines}u;"),
            (false, _) => format!("let lane = local % {lanes}u;\n    let column = local / {lanes}u;"),
        };
        let shared = if exchanged == 0 {
            String::new()
        } else {
            let place = if strided || core.loops() {
                format!("at * {lines}u + column")
            } else {
                format!("column * {exchanged}u + at")
            };
            format!(
                "var<workgroup> shared_line: array<{cell}, {}>;\nfn place(column: u32, at: u32) -> u32 {{ return {place}; }}\n",
                lines * exchanged * buffers
            )
        };
        let digits = self.kernel.digit.map_or(1, |digit| digit.count);
        let counters = match (digits, axis) {
            (1, _) => "let c = counters(clamped);".to_string(),
            // The digit is the fastest, unless other axes lie between it and memory.
            (_, 2) => format!("let digit = clamped % {digits}u;\n    let c = counters(clamped / {digits}u);"),
            _ => format!(
                "let fast = clamped % params.line_sizes.x;\n    let digit = clamped / params.line_sizes.x % {digits}u;\n    \
                 let c = counters(clamped / params.line_sizes.x / {digits}u * params.line_sizes.x + fast);"
            ),
        };
        let hooks = if self.hooks.is_empty() {
            String::new()
        } else {
            let at =
                ["vec4<u32>(at, c.y, c.x, c.z)", "vec4<u32>(c.y, at, c.x, c.z)", "vec4<u32>(c.y, c.x, at, c.z)"][axis];
            format!(
                "fn coordinates(at: u32, c: vec3<u32>) -> vec4<u32> {{ return params.line_first + {at}; }}\n{}",
                self.hooks.text()
            )
        };
        let bytes = lines * exchanged * buffers * cell_bytes;
        let work = match work {
            Work::Copy => "moves".to_string(),
            work => format!("{work:?}, {points} points"),
        };
        format!(
            "// Lines of {n} points along axis {axis}: {work}.\n\
             // Workgroup: {lines} lines of {lanes} invocations; workgroup memory {bytes} bytes.\n\
             {}{shared}{}{}{}{}{hooks}\
             @compute @workgroup_size(GROUP) fn main(\n    @builtin(workgroup_id) id: vec3<u32>,\n    \
             @builtin(num_workgroups) count: vec3<u32>,\n    @builtin(local_invocation_index) local: u32,\n) {{\n    {split}\n    \
             let line = group_number(id, count) * {lines}u + column;\n    let present = line < params.line_sizes.w;\n    \
             let clamped = min(line, params.line_sizes.w - 1u);\n    {counters}\n    \
             let line_in = input_line(c);\n    let line_out = output_line(c);\n{}}}\n",
            precision.aliases(),
            common(precision.aliases().contains("f64")),
            address(
                "input",
                self.kernel.input,
                "params.line_blocks.xy",
                "params.line_starts.xy",
                "params.line_inverse.xy"
            ),
            address(
                "output",
                self.kernel.output,
                "params.line_blocks.zw",
                "params.line_starts.zw",
                "params.line_inverse.zw"
            ),
            if self.kernel.input.order == Order::Blocked || self.kernel.output.order == Order::Blocked {
                BLOCKED
            } else {
                ""
            },
            self.code.text
        )
    }
}

/// How a side's points are addressed: what is known of a line, and a point of it.
fn address(name: &str, side: Side, blocks: &str, starts: &str, inverse: &str) -> String {
    match side.order {
        Order::Plain => format!(
            "fn {name}_line(c: vec3<u32>) -> u32 {{ return params.line_{name}.x + params.line_{name}.y * c.x + params.line_{name}.z * c.y + params.line_{name}.w * c.z; }}\n\
             fn {name}_at(line: u32, at: u32) -> u32 {{ return line + at * params.line_{name}_more.x; }}\n"
        ),
        Order::Blocked => format!(
            "fn {name}_line(c: vec3<u32>) -> vec2<u32> {{\n    \
             return {starts} + vec2<u32>(params.line_{name}.y * c.x + params.line_{name}.z * c.y + params.line_{name}.w * c.z,\n        \
             params.line_{name}_more.y * c.x + params.line_{name}_more.z * c.y + params.line_{name}_more.w * c.z);\n}}\n\
             fn {name}_at(line: vec2<u32>, at: u32) -> u32 {{\n    \
             return blocked(line, at, params.line_{name}.x, params.line_{name}_more.x, {blocks}, {inverse});\n}}\n"
        ),
    }
}

/// The address of a point in an array whose axis is cut into parts, the larger ones first, as
/// [`split`](crate::layout::split) does. Processors divide integers slowly: the quotient is guessed and mended.
const BLOCKED: &str = "\
fn blocked(line: vec2<u32>, at: u32, lines: u32, width: u32, blocks: vec2<u32>, inverse: vec2<f32>) -> u32 {
    let larger = at < blocks.x;
    let size = select(blocks.y, blocks.y + 1u, larger);
    let first = select(blocks.x, 0u, larger);
    let offset = at - first;
    var part = u32(f32(offset) * select(inverse.y, inverse.x, larger));
    part -= select(0u, 1u, part * size > offset);
    part += select(0u, 1u, (part + 1u) * size <= offset);
    let start = first + part * size;
    return lines * start + (line.x * size + at - start) * width + line.y;
}
";

/// Helpers of every kernel.
fn common(double: bool) -> String {
    let (factor, interior) = if double {
        (
            "Real(params.line_scale.x) + Real(params.line_scale.y) + Real(params.line_scale.z)",
            "Real(params.line_scale.w)",
        )
    } else {
        ("params.line_scale.x", "params.line_scale.w")
    };
    format!(
        "fn multiply(a: Complex, b: Complex) -> Complex {{\n    return Complex(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);\n}}\n\
         fn counters(line: u32) -> vec3<u32> {{\n    let rest = line / params.line_sizes.x;\n    \
         return vec3<u32>(line % params.line_sizes.x, rest % params.line_sizes.y, rest / params.line_sizes.y);\n}}\n\
         fn factor() -> Real {{ return {factor}; }}\nfn interior() -> Real {{ return {interior}; }}\n"
    )
}
