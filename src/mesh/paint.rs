//! Particles and fields: painting and readout.

use super::{MeshError, PaintedValues, Painter, PointsInCells, ValuePainter, Window};
use crate::exchange::ghost_cells::GhostCells;
use crate::field::Field;
use crate::gpu::primitives::{Count, Permute};
use crate::gpu::{Array, DeviceError, Recorder};
use crate::grid::Mesh;
use crate::points::sort::{back_by, forward_by};
use crate::points::{Particles, every};
use crate::rank::Rank;

impl Rank {
    /// Paints particles to a field: their number density, of which the mean over all cells is 1.
    ///
    /// [Collective](Self); blocks. The mesh has three axes, all periodic, with the sides of the
    /// particles' box. Positions stay on the device: each particle is sent to the rank that owns
    /// its cell (12 bytes) and painted in fixed point, so that the result has the same bits on any
    /// number of ranks. Ghost cells of the field are 0 until they are
    /// [exchanged](Self::exchange_ghosts). Without particles the field is 0.
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
    /// - [`MeshError::Sides`] if the box of the particles has other sides than the mesh, or an open
    ///   axis.
    /// - [`MeshError::Layout`] if the cells of a rank with the ghost cells of the window are more
    ///   than can be counted.
    /// - [`MeshError::Device`] if device memory is short.
    pub fn paint(&mut self, particles: &Particles, mesh: &Mesh, window: Window) -> Result<Field, MeshError> {
        let points = self.points_in_cells(particles, mesh, window)?;
        let own = self.gpu.array::<f32>("mesh::density", mesh.own_cells())?;
        let painter = Painter::new(window);
        let parts = self.parts(mesh.grid())?;
        points.density(parts.recorder, parts.comms, &painter, 0.0, &own)?;
        let field = self.new_field(mesh, 1)?;
        self.set_own_cells(&own, &field)?;
        Ok(field)
    }

