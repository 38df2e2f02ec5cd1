//! Scaling curves of forecasts, as CSV.

use std::fmt::Write as _;

use meshloom::cluster::Machine;
use meshloom::grid::Grid;

/// Returns a line for each of 1, 2, 4, .. ranks up to `most`: the seconds with slabs, with pencils
/// whose second axis is a node, and with pencils that are nearly square. Cells stay empty where the
/// ranks have no such grid, or parts are too large for it.
pub fn table(what: &str, most: usize, machine: &Machine, seconds: impl Fn(Grid) -> Option<f64>) -> String {
    let mut text = format!("# {what}\nranks,slabs,node_pencils,square_pencils\n");
    for ranks in (0..).map(|power| 1usize << power).take_while(|ranks| *ranks <= most) {
        let node = machine.ranks_per_node;
        let square = 1usize << (ranks.trailing_zeros() / 2);
        _ = write!(text, "{ranks}");
        for (columns, exists) in [(1, true), (node, node > 1 && ranks > node), (square, square > 1)] {
            let grid = Grid::new([ranks / columns, columns], ranks).ok().filter(|_| exists);
            let cell = grid.and_then(&seconds).map_or(String::new(), |seconds| format!("{seconds:.6}"));
            _ = write!(text, ",{cell}");
        }
        text.push('\n');
    }
    text
}
