//! Operators and functions of values, and atomic operations.

use naga::{AtomicFunction, BinaryOperator, Expression, Handle, MathFunction, RelationalFunction, Scalar};

use super::arithmetic::{self, Undefined};
use super::interpreter::{Frame, Interpreter, Stop};
use super::program::Leaf;
use super::report::Problem;
use super::value::Value;

impl<'a> Interpreter<'a> {
    /// Returns the value of an expression that computes something, which has `leaves`; none for
    /// other expressions.
    pub(super) fn operation(
        &mut self,
        frame: &Frame<'a>,
        expression: &Expression,
        leaves: &[Leaf],
        mask: &[u32],
    ) -> Result<Option<Value>, Stop> {
        let of = |expression: Handle<Expression>| frame.table.leaves(expression)[0].scalar;
        let count = leaves.len();
        Ok(match *expression {
            Expression::Unary { op, expr } => {
                let (scalar, a) = (of(expr), self.value(frame, expr)?);
                self.scalars(count, &[&a], mask, |n, lane| arithmetic::unary(op, scalar, a.get(n, lane)).map(Ok))
            }
            Expression::Binary { op, left, right } => {
                let (scalar, a, b) = (of(left), self.value(frame, left)?, self.value(frame, right)?);
                self.scalars(count, &[&a, &b], mask, |n, lane| {
                    arithmetic::binary(op, scalar, a.get(own(&a, n), lane), b.get(own(&b, n), lane))
                })
            }
            Expression::As { expr, kind, convert: Some(width) } => {
                let (from, to, a) = (of(expr), Scalar { kind, width }, self.value(frame, expr)?);
                self.scalars(count, &[&a], mask, |n, lane| arithmetic::converted(from, to, a.get(n, lane)))
            }
            Expression::Relational { fun, argument } => {
                let (scalar, a) = (of(argument), self.value(frame, argument)?);
                let float = |bits: u64| {
                    if scalar.width == 8 { f64::from_bits(bits) } else { f64::from(f32::from_bits(bits as u32)) }
                };
                self.scalars(count, &[&a], mask, |n, lane| {
                    let holds = match fun {
                        RelationalFunction::All => (0..a.scalars()).all(|n| a.get(n, lane) != 0),
                        RelationalFunction::Any => (0..a.scalars()).any(|n| a.get(n, lane) != 0),
                        RelationalFunction::IsNan => float(a.get(n, lane)).is_nan(),
                        RelationalFunction::IsInf => float(a.get(n, lane)).is_infinite(),
                    };
                    Some(Ok(u64::from(holds)))
                })
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let arguments = [Some(arg), arg1, arg2, arg3].into_iter().flatten();
                let arguments = arguments.map(|argument| self.value(frame, argument)).collect::<Result<Vec<_>, _>>()?;
                let from: Vec<&Value> = arguments.iter().map(|argument| &**argument).collect();
                self.math(fun, of(arg), count, &from, mask)
            }
            _ => None,
        })
    }

    /// Returns scalars that may be undefined; `None` if the operation is not known.
    fn scalars(
        &mut self,
        scalars: usize,
        from: &[&Value],
        mask: &[u32],
        scalar: impl Fn(usize, u32) -> Option<Result<u64, Undefined>>,
    ) -> Option<Value> {
        let (mut missing, mut undefined) = (false, Vec::new());
        let mut value = Value::computed(scalars, self.lanes, mask, from, |n, lane| match scalar(n, lane) {
            Some(Ok(bits)) => bits,
            Some(Err(why)) => {
                undefined.push((why, n, lane));
                0
            }
            None => {
                missing = true;
                0
            }
        });
        for (why, n, lane) in undefined {
            let taint = self.origin(Problem::Undefined, || {
                let words = match why {
                    Undefined::DivisionByZero => "an integer is divided by zero",
                    Undefined::Shift => "an integer is shifted by all its bits or more",
                    Undefined::IntegerOfNan => "an integer is made of NaN",
                };
                format!("{words} in invocation {lane}")
            });
            value.mark(n, lane, taint);
        }
        (!missing).then_some(value)
    }

