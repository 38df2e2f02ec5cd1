//! Products of matrices.

use super::elementwise::{fresh, is_complex, number};
use super::fold::{AxisReduce, Reduction};
use super::strided::{View, elements};
use crate::gpu::{DeviceError, Element, KernelCache, KernelSource, RawArray, Recorder, Trust};

crate::gpu::kernel_params! {
    struct MatrixProductParams {
        count: u32,
        rows: u32,
        inner: u32,
        columns: u32,
        /// Elements of the inner axis that one invocation multiplies.
        segment: u32,
        start_a: u32,
        row_a: u32,
        inner_a: u32,
        start_b: u32,
        inner_b: u32,
        column_b: u32,
        padding: u32,
    }
}

/// The fewest and the most elements of a segment of the inner axis.
const SEGMENTS: [u64; 2] = [256, 1 << 14];

/// Invocations that keep a GPU busy: products with fewer elements have more segments.
const BUSY: u64 = 1 << 17;

fn source(value: Element) -> KernelSource {
    KernelSource::new("primitives::matmul", include_str!("../../../shaders/gpu/matmul.wgsl"))
        .params::<MatrixProductParams>()
        .module("gpu::values", include_str!("../../../shaders/gpu/values.wgsl"))
        .element("Real", number(false, value.is_double()))
        .element("Value", value)
        .flag("complex", is_complex(value))
        .flag("power", false)
        .loop_rounds((SEGMENTS[1] + SEGMENTS[1] / 256) as u32)
}

/// Returns the kernels in single precision.
pub(super) fn kernels() -> Vec<KernelSource> {
    [Element::F32, Element::Complex32].map(source).into()
}

/// Products of matrices of `f32`, `f64` and complex numbers. The shape alone decides on the order
/// of sums, not the device.
///
/// ```
/// use meshloom::gpu::primitives::{MatrixProduct, View};
///
/// meshloom::run(|rank| {
///     let (gpu, recorder) = (&rank.gpu, &mut rank.recorder);
///     let [a, x, y] = [gpu.array::<f32>("a", 6)?, gpu.array("x", 2)?, gpu.array("y", 3)?];
///     recorder.upload(&a, 0, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
///     recorder.upload(&x, 0, &[1.0, 10.0])?;
///     // A vector times the transpose of the matrix of 2 rows.
///     let transposed = View { array: a.raw(), start: 0, strides: vec![1, 3] };
///     let column = View { array: x.raw(), start: 0, strides: vec![1, 0] };
///     MatrixProduct::default().record(recorder, [3, 2, 1], &transposed, &column, y.raw())?;
///     assert_eq!(recorder.download(&y, 0, 3)?, [41.0, 52.0, 63.0]);
///     Ok(())
/// })?;
/// # Ok::<(), meshloom::Error>(())
/// ```
#[derive(Default)]
pub struct MatrixProduct {
    kernels: KernelCache<Element>,
    sums: AxisReduce,
}

impl MatrixProduct {
    /// Records `out = a b` for `a` of `rows` by `inner` and `b` of `inner` by `columns` elements.
    /// `out` has the rows one after the other. `inner` is 1 or more.
    ///
    /// # Errors
    /// [`DeviceError::TooLong`]; [`DeviceError::Misuse`] for arrays of different types or that do
    /// not fit; as [`Recorder::dispatch`].
    pub fn record(
        &self,
        recorder: &mut Recorder,
        [rows, inner, columns]: [u64; 3],
        a: &View<'_>,
        b: &View<'_>,
        out: &RawArray,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "MatrixProduct";
        let value = out.element;
        let count = elements(WHAT, &[rows, columns])?;
        let is_number = value == number(is_complex(value), value.is_double());
        let [of_a, of_b] = [a, b].map(|view| view.array.element);
        let fits = is_number && of_a == value && of_b == value && out.len == count;
        DeviceError::ensure(fits, WHAT, || {
            let len = out.len;
            format!("{rows} x {inner} x {columns} elements of {of_a:?} and {of_b:?} in an array of {len} of {value:?}")
        })?;
        if count == 0 {
            return Ok(());
        }
        DeviceError::ensure(inner > 0, WHAT, || "a product without inner elements".into())?;
        a.check(WHAT, &[rows, inner])?;
        b.check(WHAT, &[inner, columns])?;
        let segment = (inner * count).div_ceil(BUSY).clamp(SEGMENTS[0], SEGMENTS[1]);
        let segments = inner.div_ceil(segment);
        let all = elements(WHAT, &[segments, count])?;
        let target = if segments == 1 { out.clone() } else { fresh(recorder, value, all)? };
        let params = MatrixProductParams {
            count: all as u32,
            rows: rows as u32,
            inner: inner as u32,
            columns: columns as u32,
            segment: segment as u32,
            start_a: a.start as u32,
            row_a: a.strides[0] as u32,
            inner_a: a.strides[1] as u32,
            start_b: b.start as u32,
            inner_b: b.strides[0] as u32,
            column_b: b.strides[1] as u32,
            padding: 0,
        };
        let kernel = self.kernels.get(value, Trust::Library, || source(value));
        let group = u64::from(recorder.gpu().workgroup_shape().group);
        recorder.dispatch(&kernel, &[a.array, b.array, &target], &params, all.div_ceil(group))?;
        if segments == 1 {
            return Ok(());
        }
        self.sums.record(recorder, Reduction::Sum, &[segments, count], &[true, false], &target, out)
    }
}
