//! Operators: functions of fields with their derivatives, on every device and over all ranks.
//!
//! | item | what it is |
//! |---|---|
//! | [`Space`], [`Leaf`], [`RegularGrid`] | where fields live: trees of named leaves on grids, at points, as vectors |
//! | [`Field`] | the values of a space on one rank |
//! | [`Worker`] | what operators work with on one rank |
//! | [`Differentiable`], [`Linear`] | what an operator can do: its value and the products with its derivative |
//! | [`Model`], [`Linearisation`] | operators as they are composed; a model and its derivative at a point |
//! | [`Pointwise`], [`PointwiseOperator`] | functions in WGSL, whose derivatives are found here |
//!
//! An operator records its work on the device and waits for nothing but exchanges between ranks. Everything is `f32`; sums that claim it are
//! the same for every number of ranks.

mod check;
mod compose;
mod cost;
mod error;
mod exact_sum;
mod field;
mod fourier;
mod fourier_filter;
mod hartley;
mod linear;
mod operator;
mod pointwise;
mod pointwise_map;
mod pointwise_operator;
mod space;
mod worker;

pub use check::{AdjointCheck, TaylorCheck, check_adjoint, check_derivative, random_field};
pub use cost::{CallCost, OperatorCost};
pub use error::OperatorError;
pub use exact_sum::{ExactSum, Terms};
pub use field::{Contents, Field};
pub use fourier::Fourier;
pub use fourier_filter::FourierFilter;
pub use hartley::Hartley;
pub use linear::{Adjoint, Linear};
pub use operator::{Differentiable, Linearisation, Linearised, Model};
pub use pointwise::{Argument, Form, Pointwise, PointwiseError};
pub use pointwise_map::PointwiseMap;
pub use pointwise_operator::PointwiseOperator;
pub use space::{Domain, Leaf, RegularGrid, Space};
pub use worker::Worker;

use crate::gpu::KernelSource;

/// The kernels of the room, and those of a sample of a pointwise function.
pub(crate) fn kernels() -> Vec<KernelSource> {
    [exact_sum::kernels(), hartley::kernels(), pointwise::samples()].concat()
}
