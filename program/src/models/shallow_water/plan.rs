//! A rank's part of the grid: where its cells and ghost cells lie, what kernels are told of it,
//! what a step costs. Pure.

use super::ShallowWaterConfig;
use super::config::{Coefficients, NAMES};
use super::real::Real;
use meshloom::bytemuck::NoUninit;
use meshloom::gpu::{KernelParams, ParamField};
use meshloom::grid::{Cost, FieldLayout, GhostPlan, Grid, LayoutError, Link, extent, volume};

meshloom::gpu::kernel_params! {
    /// The part's own parameters of all kernels of the module.
    pub(super) struct PartParams {
        /// Own columns and rows.
        pub own: [u32; 2],
        /// Ghost columns in the west and ghost rows in the south.
        pub ghosts: [u32; 2],
        /// The first own column and row in the grid, and the grid's columns and rows.
        pub first: [u32; 4],
        /// The grid's first and last row, as rows of the array, which need not have them.
        pub walls: [i32; 2],
        /// Tiles along a row, and rows of tiles.
        pub tiles: [u32; 2],
        /// Elements of a row of the array, and of a field.
        pub pitch: u32,
        pub field: u32,
        /// Workgroups that share the tiles, where each takes several.
        pub groups: u32,
        pub unused: u32,
    }
}

/// Parameters of all kernels of the module: a part, and coefficients in the precision of the run.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ModelParams<T> {
    part: PartParams,
    coefficients: [T; NAMES.len()],
}

impl<T: Real> ModelParams<T> {
    pub fn new(part: PartParams, coefficients: &Coefficients) -> Self {
        ModelParams { part, coefficients: coefficients.map(T::nearest) }
    }
}

const _: () = assert!(size_of::<PartParams>() == 64 && size_of::<ModelParams<f64>>() <= 256);

// SAFETY: 64 bytes without padding, then numbers of 4 or 8 bytes each.
unsafe impl<T: Real> NoUninit for ModelParams<T> {}

// SAFETY: all fields; the coefficients lie behind those of the part, one after the other.
unsafe impl<T: Real> KernelParams for ModelParams<T> {
    fn fields() -> Vec<ParamField> {
        let (wgsl, first) = (T::ELEMENT.wgsl().to_string(), std::mem::offset_of!(Self, coefficients));
        let field = |(number, name)| ParamField { name, wgsl: wgsl.clone(), offset: first + number * size_of::<T>() };
        let mut fields = PartParams::fields();
        fields.extend((0..).zip(NAMES).map(field));
        fields
    }
}

/// Columns and rows of a tile.
pub(super) const TILE: [u64; 2] = [64, 8];

/// Workgroups at most where each leaves a result for the host.
const GROUPS: u64 = 256;

/// Fields of the state: elevation, u, v. There are as many tendencies.
pub(super) const FIELDS: u64 = 3;

/// The cost of a step for one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepCost {
    /// Own cells.
    pub cells: u64,
    /// Exchanges of ghost cells.
    pub exchanges: u64,
    /// One dispatch and its exchange. Device memory counts each number of own cells once, since
    /// caches serve neighbors.
    pub cost: Cost,
}

/// A rank's part of the grid.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub grid: Grid,
    pub ghosts: GhostPlan,
    pub params: PartParams,
    position: [usize; 2],
}

impl Part {
    /// Creates the part of `rank` of `grid`.
    pub fn new(config: &ShallowWaterConfig, grid: Grid, rank: usize) -> Result<Self, LayoutError> {
        // A tendency reaches one cell, and the friction before it one more. The mistake of
        // `compatible` reaches u one cell farther.
        let width = if config.compatible { 3 } else { 2 };
        let widths = [0, 1, 2].map(|axis| if grid.along(axis) > 1 { [width; 2] } else { [0; 2] });
        let shape = config.shape();
        let ghosts = GhostPlan::new(shape, grid, rank, widths, [false, true, false])?;
        let params = params(&ghosts.layout, shape);
        Ok(Part { grid, ghosts, params, position: grid.at(rank) })
    }

    pub fn layout(&self) -> &FieldLayout {
        &self.ghosts.layout
    }

    /// Own cells.
    pub fn cells(&self) -> u64 {
        volume(&self.layout().own)
    }

    /// Workgroups that have a tile each.
    pub fn tiles(&self) -> u64 {
        self.params.tiles.iter().map(|&n| u64::from(n)).product()
    }

