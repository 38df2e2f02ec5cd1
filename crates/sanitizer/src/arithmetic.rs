//! Operators and functions of WGSL on scalars, which are given as bits.

use naga::{BinaryOperator, MathFunction, Scalar, ScalarKind, UnaryOperator};

/// A type of numbers in bits.
trait Number: Copy {
    fn from_bits(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! numbers {
    ($($ty:ty: $from:expr, $to:expr;)*) => {$(
        impl Number for $ty {
            fn from_bits(bits: u64) -> Self { $from(bits) }
            fn bits(self) -> u64 { $to(self) }
        }
    )*};
}
numbers! {
    u32: |bits| bits as u32, u64::from;
    i32: |bits| bits as i32, |x| u64::from(x as u32);
    u64: |bits| bits, |x| x;
    i64: |bits| bits as i64, |x| x as u64;
    f32: |bits| f32::from_bits(bits as u32), |x: f32| u64::from(x.to_bits());
    f64: f64::from_bits, f64::to_bits;
}

fn in_type<T: Number>(a: u64, b: u64, f: impl Fn(T, T) -> T) -> u64 {
    f(T::from_bits(a), T::from_bits(b)).bits()
}

fn holds<T: Number + PartialOrd>(op: BinaryOperator, a: u64, b: u64) -> Option<u64> {
    let (a, b) = (T::from_bits(a), T::from_bits(b));
    Some(u64::from(match op {
        BinaryOperator::Equal => a == b,
        BinaryOperator::NotEqual => a != b,
        BinaryOperator::Less => a < b,
        BinaryOperator::LessEqual => a <= b,
        BinaryOperator::Greater => a > b,
        BinaryOperator::GreaterEqual => a >= b,
        _ => return None,
    }))
}

/// Operations on which devices need not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undefined {
    /// An integer is divided by zero.
    DivisionByZero,
    /// An integer is shifted by as many bits as it has, or more.
    Shift,
    /// An integer is made of NaN.
    IntegerOfNan,
}

/// A result, and what is undefined about it.
type Computed = Result<u64, Undefined>;

macro_rules! integer {
    ($ty:ty, $op:expr, $a:expr, $b:expr) => {{
        let (op, a, b) = ($op, $a, $b);
        let width = 8 * size_of::<$ty>() as u64;
        if let Some(holds) = holds::<$ty>(op, a, b) {
            return Some(Ok(holds));
        }
        match op {
            BinaryOperator::Divide | BinaryOperator::Modulo if <$ty as Number>::from_bits(b) == 0 => {
                return Some(Err(Undefined::DivisionByZero));
            }
            BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight if b >= width => return Some(Err(Undefined::Shift)),
            _ => {}
        }
        in_type::<$ty>(a, b, |x, y| match op {
            BinaryOperator::Add => x.wrapping_add(y),
            BinaryOperator::Subtract => x.wrapping_sub(y),
            BinaryOperator::Multiply => x.wrapping_mul(y),
            BinaryOperator::Divide => x.wrapping_div(y),
            BinaryOperator::Modulo => x.wrapping_rem(y),
            BinaryOperator::And => x & y,
            BinaryOperator::ExclusiveOr => x ^ y,
            BinaryOperator::InclusiveOr => x | y,
            BinaryOperator::ShiftLeft => x << b,
            BinaryOperator::ShiftRight => x >> b,
            _ => x,
        })
    }};
}

macro_rules! float {
    ($ty:ty, $op:expr, $a:expr, $b:expr) => {{
        let (op, a, b) = ($op, $a, $b);
        if let Some(holds) = holds::<$ty>(op, a, b) {
            return Some(Ok(holds));
        }
        if !matches!(
            op,
            BinaryOperator::Add
                | BinaryOperator::Subtract
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Modulo
        ) {
            return None;
        }
        in_type::<$ty>(a, b, |x, y| match op {
            BinaryOperator::Add => x + y,
            BinaryOperator::Subtract => x - y,
            BinaryOperator::Multiply => x * y,
            BinaryOperator::Divide => x / y,
            _ => x % y,
        })
    }};
}

/// `a op b` of two scalars of a type (a shift's `b` is a `u32`); none for what that type has not.
pub fn binary(op: BinaryOperator, scalar: Scalar, a: u64, b: u64) -> Option<Computed> {
    Some(Ok(match (scalar.kind, scalar.width) {
        (ScalarKind::Uint, 4) => integer!(u32, op, a, b),
        (ScalarKind::Sint, 4) => integer!(i32, op, a, b),
        (ScalarKind::Uint, 8) => integer!(u64, op, a, b),
        (ScalarKind::Sint, 8) => integer!(i64, op, a, b),
        (ScalarKind::Float, 4) => float!(f32, op, a, b),
        (ScalarKind::Float, 8) => float!(f64, op, a, b),
        (ScalarKind::Bool, _) => match op {
            BinaryOperator::Equal => u64::from(a == b),
            BinaryOperator::NotEqual | BinaryOperator::ExclusiveOr => a ^ b,
            BinaryOperator::And | BinaryOperator::LogicalAnd => a & b,
            BinaryOperator::InclusiveOr | BinaryOperator::LogicalOr => a | b,
            _ => return None,
        },
        _ => return None,
    }))
}

/// `op a`; none for what the type has not.
pub fn unary(op: UnaryOperator, scalar: Scalar, a: u64) -> Option<u64> {
    Some(match (op, scalar.kind, scalar.width) {
        (UnaryOperator::Negate, ScalarKind::Float, 4) => (-f32::from_bits(a as u32)).bits(),
        (UnaryOperator::Negate, ScalarKind::Float, 8) => (-f64::from_bits(a)).bits(),
        (UnaryOperator::Negate, ScalarKind::Sint, 4) => (a as i32).wrapping_neg().bits(),
        (UnaryOperator::Negate, ScalarKind::Sint, 8) => (a as i64).wrapping_neg().bits(),
        (UnaryOperator::LogicalNot, ScalarKind::Bool, _) => a ^ 1,
        (UnaryOperator::BitwiseNot, ScalarKind::Sint | ScalarKind::Uint, 4) => u64::from(!(a as u32)),
        (UnaryOperator::BitwiseNot, ScalarKind::Sint | ScalarKind::Uint, 8) => !a,
        _ => return None,
    })
}

/// A scalar as one of another type, with the value that is nearest.
pub fn converted(from: Scalar, to: Scalar, a: u64) -> Option<Computed> {
    macro_rules! of {
        ($x:expr) => {{
            let x = $x;
            match (to.kind, to.width) {
                (ScalarKind::Uint, 4) => (x as u32).bits(),
                (ScalarKind::Sint, 4) => (x as i32).bits(),
                (ScalarKind::Uint, 8) => x as u64,
                (ScalarKind::Sint, 8) => (x as i64).bits(),
                (ScalarKind::Float, 4) => (x as f32).bits(),
                (ScalarKind::Float, 8) => (x as f64).bits(),
                (ScalarKind::Bool, _) => u64::from(x as f64 != 0.0),
                _ => return None,
            }
        }};
    }
    let to_integer = matches!(to.kind, ScalarKind::Uint | ScalarKind::Sint);
    Some(Ok(match (from.kind, from.width) {
        (ScalarKind::Uint, 4) => of!(a as u32),
        (ScalarKind::Sint, 4) => of!(a as i32),
        (ScalarKind::Uint, 8) => of!(a),
        (ScalarKind::Sint, 8) => of!(a as i64),
        (ScalarKind::Float, 4) if to_integer && f32::from_bits(a as u32).is_nan() => {
            return Some(Err(Undefined::IntegerOfNan));
        }
        (ScalarKind::Float, 8) if to_integer && f64::from_bits(a).is_nan() => {
            return Some(Err(Undefined::IntegerOfNan));
        }
        (ScalarKind::Float, 4) => of!(f32::from_bits(a as u32)),
        (ScalarKind::Float, 8) => of!(f64::from_bits(a)),
        (ScalarKind::Bool, _) => of!(a as u32),
        _ => return None,
    }))
}

macro_rules! integer_function {
    ($ty:ty, $unsigned:ty, $fun:expr, $x:expr) => {{
        let [a, b, c] = [0, 1, 2].map(|n| <$ty as Number>::from_bits($x.get(n).copied().unwrap_or(0)));
        let bits = <$ty>::BITS;
        let none = <$ty as Number>::from_bits(u64::MAX);
        let field = |offset: u64, count: u64| {
            let offset = (offset as u32).min(bits);
            (offset, (count as u32).min(bits - offset))
        };
        match $fun {
            MathFunction::Abs => {
                if a < <$ty as Number>::from_bits(0) {
                    (<$ty as Number>::from_bits(0)).wrapping_sub(a)
                } else {
                    a
                }
            }
            MathFunction::Min => a.min(b),
            MathFunction::Max => a.max(b),
            MathFunction::Clamp => a.max(b).min(c),
            MathFunction::Sign => <$ty as Number>::from_bits(if a > <$ty as Number>::from_bits(0) {
                1
            } else if a == <$ty as Number>::from_bits(0) {
                0
            } else {
                u64::MAX
            }),
            MathFunction::CountTrailingZeros => a.trailing_zeros() as $ty,
            MathFunction::CountLeadingZeros => a.leading_zeros() as $ty,
            MathFunction::CountOneBits => a.count_ones() as $ty,
            MathFunction::ReverseBits => a.reverse_bits(),
            MathFunction::FirstTrailingBit => {
                if a == 0 {
                    none
                } else {
                    a.trailing_zeros() as $ty
                }
            }
            MathFunction::FirstLeadingBit => {
                // Of a negative number the first bit that is 0.
                let a = if a < <$ty as Number>::from_bits(0) { !a } else { a };
                if a == 0 { none } else { (bits - 1 - a.leading_zeros()) as $ty }
            }
            MathFunction::ExtractBits => {
                let (offset, count) = field($x[1], $x[2]);
                if count == 0 { 0 } else { (a << (bits - offset - count)) >> (bits - count) }
            }
            MathFunction::InsertBits => {
                let (offset, count) = field($x[2], $x[3]);
                let ones = if count == 0 { 0 } else { <$unsigned>::MAX >> (bits - count) };
                let mask = ones.checked_shl(offset).unwrap_or(0);
                ((a as $unsigned & !mask) | ((b as $unsigned).checked_shl(offset).unwrap_or(0) & mask)) as $ty
            }
            _ => return None,
        }
        .bits()
    }};
}

macro_rules! float_function {
    ($ty:ty, $fun:expr, $x:expr) => {{
        let [a, b, c] = [0, 1, 2].map(|n| <$ty as Number>::from_bits($x.get(n).copied().unwrap_or(0)));
        match $fun {
            MathFunction::Abs => a.abs(),
            MathFunction::Min => a.min(b),
            MathFunction::Max => a.max(b),
            MathFunction::Clamp => a.max(b).min(c),
            MathFunction::Saturate => a.max(0.0).min(1.0),
            MathFunction::Cos => a.cos(),
            MathFunction::Cosh => a.cosh(),
            MathFunction::Sin => a.sin(),
            MathFunction::Sinh => a.sinh(),
            MathFunction::Tan => a.tan(),
            MathFunction::Tanh => a.tanh(),
            MathFunction::Acos => a.acos(),
            MathFunction::Asin => a.asin(),
            MathFunction::Atan => a.atan(),
            MathFunction::Atan2 => a.atan2(b),
            MathFunction::Asinh => a.asinh(),
            MathFunction::Acosh => a.acosh(),
            MathFunction::Atanh => a.atanh(),
            MathFunction::Radians => a.to_radians(),
            MathFunction::Degrees => a.to_degrees(),
            MathFunction::Ceil => a.ceil(),
            MathFunction::Floor => a.floor(),
            MathFunction::Round => a.round_ties_even(),
            MathFunction::Fract => a - a.floor(),
            MathFunction::Trunc => a.trunc(),
            MathFunction::Ldexp => a * (2.0 as $ty).powi($x[1] as i32),
            MathFunction::Exp => a.exp(),
            MathFunction::Exp2 => a.exp2(),
            MathFunction::Log => a.ln(),
            MathFunction::Log2 => a.log2(),
            MathFunction::Pow => a.powf(b),
            MathFunction::Sign => {
                if a > 0.0 {
                    1.0
                } else if a < 0.0 {
                    -1.0
                } else {
                    0.0
                }
            }
            MathFunction::Fma => a.mul_add(b, c),
            MathFunction::Mix => a * (1.0 - c) + b * c,
            MathFunction::Step => {
                if b < a {
                    0.0
                } else {
                    1.0
                }
            }
            MathFunction::SmoothStep => {
                let t = ((c - a) / (b - a)).max(0.0).min(1.0);
                t * t * (3.0 - 2.0 * t)
            }
            MathFunction::Sqrt => a.sqrt(),
            MathFunction::InverseSqrt => 1.0 / a.sqrt(),
            _ => return None,
        }
        .bits()
    }};
}

/// A function of scalars of one type, component by component; none for others and for what the type
/// has not.
pub fn function(fun: MathFunction, scalar: Scalar, x: &[u64]) -> Option<u64> {
    Some(match (scalar.kind, scalar.width) {
        (ScalarKind::Uint, 4) => integer_function!(u32, u32, fun, x),
        (ScalarKind::Sint, 4) => integer_function!(i32, u32, fun, x),
        (ScalarKind::Uint, 8) => integer_function!(u64, u64, fun, x),
        (ScalarKind::Sint, 8) => integer_function!(i64, u64, fun, x),
        (ScalarKind::Float, 4) => float_function!(f32, fun, x),
        (ScalarKind::Float, 8) => float_function!(f64, fun, x),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_and_what_is_undefined_is_said() {
        let of = |op, a: i32, b: i32| binary(op, Scalar::I32, a.bits(), b.bits()).unwrap().map(|bits| bits as i32);
        assert_eq!(of(BinaryOperator::Add, i32::MAX, 1), Ok(i32::MIN));
        assert_eq!(of(BinaryOperator::Divide, -7, 2), Ok(-3));
        assert_eq!(of(BinaryOperator::Modulo, -7, 2), Ok(-1));
        assert_eq!(of(BinaryOperator::ShiftRight, -8, 1), Ok(-4));
        assert_eq!(of(BinaryOperator::Less, -8, 1), Ok(1));
        assert_eq!(of(BinaryOperator::Divide, 1, 0), Err(Undefined::DivisionByZero));
        assert_eq!(of(BinaryOperator::ShiftLeft, 1, 32), Err(Undefined::Shift));
        assert_eq!(converted(Scalar::F32, Scalar::U32, f32::NAN.bits()), Some(Err(Undefined::IntegerOfNan)));
        assert_eq!(converted(Scalar::F32, Scalar::I32, (-3.7f32).bits()), Some(Ok((-3i32).bits())));
        assert_eq!(converted(Scalar::U32, Scalar::F32, 16_777_217), Some(Ok(16_777_216f32.bits())));
    }

    #[test]
    fn functions_are_those_of_wgsl() {
        let u = |fun, x: &[u64]| function(fun, Scalar::U32, x).unwrap() as u32;
        let i = |fun, x: i32| function(fun, Scalar::I32, &[x.bits()]).unwrap() as i32;
        assert_eq!(u(MathFunction::FirstTrailingBit, &[0]), u32::MAX);
        assert_eq!(u(MathFunction::FirstLeadingBit, &[0x80]), 7);
        assert_eq!([i(MathFunction::FirstLeadingBit, -2), i(MathFunction::FirstLeadingBit, -1)], [0, -1]);
        assert_eq!(u(MathFunction::CountLeadingZeros, &[1]), 31);
        assert_eq!(u(MathFunction::ExtractBits, &[0xabcd, 4, 8]), 0xbc);
        assert_eq!(u(MathFunction::ExtractBits, &[0xabcd, 0, 32]), 0xabcd);
        assert_eq!(u(MathFunction::ExtractBits, &[0xabcd, 32, 4]), 0);
        assert_eq!(function(MathFunction::ExtractBits, Scalar::I32, &[0xf0, 4, 4]), Some((-1i32).bits()));
        assert_eq!(u(MathFunction::InsertBits, &[0xffff, 0, 4, 8]), 0xf00f);
        assert_eq!(u(MathFunction::InsertBits, &[1, 2, 0, 32]), 2);
        let f = |fun, x: &[f32]| {
            let x: Vec<u64> = x.iter().map(|x| x.bits()).collect();
            f32::from_bits(function(fun, Scalar::F32, &x).unwrap() as u32)
        };
        assert_eq!(f(MathFunction::Round, &[2.5]), 2.0);
        assert_eq!(f(MathFunction::Fract, &[-0.25]), 0.75);
        assert_eq!(f(MathFunction::Mix, &[1.0, 3.0, 0.25]), 1.5);
        assert_eq!(f(MathFunction::Step, &[1.0, 0.5]), 0.0);
        assert_eq!(f(MathFunction::Sign, &[-0.0]), 0.0);
    }
}
