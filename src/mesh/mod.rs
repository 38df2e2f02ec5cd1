//! Particles and meshes: painting, readout, linear updates, power spectra.
//!
//! | particles | are | for |
//! |---|---|---|
//! | [`Particles::Displaced`] | sites of a lattice and displacements, an array for each axis | particle-mesh runs |
//! | [`Particles::InCells`], [`PointsInCells`] | a cell and the offset in it, an array for each axis | points from elsewhere, on the rank that owns their cell |
//!
//! Trees and neighbours take [`points::Cloud`](crate::points::Cloud) instead, which holds the coordinates of each point next to each other.

mod axpby;
mod error;
mod particles;
mod points_in_cells;
mod power;
mod value_painter;
mod window;

pub use axpby::Axpby;
pub use error::MeshError;
pub use particles::{Lattice, Mesh, Painter, Particles, UNITS};
pub use points_in_cells::PointsInCells;
pub use power::{Bin, SpectrumGeometry, density_contrast, power_spectrum};
pub use value_painter::{PaintedValues, ValuePainter};
pub use window::Window;

use crate::gpu::KernelSource;

/// The kernels of the room in all forms.
pub(crate) fn kernels() -> Vec<KernelSource> {
    particles::kernels().into_iter().chain(value_painter::kernels()).chain(axpby::kernels()).collect()
}
