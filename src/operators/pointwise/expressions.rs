//! Expressions of a WGSL function as values of a graph.

use wgpu::naga::{
    BinaryOperator, Expression, Handle, Literal, RelationalFunction, ScalarKind, Span, TypeInner, UnaryOperator,
};

use super::lower::{Frame, place};
use super::{Binary, Graph, Lowering, Node, Op, Result, Value};

impl<'a> Lowering<'a> {
    /// Returns the value of an expression that was emitted or needs no emission.
    pub(super) fn value(&mut self, frame: &mut Frame<'a>, expression: Handle<Expression>) -> Result<Value> {
        match frame.values.get(&expression) {
            Some(value) => Ok(value.clone()),
            None => self.evaluate(frame, expression),
        }
    }

    pub(super) fn scalar(&mut self, frame: &mut Frame<'a>, expression: Handle<Expression>) -> Result<Node> {
        match self.value(frame, expression)? {
            Value::Scalar(node) => Ok(node),
            _ => {
                self.refuse(frame.function.expressions.get_span(expression), "an integer; derivatives are of f32 only")
            }
        }
    }

    fn literal(&mut self, literal: Literal, at: Span) -> Result<Value> {
        Ok(match literal {
            Literal::F32(value) => Value::Scalar(self.graph.number(value.into())),
            Literal::AbstractFloat(value) => Value::Scalar(self.graph.number(value)),
            Literal::Bool(flag) => Value::Scalar(self.graph.add(Op::Flag(flag))),
            Literal::U32(value) => Value::Index(value),
            Literal::I32(value) if value >= 0 => Value::Index(value as u32),
            Literal::AbstractInt(value) if (0..=i64::from(u32::MAX)).contains(&value) => Value::Index(value as u32),
            Literal::F64(_) | Literal::F16(_) => return self.refuse(at, "another precision than f32"),
            _ => return self.refuse(at, "an integer; derivatives are of f32 only"),
        })
    }

    /// Returns a constant of the module.
    fn constant(&mut self, expression: Handle<Expression>) -> Result<Value> {
        let module = self.module;
        let at = module.global_expressions.get_span(expression);
        match &module.global_expressions[expression] {
            Expression::Literal(literal) => self.literal(*literal, at),
            Expression::Constant(constant) => self.constant(module.constants[*constant].init),
            Expression::ZeroValue(ty) => self.zero(*ty, at),
            Expression::Compose { components, .. } => {
                let parts: Result<_> = components.iter().map(|&part| self.constant(part)).collect();
                Ok(flat(parts?))
            }
            Expression::Splat { size, value } => Ok(Value::Composite(vec![self.constant(*value)?; *size as usize])),
            _ => self.refuse(at, "a constant that is no number"),
        }
    }

    pub(super) fn evaluate(&mut self, frame: &mut Frame<'a>, expression: Handle<Expression>) -> Result<Value> {
        let (function, module) = (frame.function, self.module);
        let at = function.expressions.get_span(expression);
        match &function.expressions[expression] {
            Expression::Literal(literal) => self.literal(*literal, at),
            Expression::Constant(constant) => self.constant(module.constants[*constant].init),
            Expression::ZeroValue(ty) => self.zero(*ty, at),
            Expression::Compose { components, ty } => {
                let parts: Result<_> = components.iter().map(|&part| self.value(frame, part)).collect();
                let is_vector = matches!(module.types[*ty].inner, TypeInner::Vector { .. });
                Ok(if is_vector { flat(parts?) } else { Value::Composite(parts?) })
            }
            Expression::AccessIndex { base, index } => {
                let base = self.value(frame, *base)?;
                self.part(base, *index as usize, at)
            }
            Expression::Access { base, index } => match self.value(frame, *index)? {
                Value::Index(index) => {
                    let base = self.value(frame, *base)?;
                    self.part(base, index as usize, at)
                }
                _ => self.refuse(at, "an index that is computed; use constants"),
            },
            Expression::Splat { size, value } => Ok(Value::Composite(vec![self.value(frame, *value)?; *size as usize])),
            Expression::Swizzle { size, vector, pattern } => match self.value(frame, *vector)? {
                Value::Composite(parts) => {
                    let chosen = pattern[..*size as usize].iter().map(|&from| parts[from as usize].clone());
                    Ok(Value::Composite(chosen.collect()))
                }
                _ => self.refuse(at, "components of what is no vector"),
            },
            Expression::FunctionArgument(number) => Ok(frame.arguments[*number as usize].clone()),
            Expression::LocalVariable(variable) => Ok(Value::Pointer(*variable, Vec::new())),
            Expression::Load { pointer } => match self.value(frame, *pointer)? {
                Value::Pointer(variable, path) => {
                    let mut whole = self.variable(frame, variable)?;
                    let part = place(&mut whole, &path).cloned();
                    part.ok_or_else(|| self.error(at, "an index beyond the variable"))
                }
                _ => self.refuse(at, "a variable outside of the function; make it an argument"),
            },
            other => self.arithmetic(frame, other, at),
        }
    }

