//! Operations of reductions.

use bytemuck::Pod;

/// Operation that combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The sum. Integers wrap around.
    Sum,
    /// The least. A NaN of any rank makes the result NaN.
    Min,
    /// The greatest. A NaN of any rank makes the result NaN.
    Max,
}

mod sealed {
    pub trait Number {
        const KIND: u8;
        /// Whether elements may be combined in any order: results have the same bits.
        const HAS_ANY_ORDER: bool;
    }
}

/// Numbers that reductions combine: `u32 i32 u64 i64 u128 i128 f32 f64`.
pub trait Reducible: Pod + sealed::Number {
    /// Creates the identity: combining it with a value gives that value.
    fn identity(op: Op) -> Self;
    /// `self` and `other` combined; `self` is from the lower ranks.
    #[must_use]
    fn combine(self, other: Self, op: Op) -> Self;
}

/// Names of the types, by their number in a call.
pub(super) const KINDS: [&str; 8] = ["u32", "i32", "u64", "i64", "u128", "i128", "f32", "f64"];

macro_rules! integers {
    ($($number:ty: $kind:expr),*) => {$(
        impl sealed::Number for $number {
            const KIND: u8 = $kind;
            const HAS_ANY_ORDER: bool = true;
        }
        impl Reducible for $number {
            fn identity(op: Op) -> Self {
                match op {
                    Op::Sum => 0,
                    Op::Min => Self::MAX,
                    Op::Max => Self::MIN,
                }
            }
            #[inline]
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
            const HAS_ANY_ORDER: bool = false;
        }
        impl Reducible for $number {
            fn identity(op: Op) -> Self {
                match op {
                    Op::Sum => -0.0, // unlike 0.0 it keeps the sign of a zero
                    Op::Min => Self::INFINITY,
                    Op::Max => Self::NEG_INFINITY,
                }
            }
            #[inline]
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
    // A loop for each operation: with the choice inside, compilers make no vector instructions of
    // it.
    match op {
        Op::Sum => each(lower, upper, |lower, upper| lower.combine(upper, Op::Sum)),
        Op::Min => each(lower, upper, |lower, upper| lower.combine(upper, Op::Min)),
        Op::Max => each(lower, upper, |lower, upper| lower.combine(upper, Op::Max)),
    }
}

fn each<T: Copy>(lower: &mut [T], upper: &[T], combine: impl Fn(T, T) -> T) {
    for (lower, upper) in lower.iter_mut().zip(upper) {
        *lower = combine(*lower, *upper);
    }
}
