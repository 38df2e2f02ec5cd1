//! Exchange of ghost cells.

use std::sync::Arc;

use super::Field;
use super::error::FieldError;
use crate::exchange::ghost_cells::GhostCells;
use crate::gpu::DeviceElement;
use crate::grid::Mesh;
use crate::rank::{PlanKey, Rank};

/// The exchange of ghost cells on a mesh.
#[derive(PartialEq)]
struct GhostsOf(Mesh);

impl PlanKey for GhostsOf {
    type Plan = GhostCells;
}

impl Rank {
    /// Fills the ghost cells of `field` with the values of the cells that they are copies of. Ghost
    /// cells beyond an open face keep their values. [Collective](Self); records, and blocks only
    /// for exchanges between ranks.
    ///
    /// # Errors
    /// - [`FieldError::Device`] if the device fails.
    /// - [`FieldError::Comm`] if another rank fails or exchanges the ghost cells of another field.
    pub fn exchange_ghosts<T: DeviceElement>(&mut self, field: &mut Field<T>) -> Result<(), FieldError> {
        self.fill_ghosts(field)
    }

    /// Same as [`exchange_ghosts`](Self::exchange_ghosts), for operations that read ghost cells of
    /// their input.
    pub(crate) fn fill_ghosts<T: DeviceElement>(&mut self, field: &Field<T>) -> Result<(), FieldError> {
        if !field.mesh().has_ghosts() {
            return Ok(());
        }
        let ghosts = self.ghosts_of(field.mesh())?;
        let parts = self.parts(field.mesh().grid())?;
        Ok(ghosts.exchange(parts.recorder, parts.comms, field.array())?)
    }

    /// Adds the ghost cells of `field` on all ranks to the cells that they are copies of: the
    /// adjoint of [`exchange_ghosts`](Self::exchange_ghosts). Ghost cells keep their values.
    /// Integers wrap around. [Collective](Self); records, and blocks only for exchanges between
    /// ranks.
    ///
    /// # Errors
    /// Same as [`exchange_ghosts`](Self::exchange_ghosts).
    pub fn accumulate_ghosts<T: DeviceElement>(&mut self, field: &mut Field<T>) -> Result<(), FieldError> {
        if !field.mesh().has_ghosts() {
            return Ok(());
        }
        let ghosts = self.ghosts_of(field.mesh())?;
        let parts = self.parts(field.mesh().grid())?;
        Ok(ghosts.reduce(parts.recorder, parts.comms, field.array())?)
    }

    fn ghosts_of(&mut self, mesh: &Mesh) -> Result<Arc<GhostCells>, FieldError> {
        self.plan(GhostsOf(mesh.clone()), |_| Ok(GhostCells::new(mesh.ghost_plan()?)))
    }
}
