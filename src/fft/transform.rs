//! Transforms of fields on a device and between ranks.

use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::boxes::BoxMoves;
use super::line::LineFormat;
use super::operator::{Spectral, radial, scale_radially};
use super::options::{PassCallbacks, TransformOptions, TransformTuning};
use super::pass::DeviceTables;
use super::plan::{Plan, Route};
use super::run::{ReadyRoute, Run, RunInput, UserArray};
use super::{FftError, Precision, Spec, SpectrumLayout, Value, Values};
use crate::exchange::{ExchangeError, GridComms};
use crate::gpu::{Array, Callback, DeviceElement, DeviceError, Gpu, Kernel, LONGEST, Recorder, holds};
use crate::grid::{Box3, FieldLayout, Grid, volume};
use crate::timeline;

/// The Fourier transform of fields of one shape over a process grid, with elements of type `T`.
///
/// - [`forward`](Self::forward) multiplies by `exp(-2 pi i j k / n)`; [`inverse`](Self::inverse)
///   undoes it. [`Norm`](super::Norm) tells which direction carries the factor `1 / N`.
/// - Arrays are in C order. A spectrum holds mode `m` of an axis at index `m mod n`. The last axis
///   of the spectrum of a real field holds modes `0..=n/2`.
/// - A field lies as its [`FieldLayout`] tells. Ghost cells are neither read nor written. The
///   fields of a batch follow each other, and so do their spectra.
/// - Arrays of any boxes are redistributed before and after the transform
///   ([`TransformOptions::boxes`]).
/// - Inputs keep their values, except in place ([`forward_in_place`](Self::forward_in_place)).
/// - On one rank a transform is recorded and not submitted, except for the first of many layers
///   ([`TransformTuning::cache_bytes`](super::TransformTuning::cache_bytes)); see
///   [`Exchange`](crate::exchange::Exchange).
/// - The result has the same bits for every process grid, number of pieces and size of messages.
///
/// The modes `M` are complex, except in a Hartley transform inside this library.
///
/// ```
/// use meshloom::comm::Communicator;
/// use meshloom::gpu::{Gpu, Options, Recorder};
/// use meshloom::exchange::GridComms;
/// use meshloom::fft::Transform;
/// use meshloom::grid::Grid;
///
/// # fn main() -> Result<(), meshloom::Error> {
/// let gpu = Gpu::open(&Options::from_env()?, 0)?;
/// let mut recorder = Recorder::new(&gpu)?;
/// let mut comms = GridComms::new(&Communicator::solo(), Grid::new([1, 1], 1)?)?;
/// let transform = Transform::<f32>::new(&gpu, [4, 3, 2], comms.grid(), comms.rank())?;
///
/// let layout = transform.field_layout();
/// let field = gpu.array::<f32>("field", layout.len())?;
/// recorder.upload(&field, 0, &[1.0; 24])?;
/// let spectrum = transform.spectrum(&gpu)?;
/// transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum)?;
/// let modes = recorder.download(&spectrum, 0, spectrum.len())?;
/// assert_eq!(modes[0], [24.0, 0.0]); // the sum of all cells
/// # Ok(())
/// # }
/// ```
pub struct Transform<T: Value = f32, M: DeviceElement = <T as Value>::Mode> {
    plan: Plan,
    forward: ReadyRoute,
    inverse: ReadyRoute,
    options: TransformOptions,
    /// The layout of modes that are real numbers; `None` for a spectrum.
    real_modes: Option<FieldLayout>,
    field_moves: BoxMoves,
    mode_moves: BoxMoves,
    /// The inverse route with a callback that multiplies modes by an operator.
    multiplied: OnceLock<Result<ReadyRoute, FftError>>,
    gpu: Gpu,
    radial: Kernel,
    elements: PhantomData<(T, M)>,
}

impl<T: Value, M: DeviceElement> fmt::Debug for Transform<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transform").field("gpu", &self.gpu).field("spec", &self.plan.spec).finish_non_exhaustive()
    }
}

/// The arrays of one call, and its factors.
struct Operands<'a, T, M> {
    call: &'static str,
    field: &'a Array<T>,
    layout: &'a FieldLayout,
    spectrum: &'a Array<M>,
    /// Factor of the result.
    scale: f64,
    /// Factor of modes that stand for two.
    interior: f32,
}

