//! A cosmological particle-mesh simulation, distributed over ranks.
//!
//! | item | what it is |
//! |---|---|
//! | [`Config`] | parameters of a run: checks them, and warns of false waves and of displacements that are small beside a cell |
//! | [`Simulation`] | the particles of one rank, and the schedule of kicks, drifts and forces |
//! | `white_noise` | white noise on the device |
//! | `start` | initial conditions by Lagrangian perturbation theory: displacements and momenta |
//! | `lattice_fields` | fields on the lattice, their spectra, displacements and strains |
//! | [`Gradient`] | derivatives of a loss of the end by noise and cosmological parameters |
//! | [`SimulationOperator`] | a run as an operator that composes with others |
//! | `force` | the particle-mesh force: paint, solve, read out and move |
//! | `footprint` | what the arrays of a run take of a device |
//! | [`Quantity`] | rows of three numbers of particles, as files and clouds have them; means of the density along the last axis |
//! | `lagrangian` | particles in the order of their sites, dealt to ranks by their shares |
//! | [`Migrate`], `migration`, `moves` | particles that move to the ranks of their cells, with their sites |
//! | `traffic` | what a schedule moves through device memory, and the steps of a force |
//! | [`LightCone`] | particles that cross the past light cone of an observer between steps |
//! | [`RunForecast`] | memory, bytes and time of a run, before there is a device |
//! | `expected_moves` | the moves of particles that a forecast expects |
//!
//! Each particle belongs to a site of a lattice; its position is that of the site plus an `f32`
//! displacement. It begins on the rank that owns the site, and may [move](Migrate) to the rank that
//! owns its cell. Mass that a rank paints outside its own cells is added to their owners through
//! ghost cells, which reach as far as particles are away. Units and equations are those of
//! [`cosmology`](crate::cosmology).
//!
//! A [`Simulation`] holds device arrays but no recorder: methods that work on the device borrow the
//! [`Rank`], so that several simulations can take turns on one rank. It must be the rank
//! that the simulation was made with.
//!
//! **The same bits on any number of ranks**: noise is a function of the site, the transform of a
//! line does not depend on which rank has it, painting adds integers, and sums for spectra are
//! exact.

mod config;
mod error;
mod expected_moves;
mod footprint;
mod force;
mod forecast;
mod gradient;
mod lagrangian;
mod lattice_fields;
mod light_cone;
mod linear_density;
mod migration;
mod moves;
mod operator;
mod redshift;
mod rows;
#[cfg(feature = "hdf5")]
mod snapshot;
mod start;
mod traffic;
mod white_noise;

pub use config::{Config, Migrate, NoiseBy};
pub use error::SimulationError;
pub use forecast::RunForecast;
pub use gradient::{CosmologyGradient, Cotangents, Gradient, GradientMemory, Observer, Sensitivity};
pub use light_cone::{
    Cone, ConeForecast, ConeParticle, ConeParticles, ConeSection, LightCone, Opening, light_cone_section,
};
pub use linear_density::LinearDensity;
pub use operator::{Observable, SimulationOperator};
pub use redshift::redshift_space;
pub use rows::Quantity;
#[cfg(feature = "hdf5")]
pub use snapshot::seal_snapshot_together;
pub use white_noise::{device_mode_noise, device_point_noise, device_white_noise};

use std::fmt;

use crate::cosmology::{LinearPower, StepOp, last_step, lpt_factors, mode_amplitudes, resume_from};
use crate::exchange::GridComms;
use crate::fft::Transform;
use crate::field::{Field, on_mesh};
use crate::gpu::{Array, DeviceError, KernelSource, Recorder};
use crate::grid::{Cost, Grid, Mesh, extent};
use crate::mesh::{Bin, Lattice, ModeBinner, Modes, Push, SpectrumGeometry};
use crate::rank::Rank;
use crate::timeline;
use error::{Result, require};
use footprint::{PlannedFor, check_memory};
use force::{Force, ForceContext, check_lost};
use lattice_fields::{LatticeFields, Perturbation};
use migration::{Migration, particles_at};
use start::Source;
use traffic::Traffic;

