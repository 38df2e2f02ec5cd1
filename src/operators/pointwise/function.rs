//! Pointwise functions: graph, arguments and results.

use std::ops::Range;

use wgpu::naga::front::wgsl;
use wgpu::naga::valid::{Capabilities, ValidationFlags, Validator};
use wgpu::naga::{ScalarKind, Span, TypeInner};

use super::{Binary, Graph, Lowering, Node, Op, PointwiseError, Value};

/// An argument of a pointwise function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The name.
    pub name: String,
    /// Components: 1 for a number, 2 to 4 for a vector.
    pub width: u32,
}

/// A function of values at one place.
///
/// - Arguments and results are `f32` and vectors of it. Supported are `let`, `var`, structures,
///   `if`, `select`, calls of other functions in the text, constants, and the builtin functions of
///   floats and their vectors. Refused with the line are loops, integers (except constant indices),
///   matrices (except `determinant` and `transpose`), module variables and stores into them,
///   `refract`, `modf`, `frexp`, `ldexp` and `quantizeToF16`.
/// - `if` computes both branches and chooses. The other branch adds nothing to a derivative, even
///   if it is infinite.
/// - Where a function has no derivative, `abs` has 0 at 0, and `min` and `max` take the first at a
///   tie.
/// - Functions are computed component by component, in the order of the text; a compiler may
///   contract products and sums.
///
/// ```
/// use meshloom::operators::Pointwise;
///
/// let flow = Pointwise::new("fn f(x: f32, rate: f32) -> f32 { return exp(rate * x) / (1.0 + x * x); }", "f")?;
/// assert_eq!(flow.evaluate(&[0.0, 3.0]), [1.0]);
/// // d/dx = 3, d/d rate = 0 there.
/// assert_eq!(flow.vjp().evaluate(&[0.0, 3.0, 1.0]), [3.0, 0.0]);
/// # Ok::<(), meshloom::operators::PointwiseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pointwise {
    graph: Graph,
    arguments: Vec<Argument>,
    results: Vec<Argument>,
    /// Components of all results.
    outputs: Vec<Node>,
}

