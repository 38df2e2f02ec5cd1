//! From naga's form of a WGSL function to a graph: calls are inlined, variables become what was stored in them, and `if` becomes a choice
//! between two values.

use std::collections::HashMap;

use wgpu::naga::{
    BinaryOperator, Block, Expression, Function, Handle, Literal, LocalVariable, MathFunction, Module,
    RelationalFunction, ScalarKind, Span, Statement, Type, TypeInner, UnaryOperator,
};

use super::error::PointwiseError;
use super::graph::{Binary, Compare, Graph, Node, Op, Unary};

/// Operations beyond which a function is refused: branches with returns double what stands behind them.
const MOST: usize = 100_000;
/// Calls inside of calls at most.
const DEEPEST: usize = 64;

/// The value of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// A number or a truth value.
    Scalar(Node),
    /// Components of a vector, members of a structure, elements of an array.
    Composite(Vec<Value>),
    /// A place in a variable.
    Pointer(Handle<LocalVariable>, Vec<usize>),
    /// An integer that is known, to index with.
    Index(u32),
}

impl Value {
    /// All its numbers, in order.
    pub fn scalars(&self) -> Option<Vec<Node>> {
        match self {
            Value::Scalar(node) => Some(vec![*node]),
            Value::Composite(parts) => {
                let parts: Option<Vec<_>> = parts.iter().map(Value::scalars).collect();
                Some(parts?.concat())
            }
            Value::Pointer(..) | Value::Index(_) => None,
        }
    }
}

/// Lowers the functions of a module.
pub(super) struct Lowering<'a> {
    pub module: &'a Module,
    pub source: &'a str,
    pub graph: Graph,
}

type Result<T> = std::result::Result<T, PointwiseError>;

/// A call in progress: one path through a function.
#[derive(Clone)]
struct Frame<'a> {
    function: &'a Function,
    arguments: Vec<Value>,
    values: HashMap<Handle<Expression>, Value>,
    variables: HashMap<Handle<LocalVariable>, Value>,
    depth: usize,
}

/// A statement and its place.
type Step<'a> = (&'a Statement, Span);

fn steps(block: &Block) -> Vec<Step<'_>> {
    block.span_iter().map(|(statement, span)| (statement, *span)).collect()
}

/// Whether a branch can end the function.
fn returns(block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::Return { .. } => true,
        Statement::Block(block) => returns(block),
        Statement::If { accept, reject, .. } => returns(accept) || returns(reject),
        _ => false,
    })
}

impl<'a> Lowering<'a> {
    /// The value of `function` for these arguments.
    pub fn call(&mut self, function: &'a Function, arguments: Vec<Value>, depth: usize, span: Span) -> Result<Value> {
        if depth > DEEPEST {
            return Err(self.refuse(span, "calls inside of calls, without an end it seems"));
        }
        let frame = Frame { function, arguments, values: HashMap::new(), variables: HashMap::new(), depth };
        self.run(frame, steps(&function.body), span)
    }

    fn refuse(&self, span: Span, why: impl Into<String>) -> PointwiseError {
        PointwiseError::at(self.source, span, why)
    }

    /// Runs steps to the function's return.
    fn run(&mut self, mut frame: Frame<'a>, steps_left: Vec<Step<'a>>, span: Span) -> Result<Value> {
        let mut left = steps_left.into_iter().collect::<std::collections::VecDeque<_>>();
        while let Some((statement, at)) = left.pop_front() {
            if self.graph.len() > MOST {
                return Err(self.refuse(at, format!("the function has more than {MOST} operations")));
            }
            match statement {
                Statement::Return { value: Some(value) } => return self.value(&mut frame, *value),
                Statement::Block(block) => steps(block).into_iter().rev().for_each(|step| left.push_front(step)),
                Statement::If { condition, accept, reject } => {
                    let condition = self.scalar(&mut frame, *condition)?;
                    let branches = [accept, reject];
                    if branches.iter().any(|branch| returns(branch)) {
                        let mut ends = Vec::new();
                        for branch in branches {
                            let all = steps(branch).into_iter().chain(left.iter().copied()).collect();
                            ends.push(self.run(frame.clone(), all, at)?);
                        }
                        return self.choose(condition, &ends[0], &ends[1], at);
                    }
                    let mut ends = Vec::new();
                    for branch in branches {
                        let mut inner = frame.clone();
                        self.run_through(&mut inner, branch)?;
                        ends.push(inner.variables);
                    }
                    self.merge(&mut frame, condition, &ends, at)?;
                }
                other => self.step(&mut frame, other, at)?,
            }
        }
        Err(self.refuse(span, "the function returns nothing; it must return what it computes"))
    }

