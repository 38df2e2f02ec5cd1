//! A grid of cells in a box, and the part of it that one rank holds.

use std::fmt;
use std::sync::Arc;

use super::boxes::{extent, volume};
use super::error::LayoutError;
use super::field::FieldLayout;
use super::ghost_plan::GhostPlan;
use super::process_grid::Grid;

/// The description of a [`Mesh`]: shape, size, boundaries, ghost cells and process grid.
///
/// Arrays have three axes. A mesh of fewer axes is padded in front: `[n]` is `[1, 1, n]`, and
/// `[n0, n1]` is `[1, n0, n1]`. The added axes have one cell, no ghost cells and the length 1.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshOptions {
    /// Axes of the mesh before padding: 1, 2 or 3.
    pub axes: usize,
    /// Cells along each axis; at least 1.
    pub shape: [u64; 3],
    /// Side lengths of the box; finite and positive.
    pub size: [f64; 3],
    /// Whether the box is periodic along each axis.
    pub periodic: [bool; 3],
    /// Ghost cells below and above the cells of a rank, by axis.
    pub ghosts: [[u64; 2]; 3],
    /// Ranks along the first two axes; `None` to choose slabs or pencils by [`Grid::auto`].
    pub grid: Option<[usize; 2]>,
}

impl MeshOptions {
    /// Creates a periodic mesh of cells of size 1 without ghost cells.
    #[must_use]
    pub fn new<const D: usize>(shape: [u64; D]) -> Self {
        let shape = padded(shape, 1);
        MeshOptions {
            axes: D,
            shape,
            size: shape.map(|n| n as f64),
            periodic: [true; 3],
            ghosts: [[0; 2]; 3],
            grid: None,
        }
    }
}

/// Returns `values` with `fill` in front, up to three axes.
pub(crate) fn padded<T: Copy, const D: usize>(values: [T; D], fill: T) -> [T; 3] {
    const { assert!(D >= 1 && D <= 3, "a mesh has one, two or three axes") };
    let mut all = [fill; 3];
    all[3 - D..].copy_from_slice(&values);
    all
}

/// A grid of cells in a box, cut over ranks: shape, size, boundaries, process grid, and the cells
/// and ghost cells of one rank. Plain data that is cheap to clone.
///
/// Cell `[i, j, k]` stands for the point `[i h0, j h1, k h2]` with `h = size / shape`. Arrays are
/// in C order, the last axis fastest, over the own cells of the rank and its ghost cells.
///
/// [`Rank::mesh`](crate::Rank::mesh) creates the mesh of a rank.
///
/// ```
/// use meshloom::grid::{Mesh, MeshOptions};
///
/// // The part of rank 1 of 2.
/// let mesh = Mesh::new(&MeshOptions::new([4, 6]), 2, 1)?;
/// assert_eq!(mesh.shape(), [1, 4, 6]);
/// assert_eq!(mesh.layout().own, [0..1, 2..4, 0..6]);
/// assert_eq!(mesh.cells().next(), Some([0, 2, 0]));
/// # Ok::<(), meshloom::grid::LayoutError>(())
/// ```
#[derive(Clone)]
pub struct Mesh(Arc<MeshData>);

#[derive(PartialEq)]
struct MeshData {
    options: MeshOptions,
    grid: Grid,
    rank: usize,
    layout: FieldLayout,
}

impl PartialEq for Mesh {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MeshData { options, grid, rank, layout } = &*self.0;
        f.debug_struct("Mesh")
            .field("shape", &options.shape)
            .field("size", &options.size)
            .field("periodic", &options.periodic)
            .field("grid", &grid.to_string())
            .field("rank", rank)
            .field("layout", layout)
            .finish()
    }
}

/// Describes the mesh in a few words, for messages: `64x64x64 over 2x1 ranks`.
impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MeshData { options, grid, .. } = &*self.0;
        let shape: Vec<String> = options.shape[3 - options.axes..].iter().map(u64::to_string).collect();
        write!(f, "{} over {grid} ranks", shape.join("x"))?;
        match options.ghosts.as_flattened().iter().max() {
            Some(&ghosts) if ghosts > 0 => write!(f, " with {ghosts} ghost cells"),
            _ => Ok(()),
        }
    }
}

