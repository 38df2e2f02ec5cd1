//! Pictures of densities that are projected along the last axis.

use meshloom::Error;
use meshloom::comm::Communicator;
use meshloom::grid::Grid;
use meshloom::host_memory;
use meshloom_program::plots::{Axis, Blocks, ColorScale, Panel, Rows};

/// The label of a projected density's color bar.
pub const LABEL: &str = "mean density along z [cosmic mean density]";

/// Gathers the values of columns along the last axis of a cube of `side` cells, of which each rank
/// has those of its part of `grid`, and returns means over the `blocks` of a map on rank 0: x along
/// rows, y from row to row. Collective.
pub fn gather(
    comm: &Communicator,
    grid: &Grid,
    side: u64,
    blocks: Blocks,
    columns: &[f32],
) -> Result<Option<Vec<f32>>, Error> {
    // Each column has one owner.
    let Some(gathered) = comm.gather_v(0, columns)? else { return Ok(None) };
    let cells = (side * side) as usize;
    let mut map: Vec<f32> = host_memory::zeros("a picture", cells)?;
    for (rank, columns) in gathered.iter().enumerate() {
        let [across, up, _] = grid.part([side; 3], rank);
        let count = (up.end - up.start).max(1) as usize;
        for (x, column) in across.zip(columns.chunks(count)) {
            for (y, &value) in up.clone().zip(column) {
                map[(y * side + x) as usize] = value;
            }
        }
    }
    Ok(Some(blocks.means(&map)?))
}

/// Returns a panel of a map of a cube whose sides are `length` Mpc/h long.
pub fn panel<'a>(title: &'a str, values: &'a [f32], blocks: Blocks, length: f64, colors: &'a ColorScale) -> Panel<'a> {
    Panel {
        title,
        values,
        size: blocks.size(),
        x: Axis::linear("x [Mpc/h]", [0.0, length]),
        y: Axis::linear("y [Mpc/h]", [0.0, length]),
        rows: Rows::Up,
        colors,
        color_label: Some(LABEL),
        smooth: true,
    }
}
