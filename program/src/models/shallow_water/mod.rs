//! The non-linear shallow-water equations in a channel, distributed over ranks.
//!
//! | item | what it is |
//! |---|---|
//! | [`ShallowWaterConfig`] | parameters of a run: checks them, chooses a process grid |
//! | [`ShallowWater`] | the state of one rank and its steps, in `f32` or `f64` |
//! | [`Diagnostics`], [`Flow`], [`Picture`] | what is seen of it |
//! | `plan` | where a rank's cells and ghost cells lie, what a step costs; pure |
//! | `start` | the state at the start |
//!
//! The scheme is that of the example of mpi4jax, after D. Haefner's `shallow-water`: an Arakawa C
//! grid, energy-conserving vorticity fluxes (Sadourny 1975), second-order Adams-Bashforth with
//! weights 1.6 and -0.6, then explicit lateral friction; periodic in x, walls in y.
//!
//! **One kernel and one exchange per step.** The state is stored before friction: the kernel of a
//! step applies the friction of the previous step to the neighbors that it reads, so that a number
//! is read and written once per step (48 bytes per cell in f32), and ghost cells are two wide. A
//! rank that has a whole axis has no ghost cells along it.
//!
//! **The same bits on any number of ranks and any process grid**: a cell is computed by the same
//! kernel from the same numbers on every rank.

mod config;
mod error;
mod files;
mod kernels;
mod observe;
mod plan;
mod real;
mod samples;
mod start;

pub use config::ShallowWaterConfig;
pub use error::ShallowWaterError;
pub use observe::{Diagnostics, Flow, Picture};
pub use plan::StepCost;
pub use real::Real;

use std::fmt;

use kernels::Kernels;
use meshloom::exchange::GridComms;
use meshloom::exchange::ghost_cells::GhostCells;
use meshloom::gpu::{Array, KernelSource};
use meshloom::grid::{Box3, Cost, Grid};
use meshloom::host_memory;
use meshloom::{Error, Rank};
use plan::{FIELDS, ModelParams, Part};
use samples::Samples;

/// Returns the kernels of the model in all forms that any device compiles.
#[must_use]
pub fn kernels() -> Vec<KernelSource> {
    kernels::all()
}

/// Cell-steps that are submitted at a time: 0.1 s of the fastest GPUs, so that no watchdog wakes
/// and interrupts are soon noticed.
const SUBMITTED: u64 = 1 << 32;

/// The state of one rank and its steps.
///
/// Like a [`Simulation`](meshloom::pm::Simulation) it holds device arrays but no recorder: methods
/// that work on the device borrow the rank's [`Rank`], which must be the one it was made with.
///
/// ```
/// use meshloom::{Launch, gpu::Options, launch};
/// use meshloom_program::models::shallow_water::{ShallowWater, ShallowWaterConfig, ShallowWaterError};
///
/// let heights = launch(Launch::detect(2), &Options::from_env()?, |rank| {
///     let config = ShallowWaterConfig { cells: [24, 12], ..ShallowWaterConfig::default() };
///     let mut water = ShallowWater::<f32>::new(rank, config)?;
///     water.advance(rank, 3)?;
///     Ok::<_, ShallowWaterError>(water.diagnostics(rank)?.mean_height)
/// })?;
/// assert!((heights[0] - 100.0).abs() < 0.01 && heights[0] == heights[1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ShallowWater<T: Real> {
    config: ShallowWaterConfig,
    part: Part,
    comms: GridComms,
    ghosts: GhostCells,
    kernels: Kernels,
    /// Parameters of the first step, and of all others.
    params: [ModelParams<T>; 2],
    /// Elevation, u and v with ghosts, before friction.
    now: Array<T>,
    next: Array<T>,
    /// Tendencies of own cells, at the previous step.
    tendencies: Array<T>,
    samples: Samples,
    steps: u64,
}

impl<T: Real> fmt::Debug for ShallowWater<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShallowWater").field("config", &self.config).field("steps", &self.steps).finish_non_exhaustive()
    }
}

