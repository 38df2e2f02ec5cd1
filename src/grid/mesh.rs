//! A grid of cells in a box, and the part of it that one rank holds.

use std::fmt;
use std::sync::Arc;

use super::{Box3, FieldLayout, GhostPlan, GhostWidths, Grid, LayoutError, Shares, extent, volume};

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

#[derive(Clone)]
struct MeshData {
    options: MeshOptions,
    grid: Grid,
    rank: usize,
    layout: FieldLayout,
    /// Widths of ghost cells by rank, unless all ranks have those of the options.
    widths: Option<GhostWidths>,
}

/// Meshes are equal if they have the same cells, box, boundaries, process grid and ghost cells and
/// are parts of the same rank. The number of axes before padding does not matter.
impl PartialEq for Mesh {
    fn eq(&self, other: &Self) -> bool {
        let of = |mesh: &Mesh| {
            let MeshData { options: MeshOptions { shape, size, periodic, ghosts, .. }, grid, rank, .. } = &*mesh.0;
            (*shape, *size, *periodic, *ghosts, *grid, *rank)
        };
        Arc::ptr_eq(&self.0, &other.0)
            || (of(self) == of(other) && self.0.layout == other.0.layout && self.0.widths == other.0.widths)
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MeshData { options, grid, rank, layout, .. } = &*self.0;
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
        write!(f, "{} over {grid:?} ranks", shape.join("x"))?;
        match options.ghosts.as_flattened().iter().max() {
            Some(&ghosts) if ghosts > 0 => write!(f, " with {ghosts} ghost cells"),
            _ => Ok(()),
        }
    }
}

impl Mesh {
    /// Creates the mesh as `rank` holds it, of a number of ranks or of ranks with [`Shares`].
    ///
    /// # Errors
    /// - [`LayoutError::Empty`] if an axis has no cells.
    /// - [`LayoutError::Size`] if a side length is not finite and positive.
    /// - [`LayoutError::Grid`] if the process grid does not have `ranks` ranks.
    /// - [`LayoutError::Rank`] if `rank` is not one of `ranks`.
    /// - [`LayoutError::Ghosts`] if ghost cells would go around an axis more often than possible.
    /// - [`LayoutError::TooLarge`] if the number of cells overflows.
    pub fn new(options: &MeshOptions, ranks: impl Into<Shares>, rank: usize) -> Result<Self, LayoutError> {
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
        Ok(Mesh(Arc::new(MeshData { options: options.clone(), grid, rank, layout, widths: None })))
    }

    /// Returns the same cells with `ghosts[a] = [below, above]` ghost cells along axis `a`, equal
    /// on all ranks.
    ///
    /// # Errors
    /// - [`LayoutError::Ghosts`], [`LayoutError::TooLarge`]; see [`new`](Self::new).
    pub fn with_ghosts(&self, ghosts: [[u64; 2]; 3]) -> Result<Self, LayoutError> {
        let MeshData { options, grid, rank, .. } = &*self.0;
        let layout = GhostPlan::new(options.shape, *grid, *rank, ghosts, options.periodic)?.layout;
        Ok(self.with_layout(ghosts, layout, None))
    }

    /// Returns the same cells with ghost cells as wide as each rank needs them.
    /// [`options`](Self::options) then has the largest widths.
    ///
    /// # Errors
    /// - [`LayoutError::Widths`] if `widths` belongs to another rank or process grid.
    /// - [`LayoutError::Ghosts`], [`LayoutError::TooLarge`]; see [`new`](Self::new).
    pub fn with_ghost_widths(&self, widths: &GhostWidths) -> Result<Self, LayoutError> {
        let MeshData { options, grid, rank, .. } = &*self.0;
        let layout = GhostPlan::of_widths(options.shape, *grid, *rank, widths, options.periodic)?.layout;
        let largest = |axis, side: usize| widths.along(axis).iter().map(|width| width[side]).max().unwrap_or(0);
        let ghosts = [0, 1, 2].map(|axis| [0, 1].map(|side| largest(axis, side)));
        Ok(self.with_layout(ghosts, layout, Some(widths.clone())))
    }

    /// Returns the same cells without ghost cells.
    #[must_use]
    pub fn without_ghosts(&self) -> Self {
        if !self.has_ghosts() {
            return self.clone();
        }
        self.with_layout([[0; 2]; 3], FieldLayout::new(self.0.layout.own.clone(), [[0; 2]; 3]), None)
    }