impl Pointwise {
    /// Creates the function `name` of a text in WGSL.
    ///
    /// # Errors
    /// - [`PointwiseError`], with the line.
    pub fn new(text: &str, name: &str) -> Result<Self, PointwiseError> {
        let module = wgsl::parse_str(text).map_err(|error| PointwiseError::Wgsl(error.emit_to_string(text)))?;
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::empty());
        validator.validate(&module).map_err(|error| PointwiseError::Wgsl(error.emit_to_string(text)))?;
        let of_name = |function: &&wgpu::naga::Function| function.name.as_deref() == Some(name);
        let Some(function) = module.functions.iter().map(|(_, function)| function).find(of_name) else {
            return Err(PointwiseError::Signature(format!("the text has no function `{name}`")));
        };
        let mut lowering = Lowering { module: &module, source: text, graph: Graph::default(), steps: 0 };
        let (mut arguments, mut values, mut component) = (Vec::new(), Vec::new(), 0);
        for (number, argument) in function.arguments.iter().enumerate() {
            let name = argument.name.clone().unwrap_or_else(|| format!("argument {number}"));
            let ty = &module.types[argument.ty].inner;
            let Some(width) = width(ty) else {
                let why = format!("`{name}` is neither f32 nor a vector of f32");
                return Err(PointwiseError::Signature(why));
            };
            let nodes = (component..component + width).map(|number| Value::Scalar(lowering.graph.input(number)));
            let mut nodes: Vec<Value> = nodes.collect();
            values.push(if width == 1 { nodes.remove(0) } else { Value::Composite(nodes) });
            component += width;
            arguments.push(Argument { name, width });
        }
        if function.result.as_ref().and_then(|result| width(&module.types[result.ty].inner)).is_none() {
            return Err(PointwiseError::Signature(format!("`{name}` returns neither f32 nor a vector of f32")));
        }
        let value = lowering.call(function, values, 0, Span::UNDEFINED)?;
        let outputs = value.scalars().unwrap_or_default();
        let results = vec![Argument { name: name.into(), width: outputs.len() as u32 }];
        Ok(Pointwise { graph: lowering.graph, arguments, results, outputs })
    }

    /// Returns the argument that a result is, if it is one unchanged.
    #[must_use]
    pub fn passed(&self, result: usize) -> Option<usize> {
        let (first, width) = (total(&self.results[..result]), self.results[result].width);
        let mut next = 0;
        self.arguments.iter().position(|argument| {
            let start = next;
            next += argument.width;
            let same = |at: u32| matches!(self.graph.op(self.outputs[(first + at) as usize]), Op::Input(number) if number == start + at);
            argument.width == width && (0..width).all(same)
        })
    }

    /// Creates the identity.
    pub(in crate::operators) fn identity(arguments: Vec<Argument>) -> Self {
        let mut graph = Graph::default();
        let outputs = (0..total(&arguments)).map(|number| graph.input(number)).collect();
        Pointwise { graph, results: arguments.clone(), arguments, outputs }
    }

    /// Creates `function(a, b)`, component by component. An operand of one component counts for all
    /// components of the other.
    pub(in crate::operators) fn componentwise(function: Binary, widths: [u32; 2]) -> Self {
        let mut graph = Graph::default();
        let mut of = |component| {
            let at = |operand: usize| if widths[operand] == 1 { 0 } else { component };
            let (a, b) = (graph.input(at(0)), graph.input(widths[0] + at(1)));
            graph.binary(function, a, b)
        };
        let outputs: Vec<Node> = (0..widths[0].max(widths[1])).map(&mut of).collect();
        let arguments = ["a", "b"].into_iter().zip(widths).map(|(name, width)| Argument { name: name.into(), width });
        Pointwise { arguments: arguments.collect(), ..Self::of_x(graph, outputs) }
    }

    /// Creates a function of one argument, with as many components as its result.
    fn of_x(graph: Graph, outputs: Vec<Node>) -> Self {
        let argument = |name: &str| vec![Argument { name: name.into(), width: outputs.len() as u32 }];
        Pointwise { graph, arguments: argument("x"), results: argument("result"), outputs }
    }

    /// Creates `function(x, number)` of one component.
    pub(in crate::operators) fn with_number(function: Binary, number: f64) -> Self {
        let mut graph = Graph::default();
        let (x, number) = (graph.input(0), graph.number(number));
        let outputs = vec![graph.binary(function, x, number)];
        Self::of_x(graph, outputs)
    }

    /// Creates `x^exponent` of one component by products, and a quotient for a negative exponent.
    pub(in crate::operators) fn power(exponent: i32) -> Self {
        let mut graph = Graph::default();
        let (mut square, mut left, mut product) = (graph.input(0), exponent.unsigned_abs(), None);
        while left > 0 {
            if left % 2 == 1 {
                product = Some(product.map_or(square, |product| graph.times(product, square)));
            }
            left /= 2;
            if left > 0 {
                square = graph.times(square, square);
            }
        }
        let one = graph.number(1.0);
        let product = product.unwrap_or(one);
        let outputs = vec![if exponent < 0 { graph.over(one, product) } else { product }];
        Self::of_x(graph, outputs)
    }

    /// Returns this function of one component applied to each of `width` components.
    pub(in crate::operators) fn repeated(&self, width: u32) -> Self {
        let mut graph = Graph::default();
        let outputs = (0..width).flat_map(|component| {
            let input = graph.input(component);
            graph.graft(&self.graph, &[input], &self.outputs)
        });
        let outputs = outputs.collect();
        Self::of_x(graph, outputs)
    }

    /// Returns the arguments, in order.
    #[must_use]
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }

    /// Returns the results, in order: one for a function in WGSL, with its name; one for each
    /// argument of a [`vjp`](Self::vjp).
    #[must_use]
    pub fn results(&self) -> &[Argument] {
        &self.results
    }

    /// Returns the components of all results.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.outputs.len() as u32
    }

    /// Returns the components of all arguments.
    fn components(&self) -> u32 {
        total(&self.arguments)
    }

    /// Returns the number of arithmetic operations per place.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.graph.needed(self.outputs.iter().copied()).len()
    }

    /// Returns `next` of the results of this function, its first arguments, as one function. The
    /// other arguments of `next` follow those of this function.
    ///
    /// # Errors
    /// [`PointwiseError::Mismatch`] if the first arguments of `next` have other components than the
    /// results.
    pub fn then(&self, next: &Pointwise) -> Result<Self, PointwiseError> {
        let Some((taken, others)) = next.arguments.split_at_checked(self.results.len()) else {
            let (results, arguments) = (self.results.len(), next.arguments.len());
            let why = format!("{results} results before a function of {arguments} arguments; it must take them all");
            return Err(PointwiseError::Mismatch(why));
        };
        if let Some((to, from)) = taken.iter().zip(&self.results).find(|(to, from)| to.width != from.width) {
            let why = format!("`{}` has {} components, the result before it {}", to.name, to.width, from.width);
            return Err(PointwiseError::Mismatch(why));
        }
        let (mut graph, mut inputs, mut component) = (self.graph.clone(), self.outputs.clone(), self.components());
        for other in others {
            inputs.extend((component..component + other.width).map(|number| graph.input(number)));
            component += other.width;
        }
        let outputs = graph.graft(&next.graph, &inputs, &next.outputs);
        Ok(Pointwise { graph, arguments: [&self.arguments, others].concat(), results: next.results.clone(), outputs })
    }

    /// Returns the results of this function and then of `other`, whose argument `i` is argument
    /// `shared[i]` of this function, or a new one.
    pub(in crate::operators) fn beside(&self, other: &Pointwise, shared: &[Option<usize>]) -> Self {
        let (mut graph, mut arguments) = (self.graph.clone(), self.arguments.clone());
        let mut inputs = Vec::new();
        for (argument, shared) in other.arguments.iter().zip(shared) {
            let number = shared.unwrap_or_else(|| {
                arguments.push(argument.clone());
                arguments.len() - 1
            });
            inputs.extend(ranges(&arguments)[number].clone().map(|component| graph.input(component as u32)));
        }
        let more = graph.graft(&other.graph, &inputs, &other.outputs);
        let results = [&self.results[..], &other.results].concat();
        Pointwise { graph, arguments, results, outputs: [&self.outputs[..], &more].concat() }
    }

    /// Reorders arguments: argument `i` was number `order[i]`.
    pub(in crate::operators) fn reordered(&self, order: &[usize]) -> Self {
        let arguments: Vec<Argument> = order.iter().map(|&old| self.arguments[old].clone()).collect();
        let places = ranges(&arguments);
        let (mut graph, mut inputs) = (Graph::default(), vec![None; self.components() as usize]);
        for (new, &old) in order.iter().enumerate() {
            for (component, input) in places[new].clone().zip(ranges(&self.arguments)[old].clone()) {
                inputs[input] = Some(graph.input(component as u32));
            }
        }
        let inputs: Vec<Node> = inputs.into_iter().flatten().collect();
        let outputs = graph.graft(&self.graph, &inputs, &self.outputs);
        Pointwise { graph, arguments, results: self.results.clone(), outputs }
    }

    /// Reorders or selects results: result `i` was number `order[i]`.
    pub(in crate::operators) fn with_results(&self, order: &[usize]) -> Self {
        let places = ranges(&self.results);
        let outputs = order.iter().flat_map(|&old| &self.outputs[places[old].clone()]).copied().collect();
        let results = order.iter().map(|&old| self.results[old].clone()).collect();
        Pointwise { graph: self.graph.clone(), arguments: self.arguments.clone(), results, outputs }
    }

    /// Returns, for each argument, whether the results depend on it.
    pub(super) fn used(&self) -> Vec<bool> {
        let mut used = vec![false; self.components() as usize];
        for node in self.graph.needed(self.outputs.iter().copied()) {
            if let Op::Input(number) = self.graph.op(node) {
                used[number as usize] = true;
            }
        }
        ranges(&self.arguments).into_iter().map(|range| used[range].contains(&true)).collect()
    }

    /// Returns the derivative times a vector: a function of the arguments and a tangent for each
    /// (`d_` before the name), whose result is the tangent of the result.
    #[must_use]
    pub fn jvp(&self) -> Pointwise {
        self.jvp_by(self.arguments.len())
    }

    /// Returns the derivative by the first `variables` arguments; the others are constants.
    pub(in crate::operators) fn jvp_by(&self, variables: usize) -> Pointwise {
        let mut graph = self.graph.clone();
        let (count, varied) = (self.components(), total(&self.arguments[..variables]));
        let mut tangents: Vec<_> = (count..count + varied).map(|number| Some(graph.input(number))).collect();
        tangents.resize(count as usize, None);
        let outputs = graph.forward(&self.outputs, &tangents);
        let arguments = [&self.arguments[..], &prefixed("d_", &self.arguments[..variables])].concat();
        Pointwise { graph, arguments, results: prefixed("d_", &self.results), outputs }
    }

    /// Returns a vector times the derivative: a function of the arguments and the adjoint of each
    /// result, whose results are the adjoints of all arguments.
    #[must_use]
    pub fn vjp(&self) -> Pointwise {
        self.vjp_by(self.arguments.len())
    }

    /// Returns the product for the first `variables` arguments; the others are constants.
    pub(in crate::operators) fn vjp_by(&self, variables: usize) -> Pointwise {
        let mut graph = self.graph.clone();
        let (count, width) = (self.components(), self.width());
        let adjoints: Vec<_> = (count..count + width).map(|number| graph.input(number)).collect();
        let varied = &self.arguments[..variables];
        let outputs = graph.reverse(&self.outputs, &adjoints, total(varied));
        let arguments = [&self.arguments[..], &prefixed("adjoint_", &self.results)].concat();
        Pointwise { graph, arguments, results: prefixed("adjoint_", varied), outputs }
    }

    /// Returns the product of the derivative by the first `variables` arguments and its transpose:
    /// a function of the arguments and a tangent for each of these, whose results are their
    /// cotangents. The value is computed once for both.
    pub(in crate::operators) fn normal_by(&self, variables: usize) -> Pointwise {
        let Pointwise { mut graph, arguments, outputs: tangents, .. } = self.jvp_by(variables);
        let varied = &self.arguments[..variables];
        let outputs = graph.reverse(&self.outputs, &tangents, total(varied));
        Pointwise { graph, arguments, results: varied.to_vec(), outputs }
    }

    /// Returns the result at one place, computed on the host in f64 from the components of all
    /// arguments.
    ///
    /// # Panics
    /// If the number of values is not that of the components.
    #[must_use]
    pub fn evaluate(&self, values: &[f64]) -> Vec<f64> {
        assert_eq!(values.len() as u32, self.components(), "one value per component of the arguments");
        self.graph.evaluate(values, &self.outputs)
    }

    /// Returns the body of a kernel: statements, and expressions of the components of the result.
    /// `read` returns the expression of component `c` of argument `a`.
    pub fn wgsl(&self, read: impl Fn(usize, u32) -> String) -> (String, Vec<String>) {
        let places: Vec<(usize, u32)> = (self.arguments.iter().enumerate())
            .flat_map(|(number, argument)| (0..argument.width).map(move |component| (number, component)))
            .collect();
        self.graph.wgsl(&self.outputs, |component| {
            let (argument, component) = places[component as usize];
            read(argument, component)
        })
    }
}

fn prefixed(prefix: &str, arguments: &[Argument]) -> Vec<Argument> {
    let argument = |Argument { name, width }: &Argument| Argument { name: format!("{prefix}{name}"), width: *width };
    arguments.iter().map(argument).collect()
}

/// Returns the components of all arguments.
fn total(arguments: &[Argument]) -> u32 {
    arguments.iter().map(|argument| argument.width).sum()
}

/// Returns the range of components of each argument.
pub(super) fn ranges(arguments: &[Argument]) -> Vec<Range<usize>> {
    let mut start = 0;
    let range = |argument: &Argument| {
        start += argument.width as usize;
        start - argument.width as usize..start
    };
    arguments.iter().map(range).collect()
}

/// Returns the components of a type of f32.
fn width(ty: &TypeInner) -> Option<u32> {
    let is_f32 = |scalar: &wgpu::naga::Scalar| scalar.kind == ScalarKind::Float && scalar.width == 4;
    match ty {
        TypeInner::Scalar(scalar) if is_f32(scalar) => Some(1),
        TypeInner::Vector { size, scalar } if is_f32(scalar) => Some(*size as u32),
        _ => None,
    }
}
