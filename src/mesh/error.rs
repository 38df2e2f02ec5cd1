//! What is wrong with points and fields.

use crate::io::IoError;

/// An error of the numbers that a caller hands over. Every rank gets the same one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// A value is NaN or infinite.
    #[error("the value at {index:?} is {value}; remove or repair it, every value must be finite")]
    NotFinite {
        /// The first of all ranks' such values: row and axis of a point, the cell of a field.
        index: Vec<u64>,
        /// The value there.
        value: f64,
    },
    /// A field that cannot be divided by its mean.
    #[error(
        "the field's mean is {mean:?}, which is 0 within rounding, and a density contrast is the field divided by its \
         mean, less 1; give the density (add 1 to a contrast)"
    )]
    Mean {
        /// The mean.
        mean: f64,
    },
    /// A side of a box that is no length.
    #[error("side {axis} of the box is {size}; it must be finite and greater than 0")]
    Size {
        /// The axis.
        axis: usize,
        /// Its length.
        size: f64,
    },
}

impl MeshError {
    /// The same error about values that were read from `path`.
    pub fn in_file(self, path: &std::path::Path) -> crate::Error {
        match self {
            MeshError::NotFinite { index, value } => IoError::NonFinite { path: path.into(), index, value }.into(),
            other => other.into(),
        }
    }
}
