//! What an expression is worth in the invocations that come to it.

use std::sync::Arc;

use wgpu::naga::{
    ArraySize, AtomicFunction, BinaryOperator, Binding, BuiltIn, Expression, FunctionArgument, Handle, MathFunction,
    RelationalFunction, Scalar, ScalarKind, TypeInner,
};

use super::arithmetic::{self, Undefined};
use super::interpreter::{Frame, Interpreter, Slot, Stop};
use super::memory::{NOWHERE, Pointer, Root};
use super::report::Problem;
use super::value::Value;

impl<'a> Interpreter<'a> {
    /// The value of an argument of the entry point.
    pub(super) fn builtin(&self, argument: &FunctionArgument) -> Result<Slot, Stop> {
        let [x, y, z] = self.program.invocations();
        let [column, row] = self.place();
        let [columns, rows] = self.groups();
        let of = |scalars: usize, scalar: &dyn Fn(usize, u32) -> u32| {
            let mut value = Value::zeros(scalars, self.lanes);
            for n in 0..scalars {
                (0..self.lanes as u32).for_each(|lane| value.set(n, lane, u64::from(scalar(n, lane))));
            }
            value
        };
        let local = |n: usize, lane: u32| [lane % x, lane / x % y, lane / (x * y)][n];
        let Some(Binding::BuiltIn(builtin)) = argument.binding else {
            return Err(Stop("an argument of the entry point that is no builtin".into()));
        };
        let subgroup = self.subgroup;
        Ok(match builtin {
            BuiltIn::GlobalInvocationId => of(3, &|n, lane| [column * x, row * y, 0][n] + local(n, lane)),
            BuiltIn::LocalInvocationId => of(3, &local),
            BuiltIn::LocalInvocationIndex => of(1, &|_, lane| lane),
            BuiltIn::WorkGroupId => Value::all(vec![u64::from(column), u64::from(row), 0]),
            BuiltIn::NumWorkGroups => Value::all(vec![u64::from(columns), u64::from(rows), 1]),
            BuiltIn::WorkGroupSize => Value::all([x, y, z].map(u64::from).into()),
            BuiltIn::NumSubgroups => Value::all(vec![(self.lanes as u64).div_ceil(u64::from(subgroup))]),
            BuiltIn::SubgroupId => of(1, &|_, lane| lane / subgroup),
            BuiltIn::SubgroupSize => Value::all(vec![u64::from(subgroup)]),
            BuiltIn::SubgroupInvocationId => of(1, &|_, lane| lane % subgroup),
            other => return Err(Stop(format!("the builtin {other:?}"))),
        }
        .into())
    }