/// The particles of one rank, their force solver and the schedule of the run.
pub struct Simulation {
    config: Config,
    power: LinearPower,
    comms: GridComms,
    /// Cells of the forces and sites of the particles, without ghost cells.
    cell_mesh: Mesh,
    site_mesh: Mesh,
    lattice: Lattice,
    force: Force,
    binner: ModeBinner,
    /// Displacements and momenta, without the pending `push`.
    displacement: [Array<f32>; 3],
    momentum: [Array<f32>; 3],
    /// The site of each particle, if they have moved; they are those of `lattice` otherwise.
    sites: Option<Array<[u32; 2]>>,
    /// The moves of particles; `None` if they never move.
    migration: Option<Migration>,
    /// Whether the particles are not on the device.
    is_released: bool,
    /// Kicks and drifts that were not recorded yet: as many as possible are made in one pass over
    /// the particles.
    push: Push,
    /// The schedule from the start, or from the snapshot that the run was resumed at.
    ops: Vec<StepOp>,
    /// Operations of the schedule that have been done.
    done: usize,
    scale_factor: f64,
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Simulation { config, done, scale_factor, .. } = self;
        let mut text = f.debug_struct("Simulation");
        text.field("config", config).field("operations_done", done).field("scale_factor", scale_factor);
        text.finish_non_exhaustive()
    }
}

/// Displacements of this number of cells or more cannot be painted: `sane` in `window.wgsl`.
const PAINTABLE_CELLS: f32 = 4_194_304.0;

/// A moment of a run's schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Scale factor.
    pub a: f64,
    /// Steps done, of [`Simulation::steps`]; 0 at the start.
    pub step: usize,
    /// Whether [`Config::snapshots`] has this scale factor.
    pub snapshot: bool,
}

