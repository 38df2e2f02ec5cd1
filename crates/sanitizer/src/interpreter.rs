//! Runs a dispatch invocation by invocation: all invocations of a workgroup that reach a statement
//! execute it together.

use std::collections::HashMap;
use std::sync::Arc;

use naga::{Block, Expression, Function, Handle, Span, Statement, SwitchValue, TypeInner};

use super::memory::{Memory, Pointer, Private, Root};
use super::program::{FunctionTable, Global, Program};
use super::report::{Finding, Problem, Report};
use super::shadow::{Kind, Who};
use super::traffic::Traffic;
use super::value::{ORDER, Value};

/// Why the interpreter gives up on a dispatch: what it does not know, or nothing where that takes
/// too many steps.
pub(super) struct Stop(pub String);

/// Kind of an expression.
#[derive(Clone)]
pub(super) enum Slot {
    Value(Arc<Value>),
    Pointer(Arc<Pointer>),
}

impl Slot {
    pub fn value(&self) -> Result<&Arc<Value>, Stop> {
        match self {
            Slot::Value(value) => Ok(value),
            Slot::Pointer(_) => Err(Stop("a pointer where a value belongs".into())),
        }
    }

    pub fn pointer(&self) -> Result<&Arc<Pointer>, Stop> {
        match self {
            Slot::Pointer(pointer) => Ok(pointer),
            Slot::Value(_) => Err(Stop("a value where a pointer belongs".into())),
        }
    }
}

impl From<Value> for Slot {
    fn from(value: Value) -> Self {
        Slot::Value(Arc::new(value))
    }
}

/// A call of a function.
pub(super) struct Frame<'a> {
    pub function: &'a Function,
    pub table: &'a FunctionTable,
    pub slots: Vec<Option<Slot>>,
    arguments: Vec<Slot>,
    /// The first of its variables among the memories of invocations.
    locals: usize,
    result: Option<Value>,
}

/// Continuation of the invocations that began a block; the others have returned.
#[derive(Default)]
struct Flow {
    /// To the end.
    fell: Vec<u32>,
    broke: Vec<u32>,
    continued: Vec<u32>,
}

/// A dispatch while it runs.
pub struct Interpreter<'a> {
    pub(super) program: &'a Program,
    pub(super) lanes: usize,
    /// Invocations of a subgroup.
    pub(super) subgroup: u32,
    groups: [u32; 3],
    /// The buffers by binding.
    pub buffers: Vec<Memory>,
    /// Memory of the workgroup, by global variable.
    pub(super) workgroup: Vec<Option<Memory>>,
    /// Private memory of the invocations: global variables first, then locals of the running
    /// functions.
    pub(super) private: Vec<Private>,
    /// The workgroup that runs, and the barriers it has passed: those for buffers, those for its
    /// memory, and all.
    pub(super) group: u32,
    pub(super) barriers: [u32; 3],
    /// Places, of a workgroup if they are in its memory, that are read while others write them: who
    /// writes.
    pub(super) raced: HashMap<(Root, u32, u64), Vec<(Who, Kind)>>,
    /// Whether those are known, so that what is read there is marked.
    pub(super) again: bool,
    /// Origins of values that differ between devices; see [`Taint`].
    pub(super) origins: Vec<Finding>,
    /// Whether which way an invocation goes depends on the order in which others come.
    pub(super) ordered: bool,
    /// The largest of the numbers with a fraction that were read and written, those of 4 bytes and
    /// of 8.
    pub(super) largest: [f64; 2],
    /// Whether accesses are counted.
    pub counts: bool,
    /// Whether the last workgroup runs first. Devices may run them in any order.
    pub backwards: bool,
    /// Whether `fma` rounds once. Vulkan lets a device round its product, too.
    pub fused: bool,
    /// Steps of invocations that are left.
    fuel: u64,
    /// Statement that is being run.
    pub(super) at: Span,
    pub(super) report: Report,
}