impl<T: Value> Transform<T> {
    /// Creates the transform of one field of `shape` along all axes, for `rank` of `grid`. Compiles
    /// kernels when they are first used.
    ///
    /// # Errors
    /// [`FftError`] if this device cannot transform fields of this shape.
    pub fn new(gpu: &Gpu, shape: [u64; 3], grid: Grid, rank: usize) -> Result<Self, FftError> {
        Self::with(gpu, &Spec::of::<T>(shape), grid, rank, &TransformOptions::default())
    }

    /// Creates the transform that `spec` describes. All ranks must give the same tuning and boxes.
    ///
    /// # Errors
    /// - [`FftError::Elements`] if `spec` has other values or another precision than `T`.
    /// - [`FftError::Layout`] if boxes do not tile the mesh, or are not as many as ranks.
    /// - Other variants of [`FftError`] if this device cannot transform the fields.
    pub fn with(gpu: &Gpu, spec: &Spec, grid: Grid, rank: usize, options: &TransformOptions) -> Result<Self, FftError> {
        spec.check_elements::<T>()?;
        spec.precision.check(&gpu.info().name, gpu.capabilities())?;
        let tuning = options.tuning.unwrap_or_else(|| TransformTuning::of(gpu));
        let plan = Plan::new(spec, grid, rank, tuning.limits(gpu.common()), tuning.pieces)?;
        Self::of_plan(gpu, plan, options, None)
    }

    /// Returns the layout of a field that is transformed in place: each row of real cells is
    /// followed by space for its modes.
    pub fn in_place_layout(&self) -> FieldLayout {
        let [_, _, cells] = self.plan.spec.cells;
        let room = match T::VALUES {
            Values::Real => 2 * (cells / 2 + 1) - cells,
            Values::Complex => 0,
        };
        FieldLayout::new(self.field_part(), [[0; 2], [0; 2], [0, room]])
    }

    /// Creates an array that holds fields or their spectra, for transforms in place.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] if the device is out of memory.
    pub fn in_place(&self, gpu: &Gpu) -> Result<Array<T::Mode>, DeviceError> {
        gpu.array("fft::in_place", self.in_place_len())
    }

    fn in_place_len(&self) -> u64 {
        let field = self.in_place_layout().len() * self.plan.spec.fields * T::ELEMENT.bytes();
        field.div_ceil(T::Mode::ELEMENT.bytes()).max(self.spectrum_len())
    }

    /// Replaces the fields in `array` by their spectra. On one rank this needs no other memory.
    /// Collective.
    ///
    /// See [`in_place`](Self::in_place) for the array, [`in_place_layout`](Self::in_place_layout)
    /// and [`Array::cast`] for the field in it.
    ///
    /// # Errors
    /// - [`DeviceError::Misuse`] if cells, points and modes differ, or if fields or spectra are
    ///   redistributed.
    /// - Same as [`forward`](Self::forward).
    pub fn forward_in_place(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        array: &Array<T::Mode>,
    ) -> Result<(), ExchangeError> {
        self.check_in_place(comms, array)?;
        let (layout, field) = (self.in_place_layout(), array.raw().seen_as(T::ELEMENT));
        let field = RunInput::Array(UserArray { array: &field, layout: Some(&layout) });
        self.to_modes("Transform::forward", UserArray::spectrum(array)).run(recorder, comms, field)
    }

    /// Replaces the spectra in `array` by their fields. Collective.
    ///
    /// # Errors
    /// Same as [`forward_in_place`](Self::forward_in_place).
    pub fn inverse_in_place(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        array: &Array<T::Mode>,
    ) -> Result<(), ExchangeError> {
        self.check_in_place(comms, array)?;
        let (layout, field) = (self.in_place_layout(), array.raw().seen_as(T::ELEMENT));
        let field = UserArray { array: &field, layout: Some(&layout) };
        let spectrum = RunInput::Array(UserArray::spectrum(array));
        self.to_cells("Transform::inverse", field).run(recorder, comms, spectrum)
    }

