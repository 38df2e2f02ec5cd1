//! Forecast of a run without a device: memory, bytes and time. Pure.

use crate::cluster::{Machine, Start, Step, Work, least_seconds, simulate};
use crate::cosmology::{LptOrder, StepOp, last_step};
use crate::fft::{Forecast, Spec};
use crate::grid::{Chunking, Cost, Grid, Shares};

use super::{Config, NoiseBy, PlannedFor, Result, SimulationError};

/// Grids whose seconds differ by less than this factor are equal: the error of the model.
const ALIKE: f64 = 1.02;

/// Forecast of a run, for the rank with the most work.
///
/// Bytes moved in device memory are counted from the schedule and the plans of transforms; bytes
/// between ranks from the plans, from ghost cells that reach 10 Mpc/h, or as far as particles stray
/// between [moves](super::Migrate), and from the particles that move then. Dispatches are not
/// counted. Seconds follow from a [model](crate::cluster) of a machine that takes the steps of one
/// force and of one transform; they exclude files and groups.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunForecast {
    /// The process grid.
    pub grid: Grid,
    /// Steps of the schedule, those that snapshots add included.
    pub steps: usize,
    /// Moves of particles to the ranks of their cells.
    pub moves: usize,
    /// Bytes of device memory for displacements and momenta, and for the sites of particles that
    /// move.
    pub particle_memory: u64,
    /// Cost of the start; its memory is that of the initial conditions, beside the particles.
    pub start: Cost,
    /// Cost of all steps; its memory is that of the force mesh, beside the particles.
    pub stepping: Cost,
    /// Seconds of the transforms of the start.
    pub start_seconds: f64,
    /// Seconds of all steps.
    pub stepping_seconds: f64,
}

impl RunForecast {
    /// Returns the most bytes of device memory at one time; on several ranks with ghost cells that
    /// reach 10 Mpc/h, or as far as particles stray between moves, and more where they stray
    /// farther.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.particle_memory + (self.start + self.stepping).memory_bytes
    }

    /// Returns the seconds of the start and all steps.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.start_seconds + self.stepping_seconds
    }
}

impl Config {
    /// Forecasts this run on a number of ranks of `machine`, or on ranks with [`Shares`], over its
    /// [process grid](Self::grid_on), for the rank with the most cells.
    ///
    /// # Errors
    /// [`SimulationError`] for parameters out of range and for grids that do not have as many
    /// ranks.
    pub fn forecast(&self, ranks: impl Into<Shares>, machine: &Machine) -> Result<RunForecast> {
        self.validate()?;
        let grid = self.grid_on(ranks, machine)?;
        self.forecast_over(grid, grid.largest(self.cells()), &self.schedule()?, machine)
    }

    /// Forecasts this run for `rank` of ranks with `shares`: its memory, bytes and messages, and
    /// the seconds of all ranks, which are the same for each rank.
    ///
    /// # Errors
    /// Same as [`forecast`](Self::forecast), and [`LayoutError::Rank`](crate::grid::LayoutError) for
    /// a rank beyond the last one.
    pub fn forecast_rank(&self, shares: Shares, rank: usize, machine: &Machine) -> Result<RunForecast> {
        self.validate()?;
        self.forecast_over(self.grid_on(shares, machine)?, rank, &self.schedule()?, machine)
    }

