//! Runs a route on a device and between ranks.
//!
//! Before an exchange, each piece is sent as soon as it is written, while the next piece is
//! computed. After it, each piece is transformed as soon as it has arrived, while the next one is
//! on its way.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;

use super::error::FftError;
use super::line::{Order, Work};
use super::options::PassCallbacks;
use super::pass::{DeviceTables, PassPosition, ReadyPass};
use super::plan::{Buffer, Placement, Route, Stage, StagePart, Transpose, buffers};
use super::reach::PassArrays;
use crate::comm::Subject;
use crate::exchange::{ExchangeError, GridComms, PendingExchange};
use crate::gpu::{Array, Callback, DeviceElement, DeviceError, MemoryKind, RawArray, Recorder};
use crate::grid::{Box3, FieldLayout};

/// A route with the kernels of its passes.
pub(super) struct ReadyRoute {
    pub route: Route,
    /// The passes of each stage.
    passes: Vec<Vec<ReadyPass>>,
    /// Bytes that a dispatch of a filter may reach before its results are computed apart.
    pub reach: u64,
}

impl ReadyRoute {
    /// Creates the kernels. The first pass gets the callbacks on elements that are loaded, the last
    /// pass those on elements that are stored, a filter pass its own.
    pub fn new(route: Route, callbacks: &PassCallbacks, tables: &mut DeviceTables) -> Result<Self, FftError> {
        let last = route.passes().count() - 1;
        let (mut number, mut passes) = (0, Vec::new());
        for stage in &route.stages {
            let mut ready = Vec::new();
            for pass in &stage.passes {
                let position = PassPosition { first: number == 0, last: number == last };
                let mut own = PassCallbacks { result: callbacks.result, ..PassCallbacks::default() };
                if position.first {
                    (own.load, own.load_mode) = (callbacks.load.clone(), callbacks.load_mode.clone());
                }
                if matches!(pass.kernel.work, Work::Filter(_)) {
                    own.filter = callbacks.filter.clone();
                }
                if position.last {
                    (own.store, own.store_mode) = (callbacks.store.clone(), callbacks.store_mode.clone());
                }
                ready.push(ReadyPass::new(pass, position, own, tables)?);
                number += 1;
            }
            passes.push(ready);
        }
        Ok(ReadyRoute { route, passes, reach: u64::MAX })
    }

    /// Returns the device memory of the passes' tables in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.passes.iter().flatten().map(ReadyPass::table_bytes).sum()
    }
}

/// An array of the caller with its layout. A spectrum (`None`) is in C order over this rank's part.
#[derive(Clone, Copy)]
pub(super) struct UserArray<'a> {
    pub array: &'a RawArray,
    pub layout: Option<&'a FieldLayout>,
}

/// An array of a call, for checks.
pub(super) struct Checked {
    pub call: &'static str,
    pub name: &'static str,
}

impl Checked {
    /// Refuses an array of fewer than `needed` elements.
    pub fn length(&self, len: u64, needed: u64) -> Result<(), DeviceError> {
        let why = format!("{} of {len} elements, {needed} are needed", self.name);
        if len < needed { Err(DeviceError::Misuse { what: self.call.into(), why }) } else { Ok(()) }
    }
}

/// One run of a route. `C` is the complex element.
pub(super) struct Run<'a, C> {
    pub ready: &'a ReadyRoute,
    pub input: UserArray<'a>,
    pub output: UserArray<'a>,
    /// The call that must be equal on all ranks.
    pub subject: Subject,
    /// The factor of the result.
    pub scale: f64,
    /// The factor of modes that stand for two.
    pub interior: f32,
    /// The number of the result and the count of results of each field, for an output of fields.
    pub result: [u64; 2],
    /// Replaces the callback on modes of the first pass: the same text with other arrays and
    /// parameters.
    pub operator: Option<&'a Callback>,
    pub element: PhantomData<C>,
}

impl<'a> UserArray<'a> {
    /// Returns a field with its layout.
    pub fn field<T: DeviceElement>(array: &'a Array<T>, layout: &'a FieldLayout) -> Self {
        UserArray { array: array.raw(), layout: Some(layout) }
    }

    /// Returns a spectrum.
    pub fn spectrum<T: DeviceElement>(array: &'a Array<T>) -> Self {
        UserArray { array: array.raw(), layout: None }
    }
}

