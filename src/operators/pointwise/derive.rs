//! Derivatives of a graph, as further nodes of the graph.
//!
//! Forward mode carries tangents from inputs to outputs (Jacobian times vector). Reverse mode
//! carries adjoints from outputs to inputs (vector times Jacobian). Both take the partial
//! derivatives of each operation from one table. See Griewank & Walther, *Evaluating Derivatives*,
//! 2008, chapter 3.
//!
//! | where a function has no derivative | what is taken |
//! |---|---|
//! | `abs` at 0 | 0 |
//! | `sign`, `floor`, `ceil`, `round`, `trunc`, `step` and comparisons | 0 everywhere |
//! | `min(a, b)`, `max(a, b)` where a = b | that of `a`; so `clamp` and `saturate` have derivative 1 on their bounds |
//! | `select(b, a, condition)`, `if` | that of the branch that was taken, the other counts as 0 whatever it holds |
//! | `pow(0, b)` by `b` | 0 |
//! | `sqrt` at 0, `log` at 0, `length` and `normalize` at 0 | infinite or NaN, as the formula says |

use wgpu::naga::{BinaryOperator, MathFunction};

use super::{Binary, Graph, Node, Op};

/// A partial derivative.
#[derive(Clone, Copy)]
enum Partial {
    One,
    MinusOne,
    /// A factor.
    Times(Node),
    /// One over a number.
    Over(Node),
    /// 1 where a condition has this value, else 0.
    Where(Node, bool),
}

/// A tangent or an adjoint that may differ from zero.
#[derive(Clone, Copy)]
struct Carried {
    node: Node,
    /// Whether it is the zero of a branch that was not taken, which stays zero in products with
    /// infinity.
    masked: bool,
}

impl Graph {
    /// Returns the tangents of `outputs`, if input `i` has the tangent `tangents[i]`; `None` is
    /// zero.
    pub fn forward(&mut self, outputs: &[Node], tangents: &[Option<Node>]) -> Vec<Node> {
        let needed = self.needed(outputs.iter().copied());
        let mut carried = Carrying::default();
        for &node in &needed {
            if let Op::Input(number) = self.op(node) {
                if let Some(node_tangent) = tangents[number as usize] {
                    carried.set(node, Carried { node: node_tangent, masked: false });
                }
                continue;
            }
            for (operand, partial) in self.partials(node) {
                if let Some(tangent) = carried.get(operand) {
                    let term = self.scale(tangent, partial);
                    // `select` drops the tangent of the branch that is not taken.
                    carried.add(self, node, Carried { masked: false, ..term });
                }
            }
        }
        outputs.iter().map(|&node| carried.get(node).map_or_else(|| self.number(0.0), |own| own.node)).collect()
    }

    /// Returns the adjoints of the first `inputs` inputs, if output `i` has the adjoint
    /// `adjoints[i]`.
    pub fn reverse(&mut self, outputs: &[Node], adjoints: &[Node], inputs: u32) -> Vec<Node> {
        let needed = self.needed(outputs.iter().copied());
        let mut carried = Carrying::default();
        for (&output, &adjoint) in outputs.iter().zip(adjoints) {
            carried.add(self, output, Carried { node: adjoint, masked: false });
        }
        let mut found = vec![None; inputs as usize];
        for &node in needed.iter().rev() {
            let Some(adjoint) = carried.get(node) else { continue };
            if let Op::Input(number) = self.op(node) {
                if let Some(found) = found.get_mut(number as usize) {
                    *found = Some(adjoint.node);
                }
                continue;
            }
            for (operand, partial) in self.partials(node) {
                let term = self.scale(adjoint, partial);
                carried.add(self, operand, term);
            }
        }
        found.into_iter().map(|node| node.unwrap_or_else(|| self.number(0.0))).collect()
    }

