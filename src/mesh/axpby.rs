//! Linear updates of arrays.

use std::sync::Arc;

use super::error::MeshError;
use crate::field::Field;
use crate::gpu::{Array, DeviceError, Element, Kernel, KernelSource, RawArray, Recorder};
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct AxpbyParams {
        count: u32,
        a: f32,
        b: f32,
    }
}

crate::gpu::kernel_params! {
    struct CombineParams {
        factors: [f32; 4],
        factors_more: [f32; 4],
        count: u32,
    }
}

/// Arrays that are added in one dispatch at most; on devices that bind fewer arrays, as many as
/// they bind.
const ADDED: usize = 8;

/// More than one array.
const SEVERAL: [usize; ADDED - 1] = [2, 3, 4, 5, 6, 7, 8];

/// The update `y = a x + b y` (the axpby of BLAS) and its elementwise product form `y = a x z + b
/// y`, for arrays of one length.
///
/// Factors are rounded to `f32`. With `b == 0`, `y` may be undefined before. Everything is
/// recorded, nothing submitted.
pub struct Axpby {
    linear: Form,
    product: Form,
    /// Kernels that add two or more arrays.
    combine: [Kernel; ADDED - 1],
}

impl Default for Axpby {
    fn default() -> Self {
        let [linear, product] = [false, true].map(Form::new);
        Axpby { linear, product, combine: SEVERAL.map(|added| Kernel::trusted(combine(added))) }
    }
}

/// The kernels of an update of one pair of arrays, or of three arrays.
struct Form {
    /// Elements are numbers.
    plain: Kernel,
    /// Elements are four numbers.
    quads: Kernel,
}

impl Form {
    fn new(product: bool) -> Self {
        let [plain, quads] = [Element::F32, Element::Vec4].map(|value| Kernel::trusted(single(product, value)));
        Form { plain, quads }
    }

    fn record(&self, recorder: &mut Recorder, arrays: &[&RawArray], params: AxpbyParams) -> Result<(), DeviceError> {
        let Some(quads) = RawArray::in_quads(arrays) else {
            return recorder.each(&self.plain, arrays, &params, params.count.into());
        };
        let (arrays, count): (Vec<&RawArray>, _) = (quads.iter().collect(), params.count / 4);
        recorder.each(&self.quads, &arrays, &AxpbyParams { count, ..params }, count.into())
    }
}

/// Returns the kernel of an update of arrays of `value`.
fn single(product: bool, value: Element) -> KernelSource {
    let label = if product { "mesh::axpby_product" } else { "mesh::axpby" };
    KernelSource::new(label, include_str!("../../shaders/mesh/axpby.wgsl"))
        .params::<AxpbyParams>()
        .element("Value", value)
        .flag("product", product)
}

/// Returns the kernel that adds `added` arrays.
fn combine(added: usize) -> KernelSource {
    KernelSource::new("mesh::combine", include_str!("../../shaders/mesh/combine.wgsl"))
        .params::<CombineParams>()
        .repeat('$', added as u32)
}

/// Returns all forms that any device takes.
pub(super) fn kernels() -> Vec<KernelSource> {
    let single =
        [false, true].into_iter().flat_map(|product| [Element::F32, Element::Vec4].map(|value| single(product, value)));
    single.chain([combine(2), combine(6)]).collect()
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
        self.linear.record(recorder, &[x.raw(), y.raw()], params)
    }

    /// Records `y = y + a x` for each of `terms`, in order and with the bits of one update after
    /// the other: up to eight in a dispatch, as many as the device binds.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when the lengths differ.
    pub fn record_terms(
        &self,
        recorder: &mut Recorder,
        terms: &[(f64, &Array<f32>)],
        y: &Array<f32>,
    ) -> Result<(), DeviceError> {
        let is_long = |array: &Array<f32>| array.raw().windows() > 1;
        let most = if is_long(y) || terms.iter().any(|(_, x)| is_long(x)) {
            1
        } else {
            (recorder.gpu().capabilities().bindings as usize).saturating_sub(1).clamp(1, ADDED)
        };
        for terms in terms.chunks(most) {
            if let [(a, x)] = terms {
                self.record(recorder, *a, x, 1.0, y)?;
                continue;
            }
            let mut factors = [0.0; ADDED];
            let mut count = 0;
            for ((a, x), factor) in terms.iter().zip(&mut factors) {
                count = params("Axpby::record_terms", *a, 1.0, y, &[x])?.count;
                *factor = *a as f32;
            }
            let [f0, f1, f2, f3, f4, f5, f6, f7] = factors;
            let (factors, factors_more) = ([f0, f1, f2, f3], [f4, f5, f6, f7]);
            let params = CombineParams { factors, factors_more, count };
            let arrays: Vec<_> = terms.iter().map(|(_, x)| x.raw()).chain([y.raw()]).collect();
            recorder.each(&self.combine[terms.len() - 2], &arrays, &params, u64::from(count))?;
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
        self.product.record(recorder, &[x.raw(), y.raw(), z.raw()], params)
    }
}

impl Rank {
    /// Computes `y = a x + b y` in every cell, ghost cells included; `a` and `b` are rounded to
    /// f32. With `b == 0` the values of `y` do not matter. Records only.
    ///
    /// # Errors
    /// - [`MeshError::Layout`] if the fields are on different meshes.
    /// - [`MeshError::Device`] if they have different numbers of components, or the device fails.
    pub fn axpby(&mut self, a: f64, x: &Field, b: f64, y: &mut Field) -> Result<(), MeshError> {
        x.same_mesh("Rank::axpby", y)?;
        Ok(self.updates().record(&mut self.recorder, a, x.array(), b, y.array())?)
    }

    /// Returns the kernels of linear updates.
    pub(crate) fn updates(&mut self) -> Arc<Axpby> {
        self.shared()
    }
}

fn params(what: &str, a: f64, b: f64, y: &Array<f32>, others: &[&Array<f32>]) -> Result<AxpbyParams, DeviceError> {
    match others.iter().find(|other| other.len() != y.len()) {
        None => Ok(AxpbyParams { count: y.len() as u32, a: a as f32, b: b as f32 }),
        Some(other) => Err(DeviceError::misuse(what, format!("arrays of {} and {} elements", y.len(), other.len()))),
    }
}