impl<'a> Interpreter<'a> {
    /// `groups` workgroups in columns and rows, of subgroups of `subgroup` invocations, over
    /// `buffers` by binding.
    pub fn new(program: &'a Program, subgroup: u32, groups: [u32; 3], buffers: Vec<Memory>) -> Self {
        let lanes = program.invocations().iter().product::<u32>() as usize;
        Interpreter {
            program,
            lanes,
            subgroup: subgroup.max(1),
            groups,
            buffers,
            workgroup: Vec::new(),
            private: Vec::new(),
            group: 0,
            barriers: [0; 3],
            raced: HashMap::new(),
            again: false,
            origins: Vec::new(),
            ordered: false,
            largest: [0.0; 2],
            counts: false,
            backwards: false,
            fused: true,
            fuel: 0,
            at: Span::UNDEFINED,
            report: Report::default(),
        }
    }

    /// Runs the whole dispatch, for as many steps of invocations at most.
    ///
    /// A read that races is seen where the other one writes, which may be later: by then the value
    /// has gone its way. So where there is one the dispatch runs once more, and what is read at
    /// such a place is marked.
    pub fn run(&mut self, steps: u64) -> Report {
        let contents: Vec<Vec<u8>> = self.buffers.iter().map(|buffer| buffer.bytes.clone()).collect();
        self.run_once(steps);
        if !self.raced.is_empty() {
            self.buffers = contents.into_iter().map(Memory::of_buffer).collect();
            (self.again, self.report) = (true, Report::default());
            self.origins.clear();
            self.run_once(steps);
        }
        std::mem::take(&mut self.report)
    }

    fn run_once(&mut self, steps: u64) {
        self.fuel = steps;
        self.report.traffic = self.counts.then(Traffic::default);
        let groups: u32 = self.groups.iter().product();
        for number in 0..groups {
            let group = if self.backwards { groups - 1 - number } else { number };
            if let Err(Stop(why)) = self.run_group(group) {
                let (steps, why) = (why.is_empty(), (!why.is_empty()).then_some(why));
                (self.report.unfinished, self.report.unknown) = (steps.then_some(group), why);
                break;
            }
        }
    }

    fn run_group(&mut self, group: u32) -> Result<(), Stop> {
        let (program, lanes) = (self.program, self.lanes);
        (self.group, self.barriers) = (group, [0; 3]);
        self.private.clear();
        self.workgroup.clear();
        for (global, (_, variable)) in program.globals.iter().zip(program.module.global_variables.iter()) {
            self.workgroup.push(match *global {
                Global::Workgroup { bytes } => Some(Memory::of_workgroup(bytes)),
                _ => None,
            });
            if let Global::Private { bytes } = *global {
                if variable.init.is_some() {
                    return Err(Stop("a private variable with a value from the start".into()));
                }
                self.private.push(Private::new(bytes as usize, lanes));
            }
        }
        let (function, table) = program.main();
        let arguments = function.arguments.iter().map(|argument| self.builtin(argument)).collect::<Result<_, _>>()?;
        let mask: Vec<u32> = (0..lanes as u32).collect();
        self.call(function, table, arguments, &mask).map(|_| ())
    }

    /// Returns the number of the workgroup that runs, by column, row and copy.
    pub(super) fn place(&self) -> [u32; 3] {
        let [columns, rows, _] = self.groups;
        [self.group % columns, self.group / columns % rows, self.group / (columns * rows)]
    }

    /// Workgroups by column, row and copy.
    pub(super) fn groups(&self) -> [u32; 3] {
        self.groups
    }

    fn burn(&mut self, lanes: usize) -> Result<(), Stop> {
        self.fuel = self.fuel.checked_sub(lanes as u64).ok_or_else(|| Stop(String::new()))?;
        Ok(())
    }

