//! Evaluation of a graph on the host in f64, for tests of the kernels and for small values.

use wgpu::naga::{BinaryOperator, MathFunction};

use super::graph::{Binary, Graph, Node, Op};

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
