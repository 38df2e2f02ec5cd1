//! Writes a graph as WGSL.

use std::collections::HashMap;
use std::fmt::Write as _;

use wgpu::naga::back::binary_operation_str;
use wgpu::naga::common::wgsl::TryToWgsl;

use super::graph::{Binary, Graph, Node, Op};

impl Graph {
    /// Returns WGSL statements that define `v0`, `v1`, .. for `outputs`, and the expressions of the
    /// outputs. `input` returns the expression of a component of the input. It is a `Value`: a
    /// number, or a vector of numbers that are treated alike.
    pub fn wgsl(&self, outputs: &[Node], input: impl Fn(u32) -> String) -> (String, Vec<String>) {
        let (mut text, mut names) = (String::new(), HashMap::new());
        for node in self.needed(outputs.iter().copied()) {
            let of = |node: Node| -> &String { &names[&node] };
            let expression = match self.op(node) {
                Op::Number(bits) => {
                    names.insert(node, number(f64::from_bits(bits) as f32));
                    continue;
                }
                Op::Input(component) => input(component),
                Op::Flag(flag) => format!("Value() {} Value()", if flag { "==" } else { "!=" }),
                Op::Neg(a) => format!("-{}", of(a)),
                Op::Unary(function, a) => format!("{}({})", function.try_to_wgsl().unwrap_or_default(), of(a)),
                Op::Binary(function, a, b) => binary(function, of(a), of(b)),
                Op::Fma(a, b, c) => format!("fma({}, {}, {})", of(a), of(b), of(c)),
                Op::Test(how, a, b) => format!("{} {} {}", of(a), binary_operation_str(how), of(b)),
                Op::Not(a) => format!("!{}", of(a)),
                Op::Select(condition, [accept, reject]) => {
                    format!("select({}, {}, {})", of(reject), of(accept), of(condition))
                }
            };
            let name = format!("v{}", names.len());
            let _ = writeln!(text, "    let {name} = {expression};");
            names.insert(node, name);
        }
        (text, outputs.iter().map(|node| names[node].clone()).collect())
    }
}

/// Returns a `Value` of a number, which WGSL reads to the same bits.
fn number(value: f32) -> String {
    format!("Value({value:?}f)")
}

fn binary(function: Binary, a: &str, b: &str) -> String {
    match function {
        Binary::Add => format!("{a} + {b}"),
        Binary::Sub => format!("{a} - {b}"),
        Binary::Mul => format!("{a} * {b}"),
        Binary::Div => format!("{a} / {b}"),
        Binary::Rem => format!("{a} % {b}"),
        Binary::Pow => format!("pow({a}, {b})"),
        Binary::Min => format!("min({a}, {b})"),
        Binary::Max => format!("max({a}, {b})"),
        Binary::Atan2 => format!("atan2({a}, {b})"),
    }
}
