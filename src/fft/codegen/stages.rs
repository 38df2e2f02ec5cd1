//! The transform of a line that several invocations share: stages, with exchanges through workgroup
//! memory between them.

use std::collections::HashMap;

use super::{Condition, Index, Point, Source, Writer};
use crate::fft::core::{Core, RadixStages};
use crate::fft::line::{Exchange, Work};
use crate::fft::tables::{Section, root};

impl<'a> Writer<'a> {
    pub(super) fn core(&mut self, core: &Core, source: Source, sign: f64) -> Vec<Point> {
        match core {
            Core::Direct(stages) => self.stages(stages, source, sign),
            Core::Bluestein { padded, stages } => {
                let (n, padded) = (self.kernel.core_points(), *padded);
                let chirped = Source::Chirped { n, sign, inner: Box::new(source) };
                self.read_tables_again();
                let mut points = self.stages(stages, chirped, -1.0);
                for point in &mut points {
                    let factor = self.entry(Section::ChirpSpectrum { n, padded }, &point.at, sign);
                    point.value = self.code.value(format!("multiply({}, {factor})", point.value));
                }
                self.read_tables_again();
                let points = self.stages(stages, Source::Held(points), 1.0);
                let mut kept = Vec::new();
                for Point { at, value, valid } in points {
                    let valid = valid.and(Condition::below(&at, n));
                    if valid == Condition::Never {
                        continue;
                    }
                    let within = self.clamped(&at, n);
                    let chirp = self.entry(Section::Chirp(n), &within, sign);
                    let value = self.code.value(format!("multiply({value}, {chirp})"));
                    // Callbacks index arrays by this position, whether it is stored or not.
                    kept.push(Point { at: within, value, valid });
                }
                kept
            }
        }
    }

    /// Makes compilers read the tables again for the next transform of a convolution. The twiddles
    /// and chirps of all transforms together need more registers than there are.
    fn read_tables_again(&mut self) {
        let which = self.convolved;
        self.convolved += 1;
        self.zero = match (which, self.kernel.work) {
            (0, _) => String::new(),
            // In the loop over the results of a filter.
            (2.., Work::Filter(2..)) => self.code.value(format!("result * unknown_zero({which}u)")),
            _ => self.code.value(format!("unknown_zero({which}u)")),
        };
    }

    /// Returns `min(at, n - 1)`.
    pub(super) fn clamped(&mut self, at: &Index, n: u64) -> Index {
        self.index(at, |at| at.min(n - 1), |at| format!("min({at}, {}u)", n - 1))
    }

    fn stages(&mut self, stages: &RadixStages, source: Source, sign: f64) -> Vec<Point> {
        let RadixStages { lanes, radices } = stages;
        let n: u64 = radices.iter().product();
        if *lanes == 1 {
            let places: Vec<Index> = (0..n).map(Index::Known).collect();
            let values = self.gather(&source, &places);
            let results = self.code.transform(&values, sign);
            let point = |(at, value): (u64, String)| Point { at: Index::Known(at), value, valid: Condition::Always };
            return (0..n).zip(results).map(point).collect();
        }
        let mut radices = radices.clone();
        if self.turned && stages.turns() {
            radices.reverse();
        }
        self.turned = !self.turned;
        let mut source = source;
        let mut done = 1;
        for radix in radices {
            let butterflies = n / radix;
            let per_lane = butterflies.div_ceil(*lanes);
            let j: Vec<String> = (0..per_lane).map(|b| self.lane_index(b * lanes, *lanes, butterflies)).collect();
            let mut places = Vec::new();
            for j in &j {
                for i in 0..radix {
                    places.push(self.sum(j, 0..butterflies, i * butterflies));
                }
            }
            let values = self.gather(&source, &places);
            let mut moving = Vec::new();
            for (b, j) in j.iter().enumerate() {
                let mut x = values[b * radix as usize..(b + 1) * radix as usize].to_vec();
                let mut low = "0u".to_string();
                if done > 1 {
                    low = self.code.value(format!("{j} % {done}u"));
                    x = self.powers(x, &low, n / (done * radix), n, sign);
                }
                let y = self.code.transform(&x, sign);
                let base = self.code.value(format!("({j} - {low}) * {radix}u + {low}"));
                let first = b as u64 * lanes;
                let valid = if first + lanes > butterflies {
                    Condition::Text(format!("lane + {first}u < {butterflies}u"))
                } else {
                    Condition::Always
                };
                for (i, value) in y.into_iter().enumerate() {
                    let bases = (0..butterflies).map(|j| (j - j % done) * radix + j % done);
                    let at = self.sum(&base, bases, i as u64 * done);
                    moving.push(Point { at, value, valid: valid.clone() });
                }
            }
            done *= radix;
            source = Source::Points(moving);
        }
        if let Source::Points(points) = source { points } else { Vec::new() }
    }

    /// Returns the index `base + step`; `base` is one of `bases`.
    fn sum(&mut self, base: &str, bases: impl Iterator<Item = u64>, step: u64) -> Index {
        let at = self.code.value(format!("{base} + {step}u"));
        let cells = self.shape.cells;
        if cells.padded && cells.steady(bases, step) {
            self.sums.insert(at.clone(), (base.to_string(), cells.offset(step)));
        }
        Index::Text(at)
    }