    fn check_in_place(&self, comms: &GridComms, array: &Array<T::Mode>) -> Result<(), DeviceError> {
        const CALL: &str = "Transform in place";
        let spec = &self.plan.spec;
        self.plan.check_rank(CALL, comms)?;
        let why = || "cells, points and modes differ: field and spectrum do not fit the same place".into();
        DeviceError::ensure(spec.cells == spec.points && spec.modes == spec.points, CALL, why)?;
        let why = || "fields or spectra are redistributed, which needs other arrays; use the boxes of the plan".into();
        DeviceError::ensure(self.redistributions() == 0, CALL, why)?;
        let needed = self.in_place_len();
        // The modes are also used as twice as many real numbers.
        if T::VALUES == Values::Real && needed > LONGEST / 2 {
            return Err(DeviceError::TooLong { label: "fft::in_place".into(), len: 2 * needed });
        }
        holds(CALL, "elements of an array", array, needed)
    }

    /// Records `spectrum *= amplitudes[|m|^2]` with the mode numbers `m` (`|m_i| <= n_i / 2`) of a
    /// cubic mesh. `amplitudes` is a table on the device; the transform is of one field in single
    /// precision.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] if the table or the spectrum is too short.
    pub fn scale_radially(
        &self,
        recorder: &mut Recorder,
        spectrum: &Array<[f32; 2]>,
        amplitudes: &Array<f32>,
    ) -> Result<(), DeviceError> {
        let modes = (self.plan.spec.modes, &self.mode_moves.part);
        scale_radially(recorder, &self.radial, spectrum, modes, amplitudes)
    }
}

impl Transform<f32, f32> {
    /// Creates the Hartley transform of real fields: `y(k)` is the sum over `j` of `x(j) (cos -
    /// sin)(2 pi j k / n)`, in single precision. Values and precision of `spec` have no effect.
    ///
    /// Modes are all modes of the mesh, one real number each, distributed as those of a complex
    /// transform. The first pass reads real numbers and the last pass writes the sum of real and
    /// imaginary part: 40 bytes per point of three axes and 24 of two, instead of 72 and 56 with
    /// separate passes around a complex transform. The half spectrum of a real transform has the
    /// same numbers, but the mirror of a mode is on another rank, which would cost an exchange.
    ///
    /// The matrix is symmetric. The inverse is therefore planned as a second forward transform,
    /// which uses the same kernels where the axes have the same lengths.
    ///
    /// # Errors
    /// [`FftError`] if this device cannot transform the fields.
    pub(crate) fn hartley(gpu: &Gpu, spec: &Spec, grid: Grid, rank: usize) -> Result<Self, FftError> {
        let spec = Spec { values: Values::Complex, precision: Precision::Single, ..spec.clone() };
        let (options, tuning) = (TransformOptions::default(), TransformTuning::of(gpu));
        let mut plan = Plan::with_transpose(&spec, grid, rank, tuning.limits(gpu.common()), tuning.pieces)?;
        (plan.forward, plan.inverse) = (between_reals(plan.forward), between_reals(plan.inverse));
        let modes = FieldLayout::new(plan.spectrum.clone(), [[0; 2]; 3]);
        Self::of_plan(gpu, plan, &options, Some(modes))
    }
}

/// Makes the first pass read and the last pass write real numbers.
fn between_reals(mut route: Route) -> Route {
    let mut passes = route.stages.iter_mut().flat_map(|stage| &mut stage.passes);
    if let Some(first) = passes.next() {
        first.kernel.input.format = LineFormat::Hartley;
        let last = passes.last().unwrap_or(first);
        last.kernel.output.format = LineFormat::Hartley;
    }
    route
}

impl<T: Value, M: DeviceElement> Transform<T, M> {
    fn of_plan(
        gpu: &Gpu,
        plan: Plan,
        options: &TransformOptions,
        real_modes: Option<FieldLayout>,
    ) -> Result<Self, FftError> {
        let (mut tables, callbacks) = (DeviceTables::new(gpu)?, &options.callbacks);
        let none = PassCallbacks::default();
        let (load, store_mode) = (callbacks.load.clone(), callbacks.forward.clone());
        let forward = PassCallbacks { load, store_mode, ..none.clone() };
        let (load_mode, store) = (callbacks.inverse.clone(), callbacks.store.clone());
        let inverse = PassCallbacks { load_mode, store, ..none };
        let [field_moves, mode_moves] = BoxMoves::of_plan(&plan, options.boxes.as_ref())?;
        Ok(Transform {
            forward: ReadyRoute::new(plan.forward.clone(), &forward, &mut tables)?,
            inverse: ReadyRoute::new(plan.inverse.clone(), &inverse, &mut tables)?,
            options: options.clone(),
            real_modes,
            field_moves,
            mode_moves,
            multiplied: OnceLock::new(),
            gpu: gpu.clone(),
            plan,
            radial: Kernel::trusted(radial()),
            elements: PhantomData,
        })
    }

