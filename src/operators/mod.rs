//! Operators: functions of fields with their derivatives, on every device and over all ranks.
//!
//! | item | what it is |
//! |---|---|
//! | [`Space`], [`Leaf`] | supports of vectors: trees of named leaves on meshes, at points, as small vectors |
//! | [`Vector`] | the values of a space on one rank |
//! | [`Differentiable`], [`Linear`] | operators: values and products with the derivative |
//! | [`Model`], [`Linearization`], [`Derivative`] | composed operators; the value and derivative at a point; the derivative alone |
//! | [`Fingerprint`] | a hash that identifies a model and its constants, on any number of ranks |
//! | [`HostFunction`] | functions on the host with their derivatives |
//! | [`Pointwise`], [`PointwiseOperator`] | functions in WGSL, whose derivatives are found here |
//!
//! Operators record their work and block only for exchanges between ranks and for functions on the
//! host. Elements are `f32`.
//! Exact sums have the same bits on any number of ranks. `Rank` has
//! [`vector_axpby`](crate::Rank::vector_axpby), [`vector_dot`](crate::Rank::vector_dot) and related
//! methods.

mod algebra;
mod check;
mod compose;
mod error;
mod fingerprint;
mod fourier;
mod gather;
mod ghosts;
mod host_function;
mod interpolation;
mod join;
mod kernel_operator;
mod leaf;
mod linear;
mod lines_of_sight;
mod matrix;
mod operator;
mod paint;
mod part;
mod pointwise;
mod pointwise_calls;
mod pointwise_operator;
mod rank_collective;
mod signature;
mod space;
mod vector;
mod vector_math;
mod wavenumbers;

pub use check::{AdjointCheck, TaylorCheck, check_adjoint, check_derivative, check_finite, random_field};
pub use error::OperatorError;
pub use fingerprint::Fingerprint;
pub use fourier::{Convolution, Fourier, FourierFilter, Hartley};
pub use gather::{Gather, Select};
pub(crate) use ghosts::Ghosted;
pub use ghosts::{Ghosts, StencilOperator, Tap};
pub use host_function::{HostFunction, HostResult};
pub(crate) use host_function::{check_numbers, download, upload};
pub use interpolation::Interpolation;
pub use join::{Join, Repeat};
pub use kernel_operator::KernelOperator;
pub use leaf::{Leaf, PointNumbers, PointOrder, Support};
pub use linear::{Adjoint, Direction, Linear, ToDevice};
pub use lines_of_sight::{Line, LinesOfSight};
pub use matrix::{Diagonal, Matrix};
pub use operator::{Derivative, Differentiable, ExcitedModes, Linearization, Linearized, Model};
pub use paint::{Paint, Readout};
pub use pointwise::{Argument, Pointwise, PointwiseError};
pub use pointwise_operator::PointwiseOperator;
pub use rank_collective::RankCollective;
pub use signature::{OperatorCost, Signature};
pub use space::Space;
pub(crate) use vector::PART_BEGINS;
pub use vector::{Contents, Vector};
pub(crate) use vector_math::VectorSum;
pub use wavenumbers::Wavenumbers;

use error::{Result, refuse};
use fourier::real_cells;

use crate::gpu::KernelSource;

/// Returns the kernels of the room, and those of a sample of a pointwise function.
pub(crate) fn kernels() -> Vec<KernelSource> {
    [
        gather::kernels(),
        ghosts::kernels(),
        matrix::kernels(),
        interpolation::kernels(),
        pointwise::samples(),
        vec![join::source(), wavenumbers::source()],
    ]
    .concat()
}
