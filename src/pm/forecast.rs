//! Forecast of a run without a device: memory, bytes and time. Pure.

use crate::cosmology::{LptOrder, StepOp};
use crate::fft::{Forecast, Route, Spec, Speeds};
use crate::grid::{Cost, Grid, Shares, extent, volume};

use super::footprint::PlannedFor;
use super::traffic::Traffic;
use super::{Config, NoiseBy, SimulationError};

/// Forecast of a run, for the rank with the most work.
///
/// Bytes moved in device memory are counted from the schedule and the plans of transforms; bytes
/// between ranks from the plans and from ghost cells that reach 10 Mpc/h. Dispatches are not
/// counted. [`seconds`](Self::seconds) assume no overlap, and exclude files and groups.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunForecast {
    /// The process grid.
    pub grid: Grid,
    /// Steps of the schedule, those that snapshots add included.
    pub steps: usize,
    /// Bytes of device memory for displacements and momenta.
    pub particle_memory: u64,
    /// Cost of the start; its memory is that of the initial conditions, beside the particles.
    pub start: Cost,
    /// Cost of all steps; its memory is that of the force mesh, beside the particles.
    pub stepping: Cost,
}

impl RunForecast {
    /// Returns the most bytes of device memory at one time; on several ranks with ghost cells that
    /// reach 10 Mpc/h, and more where displacements are larger.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.particle_memory + (self.start + self.stepping).memory_bytes
    }

    /// Returns the seconds of the start and all steps on a machine with these speeds.
    #[must_use]
    pub fn seconds(&self, speeds: &Speeds) -> f64 {
        speeds.seconds(&self.start) + speeds.seconds(&self.stepping)
    }
}

/// Bytes of a message at most.
const CHUNK: u64 = 2 << 20;

impl Config {
    /// Forecasts this run on a number of ranks, or on ranks with [`Shares`], for the rank with the
    /// most cells.
    ///
    /// # Errors
    /// [`SimulationError`] for parameters out of range and for grids that do not have as many
    /// ranks.
    pub fn forecast(&self, ranks: impl Into<Shares>) -> Result<RunForecast, SimulationError> {
        let shares = ranks.into();
        self.validate()?;
        self.forecast_rank(shares, self.grid(shares)?.largest(self.cells()))
    }

    /// Forecasts this run for `rank` of ranks with `shares`.
    ///
    /// # Errors
    /// Same as [`forecast`](Self::forecast), and [`LayoutError::Rank`](crate::grid::LayoutError) for
    /// a rank beyond the last one.
    pub fn forecast_rank(&self, shares: Shares, rank: usize) -> Result<RunForecast, SimulationError> {
        self.validate()?;
        self.forecast_over(self.grid(shares)?, rank, &self.schedule()?)
    }

    /// Returns what the run will take for a rank of `grid`, of parameters that are in their ranges
    /// and this schedule.
    fn forecast_over(&self, grid: Grid, rank: usize, ops: &[StepOp]) -> Result<RunForecast, SimulationError> {
        let ghosts = self.typical_ghosts();
        let planned = PlannedFor::any_gpu();
        let (memory, tuning) = (self.memory(grid, rank, &planned)?, planned.tuning);
        let usual = Speeds::default();
        let transform = |side: u64| Forecast::new(&Spec::of::<f32>([side; 3]), grid, rank, &tuning, &usual, CHUNK);
        let (lattice, mesh) = (transform(self.particles)?, transform(self.mesh)?);
        let (forward, inverse) = match self.lpt {
            LptOrder::First => (1, 3),
            LptOrder::Second => (2, 12),
            LptOrder::Third => (7, 36),
        };
        // The seed's noise by modes is a spectrum first.
        let noise = u64::from(self.noise_by == NoiseBy::Mode);
        let start = lattice.forward.cost().times(forward) + lattice.inverse.cost().times(inverse + noise);

        let transforms = mesh.forward.cost() + mesh.inverse.cost().times(3);
        let filter = mesh
            .plan
            .filter(3, planned.limits, tuning.pieces)?
            .as_ref()
            .map_or(transforms.device_bytes, Route::traffic);
        let [particles, cells] = [self.sites(), self.cells()].map(|shape| volume(&grid.part(shape, rank)));
        let forces = ops.iter().filter(|op| matches!(op, StepOp::Force)).count() as u64;
        let stepping = Cost {
            device_bytes: Traffic { particles, cells, filter }.schedule(ops),
            memory_bytes: memory.mesh,
            dispatches: 0,
            ..(transforms + self.ghost_cost(grid, rank, ghosts)).times(forces)
        };
        Ok(RunForecast {
            grid,
            steps: ops.iter().filter(|op| matches!(op, StepOp::Reached { .. })).count() - 1,
            particle_memory: memory.particles,
            start: Cost { memory_bytes: memory.start, dispatches: 0, ..start },
            stepping,
        })
    }