    /// Returns the device memory of the tables in bytes; a table that several passes share counts
    /// for each.
    pub(super) fn table_bytes(&self) -> u64 {
        self.forward.table_bytes() + self.inverse.table_bytes()
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the cells of this rank.
    pub fn field_part(&self) -> Box3 {
        self.field_moves.part.clone()
    }

    /// Returns the layout of this rank's cells without ghost cells.
    pub fn field_layout(&self) -> FieldLayout {
        FieldLayout::new(self.field_part(), [[0; 2]; 3])
    }

    /// Returns the modes of this rank.
    pub fn spectrum_part(&self) -> Box3 {
        self.mode_moves.part.clone()
    }

    /// Returns which modes this rank holds, and where they lie in the array.
    pub fn spectrum_layout(&self) -> SpectrumLayout {
        SpectrumLayout { part: self.spectrum_part(), ..self.plan.spectrum_layout() }
    }

    /// Returns how many redistributions between boxes a transform needs: 0, 1 or 2.
    pub fn redistributions(&self) -> usize {
        [&self.field_moves, &self.mode_moves].iter().filter(|moves| moves.part_layout().is_some()).count()
    }

    /// Creates an array for this rank's cells of all fields, with the ghost cells of `layout`.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] if the device is out of memory.
    pub fn field(&self, gpu: &Gpu, layout: &FieldLayout) -> Result<Array<T>, DeviceError> {
        gpu.array("fft::field", layout.len().saturating_mul(self.plan.spec.fields))
    }

    /// Creates an array for this rank's modes of all fields.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] if the device is out of memory.
    pub fn spectrum(&self, gpu: &Gpu) -> Result<Array<M>, DeviceError> {
        gpu.array("fft::spectrum", self.spectrum_len())
    }

    fn spectrum_len(&self) -> u64 {
        volume(&self.mode_moves.part) * self.plan.spec.fields
    }

    /// Computes the spectra of `field`. Collective.
    ///
    /// # Errors
    /// - [`DeviceError::Misuse`] if an array is too short, the layout has other cells than this
    ///   rank, or `comms` has another process grid.
    /// - [`ExchangeError`] if the device or another rank fails.
    pub fn forward(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<T>,
        layout: &FieldLayout,
        spectrum: &Array<M>,
    ) -> Result<(), ExchangeError> {
        let scale = self.plan.spec.factors()[0];
        let arrays = Operands { call: "Transform::forward", field, layout, spectrum, scale, interior: 1.0 };
        self.run_forward(recorder, comms, &arrays)
    }

    /// Computes the spectra of the fields that `source` defines, as in
    /// [`VectorFilter::apply_from`](super::VectorFilter::apply_from). Collective.
    ///
    /// # Errors
    /// - [`DeviceError::Misuse`] if the source has another text than before, or none with
    ///   `on_source`; if fields are redistributed, which needs an array.
    /// - Same as [`forward`](Self::forward).
    pub(crate) fn forward_from(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        source: Callback,
        spectrum: &Array<M>,
    ) -> Result<(), ExchangeError> {
        const CALL: &str = "Transform::forward_from";
        self.plan.check_rank(CALL, comms)?;
        let why = || "fields are redistributed, and a source has no array; use the boxes of the plan".into();
        DeviceError::ensure(self.field_moves.part_layout().is_none(), CALL, why)?;
        holds(CALL, "elements of a spectrum", spectrum, self.spectrum_len())?;
        let modes = self.mode_moves.part_array(recorder.gpu(), spectrum)?;
        self.to_modes(CALL, self.user_modes(&modes)).run(recorder, comms, RunInput::Source(source))?;
        self.mode_moves.to_boxes(recorder, comms, &modes, spectrum)
    }

    /// Computes the fields of `spectrum`. Collective.
    ///
    /// # Errors
    /// Same as [`forward`](Self::forward).
    pub fn inverse(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        spectrum: &Array<M>,
        field: &Array<T>,
        layout: &FieldLayout,
    ) -> Result<(), ExchangeError> {
        let scale = self.plan.spec.factors()[1];
        let arrays = Operands { call: "Transform::inverse", field, layout, spectrum, scale, interior: 1.0 };
        self.run_inverse(recorder, comms, &arrays, None)
    }

    /// Computes the fields of `spectrum` multiplied by the first operator of `operator`, in the
    /// passes of an inverse transform. Collective.
    ///
    /// # Errors
    /// - [`DeviceError::Misuse`] if the tables of `operator` are of other modes than those of
    ///   [`Plan::spectrum`], or if the transform has a callback on modes
    ///   ([`TransformCallbacks::inverse`](super::TransformCallbacks::inverse)).
    /// - Same as [`forward`](Self::forward).
    pub fn inverse_multiplied(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        spectrum: &Array<M>,
        operator: &Spectral,
        field: &Array<T>,
        layout: &FieldLayout,
    ) -> Result<(), ExchangeError> {
        let scale = self.plan.spec.factors()[1];
        let arrays = Operands { call: "Transform::inverse_multiplied", field, layout, spectrum, scale, interior: 1.0 };
        self.run_inverse(recorder, comms, &arrays, Some(operator))
    }

    /// Computes the adjoint of [`forward`](Self::forward) (its vector-Jacobian product): with `<a,
    /// b>` the sum of the products of real and imaginary parts, `<forward(x), y> = <x,
    /// adjoint(y)>`. Collective.
    ///
    /// It is the inverse without its factor; of real fields, modes that stand for two count half.
    ///
    /// # Errors
    /// - [`DeviceError::Misuse`] if the transform has callbacks, whose adjoints are unknown.
    /// - Same as [`forward`](Self::forward).
    pub fn forward_adjoint(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        spectrum: &Array<M>,
        field: &Array<T>,
        layout: &FieldLayout,
    ) -> Result<(), ExchangeError> {
        let scale = self.plan.spec.factors()[0];
        let arrays = Operands { call: "Transform::forward_adjoint", field, layout, spectrum, scale, interior: 0.5 };
        self.refuse_callbacks(arrays.call)?;
        self.run_inverse(recorder, comms, &arrays, None)
    }

    /// Computes the adjoint of [`inverse`](Self::inverse); see
    /// [`forward_adjoint`](Self::forward_adjoint). Collective.
    ///
    /// # Errors
    /// Same as [`forward_adjoint`](Self::forward_adjoint).
    pub fn inverse_adjoint(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<T>,
        layout: &FieldLayout,
        spectrum: &Array<M>,
    ) -> Result<(), ExchangeError> {
        let scale = self.plan.spec.factors()[1];
        let arrays = Operands { call: "Transform::inverse_adjoint", field, layout, spectrum, scale, interior: 2.0 };
        self.refuse_callbacks(arrays.call)?;
        self.run_forward(recorder, comms, &arrays)
    }

    /// Refuses callbacks for an adjoint: their adjoints are unknown, and the callbacks on the route
    /// of the adjoint belong to the other transform.
    fn refuse_callbacks(&self, call: &str) -> Result<(), DeviceError> {
        let why = "the transform has callbacks, whose adjoints are not known; make another without callbacks for the adjoint, and \
                   apply the adjoints of the callbacks before and after it";
        DeviceError::ensure(self.options.callbacks.is_empty(), call, || why.into())
    }

    fn to_modes<'a>(&'a self, call: &str, modes: UserArray<'a>) -> Run<'a, T::Mode> {
        Run::new(self.plan.subject(call), &self.forward, modes, self.plan.spec.factors()[0])
    }

    fn to_cells<'a>(&'a self, call: &str, cells: UserArray<'a>) -> Run<'a, T::Mode> {
        Run::new(self.plan.subject(call), &self.inverse, cells, self.plan.spec.factors()[1])
    }

    /// Runs the forward route, between the redistributions of field and spectrum.
    fn run_forward(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        arrays: &Operands<'_, T, M>,
    ) -> Result<(), ExchangeError> {
        let _activity = timeline::activity!("transform", name = arrays.call);
        self.check(arrays, comms)?;
        let field = self.field_moves.to_part(recorder, comms, arrays.field)?;
        let modes = self.mode_moves.part_array(recorder.gpu(), arrays.spectrum)?;
        let input = RunInput::Array(self.user_field(&field, arrays.layout));
        let run = self.to_modes(arrays.call, self.user_modes(&modes));
        Run { scale: arrays.scale, interior: arrays.interior, ..run }.run(recorder, comms, input)?;
        self.mode_moves.to_boxes(recorder, comms, &modes, arrays.spectrum)
    }

    /// Runs the inverse route, between the redistributions of spectrum and field.
    fn run_inverse(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        arrays: &Operands<'_, T, M>,
        operator: Option<&Spectral>,
    ) -> Result<(), ExchangeError> {
        let _activity = timeline::activity!("transform", name = arrays.call);
        self.check(arrays, comms)?;
        let multiply = operator.map(|operator| self.multiplication(arrays.call, operator)).transpose()?;
        let modes = self.mode_moves.to_part(recorder, comms, arrays.spectrum)?;
        let field = self.field_moves.part_array(recorder.gpu(), arrays.field)?;
        let input = RunInput::Array(self.user_modes(&modes));
        let field_array = self.user_field(&field, arrays.layout);
        let run = Run { scale: arrays.scale, interior: arrays.interior, ..self.to_cells(arrays.call, field_array) };
        match &multiply {
            Some((ready, callback)) => Run { ready, operator: Some(callback), ..run }.run(recorder, comms, input),
            None => run.run(recorder, comms, input),
        }?;
        self.field_moves.to_boxes(recorder, comms, &field, arrays.field)
    }

    fn user_field<'a>(&'a self, array: &'a Array<T>, layout: &'a FieldLayout) -> UserArray<'a> {
        UserArray::field(array, self.field_moves.part_layout().unwrap_or(layout))
    }

    fn user_modes<'a>(&'a self, array: &'a Array<M>) -> UserArray<'a> {
        UserArray { array: array.raw(), layout: self.real_modes.as_ref() }
    }

    /// Returns the inverse route that multiplies modes by `operator`, with the callback that does
    /// so.
    fn multiplication(&self, call: &str, operator: &Spectral) -> Result<(&ReadyRoute, Callback), DeviceError> {
        let (part, own) = (operator.part(), &self.plan.spectrum);
        let tables = "make its tables for Transform::spectrum_part";
        let why = || format!("the operator is for modes {part:?}, this rank has {own:?}; {tables}");
        DeviceError::ensure(part == own, call, why)?;
        let why = || "modes have a callback already, which an operator would replace; multiply in the callback".into();
        DeviceError::ensure(self.options.callbacks.inverse.is_none(), call, why)?;
        let callback = operator.trusted_callback();
        let ready = self.multiplied.get_or_init(|| {
            let (load_mode, store) = (Some(callback.clone()), self.options.callbacks.store.clone());
            let callbacks = PassCallbacks { load_mode, store, ..PassCallbacks::default() };
            ReadyRoute::new(self.plan.inverse.clone(), &callbacks, &mut DeviceTables::new(&self.gpu)?)
        });
        Ok((ready.as_ref().map_err(|error| DeviceError::misuse(call, error.to_string()))?, callback))
    }

    fn check(&self, arrays: &Operands<'_, T, M>, comms: &GridComms) -> Result<(), DeviceError> {
        let &Operands { call, field, layout, spectrum, .. } = arrays;
        self.plan.check_rank(call, comms)?;
        let own = &self.field_moves.part;
        let why = || format!("the layout is of cells {:?}, this rank has {own:?}", layout.own);
        DeviceError::ensure(layout.own == *own, call, why)?;
        let fits = self.field_moves.part_layout().is_none() || layout.len() == volume(own);
        let why = || "the layout has ghost cells, and fields that are redistributed have none".into();
        DeviceError::ensure(fits, call, why)?;
        let needed = layout.len().saturating_mul(self.plan.spec.fields);
        holds(call, "elements of a field", field, needed)?;
        holds(call, "elements of a spectrum", spectrum, self.spectrum_len())?;
        let why = "field and spectrum are one array; give two; `forward_in_place` and `inverse_in_place` take one";
        DeviceError::ensure(!field.raw().shares(spectrum.raw()), call, || why.into())
    }
}
