//! Votes, shuffles, sums and scans of a subgroup.

use naga::{
    BinaryOperator, CollectiveOperation, Expression, GatherMode, Handle, MathFunction, Scalar, SubgroupOperation,
};

use super::arithmetic;
use super::interpreter::{Frame, Interpreter, Stop};
use super::report::Problem;
use super::value::Value;

impl<'a> Interpreter<'a> {
    /// Returns the invocations of `mask` by subgroup. All of a subgroup must come to its
    /// operations.
    fn subgroups<'m>(&mut self, mask: &'m [u32]) -> Vec<&'m [u32]> {
        let size = self.subgroup;
        let parts: Vec<&[u32]> = mask.chunk_by(|a, b| a / size == b / size).collect();
        let most = self.lanes as u32;
        let partial = parts.iter().find(|part| part.len() as u32 != (most - part[0] / size * size).min(size));
        if let Some(part) = partial {
            let (here, first) = (part.len(), part[0] / size);
            self.find(Problem::Subgroup, || format!("{here} invocations of subgroup {first} come to it, of {size}"));
        }
        parts
    }

    pub(super) fn ballot(
        &mut self,
        frame: &mut Frame<'a>,
        result: Handle<Expression>,
        predicate: Option<Handle<Expression>>,
        mask: &[u32],
    ) -> Result<(), Stop> {
        let predicate = predicate.map(|predicate| self.value(frame, predicate)).transpose()?;
        let mut ballot = Value::zeros(4, self.lanes);
        for part in self.subgroups(mask) {
            let (mut words, mut taint) = ([0u64; 4], 0);
            for &lane in part {
                taint = taint.max(predicate.as_ref().map_or(0, |predicate| predicate.taint(0, lane)));
                let place = (lane % self.subgroup) as usize;
                let yes = predicate.as_ref().is_none_or(|predicate| predicate.get(0, lane) != 0);
                words[place / 32] |= u64::from(yes) << (place % 32);
            }
            for &lane in part {
                for (n, &word) in words.iter().enumerate() {
                    ballot.set(n, lane, word);
                    ballot.mark(n, lane, taint);
                }
            }
        }
        frame.slots[result.index()] = Some(ballot.into());
        Ok(())
    }

    pub(super) fn gather(
        &mut self,
        frame: &mut Frame<'a>,
        mode: &GatherMode,
        argument: Handle<Expression>,
        result: Handle<Expression>,
        mask: &[u32],
    ) -> Result<(), Stop> {
        let argument = self.value(frame, argument)?;
        let from = match *mode {
            GatherMode::BroadcastFirst => None,
            GatherMode::Broadcast(lane)
            | GatherMode::Shuffle(lane)
            | GatherMode::ShuffleDown(lane)
            | GatherMode::ShuffleUp(lane)
            | GatherMode::ShuffleXor(lane) => Some(self.value(frame, lane)?),
            ref other => return Err(Stop(format!("{other:?}"))),
        };
        let size = u64::from(self.subgroup);
        let mut made = Value::zeros(argument.scalars(), self.lanes);
        for part in self.subgroups(mask) {
            let base = part[0] / self.subgroup * self.subgroup;
            for &lane in part {
                let (place, by) = (u64::from(lane - base), from.as_ref().map_or(0, |from| from.get(0, lane)));
                let source = match mode {
                    GatherMode::BroadcastFirst => u64::from(part[0] - base),
                    GatherMode::ShuffleDown(_) => place + by,
                    GatherMode::ShuffleUp(_) => place.wrapping_sub(by),
                    GatherMode::ShuffleXor(_) => place ^ by,
                    _ => by,
                };
                let there = source < size && part.contains(&(base + source as u32));
                // The value of a shift beyond the ends is undefined, and a kernel may discard it.
                // All other modes must name a lane that exists.
                if !there
                    && matches!(mode, GatherMode::Broadcast(_) | GatherMode::Shuffle(_) | GatherMode::ShuffleXor(_))
                {
                    self.find(Problem::Subgroup, || {
                        format!("invocation {place} asks for invocation {source} of {size}")
                    });
                }
                if there {
                    let source = base + source as u32;
                    for n in 0..argument.scalars() {
                        made.set(n, lane, argument.get(n, source));
                        made.mark(n, lane, argument.taint(n, source));
                    }
                }
            }
        }
        frame.slots[result.index()] = Some(made.into());
        Ok(())
    }

    pub(super) fn collective(
        &mut self,
        frame: &mut Frame<'a>,
        op: SubgroupOperation,
        how: CollectiveOperation,
        [argument, result]: [Handle<Expression>; 2],
        mask: &[u32],
    ) -> Result<(), Stop> {
        let scalar = frame.table.leaves(argument)[0].scalar;
        let argument = self.value(frame, argument)?;
        let mut made = Value::zeros(argument.scalars(), self.lanes);
        for part in self.subgroups(mask) {
            for n in 0..argument.scalars() {
                let taint = part.iter().map(|&lane| argument.taint(n, lane)).max().unwrap_or(0);
                let mut sum = None;
                let mut before = Vec::with_capacity(part.len());
                for &lane in part {
                    before.push(sum);
                    let x = argument.get(n, lane);
                    sum = Some(match sum {
                        None => x,
                        Some(sum) => {
                            combined(op, scalar, sum, x).ok_or_else(|| Stop(format!("{op:?} of {scalar:?}")))?
                        }
                    });
                }
                for (k, &lane) in part.iter().enumerate() {
                    let bits = match how {
                        CollectiveOperation::Reduce => sum,
                        CollectiveOperation::InclusiveScan => before.get(k + 1).copied().unwrap_or(sum),
                        CollectiveOperation::ExclusiveScan => before[k].or_else(|| neutral(op, scalar)),
                    };
                    made.set(n, lane, bits.unwrap_or(0));
                    made.mark(n, lane, taint);
                }
            }
        }
        frame.slots[result.index()] = Some(made.into());
        Ok(())
    }
}

fn combined(op: SubgroupOperation, scalar: Scalar, a: u64, b: u64) -> Option<u64> {
    let binary = |op| arithmetic::binary(op, scalar, a, b)?.ok();
    match op {
        SubgroupOperation::All | SubgroupOperation::And => binary(BinaryOperator::And),
        SubgroupOperation::Any | SubgroupOperation::Or => binary(BinaryOperator::InclusiveOr),
        SubgroupOperation::Xor => binary(BinaryOperator::ExclusiveOr),
        SubgroupOperation::Add => binary(BinaryOperator::Add),
        SubgroupOperation::Mul => binary(BinaryOperator::Multiply),
        SubgroupOperation::Min => arithmetic::function(MathFunction::Min, scalar, &[a, b]),
        SubgroupOperation::Max => arithmetic::function(MathFunction::Max, scalar, &[a, b]),
    }
}

/// Returns what changes nothing, of operations that have an exclusive scan.
fn neutral(op: SubgroupOperation, scalar: Scalar) -> Option<u64> {
    let one = || arithmetic::converted(Scalar::U32, scalar, 1)?.ok();
    if op == SubgroupOperation::Mul { one() } else { Some(0) }
}