    /// Returns a tangent or adjoint times a partial derivative.
    fn scale(&mut self, carried: Carried, partial: Partial) -> Carried {
        let Carried { node, masked } = carried;
        let scaled = match partial {
            Partial::One => return carried,
            Partial::MinusOne => return Carried { node: self.negative(node), masked },
            Partial::Where(condition, value) => {
                let zero = self.number(0.0);
                let [accept, reject] = if value { [node, zero] } else { [zero, node] };
                return Carried { node: self.select(condition, accept, reject), masked: true };
            }
            Partial::Times(factor) => self.times(node, factor),
            Partial::Over(divisor) => self.over(node, divisor),
        };
        if !masked {
            return Carried { node: scaled, masked };
        }
        let zero = self.number(0.0);
        let is_zero = self.test(BinaryOperator::Equal, node, zero);
        Carried { node: self.select(is_zero, zero, scaled), masked }
    }

    /// Returns the operands by which a node is differentiable, with the partial derivatives.
    fn partials(&mut self, node: Node) -> Vec<(Node, Partial)> {
        match self.op(node) {
            Op::Input(_) | Op::Number(_) | Op::Flag(_) => Vec::new(),
            Op::Test(..) | Op::Not(_) => Vec::new(),
            Op::Neg(a) => vec![(a, Partial::MinusOne)],
            Op::Unary(function, a) => {
                self.unary_partial(function, a, node).map(|partial| (a, partial)).into_iter().collect()
            }
            Op::Binary(function, a, b) => self.binary_partials(function, [a, b], node),
            Op::Fma(a, b, c) => vec![(a, Partial::Times(b)), (b, Partial::Times(a)), (c, Partial::One)],
            Op::Select(condition, [accept, reject]) => {
                vec![(accept, Partial::Where(condition, true)), (reject, Partial::Where(condition, false))]
            }
        }
    }

    /// Returns the derivative of `function` at `x`, where its value is `y`.
    fn unary_partial(&mut self, function: MathFunction, x: Node, y: Node) -> Option<Partial> {
        let one = self.number(1.0);
        Some(match function {
            MathFunction::Sign
            | MathFunction::Floor
            | MathFunction::Ceil
            | MathFunction::Round
            | MathFunction::Trunc => return None,
            MathFunction::Fract => Partial::One,
            MathFunction::Abs => Partial::Times(self.unary(MathFunction::Sign, x)),
            MathFunction::Sqrt => Partial::Over(self.plus(y, y)),
            MathFunction::InverseSqrt => {
                let half = self.number(-0.5);
                let quotient = self.over(y, x);
                Partial::Times(self.times(half, quotient))
            }
            MathFunction::Exp => Partial::Times(y),
            MathFunction::Exp2 => {
                let log = self.number(std::f64::consts::LN_2);
                Partial::Times(self.times(y, log))
            }
            MathFunction::Log => Partial::Over(x),
            MathFunction::Log2 => {
                let log = self.number(std::f64::consts::LN_2);
                Partial::Over(self.times(x, log))
            }
            MathFunction::Sin => Partial::Times(self.unary(MathFunction::Cos, x)),
            MathFunction::Cos => {
                let sin = self.unary(MathFunction::Sin, x);
                Partial::Times(self.negative(sin))
            }
            MathFunction::Tan => {
                let square = self.times(y, y);
                Partial::Times(self.plus(one, square))
            }
            MathFunction::Sinh => Partial::Times(self.unary(MathFunction::Cosh, x)),
            MathFunction::Cosh => Partial::Times(self.unary(MathFunction::Sinh, x)),
            // Avoids the cancellation of 1 - y^2.
            MathFunction::Tanh => {
                let cosh = self.unary(MathFunction::Cosh, x);
                let square = self.times(cosh, cosh);
                Partial::Over(square)
            }
            inverse => self.inverse_partial(inverse, x)?,
        })
    }

    /// Returns the derivative of an inverse trigonometric or hyperbolic function at `x`.
    fn inverse_partial(&mut self, function: MathFunction, x: Node) -> Option<Partial> {
        let one = self.number(1.0);
        Some(match function {
            MathFunction::Asin => Partial::Over(self.root_of_product(x, [Binary::Sub, Binary::Add])),
            MathFunction::Acos => {
                let root = self.root_of_product(x, [Binary::Sub, Binary::Add]);
                Partial::Over(self.negative(root))
            }
            MathFunction::Atan => {
                let square = self.times(x, x);
                Partial::Over(self.plus(one, square))
            }
            MathFunction::Asinh => {
                let square = self.times(x, x);
                let sum = self.plus(square, one);
                Partial::Over(self.unary(MathFunction::Sqrt, sum))
            }
            MathFunction::Acosh => {
                let (below, above) = (self.minus(x, one), self.plus(x, one));
                let product = self.times(below, above);
                Partial::Over(self.unary(MathFunction::Sqrt, product))
            }
            MathFunction::Atanh => {
                let (below, above) = (self.minus(one, x), self.plus(one, x));
                Partial::Over(self.times(below, above))
            }
            _ => return None,
        })
    }

