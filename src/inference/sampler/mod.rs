//! Samplers: Markov chains whose draws follow the posterior.
//!
//! A chain moves along trajectories of `H(x) = -ln p(data | x) + x.x / 2` through latent values
//! `x`, in units of a scale for each value. While a chain warms up, it adapts its scales to the
//! variances of its draws and its step size to the energy's error, with the windows of Stan. Scales
//! start from the preconditioner of fields and from products with the metric, so that chains of
//! fields need no step for each mode.
//!
//! [`Sampler`] runs chains on groups of ranks. Draws are functions of the seed and the number of
//! the chain: they have the same bits for every number of ranks and groups.

mod adaptation;
mod moves;
mod options;
mod phase;
mod state;

use std::fmt;
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::rc::Rc;

use adaptation::{Batches, DualAverage, EnergyAverage, Moments};
use moves::{Flight, Moved, adjusted, hmc, nuts};
pub use options::{Algorithm, SamplerOptions};
use phase::{Phase, Scale, Target, Uniforms};

use super::error::{InferenceError, Result, if_finite};
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::report::{Number, Numbers};
use super::samples::Samples;
use super::state_file::{Existing, StateFile};
use super::vector_space::{Stream, VectorSpace};
use crate::timeline;

/// Statistics of a draw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DrawStatistics {
    /// `-ln p(data | x) + x.x / 2`, up to constants.
    pub energy: f64,
    /// Mean acceptance along the trajectory; 1 for MCLMC, which accepts each step.
    pub acceptance: f64,
    /// The step size.
    pub step: f64,
    /// Length of MCLMC in standard deviations, as in [`Algorithm`]; 0 for other algorithms.
    pub length: f64,
    /// Number of gradients.
    pub gradients: u32,
    /// Doublings of the trajectory of NUTS, otherwise 0.
    pub depth: u32,
    /// Whether the integration failed: the step is too large for a part of the posterior, which
    /// draws miss.
    pub is_divergent: bool,
}

impl DrawStatistics {
    /// Returns the statistics of a trajectory that left the posterior.
    fn divergent(gradients: u32) -> Self {
        DrawStatistics { gradients, is_divergent: true, ..DrawStatistics::default() }
    }
}

/// Count of the numbers of statistics.
const STATISTICS: usize = 7;

impl Numbers<STATISTICS> for DrawStatistics {
    fn parts(&mut self) -> [&mut dyn Number; STATISTICS] {
        let DrawStatistics { energy, acceptance, step, length, gradients, depth, is_divergent } = self;
        [energy, acceptance, step, length, gradients, depth, is_divergent]
    }
}

/// A step of all chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplerStep {
    /// Number of the draw, from 0 on, counted from 0 again after the warm-up.
    pub draw: u32,
    /// Whether the draw belongs to the warm-up and not to the posterior.
    pub is_warmup: bool,
}

/// Step sizes while a chain warms up.
enum StepAverage {
    Acceptance(DualAverage),
    Energy(EnergyAverage),
}

/// One chain.
struct Chain<S: VectorSpace> {
    number: u32,
    place: Rc<Phase<S::Vector>>,
    /// The direction of MCLMC.
    flight: Option<Flight<S>>,
    scale: Scale<S>,
    step: f64,
    /// Length of MCLMC.
    length: f64,
    average: StepAverage,
    moments: Moments<S>,
    /// Means that give the length, in the window that finds it.
    batches: Option<Batches<S>>,
    statistics: DrawStatistics,
    kept: Vec<S::Vector>,
    of_kept: Vec<DrawStatistics>,
}

impl<S: VectorSpace> Chain<S> {
    /// Sets the place at the end of a trajectory.
    fn arrive(&mut self, Moved { place, statistics }: Moved<Rc<Phase<S::Vector>>>) {
        self.statistics = DrawStatistics { energy: place.potential, step: self.step, ..statistics };
        self.place = place;
    }

    /// Sets the place at the end of a trajectory of MCLMC.
    fn land(&mut self, flight: Flight<S>, statistics: DrawStatistics) {
        let statistics = DrawStatistics { length: self.length, ..statistics };
        self.arrive(Moved { place: flight.place.clone(), statistics });
        self.flight = Some(flight);
    }
}

