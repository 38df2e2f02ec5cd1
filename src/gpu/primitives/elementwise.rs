//! Functions of each element of strided arrays.

use super::strided::{AXES, Axis, View, elements, merged, rows};
use crate::gpu::{
    Array, DeviceElement, DeviceError, Element, KernelCache, KernelSource, RawArray, Recorder, TWO_FLOATS, Trust,
};

crate::gpu::kernel_params! {
    struct ElementwiseParams {
        count: u32,
        /// Axes in use.
        rank: u32,
        /// The axis whose coordinate is looked up.
        axis: u32,
        /// The exponent of an integer power.
        exponent: i32,
        start_out: u32,
        start_a: u32,
        start_b: u32,
        nothing: u32,
        /// The scalar: its real and its imaginary part as sums of three floats.
        scalar: [[f32; 4]; 2],
        dims: [[u32; 4]; AXES],
    }
}

/// Rounds of the loops of an element: over axes, and over bits of an exponent.
const ROUNDS: u32 = AXES as u32 + 32;

/// Type that an operation computes in and returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The promoted type of the operands.
    Same,
    /// Its real type.
    Real,
    /// Single precision: 1 for true and 0 for false.
    Truth,
}

/// A function of one or two numbers. Operands of different types are converted to the smallest type
/// that has all their values first, as in NumPy.
///
/// The errors are those of arithmetic on the device (the last place), for functions a few units in
/// the last place. NaN propagates. Numbers below the least normal one may count as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// Its place among the definitions.
    number: usize,
    /// The exponent of an integer power.
    exponent: i32,
}

/// Functions that expressions use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Functions {
    /// Arithmetic of any precision.
    Arithmetic,
    /// Functions of single precision and of double precision.
    Both,
    /// Functions of single precision.
    Single,
}

/// The name, the expressions for real and for complex numbers, and what they use.
struct Definition {
    name: &'static str,
    real: &'static str,
    complex: &'static str,
    functions: Functions,
    kind: Kind,
}

const fn exact(name: &'static str, real: &'static str, complex: &'static str) -> Definition {
    Definition { name, real, complex, functions: Functions::Arithmetic, kind: Kind::Same }
}

const fn both(name: &'static str, real: &'static str, complex: &'static str) -> Definition {
    Definition { functions: Functions::Both, ..exact(name, real, complex) }
}

const fn single(name: &'static str, real: &'static str, complex: &'static str) -> Definition {
    Definition { functions: Functions::Single, ..exact(name, real, complex) }
}

const fn to_real(definition: Definition) -> Definition {
    Definition { kind: Kind::Real, ..definition }
}

const fn truth(name: &'static str, real: &'static str, complex: &'static str) -> Definition {
    Definition { kind: Kind::Truth, ..exact(name, real, complex) }
}

