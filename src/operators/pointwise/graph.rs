//! Scalar arithmetic of a pointwise function as a graph, component by component.
//!
//! Each node has a larger number than its operands, and equal operations are one node. Vectors are
//! their components. A graph is extended and never changed, so derivatives share nodes with the
//! function.
//!
//! Graphs are evaluated on the host in f64 for tests of the kernels and for small values.

use std::collections::HashMap;

use wgpu::naga::{BinaryOperator, MathFunction};

/// The number of an operation in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(u32);

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Pow,
    Min,
    Max,
    Atan2,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A component of the input, counted over all inputs.
    Input(u32),
    /// A number, as the bits of an `f64`.
    Number(u64),
    /// A truth value.
    Flag(bool),
    /// The negative of a number.
    Neg(Node),
    /// A function of one number that [`function`](super::graph::function) knows.
    Unary(MathFunction, Node),
    /// A function of two numbers.
    Binary(Binary, Node, Node),
    /// `a * b + c`, rounded once.
    Fma(Node, Node, Node),
    /// A comparison of two numbers, or `And` or `InclusiveOr` of two truth values.
    Test(BinaryOperator, Node, Node),
    /// The negation of a truth value.
    Not(Node),
    /// `[accept, reject]`: the first if the condition is true, else the second.
    Select(Node, [Node; 2]),
}

impl Op {
    /// Returns the operands.
    pub fn operands(&self) -> impl Iterator<Item = Node> + use<> {
        let all = match *self {
            Op::Input(_) | Op::Number(_) | Op::Flag(_) => [None; 3],
            Op::Neg(a) | Op::Unary(_, a) | Op::Not(a) => [Some(a), None, None],
            Op::Binary(_, a, b) | Op::Test(_, a, b) => [Some(a), Some(b), None],
            Op::Fma(a, b, c) | Op::Select(a, [b, c]) => [Some(a), Some(b), Some(c)],
        };
        all.into_iter().flatten()
    }
}

/// Operations, each after its operands.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    ops: Vec<Op>,
    numbers: HashMap<Op, Node>,
}

impl Graph {
    /// Returns the node of an operation; reuses an existing one.
    pub fn add(&mut self, op: Op) -> Node {
        *self.numbers.entry(op).or_insert_with(|| {
            self.ops.push(op);
            Node(self.ops.len() as u32 - 1)
        })
    }

