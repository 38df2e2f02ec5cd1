//! A fit: samples about a position, then a better position for these samples, repeated.

use std::fmt::{self, Debug};
use std::ops::Deref;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::draw::{Excitations, parts_of};
use super::error::{InferenceError, Result};
use super::footprint::Footprint;
use super::groups::SampleGroups;
use super::kl::Kl;
use super::log_likelihood::{LogLikelihood, Tempered};
use super::newton_cg::{NewtonOutcome, NewtonStep, newton_cg};
use super::preconditioner::Preconditioner;
use super::report::{Convergence, IterationReport};
use super::samples::{Draw, Drawing, Samples, Sampling};
use super::schedule::{IterationOptions, Schedule};
use super::state::Saved;
use super::state_file::{Existing, StateFile};
use super::vector_space::{Stream, VectorSpace};
use crate::comm::CommError;
use crate::gpu::StackKernels;
use crate::timeline;

/// An event within an iteration, on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// A sample of this rank's group was drawn.
    Sample {
        /// Number of the iteration.
        iteration: u32,
        /// Number of the sample.
        sample: usize,
        /// Number of samples of all groups.
        of: usize,
    },
    /// The position took a step.
    Step {
        /// Number of the iteration.
        iteration: u32,
        /// The step.
        step: NewtonStep,
    },
}

/// The reason why a fit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitEnd {
    /// All iterations are done.
    Done,
    /// The state to resume from had all iterations; nothing was done.
    AlreadyDone,
    /// The fit has settled before its last iteration ([`FitOptions::until_settled`]).
    Settled,
    /// The time budget is used up; iterations are left.
    Time,
}

/// The options of a fit, the same on all ranks of all groups.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FitOptions {
    /// Number of iterations, at most.
    pub iterations: u32,
    /// Options of the first iterations; the others follow the default [`Schedule`].
    pub each: Vec<IterationOptions>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Whether the fit ends before its last iteration once it has settled
    /// ([`Schedule::unsettled`]).
    pub until_settled: bool,
    /// Time after which no iteration begins, measured by rank 0 from the creation of the fit.
    pub time: Option<Duration>,
    /// Bytes of device memory that a rank may use; ranks that share a device as threads share them.
    ///
    /// As many samples of a group as fit keep the inputs of their derivatives; the others compute
    /// these at each application of the metric, to the same bits. `None`: all samples keep them.
    pub memory: Option<u64>,
    /// Directory in which each iteration saves the state, in one file that is whole at any time.
    pub directory: Option<PathBuf>,
    /// The use of a state that is in the directory.
    pub existing: Existing,
}

impl Default for FitOptions {
    /// At most 20 iterations of the default [`Schedule`], which end once the fit has settled.
    fn default() -> Self {
        FitOptions { until_settled: true, ..Self::new(Schedule::ITERATIONS) }
    }
}

impl FitOptions {
    /// Creates the options of `iterations` iterations of the default [`Schedule`] with seed 0.
    #[must_use]
    pub fn new(iterations: u32) -> Self {
        FitOptions {
            iterations,
            each: Vec::new(),
            seed: 0,
            until_settled: false,
            time: None,
            memory: None,
            directory: None,
            existing: Existing::Refuse,
        }
    }

    /// Sets the options of each iteration by its number, from 0 on.
    #[must_use]
    pub fn each(mut self, options: impl FnMut(u32) -> IterationOptions) -> Self {
        self.each = (0..self.iterations).map(options).collect();
        self
    }

    /// Sets [`seed`](Self::seed).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets [`memory`](Self::memory).
    #[must_use]
    pub fn memory(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.memory = bytes.into();
        self
    }

    /// Sets the directory of the state, and what to do with a state that is there.
    #[must_use]
    pub fn state(mut self, directory: impl Into<PathBuf>, existing: Existing) -> Self {
        (self.directory, self.existing) = (Some(directory.into()), existing);
        self
    }
}

/// The operation that ranks agree on.
const FIT: &str = "fit";

/// A fit of a likelihood, given as a reference or an [`Rc`](std::rc::Rc).
///
/// A fit that resumes from a state has the same bits as without an interruption. The number of
/// iterations, their options, the number of groups and of ranks may differ. The seed and the
/// [`Identity`](super::Identity) of the likelihood must be the same.
pub struct Fit<S: VectorSpace, L> {
    likelihood: L,
    groups: SampleGroups,
    options: FitOptions,
    /// Options of all iterations.
    each: Vec<IterationOptions>,
    schedule: Schedule,
    excitations: Excitations<S>,
    state: Option<StateFile>,
    footprint: Option<Footprint>,
    saved: Saved<S>,
    began: Instant,
    /// Whether all ranks have agreed on the options.
    is_checked: bool,
    end: Option<FitEnd>,
}

