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

mod force;
mod memory;
mod parameters;
mod start;
mod states;
mod sweeps;

pub use memory::GradientMemory;
pub use parameters::CosmologyGradient;
pub(super) use parameters::{
    AMPLITUDE, COUNT, Derivatives, Numbers, by_sigma8, cosmology_values, sigma8_of, with_amplitude,
};
pub use states::Cotangents;
pub(super) use states::{States, pack, unpack};
pub(super) use sweeps::{Epoch, NumbersTangent, RunTangent, Sweeps, Tape};

use std::fmt;
use std::rc::Rc;

use super::{Config, Noise, Result, Simulation, SimulationError, check_memory, require};
use crate::comm::Op;
use crate::field::{Field, on_mesh};
use crate::gpu::Array;
use crate::grid::volume;
use crate::mesh::Bin;
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
        &self.tape.states.memory
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
        dots.sum.magnitude(&mut rank.recorder, None, white_noise, &most)?;
        let (parameters, words) = dots.fetch(&mut rank.recorder, &[&run.force.faults, &most])?;
        let infinite = |word: &u32| *word >= f32::INFINITY.to_bits();
        let derivatives = words.last().is_some_and(infinite) || !parameters.iter().all(|value| value.is_finite());
        let lost = words.first().copied().unwrap_or(0);
        let bad = [lost.into(), u64::from(!loss.is_finite()), u64::from(derivatives)];
        match rank.comm.reduced(bad, Op::Sum)? {
            [0, 0, 0] => Ok(CosmologyGradient::from(parameters)),
            [0, 0, _] => Err(SimulationError::Loss { what: "a derivative of the loss" }),
            [0, ..] => Err(SimulationError::Loss { what: "the loss" }),
            [particles, ..] => Err(SimulationError::Lost { particles }),
        }
    }
}

/// Access to the final state for a loss.
pub struct Observer<'a> {
    pub(super) sweeps: &'a mut Sweeps,
}

impl Observer<'_> {
    /// Returns the run at its end.
    pub fn run(&mut self) -> &mut Simulation {
        &mut self.sweeps.run
    }

    /// Returns the cotangents, all 0 at first.
    #[must_use]
    pub fn cotangents(&self) -> &Cotangents {
        &self.sweeps.bars
    }

    /// Records the density on [`Simulation::cell_mesh`], whose mean is 1, as
    /// [`Simulation::density`] computes it. [Collective](Rank); blocks only for exchanges between
    /// ranks. Lost particles are reported by
    /// [`Gradient::evaluate`](crate::pm::Gradient::evaluate).
    ///
    /// # Errors
    /// [`Lost`](crate::pm::SimulationError::Lost), and errors of the device and the ranks.
    pub fn density(&mut self, rank: &mut Rank) -> Result<Field> {
        let run = &mut self.sweeps.run;
        let density = rank.new_field(&run.cell_mesh, 1)?;
        run.record_density(rank, density.array())?;
        Ok(density)
    }

    /// Adds the derivative of a loss of the [density](Self::density): `by` is the derivative by
    /// each cell. [Collective](Rank); blocks only for exchanges between ranks.
    ///
    /// # Errors
    /// Same as [`density`](Self::density); [`Layout`](crate::pm::SimulationError::Layout) if `by`
    /// is on another mesh than [`Simulation::cell_mesh`].
    pub fn add_density(&mut self, rank: &mut Rank, by: &Field) -> Result<()> {
        on_mesh("derivatives by the density", &self.sweeps.run.cell_mesh, by.mesh())?;
        self.sweeps.density_adjoint(rank, by.array())
    }

    /// Adds the derivative of a loss of the power spectrum: `by[b]` is its derivative with respect
    /// to the power of bin `b` of `spectrum`, which [`Simulation::power`] has returned. Collective,
    /// with the same values. Waits for exchanges only.
    ///
    /// # Errors
    /// Same as [`density`](Self::density);
    /// [`OutOfRange`](crate::pm::SimulationError::OutOfRange) for another number of values than
    /// bins.
    pub fn add_power(&mut self, rank: &mut Rank, spectrum: &[Bin], by: &[f64]) -> Result<()> {
        let allowed = format!("the number of bins of the spectrum, {}", spectrum.len());
        require(spectrum.len() == by.len(), "number of derivatives by power", by.len(), allowed)?;
        let run = &mut self.sweeps.run;
        let (force, mut at) = run.force_at(rank)?;
        let modes = force.contrast(&mut at)?;
        let (recorder, comms) = (&mut rank.recorder, &mut run.comms);
        let factors = power_table(run.config.mesh, run.config.box_size, spectrum, by);
        let table = recorder.uploaded("pm::amplitudes", &factors)?;
        let transform = &run.force.transform;
        transform.scale_radially(recorder, &modes, &table)?;
        let layout = transform.field_layout();
        let cotangent = recorder.gpu().array::<f32>("pm::density_cotangent", volume(&layout.own))?;
        transform.inverse(recorder, comms, &modes, &cotangent, &layout)?;
        self.sweeps.density_adjoint(rank, &cotangent)
    }
}

/// Returns the factors of modes of the contrast by mode number squared, whose inverse transform is
/// the derivative by the contrast: the power of a bin is the mean of `|delta_k|^2 V / N^2` over its
/// modes.
fn power_table(n: u64, box_size: f64, spectrum: &[Bin], by: &[f64]) -> Vec<f32> {
    // The inverse transform divides by N, and a mode counts for itself and its conjugate.
    let unit = 2.0 * (box_size / n as f64).powi(3);
    let of_bin: Vec<f32> = spectrum
        .iter()
        .zip(by)
        .map(|(bin, by)| if bin.modes == 0 { 0.0 } else { (unit * by / bin.modes as f64) as f32 })
        .collect();
    let last = 3 * (n / 2) * (n / 2);
    // Bins are around whole mode numbers, from 1 on.
    let bin = |m2: u64| ((m2 as f64).sqrt() + 0.5).floor() as usize;
    (0..=last).map(|m2| bin(m2).checked_sub(1).and_then(|bin| of_bin.get(bin)).copied().unwrap_or(0.0)).collect()
}