    /// Returns the operation of a node.
    pub fn op(&self, node: Node) -> Op {
        self.ops[node.0 as usize]
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns the nodes on which `outputs` depend, in order.
    pub fn needed(&self, outputs: impl IntoIterator<Item = Node>) -> Vec<Node> {
        let mut wanted = vec![false; self.ops.len()];
        outputs.into_iter().for_each(|node| wanted[node.0 as usize] = true);
        for at in (0..self.ops.len()).rev() {
            if wanted[at] {
                self.ops[at].operands().for_each(|node| wanted[node.0 as usize] = true);
            }
        }
        (0..self.ops.len() as u32).filter(|&at| wanted[at as usize]).map(Node).collect()
    }

    /// Returns a component of the input.
    pub fn input(&mut self, number: u32) -> Node {
        self.add(Op::Input(number))
    }

    /// Returns a number.
    pub fn number(&mut self, value: f64) -> Node {
        self.add(Op::Number(value.to_bits()))
    }

    /// Returns `-a`.
    pub fn negative(&mut self, a: Node) -> Node {
        self.add(Op::Neg(a))
    }

    /// Returns a function of one number.
    pub fn unary(&mut self, function: MathFunction, a: Node) -> Node {
        self.add(Op::Unary(function, a))
    }

    /// Returns a function of two numbers.
    pub fn binary(&mut self, function: Binary, a: Node, b: Node) -> Node {
        self.add(Op::Binary(function, a, b))
    }

    /// Returns `a + b`.
    pub fn plus(&mut self, a: Node, b: Node) -> Node {
        self.binary(Binary::Add, a, b)
    }

    /// Returns `a - b`.
    pub fn minus(&mut self, a: Node, b: Node) -> Node {
        self.binary(Binary::Sub, a, b)
    }

    /// Returns `a b`.
    pub fn times(&mut self, a: Node, b: Node) -> Node {
        self.binary(Binary::Mul, a, b)
    }

    /// Returns `a / b`.
    pub fn over(&mut self, a: Node, b: Node) -> Node {
        self.binary(Binary::Div, a, b)
    }

    /// Returns a comparison of numbers, or a combination of truth values.
    pub fn test(&mut self, how: BinaryOperator, a: Node, b: Node) -> Node {
        self.add(Op::Test(how, a, b))
    }

    /// Returns `accept` if `condition` is true, else `reject`.
    pub fn select(&mut self, condition: Node, accept: Node, reject: Node) -> Node {
        if accept == reject { accept } else { self.add(Op::Select(condition, [accept, reject])) }
    }

    /// Returns the sum of products of two vectors.
    pub fn dot(&mut self, a: &[Node], b: &[Node]) -> Node {
        let products: Vec<Node> = a.iter().zip(b).map(|(&a, &b)| self.times(a, b)).collect();
        products.into_iter().reduce(|sum, product| self.plus(sum, product)).unwrap_or_else(|| self.number(0.0))
    }

    /// Adds the operations for the `outputs` of `other`, with `inputs` in place of its inputs.
    /// Returns the nodes of the outputs.
    pub fn graft(&mut self, other: &Graph, inputs: &[Node], outputs: &[Node]) -> Vec<Node> {
        let mut here: HashMap<Node, Node> = HashMap::new();
        for node in other.needed(outputs.iter().copied()) {
            let of = |node: Node| here[&node];
            let new = match other.op(node) {
                Op::Input(number) => inputs[number as usize],
                op @ (Op::Number(_) | Op::Flag(_)) => self.add(op),
                Op::Neg(a) => self.negative(of(a)),
                Op::Unary(function, a) => self.unary(function, of(a)),
                Op::Binary(function, a, b) => self.binary(function, of(a), of(b)),
                Op::Fma(a, b, c) => self.add(Op::Fma(of(a), of(b), of(c))),
                Op::Test(how, a, b) => self.test(how, of(a), of(b)),
                Op::Not(a) => self.add(Op::Not(of(a))),
                Op::Select(condition, [accept, reject]) => self.select(of(condition), of(accept), of(reject)),
            };
            here.insert(node, new);
        }
        outputs.iter().map(|node| here[node]).collect()
    }

    /// Returns `true` if a node is a truth value.
    pub fn is_flag(&self, node: Node) -> bool {
        match self.op(node) {
            Op::Flag(_) | Op::Test(..) | Op::Not(_) => true,
            Op::Select(_, [accept, _]) => self.is_flag(accept),
            _ => false,
        }
    }
}

impl Graph {
    /// Returns the values of `outputs` for these components of the input. Truth values are 1 or 0.
    pub fn evaluate(&self, inputs: &[f64], outputs: &[Node]) -> Vec<f64> {
        let mut values = std::collections::HashMap::new();
        let flag = |is_true: bool| f64::from(u8::from(is_true));
        for node in self.needed(outputs.iter().copied()) {
            let of = |node: Node| -> f64 { values[&node] };
            let value = match self.op(node) {
                Op::Input(input) => inputs[input as usize],
                Op::Number(bits) => f64::from_bits(bits),
                Op::Flag(is_true) => flag(is_true),
                Op::Neg(a) => -of(a),
                Op::Unary(math, a) => function(math).map_or(f64::NAN, |function| function(of(a))),
                Op::Binary(function, a, b) => binary(function, of(a), of(b)),
                Op::Fma(a, b, c) => of(a).mul_add(of(b), of(c)),
                Op::Test(how, a, b) => flag(test(how, of(a), of(b))),
                Op::Not(a) => flag(of(a) == 0.0),
                Op::Select(condition, [accept, reject]) => of(if of(condition) == 0.0 { reject } else { accept }),
            };
            values.insert(node, value);
        }
        outputs.iter().map(|node| values[node]).collect()
    }
}

/// Returns the function of one number; `None` for functions of more numbers or of vectors.
pub fn function(math: MathFunction) -> Option<fn(f64) -> f64> {
    let found: fn(f64) -> f64 = match math {
        MathFunction::Abs => f64::abs,
        // In WGSL the sign of zero is zero.
        MathFunction::Sign => |x| if x == 0.0 { 0.0 } else { x.signum() },
        MathFunction::Floor => f64::floor,
        MathFunction::Ceil => f64::ceil,
        MathFunction::Round => f64::round_ties_even,
        MathFunction::Trunc => f64::trunc,
        MathFunction::Fract => |x| x - x.floor(),
        MathFunction::Sqrt => f64::sqrt,
        MathFunction::InverseSqrt => |x| x.sqrt().recip(),
        MathFunction::Exp => f64::exp,
        MathFunction::Exp2 => f64::exp2,
        MathFunction::Log => f64::ln,
        MathFunction::Log2 => f64::log2,
        MathFunction::Sin => f64::sin,
        MathFunction::Cos => f64::cos,
        MathFunction::Tan => f64::tan,
        MathFunction::Asin => f64::asin,
        MathFunction::Acos => f64::acos,
        MathFunction::Atan => f64::atan,
        MathFunction::Sinh => f64::sinh,
        MathFunction::Cosh => f64::cosh,
        MathFunction::Tanh => f64::tanh,
        MathFunction::Asinh => f64::asinh,
        MathFunction::Acosh => f64::acosh,
        MathFunction::Atanh => f64::atanh,
        _ => return None,
    };
    Some(found)
}

fn binary(function: Binary, a: f64, b: f64) -> f64 {
    match function {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Rem => a - b * (a / b).trunc(),
        Binary::Pow => a.powf(b),
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::Atan2 => a.atan2(b),
    }
}

fn test(how: BinaryOperator, a: f64, b: f64) -> bool {
    match how {
        BinaryOperator::Equal => a == b,
        BinaryOperator::NotEqual => a != b,
        BinaryOperator::Less => a < b,
        BinaryOperator::LessEqual => a <= b,
        BinaryOperator::Greater => a > b,
        BinaryOperator::GreaterEqual => a >= b,
        BinaryOperator::And => a != 0.0 && b != 0.0,
        _ => a != 0.0 || b != 0.0,
    }
}
