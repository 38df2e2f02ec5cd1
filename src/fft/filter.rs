//! Multiplication in Fourier space: forward transform, factors, inverse transform, in few passes.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Index;

use super::line::Work;
use super::options::{FilterOptions, PassCallbacks, TransformTuning};
use super::pass::DeviceTables;
use super::plan::{Plan, Route};
use super::run::{ReadyRoute, Run, RunInput, UserArray};
use super::{Distribution, FftError, Limits, Precision, Spec, TransformError, Value, Values, Wave};
use crate::exchange::{ExchangeError, GridComms};
use crate::field::Field;
use crate::gpu::{Array, Callback, DeviceElement, DeviceError, Gpu, Recorder, holds};
use crate::grid::{Box3, FieldLayout, Mesh, extent, volume};
use crate::host_memory;
use crate::rank::{Parts, Rank};

/// Multiplies fields in Fourier space: `inverse(callback(forward(field)))`, with one or more
/// results of each field.
///
/// - The callback runs inside the pass along the last axis of the route, so the spectrum is never
///   written: five passes for three axes instead of seven, and ten instead of fifteen for a density
///   and the three components of its force. Where one dispatch would reach more memory than
///   [`FilterOptions::reach`], it becomes one for each result, with the same bits.
/// - If the last axis is too long for one pass or a real line, or if two transforms move fewer
///   sectors of memory, the filter is a forward and an inverse transform with the callback on its
///   first pass.
/// - With [`Spec::points`] equal to the cells it is a circular convolution, with twice as many
///   points a linear one.
/// - Result `r` of field `f` is field `f * results + r` of the output.
///
/// The filter is a list of routes between fields, so it is not a form of a
/// [`Transform`](super::Transform), whose two routes lead to modes and back.
///
/// Reference: Hockney & Eastwood (1981).
pub struct Filter<T = f32> {
    plan: Plan,
    /// The fused route, or the forward route and an inverse one for each result.
    routes: Vec<ReadyRoute>,
    is_fused: bool,
    results: u32,
    output: FilterOutput,
    spectrum: Box3,
    value: PhantomData<T>,
}

impl<T> fmt::Debug for Filter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("spec", &self.plan.spec).field("results", &self.results).finish_non_exhaustive()
    }
}

impl<T: Value> Filter<T> {
    /// Creates the filter of the fields that `spec` describes, for the rank of `comms`.
    ///
    /// The modes and the distribution of `spec` have no effect. `callback` defines `on_mode`; see
    /// [`TransformCallbacks`](super::TransformCallbacks). [`part_of`](Self::part_of) returns the
    /// modes on which it runs.
    ///
    /// # Errors
    /// - [`FftError::Elements`] if `spec` has other values or another precision than `T`.
    /// - Other variants of [`FftError`] if the device cannot transform the fields.
    pub fn new(
        gpu: &Gpu,
        spec: &Spec,
        comms: &GridComms,
        callback: &Callback,
        options: &FilterOptions,
    ) -> Result<Self, FftError> {
        let callbacks = PassCallbacks { filter: Some(callback.clone()), ..PassCallbacks::default() };
        Self::with_output(gpu, spec, comms, callbacks, (options, FilterOutput::Fields))
    }

    pub(super) fn with_output(
        gpu: &Gpu,
        spec: &Spec,
        comms: &GridComms,
        callbacks: PassCallbacks,
        (options, output): (&FilterOptions, FilterOutput),
    ) -> Result<Self, FftError> {
        let (plan, route) = Self::planned(gpu, spec, comms, (options, output))?;
        let mut tables = DeviceTables::new(gpu)?;
        let (spectrum, results) = (spectrum_of(&plan, route.as_ref()), options.results);
        let is_fused = route.is_some();
        let mut ready = |route, callbacks| ReadyRoute::new(route, &callbacks, &mut tables);
        let routes = match route {
            Some(route) => {
                let mut fused = ready(route, callbacks)?;
                fused.reach = options.reach_on(gpu);
                vec![fused]
            }
            None => {
                let mut routes = vec![ready(plan.forward.clone(), PassCallbacks::default())?];
                let (limits, pieces) = limits_of(gpu, options);
                let inverse = match output {
                    FilterOutput::Fields => plan.inverse.clone(),
                    FilterOutput::Vectors => plan.inverse_to_vectors(limits, pieces)?,
                };
                for result in 0..results {
                    let load_mode = callbacks.filter.clone();
                    let callbacks = PassCallbacks { load_mode, result, ..PassCallbacks::default() };
                    routes.push(ready(inverse.clone(), callbacks)?);
                }
                routes
            }
        };
        Ok(Filter { plan, routes, is_fused, results, output, spectrum, value: PhantomData })
    }