    fn with_layout(&self, ghosts: [[u64; 2]; 3], layout: FieldLayout, widths: Option<GhostWidths>) -> Self {
        let options = MeshOptions { ghosts, ..self.0.options.clone() };
        Mesh(Arc::new(MeshData { options, layout, widths, ..MeshData::clone(&self.0) }))
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

    /// Returns the volume of a cell.
    #[must_use]
    pub fn cell_volume(&self) -> f64 {
        self.cell_size().iter().product()
    }

    /// Returns along which axes the box is periodic.
    #[must_use]
    pub fn periodic(&self) -> [bool; 3] {
        self.0.options.periodic
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

    /// Returns the cells that the rank owns, as a range along each axis.
    #[must_use]
    pub fn own(&self) -> &Box3 {
        &self.0.layout.own
    }

    /// Returns `true` if the rank owns the cell.
    #[must_use]
    pub fn owns(&self, cell: [u64; 3]) -> bool {
        self.own().iter().zip(cell).all(|(range, at)| range.contains(&at))
    }

    /// Returns the modes of the rank, as a [`Transform`](crate::fft::Transform) leaves them: the
    /// second and third axis are cut. `half` keeps the modes `0..=n/2` of the last axis only, those
    /// of a real field.
    #[must_use]
    pub fn modes(&self, half: bool) -> Box3 {
        let ([n0, n1, n2], grid, [i, j]) = (self.shape(), self.grid(), self.grid().at(self.rank()));
        let last = if half { n2 / 2 + 1 } else { n2 };
        [0..n0, grid.shares_along(0).split(n1, i), grid.shares_along(1).split(last, j)]
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
        if !self.owns(cell) {
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
    ///
    /// # Errors
    /// Same as [`new`](Self::new). A mesh that was created has a plan.
    pub fn ghost_plan(&self) -> Result<GhostPlan, LayoutError> {
        let MeshData { options, grid, rank, widths, .. } = &*self.0;
        match widths {
            Some(widths) => GhostPlan::of_widths(options.shape, *grid, *rank, widths, options.periodic),
            None => GhostPlan::new(options.shape, *grid, *rank, options.ghosts, options.periodic),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_of_all_ranks_are_the_mesh() {
        let unequal = Shares::new(&[5.0, 1.0, 0.1, 3.0, 3.0, 2.0]).unwrap();
        for shares in [1, 2, 3, 7, 12].map(Shares::from).into_iter().chain([unequal]) {
            let ranks = shares.ranks();
            for shape in [[1, 1, 9], [1, 5, 4], [3, 4, 5], [1, 1, 1]] {
                let mut seen = vec![0; (shape[0] * shape[1] * shape[2]) as usize];
                for rank in 0..ranks {
                    let options = MeshOptions { ghosts: [[0; 2], [0; 2], [1, 1]], ..MeshOptions::new(shape) };
                    let mesh = Mesh::new(&options, shares, rank).unwrap();
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
    fn ghost_cells_change_and_cells_stay() {
        let mesh = Mesh::new(&MeshOptions::new([6, 8]), 2, 1).unwrap();
        let wide = mesh.with_ghosts([[0; 2], [1, 2], [3, 0]]).unwrap();
        assert_eq!(wide.layout(), &FieldLayout::new(mesh.own().clone(), [[0; 2], [1, 2], [3, 0]]));
        assert!(wide != mesh && wide.without_ghosts() == mesh && wide.index([0, 3, 0]) == Some(11 + 3));
        assert_eq!(Mesh::new(&MeshOptions::new([1, 6, 8]), 2, 1).unwrap(), mesh);
        assert_eq!(mesh.with_ghosts([[0; 2], [0; 2], [0; 2]]).unwrap(), mesh);

        let mut widths = GhostWidths::new(mesh.grid(), 1, [[0; 2]; 3]).unwrap();
        assert_eq!(mesh.with_ghost_widths(&widths).unwrap().layout(), mesh.layout());
        widths.widen(1, &[[0, 0], [2, 1]], 0);
        let uneven = mesh.with_ghost_widths(&widths).unwrap();
        assert_eq!(uneven.options().ghosts, [[0; 2], [2, 1], [0; 2]]);
        assert_eq!(uneven.ghost_plan().unwrap().layout, *uneven.layout());
        assert!(uneven.has_ghosts() && uneven.without_ghosts() == mesh);
        let first = GhostWidths::new(mesh.grid(), 0, [[0; 2]; 3]).unwrap();
        assert!(matches!(mesh.with_ghost_widths(&first), Err(LayoutError::Widths { .. })));
        assert!(matches!(mesh.with_ghosts([[u64::MAX; 2]; 3]), Err(LayoutError::Ghosts { .. })));
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
