//! The loop of an inference: samples about a position, then a better position for these samples, repeated.

use std::fmt::{self, Debug};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::agreement::{self, FIT};
use super::convergence::Convergence;
use super::draw::Drawing;
use super::error::InferenceError;
use super::excitation::Excitations;
use super::footprint::Footprint;
use super::groups::SampleGroups;
use super::identity::Identity;
use super::kl::Kl;
use super::log_likelihood::LogLikelihood;
use super::newton_cg::{NewtonOutcome, NewtonStep, newton_cg};
use super::report::IterationReport;
use super::residual::parts_of;
use super::samples::Samples;
use super::schedule::{IterationOptions, Schedule};
use super::state::{Found, Saved, StateFile};
use super::tempered::Tempered;
use super::vector_space::{Stream, VectorSpace};

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
    /// The fit has settled before its last iteration ([`OptimizeKl::until_settled`]).
    Settled,
    /// A callback ended the fit.
    Callback,
    /// The time budget is used up; iterations are left.
    Time,
}

/// The result of a fit.
pub struct Fit<S: VectorSpace> {
    /// The position and samples of the last iteration.
    pub samples: Samples<S>,
    /// A report of each iteration, including those before a resumption.
    pub history: Vec<IterationReport>,
    /// The reason why the fit ended.
    pub end: FitEnd,
    /// The iteration whose random numbers the samples have.
    pub drawn_in: u32,
}

impl<S: VectorSpace> fmt::Debug for Fit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fit").field("samples", &self.samples).field("history", &self.history).finish_non_exhaustive()
    }
}

type Options<'a> = dyn Fn(u32) -> IterationOptions + 'a;
type Callback<'a, S> = dyn FnMut(&mut S, &Samples<S>, &IterationReport) -> Result<ControlFlow<()>, InferenceError> + 'a;

/// The configuration of a fit, the same on all ranks of all groups, which run it together.
pub struct OptimizeKl<'a, S: VectorSpace> {
    likelihood: &'a dyn LogLikelihood<S>,
    groups: &'a SampleGroups,
    excitations: Excitations<S>,
    iterations: u32,
    /// `None`: those of the default [`Schedule`].
    options: Option<Box<Options<'a>>>,
    until_settled: bool,
    callback: Box<Callback<'a, S>>,
    progress: Box<dyn FnMut(&Progress) + 'a>,
    budget: Option<Duration>,
    memory: Option<u64>,
    state: Option<(PathBuf, Found)>,
    before: Option<Fit<S>>,
}