    /// Returns the value of an expression that computes.
    fn arithmetic(&mut self, frame: &mut Frame<'a>, expression: &'a Expression, at: Span) -> Result<Value> {
        match expression {
            Expression::Unary { op, expr } => {
                let value = self.value(frame, *expr)?;
                self.each([value], at, |graph, [a]| match op {
                    UnaryOperator::Negate => Some(graph.negative(a)),
                    UnaryOperator::LogicalNot => Some(graph.add(Op::Not(a))),
                    UnaryOperator::BitwiseNot => None,
                })
            }
            Expression::Binary { op, left, right } => {
                let values = [self.value(frame, *left)?, self.value(frame, *right)?];
                self.operator(*op, values, at)
            }
            Expression::Select { condition, accept, reject } => {
                let values = [self.value(frame, *condition)?, self.value(frame, *accept)?, self.value(frame, *reject)?];
                self.each(values, at, |graph, [condition, accept, reject]| {
                    Some(graph.select(condition, accept, reject))
                })
            }
            Expression::Relational { fun, argument } => {
                let value = self.value(frame, *argument)?;
                self.relational(*fun, value, at)
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let mut values = vec![self.value(frame, *arg)?];
                for argument in [arg1, arg2, arg3].into_iter().flatten() {
                    values.push(self.value(frame, *argument)?);
                }
                self.math(*fun, &values, at)
            }
            Expression::As { expr, kind: ScalarKind::Float, convert: Some(4) } => {
                let value = self.value(frame, *expr)?;
                let one = self.graph.number(1.0);
                let zero = self.graph.number(0.0);
                match value {
                    Value::Index(number) => Ok(Value::Scalar(self.graph.number(number.into()))),
                    value if self.is_flag(&value) => {
                        self.each([value], at, |graph, [flag]| Some(graph.select(flag, one, zero)))
                    }
                    value => Ok(value),
                }
            }
            Expression::As { .. } => self.refuse(at, "a conversion to or from integers; derivatives are of f32 only"),
            Expression::GlobalVariable(_) => self.refuse(at, "a variable outside of the function; make it an argument"),
            Expression::ImageSample { .. } | Expression::ImageLoad { .. } | Expression::ImageQuery { .. } => {
                self.refuse(at, "a texture; make its values a leaf, which is an argument")
            }
            _ => self.refuse(at, "an expression that is no arithmetic of f32"),
        }
    }

    fn is_flag(&self, value: &Value) -> bool {
        let Some(scalars) = value.scalars() else { return false };
        scalars.first().is_some_and(|&node| self.graph.is_flag(node))
    }

    fn part(&self, base: Value, index: usize, at: Span) -> Result<Value> {
        match base {
            Value::Composite(mut parts) if index < parts.len() => Ok(parts.swap_remove(index)),
            Value::Pointer(variable, mut path) => {
                path.push(index);
                Ok(Value::Pointer(variable, path))
            }
            _ => self.refuse(at, "a component that is not there"),
        }
    }