    /// Returns the cells in workgroup memory of indices of the line, one expression each. In padded
    /// memory, indices at known distances share one computed cell, so that the distances are in the
    /// instructions.
    fn places<'i>(&mut self, indices: impl Iterator<Item = &'i Index>) -> Vec<String> {
        let mut bases: HashMap<String, String> = HashMap::new();
        let mut places = Vec::new();
        for at in indices {
            let at = at.text();
            if let Some(cells) = self.cells {
                places.push(self.code.value(cells.exchanged(&at)));
                continue;
            }
            let Some((base, offset)) = self.sums.get(&at).cloned() else {
                places.push(self.code.value(format!("place(column, {at})")));
                continue;
            };
            let code = &mut self.code;
            let place = bases.entry(base).or_insert_with_key(|base| code.value(format!("place(column, {base})")));
            places.push(if offset == 0 { place.clone() } else { format!("{place} + {offset}u") });
        }
        places
    }

    /// Returns the index `first + lane`, clamped below `end` if it could be beyond.
    pub(super) fn lane_index(&mut self, first: u64, lanes: u64, end: u64) -> String {
        let index = if first == 0 { "lane".to_string() } else { format!("lane + {first}u") };
        if first + lanes > end {
            self.code.value(format!("min({index}, {}u)", end - 1))
        } else {
            self.code.value(index)
        }
    }

    /// Returns the values of `source` at `places`.
    fn gather(&mut self, source: &Source, places: &[Index]) -> Vec<String> {
        match source {
            Source::Memory => places.iter().map(|at| self.load(at)).collect(),
            Source::Points(points) => self.exchange(points, places),
            Source::Held(points) if self.shape.core.stages().turns() => {
                points.iter().map(|point| point.value.clone()).collect()
            }
            Source::Held(points) => self.exchange(points, places),
            Source::Chirped { n, sign, inner } => {
                let n = *n;
                let mut within = Vec::new();
                for at in places {
                    within.push(self.clamped(at, n));
                }
                // Known positions beyond the end are zero and need not be fetched.
                let beyond = |at: &Index| matches!(at, Index::Known(at) if *at >= n);
                let wanted: Vec<Index> =
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
                        Index::Known(_) => value,
                        Index::Text(at) => self.code.value(format!("select(Complex(), {value}, {at} < {n}u)")),
                    });
                }
                chirped
            }
        }
    }

    /// Returns an entry of a table for a transform of this sign. Tables are those of forward
    /// transforms; backward ones take conjugates.
    pub(super) fn entry(&mut self, section: Section, index: &Index, sign: f64) -> String {
        if let (Section::Roots(n), Index::Known(k)) = (section, index) {
            let [re, im] = root(*k, n);
            return format!("Complex({}, {})", self.code.literal(re), self.code.literal(-sign * im));
        }
        let start = self.table.at(section);
        let start = if self.zero.is_empty() { format!("{start}u") } else { format!("{start}u + {}", self.zero) };
        let entry = self.code.value(format!("load_roots({start} + {})", index.text()));
        if sign < 0.0 { entry } else { self.code.value(format!("Complex({entry}.x, -{entry}.y)")) }
    }

    /// Exchanges points between the invocations of a line through workgroup memory; returns the
    /// values at `places`.
    pub(super) fn exchange(&mut self, points: &[Point], places: &[Index]) -> Vec<String> {
        if self.shape.lanes == 1 {
            let by_place: HashMap<&Index, &String> = points.iter().map(|point| (&point.at, &point.value)).collect();
            return places
                .iter()
                .map(|at| by_place.get(at).map_or("Complex()".to_string(), |value| (*value).clone()))
                .collect();
        }
        let parts: &[&str] = if self.shape.exchange == Exchange::Together { &[""] } else { &[".x", ".y"] };
        let targets = self.places(points.iter().map(|point| &point.at));
        let origins = self.places(places.iter());
        let mut read = Vec::new();
        for part in parts {
            if self.shape.exchange == Exchange::Halves {
                read.push(self.exchange_halves((points, &targets), part, &origins));
                continue;
            }
            // In a whole transform an idle invocation has the cells of another one.
            self.write_cells(points, &targets, part, self.cells.map(|_| "present"));
            read.push(origins.iter().map(|at| self.code.value(format!("shared_line[{at}]"))).collect::<Vec<_>>());
        }
        match <[Vec<String>; 2]>::try_from(read) {
            Ok([x, y]) => x.iter().zip(&y).map(|(x, y)| self.code.value(format!("Complex({x}, {y})"))).collect(),
            Err(mut whole) => whole.pop().unwrap_or_default(),
        }
    }

    /// Writes a part of points into workgroup memory: of all lines, or of lines for which a
    /// condition holds.
    fn write_cells(&mut self, points: &[Point], targets: &[String], part: &str, which: Option<&str>) {
        if std::mem::replace(&mut self.dirty, true) {
            self.code.line("workgroupBarrier();");
        }
        if let Some(which) = which {
            self.code.line(format!("if {which} {{"));
        }
        for (point, target) in points.iter().zip(targets) {
            let write = format!("shared_line[{target}] = {}{part};", point.value);
            match &point.valid {
                Condition::Always => self.code.line(write),
                Condition::Text(valid) => self.code.line(format!("if {valid} {{ {write} }}")),
                Condition::Never => {}
            }
        }
        if which.is_some() {
            self.code.line("}");
        }
        self.code.line("workgroupBarrier();");
    }

    /// Exchanges a part of points: first those of the first half of the lines, then the others.
    /// Returns the values at `origins`.
    fn exchange_halves(
        &mut self,
        (points, targets): (&[Point], &[String]),
        part: &str,
        origins: &[String],
    ) -> Vec<String> {
        let values: Vec<String> = origins.iter().map(|_| self.code.variable("Real")).collect();
        let at_once = self.shape.exchange.lines_at_once(self.shape.lines);
        for half in [format!("column < {at_once}u"), format!("column >= {at_once}u")] {
            self.write_cells(points, targets, part, Some(&half));
            self.code.line(format!("if {half} {{"));
            for (value, at) in values.iter().zip(origins) {
                self.code.line(format!("{value} = shared_line[{at}];"));
            }
            self.code.line("}");
        }
        values
    }
}
