//! Carrying out the plan of a transform on a device and between ranks.

use std::marker::PhantomData;

use super::error::FftError;
use super::kernel::{Limits, LineKernel, LineParams, Order, Shape, roots};
use super::plan::{Pass, Plan, SpectrumLayout, Step, Values};
use super::spectral::{Radial, Spectral};
use crate::device::{Array, DeviceError, Gpu, Kernel, Memory, Plain, RawArray, Recorder};
use crate::exchange::{Exchange, ExchangeError, Lines};
use crate::layout::{Box3, FieldLayout, Grid, volume};

/// A pass with its compiled kernel.
struct Ready {
    pass: Pass,
    shape: Shape,
    kernel: Kernel,
    roots: Array<[f32; 2]>,
}

enum Stage {
    Pass(Box<Ready>),
    Exchange { axis: usize, transfers: crate::layout::Transfers },
}

/// What the cells of a transformed field are: `f32` or `[f32; 2]`.
pub trait Value: Plain {
    /// Real or complex.
    const VALUES: Values;
}

impl Value for f32 {
    const VALUES: Values = Values::Real;
}

impl Value for [f32; 2] {
    const VALUES: Values = Values::Complex;
}

/// The transform of fields of one shape over a process grid; of real fields unless said otherwise
/// (`Transform::<[f32; 2]>`).
///
/// - `forward` is unnormalised, `exp(-2 pi i j k / n)`; `inverse` divides by the number of cells: together they are
///   the identity.
/// - The spectrum is C order, `n0 x n1 x n2`, or half of it, `n0 x n1 x (n2 / 2 + 1)`, for real fields; it is cut along
///   its second axis by the first part of the grid and along its third by the second
///   ([`spectrum_part`](Self::spectrum_part)).
/// - Fields lie as a [`FieldLayout`] says, ghosts included; ghosts are neither read nor written.
/// - Out of place: inputs are left as they were. On one rank everything is recorded and nothing submitted; see
///   [`Exchange::run`] for more.
/// - The result is the same, to the bit, for every process grid.
pub struct Transform<T = f32> {
    plan: Plan,
    forward: Vec<Stage>,
    inverse: Vec<Stage>,
    /// The first pass of the inverse with a multiplication on load.
    multiplied: Option<Box<Ready>>,
    radial: Radial,
    value: PhantomData<T>,
}

/// Where a step's data lies.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Outgoing,
    Incoming,
}

impl<T: Value> Transform<T> {
    /// Plans the transform of a mesh of `shape` for `rank` of `grid`. Kernels are compiled when they are first used.
    ///
    /// # Errors
    /// [`FftError`] for lengths that cannot be transformed on this device.
    pub fn new(gpu: &Gpu, shape: [u64; 3], grid: Grid, rank: usize) -> Result<Self, FftError> {
        let plan = Plan::new(T::VALUES, shape, grid, rank)?;
        let mut tables = Tables { recorder: Recorder::new(gpu)?, made: Vec::new() };
        let mut stages = |steps: &[Step]| -> Result<Vec<Stage>, FftError> {
            let stage = |step: &Step| match step {
                Step::Pass(pass) => Ok(Stage::Pass(Box::new(tables.ready(gpu, *pass)?))),
                Step::Exchange { axis, transfers } => Ok(Stage::Exchange { axis: *axis, transfers: transfers.clone() }),
            };
            steps.iter().map(stage).collect()
        };
        let (forward, inverse) = (stages(&plan.forward)?, stages(&plan.backward)?);
        let multiplied = match plan.backward.first() {
            Some(Step::Pass(pass)) => {
                let kernel = LineKernel { spectral: true, ..pass.kernel };
                Some(Box::new(tables.ready(gpu, Pass { kernel, ..*pass })?))
            }
            _ => None,
        };
        Ok(Transform { plan, forward, inverse, multiplied, radial: Radial::default(), value: PhantomData })
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
        SpectrumLayout { values: T::VALUES, shape: self.plan.shape, part: self.spectrum_part() }
    }