impl<'a, C: DeviceElement> Run<'a, C> {
    /// Creates a run of the call `subject` with the factor `scale`, with one result and the
    /// callbacks of the route.
    pub fn new(subject: Subject, ready: &'a ReadyRoute, [input, output]: [UserArray<'a>; 2], scale: f64) -> Self {
        let (interior, result, operator, element) = (1.0, [0, 1], None, PhantomData);
        Run { ready, input, output, subject, scale, interior, result, operator, element }
    }

    /// Records all passes and exchanges.
    pub fn run(&self, recorder: &mut Recorder, comms: &mut GridComms) -> Result<(), ExchangeError> {
        let ReadyRoute { route, passes, .. } = self.ready;
        let place = placement(self.input, route.stages[0].before, [0, 1]);
        let mut input = StageInput::Whole(BufferView { array: self.input.array.clone(), place });
        // Ghost cells of the caller's field must not be overwritten.
        let scratch = if self.output.layout.is_none() { self.output.array.complex_len(C::ELEMENT) } else { 0 };
        let mut executor = Executor { run: self, recorder, comms, scratch: Vec::new() };
        for (i, buffer) in buffers(route, scratch).into_iter().enumerate() {
            if !passes[i].is_empty() {
                input = executor.stage(i, buffer, input)?;
            }
        }
        Ok(())
    }
}

/// An array that holds a box of this rank's part.
#[derive(Clone)]
struct BufferView<'a> {
    array: RawArray,
    place: Placement<'a>,
}

/// The input of a stage: an array, or the pieces of an exchange.
enum StageInput<'a> {
    Whole(BufferView<'a>),
    Pieces(Pieces<'a>),
}

/// Pieces of an exchange that were sent and not yet transformed.
#[derive(Default)]
struct Pieces<'a> {
    arriving: VecDeque<(Range<u64>, BufferView<'a>)>,
    pending: VecDeque<PendingExchange>,
    /// The axis along which pieces are cut.
    third: usize,
}

/// A part of a stage's input.
struct Tile<'a> {
    part: Box3,
    view: BufferView<'a>,
    /// Whether it is the last one.
    last: bool,
}

impl<'a> StageInput<'a> {
    /// Returns the next tile, once it has arrived.
    fn next(&mut self, recorder: &mut Recorder, whole: &Box3) -> Result<Option<Tile<'a>>, ExchangeError> {
        match self {
            StageInput::Whole(view) => {
                let tile = Tile { part: whole.clone(), view: view.clone(), last: true };
                *self = StageInput::Pieces(Pieces::default());
                Ok(Some(tile))
            }
            StageInput::Pieces(Pieces { arriving, pending, third }) => {
                let Some((range, view)) = arriving.pop_front() else { return Ok(None) };
                PendingExchange::finish_first(pending, recorder)?;
                Ok(Some(Tile { part: restricted(whole, *third, &range), view, last: arriving.is_empty() }))
            }
        }
    }
}

/// A run with its recorder and communicators.
struct Executor<'r, 'a, C> {
    run: &'r Run<'a, C>,
    recorder: &'r mut Recorder,
    comms: &'r mut GridComms,
    /// Scratch arrays between passes since the last exchange.
    scratch: Vec<Array<C>>,
}