    /// Runs a branch that returns nowhere.
    fn run_through(&mut self, frame: &mut Frame<'a>, block: &'a Block) -> Result<()> {
        for (statement, at) in steps(block) {
            match statement {
                Statement::Block(block) => self.run_through(frame, block)?,
                Statement::If { condition, accept, reject } => {
                    let condition = self.scalar(frame, *condition)?;
                    let mut ends = Vec::new();
                    for branch in [accept, reject] {
                        let mut inner = frame.clone();
                        self.run_through(&mut inner, branch)?;
                        ends.push(inner.variables);
                    }
                    self.merge(frame, condition, &ends, at)?;
                }
                other => self.step(frame, other, at)?,
            }
        }
        Ok(())
    }

    /// The variables after a branch.
    fn merge(
        &mut self,
        frame: &mut Frame<'a>,
        condition: Node,
        ends: &[HashMap<Handle<LocalVariable>, Value>],
        at: Span,
    ) -> Result<()> {
        let mut touched: Vec<_> = ends.iter().flat_map(|variables| variables.keys().copied()).collect();
        touched.sort();
        touched.dedup();
        for variable in touched {
            let mut of = |variables: &HashMap<Handle<LocalVariable>, Value>| match variables.get(&variable) {
                Some(value) => Ok(value.clone()),
                None => self.initial(frame, variable),
            };
            let (accept, reject) = (of(&ends[0])?, of(&ends[1])?);
            let value = self.choose(condition, &accept, &reject, at)?;
            frame.variables.insert(variable, value);
        }
        Ok(())
    }

    fn choose(&mut self, condition: Node, accept: &Value, reject: &Value, at: Span) -> Result<Value> {
        match (accept, reject) {
            (a, b) if a == b => Ok(a.clone()),
            (Value::Scalar(a), Value::Scalar(b)) => Ok(Value::Scalar(self.graph.select(condition, *a, *b))),
            (Value::Composite(a), Value::Composite(b)) if a.len() == b.len() => {
                let parts: Result<_> = a.iter().zip(b).map(|(a, b)| self.choose(condition, a, b, at)).collect();
                Ok(Value::Composite(parts?))
            }
            _ => Err(self.refuse(at, "a choice between integers; derivatives are of f32 only")),
        }
    }

    /// A statement without branches.
    fn step(&mut self, frame: &mut Frame<'a>, statement: &'a Statement, at: Span) -> Result<()> {
        match statement {
            Statement::Emit(range) => {
                for expression in range.clone() {
                    let value = self.evaluate(frame, expression)?;
                    frame.values.insert(expression, value);
                }
                Ok(())
            }
            Statement::Store { pointer, value } => {
                let value = self.value(frame, *value)?;
                match self.value(frame, *pointer)? {
                    Value::Pointer(variable, path) => {
                        let mut whole = self.variable(frame, variable)?;
                        *place(&mut whole, &path).ok_or_else(|| self.refuse(at, "an index beyond the variable"))? =
                            value;
                        frame.variables.insert(variable, whole);
                        Ok(())
                    }
                    _ => {
                        Err(self
                            .refuse(at, "a store outside of the function's own variables; return the value instead"))
                    }
                }
            }
            Statement::Call { function, arguments, result } => {
                let given: Result<Vec<_>> = arguments.iter().map(|&argument| self.value(frame, argument)).collect();
                let module = self.module;
                let given = given?;
                if given.iter().any(|value| matches!(value, Value::Pointer(..))) {
                    return Err(self.refuse(at, "a pointer as an argument; pass values and return the result"));
                }
                let value = self.call(&module.functions[*function], given, frame.depth + 1, at)?;
                if let Some(result) = result {
                    frame.values.insert(*result, value);
                }
                Ok(())
            }
            Statement::Loop { .. } | Statement::Break | Statement::Continue => {
                Err(self.refuse(at, "a loop; write its rounds out, or make them operators one after the other"))
            }
            Statement::Switch { .. } => Err(self.refuse(at, "a switch; use select or if")),
            Statement::Return { .. } | Statement::Kill => Err(self.refuse(at, "the function must return a value")),
            _ => Err(self.refuse(at, "a statement that reaches beyond the function; use arithmetic only")),
        }
    }

