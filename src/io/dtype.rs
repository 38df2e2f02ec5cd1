//! Types of array elements.

use std::fmt;

/// Type of an array's elements, as NumPy knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// `float32`
    F32,
    /// `float64`
    F64,
    /// `complex64`: two f32
    C64,
    /// `complex128`: two f64
    C128,
    /// `int8`
    I8,
    /// `int16`
    I16,
    /// `int32`
    I32,
    /// `int64`
    I64,
    /// `uint8`
    U8,
    /// `uint16`
    U16,
    /// `uint32`
    U32,
    /// `uint64`
    U64,
}

/// For each type: the part of NumPy's type string after the byte order, NumPy's name, and bytes of
/// one element.
const DTYPES: [(Dtype, &str, &str, u64); 12] = [
    (Dtype::F32, "f4", "float32", 4),
    (Dtype::F64, "f8", "float64", 8),
    (Dtype::C64, "c8", "complex64", 8),
    (Dtype::C128, "c16", "complex128", 16),
    (Dtype::I8, "i1", "int8", 1),
    (Dtype::I16, "i2", "int16", 2),
    (Dtype::I32, "i4", "int32", 4),
    (Dtype::I64, "i8", "int64", 8),
    (Dtype::U8, "u1", "uint8", 1),
    (Dtype::U16, "u2", "uint16", 2),
    (Dtype::U32, "u4", "uint32", 4),
    (Dtype::U64, "u8", "uint64", 8),
];

impl Dtype {
    /// Returns the bytes of one element.
    #[must_use]
    pub fn bytes(self) -> u64 {
        DTYPES[self as usize].3
    }

    /// Returns `true` if elements are integers.
    #[must_use]
    pub fn is_integer(self) -> bool {
        !matches!(self, Self::F32 | Self::F64 | Self::C64 | Self::C128)
    }

    /// Returns `true` if elements are complex numbers.
    #[must_use]
    pub fn is_complex(self) -> bool {
        matches!(self, Self::C64 | Self::C128)
    }

    /// Parses the part of a type string after its byte order.
    pub(super) fn from_code(code: &str) -> Option<Self> {
        // `bool` is one byte, 0 or 1.
        let code = if code == "b1" { "u1" } else { code };
        DTYPES.iter().find(|row| row.1 == code).map(|row| row.0)
    }
}

impl fmt::Display for Dtype {
    /// Writes NumPy's name of the type.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DTYPES[*self as usize].2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_types() {
        for (row, (dtype, code, name, bytes)) in DTYPES.into_iter().enumerate() {
            assert_eq!(dtype as usize, row);
            assert_eq!(code[1..].parse(), Ok(bytes), "{name}");
            assert!(name.ends_with(&(8 * bytes).to_string()));
        }
    }
}
