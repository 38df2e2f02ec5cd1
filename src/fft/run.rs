//! Runs a route on a device and between ranks.
//!
//! Before an exchange, each piece is sent as soon as it is written, while the next piece is
//! computed. After it, each piece is transformed as soon as it has arrived, while the next one is
//! on its way.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Range;

use super::error::FftError;
use super::line::{LineFormat, Order, Work};
use super::options::{PassCallbacks, PassPosition};
use super::pass::{DeviceTables, ReadyPass, ReadyWhole, WholeArrays};
use super::plan::{Buffer, Placement, Route, Stage, StagePart, StageStep, Transpose, buffers};
use super::reach::{PassArrays, PassInput};
use crate::comm::Subject;
use crate::exchange::{ExchangeError, GridComms, PendingExchange};
use crate::gpu::{Array, Callback, DeviceElement, DeviceError, MemoryKind, RawArray, Recorder};
use crate::grid::FieldLayout;

/// A route with the kernels of its passes.
pub(super) struct ReadyRoute {
    pub route: Route,
    /// The passes of each stage.
    pub(super) passes: Vec<Vec<ReadyPass>>,
    /// The route in one dispatch, if it has such a form.
    whole: Option<ReadyWhole>,
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
                let own = callbacks.of_pass(position, pass.kernel.work);
                ready.push(ReadyPass::new((stage, pass), position, own, tables)?);
                number += 1;
            }
            passes.push(ready);
        }
        let whole = route.whole.as_ref();
        let whole = whole.map(|whole| ReadyWhole::new(whole, &route, callbacks, tables)).transpose()?;
        Ok(ReadyRoute { route, passes, whole, reach: u64::MAX })
    }

    /// Returns the device memory of the passes' tables in bytes.
    pub fn table_bytes(&self) -> u64 {
        let whole = self.whole.as_ref().map_or(0, ReadyWhole::table_bytes);
        whole + self.passes.iter().flatten().map(ReadyPass::table_bytes).sum::<u64>()
    }
}

/// An array of the caller with its layout. A spectrum (`None`) is in C order over this rank's part.
#[derive(Clone, Copy)]
pub(super) struct UserArray<'a> {
    pub array: &'a RawArray,
    pub layout: Option<&'a FieldLayout>,
}

/// The field or the spectrum that a run reads.
pub(super) enum RunInput<'a> {
    Array(UserArray<'a>),
    /// See [`PassInput::Source`]. It is dropped when its cells are read, and the work until then is
    /// submitted, so that its arrays are free for the passes that follow.
    Source(Callback),
}

/// One run of a route. `C` is the complex element.
pub(super) struct Run<'a, C> {
    pub ready: &'a ReadyRoute,
    pub output: UserArray<'a>,
    /// The call that must be equal on all ranks.
    pub subject: Subject,
    /// The factor of the result.
    pub scale: f64,
    /// The factor of modes that stand for two.
    pub interior: f32,
    /// The number of the result and the count of results of each field, for an output of fields.
    pub result: [u64; 2],
    /// The number of the cells of vectors that a route of one field writes.
    pub number: u32,
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
    pub fn new(subject: Subject, ready: &'a ReadyRoute, output: UserArray<'a>, scale: f64) -> Self {
        let (interior, result, number, operator, element) = (1.0, [0, 1], 0, None, PhantomData);
        Run { ready, output, subject, scale, interior, result, number, operator, element }
    }

    /// Records the route in one dispatch, and returns `true`, if it has such a form and its arrays
    /// fit.
    fn whole(&self, recorder: &mut Recorder, input: UserArray<'_>) -> Result<bool, DeviceError> {
        let route = &self.ready.route;
        let (Some(whole), Some(ready)) = (&route.whole, &self.ready.whole) else { return Ok(false) };
        let [before, after] = [route.stages[0].before, route.stages[route.stages.len() - 1].after];
        let arrays = WholeArrays {
            input: (input.array, placement(input, before, [0, 1])),
            output: (self.output.array, placement(self.output, after, self.result)),
        };
        if !arrays.fit() {
            return Ok(false);
        }
        ready.record(recorder, (whole, route), &arrays, [self.scale, self.interior.into()], self.operator)?;
        Ok(true)
    }

    /// Records all passes and exchanges.
    pub fn run(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        input: RunInput<'a>,
    ) -> Result<(), ExchangeError> {
        let ReadyRoute { route, passes, .. } = self.ready;
        if let RunInput::Array(user) = &input
            && self.whole(recorder, *user)?
        {
            return Ok(());
        }
        let (elements, array) = match input {
            RunInput::Array(user) => {
                let place = placement(user, route.stages[0].before, [0, 1]);
                (Elements::Array(BufferView { array: user.array.clone(), place }), Some(user.array))
            }
            RunInput::Source(source) => (Elements::Source(source), None),
        };
        let mut input = StageInput::Whole(Some(elements));
        // Ghost cells of the caller's field must not be overwritten.
        let scratch = if self.output.layout.is_none() { self.output.array.complex_len(C::ELEMENT) } else { 0 };
        let mut executor = Executor { run: self, recorder, comms, array, scratch: Vec::new() };
        let buffers = buffers(route, scratch);
        for (i, &buffer) in buffers.iter().enumerate() {
            if let Some(layers) = route.layers_from(i) {
                input = executor.layers(layers, [buffer, buffers[i + 1]], input)?;
            } else if !passes[i].is_empty() && route.layers_into(i).is_none() {
                input = executor.stage(i, buffer, input)?;
            }
        }
        Ok(())
    }
}