    fn call(
        &mut self,
        function: &'a Function,
        table: &'a FunctionTable,
        arguments: Vec<Slot>,
        mask: &[u32],
    ) -> Result<Option<Value>, Stop> {
        let locals = self.private.len();
        let ctx = self.program.module.to_ctx();
        let slots = vec![None; function.expressions.len()];
        let mut frame = Frame { function, table, slots, arguments, locals, result: None };
        for (handle, variable) in function.local_variables.iter() {
            let ty = &self.program.module.types[variable.ty].inner;
            self.private.push(Private::new(ty.size(ctx) as usize, self.lanes));
            let Some(init) = variable.init else { continue };
            let value = table.constant(init).ok_or_else(|| Stop("a variable whose first value is computed".into()))?;
            let leaves = super::program::leaves(ctx, ty).map_err(Stop)?;
            let memory = &mut self.private[locals + handle.index()];
            for (n, leaf) in leaves.iter().enumerate() {
                mask.iter()
                    .for_each(|&lane| memory.write(lane, u64::from(leaf.offset), leaf.scalar, value.get(n, lane), 0));
            }
        }
        self.block(&mut frame, &function.body, mask)?;
        self.private.truncate(locals);
        Ok(frame.result)
    }

    /// Returns what an expression is at present.
    pub(super) fn slot(&self, frame: &Frame<'a>, expression: Handle<Expression>) -> Result<Slot, Stop> {
        if let Some(slot) = &frame.slots[expression.index()] {
            return Ok(slot.clone());
        }
        if let Some(value) = frame.table.constant(expression) {
            return Ok(Slot::Value(value.clone()));
        }
        let pointer = |root| Slot::Pointer(Arc::new(Pointer { root, offset: Value::all(vec![0]) }));
        match frame.function.expressions[expression] {
            Expression::FunctionArgument(n) => Ok(frame.arguments[n as usize].clone()),
            Expression::LocalVariable(variable) => Ok(pointer(Root::Private(frame.locals + variable.index()))),
            Expression::GlobalVariable(variable) => Ok(pointer(match self.program.globals[variable.index()] {
                Global::Buffer { binding, .. } => Root::Buffer(binding),
                Global::Workgroup { .. } => Root::Workgroup(variable.index()),
                Global::Private { .. } => {
                    let before = &self.program.globals[..variable.index()];
                    Root::Private(before.iter().filter(|global| matches!(global, Global::Private { .. })).count())
                }
            })),
            ref other => Err(Stop(format!("{other:?} before it is computed"))),
        }
    }

    pub(super) fn value(&self, frame: &Frame<'a>, expression: Handle<Expression>) -> Result<Arc<Value>, Stop> {
        self.slot(frame, expression)?.value().cloned()
    }

    /// Splits invocations by a condition.
    fn split(
        &mut self,
        frame: &Frame<'a>,
        condition: Handle<Expression>,
        mask: &[u32],
    ) -> Result<(Vec<u32>, Vec<u32>), Stop> {
        let condition = self.value(frame, condition)?;
        self.follow(&condition, mask);
        Ok(mask.iter().partition(|&&lane| condition.get(0, lane) != 0))
    }

    /// Reports that the control flow depends on a value.
    fn follow(&mut self, value: &Value, mask: &[u32]) {
        self.depend(value, mask);
        self.ordered |= mask.iter().any(|&lane| value.taint_of_any(lane) == ORDER);
    }

    fn block(&mut self, frame: &mut Frame<'a>, block: &'a Block, mask: &[u32]) -> Result<Flow, Stop> {
        let mut flow = Flow { fell: mask.into(), ..Flow::default() };
        for (statement, &span) in block.span_iter() {
            if flow.fell.is_empty() {
                break;
            }
            let mask = std::mem::take(&mut flow.fell);
            self.burn(mask.len())?;
            self.at = span;
            let after = self.statement(frame, statement, mask)?;
            flow.fell = after.fell;
            flow.broke.extend(after.broke);
            flow.continued.extend(after.continued);
        }
        Ok(flow)
    }

