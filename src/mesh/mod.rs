//! Particles and meshes: painting, reading, elementwise operations, power spectra.

mod axpby;
mod error;
mod particles;
mod points;
mod power;
mod window;

pub use axpby::Axpby;
pub use error::MeshError;
pub use particles::{Lattice, Mesh, Painter, Particles, UNITS};
pub use points::Points;
pub use power::{Bin, SpectrumGeometry, density_contrast, power_spectrum};
pub use window::Window;

use crate::gpu::KernelSource;

/// The kernels of the room in all forms.
pub(crate) fn kernels() -> Vec<KernelSource> {
    particles::kernels().into_iter().chain(axpby::kernels()).collect()
}