    /// An array for this rank's part of a spectrum.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    pub fn spectrum(&self, gpu: &Gpu) -> Result<Array<[f32; 2]>, DeviceError> {
        gpu.array("fft::spectrum", volume(&self.plan.spectrum))
    }

    /// The spectrum of `field`. All ranks call it.
    ///
    /// # Errors
    /// [`ExchangeError`] of the device or the ranks.
    pub fn forward(
        &self,
        recorder: &mut Recorder,
        lines: &mut Lines,
        field: &Array<T>,
        layout: &FieldLayout,
        spectrum: &Array<[f32; 2]>,
    ) -> Result<(), ExchangeError> {
        self.run(recorder, lines, &self.forward, None, field.raw(), spectrum.raw(), layout, 1.0)
    }

    /// The field of `spectrum`, multiplied by `operator` on the way if there is one. All ranks call it.
    ///
    /// # Errors
    /// [`ExchangeError`] of the device or the ranks.
    pub fn inverse(
        &self,
        recorder: &mut Recorder,
        lines: &mut Lines,
        spectrum: &Array<[f32; 2]>,
        operator: Option<&Spectral>,
        field: &Array<T>,
        layout: &FieldLayout,
    ) -> Result<(), ExchangeError> {
        let scale = 1.0 / self.plan.shape.iter().map(|&n| n as f64).product::<f64>();
        self.run(recorder, lines, &self.inverse, operator, spectrum.raw(), field.raw(), layout, scale as f32)
    }

    /// Records `spectrum *= amplitudes[|m|^2]`, with the mode numbers `m` (`|m_i| <= n_i / 2`) of a cubic mesh.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the table is too short.
    pub fn scale_radially(
        &self,
        recorder: &mut Recorder,
        spectrum: &Array<[f32; 2]>,
        amplitudes: &[f32],
    ) -> Result<(), DeviceError> {
        self.radial.scale(recorder, spectrum, self.plan.shape, &self.plan.spectrum, amplitudes)
    }

    #[expect(clippy::too_many_arguments, reason = "the two directions share all of it")]
    fn run(
        &self,
        recorder: &mut Recorder,
        lines: &mut Lines,
        stages: &[Stage],
        operator: Option<&Spectral>,
        input: &RawArray,
        output: &RawArray,
        layout: &FieldLayout,
        scale: f32,
    ) -> Result<(), ExchangeError> {
        let gpu = recorder.gpu().clone();
        let outgoing = gpu.array_in::<[f32; 2]>("fft::outgoing", self.plan.working, Memory::Outgoing)?;
        let incoming = gpu.array_in::<[f32; 2]>("fft::incoming", self.plan.working, Memory::Incoming)?;
        let array = |place: Place| if place == Place::Outgoing { &outgoing } else { &incoming };
        let places = places(stages);
        let last = stages.len() - 1;
        for (i, stage) in stages.iter().enumerate() {
            match stage {
                Stage::Exchange { axis, transfers } => {
                    let exchange: &mut Exchange = lines.along(*axis);
                    exchange.run(recorder, transfers, &outgoing, &incoming)?;
                }
                Stage::Pass(ready) => {
                    let from = if i == 0 { input } else { array(places[i - 1]).raw() };
                    let to = if i == last { output } else { array(places[i]).raw() };
                    let factor = if i == last { scale } else { 1.0 };
                    let multiplied = self.multiplied.as_deref().filter(|_| i == 0);
                    match (operator, multiplied) {
                        (Some(operator), Some(ready)) => {
                            ready.dispatch(recorder, from, to, layout, factor, Some((operator, &self.plan.spectrum)))?
                        }
                        _ => ready.dispatch(recorder, from, to, layout, factor, None)?,
                    }
                }
            }
        }
        Ok(())
    }
}

/// Where each stage puts its result: what is exchanged must lie in the outgoing array and arrives in the incoming one,
/// and a pass never writes what it reads.
fn places(stages: &[Stage]) -> Vec<Place> {
    let exchange = |stage: &Stage| matches!(stage, Stage::Exchange { .. });
    let mut places: Vec<Place> = Vec::new();
    for (i, stage) in stages.iter().enumerate() {
        let outgoing = match stages[i..].iter().position(exchange) {
            _ if exchange(stage) => false,
            // Passes alternate, the last before an exchange fills the outgoing array.
            Some(passes) => passes % 2 == 1,
            None => places.last().is_none_or(|&last| last == Place::Incoming),
        };
        places.push(if outgoing { Place::Outgoing } else { Place::Incoming });
    }
    places
}