/// White noise on the lattice.
#[derive(Clone, Copy, Debug)]
pub enum Noise<'a> {
    /// From the seed of the configuration.
    Seed,
    /// The values of this rank's sites, C order: those of its [`Config::rows`].
    Values(&'a [f32]),
    /// A field on [`Simulation::site_mesh`], such as one of
    /// [`Rank::fill_white_noise`](crate::Rank::fill_white_noise). A value that is not finite loses
    /// particles, which ends the run.
    Field(&'a Field),
}

impl Simulation {
    /// Checks `config`, allocates arrays on the device of `rank` and records the initial
    /// conditions. Collective, with the same configuration.
    ///
    /// # Errors
    /// [`SimulationError`] on all ranks for parameters that differ between ranks; for parameters
    /// out of range, too little memory, noise that is not finite or not one value per site; errors
    /// of the layers below.
    pub fn new(rank: &mut Rank, config: Config, noise: Noise<'_>) -> Result<Self> {
        let _activity = timeline::activity!("initial conditions");
        let start = match noise {
            Noise::Seed => "noise of the seed",
            Noise::Values(_) | Noise::Field(_) => "noise that was given",
        };
        config.agree(&rank.comm, &start)?;
        let mut simulation = Self::plan(rank, config, 0)?;
        let (noise, config) = (simulation.noise(rank, noise)?, &simulation.config);
        let recorder = &mut rank.recorder;
        let lpt = Perturbation::new(config, recorder, &simulation.comms)?;
        let table = mode_amplitudes(&simulation.power, config.particles as usize, config.box_size)?;
        let amplitudes = recorder.uploaded("pm::amplitudes", &table)?;
        let factors = lpt_factors(&simulation.power.growth().at(config.a_start)?, config.lpt);
        simulation.begin(rank, &lpt, Source { noise: &noise, amplitudes: &amplitudes, factors })?;
        Ok(simulation)
    }

    /// Records the initial conditions that follow from `source`, and goes to the beginning of the
    /// schedule.
    fn begin(&mut self, rank: &mut Rank, lpt: &Perturbation, source: Source<'_>) -> Result<()> {
        let mut fields = LatticeFields { recorder: &mut rank.recorder, comms: &mut self.comms, lpt };
        start::start(&mut fields, source, [&self.displacement, &self.momentum])?;
        self.push = Push::default();
        self.force.begin(&mut rank.recorder);
        (self.done, self.scale_factor) = (0, self.config.a_start);
        Ok(())
    }

    /// Forgets the force and what was not recorded yet: the particles will be others.
    fn forget(&mut self) {
        self.push = Push::default();
        self.force.forget();
    }

    /// A run that continues from the displacements and momenta after step `step`, in the form of
    /// [`phase_space`](Self::phase_space). Its result is that of a run that was never interrupted,
    /// also where no step is left. Collective.
    ///
    /// # Errors
    /// Same as [`new`](Self::new), of the state instead of noise;
    /// [`CosmologyError`](crate::cosmology::CosmologyError) when the schedule has no such step.
    pub fn resume(rank: &mut Rank, config: Config, step: usize, state: &[Vec<f32>; 2]) -> Result<Self> {
        let _activity = timeline::activity!("resume", step);
        config.agree(&rank.comm, &step)?;
        let mut simulation = Self::plan(rank, config, step)?;
        simulation.upload(rank, state)?;
        Ok(simulation)
    }

    /// Gives back the device memory of the particles, 24 bytes each, for other work, and with it
    /// the force of particles that have moved between ranks; until [`upload`](Self::upload) brings
    /// them back, methods that look at particles are a [`DeviceError::Misuse`].
    /// [`phase_space`](Self::phase_space) has taken them to the host before. Local to this rank.
    ///
    /// # Errors
    /// [`SimulationError`] of the device.
    pub fn release(&mut self, rank: &mut Rank) -> Result<()> {
        self.settle(rank)?;
        // A buffer is free when what was recorded with it has been submitted.
        rank.recorder.submit()?;
        for array in self.displacement.iter_mut().chain(&mut self.momentum) {
            *array = rank.gpu.array("pm::released", 0)?;
        }
        if self.sites.take().is_some() {
            self.force.restart()?;
        }
        self.is_released = true;
        Ok(())
    }

    /// Displacements and momenta of this rank's particles in the form of
    /// [`phase_space`](Self::phase_space), in place of those that it has. They may be others, whose
    /// force is computed here where the next kick needs it; but where particles were
    /// [released](Self::release) they are to be the same, and keep their force. Collective.
    ///
    /// # Errors
    /// [`SimulationError`] of the state and the device.
    pub fn upload(&mut self, rank: &mut Rank, state: &[Vec<f32>; 2]) -> Result<()> {
        for (what, values) in ["displacements", "momenta"].into_iter().zip(state) {
            self.check_length(what, values.len() as u64, 3)?;
            self.check_finite(what, values, 3)?;
        }
        if !self.is_released {
            self.forget();
        }
        let have_moved = self.sites.take().is_some();
        if have_moved {
            self.force.restart()?;
        }
        if have_moved || std::mem::take(&mut self.is_released) {
            [self.displacement, self.momentum] = particles(rank, &self.lattice)?;
        }
        for (columns, values) in [&self.displacement, &self.momentum].into_iter().zip(state) {
            self.set_columns(rank, columns, values)?;
        }
        let uses_force = |op: &&StepOp| matches!(op, StepOp::Kick { .. } | StepOp::Force);
        if self.force.field.is_none()
            && matches!(self.ops[self.done..].iter().find(uses_force), Some(StepOp::Kick { .. }))
        {
            self.solve(rank)?;
        }
        Ok(())
    }

    /// Creates a run that begins after step `step`, without the values of its particles.
    fn plan(rank: &mut Rank, config: Config, step: usize) -> Result<Self> {
        config.validate()?;
        let grid = config.grid(rank.comm.shares())?;
        // Chosen once, so that later queries of the configuration need no forecast.
        let config = Config { grid: Some(grid.parts()), ..config };
        let power = config.linear_power(config.cosmology)?;
        let ops = resume_from(&config.schedule_by(power.growth())?, step)?;
        let scale_factor = ops.iter().find_map(StepOp::epoch).unwrap_or(config.a_start);
        let checked = (grid, grid.rank_to_check(config.cells(), rank.index()));
        let memory = config.memory(checked, &config.expected_moves(grid, &ops)?, &PlannedFor::device(&rank.gpu))?;
        check_memory(rank, memory.total(), &memory)?;
        let comms = GridComms::new(&rank.comm, grid)?;
        let cell_mesh = config.cell_mesh(grid, rank.index())?;
        let site_mesh = config.site_mesh(grid, rank.index())?;
        let lattice = Lattice::new(config.sites(), grid, rank.index());
        let force = Force::new(&config, &mut rank.recorder, &comms)?;
        let [displacement, momentum] = particles(rank, &lattice)?;
        Ok(Simulation {
            displacement,
            momentum,
            sites: None,
            migration: Migration::new(rank, &config, &cell_mesh)?,
            is_released: false,
            push: Push::default(),
            binner: ModeBinner::default(),
            done: 0,
            scale_factor,
            config,
            power,
            comms,
            cell_mesh,
            site_mesh,
            lattice,
            force,
            ops,
        })
    }

    /// Returns the white noise of this rank's sites on the device.
    fn noise(&mut self, rank: &mut Rank, noise: Noise<'_>) -> Result<Array<f32>> {
        let (config, own) = (&self.config, &self.lattice.own);
        let field = || rank.gpu.array("pm::noise", self.lattice.len());
        match noise {
            Noise::Seed => {
                let (field, recorder) = (field()?, &mut rank.recorder);
                match config.noise_by {
                    NoiseBy::Site => device_white_noise(recorder, config.seed, config.sites(), own, &field)?,
                    NoiseBy::Mode => self.noise_of_modes(recorder, &field)?,
                }
                Ok(field)
            }
            Noise::Values(values) => {
                self.check_length("white noise", values.len() as u64, 1)?;
                self.check_finite("values of the white noise", values, 1)?;
                let field = field()?;
                rank.recorder.upload(&field, 0, values)?;
                Ok(field)
            }
            Noise::Field(field) => {
                on_mesh("white noise", &self.site_mesh, field.mesh())?;
                Ok(field.array().clone())
            }
        }
    }

    /// Records the white noise of the seed by modes.
    fn noise_of_modes(&mut self, recorder: &mut Recorder, field: &Array<f32>) -> Result<()> {
        let (config, comms) = (&self.config, &mut self.comms);
        let transform = Transform::<f32>::new(recorder.gpu(), config.sites(), comms.grid(), comms.rank())?;
        let modes = transform.spectrum(recorder.gpu())?;
        device_mode_noise(recorder, config.seed, config.particles, &transform.spectrum_part(), &modes)?;
        Ok(transform.inverse(recorder, comms, &modes, field, &transform.field_layout())?)
    }

    /// Checks that there are `per` values for each site of this rank.
    fn check_length(&self, what: &'static str, have: u64, per: u64) -> Result<()> {
        let want = per * self.lattice.len();
        if have == want { Ok(()) } else { Err(SimulationError::WrongLength { what, have, want }) }
    }

    /// Checks that the values of all ranks' sites are finite, `per` values for each. The error is
    /// the same on all ranks and names the first bad site of all.
    fn check_finite(&self, what: &'static str, values: &[f32], per: u64) -> Result<()> {
        let n = self.config.particles;
        let bad = values.iter().position(|value| !value.is_finite()).map(|at| (at as u64 / per, values[at].to_bits()));
        let index = bad.map(|(site, _)| self.rows().nth((site / n) as usize).unwrap_or(0) + site % n);
        let own = [index.unwrap_or(u64::MAX), bad.map_or(0, |(_, bits)| bits.into())];
        let all = self.comms.world().all_gather(&own)?;
        match all.chunks(2).min_by_key(|found| found[0]) {
            Some(&[index, bits]) if index < u64::MAX => {
                Err(SimulationError::NotFinite { what, index, value: f32::from_bits(bits as u32) })
            }
            _ => Ok(()),
        }
    }

    /// Checks that all ranks' particles have finite positions that can be painted.
    fn check_paintable(&self, displacement: &[f32]) -> Result<()> {
        let per_cell = (self.config.mesh as f64 / self.config.box_size) as f32;
        let is_lost = |row: &&[f32; 3]| !row.iter().all(|d| (d * per_cell).abs() < PAINTABLE_CELLS);
        check_lost(self.comms.world(), displacement.as_chunks().0.iter().filter(is_lost).count() as u64)
    }

    /// [`Config::rows`] of this rank.
    pub fn rows(&self) -> impl Iterator<Item = u64> + use<> {
        config::rows(&self.lattice.own, self.config.particles)
    }

    /// Returns the parameters of the run.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the linear power spectrum.
    pub fn linear_power(&self) -> &LinearPower {
        &self.power
    }

    /// Returns the mesh of the forces and the [density](Self::density), without ghost cells.
    #[must_use]
    pub fn cell_mesh(&self) -> &Mesh {
        &self.cell_mesh
    }

    /// Returns the mesh of the sites of the particles and of the white noise, without ghost cells.
    #[must_use]
    pub fn site_mesh(&self) -> &Mesh {
        &self.site_mesh
    }

    /// Returns the process grid.
    pub fn grid(&self) -> Grid {
        self.comms.grid()
    }

    /// Returns the last step of its schedule; more than [`Config::steps`] when snapshots cut steps.
    pub fn steps(&self) -> usize {
        last_step(&self.ops)
    }

    /// Bytes and messages that this rank has exchanged with others for the run: transforms, ghost
    /// cells and moves of particles, without those of files and clouds.
    pub fn cost(&self) -> Cost {
        self.comms.cost() + self.migration.as_ref().map_or_else(Cost::default, |migration| migration.cost)
    }

    /// Runs the schedule to its end. On every rank `reached` is called where the run begins (at the
    /// start, or at the step that it was resumed at) and after each step, with the work so far
    /// submitted but not waited for. Collective.
    ///
    /// A run whose schedule has ended stays as it is; a run that an error of `reached` ended
    /// continues there.
    ///
    /// # Errors
    /// Those of `reached`, and [`SimulationError`]s of the device, the ranks and lost particles.
    pub fn run<E: From<SimulationError>>(
        &mut self,
        rank: &mut Rank,
        mut reached: impl FnMut(&mut Self, &mut Rank, Reached) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(&op) = self.ops.get(self.done) {
            let activity = timeline::activity!("operation", name = operation_name(op));
            self.take_operation(rank, op)?;
            drop(activity);
            if let StepOp::Reached { a, step } = op {
                let snapshot = self.config.snapshots.contains(&a);
                reached(self, rank, Reached { a, step, snapshot })?;
            }
            self.done += 1;
        }
        self.settle(rank)?;
        self.force.forget();
        Ok(self.force.check(&mut rank.recorder, &self.comms)?)
    }

    /// Does the next operation of a run from its start to its end, in which particles may move.
    fn take_operation(&mut self, rank: &mut Rank, op: StepOp) -> Result<()> {
        if op == StepOp::Force {
            self.migrate_if_due(rank)?;
        }
        self.execute(rank, op)
    }

    /// Does an operation of the schedule; where a step ends, the work so far is submitted.
    fn execute(&mut self, rank: &mut Rank, op: StepOp) -> Result<()> {
        match op {
            StepOp::Force => self.solve(rank)?,
            StepOp::Kick { keep, factor } => self.then(rank, |push| push.kick(keep, factor))?,
            StepOp::Drift { factor } => self.then(rank, |push| push.drift(factor))?,
            StepOp::Reached { a, .. } => {
                rank.recorder.submit()?;
                self.scale_factor = a;
            }
        }
        Ok(())
    }

    /// Does an operation that has been done from the same state before.
    fn repeat(&mut self, rank: &mut Rank, op: StepOp) -> Result<()> {
        if op == StepOp::Force {
            self.settle(rank)?;
            self.force.seen();
        }
        self.execute(rank, op)
    }

    /// Computes the force of where the particles are.
    fn solve(&mut self, rank: &mut Rank) -> Result<()> {
        let (force, mut at) = self.force_at(rank)?;
        // The array of the force before, which these kicks read, is free again.
        at.recorder.submit()?;
        force.solve(&mut at)
    }

    /// Settles the particles, and returns the force and its context with them where they are.
    fn force_at<'a>(&'a mut self, rank: &'a mut Rank) -> Result<(&'a mut Force, ForceContext<'a>)> {
        self.settle(rank)?;
        let Simulation { force, comms, lattice, sites, displacement, .. } = self;
        let particles = particles_at(lattice, sites.as_ref(), displacement);
        Ok((force, ForceContext { recorder: &mut rank.recorder, comms, particles }))
    }

    /// Adds a kick or drift to those that were not recorded yet, and records these before where
    /// they do not go together.
    fn then(&mut self, rank: &mut Rank, add: impl Fn(&mut Push) -> bool) -> Result<()> {
        if !add(&mut self.push) {
            self.settle(rank)?;
            add(&mut self.push);
        }
        Ok(())
    }

    /// Records the kicks and drifts that were not yet: for all that looks at particles. Local to
    /// this rank.
    fn settle(&mut self, rank: &mut Rank) -> Result<()> {
        if self.is_released {
            let why = "its particles were released, and what was called needs them; upload them first".into();
            return Err(DeviceError::Misuse { what: "Simulation".into(), why }.into());
        }
        let push = std::mem::take(&mut self.push);
        let particles = particles_at(&self.lattice, self.sites.as_ref(), &self.displacement);
        self.force.push(&mut rank.recorder, particles, [&self.displacement, &self.momentum], &push)
    }

    /// Displacements and momenta of this rank's particles: rows of three numbers, in C order of its
    /// sites. Collective. Waits for the device.
    ///
    /// # Errors
    /// [`DeviceError`]; [`SimulationError::Lost`] and [`NotFinite`](SimulationError::NotFinite),
    /// the same on all ranks.
    pub fn phase_space(&mut self, rank: &mut Rank) -> Result<[Vec<f32>; 2]> {
        let way = self.way_to_sites(rank)?;
        self.force.check(&mut rank.recorder, &self.comms)?;
        let displacement = self.rows_of(rank, &way, Quantity::Displacement)?;
        let momentum = self.rows_of(rank, &way, Quantity::Momentum)?;
        self.check_paintable(&displacement)?;
        self.check_finite("momenta", &momentum, 3)?;
        Ok([displacement, momentum])
    }

    /// Returns the accelerations `-grad phi` of the particles where they are, by axis, in C order
    /// of this rank's sites. It computes the force. Collective. Waits for the device.
    ///
    /// # Errors
    /// Same as [`phase_space`](Self::phase_space).
    pub fn accelerations(&mut self, rank: &mut Rank) -> Result<[Vec<f32>; 3]> {
        self.solve(rank)?;
        let way = self.way_to_sites(rank)?;
        let particles = particles_at(&self.lattice, self.sites.as_ref(), &self.displacement);
        let mut of_axis = |axis: u32| {
            let out = rank.gpu.array::<f32>("pm::acceleration", particles.len())?;
            self.force.readout(&mut rank.recorder, particles, axis..axis + 1, &out)?;
            Ok::<_, SimulationError>(out)
        };
        let here = [of_axis(0)?, of_axis(1)?, of_axis(2)?];
        let accelerations = way.columns(rank, &here)?;
        self.force.check(&mut rank.recorder, &self.comms)?;
        let mut host = |axis: usize| rank.recorder.download(&accelerations[axis], 0, self.lattice.len());
        Ok([host(0)?, host(1)?, host(2)?])
    }

    /// Computes the density on [`cell_mesh`](Self::cell_mesh), whose mean is 1.
    /// [Collective](Rank); blocks.
    ///
    /// # Errors
    /// Same as [`phase_space`](Self::phase_space).
    pub fn density(&mut self, rank: &mut Rank) -> Result<Field> {
        let density = rank.new_field(&self.cell_mesh, 1)?;
        self.record_density(rank, density.array())?;
        self.force.check(&mut rank.recorder, &self.comms)?;
        Ok(density)
    }

    /// Records the [density](Self::density).
    fn record_density(&mut self, rank: &mut Rank, out: &Array<f32>) -> Result<()> {
        let (force, mut at) = self.force_at(rank)?;
        force.density(&mut at, 0.0, out)
    }

    /// Settles the particles, and widens the ghost cells of the force mesh to what they need.
    fn widen(&mut self, rank: &mut Rank) -> Result<()> {
        let (force, mut at) = self.force_at(rank)?;
        force.widen(&mut at)
    }

    /// Returns the power spectrum of the density on the force mesh, without correction for the
    /// window, in (Mpc/h)^3 over h/Mpc. Collective; all ranks get the result.
    ///
    /// # Errors
    /// Same as [`phase_space`](Self::phase_space), and errors of [`ModeBinner::measure`].
    pub fn power(&mut self, rank: &mut Rank) -> Result<Vec<Bin>> {
        let (force, mut at) = self.force_at(rank)?;
        let spectrum = force.contrast(&mut at)?;
        self.force.check(&mut rank.recorder, &self.comms)?;
        let part = self.force.transform.spectrum_part();
        let geometry = SpectrumGeometry { shape: self.config.cells(), size: self.config.size(), part };
        let modes = Modes { modes: &spectrum, shifted: None, window: None };
        Ok(self.binner.measure(&mut rank.recorder, &rank.comm, &geometry, modes)?)
    }

    /// Returns the bytes that the kernels of this rank's schedule read and write in device memory:
    /// counted, not measured, without the initial conditions and the ghost cells. For a resumed
    /// run, the bytes of the remaining steps.
    pub fn traffic(&self) -> u64 {
        self.force_traffic().schedule(&self.ops)
    }

    /// Returns what its bytes depend on.
    fn force_traffic(&self) -> Traffic {
        let cells = extent(&self.force.mesh.layout().own).iter().product();
        let (paint, filter) = (self.force.paint, self.force.filter.traffic());
        Traffic { particles: self.lattice.len(), cells, paint, filter }
    }

    /// Returns the scale factor that the run reaches after the present one.
    fn next_epoch(&self) -> Option<f64> {
        self.ops.get(self.done + 1..)?.iter().find_map(StepOp::epoch)
    }

    /// Present scale factor of the particles.
    pub fn scale_factor(&self) -> f64 {
        self.scale_factor
    }
}

/// Arrays for the displacements and the momenta of a rank's particles.
fn particles(rank: &Rank, lattice: &Lattice) -> Result<[[Array<f32>; 3]; 2], DeviceError> {
    let field = |what: &str| rank.gpu.array::<f32>(what, lattice.len());
    let three = |what: &str| Ok::<_, DeviceError>([field(what)?, field(what)?, field(what)?]);
    Ok([three("pm::displacement")?, three("pm::momentum")?])
}

/// Returns the name of an operation in timelines.
fn operation_name(op: StepOp) -> &'static str {
    match op {
        StepOp::Force => "force",
        StepOp::Kick { .. } => "kick",
        StepOp::Drift { .. } => "drift",
        StepOp::Reached { .. } => "end of step",
    }
}

/// Returns the kernels of the room.
pub(crate) fn kernels() -> Vec<KernelSource> {
    white_noise::kernels()
        .into_iter()
        .chain(rows::kernels())
        .chain(moves::kernels())
        .chain([light_cone::kernel()])
        .collect()
}
