//! The Hartley transform, `Re F x + Im F x` of real fields: a complex transform whose first pass reads real numbers and whose last pass writes them.

use super::callbacks::PassCallbacks;
use super::error::FftError;
use super::line::LineFormat;
use super::pass::DeviceTables;
use super::plan::{Plan, Route};
use super::precision::Precision;
use super::run::{ReadyRoute, Run, UserArray};
use super::spec::{Spec, Values};
use super::transform::check_rank;
use super::tuning::TransformTuning;
use crate::exchange::{ExchangeError, GridComms};
use crate::gpu::{Array, DeviceError, Gpu, Recorder};
use crate::grid::{Box3, FieldLayout, Grid, volume};

/// The Hartley transform of real fields for one rank, and its transpose: `y(k) = sum over j of x(j) (cos - sin)(2 pi j k / n)`, unnormalised, in single
/// precision. Modes are all those of the mesh, one real number each, where a complex transform of the same fields leaves them.
///
/// The first pass reads real numbers and the last one writes the sum of real and imaginary part: 40 bytes a point of three axes and 24 of two, instead of 72
/// and 56 with passes of their own before and after a complex transform. The matrix is symmetric, so the transpose is the same transform on the way back
/// from modes to cells, and where lines of several axes are alike so are its kernels. The half spectrum has the same numbers, but the mirror of a mode is on another rank, and to bring it here costs an exchange.
pub(crate) struct Hartley {
    plan: Plan,
    to_modes: ReadyRoute,
    to_cells: ReadyRoute,
}

impl Hartley {
    /// The transform of fields as `spec` says, but for its values, precision and factor, for `rank` of `grid`.
    ///
    /// # Errors
    /// [`FftError`] for what cannot be transformed on this device.
    pub fn new(gpu: &Gpu, spec: &Spec, grid: Grid, rank: usize, tuning: &TransformTuning) -> Result<Self, FftError> {
        let spec = Spec { values: Values::Complex, precision: Precision::Single, ..spec.clone() };
        let limits = tuning.limits(gpu.common());
        let mut plan = Plan::with_transpose(&spec, grid, rank, limits, tuning.pieces)?;
        (plan.forward, plan.inverse) = (between_reals(plan.forward), between_reals(plan.inverse));
        let (mut tables, callbacks) = (DeviceTables::new(gpu)?, PassCallbacks::default());
        Ok(Hartley {
            to_modes: ReadyRoute::new(plan.forward.clone(), &callbacks, &mut tables)?,
            to_cells: ReadyRoute::new(plan.inverse.clone(), &callbacks, &mut tables)?,
            plan,
        })
    }

    /// The passes and exchanges to modes, and back.
    pub fn routes(&self) -> [&Route; 2] {
        [&self.plan.forward, &self.plan.inverse]
    }

    /// Records the modes of `cells`. All ranks call it.
    ///
    /// # Errors
    /// [`ExchangeError`] of the device or the ranks; [`DeviceError::Misuse`] for arrays of the wrong length.
    pub fn to_modes(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        cells: &Array<f32>,
        modes: &Array<f32>,
    ) -> Result<(), ExchangeError> {
        let parts = [&self.plan.field, &self.plan.spectrum];
        self.run("Hartley transform to modes", &self.to_modes, (recorder, comms), [cells, modes], parts)
    }

    /// Records the transpose of [`to_modes`](Self::to_modes): cells of `modes`. All ranks call it.
    ///
    /// # Errors
    /// As [`to_modes`](Self::to_modes).
    pub fn to_cells(
        &self,
        recorder: &mut Recorder,
        comms: &mut GridComms,
        modes: &Array<f32>,
        cells: &Array<f32>,
    ) -> Result<(), ExchangeError> {
        let parts = [&self.plan.spectrum, &self.plan.field];
        self.run("Hartley transform to cells", &self.to_cells, (recorder, comms), [modes, cells], parts)
    }

    fn run(
        &self,
        what: &str,
        ready: &ReadyRoute,
        (recorder, comms): (&mut Recorder, &mut GridComms),
        [from, to]: [&Array<f32>; 2],
        parts: [&Box3; 2],
    ) -> Result<(), ExchangeError> {
        check_rank(what, &self.plan, comms)?;
        let misuse = |why: String| Err(DeviceError::Misuse { what: what.into(), why }.into());
        for (array, part) in [from, to].into_iter().zip(parts) {
            let needed = volume(part) * self.plan.spec.fields;
            if array.len() < needed {
                return misuse(format!("an array of {} elements, {needed} are needed", array.len()));
            }
        }
        if from.raw().shares(to.raw()) {
            return misuse("cells and modes are one array; give two".into());
        }
        let [before, after] = parts.map(|part| FieldLayout::new(part.clone(), [[0; 2]; 3]));
        let (from, to) = (UserArray::field(from, &before), UserArray::field(to, &after));
        Run::<[f32; 2]>::new(self.plan.subject(what), ready, [from, to], 1.0).run(recorder, comms)
    }
}

/// The route with real numbers at both ends.
fn between_reals(mut route: Route) -> Route {
    let mut passes = route.stages.iter_mut().flat_map(|stage| &mut stage.passes);
    if let Some(first) = passes.next() {
        first.kernel.input.format = LineFormat::Hartley;
        let last = passes.last().unwrap_or(first);
        last.kernel.output.format = LineFormat::Hartley;
    }
    route
}
