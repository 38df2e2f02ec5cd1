//! Whole transforms with their kernel and table, ready to be recorded.

use super::core::Limits;
use super::error::FftError;
use super::line::LineParams;
use super::options::PassCallbacks;
use super::pass::{DeviceTables, on_mode};
use super::plan::{Placement, Plan, Route, StagePart, Whole};
use super::spec::{Precision, Spec, Values};
use crate::gpu::{Callback, DeviceError, Kernel, KernelSource, RawArray, Recorder};
use crate::grid::Grid;

/// A whole transform, which is compiled when it is first dispatched.
pub(super) struct ReadyWhole {
    callbacks: PassCallbacks,
    kernel: Kernel,
    table: Option<RawArray>,
}

/// The arrays of a dispatch and where their elements are.
pub(super) struct WholeArrays<'a> {
    pub input: (&'a RawArray, Placement<'a>),
    pub output: (&'a RawArray, Placement<'a>),
}

impl WholeArrays<'_> {
    /// Returns `true` if one dispatch can transform the arrays: each has one window, and no field
    /// is written before another one is read.
    pub fn fit(&self) -> bool {
        let [input, output] = [self.input.0, self.output.0];
        input.windows() == 1 && output.windows() == 1 && !input.shares(output)
    }
}

impl ReadyWhole {
    /// Creates the kernel of a route with its callbacks.
    pub fn new(
        whole: &Whole,
        route: &Route,
        callbacks: &PassCallbacks,
        tables: &mut DeviceTables,
    ) -> Result<Self, FftError> {
        let (source, table) = whole.source(route, callbacks);
        let precision = whole.kernel(route, 0).precision;
        let table = (!table.is_empty()).then(|| tables.of(precision, table)).transpose()?;
        let kernel = Kernel::with_trust(callbacks.trust(), source);
        Ok(ReadyWhole { callbacks: callbacks.clone(), kernel, table })
    }

    /// Records the transform, whose result is multiplied by `scale` and modes that stand for two by
    /// `interior`. `operator` replaces the callback on modes that are read: the same text with
    /// other arrays and parameters.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        (whole, route): (&Whole, &Route),
        arrays: &WholeArrays<'_>,
        [scale, interior]: [f64; 2],
        operator: Option<&Callback>,
    ) -> Result<(), DeviceError> {
        let last = whole.parts.len() - 1;
        let [first_stage, last_stage] = [0, last].map(|part| &route.stages[whole.parts[part].stage]);
        let all = |cells: [u64; 3]| StagePart { cells: cells.map(|n| 0..n), fields: 0..first_stage.fields[0] };
        let input = first_stage.params(
            &whole.kernel(route, 0),
            &all(first_stage.before),
            arrays.input.1,
            Placement::Array { origin: [0; 3], extent: first_stage.after, first: 0 },
        );
        let output = last_stage.params(
            &whole.kernel(route, last),
            &all(last_stage.before),
            Placement::Array { origin: [0; 3], extent: last_stage.before, first: 0 },
            arrays.output.1,
        );
        // Workgroups count the axis that is not transformed, then fields.
        let batch: u64 = (0..3).filter(|&axis| whole.strides[axis] == 0).map(|axis| first_stage.before[axis]).product();
        let workgroups: u64 = batch * first_stage.fields[0];
        let params = LineParams {
            line_sizes: [batch as u32, 0, 0, workgroups as u32],
            line_output: output.line_output,
            line_output_more: output.line_output_more,
            ..input
        };
        let params = params.scaled(scale, interior as f32);
        let callbacks = PassCallbacks {
            load_mode: operator.or(self.callbacks.load_mode.as_ref()).cloned(),
            ..self.callbacks.clone()
        };
        let mut bound: Vec<&RawArray> = [arrays.input.0, arrays.output.0].into_iter().chain(&self.table).collect();
        bound.extend(callbacks.arrays());
        let bytes = [bytemuck::bytes_of(&params), &callbacks.values()].concat();
        recorder.dispatch_bytes(&self.kernel, &bound, &bytes, workgroups)
    }

    /// Returns the device memory of the table in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.table.as_ref().map_or(0, RawArray::bytes)
    }
}

/// Returns kernels of whole transforms on devices with `limits`: of two and three axes, real and
/// complex, with convolutions along one of them, with an axis among workgroups, padded and cut, and
/// with a multiplication of modes.
#[doc(hidden)]
#[must_use]
pub fn whole_kernels(precision: Precision, limits: Limits) -> Vec<KernelSource> {
    let of = |cells: [u64; 3]| Spec { precision, ..Spec::of::<f32>(cells) };
    let shapes = [
        of([1, 24, 32]),
        of([9, 10, 8]),
        of([1, 37, 6]),
        of([1, 6, 41]),
        of([3, 20, 18]).axes([false, true, true]),
        of([5, 6, 7]).points([10, 12, 14]).modes([6, 12, 9]),
    ];
    let grid = Grid::new([1, 1], 1).ok();
    let callbacks = PassCallbacks { filter: Some(on_mode()), ..PassCallbacks::default() };
    let mut all = Vec::new();
    for spec in shapes
        .into_iter()
        .flat_map(|spec| [Values::Real, Values::Complex].map(|values| Spec { values, ..spec.clone() }))
    {
        let Some(plan) = grid.and_then(|grid| Plan::new(&spec, grid, 0, limits, 1).ok()) else { continue };
        let filter = plan.filter(1, limits, 1).ok().flatten();
        for route in [Some(plan.forward), Some(plan.inverse), filter].into_iter().flatten() {
            all.extend(route.whole.iter().map(|whole| whole.source(&route, &callbacks).0));
        }
    }
    all
}
