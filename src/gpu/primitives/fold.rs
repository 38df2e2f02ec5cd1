//! Reductions along axes of arrays.

use super::elementwise::{fresh, is_complex, number};
use super::strided::{AXES, contiguous_strides, elements, merged, rows};
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

/// Invocations that keep a GPU busy.
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
    let name = match reduction {
        Reduction::Sum => "sum",
        Reduction::Product => "product",
        Reduction::Min => "min",
        Reduction::Max => "max",
    };
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
    sums.into_iter().flatten().chain(ends).collect()
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