    /// Paints the attribute `name` of particles to a field: each cell is the sum of the values of
    /// the particles around it, times their window weights. The sum over all cells is that over all
    /// particles.
    ///
    /// [Collective](Self); blocks. `f32` attributes of any width: the field has one component for
    /// each value per particle. Values have any sign. Each is rounded to a multiple of 2^-(62 -
    /// log2 N) of the largest magnitude, for N particles on all ranks, and added exactly, so that
    /// the result has the same bits on any number of ranks. NaN everywhere if a value is not
    /// finite. Otherwise as [`paint`](Self::paint). The adjoint is [`readout`](Self::readout).
    ///
    /// ```
    /// use meshloom::mesh::Window;
    /// use meshloom::points::{Domain, Particles};
    ///
    /// meshloom::run(|rank| {
    ///     let p = Particles::from_host(rank, &Domain::new(&[4.0; 3])?, &[0.25, 1.0, 3.0])?.with(rank, "mass", &[6.0f32], 1)?;
    ///     let mesh = rank.mesh([8, 8, 8]).periodic([4.0; 3]).build()?;
    ///     let mass = rank.paint_attribute(&p, "mass", &mesh, Window::Cic)?;
    ///     assert_eq!(rank.sum(&mass)?, 6.0 * rank.size() as f64); // one particle on each rank
    ///     assert_eq!(rank.max(&mass)?, 3.0 * rank.size() as f32); // half way between two nodes
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`MeshError::Particles`] if no attribute has this name or its values are not `f32`.
    /// - Otherwise same as [`paint`](Self::paint).
    pub fn paint_attribute(
        &mut self,
        particles: &Particles,
        name: &str,
        mesh: &Mesh,
        window: Window,
    ) -> Result<Field, MeshError> {
        let comm = self.comm.clone();
        let (values, width) = comm.together(|| {
            let width = particles.known_column(name)?.1;
            Ok::<_, MeshError>((particles.get::<f32>(name)?, width))
        })?;
        comm.agree("Rank::paint_attribute", &[("name", &name), ("values per particle", &width)])?;
        let points = self.points_in_cells(particles, mesh, window)?;
        let values = forward_by(points.cell_points.route.as_ref(), self, &values, width)?;
        let (part, painter) = (points.mesh(), ValuePainter::new(window));
        let ghosts = GhostCells::new(part.ghost_plan()?);
        let own = self.gpu.array::<f32>("mesh::painted", mesh.own_cells() * width)?;
        let parts = self.parts(mesh.grid())?;
        let greatest = painter.greatest(parts.recorder, parts.comms.world(), &values)?;
        for component in 0..width {
            let values = &component_of(parts.recorder, &values, component, width)?;
            let (particles, total) = (points.particles(), points.total());
            let painted = PaintedValues { particles, values, first: 0, greatest: &greatest, total };
            let start = component * mesh.own_cells();
            painter.paint(parts.recorder, parts.comms, (part, &ghosts), painted, (&own, start))?;
        }
        let field = self.new_field(mesh, width)?;
        self.set_own_cells(&own, &field)?;
        Ok(field)
    }

    /// Reads a field at particles: the sum of the cells around each particle, times their window
    /// weights. Returns one value per particle and component of the field, in the rows of the
    /// particles.
    ///
    /// [Collective](Self); blocks only for exchanges between ranks. The mesh has three axes, all
    /// periodic, with the sides of the particles' box. Each particle is sent to the rank that owns
    /// its cell (12 bytes), and its values back. Ghost cells of the field are not read. The same
    /// bits on any number of ranks. The adjoint is [`paint_attribute`](Self::paint_attribute).
    ///
    /// ```
    /// use meshloom::mesh::Window;
    /// use meshloom::points::{Domain, Particles};
    ///
    /// meshloom::run(|rank| {
    ///     let mut p = Particles::from_host(rank, &Domain::new(&[4.0; 3])?, &[1.25, 1.0, 3.0])?;
    ///     let mesh = rank.mesh([8, 8, 8]).periodic([4.0; 3]).build()?;
    ///     let field = rank.fill(&mesh, |[x, y, _]| x + 10.0 * y)?;
    ///     let at_particles = rank.readout(&field, &p, Window::Cic)?;
    ///     p.set("phi", at_particles, 1)?;
    ///     assert_eq!(p.download::<f32>(rank, "phi")?, [11.25]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    ///
    /// # Errors
    /// Same as [`paint`](Self::paint).
    pub fn readout(&mut self, field: &Field, particles: &Particles, window: Window) -> Result<Array<f32>, MeshError> {
        let (mesh, components) = (field.mesh(), field.components());
        let points = self.points_in_cells(particles, mesh, window)?;
        let part = points.mesh();
        let cells = self.new_field(part, components)?;
        let own = self.own_cells(field)?;
        self.set_own_cells(&own, &cells)?;
        self.fill_ghosts(&cells)?;
        let (painter, permute, count) = (Painter::new(window), Permute::new(), points.len());
        let values = self.gpu.array::<f32>("mesh::readout", count * components)?;
        for component in 0..components {
            let recorder = &mut self.recorder;
            let one = recorder.gpu().array::<f32>("mesh::readout", count)?;
            painter.readout(recorder, points.particles(), part, cells.array(), component, &one)?;
            let places = every(recorder, component, components as u32, count)?;
            permute.scatter(recorder, &one, &places, &values, 1, Count::All)?;
        }
        Ok(back_by(points.cell_points.route.as_ref(), self, &values, components)?)
    }

    /// Sends particles to the ranks that own their cells, after a check of the box.
    fn points_in_cells(
        &mut self,
        particles: &Particles,
        mesh: &Mesh,
        window: Window,
    ) -> Result<PointsInCells, MeshError> {
        let (domain, size) = (particles.domain(), mesh.size());
        for axis in 0..3 {
            let found = if axis < domain.dims() { domain.period(axis).unwrap_or(0.0) } else { 0.0 };
            if found != size[axis] || !mesh.periodic()[axis] {
                return Err(MeshError::Sides { axis, mesh: size[axis], found });
            }
        }
        PointsInCells::from_cloud(self, &PointsInCells::with_ghosts(mesh, window, false)?, particles.cloud())
    }
}

/// Value `component` of each row of `width` values. Records one dispatch, or two.
fn component_of(
    recorder: &mut Recorder,
    values: &Array<f32>,
    component: u64,
    width: u64,
) -> Result<Array<f32>, DeviceError> {
    if width == 1 {
        return Ok(values.clone());
    }
    let rows = values.len() / width;
    let places = every(recorder, component, width as u32, rows)?;
    Permute::new().gathered(recorder, "mesh::values", values, &places, 1)
}
