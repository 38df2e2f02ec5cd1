//! Ranks with workers, and fields on the host: what tests of operators share.

use std::collections::BTreeMap;

use meshloom::comm::{Communicator, run_threads};
use meshloom::gpu::{Gpu, Options};
use meshloom::grid::Grid;
use meshloom::operators::{OperatorError, Vector};
use meshloom::{Mesh, Rank};

/// Process grids: alone, slabs, pencils, more ranks than planes of the smallest mesh.
pub const GRIDS: [[usize; 2]; 5] = [[1, 1], [2, 1], [3, 1], [2, 2], [1, 3]];

pub fn context(comm: Communicator, options: &Options) -> Result<Rank, OperatorError> {
    let gpu = Gpu::open(options, 0)?;
    Ok(Rank::new(comm, gpu)?)
}

/// Runs `body` on the ranks of a process grid and returns what they give, in order.
pub fn on_grid<T: Send>(
    parts: [usize; 2],
    options: &Options,
    body: impl Fn(&mut Rank) -> Result<T, OperatorError> + Sync,
) -> Vec<T> {
    let shares = crate::process_grid::shares(parts);
    let results = run_threads(shares.ranks(), |comm| -> Result<T, OperatorError> {
        crate::process_grid::set(Grid::new(parts, shares).unwrap());
        body(&mut context(comm.with_shares(shares)?, options)?)
    });
    results.unwrap_or_else(|error| panic!("{parts:?}: {error}"))
}

/// Unchanged, and with windows of 4 KiB.
pub fn options() -> [Options; 2] {
    let options = meshloom_sanitizer::options().unwrap();
    [options.clone(), Options { window_bytes: Some(4096), ..options }]
}

pub fn mesh(rank: &Rank, shape: [u64; 3]) -> Mesh {
    crate::process_grid::mesh(rank, shape, shape.map(|n| n as f64 * 0.5))
}

/// Returns the cells of a box in C order, by global index.
pub fn cells(mesh: &Mesh) -> Vec<u64> {
    let (part, [_, n1, n2]) = (mesh.own(), mesh.shape());
    let mut cells = Vec::new();
    for i in part[0].clone() {
        for j in part[1].clone() {
            cells.extend(part[2].clone().map(|k| (i * n1 + j) * n2 + k));
        }
    }
    cells
}

/// Returns a number between -1 and 1 for a cell.
pub fn number(cell: u64, salt: u64) -> f64 {
    let mixed = (cell + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(salt.wrapping_mul(0xbf58_476d_1ce4_e5b9));
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
    f64::from((((mixed ^ (mixed >> 32)) >> 40) as f32) / (1u32 << 23) as f32) - 1.0
}

/// Returns the values of all leaves on the host.
pub fn host(rank: &mut Rank, field: &Vector) -> Result<BTreeMap<String, Vec<f64>>, OperatorError> {
    let names: Vec<String> = field.space().names().map(Into::into).collect();
    names.into_iter().map(|name| Ok((name.clone(), field.get(&mut rank.recorder, &name)?))).collect()
}

/// Returns the part of this rank of `all`, by cell of the mesh.
pub fn own<T: Copy>(mesh: &Mesh, all: &[T]) -> Vec<T> {
    cells(mesh).into_iter().map(|cell| all[cell as usize]).collect()
}