/// Fails on all ranks if they are about to run different models, from the start or from a step on.
/// One all-gather of 8 bytes a rank. Collective.
fn agree<T: Real>(rank: &Rank, config: &ShallowWaterConfig, from: Option<u64>) -> Result<(), ShallowWaterError> {
    let bits = 8 * size_of::<T>();
    Ok(rank.comm.agree("ShallowWater", &[("config", config), ("step", &from), ("bits", &bits)])?)
}

impl<T: Real> ShallowWater<T> {
    /// Checks `config`, allocates arrays on the device of `rank` and records the initial state.
    /// Collective, with the same configuration. Submits uploads.
    ///
    /// # Errors
    /// [`ShallowWaterError`] on all ranks for parameters that differ between ranks; for parameters
    /// out of range, a process grid that does not fit, a device without `T`, too little memory;
    /// errors of the layers below.
    pub fn new(rank: &mut Rank, config: ShallowWaterConfig) -> Result<Self, ShallowWaterError> {
        agree::<T>(rank, &config, None)?;
        let mut water = Self::empty(rank, config)?;
        let [y, x, _] = water.own().clone();
        let rows = upload::<T>(rank, &start::rows(&water.config, y))?;
        let columns = upload::<T>(rank, &start::columns(&water.config, x))?;
        let arrays = [rows.raw(), columns.raw(), water.now.raw()];
        rank.recorder.each(&water.kernels.start, &arrays, water.params(), water.part.cells())?;
        rank.recorder.clear(&water.tendencies);
        water.fill_ghosts(rank)?;
        Ok(water)
    }

    /// Creates a run that continues after step `step` from the own part of its
    /// [`state`](Self::state): to the bits of a run that was never interrupted. Collective.
    ///
    /// # Errors
    /// Same as [`new`](Self::new); [`ShallowWaterError::WrongLength`].
    pub fn resume(
        rank: &mut Rank,
        config: ShallowWaterConfig,
        step: u64,
        state: &[T],
    ) -> Result<Self, ShallowWaterError> {
        agree::<T>(rank, &config, Some(step))?;
        let mut water = Self::empty(rank, config)?;
        let (have, want) = (state.len() as u64, 2 * FIELDS * water.part.cells());
        if have != want {
            return Err(ShallowWaterError::WrongLength { have, want });
        }
        let (fields, tendencies) = state.split_at(state.len() / 2);
        let mut now: Vec<T> = host_memory::zeros("the state of the flow", water.now.len() as usize)?;
        let length = water.own_rows().zip(fields.chunks(water.row().max(1)));
        length.for_each(|(start, row)| now[start..start + row.len()].copy_from_slice(row));
        rank.recorder.upload(&water.now, 0, &now)?;
        rank.recorder.upload(&water.tendencies, 0, tendencies)?;
        water.steps = step;
        water.fill_ghosts(rank)?;
        Ok(water)
    }

    /// Creates a run without a state.
    fn empty(rank: &mut Rank, config: ShallowWaterConfig) -> Result<Self, ShallowWaterError> {
        config.validate()?;
        real::check::<T>(&rank.gpu)?;
        let (grid, bytes) = (config.process_grid(rank.comm.shares())?, size_of::<T>() as u64);
        let part = Part::new(&config, grid, rank.index())?;
        let checked = Part::new(&config, grid, grid.rank_to_check(config.shape(), rank.index()))?;
        let (needed, sharing) = (checked.memory(bytes), rank.sharing);
        if let Some(available) = rank.memory_share()
            && needed > available
        {
            return Err(ShallowWaterError::Memory { needed, available, sharing });
        }
        let params = config.coefficients().map(|coefficients| ModelParams::new(part.params, &coefficients));
        let comms = GridComms::new(&rank.comm, part.grid)?;
        let state = |what: &str| rank.gpu.array::<T>(what, FIELDS * part.layout().len());
        let (now, next) = (state("shallow_water::now")?, state("shallow_water::next")?);
        let tendencies = rank.gpu.array("shallow_water::tendencies", FIELDS * part.cells())?;
        let (ghosts, samples) = (GhostCells::new(part.ghosts.clone()), Samples::new(rank, &part)?);
        let kernels = Kernels::new::<T>(config.compatible);
        Ok(ShallowWater { config, part, comms, ghosts, kernels, params, now, next, tendencies, samples, steps: 0 })
    }