    fn math(
        &mut self,
        fun: MathFunction,
        scalar: Scalar,
        count: usize,
        from: &[&Value],
        mask: &[u32],
    ) -> Option<Value> {
        let both = |op, a, b| arithmetic::binary(op, scalar, a, b)?.ok();
        if let (MathFunction::Dot, &[a, b]) = (fun, from) {
            return self.scalars(1, from, mask, |_, lane| {
                let term = |n| both(BinaryOperator::Multiply, a.get(n, lane), b.get(n, lane));
                (1..a.scalars()).try_fold(term(0)?, |sum, n| both(BinaryOperator::Add, sum, term(n)?)).map(Ok)
            });
        }
        if from[0].scalars() != count {
            return None;
        }
        let fused = self.fused;
        self.scalars(count, from, mask, |n, lane| {
            let mut x = [0; 4];
            x.iter_mut().zip(from).for_each(|(x, from)| *x = from.get(own(from, n), lane));
            if fun == MathFunction::Fma && !fused {
                return both(BinaryOperator::Add, both(BinaryOperator::Multiply, x[0], x[1])?, x[2]).map(Ok);
            }
            arithmetic::function(fun, scalar, &x).map(Ok)
        })
    }

    pub(super) fn atomic(
        &mut self,
        frame: &mut Frame<'a>,
        pointer: Handle<Expression>,
        fun: &AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
        mask: &[u32],
    ) -> Result<(), Stop> {
        let leaf = frame.table.leaves(pointer)[0];
        let (pointer, value) = (self.slot(frame, pointer)?, self.value(frame, value)?);
        let compare = match *fun {
            AtomicFunction::Exchange { compare: Some(compare) } => Some(self.value(frame, compare)?),
            _ => None,
        };
        let scalar = leaf.scalar;
        let binary = |op, a, b| match arithmetic::binary(op, scalar, a, b) {
            Some(Ok(bits)) => Ok(bits),
            _ => Err(Stop(format!("an atomic {op:?} of {scalar:?}"))),
        };
        self.depend(&value, mask);
        let least = |a, b, less| Ok(if (binary(BinaryOperator::Less, b, a)? != 0) == less { b } else { a });
        let ordered = matches!(fun, AtomicFunction::Exchange { .. });
        let old = self.exchange(pointer.pointer()?, leaf, ordered, mask, |was, lane| {
            let given = value.get(0, lane);
            Ok(Some(match fun {
                AtomicFunction::Add => binary(BinaryOperator::Add, was, given)?,
                AtomicFunction::Subtract => binary(BinaryOperator::Subtract, was, given)?,
                AtomicFunction::And => binary(BinaryOperator::And, was, given)?,
                AtomicFunction::ExclusiveOr => binary(BinaryOperator::ExclusiveOr, was, given)?,
                AtomicFunction::InclusiveOr => binary(BinaryOperator::InclusiveOr, was, given)?,
                AtomicFunction::Min => least(was, given, true)?,
                AtomicFunction::Max => least(was, given, false)?,
                AtomicFunction::Exchange { .. } => match &compare {
                    Some(compare) if compare.get(0, lane) != was => return Ok(None),
                    _ => given,
                },
            }))
        })?;
        let Some(result) = result else { return Ok(()) };
        let made = match compare {
            None => old,
            Some(compare) => {
                let mut made = Value::zeros(2, self.lanes);
                for &lane in mask {
                    made.set(0, lane, old.get(0, lane));
                    made.set(1, lane, u64::from(old.get(0, lane) == compare.get(0, lane)));
                    (0..2).for_each(|n| made.mark(n, lane, old.taint(0, lane)));
                }
                made
            }
        };
        frame.slots[result.index()] = Some(made.into());
        Ok(())
    }
}

/// Which scalar belongs to scalar `n` of a result: the only one of a value that has one.
fn own(value: &Value, n: usize) -> usize {
    if value.scalars() == 1 { 0 } else { n }
}