/// The kept draws of all chains.
#[derive(Debug)]
pub struct Draws<S: VectorSpace> {
    /// The draws of one chain after the other; the position is their mean.
    pub samples: Samples<S>,
    /// Statistics of each of them, of all groups.
    pub statistics: Vec<DrawStatistics>,
    /// Number of chains.
    pub chains: u32,
}

/// Markov chains over the posterior of a likelihood, given as a reference or an
/// [`Rc`](std::rc::Rc).
///
/// Chains that resume from a state make the same draws as without an interruption. The numbers of
/// draws, groups and ranks may differ; the other options and the [`Identity`](super::Identity) of
/// the likelihood must be the same.
///
/// ```
/// use meshloom::inference::{Algorithm, Data, Likelihood, NoiseLevel, SampleGroups, Sampler, SamplerOptions};
/// use meshloom::operators::{Leaf, Model, Space, Vector};
///
/// meshloom::run(|rank| {
///     // Two numbers, each measured as 1 with a standard deviation of 1.
///     let leaf = Leaf::vector(2);
///     let model = Model::identity(&Space::of("x", leaf.clone())?)?;
///     let data = Data { name: "x", leaf: &leaf, values: &[1.0, 1.0], mask: None };
///     let likelihood = Likelihood::gaussian(rank, &data, NoiseLevel::Uniform(1.0))?.amend(&model)?;
///     let start = Vector::zeros(&mut rank.recorder, likelihood.domain())?;
///     let options = SamplerOptions::new(Algorithm::nuts(), 100, 200).chains(2);
///     let groups = SampleGroups::one(&rank.comm);
///     let draws = Sampler::new(rank, &likelihood, &groups, &[start], &options)?.finish(rank)?;
///     assert_eq!(draws.samples.count(), 400);
///     let mean = draws.samples.position.get(&mut rank.recorder, "x")?;
///     assert!((mean[0] - 0.5).abs() < 0.3, "{mean:?}");
///     Ok(())
/// })?;
/// # Ok::<(), meshloom::Error>(())
/// ```
pub struct Sampler<S: VectorSpace, L> {
    likelihood: L,
    groups: SampleGroups,
    options: SamplerOptions,
    /// The chains of this group.
    chains: Vec<Chain<S>>,
    state: Option<StateFile>,
    /// Number of draws of each chain so far; draws of the warm-up count.
    done: u32,
}

impl<S: VectorSpace, L> fmt::Debug for Sampler<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sampler { options, done, .. } = self;
        f.debug_struct("Sampler").field("options", options).field("done", done).finish_non_exhaustive()
    }
}

/// Kinds of random numbers of a chain.
const MOMENTUM: u32 = 0;
const CHOICES: u32 = 1;
const TRIALS: u32 = 2;

/// The operation that ranks agree on.
const SAMPLER: &str = "sampler";