/// All operations, with an expression for real and one for complex numbers. An empty expression
/// means that the operation does not exist for these. Expressions of two operands contain `y`.
const DEFINITIONS: [Definition; 55] = [
    exact("copy", "x", "x"),
    exact("add", "x + y", "x + y"),
    exact("subtract", "x - y", "x - y"),
    exact("multiply", "x * y", "product(x, y)"),
    exact("divide", "x / y", "ratio(x, y)"),
    exact("maximum", "larger(x, y)", ""),
    exact("minimum", "smaller(x, y)", ""),
    exact("hypot", "hypotenuse(x, y)", ""),
    exact("conjugate_multiply", "x * y", "product(Value(x.x, -x.y), y)"),
    truth("equal", "truth(are_equal(x, y))", "truth(are_equal(x.x, y.x) && are_equal(x.y, y.y))"),
    truth("not_equal", "truth(!are_equal(x, y))", "truth(!(are_equal(x.x, y.x) && are_equal(x.y, y.y)))"),
    truth("less", "truth(x < y && !is_nan(x) && !is_nan(y))", ""),
    truth("less_equal", "truth(x < y && !is_nan(x) && !is_nan(y) || are_equal(x, y))", ""),
    truth("isnan", "truth(is_nan(x))", "truth(is_nan(x.x) || is_nan(x.y))"),
    truth("isinf", "truth(is_infinite(x))", "truth(is_infinite(x.x) || is_infinite(x.y))"),
    truth("isfinite", "truth(is_finite(x))", "truth(is_finite(x.x) && is_finite(x.y))"),
    // The number where the second operand is not 0, or where it is; otherwise -0, which changes no
    // sum.
    exact("where_true", "select(Real(-0.0), x, y != Real(0.0))", "select(Value(-0.0, -0.0), x, y.x != Real(0.0))"),
    exact("where_false", "select(x, Real(-0.0), y != Real(0.0))", "select(x, Value(-0.0, -0.0), y.x != Real(0.0))"),
    exact("negative", "-x", "-x"),
    exact("conjugate", "x", "Value(x.x, -x.y)"),
    to_real(exact("absolute", "abs(x)", "hypotenuse(x.x, x.y)")),
    to_real(exact("real", "x", "x.x")),
    to_real(exact("imag", "x - x", "x.y")),
    to_real(exact("squared_magnitude", "x * x", "x.x * x.x + x.y * x.y")),
    exact("square", "x * x", "product(x, x)"),
    exact("reciprocal", "1.0 / x", "ratio(one(), x)"),
    exact("integer_power", "integer_power(x)", "integer_power(x)"),
    exact("sqrt", "root(x)", "root(x)"),
    exact("sign", "sign_of(x)", ""),
    exact("floor", "floor(x)", ""),
    exact("ceil", "ceil(x)", ""),
    exact("trunc", "trunc(x)", ""),
    exact("rint", "round(x)", ""),
    both("exp", "exp_of(x)", "exp_of(x.x) * sin_cos(x.y).yx"),
    single("expm1", "expm1_of(x)", ""),
    single("exp2", "exp2_of(x)", ""),
    both("log", "log_of(x)", ""),
    single("log1p", "log1p_of(x)", ""),
    both("log2", "log2_of(x)", ""),
    both("log10", "log10_of(x)", ""),
    single("power", "power_of(x, y)", ""),
    both("sin", "sin_cos(x).x", ""),
    both("cos", "sin_cos(x).y", ""),
    both("tan", "tan_of(x)", ""),
    single("arcsin", "arcsin_of(x)", ""),
    single("arccos", "arccos_of(x)", ""),
    single("arctan", "arctan_of(x)", ""),
    single("arctan2", "arctan2_of(x, y)", ""),
    to_real(single("angle", "arctan2_of(0.0, x)", "arctan2_of(x.y, x.x)")),
    single("sinh", "sinh_of(x)", ""),
    single("cosh", "cosh_of(x)", ""),
    single("tanh", "tanh_of(x)", ""),
    single("arcsinh", "arcsinh_of(x)", ""),
    single("arccosh", "arccosh_of(x)", ""),
    single("arctanh", "arctanh_of(x)", ""),
];

/// Returns `true` if an element is complex.
pub(super) fn is_complex(element: Element) -> bool {
    matches!(element, Element::Complex32 | Element::Complex64)
}

/// Returns the type with these properties.
pub(super) fn number(complex: bool, double: bool) -> Element {
    match (complex, double) {
        (false, false) => Element::F32,
        (false, true) => Element::F64,
        (true, false) => Element::Complex32,
        (true, true) => Element::Complex64,
    }
}

impl Operation {
    /// The operation that copies its operand, converted to the type of the result.
    pub const COPY: Operation = Operation::at(0);

    const fn at(number: usize) -> Self {
        Operation { number, exponent: 1 }
    }

