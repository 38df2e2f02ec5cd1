//! A cosmological particle-mesh simulation, distributed over ranks.
//!
//! | who | does |
//! |---|---|
//! | [`Config`] | says what to run; checks it; counts the memory it needs |
//! | [`start`](start()) | Lagrangian perturbation theory: displacements and momenta |
//! | [`Force`] | paint, solve, read: accelerations |
//! | [`Simulation`] | the particles of one rank; runs a schedule of kicks, drifts and forces |
//!
//! Particles are the sites of a lattice and stay with the rank that owns their site; a particle's place is its site plus
//! an `f32` displacement. What a rank paints beyond its own cells goes to their owners through a halo that grows with
//! the displacements. Units and equations are those of [`cosmology`](crate::cosmology).
//!
//! **Same result on any number of ranks, to the bit**: noise is a function of the site, a line's transform does not
//! depend on where it lies, painting is integer, and sums for spectra are exact.

mod config;
mod error;
mod force;
mod output;
#[cfg(feature = "hdf5")]
mod snapshot;
mod start;

pub use config::{Config, Memory};
pub use error::SimulationError;
pub use force::Force;
pub use output::fingerprint;
#[cfg(feature = "hdf5")]
pub use snapshot::seal_snapshot_together;
pub use start::{Start, start};

use crate::Context;
use crate::cosmology::{LinearPower, Op, TransferKind, fill_white_noise, mode_amplitudes, resume_from, schedule};
use crate::exchange::GridComms;
use crate::gpu::{Array, Recorder};
use crate::grid::{Box3, Cost, Grid, extent};
use crate::mesh::{Axpby, Bin, Lattice, Particles, SpectrumGeometry, power_spectrum};

/// The particles of one rank and what moves them.
pub struct Simulation {
    config: Config,
    power: LinearPower,
    recorder: Recorder,
    lines: GridComms,
    lattice: Lattice,
    force: Force,
    axpby: Axpby,
    displacement: [Array<f32>; 3],
    momentum: [Array<f32>; 3],
    acceleration: [Array<f32>; 3],
    /// Whether the accelerations are those of a force.
    forced: bool,
    /// What is to be done since the start or the snapshot that it went on from, and how much of it has been done.
    ops: Vec<Op>,
    done: usize,
    scale_factor: f64,
}

/// Cells beyond which a displacement cannot be painted: `sane` in `window.wgsl`.
const FARTHEST: f32 = 4_194_304.0;

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Scale factor.
    pub a: f64,
    /// Step, of [`Simulation::steps`].
    pub step: usize,
    /// Whether this scale factor was asked for as a snapshot.
    pub snapshot: bool,
}

/// White noise on the lattice.
pub enum Noise<'a> {
    /// From the seed of the configuration.
    Seed,
    /// The values of this rank's sites, C order, as [`Simulation::sites`] lists them.
    Values(&'a [f32]),
}

impl Simulation {
    /// Checks `config`, plans it on `rank` and makes the start. All ranks call it with the same configuration.
    ///
    /// # Errors
    /// [`SimulationError`] for parameters that cannot be, too little memory, noise that is not finite or not one value a
    /// site; other [`SimulationError`]s of the layers below.
    pub fn new(rank: &Context, config: Config, noise: Noise<'_>) -> Result<Self, SimulationError> {
        let mut simulation = Self::plan(rank, config, 0)?;
        let values = match noise {
            Noise::Seed => simulation.noise(),
            Noise::Values(values) => values.to_vec(),
        };
        simulation.fits("white noise", &values)?;
        simulation.finite("values of the white noise", &[&values])?;
        let (config, recorder, lines) = (&simulation.config, &mut simulation.recorder, &mut simulation.lines);
        let n = config.particles as usize;
        let amplitudes = mode_amplitudes(&simulation.power, n, config.box_size)?;
        let growth = simulation.power.growth().at(config.a_start)?;
        let start = start(config, recorder, lines, &growth, &values, &amplitudes)?;
        (simulation.displacement, simulation.momentum) = (start.displacement, start.momentum);
        Ok(simulation)
    }

