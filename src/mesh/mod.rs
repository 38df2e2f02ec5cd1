//! Particles and meshes: painting, readout, kicks and drifts, linear updates, power spectra.
//!
//! | particles | are | for |
//! |---|---|---|
//! | [`MeshParticles::Displaced`] | sites of a lattice and displacements, an array for each axis | particle-mesh runs |
//! | [`MeshParticles::Listed`] | any sites of a lattice and displacements | runs whose particles came to the ranks of their cells |
//! | [`MeshParticles::InCells`], [`PointsInCells`] | a cell and the offset in it, an array for each axis | points from elsewhere, on the rank that owns their cell |
//!
//! Trees and neighbor searches take [`points::Cloud`](crate::points::Cloud) instead, which holds
//! the coordinates of each point next to each other.

mod axpby;
mod error;
mod kick_drift;
mod mode_binner;
mod mode_bins;
mod moved_particles;
mod paint;
mod painter;
mod particles;
mod points_in_cells;
mod position_derivatives;
mod power;
mod tiles;
mod value_painter;
mod window;

pub use axpby::Axpby;
pub use error::MeshError;
pub use kick_drift::{KickDrift, Push};
pub use mode_binner::{ModeBinner, Modes, Multipoles};
pub use mode_bins::SpectrumGeometry;
pub(crate) use moved_particles::{MovedParticles, Movements, Owners, parts_of_cells};
pub(crate) use painter::PaintedDensity;
pub use painter::{Painter, UNITS};
pub use particles::{Lattice, MeshParticles};
pub use points_in_cells::PointsInCells;
pub use position_derivatives::{ForceMeshes, PositionDerivatives};
pub use power::{Bin, density_contrast, field_contrast, power_spectrum};
pub(crate) use tiles::{PaintTraffic, TilePlan, painting};
pub use value_painter::{PaintedValues, ValuePainter};
pub use window::Window;

use crate::gpu::KernelSource;
use particles::{
    Kind, Lanes, ParticleKernel, ParticleParams, ParticlesAnd, check_mesh, checked, four, of_lattice, own_and_origin,
    particle_kernel, particle_kernel_of, wrapped_axes,
};

/// Returns the kernels for devices with subgroups or additions to integers of 64 bits, for tests
/// that compile all kernels.
#[doc(hidden)]
#[must_use]
pub fn kernels_of_features() -> Vec<KernelSource> {
    let wide = painter::wide_kernels().into_iter().chain(value_painter::wide_kernels());
    wide.chain(painter::paired_kernels()).chain(kick_drift::kernels(Lanes::Paired)).collect()
}

/// Returns the kernels of the room in all forms.
pub(crate) fn kernels() -> Vec<KernelSource> {
    let particles =
        painter::kernels().into_iter().chain(kick_drift::kernels(Lanes::Alone)).chain(value_painter::kernels());
    particles
        .chain(position_derivatives::kernels())
        .chain(points_in_cells::kernels())
        .chain(moved_particles::owner_kernels())
        .chain(moved_particles::kernels())
        .chain(axpby::kernels())
        .chain(mode_binner::kernels())
        .collect()
}
