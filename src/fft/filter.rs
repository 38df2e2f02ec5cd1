//! Multiplication in Fourier space: forward transform, factors, inverse transform, in few passes.

use std::fmt;
use std::marker::PhantomData;

use super::callbacks::PassCallbacks;
use super::error::FftError;
use super::options::{FilterOptions, TransformTuning};
use super::pass::DeviceTables;
use super::plan::{Plan, Route};
use super::run::{Checked, ReadyRoute, Run, UserArray};
use super::spec::{Distribution, Spec, Value};
use crate::exchange::{ExchangeError, GridComms};
use crate::gpu::{Array, Callback, DeviceError, Gpu, Recorder};
use crate::grid::{Box3, FieldLayout, volume};

/// Multiplies fields in Fourier space: `inverse(callback(forward(field)))`, with one or more results of
/// each field.
///
/// - The callback runs inside the pass along the last axis of the route, so the spectrum is never
///   written: five passes for three axes instead of seven, and ten instead of fifteen for a density and
///   the three components of its force.
/// - If the last axis is too long for one pass or a real line, or if two transforms move fewer sectors of
///   memory, the filter is a forward and an inverse transform with the callback on its first pass.
/// - With [`Spec::points`] equal to the cells it is a circular convolution, with twice as many points a
///   linear one.
/// - Result `r` of field `f` is field `f * results + r` of the output.
///
/// The filter is a list of routes between fields, so it is not a form of a
/// [`Transform`](super::Transform), whose two routes lead to modes and back.
///
/// Reference: Hockney & Eastwood (1981).
pub struct Filter<T = f32> {
    plan: Plan,
    kind: Kind,
    results: u32,
    spectrum: Box3,
    value: PhantomData<T>,
}

impl<T> fmt::Debug for Filter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("spec", &self.plan.spec).field("results", &self.results).finish_non_exhaustive()
    }
}

enum Kind {
    Fused(Box<ReadyRoute>),
    Apart { forward: Box<ReadyRoute>, inverse: Vec<ReadyRoute> },
}

