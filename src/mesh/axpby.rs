//! Linear updates of arrays.

use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};

crate::gpu::kernel_params! {
    struct AxpbyParams {
        count: u32,
        a: f32,
        b: f32,
    }
}

/// The update `y = a x + b y` (the axpby of BLAS) and its elementwise product form `y = a x z + b y`, for arrays of one length.
///
/// Factors are rounded to `f32`. With `b == 0`, `y` may be undefined before. Everything is recorded, nothing submitted.
pub struct Axpby {
    linear: Kernel,
    product: Kernel,
}

impl Default for Axpby {
    fn default() -> Self {
        let [linear, product] = kernels().map(Kernel::trusted);
        Axpby { linear, product }
    }
}

/// The two forms.
pub(super) fn kernels() -> [KernelSource; 2] {
    [("mesh::axpby", false), ("mesh::axpby_product", true)].map(|(label, product)| {
        KernelSource::new(label, include_str!("../../shaders/mesh/axpby.wgsl"))
            .params::<AxpbyParams>()
            .flag("product", product)
    })
}

impl Axpby {
    /// Records `y = a x + b y`.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the lengths differ.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        a: f64,
        x: &Array<f32>,
        b: f64,
        y: &Array<f32>,
    ) -> Result<(), DeviceError> {
        let params = params("Axpby::record", a, b, y, &[x])?;
        recorder.each(&self.linear, &[x.raw(), y.raw()], &params, y.len())
    }

    /// Records `y = a x z + b y`; `x` and `z` may be one array.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the lengths differ.
    pub fn record_product(
        &self,
        recorder: &mut Recorder,
        a: f64,
        [x, z]: [&Array<f32>; 2],
        b: f64,
        y: &Array<f32>,
    ) -> Result<(), DeviceError> {
        let params = params("Axpby::record_product", a, b, y, &[x, z])?;
        recorder.each(&self.product, &[x.raw(), y.raw(), z.raw()], &params, y.len())
    }
}

fn params(what: &str, a: f64, b: f64, y: &Array<f32>, others: &[&Array<f32>]) -> Result<AxpbyParams, DeviceError> {
    match others.iter().find(|other| other.len() != y.len()) {
        None => Ok(AxpbyParams { count: y.len() as u32, a: a as f32, b: b as f32 }),
        Some(other) => {
            let why = format!("arrays of {} and {} elements", y.len(), other.len());
            Err(DeviceError::Misuse { what: what.into(), why })
        }
    }
}