    /// Evaluates an expression that is emitted.
    pub(super) fn evaluate(
        &mut self,
        frame: &Frame<'a>,
        expression: Handle<Expression>,
        mask: &[u32],
    ) -> Result<Slot, Stop> {
        let table = frame.table;
        let leaves = table.leaves(expression);
        let lanes = self.lanes;
        Ok(match frame.function.expressions[expression] {
            Expression::Compose { ref components, .. } => {
                let parts = components.iter().map(|&part| self.value(frame, part)).collect::<Result<Vec<_>, _>>()?;
                let places: Vec<(usize, usize)> =
                    parts.iter().enumerate().flat_map(|(p, part)| (0..part.scalars()).map(move |n| (p, n))).collect();
                let from: Vec<&Value> = parts.iter().map(|part| &**part).collect();
                Value::moved(places.len(), lanes, mask, &from, |n, _| places[n]).into()
            }
            Expression::Splat { size, value } => {
                let value = self.value(frame, value)?;
                Value::moved(size as usize, lanes, mask, &[&value], |_, _| (0, 0)).into()
            }
            Expression::Swizzle { size, vector, pattern } => {
                let vector = self.value(frame, vector)?;
                Value::moved(size as usize, lanes, mask, &[&vector], |n, _| (0, pattern[n] as usize)).into()
            }
            Expression::AccessIndex { base, index } => {
                let index = Value::all(vec![u64::from(index)]);
                self.access(frame, base, &index, mask)?
            }
            Expression::Access { base, index } => {
                let index = self.value(frame, index)?;
                self.access(frame, base, &index, mask)?
            }
            Expression::Load { pointer } => {
                let atomic = matches!(*table.ty(pointer), TypeInner::Pointer { base, .. }
                    if matches!(self.program.module.types[base].inner, TypeInner::Atomic(_)));
                let leaves = table.leaves(pointer).clone();
                let pointer = self.slot(frame, pointer)?;
                self.load(pointer.pointer()?, &leaves, atomic, mask)?.into()
            }
            Expression::Unary { op, expr } => {
                let (value, scalar) = (self.value(frame, expr)?, leaves[0].scalar);
                let mut missing = false;
                let made = Value::computed(leaves.len(), lanes, mask, &[&value], |n, lane| {
                    arithmetic::unary(op, scalar, value.get(n, lane)).unwrap_or_else(|| {
                        missing = true;
                        0
                    })
                });
                known(missing, || format!("{op:?} of {scalar:?}"))?;
                made.into()
            }
            Expression::Binary { op, left, right } => self.binary(frame, expression, op, [left, right], mask)?.into(),
            Expression::Select { condition, accept, reject } => {
                let [condition, accept, reject] = [condition, accept, reject].map(|part| self.value(frame, part));
                let (condition, accept, reject) = (condition?, accept?, reject?);
                let each = condition.scalars() > 1;
                let of = |n: usize| if each { n } else { 0 };
                let mut made = Value::moved(leaves.len(), lanes, mask, &[&condition, &accept, &reject], |n, lane| {
                    (if condition.get(of(n), lane) != 0 { 1 } else { 2 }, n)
                });
                for n in 0..leaves.len() {
                    for &lane in mask.iter().filter(|&&lane| condition.taint(of(n), lane) != 0) {
                        made.mark(n, lane, condition.taint(of(n), lane));
                    }
                }
                made.into()
            }
            Expression::Relational { fun, argument } => {
                let scalar = table.leaves(argument)[0].scalar;
                let argument = self.value(frame, argument)?;
                let float = |bits: u64| {
                    if scalar.width == 8 { f64::from_bits(bits) } else { f64::from(f32::from_bits(bits as u32)) }
                };
                Value::computed(leaves.len(), lanes, mask, &[&argument], |n, lane| {
                    u64::from(match fun {
                        RelationalFunction::All => (0..argument.scalars()).all(|n| argument.get(n, lane) != 0),
                        RelationalFunction::Any => (0..argument.scalars()).any(|n| argument.get(n, lane) != 0),
                        RelationalFunction::IsNan => float(argument.get(n, lane)).is_nan(),
                        RelationalFunction::IsInf => float(argument.get(n, lane)).is_infinite(),
                    })
                })
                .into()
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let arguments = [Some(arg), arg1, arg2, arg3].into_iter().flatten();
                let arguments = arguments.map(|argument| self.value(frame, argument)).collect::<Result<Vec<_>, _>>()?;
                self.math(fun, table.leaves(arg)[0].scalar, leaves.len(), &arguments, mask)?.into()
            }
            Expression::As { expr, kind, convert } => {
                let from = table.leaves(expr)[0].scalar;
                let value = self.value(frame, expr)?;
                let Some(width) = convert else {
                    // The same bits.
                    return Ok(Slot::Value(value));
                };
                let to = Scalar { kind, width };
                let made = self.scalars(leaves.len(), &[&value], mask, |n, lane| {
                    arithmetic::converted(from, to, value.get(n, lane))
                });
                made.ok_or_else(|| Stop(format!("{from:?} as {to:?}")))?.into()
            }
            Expression::ArrayLength(pointer) => {
                let TypeInner::Pointer { base, .. } = *table.ty(pointer) else { return Err(Stop("a length".into())) };
                let TypeInner::Array { stride, .. } = self.program.module.types[base].inner else {
                    return Err(Stop("the length of a part".into()));
                };
                let slot = self.slot(frame, pointer)?;
                let Root::Buffer(binding) = slot.pointer()?.root else { return Err(Stop("a length".into())) };
                let bytes = self.buffers.get(binding).map_or(0, |buffer| buffer.bytes.len() as u64);
                Value::all(vec![bytes / u64::from(stride)]).into()
            }
            ref other => return Err(Stop(format!("an expression {other:?}"))),
        })
    }

    /// Scalars that may be undefined; none where the operation is not known.
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

    fn binary(
        &mut self,
        frame: &Frame<'a>,
        expression: Handle<Expression>,
        op: BinaryOperator,
        [left, right]: [Handle<Expression>; 2],
        mask: &[u32],
    ) -> Result<Value, Stop> {
        let scalar = frame.table.leaves(left)[0].scalar;
        let count = frame.table.leaves(expression).len();
        let (left, right) = (self.value(frame, left)?, self.value(frame, right)?);
        let of = |value: &Value, n: usize| if value.scalars() == 1 { 0 } else { n };
        let made = self.scalars(count, &[&left, &right], mask, |n, lane| {
            arithmetic::binary(op, scalar, left.get(of(&left, n), lane), right.get(of(&right, n), lane))
        });
        made.ok_or_else(|| Stop(format!("{op:?} of {scalar:?}")))
    }

