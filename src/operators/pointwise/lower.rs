//! Conversion of a WGSL function to a graph. Calls are inlined, variables are replaced by the
//! stored values, and `if` becomes a choice between two values.

use std::collections::HashMap;

use wgpu::naga::{
    Block, Expression, Function, Handle, LocalVariable, Module, ScalarKind, Span, Statement, Type, TypeInner,
};

use super::{Graph, Node, Op, PointwiseError};

/// Maximum number of operations. Branches with returns double the statements after them.
const MOST: usize = 100_000;
/// Maximum depth of calls.
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
    /// A known integer, used as an index.
    Index(u32),
}

impl Value {
    /// Returns all numbers, in order.
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
    /// Statements run so far, on all paths.
    pub steps: usize,
}

pub(super) type Result<T> = std::result::Result<T, PointwiseError>;

/// A call in progress: one path through a function.
#[derive(Clone)]
pub(super) struct Frame<'a> {
    pub function: &'a Function,
    pub arguments: Vec<Value>,
    pub values: HashMap<Handle<Expression>, Value>,
    pub variables: HashMap<Handle<LocalVariable>, Value>,
    pub depth: usize,
}

/// A statement and its place.
type Step<'a> = (&'a Statement, Span);

fn steps(block: &Block) -> Vec<Step<'_>> {
    block.span_iter().map(|(statement, span)| (statement, *span)).collect()
}

/// Returns `true` if a branch can end the function.
fn returns(block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::Return { .. } => true,
        Statement::Block(block) => returns(block),
        Statement::If { accept, reject, .. } => returns(accept) || returns(reject),
        _ => false,
    })
}

impl<'a> Lowering<'a> {
    /// Returns the value of `function` for these arguments.
    pub fn call(&mut self, function: &'a Function, arguments: Vec<Value>, depth: usize, span: Span) -> Result<Value> {
        if depth > DEEPEST {
            return self.refuse(span, "calls inside of calls, without an end it seems");
        }
        let frame = Frame { function, arguments, values: HashMap::new(), variables: HashMap::new(), depth };
        self.run(frame, steps(&function.body), span)
    }

    pub(super) fn error(&self, span: Span, why: impl Into<String>) -> PointwiseError {
        PointwiseError::at(self.source, span, why)
    }

    /// Returns the error as a result.
    pub(super) fn refuse<T>(&self, span: Span, why: impl Into<String>) -> Result<T> {
        Err(self.error(span, why))
    }

    /// Runs statements to the return of the function.
    fn run(&mut self, mut frame: Frame<'a>, steps_left: Vec<Step<'a>>, span: Span) -> Result<Value> {
        let mut left = steps_left.into_iter().collect::<std::collections::VecDeque<_>>();
        while let Some((statement, at)) = left.pop_front() {
            // Reused operations count as well: the statements after an `if` that may return run
            // once for each of its branches.
            self.steps += 1;
            if self.graph.len().max(self.steps) > MOST {
                return self.refuse(at, format!("the function has more than {MOST} operations"));
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
                    self.run_both(&mut frame, condition, branches, at)?;
                }
                other => self.step(&mut frame, other, at)?,
            }
        }
        self.refuse(span, "the function returns nothing; it must return what it computes")
    }

    /// Runs a branch without a return.
    fn run_through(&mut self, frame: &mut Frame<'a>, block: &'a Block) -> Result<()> {
        for (statement, at) in steps(block) {
            match statement {
                Statement::Block(block) => self.run_through(frame, block)?,
                Statement::If { condition, accept, reject } => {
                    let condition = self.scalar(frame, *condition)?;
                    self.run_both(frame, condition, [accept, reject], at)?;
                }
                other => self.step(frame, other, at)?,
            }
        }
        Ok(())
    }

    /// Runs two branches without a return, and chooses between their variables.
    fn run_both(&mut self, frame: &mut Frame<'a>, condition: Node, branches: [&'a Block; 2], at: Span) -> Result<()> {
        let mut ends = Vec::new();
        for branch in branches {
            let mut inner = frame.clone();
            self.run_through(&mut inner, branch)?;
            ends.push(inner.variables);
        }
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
            _ => self.refuse(at, "a choice between integers; derivatives are of f32 only"),
        }
    }

    /// Runs a statement without branches.
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
                        *place(&mut whole, &path).ok_or_else(|| self.error(at, "an index beyond the variable"))? =
                            value;
                        frame.variables.insert(variable, whole);
                        Ok(())
                    }
                    _ => self.refuse(at, "a store outside of the function's own variables; return the value instead"),
                }
            }
            Statement::Call { function, arguments, result } => {
                let given: Result<Vec<_>> = arguments.iter().map(|&argument| self.value(frame, argument)).collect();
                let module = self.module;
                let given = given?;
                if given.iter().any(|value| matches!(value, Value::Pointer(..))) {
                    return self.refuse(at, "a pointer as an argument; pass values and return the result");
                }
                let value = self.call(&module.functions[*function], given, frame.depth + 1, at)?;
                if let Some(result) = result {
                    frame.values.insert(*result, value);
                }
                Ok(())
            }
            Statement::Loop { .. } | Statement::Break | Statement::Continue => {
                self.refuse(at, "a loop; write its rounds out, or make them operators one after the other")
            }
            Statement::Switch { .. } => self.refuse(at, "a switch; use select or if"),
            Statement::Return { .. } | Statement::Kill => self.refuse(at, "the function must return a value"),
            _ => self.refuse(at, "a statement that reaches beyond the function; use arithmetic only"),
        }
    }

    fn initial(&mut self, frame: &mut Frame<'a>, variable: Handle<LocalVariable>) -> Result<Value> {
        let variable = &frame.function.local_variables[variable];
        match variable.init {
            Some(init) => self.value(frame, init),
            None => self.zero(variable.ty, Span::UNDEFINED),
        }
    }

    pub(super) fn variable(&mut self, frame: &mut Frame<'a>, variable: Handle<LocalVariable>) -> Result<Value> {
        match frame.variables.get(&variable) {
            Some(value) => Ok(value.clone()),
            None => self.initial(frame, variable),
        }
    }

    /// Returns the zero of a type.
    pub(super) fn zero(&mut self, ty: Handle<Type>, at: Span) -> Result<Value> {
        let module = self.module;
        let mut scalar = |kind: ScalarKind| match kind {
            ScalarKind::Float => Value::Scalar(self.graph.number(0.0)),
            ScalarKind::Bool => Value::Scalar(self.graph.add(Op::Flag(false))),
            _ => Value::Index(0),
        };
        Ok(match &module.types[ty].inner {
            TypeInner::Scalar(own) => scalar(own.kind),
            TypeInner::Vector { size, scalar: own } => match scalar(own.kind) {
                Value::Index(_) => return self.refuse(at, "a vector of integers; derivatives are of f32 only"),
                zero => Value::Composite(vec![zero; *size as usize]),
            },
            TypeInner::Struct { members, .. } => {
                let parts: Result<_> = members.iter().map(|member| self.zero(member.ty, at)).collect();
                Value::Composite(parts?)
            }
            TypeInner::Array { base, size: wgpu::naga::ArraySize::Constant(size), .. } => {
                let zero = self.zero(*base, at)?;
                Value::Composite(vec![zero; size.get() as usize])
            }
            _ => {
                return self.refuse(at, "a type that is neither f32, bool, nor a vector, structure or array of them");
            }
        })
    }
}

/// Returns the value at a path.
pub(super) fn place<'v>(value: &'v mut Value, path: &[usize]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |value, &index| match value {
        Value::Composite(parts) => parts.get_mut(index),
        _ => None,
    })
}
