//! Transforms of fields on a device and between ranks.

use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::callbacks::{PassCallbacks, TransformCallbacks};
use super::error::FftError;
use super::pass::DeviceTables;
use super::plan::Plan;
use super::run::{ReadyRoute, Run, UserArray};
use super::spec::{Spec, SpectrumLayout, Value, Values};
use super::spectral::{Radial, Spectral};
use super::tuning::TransformTuning;
use crate::exchange::{ExchangeError, GridComms};
use crate::gpu::{Array, Callback, DeviceElement, DeviceError, Gpu, LONGEST, Recorder};
use crate::grid::{Box3, FieldLayout, Grid, volume};

/// The transform of fields of one shape over a process grid; of real fields unless said otherwise
/// (`Transform::<[f32; 2]>`).
///
/// - `forward` is `exp(-2 pi i j k / n)`; `inverse` undoes it. [`Norm`](super::Norm) says which of them has the factor `1/N`.
/// - Arrays are C order. A spectrum has the modes of each axis, mode `m` at `m mod n`, and of a real field those from 0 to
///   `n/2` along the last axis. It is cut as [`spectrum_part`](Self::spectrum_part) says.
/// - Fields lie as a [`FieldLayout`] says, ghosts included; ghosts are neither read nor written. The fields of a batch
///   follow each other, and so do their spectra.
/// - Inputs are not changed, unless input and output are one array ([`forward_in_place`](Self::forward_in_place)).
/// - On one rank everything is recorded and nothing submitted; see [`Exchange`](crate::exchange::Exchange) for more.
/// - The result is the same, to the bit, for every process grid, number of pieces and size of chunks.
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
pub struct Transform<T = f32> {
    plan: Plan,
    forward: ReadyRoute,
    inverse: ReadyRoute,
    callbacks: TransformCallbacks,
    /// The inverse with an operator on what it reads.
    multiplied: OnceLock<Result<ReadyRoute, FftError>>,
    gpu: Gpu,
    radial: Radial,
    value: PhantomData<T>,
}

impl<T> fmt::Debug for Transform<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transform").field("gpu", &self.gpu).field("spec", &self.plan.spec).finish_non_exhaustive()
    }
}

impl<T: Value> Transform<T> {
    /// The transform of one field of `shape` along all axes for `rank` of `grid`. Kernels are compiled when they are first
    /// used.
    ///
    /// # Errors
    /// [`FftError`] for what cannot be transformed on this device.
    pub fn new(gpu: &Gpu, shape: [u64; 3], grid: Grid, rank: usize) -> Result<Self, FftError> {
        Self::with(gpu, &Spec::of::<T>(shape), grid, rank, &TransformTuning::of(gpu), &TransformCallbacks::default())
    }

    /// Creates the transform that `spec` describes, with callbacks. `tuning` must be the same on all ranks.
    ///
    /// # Errors
    /// [`FftError::Elements`] if `spec` has other values or another precision than `T`; other variants of [`FftError`] if
    /// the device cannot transform the field.
    pub fn with(
        gpu: &Gpu,
        spec: &Spec,
        grid: Grid,
        rank: usize,
        tuning: &TransformTuning,
        callbacks: &TransformCallbacks,
    ) -> Result<Self, FftError> {
        spec.check_elements::<T>()?;
        spec.precision.check(&gpu.info().name, gpu.capabilities())?;
        let plan = Plan::new(spec, grid, rank, tuning.limits(gpu.common()), tuning.pieces)?;
        let mut tables = DeviceTables::new(gpu)?;
        let there = PassCallbacks {
            load: callbacks.load.clone(),
            store_mode: callbacks.forward.clone(),
            ..PassCallbacks::default()
        };
        let back = PassCallbacks {
            load_mode: callbacks.inverse.clone(),
            store: callbacks.store.clone(),
            ..PassCallbacks::default()
        };
        Ok(Transform {
            forward: ReadyRoute::new(plan.forward.clone(), &there, &mut tables)?,
            inverse: ReadyRoute::new(plan.inverse.clone(), &back, &mut tables)?,
            callbacks: callbacks.clone(),
            multiplied: OnceLock::new(),
            gpu: gpu.clone(),
            plan,
            radial: Radial::default(),
            value: PhantomData,
        })
    }

