//! Evaluation of a graph on the host in f64, for tests of the kernels and for small values.

use super::graph::{Binary, Compare, Graph, Node, Op, Unary};

/// A number or a truth value.
#[derive(Clone, Copy)]
enum Value {
    Number(f64),
    Flag(bool),
}

impl Value {
    fn number(self) -> f64 {
        match self {
            Value::Number(value) => value,
            Value::Flag(flag) => f64::from(u8::from(flag)),
        }
    }

    fn flag(self) -> bool {
        match self {
            Value::Flag(flag) => flag,
            Value::Number(value) => value != 0.0,
        }
    }
}

impl Graph {
    /// Returns the values of `outputs` for these components of the input.
    pub fn evaluate(&self, inputs: &[f64], outputs: &[Node]) -> Vec<f64> {
        let mut values = std::collections::HashMap::new();
        for node in self.needed(outputs.iter().copied()) {
            let of = |node: Node| -> Value { values[&node] };
            let (number, flag) = (|node: Node| of(node).number(), |node: Node| of(node).flag());
            let value = match self.op(node) {
                Op::Input(input) => Value::Number(inputs[input as usize]),
                Op::Number(bits) => Value::Number(f64::from_bits(bits)),
                Op::Flag(flag) => Value::Flag(flag),
                Op::Unary(function, a) => Value::Number(unary(function, number(a))),
                Op::Binary(function, a, b) => Value::Number(binary(function, number(a), number(b))),
                Op::Fma(a, b, c) => Value::Number(number(a).mul_add(number(b), number(c))),
                Op::Compare(how, a, b) => Value::Flag(compare(how, number(a), number(b))),
                Op::Not(a) => Value::Flag(!flag(a)),
                Op::And(a, b) => Value::Flag(flag(a) && flag(b)),
                Op::Or(a, b) => Value::Flag(flag(a) || flag(b)),
                Op::Select(condition, [accept, reject]) => of(if flag(condition) { accept } else { reject }),
            };
            values.insert(node, value);
        }
        outputs.iter().map(|node| values[node].number()).collect()
    }
}

fn unary(function: Unary, x: f64) -> f64 {
    match function {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        // In WGSL the sign of zero is zero.
        Unary::Sign => {
            if x == 0.0 {
                0.0
            } else {
                x.signum()
            }
        }
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        Unary::Trunc => x.trunc(),
        Unary::Fract => x - x.floor(),
        Unary::Sqrt => x.sqrt(),
        Unary::InverseSqrt => x.sqrt().recip(),
        Unary::Exp => x.exp(),
        Unary::Exp2 => x.exp2(),
        Unary::Log => x.ln(),
        Unary::Log2 => x.log2(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Asin => x.asin(),
        Unary::Acos => x.acos(),
        Unary::Atan => x.atan(),
        Unary::Sinh => x.sinh(),
        Unary::Cosh => x.cosh(),
        Unary::Tanh => x.tanh(),
        Unary::Asinh => x.asinh(),
        Unary::Acosh => x.acosh(),
        Unary::Atanh => x.atanh(),
    }
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

fn compare(how: Compare, a: f64, b: f64) -> bool {
    match how {
        Compare::Equal => a == b,
        Compare::NotEqual => a != b,
        Compare::Less => a < b,
        Compare::LessEqual => a <= b,
        Compare::Greater => a > b,
        Compare::GreaterEqual => a >= b,
    }
}
