//! Carrying out a route on a device and between ranks.
//!
//! ```text
//! stage --> pieces: as soon as one is written it travels, while the next is written
//! stage <-- pieces: as soon as one has arrived it is transformed, while the next travels
//! ```

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;

use super::callbacks::PassCallbacks;
use super::core::Limits;
use super::error::FftError;
use super::line::Work;
use super::pass::{ReadyPass, Tables};
use super::plan::{Placement, Route, Stage, Transpose};
use crate::exchange::{ExchangeError, GridComms, PendingExchange};
use crate::gpu::{Array, Callback, DeviceElement, MemoryKind, RawArray, Recorder};
use crate::grid::{Box3, FieldLayout};

/// A route with its kernels.
pub(super) struct ReadyRoute {
    pub route: Route,
    stages: Vec<Vec<ReadyPass>>,
    targets: Vec<Target>,
}

/// Where a stage writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The user's output.
    Output,
    /// An array of its own.
    Work,
    /// The pieces of an exchange.
    Pieces,
}

impl ReadyRoute {
    /// Makes the kernels with the callbacks of the first pass, of filters, and of the last pass.
    pub fn new(route: Route, callbacks: &PassCallbacks, limits: Limits, tables: &mut Tables) -> Result<Self, FftError> {
        let last = route.passes().count() - 1;
        let (mut number, mut stages) = (0, Vec::new());
        for stage in &route.stages {
            let mut ready = Vec::new();
            for pass in &stage.passes {
                let mut own = PassCallbacks { result: callbacks.result, ..PassCallbacks::default() };
                if number == 0 {
                    (own.load, own.load_mode) = (callbacks.load.clone(), callbacks.load_mode.clone());
                }
                if matches!(pass.kernel.work, Work::Filter(_)) {
                    own.filter = callbacks.filter.clone();
                }
                if number == last {
                    (own.store, own.store_mode) = (callbacks.store.clone(), callbacks.store_mode.clone());
                }
                ready.push(ReadyPass::new(pass, own, limits, tables)?);
                number += 1;
            }
            stages.push(ready);
        }
        let targets = targets(&route);
        Ok(ReadyRoute { route, stages, targets })
    }

    /// Whether stage `i` may work in the output, which has so many complex elements.
    fn may_reuse_output(&self, i: usize, elements: u64) -> bool {
        may_reuse_output(&self.route, &self.targets, i, elements)
    }

    /// Whether stage `i` may go on in the working array that it reads.
    fn works_in_place(&self, i: usize) -> bool {
        works_in_place(&self.route, &self.targets, i)
    }
}

/// Whether a stage may read and write the same array.
fn within_one_array(stage: &Stage) -> bool {
    let moves =
        |pass: &super::axis::AxisPass| pass.kernel.input != pass.kernel.output || pass.kernel.four_step.is_some();
    // Results of one field would be written over the next field.
    let apart = stage.fields[0] == stage.fields[1] || stage.fields[0] == 1;
    let still = stage.ranks == [1, 1] && stage.before == stage.after && !stage.passes.iter().any(moves);
    stage.passes.len() < 2 && apart && still
}

/// As few arrays as possible: what the next stage can work within is written to where that one writes.
pub(super) fn targets(route: &Route) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for i in (0..route.stages.len()).rev() {
        let next = targets.last().copied();
        targets.push(match (route.between.get(i), next) {
            (None, _) | (_, None) => Target::Output,
            (Some(Some(_)), _) => Target::Pieces,
            (Some(None), Some(Target::Output)) if within_one_array(&route.stages[i + 1]) => Target::Output,
            _ => Target::Work,
        });
    }
    targets.reverse();
    targets
}

/// Whether stage `i` reads a working array and may go on in it.
pub(super) fn works_in_place(route: &Route, targets: &[Target], i: usize) -> bool {
    let stage = &route.stages[i];
    let works = i > 0 && targets[i - 1] == Target::Work && !route.stages[i - 1].passes.is_empty();
    works && stage.fields[0] == stage.fields[1] && within_one_array(stage)
}