impl Mesh {
    /// Creates the mesh as `rank` of `ranks` holds it.
    ///
    /// # Errors
    /// - [`LayoutError::Empty`] if an axis has no cells.
    /// - [`LayoutError::Size`] if a side length is not finite and positive.
    /// - [`LayoutError::Grid`] if the process grid does not have `ranks` ranks.
    /// - [`LayoutError::Rank`] if `rank` is not one of `ranks`.
    /// - [`LayoutError::Ghosts`] if ghost cells would go around an axis more often than possible.
    /// - [`LayoutError::TooLarge`] if the number of cells overflows.
    pub fn new(options: &MeshOptions, ranks: usize, rank: usize) -> Result<Self, LayoutError> {
        let MeshOptions { shape, size, periodic, ghosts, .. } = *options;
        if shape.contains(&0) {
            return Err(LayoutError::Empty { shape });
        }
        if size.iter().any(|length| !(length.is_finite() && *length > 0.0)) {
            return Err(LayoutError::Size { size });
        }
        let grid = match options.grid {
            Some(parts) => Grid::new(parts, ranks)?,
            None => Grid::auto(shape, ranks),
        };
        let layout = GhostPlan::new(shape, grid, rank, ghosts, periodic)?.layout;
        Ok(Mesh(Arc::new(MeshData { options: options.clone(), grid, rank, layout })))
    }

    /// Returns the options that the mesh was created with.
    #[must_use]
    pub fn options(&self) -> &MeshOptions {
        &self.0.options
    }

    /// Returns the number of cells along each axis.
    #[must_use]
    pub fn shape(&self) -> [u64; 3] {
        self.0.options.shape
    }

    /// Returns the side lengths of the box.
    #[must_use]
    pub fn size(&self) -> [f64; 3] {
        self.0.options.size
    }

    /// Returns the size of a cell along each axis.
    #[must_use]
    pub fn cell_size(&self) -> [f64; 3] {
        let (shape, size) = (self.shape(), self.size());
        [0, 1, 2].map(|a| size[a] / shape[a] as f64)
    }

    /// Returns the shape without the axes that were added in front.
    #[must_use]
    pub fn unpadded_shape(&self) -> &[u64] {
        &self.0.options.shape[3 - self.0.options.axes..]
    }

    /// Returns the process grid.
    #[must_use]
    pub fn grid(&self) -> Grid {
        self.0.grid
    }