    /// Returns the plan of a filter, and its fused route if it has one.
    pub(super) fn planned(
        gpu: &Gpu,
        spec: &Spec,
        comms: &GridComms,
        (options, output): (&FilterOptions, FilterOutput),
    ) -> Result<(Plan, Option<Route>), FftError> {
        spec.check_elements::<T>()?;
        let spec = Spec { modes: spec.points, distribution: Distribution::Transposed, ..spec.clone() };
        spec.precision.check(&gpu.info().name, gpu.capabilities())?;
        let (limits, pieces) = limits_of(gpu, options);
        let plan = Plan::new(&spec, comms.grid(), comms.rank(), limits, pieces)?;
        let route = match output {
            FilterOutput::Fields => plan.filter(options.results, limits, pieces)?,
            FilterOutput::Vectors => plan.vector_filter(options.results, limits, pieces)?,
        };
        Ok((plan, route))
    }

    /// Returns the modes of this rank on which the callback of such a filter runs, for tables.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn part_of(gpu: &Gpu, spec: &Spec, comms: &GridComms, options: &FilterOptions) -> Result<Box3, FftError> {
        let (plan, route) = Self::planned(gpu, spec, comms, (options, FilterOutput::Fields))?;
        Ok(spectrum_of(&plan, route.as_ref()))
    }

    /// Returns the modes of this rank on which the callback runs.
    #[must_use]
    pub fn spectrum_part(&self) -> Box3 {
        self.spectrum.clone()
    }

    /// Returns the cells of this rank.
    #[must_use]
    pub fn field_part(&self) -> Box3 {
        self.plan.field.clone()
    }

    /// Returns the layout of this rank's cells without ghost cells.
    #[must_use]
    pub fn field_layout(&self) -> FieldLayout {
        FieldLayout::new(self.field_part(), [[0; 2]; 3])
    }

    /// Returns the routes of the filter in the order of their execution.
    #[must_use]
    pub fn routes(&self) -> Vec<&Route> {
        self.routes.iter().map(|ready| &ready.route).collect()
    }

    /// Returns the bytes that device memory moves; see [`Route::traffic`].
    pub fn traffic(&self) -> u64 {
        self.routes().into_iter().map(Route::traffic).sum()
    }

    /// Filters `field` into `output`, another array. Collective.
    ///
    /// # Errors
    /// - [`DeviceError::Misuse`] if an array is too short, a layout has other cells than this rank,
    ///   or `comms` has another process grid.
    /// - [`ExchangeError`] if the device or another rank fails.
    pub fn apply(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<T>,
        layout: &FieldLayout,
        output: &Array<T>,
        output_layout: &FieldLayout,
    ) -> Result<(), ExchangeError> {
        const CALL: &str = "Filter::apply";
        self.check(CALL, comms, ("a field", field, layout), self.plan.spec.fields)?;
        self.check(CALL, comms, ("an output", output, output_layout), self.output_fields())?;
        let field = RunInput::Array(UserArray::field(field, layout));
        self.run(CALL, recorder, comms, field, UserArray::field(output, output_layout))
    }

    /// Refuses an array of other cells than this rank's, or of fewer than `count` fields.
    pub(super) fn check<E: DeviceElement>(
        &self,
        call: &'static str,
        comms: &GridComms,
        (name, array, layout): (&'static str, &Array<E>, &FieldLayout),
        count: u64,
    ) -> Result<(), DeviceError> {
        self.plan.check_rank(call, comms)?;
        let why = || format!("{name} of cells {:?}, this rank has {:?}", layout.own, self.plan.field);
        DeviceError::ensure(layout.own == self.plan.field, call, why)?;
        holds(call, &format!("elements of {name}"), array, layout.len().saturating_mul(count))
    }

    /// Filters the field that `input` gives into `output`, whose length is checked.
    pub(super) fn run(
        &self,
        call: &'static str,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        input: RunInput<'_>,
        output: UserArray<'_>,
    ) -> Result<(), ExchangeError> {
        let (fields, results) = (self.plan.spec.fields, u64::from(self.results));
        let is_one = matches!(&input, RunInput::Array(field) if field.array.shares(output.array));
        DeviceError::ensure(!is_one, call, || "field and output are one array".into())?;
        let [forward_factor, inverse_factor] = self.plan.spec.factors();
        let subject = |what: &str| self.plan.subject(what).with(&[results]);
        let (first, others) = (&self.routes[0], &self.routes[1..]);
        if self.is_fused {
            let factor = forward_factor * inverse_factor;
            return Run::<T::Mode>::new(subject("filter"), first, output, factor).run(recorder, comms, input);
        }
        let modes = recorder.gpu().array::<T::Mode>("fft::filter", volume(&self.plan.spectrum) * fields)?;
        let modes = UserArray::spectrum(&modes);
        let forward_subject = subject("filter, to modes,");
        Run::<T::Mode>::new(forward_subject, first, modes, forward_factor).run(recorder, comms, input)?;
        (0..results).zip(others).try_for_each(|(r, route)| {
            let subject = subject("filter, to cells,").with(&[r]);
            let run = Run::<T::Mode>::new(subject, route, output, inverse_factor);
            match self.output {
                FilterOutput::Fields => Run { result: [r, results], ..run },
                FilterOutput::Vectors => Run { number: r as u32, ..run },
            }
            .run(recorder, comms, RunInput::Array(modes))
        })
    }

    /// Returns the fields of the output.
    pub(super) fn output_fields(&self) -> u64 {
        self.plan.spec.fields * if self.output == FilterOutput::Fields { u64::from(self.results) } else { 1 }
    }
}