    fn initial(&mut self, frame: &mut Frame<'a>, variable: Handle<LocalVariable>) -> Result<Value> {
        let variable = &frame.function.local_variables[variable];
        match variable.init {
            Some(init) => self.value(frame, init),
            None => self.zero(variable.ty, Span::UNDEFINED),
        }
    }

    fn variable(&mut self, frame: &mut Frame<'a>, variable: Handle<LocalVariable>) -> Result<Value> {
        match frame.variables.get(&variable) {
            Some(value) => Ok(value.clone()),
            None => self.initial(frame, variable),
        }
    }

    /// The zero of a type.
    fn zero(&mut self, ty: Handle<Type>, at: Span) -> Result<Value> {
        let module = self.module;
        Ok(match &module.types[ty].inner {
            TypeInner::Scalar(scalar) => match scalar.kind {
                ScalarKind::Float => Value::Scalar(self.graph.number(0.0)),
                ScalarKind::Bool => Value::Scalar(self.graph.add(Op::Flag(false))),
                _ => Value::Index(0),
            },
            TypeInner::Vector { size, scalar } => {
                let zero = match scalar.kind {
                    ScalarKind::Float => self.graph.number(0.0),
                    ScalarKind::Bool => self.graph.add(Op::Flag(false)),
                    _ => return Err(self.refuse(at, "a vector of integers; derivatives are of f32 only")),
                };
                Value::Composite(vec![Value::Scalar(zero); *size as usize])
            }
            TypeInner::Struct { members, .. } => {
                let parts: Result<_> = members.iter().map(|member| self.zero(member.ty, at)).collect();
                Value::Composite(parts?)
            }
            TypeInner::Array { base, size: wgpu::naga::ArraySize::Constant(size), .. } => {
                let zero = self.zero(*base, at)?;
                Value::Composite(vec![zero; size.get() as usize])
            }
            _ => {
                return Err(
                    self.refuse(at, "a type that is neither f32, bool, nor a vector, structure or array of them")
                );
            }
        })
    }

    /// The value of an expression that was emitted, or needs not be.
    fn value(&mut self, frame: &mut Frame<'a>, expression: Handle<Expression>) -> Result<Value> {
        match frame.values.get(&expression) {
            Some(value) => Ok(value.clone()),
            None => self.evaluate(frame, expression),
        }
    }

    fn scalar(&mut self, frame: &mut Frame<'a>, expression: Handle<Expression>) -> Result<Node> {
        match self.value(frame, expression)? {
            Value::Scalar(node) => Ok(node),
            _ => {
                Err(self
                    .refuse(frame.function.expressions.get_span(expression), "an integer; derivatives are of f32 only"))
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
            Literal::F64(_) | Literal::F16(_) => return Err(self.refuse(at, "another precision than f32")),
            _ => return Err(self.refuse(at, "an integer; derivatives are of f32 only")),
        })
    }