/// Whether the working array of stage `i` can be the output of so many complex elements: what it holds has left before the
/// output is written.
pub(super) fn may_reuse_output(route: &Route, targets: &[Target], i: usize, elements: u64) -> bool {
    let stage = &route.stages[i];
    targets.get(i + 1) == Some(&Target::Pieces) && stage.after.iter().product::<u64>() * stage.fields[1] <= elements
}

/// A user's array and how the field lies in it; a spectrum is C order over this rank's part.
#[derive(Clone, Copy)]
pub(super) struct End<'a> {
    pub array: &'a RawArray,
    pub layout: Option<&'a FieldLayout>,
}

/// An array that holds a box of this rank's part.
#[derive(Clone)]
struct BufferView<'a> {
    array: RawArray,
    place: Placement<'a>,
}

/// What a stage reads: an array, or pieces that arrive one after the other.
enum Source<'a> {
    Whole(BufferView<'a>),
    Pieces(VecDeque<(Range<u64>, BufferView<'a>)>, VecDeque<PendingExchange>, usize),
}

/// One run of a route; `C` is the complex element.
pub(super) struct Run<'a, C> {
    pub ready: &'a ReadyRoute,
    pub input: End<'a>,
    pub output: End<'a>,
    /// The factor of the result.
    pub scale: f64,
    /// The factor of modes that stand for two.
    pub interior: f32,
    /// Which of how many results of each field the output is, where it is a field.
    pub result: [u64; 2],
    /// The callback of the first pass on modes, with other arrays and parameters than it was made with.
    pub operator: Option<&'a Callback>,
    pub element: PhantomData<C>,
}

impl<'a, C: DeviceElement> Run<'a, C> {
    /// Records and exchanges everything.
    pub fn run(&self, recorder: &mut Recorder, lines: &mut GridComms) -> Result<(), ExchangeError> {
        let route = &self.ready.route;
        let place = placement(self.input, route.stages[0].before, [0, 1]);
        let mut source = Source::Whole(BufferView { array: self.input.array.clone(), place });
        let mut number = 0;
        for (i, stage) in route.stages.iter().enumerate() {
            if !stage.passes.is_empty() {
                source = self.stage(recorder, lines, i, number, source)?;
                number += stage.passes.len();
            }
        }
        Ok(())
    }

    /// Elements of the output where it is a spectrum; a field may have ghosts, which are not ours.
    fn spectrum_len(&self) -> u64 {
        if self.output.layout.is_none() { self.output.array.complex_len(C::ELEMENT) } else { 0 }
    }

    /// Where a stage writes, a spot for each piece of the exchange after it.
    fn spots(&self, recorder: &Recorder, i: usize, source: &Source<'a>) -> Result<Vec<BufferView<'a>>, ExchangeError> {
        let stage = &self.ready.route.stages[i];
        let (gpu, extent) = (recorder.gpu(), stage.after);
        let whole = Placement::Array { origin: [0; 3], extent };
        let spot = match self.ready.targets[i] {
            Target::Output => {
                BufferView { array: self.output.array.clone(), place: placement(self.output, extent, self.result) }
            }
            // One working array is enough for all stages that can work within it.
            Target::Work if self.ready.works_in_place(i) => match source {
                Source::Whole(spot) => spot.clone(),
                Source::Pieces(..) => return Ok(Vec::new()),
            },
            // The output is not needed before the last exchange.
            Target::Work if self.ready.may_reuse_output(i, self.spectrum_len()) => {
                BufferView { array: self.output.array.clone(), place: whole }
            }
            Target::Work => {
                let len = extent.iter().product::<u64>() * stage.fields[1];
                let own = Array::<C>::new(self.output.array.seen_as(C::ELEMENT));
                // Between exchanges a rank may have more than before and after.
                let fits = self.input.array.shares(self.output.array) && own.len() >= len;
                let array = if fits { own } else { gpu.array::<C>("fft::work", len)? };
                BufferView { array: array.raw().clone(), place: whole }
            }
            Target::Pieces => {
                let mut spots = Vec::new();
                let transpose = self.ready.route.between[i].as_ref();
                for (piece, range) in transpose.iter().flat_map(|t| t.pieces.iter().enumerate()) {
                    let len = transpose.map_or(0, |t| t.elements(piece)[0]);
                    let array = gpu.array_in::<C>("fft::outgoing", len, MemoryKind::Outgoing)?;
                    let place = covering(extent, transpose.map_or(0, |t| t.third), range);
                    spots.push(BufferView { array: array.raw().clone(), place });
                }
                return Ok(spots);
            }
        };
        Ok(vec![spot])
    }

    fn stage(
        &self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        i: usize,
        number: usize,
        mut source: Source<'a>,
    ) -> Result<Source<'a>, ExchangeError> {
        let (stage, passes) = (&self.ready.route.stages[i], &self.ready.stages[i]);
        let transpose = self.ready.route.between.get(i).and_then(Option::as_ref);
        let spots = self.spots(recorder, i, &source)?;
        let whole: Box3 = stage.before.map(|n| 0..n);
        let out_tiles: Vec<Box3> = match transpose {
            None => vec![whole.clone()],
            Some(t) => t.pieces.iter().map(|range| restricted(&whole, t.third, range)).collect(),
        };
        let mut travelling = Travelling::default();
        let (first, last) = (&passes[0], passes.len() - 1);
        let mut scratch = if last == 0 { None } else { Some(self.scratch(recorder, stage)?) };
        while let Some((tile, spot, more)) = source.next(recorder, &whole)? {
            if let Some(scratch) = &scratch {
                self.record(recorder, number, (stage, first), &tile, &spot, scratch)?;
                continue;
            }
            for (piece, out) in out_tiles.iter().enumerate() {
                self.record(recorder, number, (stage, first), &intersection(&tile, out), &spot, &spots[piece])?;
                if let (Some(transpose), false) = (transpose, more) {
                    travelling.send::<C>(recorder, lines, (transpose, stage), piece, &spots[piece])?;
                }
            }
        }
        if let Some(mut from) = scratch.take() {
            for (k, pass) in passes.iter().enumerate().take(last).skip(1) {
                // Passes that move points need another array.
                let moves = pass.kernel.four_step.is_some_and(|four_step| four_step.input != four_step.output);
                let to = if moves { self.scratch(recorder, stage)? } else { from.clone() };
                self.record(recorder, number + k, (stage, pass), &whole, &from, &to)?;
                from = to;
            }
            for (piece, out) in out_tiles.iter().enumerate() {
                self.record(recorder, number + last, (stage, &passes[last]), out, &from, &spots[piece])?;
                if let Some(transpose) = transpose {
                    travelling.send::<C>(recorder, lines, (transpose, stage), piece, &spots[piece])?;
                }
            }
        }
        Ok(match (transpose, spots.into_iter().next()) {
            (Some(transpose), _) => Source::Pieces(travelling.arriving, travelling.transits, transpose.third),
            (None, Some(spot)) => Source::Whole(spot),
            (None, None) => source,
        })
    }

    fn scratch(&self, recorder: &Recorder, stage: &Stage) -> Result<BufferView<'a>, ExchangeError> {
        let mut extent = stage.before;
        extent[stage.axis] = stage.positions();
        let array = recorder.gpu().array::<C>("fft::scratch", extent.iter().product::<u64>() * stage.fields[0])?;
        Ok(BufferView { array: array.raw().clone(), place: Placement::Array { origin: [0; 3], extent } })
    }

    fn record(
        &self,
        recorder: &mut Recorder,
        number: usize,
        (stage, pass): (&Stage, &ReadyPass),
        tile: &Box3,
        from: &BufferView<'_>,
        to: &BufferView<'_>,
    ) -> Result<(), ExchangeError> {
        let last = number + 1 == self.ready.route.passes().count();
        let scale = if last { self.scale } else { 1.0 };
        let params = stage.params(&pass.kernel, tile, from.place, to.place).scaled(scale, self.interior);
        let one = from.array.shares(&to.array);
        let operator = self.operator.filter(|_| number == 0);
        if one && pass.as_reals() {
            pass.record(recorder, None, &to.array.seen_as(pass.kernel.precision.real()), params, operator)?;
        } else {
            pass.record(recorder, (!one).then_some(&from.array), &to.array, params, operator)?;
        }
        Ok(())
    }
}