/// The output of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterOutput {
    /// A field for each result.
    Fields,
    /// A field of vectors, whose numbers are the results.
    Vectors,
}

fn limits_of(gpu: &Gpu, options: &FilterOptions) -> (Limits, u64) {
    let tuning = options.tuning.unwrap_or_else(|| TransformTuning::of(gpu));
    (tuning.limits(gpu.common()), tuning.pieces)
}

/// Returns the modes of a rank on which the callback runs.
fn spectrum_of(plan: &Plan, route: Option<&Route>) -> Box3 {
    let Some(route) = route else { return plan.spectrum.clone() };
    let fused = route.stages.iter().find(|stage| stage.passes.iter().any(|p| matches!(p.kernel.work, Work::Filter(_))));
    fused.map_or(plan.spectrum.clone(), |stage| {
        [0, 1, 2].map(|a| {
            if a == stage.axis { 0..plan.spec.points[a] } else { stage.first[a]..stage.first[a] + stage.before[a] }
        })
    })
}

/// A wavevector `2 pi m / L` of mode numbers `m` and side lengths `L`, in the inverse unit of the
/// mesh size. With fewer than three axes the shape is padded in front: the last axis of the mesh is
/// always `k[2]`, and components of added axes are 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wavevector(pub [f64; 3]);

impl Wavevector {
    /// Returns `|k|^2`.
    #[must_use]
    pub fn squared(&self) -> f64 {
        self.0.iter().map(|k| k * k).sum()
    }

    /// Returns `|k|`.
    #[must_use]
    pub fn norm(&self) -> f64 {
        self.squared().sqrt()
    }
}

impl Index<usize> for Wavevector {
    type Output = f64;

    fn index(&self, axis: usize) -> &f64 {
        &self.0[axis]
    }
}

/// A factor of a mode: real (`f64`) or complex (`[f64; 2]`: real and imaginary part).
pub trait ModeFactor: Copy + sealed::Sealed {}

mod sealed {
    pub trait Sealed {
        /// Whether factors have an imaginary part.
        const COMPLEX: bool;

        /// Returns the real and the imaginary part.
        fn parts(self) -> [f64; 2];
    }
}

impl ModeFactor for f64 {}
impl ModeFactor for [f64; 2] {}

impl sealed::Sealed for f64 {
    const COMPLEX: bool = false;

    fn parts(self) -> [f64; 2] {
        [self, 0.0]
    }
}

impl sealed::Sealed for [f64; 2] {
    const COMPLEX: bool = true;

    fn parts(self) -> [f64; 2] {
        self
    }
}

crate::gpu::kernel_params! {
    struct FactorsParams {
        /// The first mode of this rank.
        factors_first: [u32; 4],
        /// Modes of this rank along each axis.
        factors_extent: [u32; 4],
    }
}