    /// Constants of the module.
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
            _ => Err(self.refuse(at, "a constant that is no number")),
        }
    }

    fn evaluate(&mut self, frame: &mut Frame<'a>, expression: Handle<Expression>) -> Result<Value> {
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
                _ => Err(self.refuse(at, "an index that is computed; use constants")),
            },
            Expression::Splat { size, value } => Ok(Value::Composite(vec![self.value(frame, *value)?; *size as usize])),
            Expression::Swizzle { size, vector, pattern } => match self.value(frame, *vector)? {
                Value::Composite(parts) => {
                    let chosen = pattern[..*size as usize].iter().map(|&from| parts[from as usize].clone());
                    Ok(Value::Composite(chosen.collect()))
                }
                _ => Err(self.refuse(at, "components of what is no vector")),
            },
            Expression::FunctionArgument(number) => Ok(frame.arguments[*number as usize].clone()),
            Expression::LocalVariable(variable) => Ok(Value::Pointer(*variable, Vec::new())),
            Expression::Load { pointer } => match self.value(frame, *pointer)? {
                Value::Pointer(variable, path) => {
                    let mut whole = self.variable(frame, variable)?;
                    let part = place(&mut whole, &path).cloned();
                    part.ok_or_else(|| self.refuse(at, "an index beyond the variable"))
                }
                _ => Err(self.refuse(at, "a variable outside of the function; make it an argument")),
            },
            other => self.arithmetic(frame, other, at),
        }
    }

    /// The value of an expression that computes.
    fn arithmetic(&mut self, frame: &mut Frame<'a>, expression: &'a Expression, at: Span) -> Result<Value> {
        match expression {
            Expression::Unary { op, expr } => {
                let value = self.value(frame, *expr)?;
                self.each([value], at, |graph, [a]| match op {
                    UnaryOperator::Negate => Some(graph.unary(Unary::Neg, a)),
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
            Expression::As { .. } => {
                Err(self.refuse(at, "a conversion to or from integers; derivatives are of f32 only"))
            }
            Expression::GlobalVariable(_) => {
                Err(self.refuse(at, "a variable outside of the function; make it an argument"))
            }
            _ => Err(self.refuse(at, "an expression that is no arithmetic of f32")),
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
            _ => Err(self.refuse(at, "a component that is not there")),
        }
    }

    /// A function of scalars, component by component; scalars go with every component of vectors.
    fn each<const N: usize>(
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
            self.refuse(at, "an operation on integers or matrices; derivatives are of f32 and its vectors only")
        })
    }

    fn operator(&mut self, op: BinaryOperator, values: [Value; 2], at: Span) -> Result<Value> {
        let binary = |function: Binary| Some(Ok(function));
        let compare = |how: Compare| Some(Err(how));
        let kind = match op {
            BinaryOperator::Add => binary(Binary::Add),
            BinaryOperator::Subtract => binary(Binary::Sub),
            BinaryOperator::Multiply => binary(Binary::Mul),
            BinaryOperator::Divide => binary(Binary::Div),
            BinaryOperator::Modulo => binary(Binary::Rem),
            BinaryOperator::Equal => compare(Compare::Equal),
            BinaryOperator::NotEqual => compare(Compare::NotEqual),
            BinaryOperator::Less => compare(Compare::Less),
            BinaryOperator::LessEqual => compare(Compare::LessEqual),
            BinaryOperator::Greater => compare(Compare::Greater),
            BinaryOperator::GreaterEqual => compare(Compare::GreaterEqual),
            _ => None,
        };
        self.each(values, at, |graph, [a, b]| match (op, kind) {
            (_, Some(Ok(function))) => Some(graph.binary(function, a, b)),
            (_, Some(Err(how))) => Some(graph.compare(how, a, b)),
            (BinaryOperator::LogicalAnd | BinaryOperator::And, _) => Some(graph.add(Op::And(a, b))),
            (BinaryOperator::LogicalOr | BinaryOperator::InclusiveOr, _) => Some(graph.add(Op::Or(a, b))),
            _ => None,
        })
    }

    fn relational(&mut self, fun: RelationalFunction, value: Value, at: Span) -> Result<Value> {
        let Some(flags) = value.scalars() else { return Err(self.refuse(at, "an operation on integers")) };
        let combined = match fun {
            RelationalFunction::All => flags.into_iter().reduce(|a, b| self.graph.add(Op::And(a, b))),
            RelationalFunction::Any => flags.into_iter().reduce(|a, b| self.graph.add(Op::Or(a, b))),
            RelationalFunction::IsNan | RelationalFunction::IsInf => None,
        };
        combined.map(Value::Scalar).ok_or_else(|| self.refuse(at, "a test that WGSL does not promise"))
    }

    /// A vector, or a scalar as a vector of one component.
    fn vector(&self, value: &Value, at: Span) -> Result<Vec<Node>> {
        value.scalars().ok_or_else(|| self.refuse(at, "an operation on integers; derivatives are of f32 only"))
    }

    fn math(&mut self, fun: MathFunction, values: &[Value], at: Span) -> Result<Value> {
        if let Some(function) = unary_of(fun) {
            return self.each([values[0].clone()], at, |graph, [x]| Some(graph.unary(function, x)));
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

    /// Functions that are made of others, component by component.
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
                let beyond = graph.compare(Compare::LessEqual, edge, x);
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

    /// Functions of whole vectors.
    fn geometry(&mut self, fun: MathFunction, values: &[Value], at: Span) -> Result<Value> {
        let vectors: Result<Vec<_>> = values.iter().map(|value| self.vector(value, at)).collect();
        let vectors = vectors?;
        let vector = |nodes: Vec<Node>| Value::Composite(nodes.into_iter().map(Value::Scalar).collect());
        let graph = &mut self.graph;
        let length = |graph: &mut Graph, v: &[Node]| match v {
            [x] => graph.unary(Unary::Abs, *x),
            v => {
                let square = graph.dot(v, v);
                graph.unary(Unary::Sqrt, square)
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
                let facing = graph.compare(Compare::Less, along, zero);
                let parts = v.iter().map(|&v| {
                    let away = graph.unary(Unary::Neg, v);
                    graph.select(facing, v, away)
                });
                vector(parts.collect())
            }
            _ => {
                let why = format!("{fun:?} is a function whose derivative is not known here");
                return Err(self.refuse(at, why));
            }
        })
    }
}

/// The components of components, so that `vec3(v.xy, z)` has three.
fn flat(parts: Vec<Value>) -> Value {
    let flattened = parts.into_iter().flat_map(|part| match part {
        Value::Composite(parts) => parts,
        part => vec![part],
    });
    Value::Composite(flattened.collect())
}

/// What stands at a path.
fn place<'v>(value: &'v mut Value, path: &[usize]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, &index| match value {
        Value::Composite(parts) => parts.get_mut(index),
        _ => None,
    })
}