/// An array that holds a box of this rank's part.
#[derive(Clone)]
pub(super) struct BufferView<'a> {
    pub array: RawArray,
    pub place: Placement<'a>,
}

/// The elements that a pass reads: those of an array, or of the source of the run.
pub(super) enum Elements<'a> {
    Array(BufferView<'a>),
    Source(Callback),
}

/// The input of a stage: all its elements, until they are taken, or the pieces of an exchange.
pub(super) enum StageInput<'a> {
    Whole(Option<Elements<'a>>),
    Pieces(Pieces<'a>),
}

/// Pieces of an exchange that were sent and not yet transformed.
#[derive(Default)]
pub(super) struct Pieces<'a> {
    arriving: VecDeque<BufferView<'a>>,
    pending: VecDeque<PendingExchange>,
}

impl<'a> StageInput<'a> {
    /// Returns the elements of the next tile, once it has arrived.
    pub fn next(&mut self, recorder: &mut Recorder) -> Result<Option<Elements<'a>>, ExchangeError> {
        match self {
            StageInput::Whole(elements) => Ok(elements.take()),
            StageInput::Pieces(Pieces { arriving, pending }) => {
                let Some(view) = arriving.pop_front() else { return Ok(None) };
                if pending.len() > arriving.len() {
                    PendingExchange::finish_first(pending, recorder)?;
                }
                Ok(Some(Elements::Array(view)))
            }
        }
    }

    /// Waits for at most `pieces` pieces of an exchange, if the input comes in pieces.
    pub fn wait_for(&mut self, pieces: usize, recorder: &mut Recorder) -> Result<(), ExchangeError> {
        if let StageInput::Pieces(Pieces { pending, .. }) = self {
            for _ in 0..pieces.min(pending.len()) {
                PendingExchange::finish_first(pending, recorder)?;
            }
        }
        Ok(())
    }
}

/// A run with its recorder and communicators.
pub(super) struct Executor<'r, 'a, C> {
    pub run: &'r Run<'a, C>,
    pub recorder: &'r mut Recorder,
    comms: &'r mut GridComms,
    /// The array that the run reads, if it reads one.
    array: Option<&'a RawArray>,
    /// Scratch arrays between passes since the last exchange.
    pub scratch: Vec<Array<C>>,
}

