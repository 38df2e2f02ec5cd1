//! Passes and whole transforms with their kernels and tables, ready to be recorded, and all their
//! kernels as text for tests.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::axis::{AxisPass, PointFactors, passes};
use super::line::{LineFormat, LineKernel, LineParams, LineWorkgroup, Order, Side, Span, Work};
use super::operator::radial;
use super::options::{PassCallbacks, PassPosition};
use super::plan::{Placement, Plan, Route, Stage, StagePart, Whole};
use super::reach::{PassArrays, PassInput};
use super::tables::Table;
use super::{FftError, Limits, Precision, Spec, Values};
use crate::gpu::{Callback, CallbackKey, DeviceError, Gpu, Kernel, KernelSource, RawArray, Recorder};
use crate::grid::Grid;

/// Tables on the device, each created once.
pub(super) struct DeviceTables {
    recorder: Recorder,
    made: HashMap<PointFactors, RawArray>,
    /// Tables of listed blocks, by their entries.
    listed: HashMap<Vec<[u32; 2]>, RawArray>,
}

impl DeviceTables {
    pub fn new(gpu: &Gpu) -> Result<Self, DeviceError> {
        Ok(DeviceTables { recorder: Recorder::new(gpu)?, made: HashMap::new(), listed: HashMap::new() })
    }

    /// Returns the table of listed blocks with these entries.
    fn listed(&mut self, entries: Vec<[u32; 2]>) -> Result<RawArray, DeviceError> {
        if let Some(array) = self.listed.get(&entries) {
            return Ok(array.clone());
        }
        let array = self.recorder.uploaded("fft::blocks", &entries)?;
        self.listed.insert(entries, array.raw().clone());
        Ok(array.raw().clone())
    }

    /// Returns a table of twiddles and chirps on the device.
    pub fn of(&mut self, precision: Precision, table: Table) -> Result<RawArray, DeviceError> {
        self.get(precision, &PointFactors { len: table.len(), table, conjugate: false })
    }

    fn get(&mut self, precision: Precision, factors: &PointFactors) -> Result<RawArray, DeviceError> {
        if let Some(array) = self.made.get(factors) {
            return Ok(array.clone());
        }
        let mut values = factors.table.values();
        values.resize(factors.len as usize, [0.0; 2]);
        if factors.conjugate {
            values.iter_mut().for_each(|value| value[1] = -value[1]);
        }
        let array = match precision {
            Precision::Single => {
                let values: Vec<[f32; 2]> = values.into_iter().map(|v| v.map(|v| v as f32)).collect();
                self.recorder.uploaded("fft::table", &values)?.raw().clone()
            }
            Precision::Double => self.recorder.uploaded("fft::table", &values)?.raw().clone(),
        };
        self.made.insert(factors.clone(), array.clone());
        Ok(array)
    }
}

/// A pass with its kernels, which are compiled when they are first dispatched.
pub(super) struct ReadyPass {
    pub kernel: LineKernel,
    pub position: PassPosition,
    shape: LineWorkgroup,
    callbacks: PassCallbacks,
    apart: OnceLock<Kernel>,
    in_place: OnceLock<Kernel>,
    /// The kernel that reads a source, with the key of its text.
    of_source: OnceLock<(CallbackKey, Kernel)>,
    tables: Vec<RawArray>,
}

impl ReadyPass {
    pub fn new(
        (stage, pass): (&Stage, &AxisPass),
        position: PassPosition,
        callbacks: PassCallbacks,
        tables: &mut DeviceTables,
    ) -> Result<Self, FftError> {
        callbacks.check()?;
        let (kernel, shape, precision) = (pass.kernel, pass.shape.clone(), pass.kernel.precision);
        let ((source, table), trust) = (kernel.source(&shape, &callbacks), callbacks.trust());
        let own = (!table.is_empty()).then(|| PointFactors { len: table.len(), table, conjugate: false });
        let all = [&own, &pass.load_factors, &pass.store_factors];
        let arrays = all.into_iter().flatten().map(|factors| tables.get(precision, factors));
        let mut arrays: Vec<RawArray> = arrays.collect::<Result<_, _>>()?;
        if kernel.is_listed() {
            arrays.push(tables.listed(stage.listed_blocks())?);
        }
        Ok(ReadyPass {
            kernel,
            position,
            shape,
            callbacks,
            apart: OnceLock::from(Kernel::with_trust(trust, source)),
            in_place: OnceLock::new(),
            of_source: OnceLock::new(),
            tables: arrays,
        })
    }

