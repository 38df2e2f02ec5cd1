//! Operators from a caller's WGSL: a function for the value and one for each derivative.

use std::rc::Rc;

use super::{
    Differentiable, Fingerprint, Linearized, OperatorCost, OperatorError, Result, Signature, Space, Vector, refuse,
};
use crate::fft::Values;
use crate::gpu::{Array, Callback, Kernel, KernelSource, RawArray};
use crate::grid::Cost;
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct KernelOperatorParams {
        /// Numbers of the result.
        operator_count: u32,
        /// Numbers of the domain.
        operator_domain: u32,
        /// Numbers of the target.
        operator_target: u32,
    }
}

/// An operator between two real leaves, from three functions in WGSL.
/// [`PointwiseOperator`](super::PointwiseOperator) derives its derivatives itself; use this one
/// where a number of the result depends on several numbers.
///
/// The text defines
///
/// | function | computes |
/// |---|---|
/// | `fn value(i: u32) -> f32` | number `i` of `y = f(x)` |
/// | `fn jvp(i: u32) -> f32` | number `i` of `dy = f'(x) dx` |
/// | `fn vjp(i: u32) -> f32` | number `i` of `dx = f'(x)^T dy` |
///
/// with `x(i)` in all of them, `dx(i)` in `jvp` and `dy(i)` in `vjp`. Numbers beyond the first or
/// the last are 0. Each rank sees its own numbers, in the order of
/// [`FieldLayout`](crate::grid::FieldLayout) for cells. For leaves that are cut over ranks, compose
/// with [`Ghosts`](super::Ghosts), whose adjoint adds contributions of ranks in `f32`: then
/// derivatives agree between numbers of ranks to rounding only, not in all bits.
/// [`check_derivative`](super::check_derivative) and [`check_adjoint`](super::check_adjoint) find
/// mistakes in the derivatives.
///
/// ```
/// use meshloom::operators::{KernelOperator, Leaf, Model, Space, Vector, check_adjoint, random_field};
///
/// meshloom::run(|rank| {
///     let (domain, target) = (Space::of("x", Leaf::vector(8))?, Space::of("y", Leaf::vector(7))?);
///     let products = Model::new(KernelOperator::new(
///         "products",
///         &domain,
///         &target,
///         "fn value(i: u32) -> f32 { return x(i) * x(i + 1u); }
///          fn jvp(i: u32) -> f32 { return dx(i) * x(i + 1u) + x(i) * dx(i + 1u); }
///          fn vjp(i: u32) -> f32 { return dy(i) * x(i + 1u) + dy(i - 1u) * x(i - 1u); }",
///     )?);
///     let point = random_field(rank, &domain, 1)?;
///     check_adjoint(rank, &products, &point)?;
///     Ok(())
/// })?;
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct KernelOperator {
    signature: Signature,
    text: String,
    value: Kernel,
    jvp: Kernel,
    vjp: Kernel,
}

/// Returns the kernel that evaluates `function`, which reads the arrays `read` beside the result.
fn source(name: &str, text: &Callback, function: &str, read: &[&str]) -> KernelSource {
    let accessor = |array: &str, count: &str| {
        let load = match read.contains(&array) {
            true => format!("select(0.0, load_operator_{array}(min(i, params.{count} - 1u)), i < params.{count})"),
            false => "0.0".into(),
        };
        format!("fn {array}(i: u32) -> f32 {{ return {load}; }}\n")
    };
    let declared: String =
        read.iter().map(|array| format!("var<storage, read> operator_{array}: array<f32>;\n")).collect();
    let accessors = [("x", "operator_domain"), ("dx", "operator_domain"), ("dy", "operator_target")];
    let accessors: String = accessors.iter().map(|(array, count)| accessor(array, count)).collect();
    let body = format!(
        "var<uniform> params: Params;\n{declared}var<storage, read_write> operator_result: array<f32>;\n{accessors}\
         #import operators::functions\n\
         fn each(i: u32) {{ store_operator_result(i, {function}(i)); }}\n#each params.operator_count\n"
    );
    let source = KernelSource::new(format!("operators::{name} ({function})"), body).params::<KernelOperatorParams>();
    text.bind(source, "operators::functions")
}

impl KernelOperator {
    /// Creates the operator from the only leaf of `domain` to the only leaf of `target`. Kernels
    /// are compiled when they first run, with run-time checks.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if a space is not one real leaf on the device, or the text
    ///   lacks a function.
    pub fn new(name: &str, domain: &Space, target: &Space, text: &str) -> Result<Self> {
        for (which, space) in [("domain", domain), ("target", target)] {
            let fits = space.only().is_some_and(|(_, leaf)| leaf.values == Values::Real && !leaf.is_on_host());
            if !fits {
                return refuse(name, format!("the {which} is {space}: expected one real leaf on the device"));
            }
        }
        let callback = Callback::new(text);
        callback
            .check("KernelOperator", &["fn value", "fn jvp", "fn vjp"])
            .map_err(|error| OperatorError::invalid(name, error.to_string()))?;
        let kernel = |function: &str, read: &[&str]| Kernel::new(source(name, &callback, function, read));
        Ok(KernelOperator {
            signature: Signature::new(name.to_string(), domain, target),
            text: text.into(),
            value: kernel("value", &["x"]),
            jvp: kernel("jvp", &["x", "dx"]),
            vjp: kernel("vjp", &["x", "dy"]),
        })
    }

    fn run(&self, rank: &mut Rank, kernel: &Kernel, inputs: &[&Vector], output: &Vector) -> Result<()> {
        let arrays: Vec<&Array<f32>> =
            inputs.iter().chain([&output]).map(|vector| vector.single()).collect::<Result<_, _>>()?;
        let raw: Vec<&RawArray> = arrays.iter().map(|array| array.raw()).collect();
        let count = output.single()?.len();
        let params = KernelOperatorParams {
            operator_count: count as u32,
            operator_domain: self.signature.domain.own_numbers() as u32,
            operator_target: self.signature.target.own_numbers() as u32,
        };
        Ok(rank.recorder.each(kernel, &raw, &params, count)?)
    }
}

impl Differentiable for KernelOperator {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<()> {
        self.fits(x, y)?;
        self.run(rank, &self.value, &[x], y)
    }

    fn linearize(self: Rc<Self>, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Box<dyn Linearized>> {
        self.apply(rank, x, y)?;
        self.derivative(rank, x)
    }

    fn derivative(self: Rc<Self>, _rank: &mut Rank, x: &Vector) -> Result<Box<dyn Linearized>> {
        self.signature.domain.admits(x.space(), &self.signature.name)?;
        Ok(Box::new(At { operator: self, x: x.clone() }))
    }

    fn constants(&self, _rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        out.text(&self.text);
        Ok(())
    }

    fn cost(&self) -> OperatorCost {
        // Each number is counted once; a function that reads several finds them in caches.
        let (domain, target) = (self.signature.domain.own_numbers(), self.signature.target.own_numbers());
        OperatorCost {
            apply: Cost::kernels(1, 4 * (domain + target)),
            jvp: Cost::kernels(1, 4 * (2 * domain + target)),
            vjp: Cost::kernels(1, 4 * (2 * domain + target)),
        }
    }
}

/// The derivative at `x`.
struct At {
    operator: Rc<KernelOperator>,
    x: Vector,
}

impl Linearized for At {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<()> {
        self.operator.fits(dx, dy)?;
        self.operator.run(rank, &self.operator.jvp, &[&self.x, dx], dy)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<()> {
        self.operator.fits(dx, dy)?;
        self.operator.run(rank, &self.operator.vjp, &[&self.x, dy], dx)
    }
}