impl<'a, C: DeviceElement> Executor<'_, 'a, C> {
    /// Runs the passes of stage `i` and begins the exchange after it. Returns the input of the next
    /// stage.
    fn stage(&mut self, i: usize, buffer: Buffer, mut input: StageInput<'a>) -> Result<StageInput<'a>, ExchangeError> {
        let ReadyRoute { route, passes, .. } = self.run.ready;
        let (stage, transpose) = (&route.stages[i], route.between.get(i).and_then(Option::as_ref));
        if passes[i].is_empty() {
            return Ok(input);
        }
        // The memory of the first piece that was sent is free then.
        input.wait_for(1, self.recorder)?;
        let outputs = self.outputs(i, buffer, &input)?;
        let is_source = matches!(input, StageInput::Whole(Some(Elements::Source(_))));
        let (mut pieces, last) = (Pieces::default(), passes[i].len() - 1);
        // The array that the pass before has written, and another one.
        let mut scratch = if last > 0 { Vec::from(self.scratch(stage)?) } else { Vec::new() };
        let mut tile = match &input {
            StageInput::Whole(_) => input.next(self.recorder)?,
            StageInput::Pieces(_) => None,
        };
        for step in route.steps(i) {
            match step {
                StageStep::Arrive => tile = input.next(self.recorder)?,
                StageStep::Pass { pass: number, cells, piece } => {
                    let pass = (stage, &passes[i][number]);
                    let from = if number == 0 { tile.take() } else { Some(Elements::Array(scratch[0].clone())) };
                    let Some(from) = from else { continue };
                    if number > 0 && number < last && pass.1.kernel.moves() {
                        scratch.swap(0, 1);
                    }
                    let to = if number == last { &outputs[piece] } else { &scratch[0] };
                    let fields = 0..stage.fields[0] / pass.1.kernel.fields();
                    self.record(pass, StagePart { cells, fields }, &from, to)?;
                    tile = Some(from).filter(|_| last == 0);
                }
                StageStep::Send { piece } => self.send((stage, transpose), piece, &outputs[piece], &mut pieces)?,
            }
        }
        drop(tile);
        // The source is dropped: its arrays return to the pool.
        if is_source {
            self.recorder.submit()?;
        }
        // An exchange submits what was recorded before it, so the memory returns to the pool.
        if transpose.is_some() {
            self.scratch.clear();
        }
        Ok(match (transpose, outputs.into_iter().next()) {
            (None, Some(view)) => StageInput::Whole(Some(Elements::Array(view))),
            _ => StageInput::Pieces(pieces),
        })
    }

    /// Returns the arrays that a stage writes: one, or one for each piece of the exchange after it.
    pub fn outputs(
        &self,
        i: usize,
        buffer: Buffer,
        input: &StageInput<'a>,
    ) -> Result<Vec<BufferView<'a>>, ExchangeError> {
        let Run { ready, output, result, .. } = self.run;
        let (stage, gpu) = (&ready.route.stages[i], self.recorder.gpu());
        let extent = stage.after;
        let whole = Placement::whole(extent);
        let view = match (buffer, input) {
            (Buffer::Output, _) => {
                BufferView { array: output.array.clone(), place: placement(*output, extent, *result) }
            }
            (Buffer::OutputAsScratch, _) => BufferView { array: output.array.clone(), place: whole },
            (Buffer::InPlace, StageInput::Whole(Some(Elements::Array(view)))) => view.clone(),
            // Those of layers are made by the run of both stages.
            (Buffer::Work | Buffer::InPlace | Buffer::Layers, _) => {
                let own = Array::<C>::new(output.array.seen_as(C::ELEMENT));
                // In place, the caller's array is used if it is large enough for the elements
                // between exchanges.
                let len = ready.route.work_len(i);
                let fits = self.array.is_some_and(|array| array.shares(output.array)) && own.len() >= len;
                let array = if fits { own } else { gpu.array::<C>("fft::work", len)? };
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
        let view = |array: &Array<C>| BufferView { array: array.raw().clone(), place: Placement::whole(extent) };
        Ok([view(&arrays[0]), view(&arrays[arrays.len() - 1])])
    }

    /// Records a pass over a part of a stage, from an array or the source. Arrays of several
    /// windows are processed in parts that reach one window, if possible.
    pub fn record(
        &mut self,
        (stage, pass): (&Stage, &ReadyPass),
        part: StagePart,
        from: &Elements<'_>,
        to: &BufferView<'_>,
    ) -> Result<(), DeviceError> {
        let scale = if pass.position.last { self.run.scale } else { 1.0 };
        let (kernel, interior) = (&pass.kernel, self.run.interior);
        let (input, read) = match from {
            Elements::Array(from) if from.array.shares(&to.array) => (PassInput::InPlace, from.place),
            Elements::Array(from) => (PassInput::Array(from.array.clone()), from.place),
            Elements::Source(source) => (PassInput::Source(source.clone()), Placement::whole(stage.before)),
        };
        let params = |part: &StagePart| stage.params(kernel, part, read, to.place).scaled(scale, interior);
        let as_reals = matches!(input, PassInput::InPlace) && pass.as_reals();
        let output = if as_reals { to.array.seen_as(kernel.precision.real()) } else { to.array.clone() };
        let arrays = PassArrays { input, output };
        arrays.parts(stage, part, kernel, &params).iter().try_for_each(|part| {
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
                _ if kernel.output.format == LineFormat::Vectors(1) => {
                    record(params.of_results(self.run.number..self.run.number + 1))
                }
                _ => record(params),
            }
        })
    }

    /// Sends a piece that was written to `view`, and continues the exchanges in progress.
    pub fn send(
        &mut self,
        (stage, transpose): (&Stage, Option<&Transpose>),
        piece: usize,
        view: &BufferView<'_>,
        pieces: &mut Pieces<'a>,
    ) -> Result<(), ExchangeError> {
        let Some(transpose) = transpose else { return Ok(()) };
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
        pieces.arriving.push_back(BufferView { array: incoming.raw().clone(), place });
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
    user.layout.map_or(Placement::whole(extent), field)
}

/// Returns the placement of an array over `range` of the axis `third`.
fn covering<'a>(extent: [u64; 3], third: usize, range: &Range<u64>) -> Placement<'a> {
    let (mut origin, mut extent) = ([0; 3], extent);
    (origin[third], extent[third]) = (range.start, range.end - range.start);
    Placement::Array { origin, extent, first: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::run_threads;
    use crate::fft::{Filter, FilterOptions, Spec, Transform, TransformOptions, TransformTuning, Value};
    use crate::gpu::{Gpu, Options};
    use crate::grid::{Grid, volume};

    crate::gpu::kernel_params! {
        struct CellParams {
            /// Place of cell (0, 0, 0) of the whole mesh, and the strides.
            cells_origin: [u32; 4],
            /// Cells from one field to the next.
            cells_field: u32,
            cells_by: f32,
        }
    }

    const SOURCE: &str = "fn on_source(at: vec4<u32>) -> VALUE {
    let cell = params.cells_origin.x + dot(params.cells_origin.yzw, at.xyz) + params.cells_field * at.w;
    let value = Real(load_cells(cell)) * Real(params.cells_by);
    return RESULT;
}";
    const DOUBLED: &str = "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    return value * Real(1u + at.x + result);
}";

    /// Elements of fields that a source computes.
    trait Cell: Value<Mode: PartialEq + std::fmt::Debug> + PartialEq + std::fmt::Debug {
        const TEXT: [&str; 2];

        /// Returns what the source makes of a cell.
        fn of(cell: f32, by: f32) -> Self;
    }

    impl Cell for f32 {
        const TEXT: [&str; 2] = ["Real", "value"];

        fn of(cell: f32, by: f32) -> f32 {
            cell * by
        }
    }

    impl Cell for [f32; 2] {
        const TEXT: [&str; 2] = ["Complex", "Complex(value, -value)"];

        fn of(cell: f32, by: f32) -> Self {
            [cell * by, -(cell * by)]
        }
    }

    impl Cell for f64 {
        const TEXT: [&str; 2] = ["Real", "value"];

        fn of(cell: f32, by: f32) -> f64 {
            f64::from(cell) * f64::from(by)
        }
    }

    /// Checks on a rank that a transform and a filter of a source return the bits that they return
    /// for an array with its values.
    fn check_rank<T: Cell>(
        gpu: &Gpu,
        comms: &mut GridComms,
        (spec, tuning): (&Spec, TransformTuning),
    ) -> Result<(), crate::Error> {
        let (grid, rank, mut recorder) = (comms.grid(), comms.rank(), Recorder::new(gpu)?);
        let transform = Transform::<T>::with(gpu, spec, grid, rank, &TransformOptions::default().tuning(tuning))?;
        let part = transform.field_part();
        let layout = FieldLayout::new(part.clone(), [[1, 2], [0, 1], [1, 0]]);
        let [i, j, k] = layout.strides();
        let fields = spec.fields;
        let cells = gpu.array::<f32>("cells", layout.len() * fields)?;
        let numbers: Vec<f32> = (0..cells.len()).map(|i| (i * 7919 % 1021) as f32 / 37.0).collect();
        recorder.upload(&cells, 0, &numbers)?;
        let before = part[0].start * i + part[1].start * j + part[2].start * k;
        let origin = [layout.offset().wrapping_sub(before), i, j, k].map(|n| n as u32);
        let [value, result] = T::TEXT;
        let text = SOURCE.replace("VALUE", value).replace("RESULT", result);
        let source = |by: f32| {
            let params = CellParams { cells_origin: origin, cells_field: layout.len() as u32, cells_by: by };
            Callback::trusted(text.clone()).read("cells", &cells).params(&params)
        };
        let options = FilterOptions::default().results(2).tuning(tuning);
        let filter = Filter::<T>::new(gpu, spec, comms, &Callback::trusted(DOUBLED), &options)?;
        let own = transform.field_layout();
        let field = transform.field(gpu, &layout)?;
        // Other parameters in the second run, and the kernels of the first.
        for by in [0.3, -1.7] {
            let values: Vec<T> = numbers.iter().map(|&cell| T::of(cell, by)).collect();
            recorder.upload(&field, 0, &values)?;
            let [loaded, computed] = [transform.spectrum(gpu)?, transform.spectrum(gpu)?];
            transform.forward(&mut recorder, comms, &field, &layout, &loaded)?;
            transform.forward_from(&mut recorder, comms, source(by), &computed)?;
            let [loaded, computed] = [loaded, computed].map(|modes| recorder.download(&modes, 0, modes.len()));
            assert!(loaded? == computed?, "{spec:?} on {grid:?}");
            if spec.points[2] > 1000 {
                continue;
            }
            let output = || gpu.array::<T>("output", 2 * fields * volume(&part));
            let [loaded, computed] = [output()?, output()?];
            filter.apply(&mut recorder, comms, &field, &layout, &loaded, &own)?;
            let computed_cells = UserArray::field(&computed, &own);
            filter.run("filter of a source", &mut recorder, comms, RunInput::Source(source(by)), computed_cells)?;
            let [loaded, computed] = [loaded, computed].map(|cells| recorder.download(&cells, 0, cells.len()));
            assert!(loaded? == computed?, "filter of {spec:?} on {grid:?}");
        }
        let spectrum = transform.spectrum(gpu)?;
        for (text, why) in [(format!("{text} "), "the text is another"), (DOUBLED.into(), "no `fn on_source`")] {
            let error = transform.forward_from(&mut recorder, comms, Callback::trusted(text), &spectrum).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
            recorder.wait()?;
        }
        Ok(())
    }

    fn check<T: Cell>(gpu: &Gpu, spec: &Spec, parts: [usize; 2]) {
        check_with::<T>(gpu, spec, parts, TransformTuning::of(gpu));
    }

    fn check_with<T: Cell>(gpu: &Gpu, spec: &Spec, parts: [usize; 2], tuning: TransformTuning) {
        let ranks = parts[0] * parts[1];
        let done = run_threads(ranks, |comm| {
            let mut comms = GridComms::new(&comm, Grid::new(parts, ranks)?)?;
            check_rank::<T>(gpu, &mut comms, (spec, tuning))
        });
        done.unwrap_or_else(|error| panic!("{error}: {spec:?} on {parts:?}"));
    }

    /// Lengths along z are even, odd, prime, and take the passes of a four-step transform and of a
    /// long convolution.
    #[test]
    fn a_source_gives_the_bits_of_an_array_with_its_values() {
        let gpu = Gpu::open(&Options::from_env().unwrap(), 0).unwrap();
        for (shape, parts) in [
            ([8, 6, 16], [1, 1]),
            ([5, 4, 15], [2, 1]),
            ([4, 3, 37], [1, 3]),
            ([1, 1, 12], [1, 1]),
            ([1, 3, 8192], [1, 1]),
            ([1, 3, 4093], [1, 2]),
        ] {
            check::<f32>(&gpu, &Spec::of::<f32>(shape), parts);
        }
        for (shape, parts) in [([8, 6, 16], [3, 1]), ([6, 1, 1], [1, 1])] {
            check::<[f32; 2]>(&gpu, &Spec::of::<[f32; 2]>(shape), parts);
        }
    }

    #[test]
    fn a_source_is_read_layer_by_layer() {
        let gpu = Gpu::open(&Options::from_env().unwrap(), 0).unwrap();
        let tuning = TransformTuning { cache_bytes: 1000, ..TransformTuning::of(&gpu) };
        check_with::<f32>(&gpu, &Spec::of::<f32>([7, 6, 14]).fields(2), [1, 1], tuning);
        check_with::<f32>(&gpu, &Spec::of::<f32>([11, 4, 15]), [3, 1], tuning);
    }

    #[test]
    fn sources_of_batches_and_parts_of_axes_give_the_same_bits() {
        let options = Options::from_env().unwrap();
        let gpu = Gpu::open(&options, 0).unwrap();
        check::<f32>(&gpu, &Spec::of::<f32>([6, 5, 14]).fields(3), [1, 2]);
        check::<f32>(&gpu, &Spec::of::<f32>([6, 5, 7]).points([12, 10, 14]), [1, 1]);
        // An axis that is copied.
        check::<[f32; 2]>(&gpu, &Spec::of::<[f32; 2]>([6, 5, 14]).axes([true, true, false]), [2, 1]);
        if gpu.capabilities().f64 {
            check::<f64>(&gpu, &Spec::of::<f64>([6, 5, 14]), [1, 1]);
        }
        // Arrays in several windows.
        let gpu = Gpu::open(&Options { window_bytes: Some(1024), ..options }, 0).unwrap();
        check::<f32>(&gpu, &Spec::of::<f32>([6, 5, 14]), [1, 1]);
    }
}
