//! Reductions along axes of arrays, and products of matrices.

use super::elementwise::{fresh, is_complex, number};
use super::strided::{AXES, View, contiguous_strides, elements, merged, rows};
use crate::gpu::{DeviceError, Element, KernelCache, KernelSource, RawArray, Recorder, TWO_FLOATS, Trust};

crate::gpu::kernel_params! {
    struct FoldParams {
        count: u32,
        /// Axes in use.
        rank: u32,
        /// The axis of parts.
        axis: u32,
        nothing: u32,
        /// Elements along the axis that is reduced.
        length: u32,
        /// Parts that are reduced apart.
        parts: u32,
        /// Elements from one element of a part to the next.
        step: u32,
        padding: u32,
        dims: [[u32; 4]; AXES],
    }
}

/// The most elements that one invocation reduces, and the fewest where there are more.
const ROUNDS: [u64; 2] = [256, 32];

/// Invocations that keep a GPU busy: folds and products of fewer elements have more segments.
const BUSY: u64 = 1 << 17;

/// A function of two numbers that joins the elements of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum, of no elements 0.
    Sum,
    /// The product, of no elements 1.
    Product,
    /// The least number, or NaN if there is one.
    Min,
    /// The greatest number, or NaN if there is one.
    Max,
}

/// One form of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    reduction: Reduction,
    value: Element,
    is_first: bool,
    is_last: bool,
}

impl Form {
    /// Returns the element of partial results.
    fn state(self) -> Element {
        match (self.reduction, self.value) {
            (Reduction::Sum, Element::F32) => Element::Complex32,
            (Reduction::Sum, Element::Complex32) => Element::Vec4,
            (_, value) => value,
        }
    }
}

fn source(form: Form) -> KernelSource {
    let Form { reduction, value, is_first, is_last } = form;
    let (state, has_errors) = (form.state(), form.state() != value);
    let name = format!("{reduction:?}").to_lowercase();
    KernelSource::new(format!("primitives::fold_{name}"), include_str!("../../../shaders/gpu/fold.wgsl"))
        .params::<FoldParams>()
        .module("gpu::values", include_str!("../../../shaders/gpu/values.wgsl"))
        .module("gpu::two_floats", TWO_FLOATS)
        .element("State", state)
        .element("Real", number(false, value.is_double()))
        .element("Value", value)
        .element("From", if is_first { value } else { state })
        .element("To", if is_last { value } else { state })
        .flag("carried", has_errors)
        .flag("sum", reduction == Reduction::Sum)
        .flag("times", reduction == Reduction::Product)
        .flag("min", reduction == Reduction::Min)
        .flag("complex", is_complex(value))
        .flag("power", false)
        .flag("first", is_first)
        .flag("last", is_last)
        .loop_rounds(ROUNDS[0] as u32 + AXES as u32)
}

/// Returns the kernels in single precision.
pub(super) fn kernels() -> Vec<KernelSource> {
    let sums = [Element::F32, Element::Complex32].map(|value| {
        let form = |(is_first, is_last)| source(Form { reduction: Reduction::Sum, value, is_first, is_last });
        [(true, true), (true, false), (false, false), (false, true)].map(form)
    });
    let ends = [Reduction::Product, Reduction::Min, Reduction::Max];
    let ends = ends.map(|reduction| source(Form { reduction, value: Element::F32, is_first: true, is_last: true }));
    sums.into_iter().flatten().chain(ends).chain(product_kernels()).collect()
}

/// Reductions along axes, in a fixed tree.
///
/// Sums of single precision carry their rounding errors: the result is that of a sum in about twice
/// the precision, rounded. Sums of double precision are added in parts of up to 256 elements.
/// The shape alone decides on the tree, not the device.
#[derive(Default)]
pub struct AxisReduce(KernelCache<Form>);

