//! The parts of the program `meshloom` that have tests of their own: a model, plots and signals.
//!
//! Programs use the library `meshloom`; this one gives no promise of stability.

pub mod interrupt;
pub mod models;
pub mod plots;

use meshloom::gpu::KernelSource;

/// Returns every kernel of the library and of the models in all its forms.
///
/// `meshloom kernels` lists them, and the tests compile them for every backend.
#[must_use]
pub fn kernels() -> Vec<KernelSource> {
    let mut all = meshloom::kernels();
    all.extend(models::shallow_water::kernels());
    all
}
