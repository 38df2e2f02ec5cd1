//! The numbers and operations of reductions.

use crate::gpu::{DeviceElement, Element};

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for i32 {}
    impl Sealed for f32 {}
}

/// A number that reductions know: `u32`, `i32` or `f32`.
pub trait Number: DeviceElement + sealed::Sealed {}

impl Number for u32 {}
impl Number for i32 {}
impl Number for f32 {}

/// What two numbers are joined to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Sum,
    Min,
    Max,
}

/// All pairs of an operation and an element, at their places in a [`table`].
const RULES: [(Operation, Element); 9] = {
    use Element::{F32, I32, U32};
    use Operation::{Max, Min, Sum};
    [(Sum, U32), (Sum, I32), (Sum, F32), (Min, U32), (Min, I32), (Min, F32), (Max, U32), (Max, I32), (Max, F32)]
};

/// One of whatever `make` makes for each operation and element; [`place`] finds it.
pub(super) fn table<T>(mut make: impl FnMut(Operation, Element) -> T) -> [T; 9] {
    RULES.map(|(operation, element)| make(operation, element))
}

/// Where [`table`] has what belongs to an operation on `T`.
pub(super) fn place<T: Number>(operation: Operation) -> usize {
    RULES.iter().position(|rule| *rule == (operation, T::ELEMENT)).expect("numbers are u32, i32 and f32")
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Operation::Sum => "sum",
            Operation::Min => "min",
            Operation::Max => "max",
        }
    }

    /// WGSL: the alias `Value`, `identity` and `join`.
    pub fn rule(self, element: Element) -> String {
        let name = element.wgsl();
        // Infinities are no constants of WGSL, and the bits of a variable are not looked into.
        let bits = match (self, element) {
            (Operation::Sum, _) => "0u",
            (Operation::Min, Element::U32) => "0xffffffffu",
            (Operation::Min, Element::I32) => "0x7fffffffu",
            (Operation::Min, _) => "0x7f800000u",
            (Operation::Max, Element::U32) => "0u",
            (Operation::Max, Element::I32) => "0x80000000u",
            (Operation::Max, _) => "0xff800000u",
        };
        let joined = match self {
            Operation::Sum => "a + b",
            Operation::Min => "min(a, b)",
            Operation::Max => "max(a, b)",
        };
        format!(
            "alias Value = {name};\n\
             fn identity() -> Value {{ var bits = {bits}; return bitcast<Value>(bits); }}\n\
             fn join(a: Value, b: Value) -> Value {{ return {joined}; }}\n"
        )
    }
}