    /// Returns the operation with this name: NumPy's where NumPy has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        DEFINITIONS.iter().position(|definition| definition.name == name).map(Self::at)
    }

    /// Returns the operation with another exponent; for `integer_power`.
    #[must_use]
    pub fn exponent(self, exponent: i32) -> Self {
        Operation { exponent, ..self }
    }

    /// Returns `true` if it has two operands.
    #[must_use]
    pub fn is_binary(self) -> bool {
        let mut words = self.definition().real.split(|c: char| !(c.is_alphanumeric() || "._".contains(c)));
        words.any(|word| word == "y")
    }

    /// Returns the type of its results for operands whose common type is `operands`; `None` if it
    /// is not defined for them.
    #[must_use]
    pub fn result(self, operands: Element) -> Option<Element> {
        let &Definition { real, complex, functions, kind, .. } = self.definition();
        let is_number = operands == number(is_complex(operands), operands.is_double());
        let expression = if is_complex(operands) { complex } else { real };
        let has = is_number && !expression.is_empty() && (functions != Functions::Single || !operands.is_double());
        let is_double = kind != Kind::Truth && operands.is_double();
        has.then(|| number(kind == Kind::Same && is_complex(operands), is_double))
    }

    fn definition(self) -> &'static Definition {
        &DEFINITIONS[self.number]
    }
}

/// Operand of an operation.
#[derive(Clone)]
pub enum Operand<'a> {
    /// Elements of an array.
    Array(View<'a>),
    /// One number, real and imaginary part, in the precision of the arrays.
    Scalar([f64; 2]),
}

/// One form of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    /// The place of the operation among the definitions.
    number: usize,
    /// Types of the operands in arrays.
    operands: [Option<Element>; 2],
    /// Type of the computation: at least that of the operands.
    value: Element,
    out: Element,
    is_in_place: bool,
    has_index: bool,
}

fn source(form: Form) -> KernelSource {
    let Form { number: place, operands, value, out, is_in_place, has_index } = form;
    let operation = Operation::at(place);
    let &Definition { name, real, complex, functions, .. } = operation.definition();
    let (is_binary, [a, b]) = (operation.is_binary(), operands);
    let result = operation.result(value).unwrap_or(value);
    let arguments = if is_binary { "x: Value, y: Value" } else { "x: Value" };
    let expression = if is_complex(value) { complex } else { real };
    let import = match functions {
        Functions::Arithmetic => "",
        _ if value.is_double() => "#import gpu::double_functions\n",
        _ => "#import gpu::functions\n",
    };
    let text = format!("{import}fn operation({arguments}) -> {} {{ return {expression}; }}\n", result.wgsl());
    let widens = |operand: Option<Element>| is_complex(value) && operand.is_some_and(|element| !is_complex(element));
    KernelSource::new(format!("primitives::{name}"), include_str!("../../../shaders/gpu/elementwise.wgsl"))
        .params::<ElementwiseParams>()
        .module("gpu::values", include_str!("../../../shaders/gpu/values.wgsl"))
        .module("gpu::functions", include_str!("../../../shaders/gpu/functions.wgsl"))
        .module("gpu::double_functions", include_str!("../../../shaders/gpu/double_functions.wgsl"))
        .module("gpu::two_floats", TWO_FLOATS)
        .module("gpu::operation", text)
        .element("Real", number(false, value.is_double()))
        .element("Value", value)
        .element("A", a.unwrap_or(value))
        .element("B", b.unwrap_or(value))
        .element("Out", out)
        .flag("a_array", a.is_some() && !is_in_place)
        .flag("b_array", b.is_some())
        .flag("a_widens", widens(a))
        .flag("b_widens", widens(b))
        .flag("in_place", is_in_place)
        .flag("take", has_index)
        .flag("binary", is_binary)
        .flag("scalar", a.is_none() || (is_binary && b.is_none()))
        .flag("double", value.is_double())
        .flag("complex", is_complex(value))
        .flag("power", name == "integer_power")
        .loop_rounds(ROUNDS)
}

