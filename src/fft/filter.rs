//! Multiplication in Fourier space: forward, multiply, inverse, in as few passes as possible.

use std::fmt;
use std::marker::PhantomData;

use super::callbacks::PassCallbacks;
use super::error::FftError;
use super::pass::DeviceTables;
use super::plan::{Plan, Route};
use super::run::{ReadyRoute, Run, UserArray};
use super::spec::{Distribution, Spec, Value};
use super::transform::check_rank;
use super::tuning::TransformTuning;
use crate::exchange::{ExchangeError, GridComms};
use crate::gpu::{Array, Callback, DeviceError, Gpu, Recorder};
use crate::grid::{Box3, FieldLayout, volume};

/// Multiplies fields in Fourier space: `inverse(callback(forward(field)))`, for one or more results of each field.
///
/// - The callback runs between the two halves of the last axis' pass, so the spectrum is never written: five passes for
///   three axes instead of seven, and ten for one density and the three components of a force instead of fifteen. Where the
///   last axis is too long for one pass, or takes so few lines at once that two transforms move fewer sectors of memory, or is a real
///   line, two transforms with the callback on the second's load do the same.
/// - With [`Spec::points`] twice the cells it is a linear convolution; with as many, a circular one.
/// - Result `r` of field `f` is field `f * results + r` of the output.
///
/// The method is that of Hockney & Eastwood (1981).
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
    /// Creates the filter of the fields that `spec` describes for the rank of `comms`, with `results` for each field. The
    /// modes and the distribution of `spec` have no effect. `callback` defines `on_mode`, as
    /// [`TransformCallbacks`](super::TransformCallbacks) describes; [`part_of`](Self::part_of) returns the modes that it
    /// sees.
    ///
    /// # Errors
    /// [`FftError::Elements`] if `spec` has other values or another precision than `T`; other variants of [`FftError`] if
    /// the device cannot transform the field.
    pub fn new(
        gpu: &Gpu,
        spec: &Spec,
        comms: &GridComms,
        tuning: &TransformTuning,
        callback: &Callback,
        results: u32,
    ) -> Result<Self, FftError> {
        let (plan, route) = Self::plan_of(gpu, spec, comms, tuning, results)?;
        let mut tables = DeviceTables::new(gpu)?;
        let spectrum = spectrum_of(&plan, route.as_ref());
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
        tuning: &TransformTuning,
        results: u32,
    ) -> Result<(Plan, Option<Route>), FftError> {
        spec.check_elements::<T>()?;
        let spec = Spec { modes: spec.points, distribution: Distribution::Transposed, ..spec.clone() };
        spec.precision.check(&gpu.info().name, gpu.capabilities())?;
        let limits = tuning.limits(gpu.common());
        let plan = Plan::new(&spec, comms.grid(), comms.rank(), limits, tuning.pieces)?;
        let route = plan.filter(results, limits, tuning.pieces)?;
        Ok((plan, route))
    }

    /// Returns the modes that the callback of a filter sees on this rank, for tables.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn part_of(gpu: &Gpu, spec: &Spec, comms: &GridComms, tuning: &TransformTuning) -> Result<Box3, FftError> {
        let (plan, route) = Self::plan_of(gpu, spec, comms, tuning, 1)?;
        Ok(spectrum_of(&plan, route.as_ref()))
    }

    /// The modes that the callback sees on this rank.
    pub fn spectrum_part(&self) -> Box3 {
        self.spectrum.clone()
    }

    /// The cells of this rank.
    pub fn field_part(&self) -> Box3 {
        self.plan.field.clone()
    }

    /// The layout of a field without ghosts.
    pub fn field_layout(&self) -> FieldLayout {
        FieldLayout::new(self.field_part(), [[0; 2]; 3])
    }

    /// The routes that it takes, one after the other: passes and exchanges.
    pub fn routes(&self) -> Vec<&Route> {
        match &self.kind {
            Kind::Fused(route) => vec![&route.route],
            Kind::Apart { forward, inverse } => {
                std::iter::once(&forward.route).chain(inverse.iter().map(|route| &route.route)).collect()
            }
        }
    }

    /// Bytes that device memory moves for it, as [`Route::traffic`] counts them.
    pub fn traffic(&self) -> u64 {
        self.routes().into_iter().map(Route::traffic).sum()
    }

    /// Filters `field` into `output`, another array. All ranks call it.
    ///
    /// # Errors
    /// [`ExchangeError`] of the device or the ranks; [`DeviceError::Misuse`] for arrays of the wrong length.
    pub fn apply(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        field: &Array<T>,
        layout: &FieldLayout,
        output: &Array<T>,
        output_layout: &FieldLayout,
    ) -> Result<(), ExchangeError> {
        let misuse = |why: String| Err(DeviceError::Misuse { what: "Filter::apply".into(), why }.into());
        check_rank("Filter::apply", &self.plan, comms)?;
        let fields = self.plan.spec.fields;
        for (name, array, layout, count) in
            [("field", field, layout, fields), ("output", output, output_layout, fields * u64::from(self.results))]
        {
            if layout.own != self.plan.field {
                return misuse(format!("the {name} has cells {:?}, this rank has {:?}", layout.own, self.plan.field));
            }
            if array.len() < layout.len().saturating_mul(count) {
                return misuse(format!(
                    "the {name} has {} elements, {} are needed",
                    array.len(),
                    layout.len().saturating_mul(count)
                ));
            }
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
                let there = subject("filter, to modes,");
                Run::<T::Mode>::new(there, forward, [field, modes], forward_factor).run(recorder, comms)?;
                let results = u64::from(self.results);
                (0..results).zip(inverse).try_for_each(|(r, route)| {
                    let back = subject("filter, to cells,").with(&[r]);
                    let run = Run::<T::Mode>::new(back, route, [modes, output], inverse_factor);
                    Run { result: [r, results], ..run }.run(recorder, comms)
                })
            }
        }
    }
}

/// The part of the spectrum that a rank has where the callback runs.
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