impl Rank {
    /// Multiplies the modes of `field` by `factor(k)`: a forward transform, a multiplication and an
    /// inverse transform in as few passes over memory as possible.
    ///
    /// A factor at `k = 0` that is not finite counts as 0. For real fields `factor(-k)` must be the
    /// complex conjugate of `factor(k)`; [`Filter::of_modes`] defines the factor of the Nyquist
    /// mode. The transform is periodic along all axes, also on a mesh with open faces.
    ///
    /// Use [`Filter::of_modes`] and [`filter_into`](Self::filter_into) to apply one filter several
    /// times: `factor` is evaluated on the host for every mode. [Collective](Self); records, and
    /// blocks only for exchanges between ranks.
    ///
    /// ```
    /// meshloom::run(|rank| {
    ///     let mesh = rank.mesh([16, 16, 16]).periodic([1.0; 3]).build()?;
    ///     let wave = rank.fill(&mesh, |[x, _, _]| (std::f64::consts::TAU * x).sin())?;
    ///     // The derivative along the first axis: the factor is i k.
    ///     let slope = rank.filter(&wave, |k| [0.0, k[0]])?;
    ///     assert!((rank.max(&slope)? - std::f32::consts::TAU).abs() < 1e-4);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// - Same as [`Filter::of_modes`].
    /// - [`TransformError::Exchange`] if the device or another rank fails.
    pub fn filter<T: Value, F: ModeFactor>(
        &mut self,
        field: &Field<T>,
        factor: impl Fn(Wavevector) -> F,
    ) -> Result<Field<T>, TransformError> {
        let filter = Filter::of_modes(self, field.mesh(), field.components(), factor)?;
        let mut output = self.new_field(field.mesh(), field.components())?;
        self.filter_into(field, &filter, &mut output)?;
        Ok(output)
    }

    /// Applies a filter to `field`. Ghost cells of `output` keep their values. Allocates no device
    /// memory once it has run. [Collective](Self); records, and blocks only for exchanges between
    /// ranks.
    ///
    /// # Errors
    /// - [`TransformError::Fft`] if the fields are on different meshes.
    /// - [`TransformError::Exchange`] if the filter was created for another mesh or number of
    ///   components, or the device or another rank fails.
    pub fn filter_into<T: Value>(
        &mut self,
        field: &Field<T>,
        filter: &Filter<T>,
        output: &mut Field<T>,
    ) -> Result<(), TransformError> {
        field.same_mesh("Rank::filter_into", output)?;
        let Parts { recorder, comms, .. } = self.parts(field.mesh().grid())?;
        let layout = field.mesh().layout();
        Ok(filter.apply(recorder, comms, field.array(), layout, output.array(), layout)?)
    }
}

impl<T: Value> Filter<T> {
    /// Creates the filter that multiplies the modes of fields on `mesh` by `factor(k)`, for
    /// [`Rank::filter_into`]; all `components` of a field have the same factor. Evaluates `factor`
    /// on the host for every mode that this rank multiplies, in f64. [Collective](Rank) when the
    /// process grid of `mesh` is used for the first time.
    ///
    /// - A factor at `k = 0` that is not finite counts as 0, so that `-1 / k.squared()` solves
    ///   Poisson's equation.
    /// - An even axis has one mode for the wavenumbers `+pi n / L` and `-pi n / L`. Its factor is
    ///   the mean of the factors for both signs: 0 for odd functions such as `[0.0, k[0]]`.
    /// - For real fields `factor(-k)` must be the complex conjugate of `factor(k)`.
    ///
    /// # Errors
    /// - [`TransformError::Factor`] if a factor of another mode than `k = 0` is not finite.
    /// - [`TransformError::NotConjugate`] if the field is real and the factors of the largest waves
    ///   are not complex conjugates of those of opposite wavevectors.
    /// - [`TransformError::Fft`] if the device cannot transform fields of this shape or element.
    /// - [`TransformError::Exchange`] if the device or another rank fails.
    pub fn of_modes<F: ModeFactor>(
        rank: &mut Rank,
        mesh: &Mesh,
        components: u64,
        factor: impl Fn(Wavevector) -> F,
    ) -> Result<Self, TransformError> {
        let comm = rank.comm.clone();
        let Parts { gpu, recorder, comms } = rank.parts(mesh.grid())?;
        let (spec, options) = (Spec::of::<T>(mesh.shape()).fields(components), FilterOptions::default());
        comm.together(|| {
            let part = Self::part_of(gpu, &spec, comms, &options)?;
            if T::VALUES == Values::Real {
                check_conjugates(mesh, &factor)?;
            }
            let factors = factors(mesh, &part, &factor)?;
            let callback = match (F::COMPLEX, T::PRECISION) {
                (false, Precision::Single) => {
                    table(recorder, &part, factors.iter().map(|factor| factor[0] as f32), REAL)?
                }
                (false, Precision::Double) => table(recorder, &part, factors.iter().map(|factor| factor[0]), REAL)?,
                (true, Precision::Single) => {
                    table(recorder, &part, factors.iter().map(|factor| factor.map(|x| x as f32)), COMPLEX)?
                }
                (true, Precision::Double) => table(recorder, &part, factors.iter().copied(), COMPLEX)?,
            };
            Ok(Self::new(gpu, &spec, comms, &callback, &options)?)
        })
    }
}