/// Returns kernels in single precision: one in all forms, each operation of arithmetic, and some
/// functions, because each has the text of all of them.
pub(super) fn kernels() -> Vec<KernelSource> {
    let (real, complex) = (Element::F32, Element::Complex32);
    let multiply = Operation::named("multiply").unwrap_or(Operation::COPY);
    let scaling = Form {
        number: multiply.number,
        operands: [Some(real), None],
        value: real,
        out: real,
        is_in_place: false,
        has_index: false,
    };
    let form = |operation: Operation, [a, b]: [Option<Element>; 2], value: Element| {
        let b = b.filter(|_| operation.is_binary());
        let out = operation.result(value)?;
        Some(source(Form { number: operation.number, operands: [a, b], value, out, ..scaling }))
    };
    let is_listed = |definition: &Definition| {
        definition.functions == Functions::Arithmetic || ["power", "exp", "angle"].contains(&definition.name)
    };
    let all = (0..DEFINITIONS.len()).filter(|&place| is_listed(&DEFINITIONS[place])).map(Operation::at);
    let plain = all.flat_map(|operation| [real, complex].map(|value| form(operation, [Some(value); 2], value)));
    let mixed = [[Some(real), Some(complex)], [Some(complex), None], [None, Some(real)]];
    let in_place = Form { is_in_place: true, ..scaling };
    let take = Form { number: Operation::COPY.number, has_index: true, ..scaling };
    let mixed = mixed.map(|operands| form(multiply, operands, complex));
    plain.chain(mixed).flatten().chain([in_place, take].map(source)).collect()
}

/// Elementwise functions of strided arrays of `f32`, `f64` and complex numbers, with NumPy's
/// conversions of types. Shapes and strides are parameters: a kernel is compiled once for each
/// operation and each combination of types.
///
/// ```
/// use meshloom::gpu::primitives::{Elementwise, Operand, Operation, View};
///
/// meshloom::run(|rank| {
///     let (gpu, recorder) = (&rank.gpu, &mut rank.recorder);
///     let [x, y, sum] = [gpu.array::<f32>("x", 2)?, gpu.array("y", 3)?, gpu.array("sum", 6)?];
///     recorder.upload(&x, 0, &[1.0, 2.0])?;
///     recorder.upload(&y, 0, &[10.0, 20.0, 30.0])?;
///     // The sum of each element of x and each of y, which is read backward.
///     let add = Operation::named("add").unwrap();
///     let column = View { array: x.raw(), start: 0, strides: vec![1, 0] };
///     let row = View { array: y.raw(), start: 2, strides: vec![0, -1] };
///     let operands = [Operand::Array(column), Operand::Array(row)];
///     let target = View::contiguous(sum.raw(), &[2, 3]);
///     Elementwise::default().record(recorder, add, &[2, 3], &target, &operands, None)?;
///     assert_eq!(recorder.download(&sum, 0, 6)?, [31.0, 21.0, 11.0, 32.0, 22.0, 12.0]);
///     Ok(())
/// })?;
/// # Ok::<(), meshloom::Error>(())
/// ```
#[derive(Default)]
pub struct Elementwise(KernelCache<Form>);