impl<S: VectorSpace> fmt::Debug for OptimizeKl<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptimizeKl").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl<'a, S: VectorSpace> OptimizeKl<'a, S> {
    /// Creates a fit of at most `iterations` iterations of the default [`Schedule`], with the random numbers of seed 0.
    pub fn new(likelihood: &'a dyn LogLikelihood<S>, groups: &'a SampleGroups, iterations: u32) -> Self {
        OptimizeKl {
            likelihood,
            groups,
            excitations: Excitations::Seed(0),
            iterations,
            options: None,
            until_settled: false,
            callback: Box::new(|_, _, _| Ok(ControlFlow::Continue(()))),
            progress: Box::new(|_| ()),
            budget: None,
            memory: None,
            state: None,
            before: None,
        }
    }

    /// Continues a fit that has ended, to the same bits as without an interruption. A state to resume from takes precedence.
    #[must_use]
    pub fn after(mut self, fit: Fit<S>) -> Self {
        self.before = Some(fit);
        self
    }

    /// Sets the source of random numbers.
    #[must_use]
    pub fn excitations(mut self, excitations: Excitations<S>) -> Self {
        self.excitations = excitations;
        self
    }

    /// Sets the options of each iteration instead of the default [`Schedule`], by its number from 0 on; the same on all ranks.
    #[must_use]
    pub fn options(mut self, options: impl Fn(u32) -> IterationOptions + 'a) -> Self {
        self.options = Some(Box::new(options));
        self
    }

    /// Ends the fit before its last iteration once it has settled ([`Schedule::unsettled`]).
    #[must_use]
    pub fn until_settled(mut self) -> Self {
        self.until_settled = true;
        self
    }

    /// Returns the options of an iteration.
    fn of(&self, iteration: u32) -> IterationOptions {
        self.options.as_ref().map_or_else(IterationOptions::default, |options| options(iteration))
    }

    /// Returns `true` if a fit with these reports has nothing left to do.
    fn is_settled(&self, history: &[IterationReport]) -> bool {
        self.until_settled && Schedule::unsettled(history, self.likelihood.degrees_of_freedom()).is_none()
    }

    /// Sets a function that is called after each iteration on all ranks. It may end the fit, equally on all ranks.
    #[must_use]
    pub fn callback(
        mut self,
        callback: impl FnMut(&mut S, &Samples<S>, &IterationReport) -> Result<ControlFlow<()>, InferenceError> + 'a,
    ) -> Self {
        self.callback = Box::new(callback);
        self
    }

    /// Sets a function that is called for each event within iterations.
    #[must_use]
    pub fn progress(mut self, progress: impl FnMut(&Progress) + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Sets the time after which no iteration begins, measured by rank 0.
    #[must_use]
    pub fn budget(mut self, time: Duration) -> Self {
        self.budget = Some(time);
        self
    }

    /// Sets the bytes of device memory that a rank may use for the fit; ranks that share a device as threads share them.
    ///
    /// As many samples of a group as fit keep the inputs of their derivatives; the others compute these at each application
    /// of the metric, to the same bits. The sizes are measured before the first iteration
    /// ([`footprint`](Self::footprint)). Without a budget all samples keep them.
    #[must_use]
    pub fn memory(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.memory = bytes.into();
        self
    }

    /// Measures the memory of the parts of the fit by computing each once at `start`.
    ///
    /// Collective over all groups; blocks, and returns cached memory to the device.
    ///
    /// # Errors
    /// - Errors of the likelihood and the ranks.
    pub fn footprint(&self, space: &mut S, start: &S::Vector) -> Result<Footprint, InferenceError> {
        Footprint::measure(space, self.groups, self.likelihood, start)
    }

    /// Returns how many samples of a group keep the inputs of their derivatives, for `samples` of all groups.
    fn kept(&self, footprint: Option<&Footprint>, samples: usize) -> Result<usize, InferenceError> {
        match (footprint, self.memory) {
            (Some(footprint), Some(budget)) => footprint.kept(samples.div_ceil(self.groups.count()), budget),
            _ => Ok(usize::MAX),
        }
    }

    /// Measures the memory of a fit with a budget; refuses a fit that exceeds it in any iteration.
    fn weigh(&self, space: &mut S, start: &S::Vector) -> Result<Option<Footprint>, InferenceError> {
        let Some(budget) = self.memory else { return Ok(None) };
        let footprint = self.footprint(space, start)?;
        for iteration in 0..self.iterations {
            let samples = (2 * self.of(iteration).pairs).max(1);
            let kept = self.kept(Some(&footprint), samples)?;
            if self.groups.all().rank() == 0 {
                let own = samples.div_ceil(self.groups.count());
                let bytes = footprint.bytes(own, kept);
                tracing::info!("iteration {iteration}: {kept} of {own} samples are kept, {bytes} of {budget} bytes");
            }
        }
        Ok(Some(footprint))
    }

    /// Saves the state to a directory after each iteration, in one file that is whole at any time.
    ///
    /// A directory with a state is an error: [`resume`](Self::resume) goes on from it, [`overwrite`](Self::overwrite)
    /// replaces it.
    #[must_use]
    pub fn save(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state = Some((directory.into(), Found::Refuse));
        self
    }

    /// Saves the state like [`save`](Self::save), in place of a state that is in the directory.
    #[must_use]
    pub fn overwrite(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state = Some((directory.into(), Found::Overwrite));
        self
    }

    /// Saves the state like [`save`](Self::save), and goes on from a state that is in the directory.
    ///
    /// The result has the same bits as without an interruption. The number of iterations, their options, the number of
    /// groups and of ranks may be others. The seed and the [`Identity`](super::Identity) of the likelihood must be the
    /// same: data, mask, noise, latent values, and the model with all constants.
    #[must_use]
    pub fn resume(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state = Some((directory.into(), Found::Resume));
        self
    }

    /// Runs the fit from `start`. Collective over all groups.
    ///
    /// # Errors
    /// - [`CommError::Differ`](crate::comm::CommError::Differ) on all ranks if they have set up different fits.
    /// - [`InferenceError::Options`], [`InferenceError::Groups`] and [`InferenceError::Memory`] before the first iteration.
    /// - [`InferenceError::State`] for a state that cannot be resumed from.
    /// - [`InferenceError::NotFinite`] for energies that are not finite.
    /// - Errors of the likelihood, the ranks and files.
    pub fn run(mut self, space: &mut S, start: &S::Vector) -> Result<Fit<S>, InferenceError> {
        let began = Instant::now();
        if self.options.is_none() {
            let schedule = Schedule::new(space, self.likelihood, start);
            self.options = Some(Box::new(move |iteration| schedule.options(iteration)));
        }
        self.check(space, start)?;
        let state = match &self.state {
            Some((directory, found)) => {
                let likelihood = (self.likelihood, self.identity(space)?);
                Some((StateFile::new((directory, *found), self.groups, likelihood, &self.excitations)?, *found))
            }
            None if self.groups.count() > 1 => {
                self.identity(space)?;
                None
            }
            None => None,
        };
        let footprint = self.weigh(space, start)?;
        let saved = match &state {
            Some((state, Found::Resume)) => state.load(space, self.groups, start)?,
            _ => None,
        };
        let is_done = saved
            .as_ref()
            .is_some_and(|saved| saved.history.len() as u32 >= self.iterations || self.is_settled(&saved.history));
        let mut saved = match (saved, self.before.take()) {
            (Some(saved), _) => saved,
            (None, Some(Fit { samples, drawn_in, history, .. })) => Saved { samples, drawn_in, history },
            (None, None) => Saved { samples: Samples::none(space.copy(start)?), drawn_in: 0, history: Vec::new() },
        };
        let mut end = if is_done { FitEnd::AlreadyDone } else { FitEnd::Done };
        if is_done && self.groups.all().rank() == 0 {
            let done = saved.history.len();
            tracing::warn!("the state has {done} of {} iterations already: nothing is left to do", self.iterations);
        }
        for iteration in saved.history.len() as u32..self.iterations {
            if self.is_settled(&saved.history) {
                if !is_done {
                    end = FitEnd::Settled;
                }
                break;
            }
            if self.is_over(began)? {
                end = FitEnd::Time;
                break;
            }
            saved = self.iterate(space, saved, iteration, footprint.as_ref())?;
            if let Some((state, _)) = &state {
                state.save(space, self.groups, &saved)?;
            }
            let Some(report) = saved.history.last() else { break };
            if self.groups.all().rank() == 0 {
                tracing::info!("{report}");
            }
            if (self.callback)(space, &saved.samples, report)?.is_break() {
                end = FitEnd::Callback;
                break;
            }
        }
        // Only the samples of the last iteration are returned. Its line names the samples that are not solved.
        if let Some(last) = saved.history.last().filter(|last| last.is_doubtful())
            && self.groups.all().rank() == 0
        {
            tracing::warn!("{last}");
        }
        Ok(Fit { samples: saved.samples, history: saved.history, end, drawn_in: saved.drawn_in })
    }

    /// Checks that all ranks have set up the same fit. Collective.
    fn agree(&self) -> Result<(), InferenceError> {
        let likelihood = format!("{}, {} data", self.likelihood.name(), self.likelihood.degrees_of_freedom());
        let before = self.before.as_ref().map_or(0, |before| before.history.len());
        let (has_time, has_memory) = (self.budget.is_some(), self.memory.is_some());
        let all: Vec<IterationOptions> = (0..self.iterations).map(|iteration| self.of(iteration)).collect();
        let mut arguments: Vec<(String, &dyn Debug)> = vec![
            ("iterations".into(), &self.iterations),
            ("likelihood".into(), &likelihood),
            ("seed".into(), &self.excitations),
            ("state".into(), &self.state),
            ("iterations before".into(), &before),
            ("has a budget of time".into(), &has_time),
            ("has a budget of memory".into(), &has_memory),
        ];
        for (iteration, options) in all.iter().enumerate() {
            let fields: [(&str, &dyn Debug); 8] = [
                ("pairs (n_samples)", &options.pairs),
                ("sampling (sample_mode)", &options.sampling),
                ("linear (draw_linear_kwargs)", &options.linear),
                ("curve (nonlinearly_update_kwargs)", &options.curve),
                ("position (kl_kwargs)", &options.position),
                ("temperature", &options.temperature),
                ("point_estimates", &options.point_estimates),
                ("constants", &options.constants),
            ];
            arguments.extend(fields.map(|(name, value)| (format!("{name} of iteration {iteration}"), value)));
        }
        let arguments: Vec<(&str, &dyn Debug)> =
            arguments.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        Ok(self.groups.all().agree(FIT, &arguments)?)
    }

    /// Returns the identity of the likelihood, which must be the same on all ranks of all groups. Collective.
    fn identity(&self, space: &mut S) -> Result<Identity, InferenceError> {
        let identity = self.likelihood.identity(space)?;
        let parts = identity.parts().map(|(name, mark)| (name, format!("fingerprint {mark:016x}")));
        let arguments = parts.each_ref().map(|(name, mark)| (*name, mark as &dyn Debug));
        self.groups.all().agree(FIT, &arguments)?;
        Ok(identity)
    }

    /// Refuses ranks with different fits, and invalid options of any iteration.
    fn check(&self, space: &mut S, start: &S::Vector) -> Result<(), InferenceError> {
        self.agree()?;
        let mut most = 0;
        for iteration in 0..self.iterations {
            let options = self.of(iteration);
            options.linear.check("straight samples")?;
            options.curve.check("bent samples")?;
            options.position.check("the position")?;
            if !(options.temperature.is_finite() && options.temperature > 0.0) {
                return Err(InferenceError::options(
                    "temperature",
                    format!("{}; it must be above 0", options.temperature),
                ));
            }
            parts_of(space, &options.point_estimates, start)?;
            parts_of(space, &options.constants, start)?;
            most = most.max(2 * options.pairs).max(1);
        }
        let idle = self.groups.idle(most);
        if self.iterations > 0 && idle > 0 {
            let (groups, ranks) = (self.groups.count(), self.groups.all().size());
            let why = format!(
                "{idle} of them have nothing to do, as no iteration has more than {most} samples; give fewer groups, or more samples"
            );
            return Err(InferenceError::Groups { groups, ranks, why });
        }
        self.check_start(space, start)
    }

    /// Refuses starts that are not finite, and groups with another start than the first one.
    ///
    /// Starts are compared by their products with random numbers, which a difference of any latent value changes; devices
    /// may round them differently.
    fn check_start(&self, space: &mut S, start: &S::Vector) -> Result<(), InferenceError> {
        let square = InferenceError::finite("the start's square", space.dot(start, start)?)?;
        if self.groups.count() == 1 || self.before.is_some() {
            return Ok(());
        }
        let mut probe = space.like(start)?;
        space.white_noise(Stream::new(0, u32::MAX, 0, 1), &mut probe)?;
        let product = space.dot(start, &probe)?;
        let apart = 8.0 * f64::from(f32::EPSILON) * square.sqrt();
        Ok(agreement::of_numbers(self.groups.all(), "start, times random numbers", product, apart)?)
    }

    /// Returns `true` if the time budget is used up, by the clock of rank 0.
    fn is_over(&self, began: Instant) -> Result<bool, InferenceError> {
        let Some(budget) = self.budget else { return Ok(false) };
        let mut over = [u32::from(began.elapsed() >= budget)];
        self.groups.all().broadcast(0, &mut over)?;
        Ok(over[0] == 1)
    }

    /// Runs one iteration.
    fn iterate(
        &mut self,
        space: &mut S,
        before: Saved<S>,
        iteration: u32,
        footprint: Option<&Footprint>,
    ) -> Result<Saved<S>, InferenceError> {
        let began = Instant::now();
        let options = self.of(iteration);
        let point_estimates = parts_of(space, &options.point_estimates, &before.samples.position)?;
        let constants = parts_of(space, &options.constants, &before.samples.position)?;
        let repeats = options.sampling.repeats() && iteration > 0;
        let drawn_in = if repeats { before.drawn_in } else { iteration };
        let tempered = Tempered { likelihood: self.likelihood, temperature: options.temperature };
        let likelihood: &dyn LogLikelihood<S> = if options.temperature == 1.0 { self.likelihood } else { &tempered };
        let drawing = Drawing {
            likelihood,
            groups: self.groups,
            excitations: &self.excitations,
            sampling: options.sampling,
            pairs: options.pairs,
            drawn_in,
            linear: options.linear,
            curve: options.curve,
            point_estimates: &point_estimates,
        };
        let kept = self.kept(footprint, (2 * options.pairs).max(1))?;
        let (progress, of) = (&mut self.progress, 2 * options.pairs);
        let mut samples = drawing
            .samples(space, before.samples, &mut |sample| progress(&Progress::Sample { iteration, sample, of }))?;
        let found = {
            let kl = Kl { likelihood, samples: &samples, groups: self.groups, constants: &constants, kept };
            let position = space.copy(&samples.position)?;
            let mut watch = |step: &NewtonStep| progress(&Progress::Step { iteration, step: *step });
            newton_cg(space, &kl, position, &options.position, &mut watch)?
        };
        let NewtonOutcome { x, value, steps, applications, stop, .. } = found;
        samples.position = x;
        let mut history = before.history;
        let chi_squared = IterationReport::chi_squared(space, self.likelihood, self.groups, &samples)?;
        history.push(IterationReport {
            iteration,
            samples: samples.count(),
            sampling: Convergence::over(self.groups, samples.outcomes())?,
            energy: value,
            steps,
            applications,
            stop,
            chi_squared,
            seconds: began.elapsed().as_secs_f64(),
            idle: self.groups.idle(samples.terms()),
        });
        Ok(Saved { samples, drawn_in, history })
    }
}
