//! Gradients of a run: from a loss of the final particles back to the white noise and the cosmological parameters.
//!
//! | item | what it is |
//! |---|---|
//! | [`Gradient`] | a run and what its adjoint needs, made once for any number of evaluations |
//! | [`Observer`] | what a loss sees: the run at its end, and the cotangents that it adds to |
//! | [`Sensitivity`] | the loss and its derivatives |
//! | `force`, `start` | the adjoints of the force and of the initial conditions |
//! | `parameters` | how factors of kicks, drifts and the start follow from the parameters, on the host |
//!
//! # Method
//! Discretise, then differentiate: the adjoint of each operation of the schedule, in reverse, so that the result is the derivative of what the run
//! computes (Li et al. 2024, ApJS 270, 36, which integrates backwards in time instead of keeping states). With cotangents `xi` of positions,
//! `pi` of momenta and `alpha` of accelerations:
//!
//! ```text
//! kick  p = keep p + f a:   alpha += f pi, then pi = keep pi        f_bar = pi . a     keep_bar = pi . p
//! drift x = x + f p:        pi += f xi                              f_bar = xi . p
//! force a = acc(x):         xi += (d acc / d x)^T alpha, then alpha = 0
//! ```
//!
//! States are kept where forces are computed: of every `checkpoint_every`-th force from the run itself, of those between from a second run
//! of that part, whose bits are the first one's. So a backward step takes one force and one adjoint, and another force where states were
//! left out. Everything is in fixed point or in a fixed order: the gradient has the same bits on any number of ranks.

mod cotangents;
mod dots;
mod force;
mod parameters;
mod start;
mod states;
mod vectors;

pub use cotangents::{Cotangents, Observer};
pub use parameters::CosmologyGradient;
pub use states::GradientMemory;

use std::fmt;

use super::start::LatticeFields;
use super::{Config, Noise, Simulation, SimulationError};
use crate::Context;
use crate::cosmology::{LptFactors, StepOp, lpt_factors, mode_amplitudes};
use crate::fft::Transform;
use crate::gpu::{Array, Recorder};
use crate::mesh::Axpby;
use dots::Dots;
use force::ForceAdjoint;
use parameters::{COUNT, Layout};
use start::StartCotangents;
use states::States;

/// A loss of the final state of a run, and its derivatives.
pub struct Sensitivity {
    /// The loss.
    pub loss: f64,
    /// The derivatives by the white noise of this rank's sites, C order.
    pub white_noise: Array<f32>,
    /// The derivatives by the displacements at the start, vectors in one array: all along x, then y, then z.
    pub positions: Array<f32>,
    /// The derivatives by the momenta at the start, likewise.
    pub momenta: Array<f32>,
    /// The derivatives by the cosmological parameters, with everything that depends on them: the spectrum of the noise, the start, the
    /// factors of kicks and drifts, the force. The same on all ranks.
    pub cosmology: CosmologyGradient,
}

/// A run that can be differentiated: evaluates a loss of its final state and the derivatives.
///
/// ```no_run
/// use meshloom::pm::{Config, Gradient, Noise, SimulationError};
///
/// # fn example(context: &mut meshloom::Context) -> Result<(), SimulationError> {
/// let mut gradient = Gradient::new(context, Config { particles: 32, mesh: 32, ..Config::default() }, 1)?;
/// // The derivative of the power in the first bin.
/// let found = gradient.evaluate(context, Noise::Seed, |observer, context| {
///     let spectrum = observer.run().power(context)?;
///     let mut by = vec![0.0; spectrum.len()];
///     by[0] = 1.0;
///     observer.add_power(context, &spectrum, &by)?;
///     Ok::<_, SimulationError>(spectrum[0].power)
/// })?;
/// assert!(found.cosmology.primordial_amplitude > 0.0);
/// # Ok(())
/// # }
/// ```
pub struct Gradient {
    run: Simulation,
    adjoint: ForceAdjoint,
    states: States,
    bars: Cotangents,
    /// Cotangents of accelerations, accelerations and momenta: vectors in one array each.
    accelerations: [Array<f32>; 2],
    momenta: Array<f32>,
    noise: Array<f32>,
    amplitudes: Vec<f32>,
    derivatives: [Vec<f32>; COUNT],
    factors: LptFactors,
    layout: Layout,
    dots: Dots,
    axpby: Axpby,
}