    /// Returns what the run will take for a rank of `grid`, of parameters that are in their ranges
    /// and this schedule.
    fn forecast_over(&self, grid: Grid, rank: usize, ops: &[StepOp], machine: &Machine) -> Result<RunForecast> {
        let (planned, largest) = (PlannedFor::any_gpu(), grid.largest(self.cells()));
        let moves = self.expected_moves(grid, ops)?;
        let (memory, chunking) = (self.memory((grid, rank), &moves, &planned)?, Chunking::USUAL);
        let spec = Spec::of::<f32>([self.particles; 3]);
        let lattice = Forecast::new(&spec, grid, rank, &planned.tuning, chunking.bytes)?;
        let (forward, inverse) = match self.lpt {
            LptOrder::First => (1, 3),
            LptOrder::Second => (2, 12),
            LptOrder::Third => (7, 36),
        };
        // The seed's noise by modes is a spectrum first.
        let inverse = inverse + u64::from(self.noise_by == NoiseBy::Mode);
        let start = lattice.forward.cost().times(forward) + lattice.inverse.cost().times(inverse);
        let traffic = |rank| self.traffic(&self.mesh_plan(grid, rank, &planned)?, &planned);
        let forces = ops.iter().filter(|op| matches!(op, StepOp::Force)).count() as u64;
        let mut sent = Cost::default();
        let mut stepping_seconds = 0.0;
        for (count, ghosts) in self.kinds_of_forces(&moves) {
            let steps = |rank: usize| self.force_steps((grid, rank), ghosts, &planned);
            sent += sent_in(&steps(rank)?, chunking).times(count);
            stepping_seconds += count as f64 * simulate(machine, grid, largest, chunking, steps)?;
        }
        if let Some(usual) = moves.usual_reach() {
            let steps = |rank: usize, reach: f64| Ok::<_, SimulationError>(self.move_steps(grid, rank, reach));
            for &reach in &moves.reaches {
                sent += sent_in(&steps(rank, reach)?, chunking);
            }
            let seconds = simulate(machine, grid, largest, chunking, |rank| steps(rank, usual))?;
            stepping_seconds += moves.reaches.len() as f64 * seconds;
        }
        let moving = moves.reaches.len() as u64 * self.move_traffic(grid, rank)
            + moves.moved_forces * self.site_traffic(grid, rank);
        let [forward_seconds, inverse_seconds] = lattice.seconds(machine)?;
        // Pushes are passes that wait for no rank; those of the largest rank take the longest.
        let slowest = traffic(largest)?;
        let pushes = machine.pass_seconds(Work::Particles, forces, slowest.schedule(ops) - forces * slowest.force());
        Ok(RunForecast {
            grid,
            steps: last_step(ops),
            moves: moves.reaches.len(),
            particle_memory: memory.particles,
            start: Cost { memory_bytes: memory.start, dispatches: 0, ..start },
            stepping: Cost { device_bytes: traffic(rank)?.schedule(ops) + moving, memory_bytes: memory.mesh, ..sent },
            start_seconds: forward as f64 * forward_seconds + inverse as f64 * inverse_seconds,
            stepping_seconds: stepping_seconds + pushes,
        })
    }

    /// Returns the process grid with the shortest [forecast](Self::forecast) on `machine`, for all
    /// ranks the same; the first of equal ones. Pure. For parameters out of range it may be any
    /// grid.
    pub(super) fn fastest_grid(&self, shares: Shares, machine: &Machine) -> Grid {
        let usual = Grid::auto(self.cells(), shares);
        let (Ok(()), Ok(ops)) = (self.validate(), self.schedule()) else { return usual };
        let planned = PlannedFor::any_gpu();
        let least = |(place, grid): (usize, Grid)| {
            let largest = grid.largest(self.cells());
            let mut seconds = 0.0;
            for (count, ghosts) in self.kinds_of_forces(&self.expected_moves(grid, &ops).ok()?) {
                let steps = self.force_steps((grid, largest), ghosts, &planned).ok()?;
                seconds += count as f64 * least_seconds(machine, &grid, &steps);
            }
            Some((seconds, place, grid))
        };
        // A force of each grid takes at least the time of its busiest resource. Most grids are
        // ruled out by that.
        let candidates = Grid::candidates(shares, machine.ranks_per_node).enumerate();
        let mut grids: Vec<_> = candidates.filter_map(least).collect();
        grids.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (mut forecasts, mut shortest) = (Vec::new(), f64::INFINITY);
        for (least, place, grid) in grids {
            if ALIKE * shortest <= least {
                break;
            }
            let Ok(forecast) = self.forecast_over(grid, grid.largest(self.cells()), &ops, machine) else { continue };
            shortest = shortest.min(forecast.seconds());
            forecasts.push((place, forecast));
        }
        forecasts.retain(|(_, forecast)| forecast.seconds() <= ALIKE * shortest);
        forecasts.iter().min_by_key(|(place, _)| *place).map_or(usual, |(_, forecast)| forecast.grid)
    }
}