    /// Returns the process grid with the shortest [forecast](Self::forecast) on a machine with the
    /// usual [`Speeds`], so that all ranks choose the same grid. For parameters out of range it may
    /// be any grid.
    pub(super) fn fastest_grid(&self, ranks: Shares) -> Grid {
        let usual = Grid::auto(self.cells(), ranks);
        let (Ok(()), Ok(ops)) = (self.validate(), self.schedule()) else { return usual };
        let seconds = |grid: Grid| {
            let forecast = self.forecast_over(grid, grid.largest(self.cells()), &ops).ok()?;
            Some((forecast.seconds(&Speeds::default()), grid))
        };
        // Of equal ones the first, which has more of a slab.
        let fastest = Grid::all(ranks).filter_map(seconds).min_by(|one, other| one.0.total_cmp(&other.0));
        fastest.map_or(usual, |(_, grid)| grid)
    }

    /// Returns what a rank sends and receives for one force: 8 bytes of density and 12 of forces
    /// for each ghost cell.
    fn ghost_cost(&self, grid: Grid, rank: usize, ghosts: u64) -> Cost {
        let mut cost = Cost::default();
        let part = extent(&grid.part(self.cells(), rank));
        for axis in [0, 1].into_iter().filter(|&axis| grid.parts()[axis] > 1) {
            // The second axis takes the ghost cells of the first along.
            let across = if axis == 1 && grid.parts()[0] > 1 { part[0] + 2 * ghosts } else { part[1 - axis] };
            let bytes = 2 * ghosts * across * part[2] * (8 + 12);
            // They may reach beyond the next rank.
            let reached = ghosts.div_ceil(part[axis].max(1)).clamp(1, grid.parts()[axis] as u64 - 1);
            cost += Cost { sent_bytes: bytes, received_bytes: bytes, messages: 4 * reached, ..Cost::default() };
        }
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::Scheme;

    #[test]
    fn more_ranks_take_less_each_and_steps_cost_alike() {
        let config = Config { particles: 256, mesh: 512, box_size: 512.0, ..Config::default() };
        let of = |ranks: usize, steps: usize| Config { steps, ..config.clone() }.forecast(ranks).unwrap();
        let (one, eight) = (of(1, 10), of(8, 10));
        assert_eq!(one.particle_memory, 6 * 4 * 256u64.pow(3));
        assert_eq!([one.start, one.stepping].map(|cost| cost.sent_bytes + cost.messages), [0; 2]);
        // Of cells and particles an eighth; ghost cells of 10 on each side of 64 planes and
        // messages are beside.
        assert_eq!(eight.particle_memory, one.particle_memory / 8);
        assert!(eight.memory() < one.memory() / 3 && eight.stepping.sent_bytes > 0);
        assert!((eight.stepping.device_bytes as f64 / one.stepping.device_bytes as f64 - 0.125).abs() < 0.01);
        let moved = |steps: usize| of(1, steps).stepping.device_bytes;
        assert_eq!(moved(11) - moved(10), moved(12) - moved(11));
        let split = Config { scheme: Scheme::BullFrog, snapshots: vec![0.5], ..config };
        assert_eq!(split.forecast(1).unwrap().steps, 11);
        assert!(Config { grid: Some([2, 2]), ..split }.forecast(3).is_err());
    }

    #[test]
    fn ghost_cells_decide_between_slabs_and_pencils() {
        let grid = |box_size: f64, ranks: usize| {
            let config = Config { particles: 2048, mesh: 2048, box_size, ..Config::default() };
            let (chosen, speeds) = (config.grid(ranks).unwrap(), Speeds::default());
            let seconds = |grid: [usize; 2]| {
                let config = Config { grid: Some(grid), ..config.clone() };
                config.forecast(ranks).unwrap().seconds(&speeds)
            };
            let least = seconds(chosen.parts());
            assert!(Grid::all(ranks).all(|other| least <= seconds(other.parts())), "{chosen} in {box_size}");
            chosen.parts()
        };
        // 10 Mpc/h are 10 planes of 64 slabs of 32, and 21 of 512 slabs of 4, from six ranks on
        // each side.
        assert_eq!(grid(2048.0, 64), [64, 1]);
        let [rows, columns] = grid(1000.0, 512);
        assert!(rows > 4 && columns > 4, "{rows}x{columns}");
        assert_eq!(Config::default().grid(1).unwrap().parts(), [1, 1]);
        // More ranks than planes, and a prime number of them.
        assert!(grid(1000.0, 4099).contains(&4099) && grid(1000.0, 4096).iter().all(|parts| *parts <= 1024));
        // What cannot run has a grid, too.
        let wrong = Config { box_size: 0.0, ..Config::default() };
        assert_eq!(wrong.grid(4).unwrap().ranks(), 4);
    }

    #[test]
    fn small_boxes_have_no_more_ghost_cells_than_cells() {
        let config = Config { particles: 1 << 12, mesh: 1 << 12, box_size: 1e-6, ..Config::default() };
        assert!(config.forecast(64).unwrap().stepping.sent_bytes > 0);
    }
}