impl<S: VectorSpace, L> Debug for Fit<S, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Saved { samples, history, .. } = &self.saved;
        f.debug_struct("Fit").field("samples", samples).field("history", history).finish_non_exhaustive()
    }
}

impl<S: VectorSpace, L: Deref<Target: LogLikelihood<S> + Sized>> Fit<S, L> {
    /// Creates a fit that starts at `start`, or resumes from a state. Collective over all groups.
    ///
    /// # Errors
    /// - [`CommError::Differ`] on all ranks if they have different fits.
    /// - [`InferenceError::Options`], [`InferenceError::Groups`] and [`InferenceError::Memory`] for
    ///   any iteration.
    /// - [`InferenceError::State`] for a state that cannot be resumed from, or that would be lost.
    /// - [`InferenceError::NotFinite`] if the start is not finite.
    /// - Errors of the likelihood, the ranks and files.
    pub fn new(
        space: &mut S,
        likelihood: L,
        groups: &SampleGroups,
        start: &S::Vector,
        options: &FitOptions,
    ) -> Result<Self> {
        let mut fit = Fit {
            schedule: Schedule::new(space, &*likelihood, start),
            likelihood,
            groups: groups.clone(),
            options: options.clone(),
            each: Vec::new(),
            excitations: Excitations::Seed(options.seed),
            state: None,
            footprint: None,
            saved: Saved { samples: Samples::none(space.copy(start)?), drawn_in: 0, history: Vec::new() },
            began: Instant::now(),
            is_checked: false,
            end: None,
        };
        fit.check(space)?;
        fit.check_start(space, start)?;
        if options.directory.is_some() || groups.count() > 1 {
            let identity = fit.likelihood.identity(space)?;
            identity.agree(groups.all(), FIT)?;
            let open =
                |own: &PathBuf| StateFile::new((own, "state.npz"), options.existing, groups, identity, options.seed);
            fit.state = options.directory.as_ref().map(open).transpose()?;
        }
        fit.weigh(space)?;
        if let Some(state) = fit.state.as_ref().filter(|_| options.existing == Existing::Resume)
            && let Some(saved) = state.load(space, groups, &*fit.likelihood, start)?
        {
            fit.saved = saved;
            let done = fit.saved.history.len();
            if done as u32 >= options.iterations || fit.is_settled() {
                fit.end = Some(FitEnd::AlreadyDone);
                if groups.all().rank() == 0 {
                    let all = options.iterations;
                    tracing::warn!("the state has {done} of {all} iterations already: nothing is left to do");
                }
            }
        }
        Ok(fit)
    }

    /// Sets the source of random numbers in place of the seed.
    #[must_use]
    pub fn with_excitations(mut self, excitations: Excitations<S>) -> Self {
        self.excitations = excitations;
        self
    }

    /// Runs the next iteration and saves the state; returns its report, or `None` if the fit has
    /// [ended](Self::end).
    ///
    /// After an error the position and the reports belong to the last iteration. Collective over
    /// all groups.
    ///
    /// # Errors
    /// - [`InferenceError::NotFinite`] for energies that are not finite.
    /// - Same as [`new`](Self::new) if options have changed.
    /// - Errors of the likelihood, the ranks and files.
    pub fn step(&mut self, space: &mut S) -> Result<Option<IterationReport>> {
        self.step_with(space, &mut |_| ())
    }

    /// Runs the next iteration like [`step`](Self::step), and calls `progress` for each event
    /// within it.
    ///
    /// # Errors
    /// Same as [`step`](Self::step).
    pub fn step_with(&mut self, space: &mut S, progress: &mut dyn FnMut(&Progress)) -> Result<Option<IterationReport>> {
        if !self.is_checked {
            self.check(space)?;
            self.weigh(space)?;
        }
        self.end = self.end.or_else(|| self.ended());
        if self.end.is_none() && self.is_over()? {
            self.end = Some(FitEnd::Time);
        }
        if self.end.is_some() {
            return Ok(None);
        }
        let report = self.iterate(space, progress)?;
        self.saved.history.push(report.clone());
        if let Some(state) = &self.state {
            state.save(space, &self.groups, &*self.likelihood, &self.saved)?;
        }
        self.end = self.ended();
        if self.groups.all().rank() == 0 {
            tracing::info!("{report}");
            // Only the samples of the last iteration remain. Its line names those that are not
            // solved.
            if self.end.is_some() && report.is_doubtful() {
                tracing::warn!("{report}");
            }
        }
        Ok(Some(report))
    }

