//! The process grid of the meshes that the rank on this thread makes.

use std::cell::Cell;

use meshloom::grid::{Grid, MeshOptions, Shares};
use meshloom::{Mesh, Rank};

thread_local! {
    static GRID: Cell<Option<[usize; 2]>> = const { Cell::new(None) };
}

/// Sets the process grid of this thread.
pub fn set(grid: Grid) {
    GRID.set(Some(grid.parts()));
}

/// Returns the shares of the ranks of a process grid: unequal ones along the axes of 3x1 and 2x2,
/// so that tests over process grids run with both kinds.
pub fn shares(parts: [usize; 2]) -> Shares {
    match parts {
        [3, 1] => Shares::new(&[1.0, 3.0, 2.0]).unwrap(),
        [2, 2] => Shares::new(&[4.0, 2.0, 2.0, 1.0]).unwrap(),
        [p0, p1] => Shares::from(p0 * p1),
    }
}

/// Returns the process grid of this thread; slabs unless it is set.
pub fn of(rank: &Rank) -> Grid {
    Grid::new(GRID.get().unwrap_or([rank.size(), 1]), rank.comm.shares()).unwrap()
}

/// Returns a periodic mesh cut by the process grid of this thread.
pub fn mesh(rank: &Rank, shape: [u64; 3], size: [f64; 3]) -> Mesh {
    let options = MeshOptions { size, grid: Some(of(rank).parts()), ..MeshOptions::new(shape) };
    Mesh::new(&options, rank.comm.shares(), rank.index()).unwrap()
}