    /// Returns the first cell of each own row in the grid, counted in C order, and the cells of a
    /// row.
    pub fn rows(&self) -> (impl Iterator<Item = u64> + use<>, u64) {
        let ([y, x, _], columns) = (self.layout().own.clone(), u64::from(self.params.first[2]));
        (y.map(move |y| y * columns + x.start), x.end - x.start)
    }

    /// Returns the cost of a step with numbers of `number` bytes.
    pub fn cost(&self, number: u64) -> StepCost {
        // The state and tendencies are read and written.
        let mut cost = Cost::kernels(1, 4 * FIELDS * number * self.cells());
        let mut links = 0;
        for sweep in &self.ghosts.sweeps {
            let mut peers: Vec<usize> = Vec::new();
            links += sweep.owned.len() + sweep.ghosts.len();
            let is_remote = |link: &&Link| link.peer != self.position[sweep.axis];
            for link in sweep.owned.iter().filter(is_remote) {
                cost.sent_bytes += FIELDS * number * link.block.len();
                peers.push(link.peer);
            }
            let received = sweep.ghosts.iter().filter(is_remote).map(|link| FIELDS * number * link.block.len());
            cost.received_bytes += received.sum::<u64>();
            peers.dedup();
            cost.messages += peers.len() as u64;
        }
        StepCost { cells: self.cells(), exchanges: u64::from(links > 0), cost }
    }

    /// Returns the bytes of device memory of a run, with numbers of `number` bytes: two states,
    /// tendencies, and the arrays of observations.
    pub fn memory(&self, number: u64) -> u64 {
        let terms = number / 4 * 2 * 4 * self.cells();
        FIELDS * number * (2 * self.layout().len() + 2 * self.cells()) + terms
    }
}

fn params(layout: &FieldLayout, shape: [u64; 3]) -> PartParams {
    let ([rows, columns, _], [y, x, _]) = (extent(&layout.own), layout.own.clone());
    let ghosts = [layout.ghosts[1][0], layout.ghosts[0][0]];
    let tiles = [columns.div_ceil(TILE[0]), rows.div_ceil(TILE[1])];
    let south = ghosts[1] as i64 - y.start as i64;
    PartParams {
        own: [columns, rows].map(|n| n as u32),
        ghosts: ghosts.map(|n| n as u32),
        first: [x.start, y.start, shape[1], shape[0]].map(|n| n as u32),
        walls: [south, south + shape[0] as i64 - 1].map(|row| row as i32),
        tiles: tiles.map(|n| n as u32),
        pitch: layout.strides()[0] as u32,
        field: layout.len() as u32,
        groups: (tiles[0] * tiles[1]).min(GROUPS) as u32,
        unused: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(cells: [u64; 2], grid: [usize; 2], rank: usize) -> Part {
        let config = ShallowWaterConfig { cells, grid: Some(grid), ..ShallowWaterConfig::default() };
        Part::new(&config, config.process_grid(grid[0] * grid[1]).unwrap(), rank).unwrap()
    }

    #[test]
    fn one_rank_has_neither_ghosts_nor_messages() {
        let part = part([360, 180], [1, 1], 0);
        let step = part.cost(4);
        assert_eq!(part.layout().len(), 360 * 180);
        // Below 60 bytes per cell and step, and no message.
        assert_eq!((step.exchanges, step.cost), (0, Cost::kernels(1, 48 * step.cells)));
        assert_eq!(part.params.walls, [0, 179]);
    }

    #[test]
    fn a_step_on_a_thousand_ranks_is_one_exchange_with_four_neighbors() {
        for rank in [0, 499, 999] {
            let step = part([3600, 1800], [25, 40], rank).cost(4);
            let south_or_north = if [0, 999].contains(&rank) { 1 } else { 2 };
            assert_eq!(
                (step.cells, step.exchanges, step.cost.messages),
                (90 * 72, 1, south_or_north + 2),
                "rank {rank}"
            );
            // Two rows of 90 cells each way; then two columns of 72 cells and their corners.
            let bytes = 12 * (south_or_north * 2 * 90 + 2 * 2 * 76);
            assert_eq!([step.cost.sent_bytes, step.cost.received_bytes], [bytes; 2]);
        }
    }

    #[test]
    fn walls_lie_where_the_grid_ends() {
        assert_eq!(part([12, 9], [3, 1], 0).params.walls, [2, 10]);
        assert_eq!(part([12, 9], [3, 1], 1).params.walls, [-1, 7]);
        assert_eq!(part([12, 9], [3, 2], 5).params.walls, [-4, 4]);
        let empty = part([12, 2], [3, 1], 2);
        assert_eq!((empty.cells(), empty.tiles()), (0, 0));
    }
}
