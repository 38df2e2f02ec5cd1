//! Painting of particles to fields.

use super::error::MeshError;
use super::painter::Painter;
use super::particles::MeshPart;
use super::points_in_cells::PointsInCells;
use super::window::Window;
use crate::field::Field;
use crate::grid::Mesh;
use crate::points::Particles;
use crate::rank::Rank;

impl Rank {
    /// Paints particles to a field: their number density, of which the mean over all cells is 1.
    ///
    /// [Collective](Self); blocks. The mesh has three axes, all periodic, with the sides of the particles' box. Positions stay on the device:
    /// each particle is sent to the rank that owns its cell (12 bytes) and painted in fixed point, so that the result has the same bits on
    /// any number of ranks. Ghost cells of the field are 0 until they are [exchanged](Self::exchange_ghosts). Without particles the field
    /// is 0.
    ///
    /// ```
    /// use meshloom::mesh::Window;
    /// use meshloom::points::{Domain, Particles};
    ///
    /// meshloom::run(|rank| {
    ///     let p = Particles::from_host(rank, &Domain::new(&[4.0; 3])?, &[0.5, 1.0, 3.0])?;
    ///     let mesh = rank.mesh([8, 8, 8]).periodic([4.0; 3]).build()?;
    ///     let density = rank.paint(&p, &mesh, Window::Cic)?;
    ///     if let Some(cells) = rank.gather(&density, 0)? {
    ///         assert_eq!(cells[(8 + 2) * 8 + 6], 512.0); // the only particle is on the node of cell [1, 2, 6]
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`MeshError::Sides`] if the box of the particles has other sides than the mesh, or an open axis.
    /// - [`MeshError::Layout`] if a rank has fewer cells than the window reaches.
    /// - [`MeshError::Device`] if device memory is short.
    pub fn paint(&mut self, particles: &Particles, mesh: &Mesh, window: Window) -> Result<Field, MeshError> {
        let (domain, size, shape) = (particles.domain(), mesh.size(), mesh.shape());
        for axis in 0..3 {
            let found = if axis < domain.dims() { domain.period(axis).unwrap_or(0.0) } else { 0.0 };
            if found != size[axis] || !mesh.options().periodic[axis] {
                return Err(MeshError::Sides { axis, mesh: size[axis], found });
            }
        }
        let grid = mesh.grid();
        let part = MeshPart::new(shape, size, grid, mesh.rank(), PointsInCells::ghost_widths(window, false));
        let points = PointsInCells::from_cloud(self, grid, part, particles.cloud())?;
        let own = self.gpu.array::<f32>("mesh::density", mesh.own_cells())?;
        let painter = Painter::new(window);
        let parts = self.parts(grid)?;
        points.density(parts.recorder, parts.comms, &painter, 0.0, &own)?;
        let field = self.new_field(mesh, 1)?;
        self.set_own_cells(&own, &field)?;
        Ok(field)
    }
}