    /// Returns the parameters of the next step, which apply to the state's friction, too.
    fn params(&self) -> &ModelParams<T> {
        &self.params[usize::from(self.steps > 0)]
    }

    /// Exchanges ghost cells, once per step.
    fn fill_ghosts(&mut self, rank: &mut Rank) -> Result<(), Error> {
        Ok(self.ghosts.exchange(&mut rank.recorder, &mut self.comms, &self.now)?)
    }

    /// Advances by `steps` steps. Collective. On one rank up to 256 steps are submitted together;
    /// on several each step submits and waits for its ghost cells.
    ///
    /// # Errors
    /// Those of the device and the ranks.
    pub fn advance(&mut self, rank: &mut Rank, steps: u64) -> Result<(), Error> {
        let together = (SUBMITTED / self.part.cells().max(1)).max(1);
        for step in 1..=steps {
            let arrays = [self.now.raw(), self.tendencies.raw(), self.next.raw()];
            rank.recorder.dispatch(&self.kernels.step, &arrays, self.params(), self.part.tiles())?;
            std::mem::swap(&mut self.now, &mut self.next);
            self.steps += 1;
            self.fill_ghosts(rank)?;
            if step % together == 0 {
                rank.recorder.submit()?;
            }
        }
        Ok(())
    }

    /// Returns all that the next step depends on, of own cells: elevation, u and v before friction,
    /// and the tendencies of the last step, each in C order. Waits for the device; no
    /// communication.
    ///
    /// # Errors
    /// [`Error::Device`], as [`ShallowWaterError::Library`].
    pub fn state(&self, rank: &mut Rank) -> Result<Vec<T>, ShallowWaterError> {
        let now = rank.recorder.download(&self.now, 0, self.now.len())?;
        let row = self.row();
        let own = self.own_rows().count() * row;
        let mut state = host_memory::reserve("the state of the flow", own + self.tendencies.len() as usize)?;
        self.own_rows().for_each(|start| state.extend_from_slice(&now[start..start + row]));
        drop(now);
        state.resize(own + self.tendencies.len() as usize, T::zeroed());
        rank.recorder.download_into(&self.tendencies, 0, &mut state[own..])?;
        Ok(state)
    }

    /// Own columns.
    fn row(&self) -> usize {
        self.part.params.own[0] as usize
    }

    /// Returns where the own part of each row of each field begins in the array of the state.
    fn own_rows(&self) -> impl Iterator<Item = usize> + use<T> {
        let (layout, rows) = (self.part.layout(), u64::from(self.part.params.own[1]));
        let (offset, pitch, field) = (layout.offset(), layout.strides()[0], layout.len());
        (0..FIELDS).flat_map(move |n| (0..rows).map(move |row| (n * field + offset + row * pitch) as usize))
    }

    /// Returns the parameters of the run.
    pub fn config(&self) -> &ShallowWaterConfig {
        &self.config
    }

    /// Returns the cells of this rank: rows, columns, and one layer.
    pub fn own(&self) -> &Box3 {
        &self.part.layout().own
    }

    /// Returns the process grid; axis 0 is y.
    pub fn grid(&self) -> Grid {
        self.part.grid
    }

    /// Steps done.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Seconds since the start of the flow.
    pub fn seconds(&self) -> f64 {
        self.steps as f64 * self.config.time_step()
    }

    /// Returns what a step costs this rank, counted.
    pub fn step_cost(&self) -> StepCost {
        self.part.cost(size_of::<T>() as u64)
    }

    /// Bytes and messages that this rank has exchanged with others so far.
    pub fn cost(&self) -> Cost {
        self.comms.cost()
    }
}

/// Numbers of the host on the device.
fn upload<T: Real>(rank: &mut Rank, values: &[f64]) -> Result<Array<T>, ShallowWaterError> {
    let array = rank.gpu.array("shallow_water::numbers", values.len() as u64)?;
    let values = host_memory::collect("the state of the flow", values.iter().map(|&value| T::nearest(value)))?;
    rank.recorder.upload(&array, 0, &values)?;
    Ok(array)
}
