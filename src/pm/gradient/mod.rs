//! Gradients of a run: from a loss of the final particles back to the white noise and the
//! cosmological parameters.
//!
//! | item | what it is |
//! |---|---|
//! | [`Gradient`] | a run and what its adjoint needs, made once for any number of evaluations |
//! | [`Observer`] | what a loss sees: the run at its end, and the cotangents that it adds to |
//! | [`Sensitivity`] | the loss and its derivatives |
//! | `sweeps` | over the operations of a run, forwards with its states kept, backwards with cotangents, forwards with tangents |
//! | `force`, `start` | the derivatives of the force and of the initial conditions |
//! | `parameters` | how factors of kicks, drifts and the start follow from the parameters, on the host |
//!
//! # Method
//! Discretize, then differentiate: the adjoint of each operation of the schedule, in reverse, so
//! that the result is the derivative of what the run computes (Li et al. 2024, ApJS 270, 36, which
//! integrates backwards in time instead of keeping states). With cotangents `xi` of positions, `pi`
//! of momenta and `alpha` of accelerations:
//!
//! ```text
//! kick  p = keep p + f a:   alpha += f pi, then pi = keep pi        f_bar = pi . a     keep_bar = pi . p
//! drift x = x + f p:        pi += f xi                              f_bar = xi . p
//! force a = acc(x):         xi += (d acc / d x)^T alpha, then alpha = 0
//! ```
//!
//! Tangents go the other way, beside a run that is made again: `a' = (d acc / d x) x'`, `p' = keep
//! p' + f a' + keep' p + f' a`, `x' = x' + f p' + f' p`.
//!
//! States are kept where forces are computed: of every `checkpoint_every`-th force from the run
//! itself, of those between from a second run of that part, whose bits are the first one's. So a
//! backward step takes one force and one adjoint, and another force where states were left out.
//! Everything is in fixed point or in a fixed order: the gradient has the same bits on any number
//! of ranks.

mod cotangents;
mod dots;
mod force;
mod memory;
mod observer;
mod parameters;
mod start;
mod states;
mod sweeps;
pub(super) mod vectors;

pub use cotangents::Cotangents;
pub use memory::GradientMemory;
pub use observer::Observer;
pub use parameters::CosmologyGradient;
pub(super) use parameters::{
    AMPLITUDE, COUNT, Derivatives, Numbers, by_sigma8, cosmology_values, sigma8_of, with_amplitude,
};
pub(super) use states::States;
pub(super) use sweeps::{Epoch, NumbersTangent, RunTangent, Sweeps, Tape};

use std::fmt;
use std::rc::Rc;

use super::footprint::check_memory;
use super::{Config, Noise, Result, SimulationError};
use crate::field::Field;
use crate::gpu::Array;
use crate::rank::Rank;

/// A loss of the final state of a run, and its derivatives.
pub struct Sensitivity {
    /// The loss.
    pub loss: f64,
    /// The derivatives by the white noise, on [`Simulation::site_mesh`](super::Simulation::site_mesh).
    pub white_noise: Field,
    /// The derivatives by the displacements at the start, vectors in one array: all along x, then
    /// y, then z.
    pub positions: Array<f32>,
    /// The derivatives by the momenta at the start, likewise.
    pub momenta: Array<f32>,
    /// The derivatives by the cosmological parameters, with everything that depends on them: the
    /// spectrum of the noise, the start, the factors of kicks and drifts, the force. The same on
    /// all ranks.
    pub cosmology: CosmologyGradient,
}

/// A run that can be differentiated: evaluates a loss of its final state and the derivatives.
///
/// ```no_run
/// use meshloom::pm::{Config, Gradient, Noise, SimulationError};
///
/// # fn example(rank: &mut meshloom::Rank) -> Result<(), SimulationError> {
/// let mut gradient = Gradient::new(rank, Config { particles: 32, mesh: 32, ..Config::default() }, 1)?;
/// // The derivative of the power in the first bin.
/// let found = gradient.evaluate(rank, Noise::Seed, |observer, rank| {
///     let spectrum = observer.run().power(rank)?;
///     let mut by = vec![0.0; spectrum.len()];
///     by[0] = 1.0;
///     observer.add_power(rank, &spectrum, &by)?;
///     Ok::<_, SimulationError>(spectrum[0].power)
/// })?;
/// assert!(found.cosmology.primordial_amplitude > 0.0);
/// # Ok(())
/// # }
/// ```
pub struct Gradient {
    sweeps: Sweeps,
    tape: Tape,
}

impl fmt::Debug for Gradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gradient").field("run", &self.sweeps.run).field("memory", self.memory()).finish_non_exhaustive()
    }
}