impl<S: VectorSpace, L: Deref<Target: LogLikelihood<S> + Sized>> Sampler<S, L> {
    /// Creates the chains of this group, which are those of [`SampleGroups::block`]. Collective
    /// over all groups.
    ///
    /// `starts` has one latent vector for each of them, or one for all. Starts that differ show
    /// whether chains find the same posterior.
    ///
    /// # Errors
    /// - [`CommError::Differ`](crate::comm::CommError::Differ) on all ranks if they have different
    ///   options or likelihoods.
    /// - [`InferenceError::Options`] for invalid options, and [`InferenceError::Groups`] if groups
    ///   would have different numbers of chains.
    /// - [`InferenceError::Invalid`] for another number of starts.
    /// - [`InferenceError::NotFinite`] if the energy of a start is not finite.
    /// - [`InferenceError::State`] for a state that cannot be resumed from, or that would be lost.
    /// - Errors of the likelihood and the ranks.
    pub fn new(
        space: &mut S,
        likelihood: L,
        groups: &SampleGroups,
        starts: &[S::Vector],
        options: &SamplerOptions,
    ) -> Result<Self> {
        let SamplerOptions { algorithm, chains, warmup, draws, thinning, seed, directory, existing, save_every } =
            options;
        let place = directory.as_ref().map(|directory| (directory, existing, save_every));
        let arguments: [(&str, &dyn fmt::Debug); 7] = [
            ("algorithm", algorithm),
            ("chains", chains),
            ("warm-up", warmup),
            ("draws", draws),
            ("thinning", thinning),
            ("seed", seed),
            ("state", &place),
        ];
        groups.all().agree(SAMPLER, &arguments)?;
        let identity = likelihood.identity(space)?;
        identity.agree(groups.all(), SAMPLER)?;
        algorithm.check()?;
        let counts = [("chains", *chains), ("thinning", thinning.unwrap_or(1)), ("save_every", *save_every)];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(InferenceError::options(name, "expected at least 1, got 0"));
        }
        if !(*chains as usize).is_multiple_of(groups.count()) {
            let why = format!("each needs the same number of chains; give a number of groups that divides {chains}");
            return Err(InferenceError::Groups { groups: groups.count(), ranks: groups.all().size(), why });
        }
        let own = groups.block(*chains as usize);
        groups.all().together::<_, InferenceError>(|| {
            if starts.len() == 1 || starts.len() == own.len() {
                return Ok(());
            }
            let why = format!("{} starts are given; expected 1, or one for each of {} chains", starts.len(), own.len());
            Err(InferenceError::Invalid { what: "Sampler".into(), why })
        })?;
        let open = |directory: &PathBuf| StateFile::new((directory, "chains.npz"), *existing, groups, identity, *seed);
        let state = directory.as_ref().map(open).transpose()?;
        let (groups, options) = (groups.clone(), options.clone());
        let count = space.len(&starts[0]);
        if matches!(options.algorithm, Algorithm::Mclmc { .. } | Algorithm::AdjustedMclmc { .. }) && count < 2 {
            let why = format!("MCLMC needs at least 2 latent values, got {count}; take NUTS");
            return Err(InferenceError::options("algorithm", why));
        }
        let mut sampler = Sampler { likelihood, groups, options, chains: Vec::new(), state: None, done: 0 };
        if let Some(state) = state {
            let is_found = *existing == Existing::Resume && sampler.load(space, &state, &starts[0])?;
            sampler.state = Some(state);
            if is_found {
                return Ok(sampler);
            }
        }
        for (place, number) in own.enumerate() {
            let start = space.copy(starts.get(place).unwrap_or(&starts[0]))?;
            let chain = sampler.chain(space, number as u32, start)?;
            sampler.chains.push(chain);
        }
        Ok(sampler)
    }

    fn stream(&self, chain: u32, kind: u32) -> Stream {
        Stream::new(self.options.seed, self.done, chain, kind)
    }

    /// Returns `true` if the next draw belongs to the warm-up.
    fn is_warmup(&self) -> bool {
        self.done < self.options.warmup
    }

    /// Returns the number of draws of each chain at the end; draws of the warm-up count.
    fn total(&self) -> u32 {
        self.options.warmup.saturating_add(self.options.draws)
    }

    fn chain(&self, space: &mut S, number: u32, start: S::Vector) -> Result<Chain<S>> {
        let likelihood: &dyn LogLikelihood<S> = &*self.likelihood;
        let not_finite = |what: &str| {
            let what = format!("the {what} at the start of chain {number}");
            InferenceError::NotFinite { what, value: f64::NAN }
        };
        let scale = if_finite(Scale::new(space, likelihood, &start))?.ok_or_else(|| not_finite("metric"))?;
        let target = Target { likelihood, scale: &scale };
        let place = target.place(space, start)?.ok_or_else(|| not_finite("energy"))?;
        let moments = Moments::new(space, &place.x)?;
        let length = self.options.algorithm.length(space.len(&place.x) as f64);
        let mut chain = Chain {
            number,
            place: Rc::new(place),
            flight: None,
            scale,
            step: 1.0,
            length,
            average: StepAverage::Energy(EnergyAverage::default()),
            moments,
            batches: None,
            statistics: DrawStatistics::default(),
            kept: Vec::new(),
            of_kept: Vec::new(),
        };
        self.restart(space, &mut chain)?;
        Ok(chain)
    }

    /// Returns the numbers of the chains of this group.
    pub fn own(&self) -> Range<usize> {
        self.groups.block(self.options.chains as usize)
    }

    /// Returns the last draw of a chain of this group.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] for a chain of another group.
    pub fn position(&self, chain: usize) -> Result<&S::Vector> {
        self.chain_of(chain).map(|chain| &chain.place.x)
    }

    /// Returns the statistics of the last draw of a chain of this group.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] for a chain of another group.
    pub fn statistics(&self, chain: usize) -> Result<DrawStatistics> {
        self.chain_of(chain).map(|chain| chain.statistics)
    }

    fn chain_of(&self, chain: usize) -> Result<&Chain<S>> {
        let own = self.own();
        chain.checked_sub(own.start).and_then(|place| self.chains.get(place)).ok_or_else(|| {
            let why = format!("chain {chain} is not one of this group, which has {} to {}", own.start, own.end - 1);
            InferenceError::Invalid { what: "Sampler".into(), why }
        })
    }

    /// Moves each chain of this group to its next draw; returns `None` after the last one.
    /// Collective over the ranks of the group; groups wait for each other only to save a state.
    ///
    /// Blocks twice for each gradient. After an error some chains may have moved: do not go on, or
    /// go on from the state.
    ///
    /// # Errors
    /// - Errors of the likelihood, the ranks and files.
    pub fn step(&mut self, space: &mut S) -> Result<Option<SamplerStep>> {
        if self.done >= self.total() {
            return Ok(None);
        }
        let mut chains = std::mem::take(&mut self.chains);
        let moved = chains.iter_mut().try_for_each(|chain| {
            let _activity = timeline::activity!("draw", self.done);
            self.move_one(space, chain)
        });
        self.chains = chains;
        moved?;
        let is_warmup = self.is_warmup();
        let draw = if is_warmup { self.done } else { self.done - self.options.warmup };
        self.done += 1;
        if !is_warmup && self.options.thinning.is_some_and(|thinning| (draw + 1).is_multiple_of(thinning)) {
            for chain in &mut self.chains {
                chain.kept.push(space.copy(&chain.place.x)?);
                chain.of_kept.push(chain.statistics);
            }
        }
        if let Some(state) = &self.state
            && (self.done.is_multiple_of(self.options.save_every) || self.done == self.total())
        {
            self.save(space, state)?;
        }
        Ok(Some(SamplerStep { draw, is_warmup }))
    }

    /// Saves the state of this moment, if the options name a directory. Collective over all groups.
    ///
    /// # Errors
    /// - Errors of the ranks and files.
    pub fn save_state(&self, space: &mut S) -> Result<()> {
        self.state.as_ref().map_or(Ok(()), |state| self.save(space, state))
    }

    /// Makes all draws that are left, and returns those that are kept. Collective over all groups.
    ///
    /// # Errors
    /// - [`InferenceError::Options`] if no draw is kept.
    /// - Errors of the likelihood and the ranks.
    pub fn finish(mut self, space: &mut S) -> Result<Draws<S>> {
        while self.step(space)?.is_some() {}
        let each = self.options.draws / self.options.thinning.unwrap_or(u32::MAX);
        if each == 0 {
            let why = format!("of {} draws none is kept", self.options.draws);
            return Err(InferenceError::options("thinning", why));
        }
        let count = (self.options.chains * each) as usize;
        let (first, own) = (self.own().start, &self.chains);
        let draw = |number: usize| &own[number / each as usize - first].kept[number % each as usize];
        let like = draw(first * each as usize);
        let mut copy = |space: &mut S, number: usize| space.copy(draw(number));
        let sum = self.groups.sum(space, count, &mut copy, like)?;
        let mean = space.scaled(1.0 / count as f64, &sum)?;
        let mut residuals = Vec::new();
        for number in self.groups.block(count) {
            let mut residual = space.copy(draw(number))?;
            space.axpby(-1.0, &mean, 1.0, &mut residual)?;
            residuals.push(residual);
        }
        let numbers = DrawStatistics::numbers_of(self.chains.iter().flat_map(|chain| &chain.of_kept).copied());
        let statistics = DrawStatistics::of_numbers(&self.groups.gather(&numbers)?);
        let samples = Samples::new(mean, &self.groups, count, residuals)?;
        Ok(Draws { samples, statistics, chains: self.options.chains })
    }

    /// Moves a chain to its next draw, and adapts it while it warms up.
    fn move_one(&self, space: &mut S, chain: &mut Chain<S>) -> Result<()> {
        let uniforms = &mut Uniforms::new(self.stream(chain.number, CHOICES));
        match self.options.algorithm {
            Algorithm::Mclmc { energy_variance, steps, .. } => self.fly(space, chain, (energy_variance, steps))?,
            Algorithm::AdjustedMclmc { .. } => self.fly_adjusted(space, chain, uniforms)?,
            Algorithm::Nuts { depth, .. } => {
                let target = Target { likelihood: &*self.likelihood, scale: &chain.scale };
                let start = self.with_momentum(space, chain, MOMENTUM)?;
                let moved = nuts(space, &target, &start, (chain.step, depth), uniforms)?;
                chain.arrive(moved);
            }
            Algorithm::Hmc { steps, .. } => {
                let target = Target { likelihood: &*self.likelihood, scale: &chain.scale };
                let start = self.with_momentum(space, chain, MOMENTUM)?;
                let steps = 1 + (uniforms.next() * f64::from(2 * steps - 1)) as u32;
                let moved = hmc(space, &target, &start, (chain.step, steps), uniforms)?;
                chain.arrive(moved);
            }
        }
        if !self.is_warmup() {
            return Ok(());
        }
        if let StepAverage::Acceptance(average) = &mut chain.average {
            chain.step = average.next(chain.statistics.acceptance);
        }
        self.adapt(space, chain)
    }

    /// Returns the place of a chain with a random momentum from a kind of stream.
    fn with_momentum(&self, space: &mut S, chain: &Chain<S>, kind: u32) -> Result<Rc<Phase<S::Vector>>> {
        let Phase { x, gradient, potential, .. } = &*chain.place;
        let mut momentum = space.like(x)?;
        space.white_noise(self.stream(chain.number, kind), &mut momentum)?;
        let kinetic = space.dot(&momentum, &momentum)? / 2.0;
        let (x, gradient) = (space.copy(x)?, space.copy(gradient)?);
        Ok(Rc::new(Phase { x, momentum, gradient, potential: *potential, kinetic }))
    }

    /// Moves a chain by steps of MCLMC.
    fn fly(&self, space: &mut S, chain: &mut Chain<S>, (energy_variance, steps): (f64, u32)) -> Result<()> {
        let (is_warmup, length, batch) = (self.is_warmup(), chain.length, self.batch(self.done));
        let target = Target { likelihood: &*self.likelihood, scale: &chain.scale };
        let stream = self.stream(chain.number, MOMENTUM);
        let count = space.len(&chain.place.x).max(1) as f64;
        let start = || Flight::start(space, &target, &chain.place, stream.below([u32::MAX, 0, 0]));
        let mut flight = chain.flight.take().map_or_else(start, Ok)?;
        let mut is_divergent = false;
        for step in 0..steps {
            match flight.step(space, &target, (chain.step, length), stream.below([step, 0, 0]))? {
                Some((next, error)) => {
                    flight = next;
                    if let (true, StepAverage::Energy(average)) = (is_warmup, &mut chain.average) {
                        chain.step = average.next(chain.step, error * error / (count * energy_variance)).min(length);
                    }
                }
                None => {
                    is_divergent = true;
                    if is_warmup {
                        chain.step /= 2.0;
                    }
                    flight = flight.restart(space, stream.below([step, 1, 0]))?;
                }
            }
            if let Some(size) = batch {
                let batches = chain.batches.take().map_or_else(|| Batches::new(space, &chain.place.x), Ok)?;
                chain.batches.insert(batches).add(space, &flight.place.x, size)?;
            }
        }
        let flown = DrawStatistics { acceptance: 1.0, gradients: steps, is_divergent, ..DrawStatistics::default() };
        chain.land(flight, flown);
        Ok(())
    }

    /// Moves a chain by a trajectory of adjusted MCLMC.
    fn fly_adjusted(&self, space: &mut S, chain: &mut Chain<S>, uniforms: &mut Uniforms) -> Result<()> {
        let target = Target { likelihood: &*self.likelihood, scale: &chain.scale };
        // Steps of a warm-up may be far too small.
        let most = if self.is_warmup() { 64.0 } else { 1024.0 };
        let stream = self.stream(chain.number, MOMENTUM);
        let start = || Flight::start(space, &target, &chain.place, stream.below([u32::MAX, 1, 0]));
        let flight = chain.flight.take().map_or_else(start, Ok)?;
        let Moved { place, statistics } =
            adjusted(space, &target, &flight, (chain.step, chain.length, most), (stream, uniforms))?;
        chain.land(place.unwrap_or(flight), statistics);
        Ok(())
    }
}