/// Returns the bytes and messages that a rank sends and receives in its steps.
fn sent_in(steps: &[Step], chunking: Chunking) -> Cost {
    let cost = |Start { line, transfers, element_bytes }: &Start| {
        transfers.cost(line.place, *element_bytes, chunking.elements(*element_bytes) * element_bytes)
    };
    steps.iter().filter_map(Step::start).map(cost).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cosmology::Scheme;
    use crate::pm::Migrate;

    #[test]
    fn more_ranks_take_less_each_and_steps_cost_alike() {
        let stays = Config { migrate: Migrate::Never, ..Config::default() };
        let config = Config { particles: 256, mesh: 512, box_size: 512.0, ..stays };
        let of = |ranks: usize, steps: usize| {
            Config { steps, ..config.clone() }.forecast(ranks, &Machine::default()).unwrap()
        };
        let (one, eight) = (of(1, 10), of(8, 10));
        assert_eq!(one.particle_memory, 6 * 4 * 256u64.pow(3));
        assert_eq!([one.start, one.stepping].map(|cost| cost.sent_bytes + cost.messages), [0; 2]);
        // Of cells and particles an eighth; ghost cells of 10 on each side of 64 planes and
        // messages are beside.
        assert_eq!(eight.particle_memory, one.particle_memory / 8);
        assert!(eight.memory() < one.memory() / 3 && eight.stepping.sent_bytes > 0);
        assert!((eight.stepping.device_bytes as f64 / one.stepping.device_bytes as f64 - 0.125).abs() < 0.01);
        let moves = Config { migrate: Migrate::Auto, ..config.clone() }.forecast(8, &Machine::default()).unwrap();
        assert_eq!(moves.particle_memory, eight.particle_memory / 24 * 32);
        assert!(moves.moves > 0 && moves.memory() < eight.memory(), "{moves:?}");
        assert!(moves.stepping.sent_bytes < eight.stepping.sent_bytes, "{moves:?} {eight:?}");
        let moved = |steps: usize| of(1, steps).stepping.device_bytes;
        assert_eq!(moved(11) - moved(10), moved(12) - moved(11));
        let split = Config { scheme: Scheme::BullFrog, snapshots: vec![0.5], ..config };
        assert_eq!(split.forecast(1, &Machine::default()).unwrap().steps, 11);
        assert!(Config { grid: Some([2, 2]), ..split }.forecast(3, &Machine::default()).is_err());
    }

    #[test]
    fn ghost_cells_decide_between_slabs_and_pencils() {
        let grid = |box_size: f64, ranks: usize| {
            let base = Config { migrate: Migrate::Never, ..Config::default() };
            let config = Config { particles: 2048, mesh: 2048, box_size, ..base };
            let chosen = config.grid(ranks).unwrap();
            let seconds = |grid: [usize; 2]| {
                let config = Config { grid: Some(grid), ..config.clone() };
                config.forecast(ranks, &Machine::default()).unwrap().seconds()
            };
            let least = seconds(chosen.parts());
            let [rows, columns] = chosen.parts();
            let others = [[ranks, 1], [rows / 2, columns * 2], [rows * 2, columns / 2]];
            let mut others = others.into_iter().filter(|[rows, columns]| ranks < 1000 && rows * columns == ranks);
            assert!(others.all(|other| least <= ALIKE * seconds(other)), "{chosen} in {box_size}");
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
    fn ranks_without_particles_have_no_ghost_cells() {
        // Each rank has one plane or none.
        let [least, others @ ..] = [64, 128, 1000].map(|ranks: usize| {
            let config =
                Config { particles: 64, mesh: 64, box_size: 64.0, grid: Some([ranks, 1]), ..Config::default() };
            config.forecast(ranks, &Machine::default()).unwrap().stepping.sent_bytes
        });
        assert!(others.iter().all(|&sent| sent <= least + least / 10), "{others:?}, at least {least}");
    }

    #[test]
    fn small_boxes_have_no_more_ghost_cells_than_cells() {
        let config = Config { particles: 1 << 10, mesh: 1 << 10, box_size: 1e-6, ..Config::default() };
        assert!(config.forecast(16, &Machine::default()).unwrap().stepping.sent_bytes > 0);
    }
}