    /// Returns `sqrt((1 . x) (1 . x))` with two operations, which avoids the cancellation of `1 -
    /// x^2`.
    fn root_of_product(&mut self, x: Node, operations: [Binary; 2]) -> Node {
        let one = self.number(1.0);
        let [a, b] = operations.map(|operation| self.binary(operation, one, x));
        let product = self.times(a, b);
        self.unary(MathFunction::Sqrt, product)
    }

    fn binary_partials(&mut self, function: Binary, [a, b]: [Node; 2], node: Node) -> Vec<(Node, Partial)> {
        let (by_a, by_b) = match function {
            Binary::Add => (Partial::One, Partial::One),
            Binary::Sub => (Partial::One, Partial::MinusOne),
            Binary::Mul => (Partial::Times(b), Partial::Times(a)),
            Binary::Div => {
                let quotient = self.over(node, b);
                (Partial::Over(b), Partial::Times(self.negative(quotient)))
            }
            // a - b trunc(a / b)
            Binary::Rem => {
                let quotient = self.over(a, b);
                let whole = self.unary(MathFunction::Trunc, quotient);
                (Partial::One, Partial::Times(self.negative(whole)))
            }
            Binary::Pow => return self.power_partials([a, b], node),
            Binary::Min => {
                let first = self.test(BinaryOperator::LessEqual, a, b);
                (Partial::Where(first, true), Partial::Where(first, false))
            }
            Binary::Max => {
                let first = self.test(BinaryOperator::GreaterEqual, a, b);
                (Partial::Where(first, true), Partial::Where(first, false))
            }
            Binary::Atan2 => {
                let square = self.dot(&[a, b], &[a, b]);
                let (by_y, quotient) = (self.over(b, square), self.over(a, square));
                (Partial::Times(by_y), Partial::Times(self.negative(quotient)))
            }
        };
        vec![(a, by_a), (b, by_b)]
    }

    fn power_partials(&mut self, [a, b]: [Node; 2], node: Node) -> Vec<(Node, Partial)> {
        let constant = if let Op::Number(bits) = self.op(b) { Some(f64::from_bits(bits)) } else { None };
        let lower = match constant {
            Some(1.0) => return vec![(a, Partial::One)],
            Some(2.0) => a,
            Some(exponent) => {
                let exponent = self.number(exponent - 1.0);
                self.binary(Binary::Pow, a, exponent)
            }
            None => {
                let one = self.number(1.0);
                let exponent = self.minus(b, one);
                self.binary(Binary::Pow, a, exponent)
            }
        };
        let by_a = (a, Partial::Times(self.times(b, lower)));
        if constant.is_some() {
            return vec![by_a];
        }
        let (zero, log) = (self.number(0.0), self.unary(MathFunction::Log, a));
        let product = self.times(node, log);
        let is_zero = self.test(BinaryOperator::Equal, a, zero);
        vec![by_a, (b, Partial::Times(self.select(is_zero, zero, product)))]
    }
}

/// Tangents or adjoints of nodes.
#[derive(Default)]
struct Carrying(std::collections::HashMap<Node, Carried>);

impl Carrying {
    fn get(&self, node: Node) -> Option<Carried> {
        self.0.get(&node).copied()
    }

    fn set(&mut self, node: Node, carried: Carried) {
        self.0.insert(node, carried);
    }

    fn add(&mut self, graph: &mut Graph, node: Node, term: Carried) {
        let sum = match self.get(node) {
            None => term,
            Some(other) => Carried { node: graph.plus(other.node, term.node), masked: other.masked && term.masked },
        };
        self.set(node, sum);
    }
}