    fn statement(&mut self, frame: &mut Frame<'a>, statement: &'a Statement, mask: Vec<u32>) -> Result<Flow, Stop> {
        match statement {
            Statement::Block(block) => return self.block(frame, block, &mask),
            Statement::If { condition, accept, reject } => {
                let (yes, no) = self.split(frame, *condition, &mask)?;
                let (a, b) = (self.branch(frame, accept, yes)?, self.branch(frame, reject, no)?);
                return Ok(joined(a, b));
            }
            Statement::Switch { selector, cases } => return self.switch(frame, *selector, cases, mask),
            Statement::Loop { body, continuing, break_if } => {
                let fell = self.looped(frame, body, continuing, *break_if, mask)?;
                return Ok(Flow { fell, ..Flow::default() });
            }
            Statement::Break => return Ok(Flow { broke: mask, ..Flow::default() }),
            Statement::Continue => return Ok(Flow { continued: mask, ..Flow::default() }),
            Statement::Return { value } => {
                if let Some(value) = value {
                    let value = self.value(frame, *value)?;
                    self.give(frame, &value, &mask);
                }
                return Ok(Flow::default());
            }
            other => self.effect(frame, other, &mask)?,
        }
        Ok(Flow { fell: mask, ..Flow::default() })
    }

    /// Sets the result of a call in the invocations that return.
    fn give(&self, frame: &mut Frame<'a>, value: &Value, mask: &[u32]) {
        let result = frame.result.get_or_insert_with(|| Value::zeros(value.scalars(), self.lanes));
        for n in 0..value.scalars() {
            for &lane in mask {
                result.set(n, lane, value.get(n, lane));
                result.mark(n, lane, value.taint(n, lane));
            }
        }
    }