    /// Returns the number of the rank whose part this is.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.rank
    }

    /// Returns the own cells and the ghost cells of the rank, and how they lie in an array.
    #[must_use]
    pub fn layout(&self) -> &FieldLayout {
        &self.0.layout
    }

    /// Returns the number of cells that the rank owns.
    #[must_use]
    pub fn own_cells(&self) -> u64 {
        volume(&self.0.layout.own)
    }

    /// Returns the number of cells of all ranks.
    pub fn total_cells(&self) -> u64 {
        self.shape().into_iter().fold(1, u64::saturating_mul)
    }

    /// Returns `true` if arrays on the mesh have ghost cells on some rank.
    #[must_use]
    pub fn has_ghosts(&self) -> bool {
        self.0.options.ghosts != [[0; 2]; 3]
    }

    /// Returns the cells that the rank owns, in C order.
    pub fn cells(&self) -> impl Iterator<Item = [u64; 3]> + use<> {
        let own = self.0.layout.own.clone();
        let [_, rows, columns] = extent(&own);
        (0..volume(&own)).map(move |n| {
            let at = [n / (rows * columns), n / columns % rows, n % columns];
            [0, 1, 2].map(|a| own[a].start + at[a])
        })
    }

    /// Returns the place of a cell in an array of the rank; `None` if the rank does not own the
    /// cell.
    #[must_use]
    pub fn index(&self, cell: [u64; 3]) -> Option<u64> {
        let layout = &self.0.layout;
        if (0..3).any(|a| !layout.own[a].contains(&cell[a])) {
            return None;
        }
        let strides = layout.strides();
        Some(layout.offset() + (0..3).map(|a| (cell[a] - layout.own[a].start) * strides[a]).sum::<u64>())
    }

    /// Returns the point that a cell stands for.
    #[must_use]
    pub fn position(&self, cell: [u64; 3]) -> [f64; 3] {
        let (shape, size) = (self.shape(), self.size());
        [0, 1, 2].map(|a| cell[a] as f64 * size[a] / shape[a] as f64)
    }

    /// Returns the number of elements of an array on this rank, ghost cells included.
    #[must_use]
    pub fn array_len(&self) -> u64 {
        self.0.layout.len()
    }

    /// Plans the exchange of ghost cells.
    pub(crate) fn ghost_plan(&self) -> Result<GhostPlan, LayoutError> {
        let MeshData { options, grid, rank, .. } = &*self.0;
        GhostPlan::new(options.shape, *grid, *rank, options.ghosts, options.periodic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_of_all_ranks_are_the_mesh() {
        for ranks in [1, 2, 3, 7, 12] {
            for shape in [[1, 1, 9], [1, 5, 4], [3, 4, 5], [1, 1, 1]] {
                let mut seen = vec![0; (shape[0] * shape[1] * shape[2]) as usize];
                for rank in 0..ranks {
                    let options = MeshOptions { ghosts: [[0; 2], [0; 2], [1, 1]], ..MeshOptions::new(shape) };
                    let mesh = Mesh::new(&options, ranks, rank).unwrap();
                    let mut places: Vec<u64> = Vec::new();
                    for [i, j, k] in mesh.cells() {
                        seen[((i * shape[1] + j) * shape[2] + k) as usize] += 1;
                        places.push(mesh.index([i, j, k]).unwrap());
                    }
                    assert_eq!(places.len() as u64, mesh.own_cells());
                    assert!(places.is_sorted() && places.iter().all(|&place| place < mesh.array_len()));
                }
                assert!(seen.iter().all(|&times| times == 1), "{shape:?} on {ranks}");
            }
        }
    }

    #[test]
    fn what_is_no_mesh_is_an_error() {
        let new = |change: &dyn Fn(&mut MeshOptions), ranks, rank| {
            let mut options = MeshOptions::new([4, 4, 4]);
            change(&mut options);
            Mesh::new(&options, ranks, rank).map(drop).unwrap_err()
        };
        assert_eq!(new(&|m| m.shape[1] = 0, 1, 0), LayoutError::Empty { shape: [4, 0, 4] });
        for length in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            assert!(matches!(new(&|m| m.size[2] = length, 1, 0), LayoutError::Size { .. }));
        }
        assert!(matches!(new(&|m| m.grid = Some([2, 2]), 3, 0), LayoutError::Grid { .. }));
        assert!(matches!(new(&|_| (), 2, 2), LayoutError::Rank { .. }));
        assert!(matches!(new(&|m| m.ghosts[0] = [u64::MAX; 2], 1, 0), LayoutError::Ghosts { .. }));
        assert!(matches!(new(&|m| m.shape = [1 << 40, 1 << 40, 4], 1, 0), LayoutError::TooLarge { .. }));
    }

    #[test]
    fn a_thousand_ranks_see_one_mesh() {
        let options = MeshOptions { ghosts: [[1, 1]; 3], ..MeshOptions::new([2048; 3]) };
        let meshes: Vec<Mesh> = (0..1000).map(|rank| Mesh::new(&options, 1000, rank).unwrap()).collect();
        assert_eq!(meshes.iter().map(Mesh::own_cells).sum::<u64>(), 1 << 33);
        assert!(meshes.iter().all(|mesh| mesh.grid() == meshes[0].grid()));
        assert_eq!(meshes[0].to_string(), "2048x2048x2048 over 1000x1 ranks with 1 ghost cells");
    }
}
