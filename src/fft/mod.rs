//! Distributed Fourier transforms of real and complex fields.
//!
//! ```text
//! field (x over p0, y over p1, z whole)  --forward-->  spectrum (x whole, y over p0, z over p1)
//!                                        <--inverse--
//! ```
//!
//! - **What**: complex to complex, real to half spectrum and back, of one, two and three axes or some of them, one or many
//!   fields at once, in `f32` and, where the device has it, `f64`: [`Spec`]. Any length; products of 2, 3, 5 and 7 are
//!   fastest ([`good_size`]), primes up to 31 have butterflies of their own, other lengths are convolutions (Bluestein).
//! - **Normalisation**: [`Norm`]; forward none and inverse `1 / N` unless said otherwise.
//! - **Order**: C order, x slowest, in both spaces; mode `m` of an axis stands at `m mod n`.
//! - **Cost**: one read and one write of device memory per axis, two where a line of a GPU's workgroup is too long to be taken side by side with
//!   others (along x and y from some 1024 points on, along z beyond 4096; [`Route::traffic`]); no transpose kernels, no packing passes, one exchange for slabs and two for pencils.
//! - **On the way**: [`Callback`](crate::gpu::Callback)s in WGSL, [`Operator`]s, zero padding and truncation cost no pass; [`Filter`] multiplies in
//!   Fourier space in five passes.
//! - **Accuracy**: tables from f64; relative error in the maximum norm below `1e-6 + 2.5e-7 log10 N` (`2e-15 + 5e-16
//!   log10 N` in f64), twice that with a prime factor beyond 13.
//! - **Reproducible**: the same bits for every process grid.
//! - **Adjoints** of all transforms: [`Transform::forward_adjoint`].

mod axis;
#[cfg(test)]
mod banks;
mod boxes;
mod butterfly;
mod callbacks;
mod choice;
mod codegen;
mod core;
mod error;
mod field;
mod filter;
mod forecast;
mod kernels;
mod line;
mod local;
mod operator;
mod options;
mod pass;
mod plan;
mod precision;
mod reach;
mod roots;
mod run;
mod size;
mod spec;
mod spectral;
mod speeds;
mod tables;
mod transform;
mod tuner;
mod wisdom;

pub use boxes::Boxes;
pub use callbacks::TransformCallbacks;
pub use choice::TransformChoice;
pub use core::Limits;
pub use error::{FftError, TransformError};
pub use field::{ModeFactor, Spectrum, Wavevector};
pub use filter::Filter;
pub use forecast::{DirectionForecast, Forecast, MemoryForecast, Phase};
pub use local::{local, local_inverse};
pub use operator::{GradientSymbol, LaplacianSymbol, Operator, OperatorTables, Wave};
pub use options::{FilterOptions, TransformOptions, TransformTuning};
pub use plan::{Plan, Route, Transpose};
pub use precision::Precision;
pub use size::{RADICES, good_size, is_good_size};
pub use spec::{Distribution, Norm, Spec, SpectrumLayout, Value, Values};
pub use spectral::Spectral;
pub use speeds::Speeds;
pub use transform::Transform;
pub use tuner::{Tuned, Tuner};

pub(crate) use kernels::kernels;
// For tests that compile all kernels with several limits.
#[doc(hidden)]
pub use kernels::line_kernels;