    fn math(
        &mut self,
        fun: MathFunction,
        scalar: Scalar,
        count: usize,
        arguments: &[Arc<Value>],
        mask: &[u32],
    ) -> Result<Value, Stop> {
        let from: Vec<&Value> = arguments.iter().map(|argument| &**argument).collect();
        let lanes = self.lanes;
        if fun == MathFunction::Dot {
            let [a, b] = [&arguments[0], &arguments[1]];
            let times = |n, lane| arithmetic::binary(BinaryOperator::Multiply, scalar, a.get(n, lane), b.get(n, lane));
            let made = self.scalars(1, &from, mask, |_, lane| {
                (0..a.scalars()).map(|n| times(n, lane)).reduce(|sum, term| {
                    Some(Ok(arithmetic::binary(BinaryOperator::Add, scalar, sum?.ok()?, term?.ok()?)?.ok()?))
                })?
            });
            return made.ok_or_else(|| Stop(format!("{fun:?} of {scalar:?}")));
        }
        let mut missing = false;
        let made = Value::computed(count, lanes, mask, &from, |n, lane| {
            let mut x = [0; 4];
            for (x, argument) in x.iter_mut().zip(arguments) {
                *x = argument.get(if argument.scalars() == 1 { 0 } else { n }, lane);
            }
            let single = count == 1 && arguments[0].scalars() > 1;
            arithmetic::function(fun, scalar, &x).filter(|_| !single).unwrap_or_else(|| {
                missing = true;
                0
            })
        });
        known(missing, || format!("{fun:?} of {scalar:?}"))?;
        Ok(made)
    }

    /// A part of a value, or of what a pointer points to.
    fn access(
        &mut self,
        frame: &Frame<'a>,
        base: Handle<Expression>,
        index: &Value,
        mask: &[u32],
    ) -> Result<Slot, Stop> {
        let types = &self.program.module.types;
        let ctx = self.program.module.to_ctx();
        match self.slot(frame, base)? {
            Slot::Pointer(pointer) => {
                let inner = match *frame.table.ty(base) {
                    TypeInner::Pointer { base, .. } => types[base].inner.clone(),
                    TypeInner::ValuePointer { size: Some(size), scalar, .. } => TypeInner::Vector { size, scalar },
                    ref other => return Err(Stop(format!("a pointer {other:?}"))),
                };
                // From one part to the next, and how many there are.
                let (stride, count) = match inner {
                    TypeInner::Array { stride, size: ArraySize::Constant(count), .. } => {
                        (stride, u64::from(count.get()))
                    }
                    TypeInner::Array { stride, .. } => (stride, NOWHERE),
                    TypeInner::Vector { size, scalar } => (u32::from(scalar.width), size as u64),
                    TypeInner::Struct { ref members, .. } => {
                        let offset = u64::from(members[index.get(0, mask[0]) as usize].offset);
                        let root = pointer.root;
                        let offset = Value::computed(1, self.lanes, mask, &[&pointer.offset], |_, lane| {
                            pointer.offset.get(0, lane).saturating_add(offset)
                        });
                        return Ok(Slot::Pointer(Arc::new(Pointer { root, offset })));
                    }
                    other => return Err(Stop(format!("a part of {other:?}"))),
                };
                let offset = Value::computed(1, self.lanes, mask, &[&pointer.offset, index], |_, lane| {
                    let index = index.get(0, lane);
                    if index < count {
                        pointer.offset.get(0, lane).saturating_add(index * u64::from(stride))
                    } else {
                        NOWHERE
                    }
                });
                Ok(Slot::Pointer(Arc::new(Pointer { root: pointer.root, offset })))
            }
            Slot::Value(value) => {
                // Scalars of a part, where it begins, and how many parts there are.
                let size = |ty| super::program::leaves(ctx, &types[ty].inner).map(|leaves| leaves.len()).map_err(Stop);
                let (count, parts) = match *frame.table.ty(base) {
                    TypeInner::Vector { size, .. } => (1, size as u64),
                    TypeInner::Array { base, size: ArraySize::Constant(parts), .. } => {
                        (size(base)?, u64::from(parts.get()))
                    }
                    TypeInner::Struct { ref members, .. } => {
                        let index = index.get(0, mask[0]) as usize;
                        let before = members[..index].iter().map(|member| size(member.ty)).sum::<Result<usize, _>>()?;
                        return Ok(value.part(before, size(members[index].ty)?).into());
                    }
                    ref other => return Err(Stop(format!("a part of {other:?}"))),
                };
                if let Some(&lane) = mask.iter().find(|&&lane| index.get(0, lane) >= parts) {
                    let index = index.get(0, lane);
                    self.find(Problem::OutOfBounds, || format!("invocation {lane}, part {index} of {parts}"));
                }
                self.depend(index, mask);
                let made = Value::moved(count, self.lanes, mask, &[&value, index], |n, lane| {
                    (0, index.get(0, lane).min(parts - 1) as usize * count + n)
                });
                Ok(made.into())
            }
        }
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
        let old = self.exchange(pointer.pointer()?, leaf, mask, |was, lane| {
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
                }
                made
            }
        };
        frame.slots[result.index()] = Some(made.into());
        Ok(())
    }
}

fn known(missing: bool, what: impl FnOnce() -> String) -> Result<(), Stop> {
    if missing { Err(Stop(what())) } else { Ok(()) }
}

/// Whether numbers of a kind are added, compared and so on as such.
pub(super) fn is_number(scalar: Scalar) -> bool {
    matches!(scalar.kind, ScalarKind::Uint | ScalarKind::Sint | ScalarKind::Float)
}
