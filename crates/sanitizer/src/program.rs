//! A kernel's text as the interpreter reads it: naga's module, with the types of all expressions
//! and the values of the constant ones.

use std::sync::Arc;

use naga::front::wgsl;
use naga::proc::{GlobalCtx, TypeResolution};
use naga::valid::{Capabilities, FunctionInfo, ValidationFlags, Validator};
use naga::{
    AddressSpace, ArraySize, Expression, Function, Handle, Literal, Module, Scalar, Span, StorageAccess, Type,
    TypeInner,
};

use super::value::Value;

/// A scalar of a value in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Offset from the beginning of the value, in bytes.
    pub offset: u32,
    pub scalar: Scalar,
}

/// Memory of a global variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Global {
    /// The buffer at a binding, and whether it may be written.
    Buffer { binding: usize, written: bool },
    /// Memory of a workgroup.
    Workgroup { bytes: u32 },
    /// Memory of an invocation.
    Private { bytes: u32 },
}

/// Types and constants of a function, by expression.
pub struct FunctionTable {
    types: Vec<TypeInner>,
    /// Scalars of each value, or of what a pointer points to.
    leaves: Vec<Arc<[Leaf]>>,
    constants: Vec<Option<Arc<Value>>>,
}

impl FunctionTable {
    pub fn ty(&self, expression: Handle<Expression>) -> &TypeInner {
        &self.types[expression.index()]
    }

    pub fn leaves(&self, expression: Handle<Expression>) -> &Arc<[Leaf]> {
        &self.leaves[expression.index()]
    }

    pub fn constant(&self, expression: Handle<Expression>) -> Option<&Arc<Value>> {
        self.constants[expression.index()].as_ref()
    }
}

/// A kernel that can be interpreted.
pub struct Program {
    pub module: Module,
    text: String,
    pub globals: Vec<Global>,
    functions: Vec<FunctionTable>,
    main: FunctionTable,
}

impl Program {
    /// Reads a text that has been compiled before.
    pub fn new(text: &str) -> Result<Self, String> {
        let module = wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))?;
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
        let info = validator.validate(&module).map_err(|error| error.emit_to_string(text))?;
        let functions = module.functions.iter().map(|(handle, function)| table(&module, function, &info[handle]));
        let functions = functions.collect::<Result<_, _>>()?;
        let entry = module.entry_points.first().ok_or("it has no entry point")?;
        let main = table(&module, &entry.function, info.get_entry_point(0))?;
        let globals = module.global_variables.iter().map(|(_, variable)| {
            let bytes = module.types[variable.ty].inner.size(module.to_ctx());
            match (variable.space, &variable.binding) {
                (AddressSpace::WorkGroup, _) => Ok(Global::Workgroup { bytes }),
                (AddressSpace::Private, _) => Ok(Global::Private { bytes }),
                // The parameters, which an observer is given as buffer 0 wherever they are.
                (AddressSpace::Immediate, _) => Ok(Global::Buffer { binding: 0, written: false }),
                (space, Some(binding)) => {
                    let written =
                        matches!(space, AddressSpace::Storage { access } if access.contains(StorageAccess::STORE));
                    Ok(Global::Buffer { binding: binding.binding as usize, written })
                }
                (space, None) => Err(format!("a variable in {space:?}")),
            }
        });
        let globals = globals.collect::<Result<_, _>>()?;
        Ok(Program { globals, functions, main, text: text.into(), module })
    }

    pub fn main(&self) -> (&Function, &FunctionTable) {
        (&self.module.entry_points[0].function, &self.main)
    }

    pub fn function(&self, handle: Handle<Function>) -> (&Function, &FunctionTable) {
        (&self.module.functions[handle], &self.functions[handle.index()])
    }

    /// Invocations of a workgroup.
    pub fn invocations(&self) -> [u32; 3] {
        self.module.entry_points[0].workgroup_size
    }

    /// Returns the line of the text that `span` begins in, with its number.
    pub fn line(&self, span: Span) -> (u32, &str) {
        if !span.is_defined() {
            return (0, "");
        }
        let number = span.location(&self.text).line_number;
        (number, self.text.lines().nth(number as usize - 1).unwrap_or("").trim())
    }
}