    /// Runs all iterations that are left. Collective over all groups.
    ///
    /// # Errors
    /// Same as [`step`](Self::step).
    pub fn run(mut self, space: &mut S) -> Result<Self> {
        while self.step(space)?.is_some() {}
        Ok(self)
    }

    /// Changes options between iterations, equally on all ranks; the next [`step`](Self::step)
    /// checks them.
    ///
    /// Changes of the seed, the directory and its use have no effect.
    pub fn set(&mut self, change: impl FnOnce(&mut FitOptions)) {
        change(&mut self.options);
        (self.is_checked, self.end) = (false, None);
    }

    /// Returns the likelihood.
    pub fn likelihood(&self) -> &L::Target {
        &self.likelihood
    }

    /// Returns the position and samples of the last iteration.
    pub fn samples(&self) -> &Samples<S> {
        &self.saved.samples
    }

    /// Returns the position and samples of the last iteration, from which the next one starts.
    pub fn samples_mut(&mut self) -> &mut Samples<S> {
        &mut self.saved.samples
    }

    /// Returns the position and samples of the last iteration.
    pub fn into_samples(self) -> Samples<S> {
        self.saved.samples
    }

    /// Returns a report of each iteration, including those before a resumption.
    pub fn history(&self) -> &[IterationReport] {
        &self.saved.history
    }

    /// Returns the reason why the fit ended; `None` if iterations are left.
    pub fn end(&self) -> Option<FitEnd> {
        self.end
    }

    /// Returns why the fit has not settled; `None` if it has.
    pub fn unsettled(&self) -> Option<String> {
        Schedule::unsettled(self.history(), self.likelihood.degrees_of_freedom())
    }

    fn is_settled(&self) -> bool {
        self.options.until_settled && self.unsettled().is_none()
    }

    /// Returns the reason to end before the next iteration, except for its time.
    fn ended(&self) -> Option<FitEnd> {
        if self.history().len() as u32 >= self.options.iterations {
            return Some(FitEnd::Done);
        }
        self.is_settled().then_some(FitEnd::Settled)
    }

    /// Returns `true` if the time budget is used up, by the clock of rank 0. Collective.
    fn is_over(&self) -> Result<bool> {
        let Some(budget) = self.options.time else { return Ok(false) };
        let mut is_over = [u32::from(self.began.elapsed() >= budget)];
        self.groups.all().broadcast(0, &mut is_over)?;
        Ok(is_over[0] == 1)
    }

    /// Returns the most samples that a group has of `pairs` pairs of all groups.
    fn of_group(&self, pairs: usize) -> usize {
        (2 * pairs).max(1).div_ceil(self.groups.count())
    }

    /// Returns how many samples of a group keep the inputs of their derivatives, for `pairs` pairs
    /// of all groups.
    fn kept(&self, pairs: usize) -> Result<usize> {
        let Some((footprint, budget)) = self.footprint.zip(self.options.memory) else { return Ok(usize::MAX) };
        footprint.kept(self.of_group(pairs), budget)
    }

    /// Returns how many solves or products of a group are computed together, for `pairs` pairs of
    /// all groups of which a group keeps `kept` samples.
    fn concurrency(&self, space: &S, pairs: usize, kept: usize) -> usize {
        let most = space.concurrency(&self.saved.samples.position);
        let Some((footprint, budget)) = self.footprint.zip(self.options.memory) else { return most };
        most.min(footprint.concurrency(self.of_group(pairs), kept, budget))
    }

