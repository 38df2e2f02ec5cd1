//! Distributed Fourier transforms of real and complex fields.
//!
//! ```text
//! field (x over p0, y over p1, z whole)  --forward-->  spectrum (x whole, y over p0, z over p1)
//!                                        <--inverse--
//! ```
//!
//! - **Kinds** ([`Spec`]): complex to complex, and real to half spectrum and back, along any of up
//!   to three axes, of one or many fields, in `f32` and, if the device supports it, `f64`.
//! - **Lengths**: any. Products of 2, 3, 5 and 7 are fastest ([`good_size`]), primes up to 31 have
//!   butterflies of their own, other lengths are convolutions (Bluestein).
//! - **Normalization** ([`Norm`]): by default none forward and `1 / N` inverse.
//! - **Order**: C order, x slowest, in both spaces; mode `m` of an axis has the index `m mod n`.
//! - **Cost** ([`Route::traffic`]): one read and one write of device memory per axis. A line too
//!   long for a tile of whole sectors takes two (on GPUs from about 1024 points along x and y, and
//!   beyond 4096 along z). Transposes and packing need no kernels. Slabs exchange once,
//!   pencils twice.
//! - **Caches**: on GPUs whose cache is known, z and y of planes that fit it take one round trip to
//!   memory together ([`TransformTuning::cache_bytes`]).
//! - **Small arrays**: on GPUs one dispatch transforms all axes of fields of up to 48 KiB.
//! - **Fused operations**: [`Callback`](crate::gpu::Callback)s in WGSL, [`Operator`]s, zero padding
//!   and truncation cost no pass. A [`Filter`] multiplies in Fourier space in five passes.
//! - **Accuracy**: tables from f64; relative error in the maximum norm below `1e-6 + 2.5e-7 log10
//!   N` (`2e-15 + 5e-16 log10 N` in f64), twice that with a prime factor beyond 13.
//! - **Reproducible**: the same bits for every process grid.
//! - **Adjoints** of all transforms: [`Transform::forward_adjoint`].

mod axis;
#[cfg(test)]
mod banks;
mod boxes;
mod butterfly;
mod codegen;
mod core;
mod error;
mod field;
mod filter;
mod forecast;
mod layered_run;
mod line;
mod measured_shares;
mod operator;
mod options;
mod pass;
mod plan;
mod reach;
mod run;
mod spec;
mod tables;
mod transform;
mod tuner;
mod vector_filter;

pub use boxes::Boxes;
pub use core::{Limits, RADICES, good_size, is_good_size};
pub use error::{FftError, TransformError};
pub use field::{Spectrum, local, local_inverse};
pub use filter::{Filter, ModeFactor, Wavevector};
pub use forecast::{DirectionForecast, Forecast, MemoryForecast, Phase};
pub use operator::{GradientSymbol, LaplacianSymbol, Operator, OperatorTables, Spectral, Wave};
pub use options::{FilterOptions, TransformCallbacks, TransformOptions, TransformTuning};
pub use plan::{Plan, Route, Transpose};
pub use spec::{Distribution, Norm, Precision, Spec, SpectrumLayout, Value, Values};
pub use transform::Transform;
pub use tuner::{TransformChoice, Tuned, Tuner};

pub(crate) use forecast::route_steps;
pub(crate) use pass::kernels;
pub(crate) use vector_filter::{VectorCallbacks, VectorFilter, VectorForm};
// For tests that compile all kernels with several limits.
#[doc(hidden)]
pub use pass::{line_kernels, whole_kernels};
