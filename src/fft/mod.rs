//! Distributed Fourier transforms of real and complex fields.
//!
//! ```text
//! field (x over p0, y over p1, z whole)  --forward-->  spectrum (x whole, y over p0, z over p1)
//!                                        <--inverse--
//! ```
//!
//! - **Sizes**: any product of 2, 3, 5 and 7 an axis, odd ones too, up to the points that fit into one workgroup (4096
//!   on any device); [`good_size`] gives the next.
//! - **Normalisation**: forward none, inverse `1 / (n0 n1 n2)`.
//! - **Order**: C order, x slowest, in both spaces; mode `m` of an axis stands at `m mod n`.
//! - **Cost**: one read and one write of device memory an axis ([`Plan::traffic`]); no transpose kernels, no packing
//!   passes, one exchange for slabs and two for pencils.
//! - **Accuracy**: tables from f64; relative error in the maximum norm below `2e-6 + 5e-7 log10 N`.
//! - **Reproducible**: the same bits for every process grid.

mod butterfly;
mod error;
mod kernel;
mod operator;
mod plan;
mod size;
mod spectral;
mod transform;

pub use error::FftError;
pub use kernel::{Kind, Limits, LineKernel, LineParams, Order, Shape, roots};
pub use operator::{Gradient, Laplacian, Operator, Tables, Wave};
pub use plan::{Pass, Plan, SpectrumLayout, Step, Values};
pub use size::{check_size, good_size, is_good_size};
pub use spectral::{Spectral, radial_source};
pub use transform::{Transform, Value, sources};
