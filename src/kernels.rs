//! The list of all kernels.

use crate::gpu::KernelSource;

/// Every kernel of the library in all its forms: the tests compile them for every backend.
///
/// A room adds its own in its `kernels()`.
#[must_use]
pub fn kernels() -> Vec<KernelSource> {
    let mut all = crate::gpu::kernels();
    all.extend(crate::exchange::kernels());
    all.extend(crate::field::kernels());
    all.extend(crate::mesh::kernels());
    all.extend(crate::pm::kernels());
    all.extend(crate::fft::kernels());
    all.extend(crate::points::kernels());
    all.extend(crate::operators::kernels());
    all.extend(crate::map::kernels());
    all.extend(crate::inference::kernels());
    all
}
