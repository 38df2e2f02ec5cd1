//! Passes with their kernels and tables, ready to be recorded, and all their kernels as text for tests.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::axis::{AxisPass, PointFactors};
use super::callbacks::PassCallbacks;
use super::error::FftError;
use super::line::{LineKernel, LineParams, LineWorkgroup};
use super::precision::Precision;
use super::reach::PassArrays;
use crate::gpu::{Callback, DeviceError, Gpu, Kernel, RawArray, Recorder};

/// Tables on the device, each created once.
pub(super) struct DeviceTables {
    recorder: Recorder,
    made: HashMap<PointFactors, RawArray>,
}

impl DeviceTables {
    pub fn new(gpu: &Gpu) -> Result<Self, DeviceError> {
        Ok(DeviceTables { recorder: Recorder::new(gpu)?, made: HashMap::new() })
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
                let array = self.recorder.gpu().array::<[f32; 2]>("fft::table", factors.len)?;
                let values: Vec<[f32; 2]> = values.into_iter().map(|v| v.map(|v| v as f32)).collect();
                self.recorder.upload(&array, 0, &values)?;
                array.raw().clone()
            }
            Precision::Double => {
                let array = self.recorder.gpu().array::<[f64; 2]>("fft::table", factors.len)?;
                self.recorder.upload(&array, 0, &values)?;
                array.raw().clone()
            }
        };
        self.made.insert(factors.clone(), array.clone());
        Ok(array)
    }
}

/// The position of a pass in its route.
#[derive(Clone, Copy)]
pub(super) struct PassPosition {
    pub first: bool,
    pub last: bool,
}

/// A pass with its kernels, which are compiled when they are first dispatched.
pub(super) struct ReadyPass {
    pub kernel: LineKernel,
    pub position: PassPosition,
    shape: LineWorkgroup,
    callbacks: PassCallbacks,
    apart: OnceLock<Kernel>,
    in_place: OnceLock<Kernel>,
    tables: Vec<RawArray>,
}

impl ReadyPass {
    pub fn new(
        pass: &AxisPass,
        position: PassPosition,
        callbacks: PassCallbacks,
        tables: &mut DeviceTables,
    ) -> Result<Self, FftError> {
        callbacks.check()?;
        let (kernel, shape, precision) = (pass.kernel, pass.shape.clone(), pass.kernel.precision);
        let ((source, table), trust) = (kernel.source(&shape, &callbacks), callbacks.trust());
        let own = (!table.is_empty()).then(|| PointFactors { len: table.len(), table, conjugate: false });
        let all = [&own, &pass.load_factors, &pass.store_factors];
        let tables =
            all.into_iter().flatten().map(|factors| tables.get(precision, factors)).collect::<Result<_, _>>()?;
        Ok(ReadyPass {
            kernel,
            position,
            shape,
            callbacks,
            apart: OnceLock::from(Kernel::with_trust(trust, source)),
            in_place: OnceLock::new(),
            tables,
        })
    }

    /// Returns the device memory of the tables in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.tables.iter().map(RawArray::bytes).sum()
    }

    /// Records the pass over `arrays`. In the first pass of a route, `operator` replaces the callback on modes:
    /// the same text with other arrays and parameters.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        arrays: &PassArrays,
        params: LineParams,
        operator: Option<&Callback>,
    ) -> Result<(), DeviceError> {
        let callbacks = match operator.filter(|_| self.position.first) {
            Some(callback) => &PassCallbacks { load_mode: Some(callback.clone()), ..self.callbacks.clone() },
            None => &self.callbacks,
        };
        let make = |in_place: bool| {
            let (source, _) = LineKernel { in_place, ..self.kernel }.source(&self.shape, callbacks);
            Kernel::with_trust(callbacks.trust(), source)
        };
        let PassArrays { input, output } = arrays;
        let kernel = match input {
            Some(_) => self.apart.get_or_init(|| make(false)),
            None => self.in_place.get_or_init(|| make(true)),
        };
        let mut arrays: Vec<&RawArray> = input.iter().chain([output]).chain(&self.tables).collect();
        arrays.extend(callbacks.arrays());
        let bytes = [bytemuck::bytes_of(&params), &callbacks.values()].concat();
        recorder.dispatch_bytes(kernel, &arrays, &bytes, u64::from(params.line_sizes[3]).div_ceil(self.shape.lines))
    }

    /// Returns whether one side is real and the other complex, so that in place both are used as real numbers.
    pub fn as_reals(&self) -> bool {
        LineKernel { in_place: true, ..self.kernel }.as_reals()
    }
}