impl<T: Value> Filter<T> {
    /// Creates the filter of the fields that `spec` describes, for the rank of `comms`.
    ///
    /// The modes and the distribution of `spec` have no effect. `callback` defines `on_mode`; see
    /// [`TransformCallbacks`](super::TransformCallbacks). [`part_of`](Self::part_of) returns the modes on
    /// which it runs.
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
        let (plan, route) = Self::plan_of(gpu, spec, comms, options)?;
        let mut tables = DeviceTables::new(gpu)?;
        let (spectrum, results) = (spectrum_of(&plan, route.as_ref()), options.results);
        let kind = match route {
            Some(route) => {
                let callbacks = PassCallbacks { filter: Some(callback.clone()), ..PassCallbacks::default() };
                Kind::Fused(Box::new(ReadyRoute::new(route, &callbacks, &mut tables)?))
            }
            None => {
                let forward = ReadyRoute::new(plan.forward.clone(), &PassCallbacks::default(), &mut tables)?;
                let inverse = (0..results)
                    .map(|result| {
                        let callbacks =
                            PassCallbacks { load_mode: Some(callback.clone()), result, ..PassCallbacks::default() };
                        ReadyRoute::new(plan.inverse.clone(), &callbacks, &mut tables)
                    })
                    .collect::<Result<_, _>>()?;
                Kind::Apart { forward: Box::new(forward), inverse }
            }
        };
        Ok(Filter { plan, kind, results, spectrum, value: PhantomData })
    }

    fn plan_of(
        gpu: &Gpu,
        spec: &Spec,
        comms: &GridComms,
        options: &FilterOptions,
    ) -> Result<(Plan, Option<Route>), FftError> {
        spec.check_elements::<T>()?;
        let spec = Spec { modes: spec.points, distribution: Distribution::Transposed, ..spec.clone() };
        spec.precision.check(&gpu.info().name, gpu.capabilities())?;
        let tuning = options.tuning.unwrap_or_else(|| TransformTuning::of(gpu));
        let limits = tuning.limits(gpu.common());
        let plan = Plan::new(&spec, comms.grid(), comms.rank(), limits, tuning.pieces)?;
        let route = plan.filter(options.results, limits, tuning.pieces)?;
        Ok((plan, route))
    }

    /// Returns the modes of this rank on which the callback of such a filter runs, for tables.
    ///
    /// # Errors
    /// Same as [`new`](Self::new).
    pub fn part_of(gpu: &Gpu, spec: &Spec, comms: &GridComms, options: &FilterOptions) -> Result<Box3, FftError> {
        let (plan, route) = Self::plan_of(gpu, spec, comms, options)?;
        Ok(spectrum_of(&plan, route.as_ref()))
    }

    /// Returns the modes of this rank on which the callback runs.
    pub fn spectrum_part(&self) -> Box3 {
        self.spectrum.clone()
    }

    /// Returns the cells of this rank.
    pub fn field_part(&self) -> Box3 {
        self.plan.field.clone()
    }

    /// Returns the layout of this rank's cells without ghost cells.
    pub fn field_layout(&self) -> FieldLayout {
        FieldLayout::new(self.field_part(), [[0; 2]; 3])
    }

    /// Returns the routes of the filter in the order of their execution.
    pub fn routes(&self) -> Vec<&Route> {
        match &self.kind {
            Kind::Fused(route) => vec![&route.route],
            Kind::Apart { forward, inverse } => {
                std::iter::once(&forward.route).chain(inverse.iter().map(|route| &route.route)).collect()
            }
        }
    }

    /// Returns the bytes that device memory moves; see [`Route::traffic`].
    pub fn traffic(&self) -> u64 {
        self.routes().into_iter().map(Route::traffic).sum()
    }

    /// Filters `field` into `output`, another array. Collective.
    ///
    /// # Errors
    /// - [`DeviceError::Misuse`] if an array is too short, a layout has other cells than this rank, or
    ///   `comms` has another process grid.
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
        let misuse = |why: String| Err(DeviceError::Misuse { what: CALL.into(), why }.into());
        self.plan.check_rank(CALL, comms)?;
        let fields = self.plan.spec.fields;
        let results = fields * u64::from(self.results);
        for (name, array, layout, count) in
            [("a field", field, layout, fields), ("an output", output, output_layout, results)]
        {
            if layout.own != self.plan.field {
                return misuse(format!("{name} of cells {:?}, this rank has {:?}", layout.own, self.plan.field));
            }
            Checked { call: CALL, name }.length(array.len(), layout.len().saturating_mul(count))?;
        }
        if field.raw().shares(output.raw()) {
            return misuse("field and output are one array".into());
        }
        let [forward_factor, inverse_factor] = self.plan.spec.factors();
        let subject = |what: &str| self.plan.subject(what).with(&[self.results.into()]);
        let (field, output) = (UserArray::field(field, layout), UserArray::field(output, output_layout));
        match &self.kind {
            Kind::Fused(route) => {
                let factor = forward_factor * inverse_factor;
                Run::<T::Mode>::new(subject("filter"), route, [field, output], factor).run(recorder, comms)
            }
            Kind::Apart { forward, inverse } => {
                let modes = recorder.gpu().array::<T::Mode>("fft::filter", volume(&self.plan.spectrum) * fields)?;
                let modes = UserArray::spectrum(&modes);
                let forward_subject = subject("filter, to modes,");
                Run::<T::Mode>::new(forward_subject, forward, [field, modes], forward_factor).run(recorder, comms)?;
                let results = u64::from(self.results);
                (0..results).zip(inverse).try_for_each(|(r, route)| {
                    let subject = subject("filter, to cells,").with(&[r]);
                    let run = Run::<T::Mode>::new(subject, route, [modes, output], inverse_factor);
                    Run { result: [r, results], ..run }.run(recorder, comms)
                })
            }
        }
    }
}

/// Returns the modes of a rank on which the callback runs.
fn spectrum_of(plan: &Plan, route: Option<&Route>) -> Box3 {
    let Some(route) = route else { return plan.spectrum.clone() };
    let fused = route
        .stages
        .iter()
        .find(|stage| stage.passes.iter().any(|p| matches!(p.kernel.work, super::line::Work::Filter(_))));
    fused.map_or(plan.spectrum.clone(), |stage| {
        [0, 1, 2].map(|a| {
            if a == stage.axis { 0..plan.spec.points[a] } else { stage.first[a]..stage.first[a] + stage.before[a] }
        })
    })
}