    /// Applies a function of scalars, component by component; scalars combine with every component
    /// of vectors.
    pub(super) fn each<const N: usize>(
        &mut self,
        values: [Value; N],
        at: Span,
        mut function: impl FnMut(&mut Graph, [Node; N]) -> Option<Node>,
    ) -> Result<Value> {
        let width = |value: &Value| if let Value::Composite(parts) = value { Some(parts.len()) } else { None };
        let component = |value: &Value, i: usize| match value {
            Value::Scalar(node) => Some(*node),
            Value::Composite(parts) => match parts.get(i) {
                Some(Value::Scalar(node)) => Some(*node),
                _ => None,
            },
            _ => None,
        };
        let mut one = |graph: &mut Graph, i: usize| {
            let mut nodes = [None; N];
            values.iter().zip(&mut nodes).for_each(|(value, node)| *node = component(value, i));
            let nodes: Option<Vec<Node>> = nodes.into_iter().collect();
            function(graph, nodes?.try_into().ok()?)
        };
        let result = match values.iter().find_map(width) {
            None => one(&mut self.graph, 0).map(Value::Scalar),
            Some(width) => {
                let parts: Option<Vec<_>> = (0..width).map(|i| one(&mut self.graph, i).map(Value::Scalar)).collect();
                parts.map(Value::Composite)
            }
        };
        result.ok_or_else(|| {
            self.error(at, "an operation on integers or matrices; derivatives are of f32 and its vectors only")
        })
    }

    fn operator(&mut self, op: BinaryOperator, values: [Value; 2], at: Span) -> Result<Value> {
        use BinaryOperator::{And, Equal, Greater, GreaterEqual, InclusiveOr, Less, LessEqual, NotEqual};
        let function = match op {
            BinaryOperator::Add => Some(Binary::Add),
            BinaryOperator::Subtract => Some(Binary::Sub),
            BinaryOperator::Multiply => Some(Binary::Mul),
            BinaryOperator::Divide => Some(Binary::Div),
            BinaryOperator::Modulo => Some(Binary::Rem),
            _ => None,
        };
        let test = match op {
            BinaryOperator::LogicalAnd => Some(And),
            BinaryOperator::LogicalOr => Some(InclusiveOr),
            And | InclusiveOr | Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual => Some(op),
            _ => None,
        };
        self.each(values, at, |graph, [a, b]| match (function, test) {
            (Some(function), _) => Some(graph.binary(function, a, b)),
            (None, test) => test.map(|how| graph.test(how, a, b)),
        })
    }

    fn relational(&mut self, fun: RelationalFunction, value: Value, at: Span) -> Result<Value> {
        let Some(flags) = value.scalars() else { return self.refuse(at, "an operation on integers") };
        let combined = match fun {
            RelationalFunction::All => flags.into_iter().reduce(|a, b| self.graph.test(BinaryOperator::And, a, b)),
            RelationalFunction::Any => {
                flags.into_iter().reduce(|a, b| self.graph.test(BinaryOperator::InclusiveOr, a, b))
            }
            RelationalFunction::IsNan | RelationalFunction::IsInf => None,
        };
        combined.map(Value::Scalar).ok_or_else(|| self.error(at, "a test that WGSL does not promise"))
    }

    /// Returns a vector, or a scalar as a vector of one component.
    pub(super) fn vector(&self, value: &Value, at: Span) -> Result<Vec<Node>> {
        value.scalars().ok_or_else(|| self.error(at, "an operation on integers; derivatives are of f32 only"))
    }
}

/// Returns the components of all values, so that `vec3(v.xy, z)` has three.
fn flat(parts: Vec<Value>) -> Value {
    let flattened = parts.into_iter().flat_map(|part| match part {
        Value::Composite(parts) => parts,
        part => vec![part],
    });
    Value::Composite(flattened.collect())
}