const PLACE: &str = include_str!("../../shaders/fft/factors.wgsl");
const REAL: &str = include_str!("../../shaders/fft/factors_real.wgsl");
const COMPLEX: &str = include_str!("../../shaders/fft/factors_complex.wgsl");

/// Uploads a table and returns the callback that multiplies by it.
fn table<V: DeviceElement>(
    recorder: &mut Recorder,
    part: &Box3,
    values: impl ExactSizeIterator<Item = V>,
    text: &str,
) -> Result<Callback, TransformError> {
    let array = recorder.uploaded("fft::factors", &host_memory::collect("factors of modes", values)?)?;
    let [i, j, k] = extent(part).map(|n| n as u32);
    let [x, y, z] = [0, 1, 2].map(|a| part[a].start as u32);
    let params = FactorsParams { factors_first: [x, y, z, 0], factors_extent: [i, j, k, 0] };
    Ok(Callback::trusted([PLACE, text].concat()).read("factors", &array).params(&params))
}

/// Refuses a factor that makes real fields complex. Checks waves of up to two periods along each
/// axis: at most 62 pairs of opposite wavevectors. Parts may differ by 1e-5 of the largest, as
/// tables in single precision do.
fn check_conjugates<F: ModeFactor>(mesh: &Mesh, factor: &impl Fn(Wavevector) -> F) -> Result<(), TransformError> {
    let (shape, size) = (mesh.shape(), mesh.size());
    let numbers = |axis: usize| (-2i32..=2).filter(move |m| 2 * u64::from(m.unsigned_abs()) < shape[axis]);
    let wavenumber = |axis: usize, m: i32| std::f64::consts::TAU * f64::from(m) / size[axis];
    for x in numbers(0) {
        for y in numbers(1) {
            for z in numbers(2).filter(|z| [x, y, *z] > [0; 3]) {
                let k = [wavenumber(0, x), wavenumber(1, y), wavenumber(2, z)];
                let [value, opposite] = [k, k.map(|k| -k)].map(|k| factor(Wavevector(k)).parts());
                let most = value.iter().chain(&opposite).fold(0.0f64, |most, part| most.max(part.abs()));
                // Values that are not finite have an error of their own.
                let is_close = |a: f64, b: f64| (a - b).abs() <= 1e-5 * most || !(a - b).is_finite();
                if !is_close(value[0], opposite[0]) || !is_close(value[1], -opposite[1]) {
                    return Err(TransformError::NotConjugate { k, value, opposite });
                }
            }
        }
    }
    Ok(())
}

/// Returns the factors of the modes of `part`, in C order.
fn factors<F: ModeFactor>(
    mesh: &Mesh,
    part: &Box3,
    factor: &impl Fn(Wavevector) -> F,
) -> Result<Vec<[f64; 2]>, TransformError> {
    let (shape, size) = (mesh.shape(), mesh.size());
    let waves = [0, 1, 2].map(|a| part[a].clone().map(|i| Wave::new(i, shape[a], size[a])).collect::<Vec<_>>());
    let mut all = host_memory::reserve("factors of modes", volume(part) as usize)?;
    for x in &waves[0] {
        for y in &waves[1] {
            for z in &waves[2] {
                let value = mean_factor([x, y, z], factor);
                if value.iter().all(|part| part.is_finite()) {
                    all.push(value);
                } else if [x, y, z].iter().all(|wave| wave.k == 0.0) {
                    all.push([0.0; 2]);
                } else {
                    let k = [x.k, y.k, z.k];
                    return Err(TransformError::Factor { k, value });
                }
            }
        }
    }
    Ok(all)
}

/// Returns the mean of the factor over the signs of wavenumbers that stand for both.
fn mean_factor<F: ModeFactor>(waves: [&Wave; 3], factor: &impl Fn(Wavevector) -> F) -> [f64; 2] {
    let (mut sum, mut count) = ([0.0; 2], 0.0);
    for signs in 0..8 {
        let is_negative = |axis: usize| signs >> axis & 1 == 1;
        if (0..3).any(|axis| is_negative(axis) && !waves[axis].nyquist) {
            continue;
        }
        let k = [0, 1, 2].map(|axis| if is_negative(axis) { -waves[axis].k } else { waves[axis].k });
        let parts = factor(Wavevector(k)).parts();
        sum = [sum[0] + parts[0], sum[1] + parts[1]];
        count += 1.0;
    }
    sum.map(|part| part / count)
}
