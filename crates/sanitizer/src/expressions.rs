//! Values of expressions in the invocations that reach them.

use std::sync::Arc;

use naga::{ArraySize, Binding, BuiltIn, Expression, FunctionArgument, Handle, TypeInner};

use super::interpreter::{Frame, Interpreter, Slot, Stop};
use super::memory::{NOWHERE, Pointer, Root};
use super::program::leaves;
use super::report::Problem;
use super::value::{Value, either};

impl<'a> Interpreter<'a> {
    /// Returns the value of an argument of the entry point.
    pub(super) fn builtin(&self, argument: &FunctionArgument) -> Result<Slot, Stop> {
        let [x, y, z] = self.program.invocations();
        let (place, groups) = (self.place(), self.groups());
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
            BuiltIn::GlobalInvocationId => of(3, &|n, lane| place[n] * [x, y, z][n] + local(n, lane)),
            BuiltIn::LocalInvocationId => of(3, &local),
            BuiltIn::LocalInvocationIndex => of(1, &|_, lane| lane),
            BuiltIn::WorkGroupId => Value::all(place.map(u64::from).into()),
            BuiltIn::NumWorkGroups => Value::all(groups.map(u64::from).into()),
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
        match frame.function.expressions[expression] {
            Expression::AccessIndex { base, index } => {
                self.access(frame, base, &Value::all(vec![u64::from(index)]), mask)
            }
            Expression::Access { base, index } => {
                let index = self.value(frame, index)?;
                self.access(frame, base, &index, mask)
            }
            Expression::Load { pointer } => {
                let (atomic, leaves) = (self.points_to_atomic(frame, pointer), table.leaves(pointer).clone());
                let pointer = self.slot(frame, pointer)?;
                Ok(self.load(pointer.pointer()?, &leaves, atomic, mask)?.into())
            }
            Expression::As { expr, convert: None, .. } => self.slot(frame, expr),
            Expression::ArrayLength(pointer) => self.length(frame, pointer),
            ref other => {
                let made = match self.put_together(frame, other, mask)? {
                    Some(made) => Some(made),
                    None => self.operation(frame, other, table.leaves(expression), mask)?,
                };
                made.map(Slot::from).ok_or_else(|| Stop(format!("an expression {other:?}")))
            }
        }
    }

    /// Returns the value of an expression that takes scalars of others as they are; none for other
    /// expressions.
    fn put_together(&self, frame: &Frame<'a>, expression: &Expression, mask: &[u32]) -> Result<Option<Value>, Stop> {
        let lanes = self.lanes;
        Ok(Some(match *expression {
            Expression::Compose { ref components, .. } => {
                let parts = components.iter().map(|&part| self.value(frame, part)).collect::<Result<Vec<_>, _>>()?;
                let places: Vec<(usize, usize)> =
                    parts.iter().enumerate().flat_map(|(p, part)| (0..part.scalars()).map(move |n| (p, n))).collect();
                let from: Vec<&Value> = parts.iter().map(|part| &**part).collect();
                Value::moved(places.len(), lanes, mask, &from, |n, _| places[n])
            }
            Expression::Splat { size, value } => {
                let value = self.value(frame, value)?;
                Value::moved(size as usize, lanes, mask, &[&value], |_, _| (0, 0))
            }
            Expression::Swizzle { size, vector, pattern } => {
                let vector = self.value(frame, vector)?;
                Value::moved(size as usize, lanes, mask, &[&vector], |n, _| (0, pattern[n] as usize))
            }
            Expression::Select { condition, accept, reject } => {
                let (condition, accept) = (self.value(frame, condition)?, self.value(frame, accept)?);
                let reject = self.value(frame, reject)?;
                let of = |n: usize| if condition.scalars() > 1 { n } else { 0 };
                let scalars = accept.scalars();
                let mut made = Value::moved(scalars, lanes, mask, &[&condition, &accept, &reject], |n, lane| {
                    (if condition.get(of(n), lane) != 0 { 1 } else { 2 }, n)
                });
                for n in 0..scalars {
                    for &lane in mask.iter().filter(|&&lane| condition.taint(of(n), lane) != 0) {
                        made.mark(n, lane, either(condition.taint(of(n), lane), made.taint(n, lane)));
                    }
                }
                made
            }
            _ => return Ok(None),
        }))
    }