    /// Measures the memory of a fit with a budget; refuses a fit that exceeds it in any iteration.
    fn weigh(&mut self, space: &mut S) -> Result<()> {
        let Some(budget) = self.options.memory else { return Ok(()) };
        let position = &self.saved.samples.position;
        let measure = || Footprint::measure(space, &self.groups, &*self.likelihood, position);
        let footprint = self.footprint.map_or_else(measure, Ok)?;
        self.footprint = Some(footprint);
        for (iteration, options) in self.each.iter().enumerate() {
            let kept = self.kept(options.pairs)?;
            let together = self.concurrency(space, options.pairs, kept);
            if self.groups.all().rank() == 0 {
                let own = self.of_group(options.pairs);
                let bytes = footprint.bytes(own, kept, together);
                tracing::info!(
                    "iteration {iteration}: {kept} of {own} samples are kept, {} are computed together, {bytes} of \
                     {budget} bytes",
                    together.min(own)
                );
            }
        }
        Ok(())
    }

    /// Refuses ranks with different fits, and invalid options of any iteration. Collective over all
    /// groups.
    fn check(&mut self, space: &mut S) -> Result<()> {
        let iterations = 0..self.options.iterations;
        let given = |iteration: u32| self.options.each.get(iteration as usize).cloned();
        let each = |iteration| given(iteration).unwrap_or_else(|| self.schedule.options(iteration));
        self.each = iterations.map(each).collect();
        self.agree()?;
        let (mut most, position) = (0, &self.saved.samples.position);
        for options in &self.each {
            options.linear.check("straight samples")?;
            options.curve.check("curved samples")?;
            options.position.check("the position")?;
            if !(options.temperature.is_finite() && options.temperature > 0.0) {
                let why = format!("{}; it must be above 0", options.temperature);
                return Err(InferenceError::options("temperature", why));
            }
            parts_of(space, &options.point_estimates, position)?;
            parts_of(space, &options.constants, position)?;
            most = most.max(2 * options.pairs).max(1);
        }
        let idle = self.groups.idle(most);
        if !self.each.is_empty() && idle > 0 {
            let (groups, ranks) = (self.groups.count(), self.groups.all().size());
            let why = format!(
                "{idle} of them have nothing to do, as no iteration has more than {most} samples; give fewer groups, \
                 or more samples"
            );
            return Err(InferenceError::Groups { groups, ranks, why });
        }
        self.is_checked = true;
        Ok(())
    }

    /// Checks that all ranks have set up the same fit. Collective.
    fn agree(&self) -> Result<()> {
        let likelihood = format!("{}, {} data", self.likelihood.name(), self.likelihood.degrees_of_freedom());
        let FitOptions { iterations, seed, directory, existing, .. } = &self.options;
        let state = directory.as_ref().map(|directory| (directory, existing));
        let (has_time, has_memory) = (self.options.time.is_some(), self.options.memory.is_some());
        let done = self.history().len();
        let mut arguments: Vec<(String, &dyn Debug)> = vec![
            ("iterations".into(), iterations),
            ("likelihood".into(), &likelihood),
            ("seed".into(), seed),
            ("state".into(), &state),
            ("iterations before".into(), &done),
            ("has a budget of time".into(), &has_time),
            ("has a budget of memory".into(), &has_memory),
        ];
        for (iteration, options) in self.each.iter().enumerate() {
            let named = options.named();
            arguments.extend(named.map(|(name, value)| (format!("{name} of iteration {iteration}"), value)));
        }
        let arguments: Vec<_> = arguments.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        Ok(self.groups.all().agree(FIT, &arguments)?)
    }

    /// Refuses starts that are not finite, and groups with another start than the first one.
    ///
    /// Starts are compared by their products with random numbers, which a difference of any latent
    /// value changes; devices may round them differently.
    fn check_start(&self, space: &mut S, start: &S::Vector) -> Result<()> {
        let square = InferenceError::finite("the start's square", space.dot(start, start)?)?;
        if self.groups.count() == 1 {
            return Ok(());
        }
        let mut probe = space.like(start)?;
        space.white_noise(Stream::new(0, u32::MAX, 0, 1), &mut probe)?;
        let tolerance = 8.0 * f64::from(f32::EPSILON) * square.sqrt();
        let all = self.groups.all().all_gather(&[space.dot(start, &probe)?, tolerance])?;
        let (first, tolerance) = (all[0], all[1]);
        let is_alike = |number: f64| number == first || (number - first).abs() <= tolerance;
        match all.chunks(2).enumerate().find(|(_, one)| !is_alike(one[0])) {
            None => Ok(()),
            Some((rank, one)) => Err(CommError::Differ {
                call: FIT.into(),
                argument: "start, times random numbers".into(),
                rank,
                value: format!("{:?}", one[0]),
                reference: format!("{first:?}"),
            }
            .into()),
        }
    }