impl Elementwise {
    /// Records `out = operation(operands)` for each element of `shape`. Operands that share memory
    /// with `out` are copied first, unless the first operand is `out` itself. With `index`, an axis
    /// and its rows, element `k` along the axis is that of the first operand's row `rows[k]`.
    ///
    /// # Errors
    /// [`DeviceError::TooLong`]; [`DeviceError::Misuse`] for another number of operands, types
    /// without the operation, a result that does not fit `out`, views outside of arrays, or more
    /// than 12 axes that cannot be merged; as [`Recorder::dispatch`].
    pub fn record(
        &self,
        recorder: &mut Recorder,
        operation: Operation,
        shape: &[u64],
        out: &View<'_>,
        operands: &[Operand<'_>],
        index: Option<(usize, &[u32])>,
    ) -> Result<(), DeviceError> {
        let what = operation.definition().name;
        let count = elements(what, shape)?;
        let (expected, got) = (1 + usize::from(operation.is_binary()), operands.len());
        DeviceError::ensure(expected == got, what, || format!("expected {expected} operands, got {got}"))?;
        if count == 0 {
            return Ok(());
        }
        out.check(what, shape)?;
        let has_each_once = shape.iter().zip(&out.strides).all(|(&extent, &stride)| extent <= 1 || stride != 0);
        let why = || format!("the result has elements twice: shape {shape:?} with strides {:?}", out.strides);
        DeviceError::ensure(has_each_once, what, why)?;
        let views = [0, 1].map(|place| match operands.get(place) {
            Some(Operand::Array(view)) => Some(view),
            _ => None,
        });
        let types = views.map(|view| view.map(|view| view.array.element));
        let (mut complex, mut double) = (is_complex(out.array.element), out.array.element.is_double());
        for element in types.into_iter().flatten() {
            (complex, double) = (complex || is_complex(element), double || element.is_double());
        }
        let (value, narrow) = (number(complex, double), number(is_complex(out.array.element), double));
        let result = operation.result(value);
        let fits = result == Some(out.array.element) || (operation == Operation::COPY && result == Some(narrow));
        let why = || format!("the result is {result:?} for operands of {value:?}, not {:?}", out.array.element);
        DeviceError::ensure(fits, what, why)?;
        let mut is_in_place = false;
        for (place, operand) in operands.iter().enumerate() {
            match operand {
                Operand::Scalar(scalar) => match scalar.map(|part| parts(part, double)) {
                    [Some(_), Some(imaginary)] if complex || imaginary[0] == 0.0 => {}
                    [Some(_), Some(_)] => return Err(DeviceError::misuse(what, "a complex scalar and a real result")),
                    _ => {
                        let one = fresh(recorder, number(complex, true), 1)?;
                        let scalar = &scalar[..1 + usize::from(complex)];
                        recorder.upload(&Array::<f64>::new(one.seen_as(Element::F64)), 0, scalar)?;
                        let view = View { array: &one, start: 0, strides: vec![0; shape.len()] };
                        let operands = replaced(operands, place, view);
                        return self.record(recorder, operation, shape, out, &operands, index);
                    }
                },
                Operand::Array(view) => {
                    let mut extents = shape.to_vec();
                    if let Some((axis, rows)) = index.filter(|_| place == 0) {
                        let fits = shape.get(axis) == Some(&(rows.len() as u64));
                        DeviceError::ensure(fits, what, || {
                            format!("{} rows along axis {axis} of {shape:?}", rows.len())
                        })?;
                        extents[axis] = u64::from(rows.iter().copied().max().unwrap_or(0)) + 1;
                    }
                    view.check(what, &extents)?;
                    let is_out = view.array.is(out.array) && view.array.element == out.array.element;
                    is_in_place |= place == 0 && is_out && (view.start, &view.strides) == (out.start, &out.strides);
                    if view.array.shares(out.array) && !(is_in_place && place == 0) {
                        let copy = fresh(recorder, view.array.element, count)?;
                        let target = View::contiguous(&copy, shape);
                        let index = index.filter(|_| place == 0);
                        self.record(recorder, Operation::COPY, shape, &target, &operands[place..=place], index)?;
                        let index = index.filter(|_| place > 0);
                        return self.record(recorder, operation, shape, out, &replaced(operands, place, target), index);
                    }
                }
            }
        }
        let strides = |view: Option<&View<'_>>, axis: usize| view.map_or(0, |view| view.strides[axis]);
        let axes: Vec<Axis<3>> = (0..shape.len())
            .map(|axis| (shape[axis], [out.strides[axis], strides(views[0], axis), strides(views[1], axis)]))
            .collect();
        let (axes, axis) = merged(what, &axes, index.map(|(axis, _)| axis))?;
        let scalar = operands.iter().find_map(|operand| match operand {
            Operand::Scalar(scalar) => Some(scalar.map(|part| parts(part, double).unwrap_or_default())),
            Operand::Array(_) => None,
        });
        let start = |view: Option<&View<'_>>| view.map_or(0, |view| view.start as u32);
        let params = ElementwiseParams {
            count: count as u32,
            rank: axes.len() as u32,
            axis,
            exponent: operation.exponent,
            start_out: out.start as u32,
            start_a: start(views[0]),
            start_b: start(views[1]),
            nothing: 0,
            scalar: scalar.unwrap_or_default(),
            dims: rows(&axes),
        };
        let form = Form {
            number: operation.number,
            operands: types,
            value,
            out: out.array.element,
            is_in_place,
            has_index: index.is_some(),
        };
        let kernel = self.0.get(form, Trust::Library, || source(form));
        let index = match index {
            Some((_, rows)) => {
                let array = recorder.gpu().array::<u32>("primitives::elementwise", rows.len() as u64)?;
                recorder.upload(&array, 0, rows)?;
                Some(array)
            }
            None => None,
        };
        let operands = views.into_iter().enumerate().filter(|(place, _)| !(is_in_place && *place == 0));
        let operands = operands.filter_map(|(_, view)| view.map(|view| view.array));
        let arrays: Vec<_> = operands.chain(index.iter().map(Array::raw)).chain(std::iter::once(out.array)).collect();
        recorder.each(&kernel, &arrays, &params, count)
    }
}

/// Returns operands with a view at one place.
fn replaced<'a>(operands: &[Operand<'a>], place: usize, view: View<'a>) -> Vec<Operand<'a>> {
    let mut operands = operands.to_vec();
    operands[place] = Operand::Array(view);
    operands
}