    /// Elements of an array whose length is not known to the text.
    fn length(&self, frame: &Frame<'a>, pointer: Handle<Expression>) -> Result<Slot, Stop> {
        let unknown = || Stop("the length of a part".into());
        let TypeInner::Pointer { base, .. } = *frame.table.ty(pointer) else { return Err(unknown()) };
        let TypeInner::Array { stride, .. } = self.program.module.types[base].inner else { return Err(unknown()) };
        let slot = self.slot(frame, pointer)?;
        let Root::Buffer(binding) = slot.pointer()?.root else { return Err(unknown()) };
        let bytes = self.buffers.get(binding).map_or(0, |buffer| buffer.bytes.len() as u64);
        Ok(Value::all(vec![bytes / u64::from(stride)]).into())
    }

    /// Returns a part of a value, or of what a pointer points to.
    fn access(
        &mut self,
        frame: &Frame<'a>,
        base: Handle<Expression>,
        index: &Value,
        mask: &[u32],
    ) -> Result<Slot, Stop> {
        let ty = frame.table.ty(base);
        match self.slot(frame, base)? {
            Slot::Pointer(pointer) => Ok(Slot::Pointer(Arc::new(self.pointed(ty, &pointer, index, mask)?))),
            Slot::Value(value) => Ok(self.part(ty, &value, index, mask)?.into()),
        }
    }

    /// Returns a pointer to a part of what `pointer`, a `ty`, points to.
    fn pointed(&self, ty: &TypeInner, pointer: &Pointer, index: &Value, mask: &[u32]) -> Result<Pointer, Stop> {
        let inner = match *ty {
            TypeInner::Pointer { base, .. } => self.program.module.types[base].inner.clone(),
            TypeInner::ValuePointer { size: Some(size), scalar, .. } => TypeInner::Vector { size, scalar },
            ref other => return Err(Stop(format!("a pointer {other:?}"))),
        };
        // From one part to the next, and how many there are.
        let (stride, count) = match inner {
            TypeInner::Array { stride, size: ArraySize::Constant(count), .. } => (stride, u64::from(count.get())),
            TypeInner::Array { stride, .. } => (stride, NOWHERE),
            TypeInner::Vector { size, scalar } => (u32::from(scalar.width), size as u64),
            TypeInner::Struct { ref members, .. } => {
                let by = u64::from(members[index.get(0, mask[0]) as usize].offset);
                let offset = Value::computed(1, self.lanes, mask, &[&pointer.offset], |_, lane| {
                    pointer.offset.get(0, lane).saturating_add(by)
                });
                return Ok(Pointer { root: pointer.root, offset });
            }
            other => return Err(Stop(format!("a part of {other:?}"))),
        };
        let offset = Value::computed(1, self.lanes, mask, &[&pointer.offset, index], |_, lane| {
            let index = index.get(0, lane);
            if index >= count {
                return NOWHERE;
            }
            pointer.offset.get(0, lane).saturating_add(index * u64::from(stride))
        });
        Ok(Pointer { root: pointer.root, offset })
    }

    /// A part of a value, which is a `ty`.
    fn part(&mut self, ty: &TypeInner, value: &Value, index: &Value, mask: &[u32]) -> Result<Value, Stop> {
        let (types, ctx) = (&self.program.module.types, self.program.module.to_ctx());
        let size = |ty| leaves(ctx, &types[ty].inner).map(|leaves| leaves.len()).map_err(Stop);
        // Scalars of a part, and how many parts there are.
        let (count, parts) = match *ty {
            TypeInner::Vector { size, .. } => (1, size as u64),
            TypeInner::Array { base, size: ArraySize::Constant(parts), .. } => (size(base)?, u64::from(parts.get())),
            TypeInner::Struct { ref members, .. } => {
                let index = index.get(0, mask[0]) as usize;
                let before = members[..index].iter().map(|member| size(member.ty)).sum::<Result<usize, _>>()?;
                return Ok(value.part(before, size(members[index].ty)?));
            }
            ref other => return Err(Stop(format!("a part of {other:?}"))),
        };
        if let Some(&lane) = mask.iter().find(|&&lane| index.get(0, lane) >= parts) {
            let index = index.get(0, lane);
            self.find(Problem::OutOfBounds, || format!("invocation {lane}, part {index} of {parts}"));
        }
        self.depend(index, mask);
        Ok(Value::moved(count, self.lanes, mask, &[value, index], |n, lane| {
            (0, index.get(0, lane).min(parts - 1) as usize * count + n)
        }))
    }
}