    /// A run that goes on from the displacements and momenta of step `step`, in the form of
    /// [`phase_space`](Self::phase_space). It is what the run was that reached this step: it gives the same result as one
    /// that was never interrupted, also where no step is left.
    ///
    /// # Errors
    /// As [`new`](Self::new), of the state instead of noise; [`CosmologyError`](crate::cosmology::CosmologyError) when
    /// the schedule has no such step.
    pub fn resume(
        rank: &Context,
        config: Config,
        step: usize,
        state: &[[Vec<f32>; 3]; 2],
    ) -> Result<Self, SimulationError> {
        let mut simulation = Self::plan(rank, config, step)?;
        for (what, values) in ["displacements", "momenta"].into_iter().zip(state) {
            values.iter().try_for_each(|values| simulation.fits(what, values))?;
            simulation.finite(what, &values.each_ref().map(Vec::as_slice))?;
        }
        for axis in 0..3 {
            simulation.recorder.upload(&simulation.displacement[axis], 0, &state[0][axis])?;
            simulation.recorder.upload(&simulation.momentum[axis], 0, &state[1][axis])?;
        }
        Ok(simulation)
    }

    /// A run that begins at step `step`, but for its particles.
    fn plan(rank: &Context, config: Config, step: usize) -> Result<Self, SimulationError> {
        config.validate()?;
        let grid = config.grid(rank.comm.size())?;
        let power = LinearPower::new(config.cosmology, TransferKind::Full)?;
        let ops =
            schedule(power.growth(), config.scheme, config.a_start, config.a_end, config.steps, &config.snapshots)?;
        let ops = resume_from(&ops, step)?;
        let reached = |op: &Op| if let Op::Reached { a, .. } = op { Some(*a) } else { None };
        let scale_factor = ops.iter().find_map(reached).unwrap_or(config.a_start);
        // A halo as wide as typical displacements are today.
        let memory = config.memory(grid, (10.0 / config.box_size * config.mesh as f64).ceil() as u64);
        if let Some(available) = rank.gpu.capabilities().memory.map(|all| all / rank.sharing as u64)
            && memory.total() > available
        {
            let (needed, sharing) = (memory.total(), rank.sharing);
            return Err(SimulationError::Memory { needed, detail: memory.to_string(), available, sharing });
        }
        let mut recorder = Recorder::new(&rank.gpu)?;
        let lines = GridComms::new(&rank.comm, grid)?;
        let lattice = Lattice::new(config.sites(), grid, rank.comm.rank());
        let force = Force::new(&config, &mut recorder, &lines)?;
        let field = |what: &str| rank.gpu.array::<f32>(what, lattice.len());
        let three = |what: &str| Ok::<_, SimulationError>([field(what)?, field(what)?, field(what)?]);
        Ok(Simulation {
            displacement: three("pm::displacement")?,
            momentum: three("pm::momentum")?,
            acceleration: three("pm::acceleration")?,
            forced: false,
            done: 0,
            scale_factor,
            axpby: Axpby::default(),
            config,
            power,
            recorder,
            lines,
            lattice,
            force,
            ops,
        })
    }

