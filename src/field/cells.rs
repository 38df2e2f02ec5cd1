//! Values of the cells, between host and device, and the exchange of ghost cells.

use std::sync::Arc;

use super::{Field, FieldError, Result, on_mesh};
use crate::exchange::ghost_cells::GhostCells;
use crate::exchange::{BlockCopies, FieldBlocks};
use crate::gpu::{Array, DeviceElement};
use crate::grid::{Block, Mesh, extent};
use crate::host_memory;
use crate::rank::{PlanKey, Rank};

/// Elements that are evaluated on the host and uploaded at a time, about.
const CHUNK: u64 = 1 << 20;

/// Returns the own cells of a rank as a block of an array with ghost cells.
fn own_block(mesh: &Mesh) -> Block {
    let layout = mesh.layout();
    Block { offset: layout.offset(), extent: extent(&layout.own), strides: layout.strides() }
}

impl Rank {
    /// Creates a field of zeros with one component. Records only. Name the element type if nothing
    /// else determines it: `rank.zeros::<f32>(&mesh)`.
    ///
    /// # Errors
    /// [`FieldError::Device`] if the device is out of memory, does not support `T`, or the array of
    /// the rank is too long.
    pub fn zeros<T: DeviceElement>(&mut self, mesh: &Mesh) -> Result<Field<T>> {
        self.zeros_of(mesh, 1)
    }

    /// Creates a field of zeros with several components. Records only.
    ///
    /// # Errors
    /// Same as [`zeros`](Self::zeros).
    pub fn zeros_of<T: DeviceElement>(&mut self, mesh: &Mesh, components: u64) -> Result<Field<T>> {
        let field = self.new_field(mesh, components)?;
        if !mesh.has_ghosts() {
            self.recorder.clear(&field.array);
        }
        Ok(field)
    }

    /// Creates a field whose own cells are not set yet; ghost cells are 0.
    pub(crate) fn new_field<T: DeviceElement>(&mut self, mesh: &Mesh, components: u64) -> Result<Field<T>> {
        self.gpu.supports(T::ELEMENT, "field")?;
        let array = self.gpu.array("field", mesh.array_len().saturating_mul(components))?;
        if mesh.has_ghosts() {
            self.recorder.clear(&array);
        }
        Field::from_array(mesh, array, components)
    }

    /// Creates a field with the value of `f` at the [position](Mesh::position) of each own cell:
    /// `i * size / shape` for index `i`, a corner of the cell and not its middle. Ghost cells are 0
    /// until they are exchanged. Evaluates on the host, in f64, and rounds to f32.
    ///
    /// To compute values on the device instead, run a [`stencil`](Self::stencil) without inputs.
    ///
    /// # Errors
    /// Same as [`zeros`](Self::zeros).
    pub fn fill(&mut self, mesh: &Mesh, f: impl Fn([f64; 3]) -> f64) -> Result<Field> {
        self.fill_cells(mesh, |cell| f(mesh.position(cell)) as f32)
    }

    /// Creates a field of any element type with the value of `f` at the index `[i, j, k]` of each
    /// own cell; ghost cells are 0 until they are exchanged. Evaluates on the host.
    ///
    /// # Errors
    /// Same as [`zeros`](Self::zeros).
    pub fn fill_cells<T: DeviceElement>(&mut self, mesh: &Mesh, f: impl Fn([u64; 3]) -> T) -> Result<Field<T>> {
        let field = self.new_field(mesh, 1)?;
        let (layout, shape) = (mesh.layout(), mesh.layout().shape());
        let rows = shape[0] * shape[1];
        let rows_per_chunk = (CHUNK / shape[2].max(1)).clamp(1, rows.max(1));
        let mut values = host_memory::reserve("values of a field", (rows_per_chunk * shape[2]) as usize)?;
        let [below, _] = layout.ghosts[2];
        // Own indices along an axis from the place in the array; `None` for ghost cells.
        let own = |axis: usize, at: u64| {
            let i = at.checked_sub(layout.ghosts[axis][0])? + layout.own[axis].start;
            layout.own[axis].contains(&i).then_some(i)
        };
        for first in (0..rows).step_by(rows_per_chunk as usize) {
            values.clear();
            for row in first..(first + rows_per_chunk).min(rows) {
                let end = values.len() + shape[2] as usize;
                if let (Some(i), Some(j)) = (own(0, row / shape[1]), own(1, row % shape[1])) {
                    values.resize(values.len() + below as usize, T::zeroed());
                    values.extend(layout.own[2].clone().map(|k| f([i, j, k])));
                }
                values.resize(end, T::zeroed());
            }
            self.recorder.upload(&field.array, first * shape[2], &values)?;
        }
        Ok(field)
    }