impl Gradient {
    /// Creates a run with the parameters of `config` and its adjoint, with a state kept of every
    /// `checkpoint_every`-th force: 1 is fastest, and about the square root of the number of steps
    /// takes the least memory ([`GradientMemory`]). Collective, with the same values on all ranks.
    ///
    /// # Errors
    /// Same as [`Simulation::new`](crate::pm::Simulation::new); [`SimulationError::OutOfRange`] for
    /// 0; [`SimulationError::Memory`] before anything is computed.
    pub fn new(rank: &mut Rank, config: Config, checkpoint_every: usize) -> Result<Self> {
        let sweeps = Sweeps::new(rank, config)?;
        let memory = sweeps.memory(&rank.gpu, checkpoint_every)?;
        check_memory(rank, memory.total(), &memory)?;
        let (config, recorder) = (&sweeps.run.config, &mut rank.recorder);
        let numbers = Rc::new(Numbers::new(recorder, config, config.cosmology)?);
        let derivatives = Rc::new(Derivatives::new(recorder, config, &numbers)?);
        let noise = recorder.gpu().array("pm::noise", sweeps.run.lattice.len())?;
        let states = States::new(recorder.gpu(), sweeps.run.lattice.len(), &numbers.ops, memory)?;
        Ok(Gradient { sweeps, tape: Tape { noise, numbers, derivatives, states } })
    }

    /// Device memory that an evaluation takes, which was there when it was made.
    pub fn memory(&self) -> &GradientMemory {
        self.tape.memory()
    }

    /// Returns the parameters of the run.
    pub fn config(&self) -> &Config {
        &self.sweeps.run.config
    }

    /// Runs from `noise`, calls `loss` with the final state, and goes back. The loss adds its
    /// derivatives to the [`Cotangents`] and returns its value, which is the same on all ranks. All
    /// ranks call it. Waits for the device.
    ///
    /// # Errors
    /// Those of `loss`; [`SimulationError`] as of [`Simulation::new`](crate::pm::Simulation::new)
    /// and [`Simulation::run`](crate::pm::Simulation::run); [`SimulationError::Loss`] when the loss
    /// or a derivative is not finite.
    pub fn evaluate<E: From<SimulationError>>(
        &mut self,
        rank: &mut Rank,
        noise: Noise<'_>,
        loss: impl FnOnce(&mut Observer<'_>, &mut Rank) -> Result<f64, E>,
    ) -> Result<Sensitivity, E> {
        self.tape.noise = self.sweeps.run.noise(rank, noise)?;
        self.sweeps.forward(rank, &mut self.tape, &[])?;
        self.sweeps.bars.clear(&mut rank.recorder);
        let value = loss(&mut Observer { sweeps: &mut self.sweeps }, rank)?;
        Ok(self.backward(rank, value)?)
    }

    /// From the cotangents of the end to the results.
    fn backward(&mut self, rank: &mut Rank, loss: f64) -> Result<Sensitivity> {
        let white_noise = self.sweeps.backward(rank, &mut self.tape, &[])?;
        let bars = &self.sweeps.bars;
        let recorder = &mut rank.recorder;
        let [positions, momenta] = [bars.positions(), bars.momenta()].map(|bar| {
            let copy = recorder.gpu().array::<f32>("pm::sensitivity", bar.len())?;
            recorder.copy(bar, 0, &copy, 0, bar.len())?;
            Ok::<_, SimulationError>(copy)
        });
        let cosmology = self.checked(rank, loss, &white_noise)?;
        let white_noise = Field::from_array(&self.sweeps.run.site_mesh, white_noise, 1)?;
        Ok(Sensitivity { loss, white_noise, positions: positions?, momenta: momenta?, cosmology })
    }

    /// Returns the derivatives by the parameters; refuses lost particles, and losses and
    /// derivatives that are not finite, the same on all ranks. All of it comes from the device at
    /// once.
    fn checked(&mut self, rank: &mut Rank, loss: f64, white_noise: &Array<f32>) -> Result<CosmologyGradient> {
        let Sweeps { dots, run, .. } = &mut self.sweeps;
        let most = rank.gpu.array::<u32>("pm::most", 1)?;
        dots.sums().magnitude(&mut rank.recorder, None, white_noise, &most)?;
        let (parameters, words) = dots.fetch(&mut rank.recorder, &[run.force.faults(), &most])?;
        let infinite = |word: &u32| *word >= f32::INFINITY.to_bits();
        let derivatives = words.last().is_some_and(infinite) || !parameters.iter().all(|value| value.is_finite());
        let lost = words.first().copied().unwrap_or(0);
        let mut bad = [lost.into(), u64::from(!loss.is_finite()), u64::from(derivatives)];
        rank.comm.all_reduce(&mut bad, crate::comm::Op::Sum)?;
        match bad {
            [0, 0, 0] => Ok(CosmologyGradient::from(parameters)),
            [0, 0, _] => Err(SimulationError::Loss { what: "a derivative of the loss" }),
            [0, ..] => Err(SimulationError::Loss { what: "the loss" }),
            [particles, ..] => Err(SimulationError::Lost { particles }),
        }
    }
}
