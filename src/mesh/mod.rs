//! Particles and meshes: painting, reading, elementwise and spectral operations, power spectra.

mod combine;
mod operator;
mod particles;
mod power;
mod window;

pub use combine::Combine;
pub use operator::{Gradient, Laplacian, Operator, Tables, Wave};
pub use particles::{Lattice, Mesh, Painter, Particles, UNITS};
pub use power::{Bin, SpectrumGeometry, power_spectrum};
pub use window::Window;
