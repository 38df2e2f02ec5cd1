//! Forward, multiply, inverse, in as few passes as can be.

use std::marker::PhantomData;

use super::callbacks::PassCallbacks;
use super::error::FftError;
use super::pass::Tables;
use super::plan::{Plan, Route};
use super::run::{End, ReadyRoute, Run};
use super::spec::{Distribution, Spec};
use super::transform::{Value, check_rank};
use super::tuning::Tuning;
use crate::exchange::{ExchangeError, GridComms};
use crate::gpu::{Array, Callback, DeviceError, Gpu, Recorder};
use crate::grid::{Box3, FieldLayout, volume};

/// Multiplies fields in Fourier space: `inverse(callback(forward(field)))`, for one or more results of each field.
///
/// - The callback runs between the two halves of the last axis' pass, so the spectrum is never written: five passes for
///   three axes instead of seven, and ten for one density and the three components of a force instead of fifteen. Where the
///   last axis is too long for one pass, or a real line, two transforms with the callback on the second's load do the
///   same.
/// - With [`Spec::points`] twice the cells it is a linear convolution; with as many, a circular one.
/// - Result `r` of field `f` is field `f * results + r` of the output.
///
/// Source of the ten passes: counting; of the method: Hockney & Eastwood 1981.
pub struct Filter<T = f32> {
    plan: Plan,
    kind: Kind,
    results: u32,
    spectrum: Box3,
    value: PhantomData<T>,
}

enum Kind {
    Fused(Box<ReadyRoute>),
    Apart { forward: Box<ReadyRoute>, inverse: Vec<ReadyRoute> },
}

impl<T: Value> Filter<T> {
    /// The filter of fields as `spec` says (values and precision are those of `T`; its modes and distribution do not
    /// matter) for `rank` of the grid of `lines`, with `results` for each field. The callback may be made knowing
    /// [`spectrum_part`](Self::part_of).
    ///
    /// # Errors
    /// [`FftError`] for what cannot be transformed on this device.
    pub fn new(
        gpu: &Gpu,
        spec: &Spec,
        lines: &GridComms,
        tuning: &Tuning,
        callback: &Callback,
        results: u32,
    ) -> Result<Self, FftError> {
        let (plan, route) = Self::plan_of(gpu, spec, lines, tuning, results)?;
        let limits = tuning.limits(gpu.capabilities());
        let mut tables = Tables::new(gpu)?;
        let spectrum = spectrum_of(&plan, route.as_ref());
        let kind = match route {
            Some(route) => {
                let callbacks = PassCallbacks { filter: Some(callback.clone()), ..PassCallbacks::default() };
                Kind::Fused(Box::new(ReadyRoute::new(route, &callbacks, limits, &mut tables)?))
            }
            None => {
                let forward = ReadyRoute::new(plan.forward.clone(), &PassCallbacks::default(), limits, &mut tables)?;
                let inverse = (0..results)
                    .map(|result| {
                        let callbacks =
                            PassCallbacks { load_mode: Some(callback.clone()), result, ..PassCallbacks::default() };
                        ReadyRoute::new(plan.inverse.clone(), &callbacks, limits, &mut tables)
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
        lines: &GridComms,
        tuning: &Tuning,
        results: u32,
    ) -> Result<(Plan, Option<Route>), FftError> {
        let spec = Spec {
            values: T::VALUES,
            precision: T::PRECISION,
            modes: spec.points,
            distribution: Distribution::Transposed,
            ..spec.clone()
        };
        spec.precision.check(&gpu.info().name, gpu.capabilities())?;
        let limits = tuning.limits(gpu.capabilities());
        let plan = Plan::new(&spec, lines.grid(), lines.rank(), limits, tuning.pieces)?;
        let route = plan.filter(results, limits, tuning.pieces)?;
        Ok((plan, route))
    }

    /// The modes that the callback of a filter will see on this rank: for tables.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn part_of(gpu: &Gpu, spec: &Spec, lines: &GridComms, tuning: &Tuning) -> Result<Box3, FftError> {
        let (plan, route) = Self::plan_of(gpu, spec, lines, tuning, 1)?;
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

    /// Bytes that it moves through device memory.
    pub fn traffic(&self) -> u64 {
        match &self.kind {
            Kind::Fused(route) => route.route.traffic(),
            Kind::Apart { forward, inverse } => {
                forward.route.traffic() + inverse.iter().map(|route| route.route.traffic()).sum::<u64>()
            }
        }
    }

    /// Filters `field` into `output`, another array. All ranks call it.
    ///
    /// # Errors
    /// [`ExchangeError`] of the device or the ranks; [`DeviceError::Misuse`] for arrays of the wrong length.
    pub fn apply(
        &self,
        recorder: &mut Recorder,
        lines: &mut GridComms,
        field: &Array<T>,
        layout: &FieldLayout,
        output: &Array<T>,
        output_layout: &FieldLayout,
    ) -> Result<(), ExchangeError> {
        let misuse = |why: String| Err(DeviceError::Misuse { what: "Filter::apply".into(), why }.into());
        check_rank("Filter::apply", &self.plan, lines)?;
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
        let [there, back] = self.plan.spec.factors();
        let from = End { array: field.raw(), layout: Some(layout) };
        let to = End { array: output.raw(), layout: Some(output_layout) };
        let run = |recorder: &mut Recorder,
                   lines: &mut GridComms,
                   ready: &ReadyRoute,
                   (input, output): (End<'_>, End<'_>),
                   scale: f64,
                   result: [u64; 2]| {
            Run::<T::Mode> { ready, input, output, scale, interior: 1.0, result, operator: None, element: PhantomData }
                .run(recorder, lines)
        };
        match &self.kind {
            Kind::Fused(route) => run(recorder, lines, route, (from, to), there * back, [0, 1]),
            Kind::Apart { forward, inverse } => {
                let len = volume(&self.plan.spectrum) * fields;
                let spectrum = recorder.gpu().array::<T::Mode>("fft::filter", len)?;
                let modes = End { array: spectrum.raw(), layout: None };
                run(recorder, lines, forward, (from, modes), there, [0, 1])?;
                let results = u64::from(self.results);
                let mut each = (0..results).zip(inverse);
                each.try_for_each(|(r, route)| run(recorder, lines, route, (modes, to), back, [r, results]))
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