    /// White noise of the configuration's seed on this rank's sites: a function of the site alone.
    fn noise(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.lattice.len() as usize];
        let rows = self.rows();
        let length = self.config.particles as usize;
        for (row, out) in rows.zip(values.chunks_mut(length.max(1))) {
            fill_white_noise(self.config.seed, row, out);
        }
        values
    }

    /// Checks that there is one value a site of this rank.
    fn fits(&self, what: &'static str, values: &[f32]) -> Result<(), SimulationError> {
        let (have, want) = (values.len() as u64, self.lattice.len());
        if have == want { Ok(()) } else { Err(SimulationError::WrongLength { what, have, want }) }
    }

    /// Checks that values of all ranks' sites are finite; `arrays` have one value a site each.
    fn finite(&self, what: &'static str, arrays: &[&[f32]]) -> Result<(), SimulationError> {
        let n = self.config.particles;
        let first =
            |array: &&[f32]| array.iter().position(|value| !value.is_finite()).map(|at| (at, array[at].to_bits()));
        let bad = arrays.iter().filter_map(first).min();
        let index = bad.map(|(at, _)| self.rows().nth(at / n as usize).unwrap_or(0) + at as u64 % n);
        // All ranks must come to the same verdict, and name the first.
        let own = [index.unwrap_or(u64::MAX), bad.map_or(0, |(_, bits)| bits.into())];
        let all = self.lines.world().all_gather(&own)?;
        match all.chunks(2).min_by_key(|found| found[0]) {
            Some(&[index, bits]) if index < u64::MAX => {
                Err(SimulationError::NotFinite { what, index, value: f32::from_bits(bits as u32) })
            }
            _ => Ok(()),
        }
    }

    /// Checks that all ranks' particles are where they could be painted.
    fn in_reach(&self, displacement: &[Vec<f32>; 3]) -> Result<(), SimulationError> {
        let per_cell = (self.config.mesh as f64 / self.config.box_size) as f32;
        let [x, y, z] = displacement;
        let lost = |((x, y), z): ((&f32, &f32), &f32)| ![x, y, z].iter().all(|d| (*d * per_cell).abs() < FARTHEST);
        let mut lost = [x.iter().zip(y).zip(z).filter(|&of| lost(of)).count() as u64];
        self.lines.world().all_reduce(&mut lost, crate::comm::Op::Sum)?;
        if lost[0] > 0 { Err(SimulationError::Lost { particles: lost[0] }) } else { Ok(()) }
    }

    /// First global index of each row (all sites along the last axis) of this rank, in order.
    pub fn rows(&self) -> impl Iterator<Item = u64> + use<> {
        let (n, own) = (self.config.particles, self.lattice.own.clone());
        own[0].clone().flat_map(move |i| own[1].clone().map(move |j| (i * n + j) * n))
    }

    /// What it was asked to do.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The linear power spectrum.
    pub fn linear_power(&self) -> &LinearPower {
        &self.power
    }

    /// The process grid.
    pub fn grid(&self) -> Grid {
        self.lines.grid()
    }

    /// This rank's sites.
    pub fn sites(&self) -> &Lattice {
        &self.lattice
    }

    /// The last step of its schedule; more than [`Config::steps`] when snapshots cut steps.
    pub fn steps(&self) -> usize {
        self.ops
            .iter()
            .filter_map(|op| if let Op::Reached { step, .. } = op { Some(*step) } else { None })
            .max()
            .unwrap_or(0)
    }

    /// What it has recorded and submitted, and bytes exchanged.
    pub fn counts(&self) -> (crate::gpu::Counts, Cost) {
        (self.recorder.counts(), self.lines.cost())
    }

    /// The recorder, for timing.
    pub fn recorder(&mut self) -> &mut Recorder {
        &mut self.recorder
    }

    /// The force solver.
    pub fn force(&self) -> &Force {
        &self.force
    }

    /// Runs the schedule to its end. `reached` is called where the run begins (at the start, or at the step that it goes
    /// on from) and after each step, on every rank; the device may still be at work then, and what `reached` asks for
    /// waits. A run that has ended stays as it is; one that an error of `reached` ended goes on there.
    ///
    /// # Errors
    /// Those of `reached`, and [`SimulationError`]s of the device, the ranks and lost particles.
    pub fn run<E: From<SimulationError>>(
        &mut self,
        mut reached: impl FnMut(&mut Self, Reached) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(&op) = self.ops.get(self.done) {
            match op {
                Op::Force => self.accelerate()?,
                Op::Kick { keep, factor } => self.kick(keep, factor)?,
                Op::Drift { factor } => self.drift(factor)?,
                Op::Reached { a, step } => {
                    self.recorder.submit().map_err(SimulationError::from)?;
                    self.scale_factor = a;
                    let snapshot = self.config.snapshots.contains(&a);
                    reached(self, Reached { a, step, snapshot })?;
                }
            }
            self.done += 1;
        }
        self.force.check(&mut self.recorder, &self.lines)?;
        Ok(())
    }

    /// `acceleration = -grad phi` at the particles' present places.
    fn accelerate(&mut self) -> Result<(), SimulationError> {
        self.force.accelerate(
            &mut self.recorder,
            &mut self.lines,
            &self.lattice,
            &self.displacement,
            &self.acceleration,
        )?;
        self.forced = true;
        Ok(())
    }

    /// `p = keep p + factor acceleration`.
    fn kick(&mut self, keep: f64, factor: f64) -> Result<(), SimulationError> {
        for axis in 0..3 {
            self.axpby.record(&mut self.recorder, factor, &self.acceleration[axis], keep, &self.momentum[axis])?;
        }
        Ok(())
    }

    /// `x += factor p`.
    fn drift(&mut self, factor: f64) -> Result<(), SimulationError> {
        for axis in 0..3 {
            self.axpby.record(&mut self.recorder, factor, &self.momentum[axis], 1.0, &self.displacement[axis])?;
        }
        Ok(())
    }

    /// Displacements and momenta of this rank's particles, by axis, C order over its sites. All ranks call it. Waits for
    /// the device.
    ///
    /// # Errors
    /// [`DeviceError`](crate::gpu::DeviceError); [`SimulationError::Lost`] and [`NotFinite`](SimulationError::NotFinite),
    /// the same on all ranks.
    pub fn phase_space(&mut self) -> Result<[[Vec<f32>; 3]; 2], SimulationError> {
        self.force.check(&mut self.recorder, &self.lines)?;
        let n = self.lattice.len();
        let mut read = |arrays: &[Array<f32>; 3]| -> Result<[Vec<f32>; 3], SimulationError> {
            let mut axis = |a: usize| self.recorder.download(&arrays[a], 0, n);
            Ok([axis(0)?, axis(1)?, axis(2)?])
        };
        let (displacement, momentum) = (read(&self.displacement)?, read(&self.momentum)?);
        self.in_reach(&displacement)?;
        self.finite("momenta", &momentum.each_ref().map(Vec::as_slice))?;
        Ok([displacement, momentum])
    }

    /// The accelerations of the last force, as [`phase_space`](Self::phase_space) gives momenta. No snapshot has them: a
    /// run that went on from its last step has none.
    ///
    /// # Errors
    /// [`SimulationError::NoForce`] before the first force; [`DeviceError`](crate::gpu::DeviceError).
    pub fn accelerations(&mut self) -> Result<[Vec<f32>; 3], SimulationError> {
        if !self.forced {
            return Err(SimulationError::NoForce);
        }
        let n = self.lattice.len();
        let mut axis = |a: usize| self.recorder.download(&self.acceleration[a], 0, n);
        Ok([axis(0)?, axis(1)?, axis(2)?])
    }

    /// The density on this rank's own cells of the force mesh, mean 1, C order, and which cells they are. Waits.
    ///
    /// # Errors
    /// As [`phase_space`](Self::phase_space).
    pub fn density(&mut self) -> Result<(Box3, Vec<f32>), SimulationError> {
        let own = self.force.layout().own.clone();
        let out = self.recorder.gpu().array::<f32>("pm::density", extent(&own).iter().product())?;
        let [x, y, z] = &self.displacement;
        let particles = Particles::Sites { lattice: &self.lattice, displacement: [x, y, z] };
        self.force.density(&mut self.recorder, &mut self.lines, particles, 0.0, &out)?;
        self.force.check(&mut self.recorder, &self.lines)?;
        let density = self.recorder.download(&out, 0, out.len())?;
        Ok((own, density))
    }

    /// The power spectrum of the density on the force mesh, without correction for the window. All ranks call it and all
    /// get the result.
    ///
    /// # Errors
    /// As [`phase_space`](Self::phase_space), and those of [`power_spectrum`].
    pub fn power(&mut self) -> Result<Vec<Bin>, SimulationError> {
        let (modes, geometry) = self.spectrum()?;
        Ok(power_spectrum(self.lines.world(), &geometry, |index, _| {
            let [re, im] = modes[index].map(f64::from);
            re * re + im * im
        })?)
    }

    /// The spectrum of the density contrast on the force mesh: this rank's modes, and which they are. Waits.
    ///
    /// # Errors
    /// As [`phase_space`](Self::phase_space).
    pub fn spectrum(&mut self) -> Result<(Vec<[f32; 2]>, SpectrumGeometry), SimulationError> {
        let [x, y, z] = &self.displacement;
        let particles = Particles::Sites { lattice: &self.lattice, displacement: [x, y, z] };
        let spectrum = self.force.contrast(&mut self.recorder, &mut self.lines, particles)?;
        self.force.check(&mut self.recorder, &self.lines)?;
        let part = self.force.transform().spectrum_part();
        let modes = self.recorder.download(&spectrum, 0, extent(&part).iter().product())?;
        Ok((modes, SpectrumGeometry { shape: self.config.cells(), size: self.config.size(), part }))
    }

    /// All ranks.
    pub fn comm(&self) -> &crate::comm::Communicator {
        self.lines.world()
    }

    /// Bytes that this rank's schedule moves through device memory, reading and writing, as its kernels are written:
    /// counted, not measured, without the start and what halos add. A resumed run's is that of the steps left.
    pub fn traffic(&self) -> u64 {
        let (particles, cells) = (self.lattice.len(), extent(&self.force.layout().own).iter().product::<u64>());
        let nodes = u64::from(self.config.window.order()).pow(3);
        let transforms = self.force.filter().traffic();
        let paint = 8 * cells + particles * (12 + 8 * nodes) + 12 * cells;
        let read = 3 * particles * (12 + 4 * nodes + 4);
        let op = |op: &Op| match op {
            Op::Force => transforms + paint + read,
            Op::Kick { .. } | Op::Drift { .. } => 3 * 12 * particles,
            Op::Reached { .. } => 0,
        };
        self.ops.iter().map(op).sum()
    }

    /// Scale factor that the particles are at.
    pub fn scale_factor(&self) -> f64 {
        self.scale_factor
    }
}
