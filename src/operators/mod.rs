//! Operators: functions of fields with their derivatives.

mod pointwise;

pub use pointwise::{Argument, Pointwise, PointwiseError};
