//! Builtin functions of floats in WGSL as operations of a graph.

use wgpu::naga::{BinaryOperator, MathFunction, Span};

use super::graph::function;
use super::{Binary, Graph, Lowering, Node, Op, Result, Value};

impl Lowering<'_> {
    /// Returns the value of a builtin function of floats.
    pub(super) fn math(&mut self, fun: MathFunction, values: &[Value], at: Span) -> Result<Value> {
        if function(fun).is_some() {
            return self.each([values[0].clone()], at, |graph, [x]| Some(graph.unary(fun, x)));
        }
        if let Some(function) = binary_of(fun) {
            let values = [values[0].clone(), values[1].clone()];
            return self.each(values, at, |graph, [a, b]| Some(graph.binary(function, a, b)));
        }
        if let Some(result) = self.componentwise(fun, values, at) {
            return result;
        }
        self.geometry(fun, values, at)
    }

    /// Computes functions that consist of others, component by component.
    fn componentwise(&mut self, fun: MathFunction, values: &[Value], at: Span) -> Option<Result<Value>> {
        let factor = |factor: f64| {
            move |graph: &mut Graph, [x]: [Node; 1]| {
                let factor = graph.number(factor);
                Some(graph.times(x, factor))
            }
        };
        let clamped = |graph: &mut Graph, x: Node, low: Node, high: Node| {
            let raised = graph.binary(Binary::Max, x, low);
            graph.binary(Binary::Min, raised, high)
        };
        let first = || [values[0].clone()];
        let two = || [values[0].clone(), values[1].clone()];
        let three = || [values[0].clone(), values[1].clone(), values[2].clone()];
        Some(match fun {
            MathFunction::Radians => self.each(first(), at, factor(std::f64::consts::PI / 180.0)),
            MathFunction::Degrees => self.each(first(), at, factor(180.0 / std::f64::consts::PI)),
            MathFunction::Saturate => self.each(first(), at, |graph, [x]| {
                let (low, high) = (graph.number(0.0), graph.number(1.0));
                Some(clamped(graph, x, low, high))
            }),
            MathFunction::Clamp => self.each(three(), at, |graph, [x, low, high]| Some(clamped(graph, x, low, high))),
            MathFunction::Fma => self.each(three(), at, |graph, [a, b, c]| Some(graph.add(Op::Fma(a, b, c)))),
            MathFunction::Mix => self.each(three(), at, |graph, [a, b, t]| {
                let one = graph.number(1.0);
                let rest = graph.minus(one, t);
                let (a, b) = (graph.times(a, rest), graph.times(b, t));
                Some(graph.plus(a, b))
            }),
            MathFunction::Step => self.each(two(), at, |graph, [edge, x]| {
                let (zero, one) = (graph.number(0.0), graph.number(1.0));
                let beyond = graph.test(BinaryOperator::LessEqual, edge, x);
                Some(graph.select(beyond, one, zero))
            }),
            MathFunction::SmoothStep => self.each(three(), at, |graph, [low, high, x]| {
                let (zero, one) = (graph.number(0.0), graph.number(1.0));
                let (above, width) = (graph.minus(x, low), graph.minus(high, low));
                let quotient = graph.over(above, width);
                let t = clamped(graph, quotient, zero, one);
                let (two, three) = (graph.number(2.0), graph.number(3.0));
                let double = graph.times(two, t);
                let (rest, square) = (graph.minus(three, double), graph.times(t, t));
                Some(graph.times(square, rest))
            }),
            _ => return None,
        })
    }

    /// Computes functions of whole vectors.
    fn geometry(&mut self, fun: MathFunction, values: &[Value], at: Span) -> Result<Value> {
        let vectors: Result<Vec<_>> = values.iter().map(|value| self.vector(value, at)).collect();
        let vectors = vectors?;
        let vector = |nodes: Vec<Node>| Value::Composite(nodes.into_iter().map(Value::Scalar).collect());
        let graph = &mut self.graph;
        let length = |graph: &mut Graph, v: &[Node]| match v {
            [x] => graph.unary(MathFunction::Abs, *x),
            v => {
                let square = graph.dot(v, v);
                graph.unary(MathFunction::Sqrt, square)
            }
        };
        Ok(match (fun, &vectors[..]) {
            (MathFunction::Dot, [a, b]) => Value::Scalar(graph.dot(a, b)),
            (MathFunction::Length, [v]) => Value::Scalar(length(graph, v)),
            (MathFunction::Distance, [a, b]) => {
                let apart: Vec<Node> = a.iter().zip(b).map(|(&a, &b)| graph.minus(a, b)).collect();
                Value::Scalar(length(graph, &apart))
            }
            (MathFunction::Normalize, [v]) => {
                let length = length(graph, v);
                vector(v.iter().map(|&x| graph.over(x, length)).collect())
            }
            (MathFunction::Cross, [a, b]) => vector(
                [[1, 2], [2, 0], [0, 1]]
                    .map(|[i, j]| {
                        let (plus, minus) = (graph.times(a[i], b[j]), graph.times(a[j], b[i]));
                        graph.minus(plus, minus)
                    })
                    .to_vec(),
            ),
            (MathFunction::Reflect, [v, normal]) => {
                let (two, along) = (graph.number(2.0), graph.dot(normal, v));
                let factor = graph.times(two, along);
                let parts = v.iter().zip(normal).map(|(&v, &n)| {
                    let back = graph.times(factor, n);
                    graph.minus(v, back)
                });
                vector(parts.collect())
            }
            (MathFunction::FaceForward, [v, incident, reference]) => {
                let (zero, along) = (graph.number(0.0), graph.dot(reference, incident));
                let facing = graph.test(BinaryOperator::Less, along, zero);
                let parts = v.iter().map(|&v| {
                    let away = graph.negative(v);
                    graph.select(facing, v, away)
                });
                vector(parts.collect())
            }
            _ => {
                let why = format!("{fun:?} is a function whose derivative is not known here");
                return self.refuse(at, why);
            }
        })
    }
}

fn binary_of(fun: MathFunction) -> Option<Binary> {
    Some(match fun {
        MathFunction::Min => Binary::Min,
        MathFunction::Max => Binary::Max,
        MathFunction::Pow => Binary::Pow,
        MathFunction::Atan2 => Binary::Atan2,
        _ => return None,
    })
}