impl fmt::Debug for Gradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gradient").field("run", &self.run).field("states", &self.states).finish_non_exhaustive()
    }
}

impl Gradient {
    /// A run with the parameters of `config` and its adjoint, with a state kept of every `checkpoint_every`-th force: 1 is fastest, and about
    /// the root of the number of steps takes least memory ([`GradientMemory`]). All ranks call it with the same values.
    ///
    /// # Errors
    /// As [`Simulation::new`]; [`SimulationError::OutOfRange`] for 0; [`SimulationError::Memory`] before anything is computed.
    pub fn new(context: &mut Context, config: Config, checkpoint_every: usize) -> Result<Self, SimulationError> {
        if checkpoint_every == 0 {
            let (what, value) = ("checkpoint_every", "0".into());
            return Err(SimulationError::OutOfRange { what, value, allowed: "1 or more".into() });
        }
        let run = Simulation::plan(context, config, 0)?;
        let (config, particles) = (&run.config, run.lattice.len());
        let memory = GradientMemory::new(config, run.grid(), &run.ops, checkpoint_every);
        memory.check(context)?;
        let jacobian = parameters::jacobian(config)?;
        let power = &run.power;
        let (gpu, n) = (context.gpu.clone(), config.particles as usize);
        let vectors = |what: &str| gpu.array::<f32>(what, 3 * particles);
        Ok(Gradient {
            adjoint: ForceAdjoint::new(config, &mut context.recorder, &run.comms)?,
            states: States::new(&gpu, particles, memory)?,
            bars: Cotangents::new(&gpu, particles)?,
            accelerations: [vectors("pm::acceleration_cotangents")?, vectors("pm::accelerations")?],
            momenta: vectors("pm::momenta")?,
            noise: gpu.array("pm::noise", particles)?,
            amplitudes: mode_amplitudes(power, n, config.box_size)?,
            derivatives: parameters::amplitude_derivatives(config)?,
            factors: lpt_factors(&power.growth().at(config.a_start)?, config.lpt),
            layout: Layout::new(&run.ops),
            dots: Dots::new(jacobian, config.particles.pow(3)),
            axpby: Axpby::default(),
            run,
        })
    }

    /// Device memory that an evaluation takes, which was there when it was made.
    pub fn memory(&self) -> &GradientMemory {
        self.states.memory()
    }

    /// The parameters of the run.
    pub fn config(&self) -> &Config {
        &self.run.config
    }

