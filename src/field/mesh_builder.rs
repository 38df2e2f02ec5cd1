//! Creates meshes.

use super::Result;
use crate::grid::{Mesh, MeshOptions, padded};
use crate::rank::Rank;

impl Rank {
    /// Describes a mesh of `D` axes: 1, 2 or 3. [`MeshBuilder::build`] creates it.
    ///
    /// A mesh of fewer than three axes is padded in front: cells of a mesh of shape `[n0, n1]` are
    /// `[0, i, j]`, and positions are `[0.0, y, x]`. The last axis is never cut over ranks, so that
    /// a mesh of one axis lies on rank 0.
    ///
    /// ```
    /// meshloom::run(|rank| {
    ///     let mesh = rank.mesh([64, 64, 32]).periodic([1.0, 1.0, 0.5]).ghosts(2).build()?;
    ///     assert_eq!(mesh.cell_size(), [1.0 / 64.0; 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), meshloom::Error>(())
    /// ```
    pub fn mesh<const D: usize>(&mut self, shape: [u64; D]) -> MeshBuilder<'_, D> {
        MeshBuilder { rank: self, options: MeshOptions::new(shape) }
    }
}

/// Describes a [`Mesh`] of `D` axes. By default the box is periodic, cells have the size 1, and the
/// mesh has no ghost cells.
#[must_use = "a mesh exists after `build`"]
#[derive(Debug)]
pub struct MeshBuilder<'a, const D: usize> {
    rank: &'a mut Rank,
    options: MeshOptions,
}

impl<const D: usize> MeshBuilder<'_, D> {
    /// Sets the side lengths of a box that is periodic along all axes.
    pub fn periodic(mut self, size: [f64; D]) -> Self {
        (self.options.size, self.options.periodic) = (padded(size, 1.0), [true; 3]);
        self
    }

    /// Sets the side lengths of a box with open faces.
    pub fn open(mut self, size: [f64; D]) -> Self {
        (self.options.size, self.options.periodic) = (padded(size, 1.0), padded([false; D], true));
        self
    }

    /// Sets along which axes the box is periodic.
    pub fn periodic_axes(mut self, periodic: [bool; D]) -> Self {
        self.options.periodic = padded(periodic, true);
        self
    }

    /// Sets the number of ghost cells on both sides along every axis.
    pub fn ghosts(self, width: u64) -> Self {
        self.ghost_widths([[width; 2]; D])
    }

    /// Sets the number of ghost cells below and above along each axis.
    pub fn ghost_widths(mut self, widths: [[u64; 2]; D]) -> Self {
        self.options.ghosts = padded(widths, [0; 2]);
        self
    }

    /// Sets the number of ranks along the first two of three axes; their product is the number of
    /// ranks. The last axis is never cut. Chosen by [`Grid::auto`](crate::grid::Grid::auto)
    /// otherwise.
    pub fn grid(mut self, parts: [usize; 2]) -> Self {
        self.options.grid = Some(parts);
        self
    }

    /// Creates the mesh. [Collective](Rank).
    ///
    /// # Errors
    /// - [`FieldError::Layout`](super::FieldError::Layout) if the mesh is not possible; see
    ///   [`Mesh::new`].
    /// - [`FieldError::Comm`](super::FieldError::Comm) if ranks describe different meshes, or
    ///   another rank fails.
    pub fn build(self) -> Result<Mesh> {
        let MeshBuilder { rank, options } = self;
        let MeshOptions { axes, shape, size, periodic, ghosts, grid } = &options;
        rank.comm.agree(
            "Rank::mesh",
            &[
                ("axes", axes),
                ("shape", shape),
                ("size", size),
                ("periodic", periodic),
                ("ghosts", ghosts),
                ("grid", grid),
                ("shares", &rank.comm.shares()),
            ],
        )?;
        let mesh = Mesh::new(&options, rank.comm.shares(), rank.index())?;
        rank.parts(mesh.grid())?;
        Ok(mesh)
    }
}
