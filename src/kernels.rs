//! The list of all kernels.

use crate::gpu::KernelSource;

/// Every kernel of the library in all its forms: what `meshloom kernels` lists and the tests compile for every backend.
///
/// A room adds its own in its `kernels()`.
pub fn kernels() -> Vec<KernelSource> {
    use crate::mesh::Window;
    let painters = [Window::Cic, Window::Tsc, Window::Pcs];
    let painters = painters.into_iter().flat_map(|window| crate::mesh::Painter::new(window).sources());
    let mut all: Vec<KernelSource> = crate::gpu::primitives::sources();
    all.extend(crate::exchange::sources());
    all.extend(crate::exchange::ghost_cells::sources());
    all.extend(crate::exchange::reshape::sources());
    all.extend(crate::fft::kernels());
    all.extend(painters);
    all.extend(crate::mesh::Combine::default().sources());
    all.extend(crate::points::kernels());
    all
}
