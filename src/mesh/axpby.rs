//! Linear updates of arrays.

use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Recorder};

crate::gpu::kernel_params! {
    struct AxpbyParams {
        count: u32,
        a: f32,
        b: f32,
    }
}

crate::gpu::kernel_params! {
    struct PairsParams {
        /// The ends of the pairs, counted over all.
        ends: [u32; 4],
        count: u32,
        a: f32,
        b: f32,
    }
}

/// Pairs of one dispatch at most: as many as the floor has bindings for.
const PAIRS: usize = 4;

/// The update `y = a x + b y` (the axpby of BLAS) and its elementwise product form `y = a x z + b y`, for arrays of one length.
///
/// Factors are rounded to `f32`. With `b == 0`, `y` may be undefined before. Everything is recorded, nothing submitted.
pub struct Axpby {
    linear: Kernel,
    product: Kernel,
    /// Of two, three and four pairs.
    pairs: [Kernel; PAIRS - 1],
}

impl Default for Axpby {
    fn default() -> Self {
        let [linear, product] = [false, true].map(|product| Kernel::trusted(single(product)));
        Axpby { linear, product, pairs: [2, 3, 4].map(|pairs| Kernel::trusted(several(pairs))) }
    }
}

/// One pair of arrays, or three arrays.
fn single(product: bool) -> KernelSource {
    let label = if product { "mesh::axpby_product" } else { "mesh::axpby" };
    KernelSource::new(label, include_str!("../../shaders/mesh/axpby.wgsl"))
        .params::<AxpbyParams>()
        .flag("product", product)
}

/// So many pairs.
fn several(pairs: usize) -> KernelSource {
    KernelSource::new("mesh::axpby_pairs", include_str!("../../shaders/mesh/axpby_pairs.wgsl"))
        .params::<PairsParams>()
        .flag("third", pairs > 2)
        .flag("fourth", pairs > 3)
}

/// All forms.
pub(super) fn kernels() -> [KernelSource; 5] {
    [single(false), single(true), several(2), several(3), several(4)]
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

    /// Records `y = a x + b y` for pairs of arrays `[x, y]`, each of one length: four in a dispatch.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the lengths of a pair differ.
    pub fn record_pairs(
        &self,
        recorder: &mut Recorder,
        a: f64,
        pairs: &[[&Array<f32>; 2]],
        b: f64,
    ) -> Result<(), DeviceError> {
        // An array of several windows has bindings enough alone; all elements are counted in one word.
        let joins = |[x, y]: &[&Array<f32>; 2]| x.raw().windows() == 1 && y.raw().windows() == 1 && y.len() < 1 << 28;
        let (joined, alone): (Vec<[&Array<f32>; 2]>, Vec<_>) = pairs.iter().copied().partition(joins);
        alone.iter().try_for_each(|[x, y]| self.record(recorder, a, x, b, y))?;
        for joined in joined.chunks(PAIRS) {
            if let [[x, y]] = joined {
                self.record(recorder, a, x, b, y)?;
                continue;
            }
            let (mut ends, mut count) = ([0; 4], 0);
            for (end, [x, y]) in ends.iter_mut().zip(joined) {
                count += params("Axpby::record_pairs", a, b, y, &[x])?.count;
                *end = count;
            }
            let params = PairsParams { ends, count, a: a as f32, b: b as f32 };
            let arrays: Vec<_> = joined.iter().flat_map(|[x, y]| [x.raw(), y.raw()]).collect();
            recorder.each(&self.pairs[joined.len() - 2], &arrays, &params, u64::from(count))?;
        }
        Ok(())
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