/// Returns a new array of `len` elements of one of the types of numbers.
pub(super) fn fresh(recorder: &Recorder, element: Element, len: u64) -> Result<RawArray, DeviceError> {
    fn of<T: DeviceElement>(recorder: &Recorder, len: u64) -> Result<RawArray, DeviceError> {
        Ok(recorder.gpu().array::<T>("primitives::elementwise", len)?.raw().clone())
    }
    match element {
        Element::Complex32 => of::<[f32; 2]>(recorder, len),
        Element::F64 => of::<f64>(recorder, len),
        Element::Complex64 => of::<[f64; 2]>(recorder, len),
        Element::Vec4 => of::<[f32; 4]>(recorder, len),
        _ => of::<f32>(recorder, len),
    }
}

/// Splits a number into a sum of three floats; returns `None` if no three floats have this sum.
/// For single precision the first float is the rounded number.
fn parts(value: f64, double: bool) -> Option<[f32; 4]> {
    let first = value as f32;
    if !double || value == 0.0 || !value.is_finite() {
        // With -0, which does not change the sign of a zero.
        return Some([first, -0.0, -0.0, 0.0]);
    }
    let second = (value - f64::from(first)) as f32;
    let third = (value - f64::from(first) - f64::from(second)) as f32;
    let parts = [first, second, third, 0.0];
    let is_exact = first.is_normal() && parts.iter().all(|part| *part == 0.0 || part.is_normal());
    (is_exact && parts.into_iter().map(f64::from).sum::<f64>() == value).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_sums_of_floats() {
        for value in [0.1, -1.0 / 3.0, 1e-20, 1e30, 1e9 / 7.0, f64::INFINITY, -0.0, f64::EPSILON] {
            let sum: f64 = parts(value, true).unwrap()[..3].iter().map(|&part| f64::from(part)).sum();
            assert_eq!(sum.to_bits(), value.to_bits(), "{value}");
        }
        assert!([1e300, 1e-300, 1e-37 / 3.0].iter().all(|&value| parts(value, true).is_none()));
    }
}
