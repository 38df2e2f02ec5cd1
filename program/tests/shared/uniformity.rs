//! Uniformity analysis: finds votes and barriers that some might not reach with
//! the others.
//!
//! The rules are those of WGSL's uniformity analysis, over the whole module at once and without
//! regard to the order of assignments: a variable, an argument or a result is *varying* as soon as
//! anything varying is assigned to it anywhere, or anything at all where invocations have gone
//! apart. They go apart at conditions that vary, and come together behind them, but not if one of
//! the branches leaves a loop or the function: then the loop, or the rest of the function, is
//! apart.
//!
//! What holds for a workgroup is as in WGSL. For a subgroup, results of votes are the same in all
//! lanes, too, and so are private variables to which only such are assigned.

use std::collections::{HashMap, HashSet};

use naga::{
    AddressSpace, Binding, Block, BuiltIn, Expression, Function, GatherMode, GlobalVariable, Handle, LocalVariable,
    Module, Statement, StorageAccess, TypeInner,
};

/// Invocations that must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The invocations of a workgroup, to barriers.
    Workgroup,
    /// The lanes of a subgroup, to operations across it.
    Subgroup,
}

/// A function; `None` is the entry point.
type Place = Option<Handle<Function>>;

/// Values that may vary.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Thing {
    Local(Place, Handle<LocalVariable>),
    /// Or what it points to.
    Argument(Place, u32),
    Private(Handle<GlobalVariable>),
    Result(Place),
    /// The result of a shuffle.
    Shuffled(Place, Handle<Expression>),
    /// Whether all come to a function.
    Calls(Place),
}

/// Ways in which diverged invocations left a block.
#[derive(Clone, Copy, Default)]
struct Left {
    the_loop: bool,
    the_function: bool,
}

struct Analysis<'a> {
    module: &'a Module,
    scope: Scope,
    varying: HashSet<Thing>,
    known: HashMap<(Place, Handle<Expression>), bool>,
    meetings: HashSet<*const Statement>,
    missed: Option<String>,
}

/// Returns how many places there are where all have to come together.
///
/// # Errors
/// One that some might miss.
pub fn check(module: &Module, scope: Scope) -> Result<usize, String> {
    let mut analysis = Analysis {
        module,
        scope,
        varying: HashSet::new(),
        known: HashMap::new(),
        meetings: HashSet::new(),
        missed: None,
    };
    loop {
        let before = analysis.varying.len();
        analysis.known.clear();
        analysis.missed = None;
        for entry in &module.entry_points {
            analysis.function(None, &entry.function);
        }
        for (place, function) in module.functions.iter() {
            analysis.function(Some(place), function);
        }
        if analysis.varying.len() == before {
            break;
        }
    }
    analysis.missed.map_or(Ok(analysis.meetings.len()), Err)
}