    /// A statement after which all go on.
    fn effect(&mut self, frame: &mut Frame<'a>, statement: &'a Statement, mask: &[u32]) -> Result<(), Stop> {
        match statement {
            Statement::Emit(range) => {
                for expression in range.clone().filter(|&expression| frame.table.constant(expression).is_none()) {
                    self.burn(mask.len())?;
                    self.at = frame.function.expressions.get_span(expression);
                    let slot = self.evaluate(frame, expression, mask)?;
                    frame.slots[expression.index()] = Some(slot);
                }
            }
            Statement::ControlBarrier(barrier) => self.barrier(*barrier, mask),
            Statement::MemoryBarrier(_) => {}
            Statement::Store { pointer, value } => {
                let atomic = self.points_to_atomic(frame, *pointer);
                let leaves = frame.table.leaves(*pointer).clone();
                let (pointer, value) = (self.slot(frame, *pointer)?, self.value(frame, *value)?);
                self.store(pointer.pointer()?, &leaves, atomic, &value, mask)?;
            }
            Statement::Atomic { pointer, fun, value, result } => {
                self.atomic(frame, *pointer, fun, *value, *result, mask)?;
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                self.barrier(naga::Barrier::WORK_GROUP, mask);
                let leaves = frame.table.leaves(*pointer).clone();
                let pointer = self.slot(frame, *pointer)?;
                let value = self.load(pointer.pointer()?, &leaves, false, mask)?;
                frame.slots[result.index()] = Some(value.into());
                self.barrier(naga::Barrier::WORK_GROUP, mask);
            }
            Statement::Call { function, arguments, result } => {
                let arguments =
                    arguments.iter().map(|&argument| self.slot(frame, argument)).collect::<Result<_, _>>()?;
                let (called, table) = self.program.function(*function);
                let at = self.at;
                let value = self.call(called, table, arguments, mask)?;
                self.at = at;
                if let (Some(result), Some(value)) = (result, value) {
                    frame.slots[result.index()] = Some(value.into());
                }
            }
            Statement::SubgroupBallot { result, predicate } => self.ballot(frame, *result, *predicate, mask)?,
            Statement::SubgroupGather { mode, argument, result } => {
                self.gather(frame, mode, *argument, *result, mask)?
            }
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                self.collective(frame, *op, *collective_op, [*argument, *result], mask)?;
            }
            other => return Err(Stop(format!("a statement {other:?}"))),
        }
        Ok(())
    }

    fn branch(&mut self, frame: &mut Frame<'a>, block: &'a Block, mask: Vec<u32>) -> Result<Flow, Stop> {
        if mask.is_empty() { Ok(Flow::default()) } else { self.block(frame, block, &mask) }
    }

    fn switch(
        &mut self,
        frame: &mut Frame<'a>,
        selector: Handle<Expression>,
        cases: &'a [naga::SwitchCase],
        mut left: Vec<u32>,
    ) -> Result<Flow, Stop> {
        let selector = self.value(frame, selector)?;
        self.follow(&selector, &left);
        let values: Vec<Option<u32>> = cases
            .iter()
            .map(|case| match case.value {
                SwitchValue::I32(value) => Some(value as u32),
                SwitchValue::U32(value) => Some(value),
                SwitchValue::Default => None,
            })
            .collect();
        let named: Vec<u32> = values.iter().flatten().copied().collect();
        let (mut flow, mut through) = (Flow::default(), Vec::new());
        for (case, value) in cases.iter().zip(values) {
            let chosen = |lane: &u32| match value {
                Some(value) => selector.get(0, *lane) as u32 == value,
                None => !named.contains(&(selector.get(0, *lane) as u32)),
            };
            let (taken, others) = left.into_iter().partition(chosen);
            left = others;
            let after = self.branch(frame, &case.body, merged(taken, std::mem::take(&mut through)))?;
            // A break ends the switch.
            if case.fall_through {
                through = after.fell;
                flow.fell = merged(flow.fell, after.broke);
            } else {
                flow.fell = merged(flow.fell, merged(after.fell, after.broke));
            }
            flow.continued = merged(flow.continued, after.continued);
        }
        flow.fell = merged(flow.fell, merged(left, through));
        Ok(flow)
    }

    fn looped(
        &mut self,
        frame: &mut Frame<'a>,
        body: &'a Block,
        continuing: &'a Block,
        break_if: Option<Handle<Expression>>,
        mut mask: Vec<u32>,
    ) -> Result<Vec<u32>, Stop> {
        let mut left = Vec::new();
        while !mask.is_empty() {
            self.burn(mask.len())?;
            let after = self.block(frame, body, &mask)?;
            left = merged(left, after.broke);
            let next = self.branch(frame, continuing, merged(after.fell, after.continued))?.fell;
            mask = match break_if {
                Some(condition) if !next.is_empty() => {
                    let (done, next) = self.split(frame, condition, &next)?;
                    left = merged(left, done);
                    next
                }
                _ => next,
            };
        }
        Ok(left)
    }

    /// All of the workgroup come to a barrier, and what they did before it is done.
    fn barrier(&mut self, barrier: naga::Barrier, mask: &[u32]) {
        if barrier == naga::Barrier::SUB_GROUP {
            return;
        }
        if mask.len() != self.lanes {
            let (here, lanes) = (mask.len(), self.lanes);
            self.find(Problem::Barrier, || format!("{here} of {lanes} invocations come to it"));
        }
        let [of_buffers, of_workgroup, all] = &mut self.barriers;
        *of_buffers += u32::from(barrier.contains(naga::Barrier::STORAGE));
        *of_workgroup += u32::from(barrier.contains(naga::Barrier::WORK_GROUP));
        *all += 1;
    }

    pub(super) fn points_to_atomic(&self, frame: &Frame<'a>, pointer: Handle<Expression>) -> bool {
        let TypeInner::Pointer { base, .. } = *frame.table.ty(pointer) else { return false };
        matches!(self.program.module.types[base].inner, TypeInner::Atomic(_))
    }
}

/// Two parts of the invocations of a workgroup, in their order.
fn merged(mut a: Vec<u32>, b: Vec<u32>) -> Vec<u32> {
    if a.is_empty() {
        return b;
    }
    if !b.is_empty() {
        a.extend(b);
        a.sort_unstable();
    }
    a
}

fn joined(a: Flow, b: Flow) -> Flow {
    Flow { fell: merged(a.fell, b.fell), broke: merged(a.broke, b.broke), continued: merged(a.continued, b.continued) }
}
