//! Particles and meshes: painting, reading, elementwise operations, power spectra.

mod combine;
mod error;
mod particles;
mod points;
mod power;
mod window;

pub use combine::Combine;
pub use error::MeshError;
pub use particles::{Lattice, Mesh, Painter, Particles, UNITS};
pub use points::Points;
pub use power::{Bin, SpectrumGeometry, density_contrast, power_spectrum};
pub use window::Window;