    /// Writes `values` to the own cells of `field`: component by component, in C order over the
    /// cells of this rank.
    ///
    /// # Errors
    /// - [`FieldError::Length`] if `values` does not have one value for each own cell and
    ///   component.
    /// - [`FieldError::Device`] if the device fails.
    pub fn upload<T: DeviceElement>(&mut self, field: &mut Field<T>, values: &[T]) -> Result<()> {
        let expected = field.mesh.own_cells() * field.components;
        FieldError::check_length("Rank::upload: number of values", expected, values.len() as u64)?;
        if !field.mesh.has_ghosts() {
            return Ok(self.recorder.upload(&field.array, 0, values)?);
        }
        let packed = self.gpu.array("field::own", expected)?;
        self.recorder.upload(&packed, 0, values)?;
        self.set_own_cells(&packed, field)
    }

    /// Returns the values of the own cells of `field`: component by component, in C order over the
    /// cells of this rank. Blocks.
    ///
    /// # Errors
    /// [`FieldError::Device`] if the device fails or host memory is missing.
    pub fn download<T: DeviceElement>(&mut self, field: &Field<T>) -> Result<Vec<T>> {
        let own = self.own_cells(field)?;
        Ok(self.recorder.download(&own, 0, own.len())?)
    }

    /// Copies the values of `from` to `to`, ghost cells included. Records only.
    ///
    /// # Errors
    /// - [`FieldError::Layout`] if the fields are on different meshes.
    /// - [`FieldError::Length`] if they have different numbers of components.
    pub fn copy<T: DeviceElement>(&mut self, from: &Field<T>, to: &mut Field<T>) -> Result<()> {
        on_mesh("Rank::copy", &from.mesh, &to.mesh)?;
        FieldError::check_length("Rank::copy: number of components", from.components, to.components)?;
        Ok(self.recorder.copy(&from.array, 0, &to.array, 0, from.array.len())?)
    }

    /// Returns the own cells of `field` without gaps: its array, or a copy if it has ghost cells.
    /// Records only.
    pub(crate) fn own_cells<T: DeviceElement>(&mut self, field: &Field<T>) -> Result<Array<T>> {
        if !field.mesh.has_ghosts() {
            return Ok(field.array.clone());
        }
        let block = own_block(&field.mesh);
        let packed = self.gpu.array("field::own", block.len() * field.components)?;
        let copies = self.shared::<BlockCopies>();
        let from = FieldBlocks { array: &field.array, block, stride: field.mesh.array_len() };
        copies.record(&mut self.recorder, field.components, from, FieldBlocks::packed(&packed, 0, block))?;
        Ok(packed)
    }

    /// Writes own cells without gaps to `field`. Records only.
    pub(crate) fn set_own_cells<T: DeviceElement>(&mut self, packed: &Array<T>, field: &Field<T>) -> Result<()> {
        let block = own_block(&field.mesh);
        let copies = self.shared::<BlockCopies>();
        let to = FieldBlocks { array: &field.array, block, stride: field.mesh.array_len() };
        Ok(copies.record(&mut self.recorder, field.components, FieldBlocks::packed(packed, 0, block), to)?)
    }
}

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
    pub fn exchange_ghosts<T: DeviceElement>(&mut self, field: &mut Field<T>) -> Result<()> {
        self.fill_ghosts(field)
    }

    /// Same as [`exchange_ghosts`](Self::exchange_ghosts), for operations that read ghost cells of
    /// their input.
    pub(crate) fn fill_ghosts<T: DeviceElement>(&mut self, field: &Field<T>) -> Result<()> {
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
    pub fn accumulate_ghosts<T: DeviceElement>(&mut self, field: &mut Field<T>) -> Result<()> {
        if !field.mesh().has_ghosts() {
            return Ok(());
        }
        let ghosts = self.ghosts_of(field.mesh())?;
        let parts = self.parts(field.mesh().grid())?;
        Ok(ghosts.reduce(parts.recorder, parts.comms, field.array())?)
    }

    fn ghosts_of(&mut self, mesh: &Mesh) -> Result<Arc<GhostCells>> {
        self.plan(GhostsOf(mesh.clone()), |_| Ok(GhostCells::new(mesh.ghost_plan()?)))
    }
}