    /// Runs from `noise`, calls `loss` with the final state, and goes back. The loss adds its derivatives to the [`Cotangents`] and returns its value, which
    /// is the same on all ranks. All ranks call it. Waits for the device.
    ///
    /// # Errors
    /// Those of `loss`; [`SimulationError`] as of [`Simulation::new`] and [`Simulation::run`]; [`SimulationError::Loss`] when the loss or a
    /// derivative is not finite.
    pub fn evaluate<E: From<SimulationError>>(
        &mut self,
        context: &mut Context,
        noise: Noise<'_>,
        loss: impl FnOnce(&mut Observer<'_>, &mut Context) -> Result<f64, E>,
    ) -> Result<Sensitivity, E> {
        self.forward(context, noise)?;
        self.bars.clear(&mut context.recorder);
        let mut observer = Observer { run: &mut self.run, adjoint: &self.adjoint, bars: &self.bars };
        let value = loss(&mut observer, context)?;
        Ok(self.backward(context, value)?)
    }

    /// The run itself, with its checkpoints.
    fn forward(&mut self, context: &mut Context, noise: Noise<'_>) -> Result<(), SimulationError> {
        let noise = self.run.noise(context, noise)?;
        context.recorder.copy(&noise, 0, &self.noise, 0, noise.len())?;
        self.run.begin(context, noise)?;
        self.states.clear();
        for at in 0..self.run.ops.len() {
            let op = self.run.ops[at];
            if op == StepOp::Force {
                self.run.settle(context)?;
                self.states.passed(context, &self.run, at)?;
            }
            self.run.execute(context, op)?;
        }
        self.run.settle(context)?;
        self.run.done = self.run.ops.len();
        self.run.force.check(&mut context.recorder, &self.run.comms)
    }

    /// From the cotangents of the end to those of the noise.
    fn backward(&mut self, context: &mut Context, loss: f64) -> Result<Sensitivity, SimulationError> {
        self.dots.clear();
        context.recorder.clear(&self.accelerations[0]);
        let forces = self.states.forces().to_vec();
        let mut end = self.run.ops.len();
        for (number, &at) in forces.iter().enumerate().rev() {
            self.states.restore(context, &mut self.run, number)?;
            self.run.execute(context, StepOp::Force)?;
            self.read_accelerations(context)?;
            self.reverse(context, at + 1..end, number)?;
            self.dots.accelerations(
                &mut context.recorder,
                &context.comm,
                self.run.config.cosmology.omega_m(),
                [&self.accelerations[0], &self.accelerations[1]],
            )?;
            let run = &mut self.run;
            let particles = (&run.force, &run.lattice, &run.displacement);
            let bars = [&self.accelerations[0], &self.bars.positions];
            self.adjoint.accelerations(&mut context.recorder, &mut run.comms, particles, bars)?;
            context.recorder.clear(&self.accelerations[0]);
            context.recorder.submit()?;
            end = at;
        }
        self.run.force.forget();
        // Drifts before the first force: momenta are still those of the start.
        self.reverse(context, 0..end, 0)?;
        self.finish(context, loss)
    }

    /// The accelerations of the force that was solved last.
    fn read_accelerations(&mut self, context: &mut Context) -> Result<(), SimulationError> {
        let (run, count) = (&self.run, self.run.lattice.len());
        let one = context.gpu.array::<f32>("pm::acceleration", count)?;
        for axis in 0..3 {
            run.force.readout(&mut context.recorder, &run.lattice, &run.displacement, axis, &one)?;
            context.recorder.copy(&one, 0, &self.accelerations[1], axis as u64 * count, count)?;
        }
        Ok(())
    }

    /// Goes back over kicks and drifts, all by the accelerations at force `number`.
    fn reverse(
        &mut self,
        context: &mut Context,
        range: std::ops::Range<usize>,
        number: usize,
    ) -> Result<(), SimulationError> {
        for at in range.clone().rev() {
            let op = self.run.ops[at];
            let first = self.layout.operations[at];
            match op {
                StepOp::Kick { keep, factor } => {
                    self.momenta_before(context, range.start..at, number)?;
                    let pi = &self.bars.momenta;
                    let recorder = &mut context.recorder;
                    self.dots.vectors(recorder, &context.comm, first, [pi, &self.momenta])?;
                    self.dots.vectors(recorder, &context.comm, first + 1, [pi, &self.accelerations[1]])?;
                    self.axpby.record(recorder, factor, pi, 1.0, &self.accelerations[0])?;
                    scale(&self.axpby, recorder, keep, pi)?;
                }
                StepOp::Drift { factor } => {
                    self.momenta_before(context, range.start..at, number)?;
                    let xi = &self.bars.positions;
                    let recorder = &mut context.recorder;
                    self.dots.vectors(recorder, &context.comm, first, [xi, &self.momenta])?;
                    self.axpby.record(recorder, factor, xi, 1.0, &self.bars.momenta)?;
                }
                StepOp::Force | StepOp::Reached { .. } => {}
            }
        }
        Ok(())
    }

    /// Records the momenta after the kicks of `range`, from those at force `number` on.
    fn momenta_before(
        &mut self,
        context: &mut Context,
        range: std::ops::Range<usize>,
        number: usize,
    ) -> Result<(), SimulationError> {
        self.states.momenta(&mut context.recorder, number, &self.momenta)?;
        for op in &self.run.ops[range] {
            if let StepOp::Kick { keep, factor } = *op {
                self.axpby.record(&mut context.recorder, factor, &self.accelerations[1], keep, &self.momenta)?;
            }
        }
        Ok(())
    }

    /// The adjoint of the start, and the results.
    fn finish(&mut self, context: &mut Context, loss: f64) -> Result<Sensitivity, SimulationError> {
        let (gpu, run) = (context.gpu.clone(), &mut self.run);
        let (config, comms) = (&run.config, &mut run.comms);
        let transform = Transform::new(&gpu, config.sites(), comms.grid(), comms.rank())?;
        let recorder = &mut context.recorder;
        let mut fields = LatticeFields { config, recorder, comms, transform, axpby: Axpby::default() };
        let bars = StartCotangents {
            positions: [fields.field()?, fields.field()?, fields.field()?],
            momenta: [fields.field()?, fields.field()?, fields.field()?],
            noise: &self.noise,
            amplitudes: &self.amplitudes,
            derivatives: &self.derivatives,
        };
        vectors::unpack(fields.recorder, &self.bars.positions, 0, &bars.positions)?;
        vectors::unpack(fields.recorder, &self.bars.momenta, 0, &bars.momenta)?;
        let white_noise = start::adjoint(&mut fields, &bars, &self.factors, (&mut self.dots, &self.layout))?;
        let [positions, momenta] = [&self.bars.positions, &self.bars.momenta].map(|bar| {
            let copy = gpu.array::<f32>("pm::sensitivity", bar.len())?;
            fields.recorder.copy(bar, 0, &copy, 0, bar.len())?;
            Ok::<_, SimulationError>(copy)
        });
        let cosmology = CosmologyGradient::from(self.dots.fetch(fields.recorder)?);
        let found = Sensitivity { loss, white_noise, positions: positions?, momenta: momenta?, cosmology };
        self.check(context, &found)?;
        Ok(found)
    }

    /// Refuses losses and derivatives that are not finite; the same on all ranks.
    fn check(&self, context: &mut Context, found: &Sensitivity) -> Result<(), SimulationError> {
        let most = context.gpu.array::<u32>("pm::most", 1)?;
        let sum = self.dots.sums();
        sum.magnitude(&mut context.recorder, Some(&context.comm), &found.white_noise, &most)?;
        let finite = context.recorder.download(&most, 0, 1)?[0] < f32::INFINITY.to_bits();
        let CosmologyGradient { omega_m, omega_b, h, n_s, primordial_amplitude } = found.cosmology;
        let finite = finite && [omega_m, omega_b, h, n_s, primordial_amplitude].iter().all(|value| value.is_finite());
        let mut bad = [u64::from(!found.loss.is_finite())];
        context.comm.all_reduce(&mut bad, crate::comm::Op::Max)?;
        match (bad[0], finite) {
            (0, true) => Ok(()),
            (0, false) => Err(SimulationError::Loss { what: "a derivative of the loss" }),
            _ => Err(SimulationError::Loss { what: "the loss" }),
        }
    }
}

/// `y = factor y`.
fn scale(axpby: &Axpby, recorder: &mut Recorder, factor: f64, y: &Array<f32>) -> Result<(), SimulationError> {
    if factor == 1.0 {
        return Ok(());
    }
    // The update needs another array for what it adds.
    let copy = recorder.gpu().array::<f32>("pm::copy", y.len())?;
    recorder.copy(y, 0, &copy, 0, y.len())?;
    Ok(axpby.record(recorder, factor, &copy, 0.0, y)?)
}