    /// Runs one iteration.
    fn iterate(&mut self, space: &mut S, progress: &mut dyn FnMut(&Progress)) -> Result<IterationReport> {
        let began = Instant::now();
        let iteration = self.history().len() as u32;
        let _activity = timeline::activity!("iteration", iteration);
        let options = self.each[iteration as usize].clone();
        let kept = self.kept(options.pairs)?;
        let concurrency = self.concurrency(space, options.pairs, kept);
        let Fit { groups, saved: Saved { samples, drawn_in, .. }, .. } = self;
        let own: &dyn LogLikelihood<S> = &*self.likelihood;
        let point_estimates = parts_of(space, &options.point_estimates, &samples.position)?;
        let constants = parts_of(space, &options.constants, &samples.position)?;
        let is_new = matches!(options.sampling, Sampling::Linear(Draw::New) | Sampling::Curved(Draw::New));
        if is_new || iteration == 0 {
            *drawn_in = iteration;
        }
        // Arrays of stacks have other lengths than those of single samples, and the pool would keep
        // both.
        let is_stacked = concurrency > 1 && space.most_stacked(&samples.position) > 1;
        if is_stacked {
            space.settle()?;
        }
        let _kernels = is_stacked.then(StackKernels::begin);
        let tempered = Tempered { likelihood: own, temperature: options.temperature };
        let likelihood: &dyn LogLikelihood<S> = if options.temperature == 1.0 { own } else { &tempered };
        let preconditioner = {
            let place = (&samples.position, &point_estimates[..]);
            Preconditioner::new(space, likelihood, groups, place, options.preconditioning)?
        };
        let preconditioner = preconditioner.as_ref();
        let drawing = Drawing {
            likelihood,
            groups,
            excitations: &self.excitations,
            sampling: options.sampling,
            pairs: options.pairs,
            drawn_in: *drawn_in,
            linear: options.linear,
            curve: options.curve,
            point_estimates: &point_estimates,
            preconditioner,
            concurrency,
        };
        let of = 2 * options.pairs;
        drawing.draw(space, samples, &mut |sample| progress(&Progress::Sample { iteration, sample, of }))?;
        if is_stacked {
            space.settle()?;
        }
        let found = {
            let kl = Kl {
                likelihood,
                samples,
                groups,
                constants: &constants,
                kept,
                concurrency,
                preconditioner,
                curvature: options.curvature,
            };
            let position = space.copy(&samples.position)?;
            let mut watch = |step: &NewtonStep| progress(&Progress::Step { iteration, step: *step });
            newton_cg(space, &kl, position, &options.position, &mut watch)?
        };
        let NewtonOutcome { x, value, steps, applications, stop, .. } = found;
        samples.position = x;
        let chi_squared = chi_squared(space, own, groups, samples)?;
        Ok(IterationReport {
            iteration,
            samples: samples.count(),
            sampling: Convergence::over(groups, samples.outcomes())?,
            energy: value,
            steps,
            applications,
            stop,
            chi_squared,
            seconds: began.elapsed().as_secs_f64(),
            idle: groups.idle(samples.terms()),
        })
    }
}

/// Returns the reduced chi-squared of data and latent values over all samples. Collective over all
/// groups.
fn chi_squared<S: VectorSpace>(
    space: &mut S,
    likelihood: &dyn LogLikelihood<S>,
    groups: &SampleGroups,
    samples: &Samples<S>,
) -> Result<[Option<f64>; 2]> {
    let terms = samples.terms();
    let (mut data, mut latent) = (Vec::new(), Vec::new());
    for sample in groups.block(terms) {
        let place = samples.at(space, sample)?;
        if let Some((residual, count)) = likelihood.normalized_residual(space, &place)? {
            // An overflow here is reported and no error: the energy decides.
            let square = match space.dot(&residual, &residual) {
                Err(InferenceError::NotFinite { value, .. }) => value.abs(),
                square => square?,
            };
            data.push(square / count.max(1) as f64);
        }
        latent.push(space.dot(&place, &place)? / space.len(&place).max(1) as f64);
    }
    let [data, latent] = [groups.gather(&data)?, groups.gather(&latent)?];
    let mean =
        |values: Vec<f64>| (!values.is_empty()).then(|| crate::map::tree::tree_sum(&values) / values.len() as f64);
    Ok([mean(data), mean(latent)])
}
