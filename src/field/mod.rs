//! Fields: arrays of a device that know their mesh.
//!
//! A [`Field`] is a distributed array on a [`Mesh`]. The methods of this module are on
//! [`Rank`]: they create fields, move values between host, device and files, exchange
//! ghost cells, sum over all ranks and run stencils.
//!
//! ```
//! meshloom::run(|rank| {
//!     let mesh = rank.mesh([40, 60]).periodic([2.0, 3.0]).ghosts(1).build()?;
//!     let mut heat = rank.fill(&mesh, |[_, y, x]| (x * y).sin())?;
//!     let mut next = rank.zeros(&mesh)?;
//!     let step = rank.stencil(
//!         &mesh,
//!         "fn cell(c: Cell) -> f32 {
//!              return heat(c) + 0.1 * (heat_at(c, -1, 0) + heat_at(c, 1, 0)
//!                  + heat_at(c, 0, -1) + heat_at(c, 0, 1) - 4.0 * heat(c));
//!          }",
//!     );
//!     for _ in 0..10 {
//!         step.run(rank, &(), &[("heat", &heat)], &mut next)?;
//!         std::mem::swap(&mut heat, &mut next);
//!     }
//!     if let Some(cells) = rank.gather(&heat, 0)? {
//!         assert_eq!(cells.len(), 40 * 60);
//!     }
//!     Ok(())
//! })?;
//! # Ok::<(), meshloom::Error>(())
//! ```

mod cells;
mod files;
mod gather;
mod mesh_builder;
mod stencil;
mod sums;

use std::fmt;

use crate::comm::{CommError, Communicator, Subject};
use crate::exchange::ExchangeError;
use crate::gpu::{Array, DeviceElement, DeviceError};
use crate::grid::{LayoutError, Mesh};
use crate::hash::{START, fnv1a};
use crate::host_memory::HostMemoryError;
use crate::io::IoError;
use crate::rank::Rank;

pub use mesh_builder::MeshBuilder;
pub(crate) use stencil::kernels;
pub use stencil::{Stencil, StencilInput};

/// A distributed array on a mesh: each rank holds its own cells and its ghost cells, on its device.
///
/// Elements are `f32`, `f64` (on devices that have it), `u32`, `i32`, or complex numbers `[f32;
/// 2]`, `[f64; 2]`. A field of several components stores all values of the first component, then
/// all values of the next.
pub struct Field<T: DeviceElement = f32> {
    mesh: Mesh,
    array: Array<T>,
    components: u64,
}

impl<T: DeviceElement> fmt::Debug for Field<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Field")
            .field("mesh", &self.mesh)
            .field("element", &T::ELEMENT)
            .field("components", &self.components)
            .finish_non_exhaustive()
    }
}

impl<T: DeviceElement> Field<T> {
    /// Creates a field that uses the memory of `array`.
    ///
    /// # Errors
    /// [`FieldError::Length`] if `components` is 0, or `array` does not have [`Mesh::array_len`]
    /// elements for each component.
    pub fn from_array(mesh: &Mesh, array: Array<T>, components: u64) -> Result<Self> {
        if components == 0 {
            return Err(FieldError::Length { what: "components of a field", expected: 1, found: 0 });
        }
        let expected = mesh.array_len().saturating_mul(components);
        FieldError::check_length("Field::from_array: number of elements", expected, array.len())?;
        Ok(Field { mesh: mesh.clone(), array, components })
    }

    /// Returns the mesh.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Returns the array of this rank, with ghost cells, component by component.
    #[must_use]
    pub fn array(&self) -> &Array<T> {
        &self.array
    }

    /// Returns the number of components of a cell.
    #[must_use]
    pub fn components(&self) -> u64 {
        self.components
    }

    /// Checks that another field is on the same mesh.
    pub(crate) fn same_mesh<U: DeviceElement>(&self, what: &'static str, other: &Field<U>) -> Result<(), LayoutError> {
        on_mesh(what, &self.mesh, &other.mesh)
    }
}

/// Checks that a field on `found` may be used where one on `expected` is needed.
pub(crate) fn on_mesh(what: &'static str, expected: &Mesh, found: &Mesh) -> Result<(), LayoutError> {
    if expected == found {
        return Ok(());
    }
    let mut texts = [expected, found].map(Mesh::to_string);
    if texts[0] == texts[1] {
        texts =
            [expected, found].map(|mesh| format!("{mesh}, sides {:?}, periodic {:?}", mesh.size(), mesh.periodic()));
    }
    let [expected, found] = texts;
    Err(LayoutError::OtherMesh { what, expected, found })
}

impl Rank {
    /// Returns the communicator of an operation on a mesh and a number of components, which must be
    /// those of all ranks. Ghost cells may differ.
    fn comm_on(&self, call: &str, mesh: &Mesh, components: u64) -> Communicator {
        let shared = format!("{:?}", (mesh.shape(), mesh.size(), mesh.periodic(), mesh.grid(), components));
        self.comm.within(Subject::new(&format!("{call} on {mesh}")).with(&[fnv1a(START, shared.as_bytes())]))
    }
}

/// The result of an operation on fields.
type Result<T, E = FieldError> = std::result::Result<T, E>;

/// An operation on a field that failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// Communication between ranks, or an error of another rank.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A file.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A mesh, or fields on different meshes.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A slice of the wrong length, or a wrong number of components.
    #[error("{what}: expected {expected}, got {found}")]
    Length {
        /// The operation and the argument.
        what: &'static str,
        /// The number that is needed.
        expected: u64,
        /// The number that was passed.
        found: u64,
    },
    /// A stencil whose text and fields do not match.
    #[error("stencil: {why}")]
    Stencil {
        /// The fault and its remedy.
        why: String,
    },
}

message_debug!(FieldError);

impl FieldError {
    /// Refuses another number of `what` than is expected.
    fn check_length(what: &'static str, expected: u64, found: u64) -> Result<(), Self> {
        if expected == found { Ok(()) } else { Err(FieldError::Length { what, expected, found }) }
    }
}

error_from! {
    FieldError from ExchangeError { Comm, Device }
    FieldError from HostMemoryError via DeviceError
}