fn unary_of(fun: MathFunction) -> Option<Unary> {
    Some(match fun {
        MathFunction::Abs => Unary::Abs,
        MathFunction::Sign => Unary::Sign,
        MathFunction::Floor => Unary::Floor,
        MathFunction::Ceil => Unary::Ceil,
        MathFunction::Round => Unary::Round,
        MathFunction::Trunc => Unary::Trunc,
        MathFunction::Fract => Unary::Fract,
        MathFunction::Sqrt => Unary::Sqrt,
        MathFunction::InverseSqrt => Unary::InverseSqrt,
        MathFunction::Exp => Unary::Exp,
        MathFunction::Exp2 => Unary::Exp2,
        MathFunction::Log => Unary::Log,
        MathFunction::Log2 => Unary::Log2,
        MathFunction::Sin => Unary::Sin,
        MathFunction::Cos => Unary::Cos,
        MathFunction::Tan => Unary::Tan,
        MathFunction::Asin => Unary::Asin,
        MathFunction::Acos => Unary::Acos,
        MathFunction::Atan => Unary::Atan,
        MathFunction::Sinh => Unary::Sinh,
        MathFunction::Cosh => Unary::Cosh,
        MathFunction::Tanh => Unary::Tanh,
        MathFunction::Asinh => Unary::Asinh,
        MathFunction::Acosh => Unary::Acosh,
        MathFunction::Atanh => Unary::Atanh,
        _ => return None,
    })
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