impl<'a, C: DeviceElement> Executor<'_, 'a, C> {
    /// Runs the passes of stage `i` and begins the exchange after it. Returns the input of the next
    /// stage.
    fn stage(&mut self, i: usize, buffer: Buffer, mut input: StageInput<'a>) -> Result<StageInput<'a>, ExchangeError> {
        let ReadyRoute { route, passes, .. } = self.run.ready;
        let (stage, transpose) = (&route.stages[i], route.between.get(i).and_then(Option::as_ref));
        let outputs = self.outputs(i, buffer, &input)?;
        let whole: Box3 = stage.before.map(|n| 0..n);
        let parts: Vec<Box3> = match transpose {
            None => vec![whole.clone()],
            Some(t) => t.pieces.iter().map(|range| restricted(&whole, t.third, range)).collect(),
        };
        let mut pieces = Pieces { third: transpose.map_or(0, |t| t.third), ..Pieces::default() };
        match &passes[i][..] {
            [] => return Ok(input),
            [pass] => {
                while let Some(tile) = input.next(self.recorder, &whole)? {
                    for (piece, part) in parts.iter().enumerate() {
                        let part = intersection(&tile.part, part);
                        self.record((stage, pass), &part, &tile.view, &outputs[piece])?;
                        if let Some(transpose) = transpose.filter(|_| tile.last) {
                            self.send((stage, transpose), piece, &outputs[piece], &mut pieces)?;
                        }
                    }
                }
            }
            [first, middle @ .., last] => {
                let [mut from, mut other] = self.scratch(stage)?;
                while let Some(tile) = input.next(self.recorder, &whole)? {
                    self.record((stage, first), &tile.part, &tile.view, &from)?;
                }
                for pass in middle {
                    if pass.kernel.moves() {
                        self.record((stage, pass), &whole, &from, &other)?;
                        std::mem::swap(&mut from, &mut other);
                    } else {
                        self.record((stage, pass), &whole, &from, &from)?;
                    }
                }
                for (piece, part) in parts.iter().enumerate() {
                    self.record((stage, last), part, &from, &outputs[piece])?;
                    if let Some(transpose) = transpose {
                        self.send((stage, transpose), piece, &outputs[piece], &mut pieces)?;
                    }
                }
            }
        }
        // An exchange submits what was recorded before it, so the memory returns to the pool.
        if transpose.is_some() {
            self.scratch.clear();
        }
        Ok(match (transpose, outputs.into_iter().next()) {
            (None, Some(view)) => StageInput::Whole(view),
            _ => StageInput::Pieces(pieces),
        })
    }

    /// Returns the arrays that a stage writes: one, or one for each piece of the exchange after it.
    fn outputs(&self, i: usize, buffer: Buffer, input: &StageInput<'a>) -> Result<Vec<BufferView<'a>>, ExchangeError> {
        let Run { ready, input: source, output, result, .. } = self.run;
        let (stage, gpu) = (&ready.route.stages[i], self.recorder.gpu());
        let extent = stage.after;
        let whole = Placement::Array { origin: [0; 3], extent };
        let view = match (buffer, input) {
            (Buffer::Output, _) => {
                BufferView { array: output.array.clone(), place: placement(*output, extent, *result) }
            }
            (Buffer::OutputAsScratch, _) => BufferView { array: output.array.clone(), place: whole },
            (Buffer::InPlace, StageInput::Whole(view)) => view.clone(),
            (Buffer::Work | Buffer::InPlace, _) => {
                let own = Array::<C>::new(output.array.seen_as(C::ELEMENT));
                // In place, the caller's array is used if it is large enough for the elements
                // between exchanges.
                let fits = source.array.shares(output.array) && own.len() >= stage.written();
                let array = if fits { own } else { gpu.array::<C>("fft::work", stage.written())? };
                BufferView { array: array.raw().clone(), place: whole }
            }
            (Buffer::Pieces, _) => {
                let transpose = ready.route.between[i].iter();
                let pieces = transpose.flat_map(|t| t.pieces.iter().enumerate().map(move |(n, range)| (t, n, range)));
                let array = |(transpose, piece, range): (&Transpose, usize, &Range<u64>)| {
                    let array =
                        gpu.array_in::<C>("fft::outgoing", transpose.elements(piece)[0], MemoryKind::Outgoing)?;
                    Ok(BufferView { array: array.raw().clone(), place: covering(extent, transpose.third, range) })
                };
                return pieces.map(array).collect();
            }
        };
        Ok(vec![view])
    }

    /// Returns arrays for all positions of a stage's axis, between its passes: two, or the same one
    /// twice. Stages of one size share arrays.
    fn scratch(&mut self, stage: &Stage) -> Result<[BufferView<'a>; 2], DeviceError> {
        let (extent, len) = (stage.scratch(), stage.scratch_len());
        let mut arrays: Vec<Array<C>> = self.scratch.iter().filter(|array| array.len() == len).cloned().collect();
        while arrays.len() < stage.scratch_arrays() {
            let array = self.recorder.gpu().array::<C>("fft::scratch", len)?;
            self.scratch.push(array.clone());
            arrays.push(array);
        }
        let view = |array: &Array<C>| BufferView {
            array: array.raw().clone(),
            place: Placement::Array { origin: [0; 3], extent },
        };
        Ok([view(&arrays[0]), view(&arrays[arrays.len() - 1])])
    }

    /// Records a pass over cells of a stage. Arrays of several windows are processed in parts that
    /// reach one window, if possible.
    fn record(
        &mut self,
        (stage, pass): (&Stage, &ReadyPass),
        cells: &Box3,
        from: &BufferView<'_>,
        to: &BufferView<'_>,
    ) -> Result<(), DeviceError> {
        let scale = if pass.position.last { self.run.scale } else { 1.0 };
        let (kernel, interior) = (&pass.kernel, self.run.interior);
        let params = |part: &StagePart| stage.params(kernel, part, from.place, to.place).scaled(scale, interior);
        let in_place = from.array.shares(&to.array);
        let output =
            if in_place && pass.as_reals() { to.array.seen_as(kernel.precision.real()) } else { to.array.clone() };
        let arrays = PassArrays { input: (!in_place).then(|| from.array.clone()), output };
        let whole = StagePart { cells: cells.clone(), fields: 0..stage.fields[0] };
        arrays.parts(stage, whole, kernel, &params).iter().try_for_each(|part| {
            let (arrays, params) = arrays.narrowed(kernel, params(part));
            let mut record = |params| pass.record(self.recorder, &arrays, params, self.run.operator);
            match kernel.work {
                // In place, the first result replaces the input, so it comes last. Results that go
                // to blocks are computed together.
                Work::Filter(results)
                    if kernel.output.order == Order::Strided && arrays.span(kernel, &params) > self.run.ready.reach =>
                {
                    (0..results).rev().try_for_each(|result| record(params.of_results(result..result + 1)))
                }
                _ => record(params),
            }
        })
    }

    /// Sends a piece that was written to `view`, and continues the exchanges in progress.
    fn send(
        &mut self,
        (stage, transpose): (&Stage, &Transpose),
        piece: usize,
        view: &BufferView<'_>,
        pieces: &mut Pieces<'a>,
    ) -> Result<(), ExchangeError> {
        let (recorder, range) = (&mut *self.recorder, &transpose.pieces[piece]);
        let incoming =
            recorder.gpu().array_in::<C>("fft::incoming", transpose.elements(piece)[1], MemoryKind::Incoming)?;
        let outgoing = Array::<C>::new(view.array.clone());
        let [axis, from, to] = [transpose.grid_axis, transpose.from_axis, transpose.to_axis].map(|axis| axis as u64);
        let subject = self.run.subject.with(&[axis, from, to, piece as u64, transpose.pieces.len() as u64]);
        let (exchange, transfers) = (self.comms.along(transpose.grid_axis), transpose.transfers(piece));
        pieces.pending.push_back(exchange.start_for(subject, recorder, &transfers, &outgoing, &incoming)?);
        let mut extent = stage.after;
        extent[transpose.from_axis] = transpose.share();
        extent[transpose.to_axis] = transpose.whole();
        let place = covering(extent, transpose.third, range);
        pieces.arriving.push_back((range.clone(), BufferView { array: incoming.raw().clone(), place }));
        for pending in &mut pieces.pending {
            pending.progress(recorder)?;
        }
        Ok(())
    }
}

/// Returns the placement of a caller's array, as one of several results of each field.
fn placement(user: UserArray<'_>, extent: [u64; 3], [which, results]: [u64; 2]) -> Placement<'_> {
    let field = |layout| {
        let len = FieldLayout::len(layout);
        Placement::Field { layout, first: which * len, step: results * len }
    };
    user.layout.map_or(Placement::Array { origin: [0; 3], extent }, field)
}

/// Returns the placement of an array over `range` of the axis `third`.
fn covering<'a>(extent: [u64; 3], third: usize, range: &Range<u64>) -> Placement<'a> {
    let (mut origin, mut extent) = ([0; 3], extent);
    (origin[third], extent[third]) = (range.start, range.end - range.start);
    Placement::Array { origin, extent }
}

fn restricted(part: &Box3, axis: usize, range: &Range<u64>) -> Box3 {
    let mut part = part.clone();
    part[axis] = range.clone();
    part
}

fn intersection(a: &Box3, b: &Box3) -> Box3 {
    [0, 1, 2].map(|axis| {
        let start = a[axis].start.max(b[axis].start);
        start..a[axis].end.min(b[axis].end).max(start)
    })
}