    /// Returns the device memory of its tables in bytes, counting those that several passes share for each.
    pub(super) fn table_bytes(&self) -> u64 {
        self.forward.table_bytes() + self.inverse.table_bytes()
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The cells of this rank.
    pub fn field_part(&self) -> Box3 {
        self.plan.field.clone()
    }

    /// The layout of a field without ghosts.
    pub fn field_layout(&self) -> FieldLayout {
        FieldLayout::new(self.field_part(), [[0; 2]; 3])
    }

    /// The modes of this rank.
    pub fn spectrum_part(&self) -> Box3 {
        self.plan.spectrum.clone()
    }

    /// Where the modes of this rank lie, and which they are.
    pub fn spectrum_layout(&self) -> SpectrumLayout {
        self.plan.spectrum_layout()
    }

    /// An array for this rank's part of the fields, laid out as `layout` says.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn field(&self, gpu: &Gpu, layout: &FieldLayout) -> Result<Array<T>, DeviceError> {
        gpu.array("fft::field", layout.len().saturating_mul(self.plan.spec.fields))
    }

    /// An array for this rank's part of the spectra.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn spectrum(&self, gpu: &Gpu) -> Result<Array<T::Mode>, DeviceError> {
        gpu.array("fft::spectrum", self.spectrum_len())
    }

    fn spectrum_len(&self) -> u64 {
        volume(&self.plan.spectrum) * self.plan.spec.fields
    }

    /// The spectrum of `field`. All ranks call it.
    ///
    /// # Errors
    /// [`ExchangeError`] of the device or the ranks; [`DeviceError::Misuse`] for arrays of the wrong length.
    pub fn forward(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<T>,
        layout: &FieldLayout,
        spectrum: &Array<T::Mode>,
    ) -> Result<(), ExchangeError> {
        const WHAT: &str = "Transform::forward";
        self.check(WHAT, comms, field, layout, spectrum)?;
        self.to_spectrum(WHAT, UserArray::field(field, layout), UserArray::spectrum(spectrum)).run(recorder, comms)
    }

    /// The field of `spectrum`, multiplied by the first operator of `operator` on the way if there is one. All ranks call
    /// it.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); [`DeviceError::Misuse`] for an operator with tables of other modes than this rank's, or
    /// where a [callback](TransformCallbacks::inverse) is on modes already.
    pub fn inverse(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        spectrum: &Array<T::Mode>,
        operator: Option<&Spectral>,
        field: &Array<T>,
        layout: &FieldLayout,
    ) -> Result<(), ExchangeError> {
        const WHAT: &str = "Transform::inverse";
        self.check(WHAT, comms, field, layout, spectrum)?;
        let run = self.to_field(WHAT, UserArray::spectrum(spectrum), UserArray::field(field, layout));
        let Some(operator) = operator else { return run.run(recorder, comms) };
        let misuse = |why: String| Err(DeviceError::Misuse { what: WHAT.into(), why }.into());
        if *operator.part() != self.plan.spectrum {
            return misuse(format!(
                "the operator is for modes {:?}, this rank has {:?}; make its tables for Transform::spectrum_part",
                operator.part(),
                self.plan.spectrum
            ));
        }
        if self.callbacks.inverse.is_some() {
            return misuse(
                "modes have a callback already, which an operator would replace; multiply in the callback".into(),
            );
        }
        let callback = operator.trusted_callback();
        match self.multiplied.get_or_init(|| self.multiplied(&callback)) {
            Ok(ready) => Run { ready, operator: Some(&callback), ..run }.run(recorder, comms),
            Err(error) => misuse(error.to_string()),
        }
    }

    /// The inverse with an operator on the modes that it reads.
    fn multiplied(&self, operator: &Callback) -> Result<ReadyRoute, FftError> {
        let mut tables = DeviceTables::new(&self.gpu)?;
        let store = self.callbacks.store.clone();
        let callbacks = PassCallbacks { load_mode: Some(operator.clone()), store, ..PassCallbacks::default() };
        ReadyRoute::new(self.plan.inverse.clone(), &callbacks, &mut tables)
    }

    fn to_spectrum<'a>(&'a self, what: &str, field: UserArray<'a>, spectrum: UserArray<'a>) -> Run<'a, T::Mode> {
        Run::new(self.plan.subject(what), &self.forward, [field, spectrum], self.plan.spec.factors()[0])
    }

    fn to_field<'a>(&'a self, what: &str, spectrum: UserArray<'a>, field: UserArray<'a>) -> Run<'a, T::Mode> {
        Run::new(self.plan.subject(what), &self.inverse, [spectrum, field], self.plan.spec.factors()[1])
    }

    /// The adjoint of [`forward`](Self::forward) (its vector-Jacobian product): with `<a, b>` the sum of the products of real
    /// and imaginary parts, `<forward(x), y> = <x, adjoint(y)>`. All ranks call it.
    ///
    /// It is the inverse without its factor; of real fields, modes that stand for two count half.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); [`DeviceError::Misuse`] for a transform with callbacks, whose adjoints are not known.
    pub fn forward_adjoint(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        spectrum: &Array<T::Mode>,
        field: &Array<T>,
        layout: &FieldLayout,
    ) -> Result<(), ExchangeError> {
        const WHAT: &str = "Transform::forward_adjoint";
        self.check(WHAT, comms, field, layout, spectrum)?;
        self.without_callbacks(WHAT)?;
        let run = self.to_field(WHAT, UserArray::spectrum(spectrum), UserArray::field(field, layout));
        Run { scale: self.plan.spec.factors()[0], interior: 0.5, ..run }.run(recorder, comms)
    }

    /// The adjoint of [`inverse`](Self::inverse), as [`forward_adjoint`](Self::forward_adjoint) says. All ranks call it.
    ///
    /// # Errors
    /// As [`forward_adjoint`](Self::forward_adjoint).
    pub fn inverse_adjoint(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<T>,
        layout: &FieldLayout,
        spectrum: &Array<T::Mode>,
    ) -> Result<(), ExchangeError> {
        const WHAT: &str = "Transform::inverse_adjoint";
        self.check(WHAT, comms, field, layout, spectrum)?;
        self.without_callbacks(WHAT)?;
        let run = self.to_spectrum(WHAT, UserArray::field(field, layout), UserArray::spectrum(spectrum));
        Run { scale: self.plan.spec.factors()[1], interior: 2.0, ..run }.run(recorder, comms)
    }

    /// Refuses callbacks for an adjoint: they may be any functions, and those on the way of the adjoint belong to the other transform.
    fn without_callbacks(&self, what: &str) -> Result<(), DeviceError> {
        if self.callbacks.is_empty() {
            return Ok(());
        }
        let why = "the transform has callbacks, whose adjoints are not known; make another without callbacks for the adjoint, and \
                   apply the adjoints of the callbacks before and after it";
        Err(DeviceError::Misuse { what: what.into(), why: why.into() })
    }

    /// The layout of a field that is transformed in place: rows of real cells are followed by room for the spectrum.
    pub fn in_place_layout(&self) -> FieldLayout {
        let [_, _, cells] = self.plan.spec.cells;
        let room = match T::VALUES {
            Values::Real => 2 * (cells / 2 + 1) - cells,
            Values::Complex => 0,
        };
        FieldLayout::new(self.field_part(), [[0; 2], [0; 2], [0, room]])
    }

    /// An array that holds a field or its spectrum, for transforms in place.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn in_place(&self, gpu: &Gpu) -> Result<Array<T::Mode>, DeviceError> {
        gpu.array("fft::in_place", self.in_place_len())
    }

    fn in_place_len(&self) -> u64 {
        let field = self.in_place_layout().len() * self.plan.spec.fields * T::ELEMENT.bytes();
        field.div_ceil(T::Mode::ELEMENT.bytes()).max(self.spectrum_len())
    }

    /// The spectrum of the field in `array` (see [`in_place`](Self::in_place), [`in_place_layout`](Self::in_place_layout),
    /// [`Array::cast`]), in its place. All ranks call it. One rank needs no other memory for it.
    ///
    /// # Errors
    /// As [`forward`](Self::forward); [`DeviceError::Misuse`] where cells, points and modes are not the same.
    pub fn forward_in_place(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        array: &Array<T::Mode>,
    ) -> Result<(), ExchangeError> {
        self.check_in_place(comms, array)?;
        let (layout, field) = (self.in_place_layout(), array.raw().seen_as(T::ELEMENT));
        let field = UserArray { array: &field, layout: Some(&layout) };
        self.to_spectrum("Transform::forward", field, UserArray::spectrum(array)).run(recorder, comms)
    }

    /// The field of the spectrum in `array`, in its place. All ranks call it.
    ///
    /// # Errors
    /// As [`forward_in_place`](Self::forward_in_place).
    pub fn inverse_in_place(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        array: &Array<T::Mode>,
    ) -> Result<(), ExchangeError> {
        self.check_in_place(comms, array)?;
        let (layout, field) = (self.in_place_layout(), array.raw().seen_as(T::ELEMENT));
        let field = UserArray { array: &field, layout: Some(&layout) };
        self.to_field("Transform::inverse", UserArray::spectrum(array), field).run(recorder, comms)
    }

    fn check_in_place(&self, comms: &GridComms, array: &Array<T::Mode>) -> Result<(), DeviceError> {
        let spec = &self.plan.spec;
        let misuse = |why: String| Err(DeviceError::Misuse { what: "Transform in place".into(), why });
        check_rank("Transform in place", &self.plan, comms)?;
        if spec.cells != spec.points || spec.modes != spec.points {
            return misuse("cells, points and modes differ: field and spectrum do not fit the same place".into());
        }
        let (have, needed) = (array.len(), self.in_place_len());
        // Its modes are also seen as twice as many numbers.
        if T::VALUES == Values::Real && needed > LONGEST / 2 {
            return Err(DeviceError::TooLong { label: "fft::in_place".into(), len: 2 * needed });
        }
        if have < needed { misuse(format!("an array of {have} elements, {needed} are needed")) } else { Ok(()) }
    }

    fn check(
        &self,
        what: &str,
        comms: &GridComms,
        field: &Array<T>,
        layout: &FieldLayout,
        spectrum: &Array<T::Mode>,
    ) -> Result<(), DeviceError> {
        let misuse = |why: String| Err(DeviceError::Misuse { what: what.into(), why });
        check_rank(what, &self.plan, comms)?;
        if layout.own != self.plan.field {
            return misuse(format!("the layout is of cells {:?}, this rank has {:?}", layout.own, self.plan.field));
        }
        let needed = [layout.len().saturating_mul(self.plan.spec.fields), self.spectrum_len()];
        for (name, have, needed) in [("field", field.len(), needed[0]), ("spectrum", spectrum.len(), needed[1])] {
            if have < needed {
                return misuse(format!("a {name} of {have} elements, {needed} are needed"));
            }
        }
        if field.raw().shares(spectrum.raw()) {
            return misuse(
                "field and spectrum are one array; give two; `forward_in_place` and `inverse_in_place` take one".into(),
            );
        }
        Ok(())
    }

    /// Records `spectrum *= amplitudes[|m|^2]`, a table on the device, with the mode numbers `m` (`|m_i| <= n_i / 2`) of a cubic mesh; single
    /// precision, one field.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the table is too short.
    pub fn scale_radially(
        &self,
        recorder: &mut Recorder,
        spectrum: &Array<[f32; 2]>,
        amplitudes: &Array<f32>,
    ) -> Result<(), DeviceError> {
        self.radial.scale(recorder, spectrum, self.plan.spec.modes, &self.plan.spectrum, amplitudes)
    }
}

/// Checks that `comms` are those that a transform was planned for.
pub(super) fn check_rank(what: &str, plan: &Plan, comms: &GridComms) -> Result<(), DeviceError> {
    if (plan.grid, plan.rank) == (comms.grid(), comms.rank()) {
        return Ok(());
    }
    let [planned, given] =
        [(plan.grid, plan.rank), (comms.grid(), comms.rank())].map(|(g, r)| format!("rank {r} of {g}"));
    let why = format!("it was planned for {planned} of the process grid and is run on {given}");
    Err(DeviceError::Misuse { what: what.into(), why })
}
