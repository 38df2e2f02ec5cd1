//! The same work done by the processor with the libraries of the field, for `--reference`: rustfft, kiddo, rayon.
//!
//! Only builds with the feature `reference` have them. Others have the types of [`absent`], which have the same names and no
//! values, so that benchmarks are written once.

#[cfg(not(feature = "reference"))]
mod absent;
#[cfg(feature = "reference")]
pub mod fft;
#[cfg(feature = "reference")]
mod forest;
#[cfg(feature = "reference")]
pub mod kd;
#[cfg(feature = "reference")]
pub mod map;
#[cfg(feature = "reference")]
pub mod shallow_water;
#[cfg(feature = "reference")]
pub mod sort;

#[cfg(not(feature = "reference"))]
pub use absent::{fft, kd, map, shallow_water, sort, threads};

use crate::failure::Failure;

/// Refuses `--reference` in a build without the libraries.
///
/// # Errors
/// [`Failure::Failed`], which names the feature.
pub fn check(wanted: bool) -> Result<(), Failure> {
    if wanted && cfg!(not(feature = "reference")) {
        let why = "--reference needs libraries that this build lacks; build with the feature `reference`";
        return Err(Failure::Failed(why.into()));
    }
    Ok(())
}

/// Threads that share the work.
#[cfg(feature = "reference")]
pub fn threads() -> usize {
    rayon::current_num_threads()
}