impl<'a> Source<'a> {
    /// The next tile that can be read, where it lies, and whether there are more.
    fn next(
        &mut self,
        recorder: &mut Recorder,
        whole: &Box3,
    ) -> Result<Option<(Box3, BufferView<'a>, bool)>, ExchangeError> {
        match self {
            Source::Whole(spot) => {
                let spot = spot.clone();
                *self = Source::Pieces(VecDeque::new(), VecDeque::new(), 0);
                Ok(Some((whole.clone(), spot, false)))
            }
            Source::Pieces(arriving, transits, third) => {
                let Some((range, spot)) = arriving.pop_front() else { return Ok(None) };
                PendingExchange::finish_first(transits, recorder)?;
                Ok(Some((restricted(whole, *third, &range), spot, !arriving.is_empty())))
            }
        }
    }
}

/// Pieces that were sent and have not arrived.
#[derive(Default)]
struct Travelling<'a> {
    arriving: VecDeque<(Range<u64>, BufferView<'a>)>,
    transits: VecDeque<PendingExchange>,
}

impl Travelling<'_> {
    fn send<C: DeviceElement>(
        &mut self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        (transpose, stage): (&Transpose, &Stage),
        piece: usize,
        spot: &BufferView<'_>,
    ) -> Result<(), ExchangeError> {
        let len = transpose.elements(piece)[1];
        let incoming = recorder.gpu().array_in::<C>("fft::incoming", len, MemoryKind::Incoming)?;
        let outgoing = Array::<C>::new(spot.array.clone());
        let transfers = transpose.transfers(piece);
        let pending = lines.along(transpose.grid_axis).start(recorder, &transfers, &outgoing, &incoming)?;
        self.transits.push_back(pending);
        // After the exchange the axis that went is cut and the one that came is whole.
        let mut extent = stage.after;
        extent[transpose.from_axis] = transpose.share();
        extent[transpose.to_axis] = transpose.whole();
        let place = covering(extent, transpose.third, &transpose.pieces[piece]);
        let spot = BufferView { array: incoming.raw().clone(), place };
        self.arriving.push_back((transpose.pieces[piece].clone(), spot));
        for pending in &mut self.transits {
            pending.progress(recorder)?;
        }
        Ok(())
    }
}

/// Where a user's array lies, as one of several results of each field.
fn placement(end: End<'_>, extent: [u64; 3], [which, results]: [u64; 2]) -> Placement<'_> {
    let field = |layout| {
        let len = FieldLayout::len(layout);
        Placement::Field { layout, first: which * len, step: results * len }
    };
    end.layout.map_or(Placement::Array { origin: [0; 3], extent }, field)
}

/// An array over `range` of the axis `third`.
fn covering<'a>(extent: [u64; 3], third: usize, range: &Range<u64>) -> Placement<'a> {
    let (mut origin, mut extent) = ([0; 3], extent);
    (origin[third], extent[third]) = (range.start, range.end - range.start);
    Placement::Array { origin, extent }
}

fn restricted(tile: &Box3, axis: usize, range: &Range<u64>) -> Box3 {
    let mut tile = tile.clone();
    tile[axis] = range.clone();
    tile
}

fn intersection(a: &Box3, b: &Box3) -> Box3 {
    [0, 1, 2].map(|axis| {
        let start = a[axis].start.max(b[axis].start);
        start..a[axis].end.min(b[axis].end).max(start)
    })
}