    /// Returns the device memory of the tables in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.tables.iter().map(RawArray::bytes).sum()
    }

    /// Records the pass over `arrays`. In the first pass of a route, `operator` replaces the
    /// callback on modes: the same text with other arrays and parameters.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        arrays: &PassArrays,
        params: LineParams,
        operator: Option<&Callback>,
    ) -> Result<(), DeviceError> {
        let source = if let PassInput::Source(source) = &arrays.input { Some(source) } else { None };
        let callbacks = match (source, operator.filter(|_| self.position.first)) {
            (None, None) => &self.callbacks,
            (source, operator) => &PassCallbacks {
                source: source.cloned(),
                load_mode: operator.or(self.callbacks.load_mode.as_ref()).cloned(),
                ..self.callbacks.clone()
            },
        };
        let make = |in_place: bool| {
            let (source, _) = LineKernel { in_place, ..self.kernel }.source(&self.shape, callbacks);
            Kernel::with_trust(callbacks.trust(), source)
        };
        let PassArrays { input, output } = arrays;
        let (kernel, input) = match input {
            PassInput::Array(input) => (self.apart.get_or_init(|| make(false)), Some(input)),
            PassInput::InPlace => (self.in_place.get_or_init(|| make(true)), None),
            PassInput::Source(source) => {
                callbacks.check()?;
                let (key, kernel) = self.of_source.get_or_init(|| (source.key(), make(false)));
                let why = || "the text is another than in the first run; create another transform for it".into();
                DeviceError::ensure(*key == source.key(), "Source of a transform", why)?;
                (kernel, None)
            }
        };
        let mut arrays: Vec<&RawArray> = input.into_iter().chain([output]).chain(&self.tables).collect();
        arrays.extend(callbacks.arrays());
        let bytes = [bytemuck::bytes_of(&params), &callbacks.values()].concat();
        recorder.dispatch_bytes(kernel, &arrays, &bytes, u64::from(params.line_sizes[3]).div_ceil(self.shape.lines))
    }

    /// Returns whether one side is real and the other complex, so that in place both are used as
    /// real numbers.
    pub fn as_reals(&self) -> bool {
        LineKernel { in_place: true, ..self.kernel }.as_reals()
    }
}

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
        let (kernel, place) = (whole.kernel(route, 0), Placement::whole(first_stage.after));
        let input = first_stage.params(&kernel, &all(first_stage.before), arrays.input.1, place);
        let (kernel, place) = (whole.kernel(route, last), Placement::whole(last_stage.before));
        let output = last_stage.params(&kernel, &all(last_stage.before), place, arrays.output.1);
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

const PLAIN: Side = Side { format: LineFormat::Complex, order: Order::Strided, span: Span::Whole };

/// Returns the kernels that do not transform lines; see [`line_kernels`] for those that do.
pub(crate) fn kernels() -> Vec<KernelSource> {
    vec![radial()]
}

/// Returns the kernels that transform lines of `lengths` on devices with `limits`, in every form
/// that plans use: along contiguous and strided axes; real, half and complex; strided and in the
/// blocks of exchanges; in place, padded and cut; with callbacks; filters; and all passes of long
/// lines. Leaves out lengths that do not fit.
#[doc(hidden)]
#[must_use]
pub fn line_kernels(precision: Precision, lengths: &[u64], limits: Limits) -> Vec<KernelSource> {
    let mut all = Vec::new();
    for &n in lengths {
        for axis in [1, 2] {
            for (work, sides, callbacks) in forms(n, axis) {
                // Vectors have numbers of single precision.
                if matches!(sides[1].format, LineFormat::Vectors(_)) && precision != Precision::Single {
                    continue;
                }
                let passes = passes(precision, axis, n, work, sides, limits).unwrap_or_default();
                for (i, pass) in passes.iter().enumerate() {
                    let mut callbacks = callbacks.clone();
                    if i > 0 {
                        (callbacks.source, callbacks.load, callbacks.load_mode) = (None, None, None);
                    }
                    if i + 1 < passes.len() {
                        (callbacks.store, callbacks.store_mode) = (None, None);
                    }
                    let in_place = within(&pass.kernel) && callbacks.source.is_none();
                    let in_place = in_place.then_some(LineKernel { in_place: true, ..pass.kernel });
                    let kernels = [Some(pass.kernel), in_place].into_iter().flatten();
                    all.extend(kernels.map(|kernel| kernel.source(&pass.shape, &callbacks).0));
                }
            }
        }
    }
    all
}

