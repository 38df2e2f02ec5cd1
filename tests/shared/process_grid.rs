//! The process grid of the meshes that the rank on this thread makes.

use std::cell::Cell;

use meshloom::grid::{Grid, MeshOptions};
use meshloom::{Mesh, Rank};

thread_local! {
    static GRID: Cell<Option<[usize; 2]>> = const { Cell::new(None) };
}

/// Sets the process grid of this thread.
pub fn set(grid: Grid) {
    GRID.set(Some(grid.parts()));
}

/// Returns the process grid of this thread; slabs unless it is set.
pub fn of(rank: &Rank) -> Grid {
    Grid::new(GRID.get().unwrap_or([rank.size(), 1]), rank.size()).unwrap()
}

/// Returns a periodic mesh cut by the process grid of this thread.
pub fn mesh(rank: &Rank, shape: [u64; 3], size: [f64; 3]) -> Mesh {
    let options = MeshOptions { size, grid: Some(of(rank).parts()), ..MeshOptions::new(shape) };
    Mesh::new(&options, rank.size(), rank.index()).unwrap()
}