impl Ready {
    fn dispatch(
        &self,
        recorder: &mut Recorder,
        input: &RawArray,
        output: &RawArray,
        layout: &FieldLayout,
        scale: f32,
        operator: Option<(&Spectral, &Box3)>,
    ) -> Result<(), DeviceError> {
        let Pass { kernel, outer, inner, parts_in, parts_out, reads_field, writes_field } = self.pass;
        let lines = outer * inner;
        let place = |field: bool, length: u64| {
            if field {
                let [x, y, z] = layout.strides();
                ([layout.offset(), x, y, z].map(|n| n as u32), layout.own[1].end - layout.own[1].start)
            } else {
                ([0, length * inner, 0, inner].map(|n| n as u32), 1)
            }
        };
        let [length_in, length_out] = kernel.lengths();
        let (input_at, rows_in) = place(reads_field, length_in);
        let (output_at, rows_out) = place(writes_field, length_out);
        let mut params = LineParams {
            input: input_at,
            output: output_at,
            lines: lines as u32,
            inner: inner as u32,
            outer: outer as u32,
            parts_in: parts_in as u32,
            parts_out: parts_out as u32,
            rows_in: rows_in.max(1) as u32,
            rows_out: rows_out.max(1) as u32,
            scale,
            ..LineParams::default()
        };
        let mut arrays = vec![input, output, self.roots.raw()];
        if let Some((operator, part)) = operator {
            params.inner_last = (part[2].end - part[2].start).max(1) as u32;
            let [second, third, half] = operator.starts();
            params.starts = [second, third, half, 0];
            params.constant = operator.constant();
            arrays.push(operator.table().raw());
        }
        recorder.dispatch(&self.kernel, &arrays, &params, lines.div_ceil(self.shape.lines))
    }
}

/// Roots of unity on the device, one table a length.
struct Tables {
    recorder: Recorder,
    made: Vec<(u64, Array<[f32; 2]>)>,
}

impl Tables {
    fn ready(&mut self, gpu: &Gpu, pass: Pass) -> Result<Ready, FftError> {
        let abilities = gpu.abilities();
        let limits = Limits {
            workgroup_bytes: u64::from(abilities.workgroup_bytes),
            invocations: u64::from(abilities.invocations.min(256)),
        };
        let n = pass.kernel.n;
        let shape = pass.kernel.shape(limits).ok_or(FftError::TooLong { n, limit: LineKernel::longest(limits) })?;
        Ok(Ready { pass, shape, kernel: Kernel::new(pass.kernel.source(shape)), roots: self.roots(gpu, n)? })
    }

    fn roots(&mut self, gpu: &Gpu, n: u64) -> Result<Array<[f32; 2]>, DeviceError> {
        if let Some((_, table)) = self.made.iter().find(|(made, _)| *made == n) {
            return Ok(table.clone());
        }
        let table = gpu.array("fft::roots", n)?;
        self.recorder.upload(&table, 0, &roots(n))?;
        self.made.push((n, table.clone()));
        Ok(table)
    }
}

/// The kernels of transforms of these lengths, in every form that a plan uses, for tests that go over all of the
/// library's kernels.
pub fn sources(lengths: &[u64], limits: Limits) -> Vec<crate::device::KernelSource> {
    use super::Kind::{Backward, ComplexToReal, Forward, RealToComplex};
    let mut sources = Vec::new();
    for &n in lengths {
        for (kind, strided) in [(Forward, true), (Backward, true), (RealToComplex, false), (ComplexToReal, false)] {
            for blocked in [Order::Plain, Order::Blocked] {
                let (input, output) = match kind {
                    RealToComplex => (Order::Plain, blocked),
                    ComplexToReal => (blocked, Order::Plain),
                    _ => (blocked, blocked),
                };
                for spectral in [false, true] {
                    let kernel = LineKernel { n, kind, input, output, strided, spectral };
                    if !spectral || kind == Backward {
                        sources.extend(kernel.shape(limits).map(|shape| kernel.source(shape)));
                    }
                }
            }
        }
    }
    sources
}
