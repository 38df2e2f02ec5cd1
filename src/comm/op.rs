//! What reductions do with two numbers.

use bytemuck::Pod;

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The sum. Integers wrap around.
    Sum,
    /// The least. A NaN of any rank makes the result NaN.
    Min,
    /// The greatest. A NaN of any rank makes the result NaN.
    Max,
}

/// The integers that backends reduce, to the same bits in any order.
#[derive(Clone, Copy)]
pub(super) enum Integer {
    U32,
    I32,
    U64,
    I64,
}

mod sealed {
    pub trait Number {
        const KIND: u8;
    }
}

/// Numbers that reductions combine: `u32 i32 u64 i64 u128 i128 f32 f64`.
pub trait Reducible: Pod + sealed::Number {
    /// The identity: combining it with a value gives that value.
    fn identity(op: Op) -> Self;
    /// `self` and `other` combined; `self` is from the lower ranks.
    fn combine(self, other: Self, op: Op) -> Self;
}

/// Names of the types, by their number in a call.
pub(super) const KINDS: [&str; 8] = ["u32", "i32", "u64", "i64", "u128", "i128", "f32", "f64"];

/// What backends call a type. Floats stay out: their sums depend on the order, and what becomes of NaN is not agreed on.
pub(super) fn integer<T: Reducible>() -> Option<Integer> {
    [Integer::U32, Integer::I32, Integer::U64, Integer::I64].get(usize::from(T::KIND)).copied()
}

macro_rules! integers {
    ($($number:ty: $kind:expr),*) => {$(
        impl sealed::Number for $number {
            const KIND: u8 = $kind;
        }
        impl Reducible for $number {
            fn identity(op: Op) -> Self {
                match op {
                    Op::Sum => 0,
                    Op::Min => Self::MAX,
                    Op::Max => Self::MIN,
                }
            }
            fn combine(self, other: Self, op: Op) -> Self {
                match op {
                    Op::Sum => self.wrapping_add(other),
                    Op::Min => self.min(other),
                    Op::Max => self.max(other),
                }
            }
        }
    )*};
}

macro_rules! floats {
    ($($number:ty: $kind:expr),*) => {$(
        impl sealed::Number for $number {
            const KIND: u8 = $kind;
        }
        impl Reducible for $number {
            fn identity(op: Op) -> Self {
                match op {
                    Op::Sum => -0.0, // unlike 0.0 it keeps the sign of a zero
                    Op::Min => Self::INFINITY,
                    Op::Max => Self::NEG_INFINITY,
                }
            }
            fn combine(self, other: Self, op: Op) -> Self {
                match op {
                    Op::Sum => self + other,
                    // `f32::min` would drop a NaN.
                    Op::Min => if self.is_nan() || self <= other { self } else { other },
                    Op::Max => if self.is_nan() || self >= other { self } else { other },
                }
            }
        }
    )*};
}

integers!(u32: 0, i32: 1, u64: 2, i64: 3, u128: 4, i128: 5);
floats!(f32: 6, f64: 7);

/// Replaces each element of `lower` by its combination with that of `upper`.
pub(super) fn combine<T: Reducible>(lower: &mut [T], upper: &[T], op: Op) {
    for (lower, upper) in lower.iter_mut().zip(upper) {
        *lower = lower.combine(*upper, op);
    }
}