/// Returns whether plans may run the kernel in place.
fn within(LineKernel { input, output, four_step, .. }: &LineKernel) -> bool {
    let is_vector = matches!(output.format, LineFormat::Vectors(_));
    let plain = [input.order, output.order] == [Order::Strided; 2] && input.span == output.span && !is_vector;
    let still = four_step.is_none_or(|step| step.input == step.output && input.format == output.format);
    plain && still
}

/// Returns the work, the sides and the callbacks of all forms for lines of `n` points.
fn forms(n: u64, axis: usize) -> Vec<(Work, [Side; 2], PassCallbacks)> {
    let blocked = |side: Side| Side { order: Order::Blocked, ..side };
    let listed = |side: Side| Side { order: Order::Listed, ..side };
    let spanned = |side: Side, span: Span| Side { span, ..side };
    let (head, kept) = (Span::Head(n.div_ceil(2)), Span::Modes(n.div_ceil(2)));
    let mut forms = vec![
        (Work::Copy, [PLAIN, blocked(PLAIN)], PassCallbacks::default()),
        (Work::Forward, [listed(PLAIN); 2], PassCallbacks::default()),
    ];
    let real = [Side { format: LineFormat::Real, ..PLAIN }, Side { format: LineFormat::Half, ..PLAIN }];
    let none = PassCallbacks::default();
    for [cells, modes] in [[PLAIN; 2], real].into_iter().take(axis) {
        let value = if cells.format == LineFormat::Real { "Real" } else { "Complex" };
        let there = PassCallbacks { load: Some(on("on_load", value)), store_mode: Some(on_mode()), ..none.clone() };
        let back = PassCallbacks { load_mode: Some(on_mode()), store: Some(on("on_store", value)), ..none.clone() };
        for (cells, modes, [there, back]) in [
            (cells, modes, [&none, &none]),
            (cells, blocked(modes), [&none, &none]),
            (spanned(cells, head), spanned(modes, kept), [&none, &none]),
            (cells, modes, [&there, &back]),
        ] {
            forms.push((Work::Forward, [cells, modes], there.clone()));
            forms.push((Work::Backward, [modes, cells], back.clone()));
        }
    }
    if axis == 2 {
        let vectors = |fields: u32| Side { format: LineFormat::Vectors(fields), ..PLAIN };
        for modes in [real[1], blocked(real[1])] {
            forms.extend([1, 3].map(|n| (Work::Backward, [modes, vectors(n)], PassCallbacks::default())));
        }
        let callbacks = PassCallbacks { source: Some(painted()), ..PassCallbacks::default() };
        forms.push((Work::Forward, real, callbacks));
    }
    let hartley = Side { format: LineFormat::Hartley, ..PLAIN };
    for sides in [[hartley, PLAIN], [PLAIN, hartley], [hartley; 2]] {
        forms.push((Work::Forward, sides, PassCallbacks::default()));
    }
    let spread = PassCallbacks { spread: Some(on_mode()), ..PassCallbacks::default() };
    for sides in [[PLAIN; 2], [blocked(PLAIN), PLAIN], [blocked(PLAIN); 2]] {
        forms.push((Work::Spread { from: 2, to: 3 }, sides, spread.clone()));
    }
    let filter = PassCallbacks { filter: Some(on_mode()), ..PassCallbacks::default() };
    for side in [PLAIN, blocked(PLAIN), spanned(PLAIN, head)] {
        forms.extend([1, 3].map(|results| (Work::Filter(results), [side; 2], filter.clone())));
    }
    forms
}

/// Returns a callback that uses all its arguments.
fn on(function: &str, value: &str) -> Callback {
    Callback::trusted(format!(
        "fn {function}(value: {value}, at: vec4<u32>) -> {value} {{ return value * Real(at.x + at.w); }}"
    ))
}

crate::gpu::kernel_params! { struct PaintedParams { painted_origin: [u32; 4], painted_by: [f32; 2] } }

/// Returns the source of the particle-mesh force, without its array.
fn painted() -> Callback {
    Callback::trusted(concat!(
        "var<storage, read> painted_cells: array<vec2<u32>>;\n",
        include_str!("../../shaders/mesh/painted_density.wgsl"),
        include_str!("../../shaders/mesh/density_source.wgsl")
    ))
    .params(&PaintedParams { painted_origin: [0; 4], painted_by: [0.0; 2] })
}

crate::gpu::kernel_params! { struct Factor { by: [f32; 4] } }

pub(super) fn on_mode() -> Callback {
    Callback::trusted(
        "fn on_mode(value: Complex, at: vec4<u32>, result: u32) -> Complex {
    return multiply(value, Complex(Real(params.by.x), Real(at.y + result)));
}",
    )
    .params(&Factor { by: [0.0; 4] })
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
