//! Passes with their kernels and tables, ready to be recorded, and all their kernels as text for
//! tests.

use super::axis::{AxisPass, PointFactors, passes};
use super::core::Limits;
use super::error::FftError;
use super::line::{LineFormat, LineKernel, LineParams, LineWorkgroup, Order, Side, Span, Work};
use super::operator::radial;
use super::options::{PassCallbacks, PassPosition};
use super::plan::Stage;
use super::reach::{PassArrays, PassInput};
use super::spec::Precision;
use super::tables::Table;
use crate::gpu::{Callback, CallbackKey, DeviceError, Gpu, Kernel, KernelSource, RawArray, Recorder};
use std::collections::HashMap;
use std::sync::OnceLock;

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
                if *key != source.key() {
                    let why = "the text is another than in the first run; create another transform for it";
                    return Err(DeviceError::misuse("Source of a transform", why));
                }
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
    for [cells, modes] in [[PLAIN; 2], real].into_iter().take(axis) {
        let value = if cells.format == LineFormat::Real { "Real" } else { "Complex" };
        let there =
            PassCallbacks { load: Some(on("on_load", value)), store_mode: Some(on_mode()), ..PassCallbacks::default() };
        let back = PassCallbacks {
            load_mode: Some(on_mode()),
            store: Some(on("on_store", value)),
            ..PassCallbacks::default()
        };
        let none = PassCallbacks::default();
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