fn table(module: &Module, function: &Function, info: &FunctionInfo) -> Result<FunctionTable, String> {
    let ctx = module.to_ctx();
    let mut table = FunctionTable { types: Vec::new(), leaves: Vec::new(), constants: Vec::new() };
    for (handle, expression) in function.expressions.iter() {
        let inner = match &info[handle].ty {
            TypeResolution::Handle(ty) => module.types[*ty].inner.clone(),
            TypeResolution::Value(inner) => inner.clone(),
        };
        let leaves: Arc<[Leaf]> = match inner {
            TypeInner::Pointer { base, .. } => leaves(ctx, &module.types[base].inner)?.into(),
            TypeInner::ValuePointer { size, scalar, .. } => {
                let size = size.map_or(1, |size| size as u32);
                (0..size).map(|n| Leaf { offset: n * u32::from(scalar.width), scalar }).collect()
            }
            ref inner => leaves(ctx, inner)?.into(),
        };
        let constant = match expression {
            Expression::Literal(literal) => Some(Value::all(vec![bits(literal)?])),
            Expression::Constant(constant) => Some(constant_value(module, module.constants[*constant].init)?),
            Expression::ZeroValue(_) => Some(Value::all(vec![0; leaves.len()])),
            Expression::Compose { components, .. } => joined(components.iter().map(|&part| table.constant(part))),
            Expression::Splat { size, value } => {
                table.constant(*value).map(|value| Value::all(value.bits.repeat(*size as usize)))
            }
            _ => None,
        };
        table.types.push(inner);
        table.leaves.push(leaves);
        table.constants.push(constant.map(Arc::new));
    }
    Ok(table)
}

/// Values one after the other, if all are constant.
fn joined<'a>(parts: impl Iterator<Item = Option<&'a Arc<Value>>>) -> Option<Value> {
    let parts = parts.collect::<Option<Vec<_>>>()?;
    Some(Value::all(parts.iter().flat_map(|part| part.bits.iter().copied()).collect()))
}

fn constant_value(module: &Module, expression: Handle<Expression>) -> Result<Value, String> {
    match &module.global_expressions[expression] {
        Expression::Literal(literal) => Ok(Value::all(vec![bits(literal)?])),
        Expression::Constant(constant) => constant_value(module, module.constants[*constant].init),
        Expression::ZeroValue(ty) => Ok(Value::all(vec![0; leaves(module.to_ctx(), &module.types[*ty].inner)?.len()])),
        Expression::Splat { size, value } => {
            Ok(Value::all(constant_value(module, *value)?.bits.repeat(*size as usize)))
        }
        Expression::Compose { components, .. } => {
            let parts = components.iter().map(|&part| constant_value(module, part).map(|value| value.bits));
            Ok(Value::all(parts.collect::<Result<Vec<_>, _>>()?.concat()))
        }
        other => Err(format!("a constant made by {other:?}")),
    }
}

fn bits(literal: &Literal) -> Result<u64, String> {
    Ok(match *literal {
        Literal::F64(x) => x.to_bits(),
        Literal::F32(x) => u64::from(x.to_bits()),
        Literal::U32(x) => u64::from(x),
        Literal::I32(x) => u64::from(x as u32),
        Literal::U64(x) => x,
        Literal::I64(x) => x as u64,
        Literal::Bool(x) => u64::from(x),
        ref other => return Err(format!("a number {other:?}")),
    })
}

/// Returns the scalars of a type in their order; none for an array whose length is not known.
pub fn leaves(ctx: GlobalCtx<'_>, inner: &TypeInner) -> Result<Vec<Leaf>, String> {
    let within = |ty: Handle<Type>, at: u32| -> Result<Vec<Leaf>, String> {
        let inner = leaves(ctx, &ctx.types[ty].inner)?;
        Ok(inner.into_iter().map(|leaf| Leaf { offset: leaf.offset + at, ..leaf }).collect())
    };
    Ok(match *inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => vec![Leaf { offset: 0, scalar }],
        TypeInner::Vector { size, scalar } => {
            (0..size as u32).map(|n| Leaf { offset: n * u32::from(scalar.width), scalar }).collect()
        }
        TypeInner::Array { base, size: ArraySize::Constant(count), stride } => {
            (0..count.get()).map(|n| within(base, n * stride)).collect::<Result<Vec<_>, _>>()?.concat()
        }
        TypeInner::Array { .. } => Vec::new(),
        TypeInner::Struct { ref members, .. } => {
            members.iter().map(|member| within(member.ty, member.offset)).collect::<Result<Vec<_>, _>>()?.concat()
        }
        ref other => return Err(format!("a value of {other:?}")),
    })
}