impl AxisReduce {
    /// Records the reduction of `input`, whose axes have the extents `shape`, along the axes in
    /// `reduced`, of which each has elements. `output` gets the results in the order of the other
    /// axes.
    ///
    /// # Errors
    /// [`DeviceError::TooLong`]; [`DeviceError::Misuse`] for arrays that do not fit, axes without
    /// elements, complex numbers that have no order, and more than 11 axes that cannot be merged;
    /// as [`Recorder::dispatch`].
    pub fn record(
        &self,
        recorder: &mut Recorder,
        reduction: Reduction,
        shape: &[u64],
        reduced: &[bool],
        input: &RawArray,
        output: &RawArray,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "AxisReduce";
        let value = input.element;
        let is_known = match value {
            Element::F32 | Element::F64 => true,
            Element::Complex32 | Element::Complex64 => matches!(reduction, Reduction::Sum | Reduction::Product),
            _ => false,
        };
        let len = elements(WHAT, shape)?;
        let kept: Vec<u64> = shape.iter().zip(reduced).filter(|(_, reduced)| !**reduced).map(|(n, _)| *n).collect();
        let kept = elements(WHAT, &kept)?;
        let fits = shape.len() == reduced.len() && input.len == len && output.len == kept && output.element == value;
        let why = || format!("{reduction:?} of {shape:?} along {reduced:?} in arrays that do not fit");
        DeviceError::ensure(is_known && fits, WHAT, why)?;
        if kept == 0 {
            return Ok(());
        }
        DeviceError::ensure(len > 0, WHAT, || format!("{reduction:?} of no elements"))?;
        // Adjacent axes that are both reduced or both kept are one.
        let mut axes: Vec<(u64, bool)> = Vec::new();
        for (&extent, &is_reduced) in shape.iter().zip(reduced) {
            match axes.last_mut() {
                Some(last) if last.1 == is_reduced => last.0 *= extent,
                _ => axes.push((extent, is_reduced)),
            }
        }
        let (mut source_array, mut is_first) = (input.clone(), true);
        loop {
            // The last axis first: its elements are adjacent. One without a choice still converts.
            let axis = axes.iter().rposition(|axis| axis.1);
            let (at, length) = axis.map_or((axes.len(), 1), |axis| (axis, axes[axis].0));
            if axis.is_none() {
                axes.push((1, true));
            }
            let others: u64 = axes.iter().enumerate().filter(|(axis, _)| *axis != at).map(|(_, axis)| axis.0).product();
            let rounds = (length * others / BUSY).clamp(ROUNDS[1], ROUNDS[0]);
            let parts = length.div_ceil(rounds);
            let inner = contiguous_strides(&axes.iter().map(|axis| axis.0).collect::<Vec<_>>());
            let stride = inner[at];
            axes[at].0 = parts;
            let extents: Vec<u64> = axes.iter().map(|axis| axis.0).collect();
            let outer = contiguous_strides(&extents);
            if parts == 1 {
                axes.remove(at);
            }
            let is_last = axes.iter().all(|axis| !axis.1);
            let form = Form { reduction, value, is_first, is_last };
            let target = if is_last { output.clone() } else { fresh(recorder, form.state(), others * parts)? };
            // Neighboring invocations treat neighboring elements of the input.
            let mut order: Vec<usize> = (0..extents.len()).collect();
            order.sort_by_key(|&axis| std::cmp::Reverse(inner[axis]));
            let rows_of: Vec<_> = order.iter().map(|&axis| (extents[axis], [outer[axis], inner[axis]])).collect();
            let (found, place) = merged(WHAT, &rows_of, order.iter().position(|&axis| axis == at))?;
            let params = FoldParams {
                count: (others * parts) as u32,
                rank: found.len() as u32,
                axis: place,
                nothing: 0,
                length: length as u32,
                parts: parts as u32,
                step: (parts * stride as u64) as u32,
                padding: 0,
                dims: rows(&found),
            };
            let kernel = self.0.get(form, Trust::Library, || source(form));
            let group = u64::from(recorder.gpu().workgroup_shape().group);
            recorder.dispatch(&kernel, &[&source_array, &target], &params, (others * parts).div_ceil(group))?;
            if is_last {
                return Ok(());
            }
            (source_array, is_first) = (target, false);
        }
    }
}

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

fn product_source(value: Element) -> KernelSource {
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
fn product_kernels() -> [KernelSource; 2] {
    [Element::F32, Element::Complex32].map(product_source)
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
        let kernel = self.kernels.get(value, Trust::Library, || product_source(value));
        let group = u64::from(recorder.gpu().workgroup_shape().group);
        recorder.dispatch(&kernel, &[a.array, b.array, &target], &params, all.div_ceil(group))?;
        if segments == 1 {
            return Ok(());
        }
        self.sums.record(recorder, Reduction::Sum, &[segments, count], &[true, false], &target, out)
    }
}