impl Analysis<'_> {
    fn function(&mut self, place: Place, function: &Function) {
        let together = !self.varying.contains(&Thing::Calls(place));
        self.block((place, function), &function.body, together);
    }

    fn mark(&mut self, thing: Option<Thing>, varying: bool) {
        if let (Some(thing), true) = (thing, varying) {
            self.varying.insert(thing);
        }
    }

    fn block(&mut self, at: (Place, &Function), block: &Block, mut together: bool) -> Left {
        let mut left = Left::default();
        for statement in block {
            let inner = self.statement(at, statement, together);
            left =
                Left { the_loop: left.the_loop | inner.the_loop, the_function: left.the_function | inner.the_function };
            together &= !(inner.the_loop || inner.the_function);
        }
        left
    }

    fn statement(&mut self, at: (Place, &Function), statement: &Statement, together: bool) -> Left {
        let place = at.0;
        let apart = Left::default();
        match statement {
            Statement::Block(block) => return self.block(at, block, together),
            Statement::If { condition, accept, reject } => {
                let together = together && self.uniform(at, *condition);
                let (a, b) = (self.block(at, accept, together), self.block(at, reject, together));
                return Left { the_loop: a.the_loop | b.the_loop, the_function: a.the_function | b.the_function };
            }
            Statement::Switch { selector, cases } => {
                let together = together && self.uniform(at, *selector);
                return cases.iter().fold(apart, |left, case| {
                    let inner = self.block(at, &case.body, together);
                    Left {
                        the_loop: left.the_loop | inner.the_loop,
                        the_function: left.the_function | inner.the_function,
                    }
                });
            }
            Statement::Loop { body, continuing, break_if } => {
                let round = |analysis: &mut Self, together: bool| {
                    let (a, b) = (analysis.block(at, body, together), analysis.block(at, continuing, together));
                    let ends = break_if.is_some_and(|condition| !analysis.uniform(at, condition));
                    (a.the_loop | b.the_loop | ends, a.the_function | b.the_function)
                };
                let (leaves, returns) = round(self, together);
                if leaves || returns {
                    round(self, false);
                }
                return Left { the_loop: false, the_function: returns };
            }
            Statement::Break | Statement::Continue => return Left { the_loop: !together, ..apart },
            Statement::Return { value } => {
                let varies = !together || value.is_some_and(|value| !self.uniform(at, value));
                self.mark(Some(Thing::Result(place)), varies);
                return Left { the_function: !together, ..apart };
            }
            Statement::Kill => return Left { the_function: !together, ..apart },
            Statement::Store { pointer, value } => {
                let varies = !together || !self.uniform(at, *value) || !self.steady(at, *pointer);
                self.mark(self.variable(at, *pointer), varies);
            }
            Statement::Call { function: called, arguments, .. } => {
                self.mark(Some(Thing::Calls(Some(*called))), !together);
                for (number, argument) in (0..).zip(arguments) {
                    self.pass(at, *argument, Thing::Argument(Some(*called), number));
                }
            }
            Statement::ControlBarrier(_) | Statement::MemoryBarrier(_) => {
                self.meet(at, statement, Scope::Workgroup, together);
            }
            Statement::WorkGroupUniformLoad { pointer, .. } => {
                let steady = self.steady(at, *pointer);
                self.meet(at, statement, Scope::Workgroup, together && steady);
            }
            Statement::SubgroupBallot { .. } | Statement::SubgroupCollectiveOperation { .. } => {
                self.meet(at, statement, Scope::Subgroup, together);
            }
            Statement::SubgroupGather { mode, result, .. } => {
                self.meet(at, statement, Scope::Subgroup, together);
                let same = match mode {
                    GatherMode::BroadcastFirst | GatherMode::Broadcast(_) => true,
                    GatherMode::Shuffle(from) => self.uniform(at, *from),
                    _ => false,
                };
                self.mark(Some(Thing::Shuffled(place, *result)), !same);
            }
            _ => {}
        }
        apart
    }

    /// A value, or a variable by its pointer, that becomes an argument.
    fn pass(&mut self, at: (Place, &Function), argument: Handle<Expression>, thing: Thing) {
        match self.variable(at, argument) {
            Some(variable) if self.is_pointer(at, argument) => {
                let varies = self.varying.contains(&variable) || self.varying.contains(&thing);
                self.mark(Some(variable), varies);
                self.mark(Some(thing), varies);
            }
            _ => {
                let varies = !self.uniform(at, argument);
                self.mark(Some(thing), varies);
            }
        }
    }

    fn meet(&mut self, at: (Place, &Function), statement: &Statement, scope: Scope, together: bool) {
        if scope != self.scope {
            return;
        }
        self.meetings.insert(statement);
        if !together && self.missed.is_none() {
            let name = at.1.name.as_deref().unwrap_or("the entry point");
            let what = format!("{statement:?}");
            let what = what.split([' ', '{', '(']).next().unwrap_or_default();
            self.missed = Some(format!("a {what} in `{name}` is not reached by all of a {:?}", self.scope));
        }
    }

    /// Returns `true` if an expression is a pointer to a variable of a function.
    fn is_pointer(&self, (_, function): (Place, &Function), expression: Handle<Expression>) -> bool {
        match &function.expressions[expression] {
            Expression::LocalVariable(_) | Expression::GlobalVariable(_) => true,
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                self.is_pointer((None, function), *base)
            }
            Expression::FunctionArgument(number) => {
                let ty = function.arguments[*number as usize].ty;
                matches!(self.module.types[ty].inner, TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. })
            }
            _ => false,
        }
    }

    /// Returns the variable of a function or of the module that a pointer leads to, if it is one
    /// that may be uniform.
    fn variable(&self, at: (Place, &Function), pointer: Handle<Expression>) -> Option<Thing> {
        let (place, function) = at;
        match &function.expressions[pointer] {
            Expression::LocalVariable(local) => Some(Thing::Local(place, *local)),
            Expression::FunctionArgument(number) => Some(Thing::Argument(place, *number)),
            Expression::GlobalVariable(global) if self.space(*global) == AddressSpace::Private => {
                Some(Thing::Private(*global))
            }
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => self.variable(at, *base),
            _ => None,
        }
    }

    fn space(&self, global: Handle<GlobalVariable>) -> AddressSpace {
        self.module.global_variables[global].space
    }

    /// Returns `true` if the indices along a pointer are the same for all.
    fn steady(&mut self, at: (Place, &Function), pointer: Handle<Expression>) -> bool {
        match at.1.expressions[pointer] {
            Expression::Access { base, index } => self.uniform(at, index) && self.steady(at, base),
            Expression::AccessIndex { base, .. } => self.steady(at, base),
            _ => true,
        }
    }

    fn uniform(&mut self, at: (Place, &Function), expression: Handle<Expression>) -> bool {
        if let Some(&known) = self.known.get(&(at.0, expression)) {
            return known;
        }
        let uniform = self.finds_uniform(at, expression);
        self.known.insert((at.0, expression), uniform);
        uniform
    }

    fn finds_uniform(&mut self, at: (Place, &Function), expression: Handle<Expression>) -> bool {
        let (place, function) = at;
        let parts: Vec<Handle<Expression>> = match &function.expressions[expression] {
            Expression::Literal(_) | Expression::Constant(_) | Expression::Override(_) | Expression::ZeroValue(_) => {
                vec![]
            }
            Expression::ArrayLength(_) | Expression::WorkGroupUniformLoadResult { .. } => vec![],
            Expression::LocalVariable(_) | Expression::GlobalVariable(_) => vec![],
            Expression::Load { pointer } => return self.loads_uniform(at, *pointer),
            Expression::FunctionArgument(number) => return self.same_argument(at, *number),
            Expression::CallResult(called) => return !self.varying.contains(&Thing::Result(Some(*called))),
            Expression::SubgroupBallotResult => return self.scope == Scope::Subgroup,
            Expression::SubgroupOperationResult { .. } => {
                return self.scope == Scope::Subgroup && !self.varying.contains(&Thing::Shuffled(place, expression));
            }
            Expression::Compose { components, .. } => components.clone(),
            Expression::Access { base, index } => vec![*base, *index],
            Expression::AccessIndex { base, .. } => vec![*base],
            Expression::Splat { value, .. } => vec![*value],
            Expression::Swizzle { vector, .. } => vec![*vector],
            Expression::Unary { expr, .. } | Expression::As { expr, .. } => vec![*expr],
            Expression::Binary { left, right, .. } => vec![*left, *right],
            Expression::Select { condition, accept, reject } => vec![*condition, *accept, *reject],
            Expression::Relational { argument, .. } => vec![*argument],
            Expression::Math { arg, arg1, arg2, arg3, .. } => {
                [Some(*arg), *arg1, *arg2, *arg3].into_iter().flatten().collect()
            }
            _ => return false,
        };
        parts.into_iter().all(|part| self.uniform(at, part))
    }

    fn loads_uniform(&mut self, at: (Place, &Function), pointer: Handle<Expression>) -> bool {
        if let Some(variable) = self.variable(at, pointer) {
            let strict = self.scope == Scope::Workgroup && matches!(variable, Thing::Private(_));
            return !strict && !self.varying.contains(&variable) && self.steady(at, pointer);
        }
        let mut root = pointer;
        while let Expression::Access { base, .. } | Expression::AccessIndex { base, .. } = at.1.expressions[root] {
            root = base;
        }
        let Expression::GlobalVariable(global) = at.1.expressions[root] else { return false };
        let read_only = match self.space(global) {
            AddressSpace::Uniform => true,
            AddressSpace::Storage { access } => !access.contains(StorageAccess::STORE),
            _ => false,
        };
        read_only && self.steady(at, pointer)
    }

    fn same_argument(&mut self, (place, function): (Place, &Function), number: u32) -> bool {
        let of_entry = |builtin: BuiltIn| match builtin {
            BuiltIn::WorkGroupId | BuiltIn::NumWorkGroups | BuiltIn::SubgroupSize | BuiltIn::NumSubgroups => true,
            BuiltIn::SubgroupId => self.scope == Scope::Subgroup,
            _ => false,
        };
        match (place, &function.arguments[number as usize].binding) {
            (None, Some(Binding::BuiltIn(builtin))) => of_entry(*builtin),
            (None, _) => false,
            (Some(_), _) => !self.varying.contains(&Thing::Argument(place, number)),
        }
    }
}
