//! Samples of a posterior, and how an iteration of a fit draws them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::conjugate_gradient::{CgOptions, CgOutcome};
use super::draw::{self, Excitations, Expansion, Straight};
use super::error::{InferenceError, Result};
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::newton_cg::NewtonOptions;
use super::preconditioner::Preconditioner;
use super::report::SampleOutcome;
use super::solve::Solve;
use super::vector_space::{Elementwise, VectorSpace, clear};

/// A position and the residuals of samples about it, of which each group has a block. Samples `2 j`
/// and `2 j + 1` are the two signs of excitation `j`.
pub struct Samples<S: VectorSpace> {
    /// The mean of the approximation; without samples the most probable position.
    pub position: S::Vector,
    /// Number of samples of all groups, both signs of each.
    count: usize,
    /// The first sample of this group, and the residuals of its block.
    first: usize,
    residuals: Vec<S::Vector>,
    /// Solution of each sample of this group.
    outcomes: Vec<SampleOutcome>,
}

impl<S: VectorSpace<Vector: Clone>> Clone for Samples<S> {
    fn clone(&self) -> Self {
        let (position, residuals) = (self.position.clone(), self.residuals.clone());
        Samples { position, residuals, outcomes: self.outcomes.clone(), ..*self }
    }
}

impl<S: VectorSpace> std::fmt::Debug for Samples<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Samples({} of {})", self.residuals.len(), self.count)
    }
}

impl<S: VectorSpace> Samples<S> {
    /// Creates a position without samples.
    pub fn none(position: S::Vector) -> Self {
        Samples { position, count: 0, first: 0, residuals: Vec::new(), outcomes: Vec::new() }
    }

    /// Creates samples from a position and the residuals of this group's block of `count` samples,
    /// which count as solved.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] for another number of residuals than the block has.
    pub fn new(position: S::Vector, groups: &SampleGroups, count: usize, residuals: Vec<S::Vector>) -> Result<Self> {
        let mut samples = Samples::none(position);
        let outcomes = vec![SampleOutcome::default(); residuals.len()];
        samples.replace(groups, count, residuals, outcomes)?;
        Ok(samples)
    }

    /// Replaces the residuals and outcomes by those of this group's block of `count` samples.
    pub(super) fn replace(
        &mut self,
        groups: &SampleGroups,
        count: usize,
        residuals: Vec<S::Vector>,
        outcomes: Vec<SampleOutcome>,
    ) -> Result<()> {
        let block = groups.block(count);
        if block.len() != residuals.len() || block.len() != outcomes.len() {
            let why = format!("{} residuals are given, this group has {} of {count}", residuals.len(), block.len());
            return Err(InferenceError::Invalid { what: "Samples".into(), why });
        }
        (self.count, self.first, self.residuals, self.outcomes) = (count, block.start, residuals, outcomes);
        Ok(())
    }

    /// Returns the number of samples of all groups, both signs of each.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of terms of a mean over samples; without samples the position is the only
    /// one.
    pub fn terms(&self) -> usize {
        self.count.max(1)
    }

    /// Returns the samples of this group.
    pub fn own(&self) -> Range<usize> {
        self.first..self.first + self.residuals.len()
    }

    /// Returns the residual of a sample of this group; `None` for samples of other groups.
    pub fn residual(&self, sample: usize) -> Option<&S::Vector> {
        self.residuals.get(sample.checked_sub(self.first)?)
    }

    /// Returns how a sample of this group was solved; `None` for samples of other groups.
    pub fn outcome(&self, sample: usize) -> Option<SampleOutcome> {
        self.outcomes.get(sample.checked_sub(self.first)?).copied()
    }

    /// Returns how the samples of this group were solved.
    pub(super) fn outcomes(&self) -> &[SampleOutcome] {
        &self.outcomes
    }

    /// Returns a sample, the position plus its residual; for a sample of another group the
    /// position.
    ///
    /// # Errors
    /// - Errors of the vector space.
    pub fn at(&self, space: &mut S, sample: usize) -> Result<S::Vector> {
        let mut place = space.copy(&self.position)?;
        if let Some(residual) = self.residual(sample) {
            space.axpby(1.0, residual, 1.0, &mut place)?;
        }
        Ok(place)
    }

    /// Returns a sample on the ranks of all groups. Collective over all groups.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] if `sample` is not below [`count`](Self::count).
    /// - [`InferenceError::Comm`], and errors of the vector space.
    pub fn everywhere(&self, space: &mut S, groups: &SampleGroups, sample: usize) -> Result<S::Vector> {
        let own = self.at(space, sample)?;
        self.share(space, groups, sample, own)
    }

    /// Returns the residual of a sample on the ranks of all groups. Collective over all groups.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] if `sample` is not below [`count`](Self::count).
    /// - [`InferenceError::Comm`], and errors of the vector space.
    pub fn residual_everywhere(&self, space: &mut S, groups: &SampleGroups, sample: usize) -> Result<S::Vector> {
        let own = match self.residual(sample) {
            Some(residual) => space.copy(residual)?,
            None => space.zeros(&self.position)?,
        };
        self.share(space, groups, sample, own)
    }

    /// Returns the vector of the group that owns the sample, on all ranks.
    fn share(&self, space: &mut S, groups: &SampleGroups, sample: usize, own: S::Vector) -> Result<S::Vector> {
        if sample >= self.count {
            let why = format!("there is no sample {sample} of {}", self.count);
            return Err(InferenceError::Invalid { what: "Samples".into(), why });
        }
        groups.share(space, groups.group_of(sample, self.count), own)
    }

    /// Returns the mean of a function of all samples; without samples its value at the position.
    /// `like` is any vector of the space of the function's results; its values are not read.
    ///
    /// Computes one value after the other and holds a few. Collective over all groups.
    ///
    /// # Errors
    /// - Errors of `function`, and [`InferenceError::Comm`].
    pub fn mean(
        &self,
        space: &mut S,
        groups: &SampleGroups,
        like: &S::Vector,
        function: &mut SampleFunction<'_, S>,
    ) -> Result<S::Vector> {
        let mut value = |space: &mut S, sample: usize| {
            let place = self.at(space, sample)?;
            function(space, &place)
        };
        let sum = groups.sum(space, self.terms(), &mut value, like)?;
        space.scaled(1.0 / self.terms() as f64, &sum)
    }

    /// Returns the mean of a function of all samples and the standard deviation of one sample, with
    /// one delta degree of freedom as in NIFTy; see
    /// [`mean_and_std_with_ddof`](Self::mean_and_std_with_ddof).
    ///
    /// # Errors
    /// Same as [`mean`](Self::mean).
    pub fn mean_and_std(
        &self,
        space: &mut S,
        groups: &SampleGroups,
        like: &S::Vector,
        function: &mut SampleFunction<'_, S>,
    ) -> Result<(S::Vector, S::Vector)> {
        self.mean_and_std_with_ddof(space, groups, like, function, 1)
    }

    /// Returns the mean of a function of all samples and the standard deviation of one sample.
    ///
    /// The variance is the sum of squared distances from the mean over `n - ddof`, for `n` samples;
    /// it is 0 for `n <= ddof`. `ddof` are the delta degrees of freedom, 0 or 1. Straight samples
    /// (MGVI) are mirrored about the position, so the mean of a linear function is known without an
    /// error and 0 is right; 1 is too large by `sqrt(n / (n - 1))`, 15 % for two pairs. For other
    /// functions and curved samples the mean has an error, and 0 is too small. The function is
    /// computed twice for each sample. Collective over all groups.
    ///
    /// # Errors
    /// - [`InferenceError::Options`] for another `ddof`.
    /// - Same as [`mean`](Self::mean).
    pub fn mean_and_std_with_ddof(
        &self,
        space: &mut S,
        groups: &SampleGroups,
        like: &S::Vector,
        function: &mut SampleFunction<'_, S>,
        ddof: usize,
    ) -> Result<(S::Vector, S::Vector)> {
        if ddof > 1 {
            return Err(InferenceError::options("ddof", format!("expected 0 or 1, got {ddof}")));
        }
        let mean = self.mean(space, groups, like, function)?;
        let mut square = |space: &mut S, sample: usize| {
            let place = self.at(space, sample)?;
            let mut distance = function(space, &place)?;
            space.axpby(-1.0, &mean, 1.0, &mut distance)?;
            let mut square = space.like(like)?;
            space.multiply(1.0, [&distance, &distance], 0.0, &mut square)?;
            Ok(square)
        };
        let mut std = space.zeros(like)?;
        if self.count > ddof {
            let sum = groups.sum(space, self.count, &mut square, like)?;
            space.axpby(1.0 / (self.count - ddof) as f64, &sum, 0.0, &mut std)?;
            space.map(Elementwise::Sqrt, &mut std)?;
        }
        Ok((mean, std))
    }
}

/// A function of a latent vector.
pub type SampleFunction<'a, S> =
    dyn FnMut(&mut S, &<S as VectorSpace>::Vector) -> Result<<S as VectorSpace>::Vector> + 'a;

/// The random numbers that samples are drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// New random numbers, of this iteration.
    New,
    /// The random numbers of the iteration before: the samples follow the position.
    Again,
}

/// The kind of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Straight samples: those of a Gaussian (MGVI).
    Linear(Draw),
    /// Bent samples (geoVI): straight ones that follow the posterior, each sign by itself.
    Curved(Draw),
    /// The samples of the iteration before, curved about the new position. If their number changes,
    /// they are drawn again with the same random numbers.
    Update,
}

/// The inputs for the samples of an iteration.
pub(super) struct Drawing<'a, S: VectorSpace> {
    pub likelihood: &'a dyn LogLikelihood<S>,
    pub groups: &'a SampleGroups,
    pub excitations: &'a Excitations<S>,
    pub sampling: Sampling,
    /// Number of mirrored pairs.
    pub pairs: usize,
    /// The iteration whose random numbers are used.
    pub drawn_in: u32,
    pub linear: CgOptions,
    pub curve: NewtonOptions,
    pub point_estimates: &'a [String],
    pub preconditioner: Option<&'a Preconditioner<S>>,
    /// Number of pairs whose straight residuals are solved together.
    pub concurrency: usize,
}

impl<S: VectorSpace> Drawing<'_, S> {
    /// Draws this group's samples about the position of `samples`, in place of its own. Not
    /// collective over groups.
    ///
    /// The straight residuals of some pairs are solved together. `told` is called for each sample
    /// in order, after all of its pairs are solved and it is curved.
    pub fn draw(&self, space: &mut S, samples: &mut Samples<S>, told: &mut dyn FnMut(usize)) -> Result<()> {
        let count = 2 * self.pairs;
        let (mut residuals, mut outcomes) = (Vec::new(), Vec::new());
        if count > 0 {
            let expansion = Expansion::new(space, self.likelihood, &samples.position, self.point_estimates)?
                .with_preconditioner(self.preconditioner);
            let Range { mut start, end } = self.groups.block(count);
            while start < end {
                // Both signs of a pair stay together.
                let next = (start / 2).saturating_add(self.concurrency.max(1)).saturating_mul(2).min(end);
                let found = self.draw_together(space, &expansion, samples, start..next)?;
                for (sample, (residual, outcome)) in (start..next).zip(found) {
                    residuals.push(residual);
                    outcomes.push(outcome);
                    told(sample);
                }
                start = next;
            }
        }
        samples.replace(self.groups, count, residuals, outcomes)
    }

    /// Draws samples of whole pairs, or of one sign at the ends; returns their residuals and
    /// outcomes in order.
    fn draw_together(
        &self,
        space: &mut S,
        expansion: &Expansion<'_, S>,
        samples: &Samples<S>,
        own: Range<usize>,
    ) -> Result<Vec<(S::Vector, SampleOutcome)>> {
        let moves = self.sampling == Sampling::Update && samples.count() == 2 * self.pairs;
        let earlier = |sample: usize| samples.residual(sample).filter(|_| moves);
        let unsolved = own.clone().filter(|&sample| earlier(sample).is_none()).map(|sample| sample / 2).collect();
        let pairs = own.start / 2..own.end.div_ceil(2);
        let Pairs { metric_samples, straight } = self.straighten(space, expansion, pairs, &unsolved)?;
        let mut found = Vec::new();
        for sample in own.clone() {
            let mut residual = space.like(&samples.position)?;
            let outcome = match earlier(sample) {
                Some(earlier) => {
                    space.axpby(1.0, earlier, 0.0, &mut residual)?;
                    // Parts may have become point estimates since the sample was drawn.
                    clear(space, self.point_estimates, &mut residual)?;
                    SampleOutcome { steps: 0, ..samples.outcome(sample).unwrap_or_default() }
                }
                None => {
                    let CgOutcome { x, iterations, error_ratio, .. } = &straight[&(sample / 2)];
                    space.axpby(sign(sample), x, 0.0, &mut residual)?;
                    SampleOutcome { steps: *iterations, error_ratio: *error_ratio, curve: None }
                }
            };
            found.push((residual, outcome));
        }
        drop(straight);
        let together = self.concurrency.max(1);
        for (chunk, found) in found.chunks_mut(together).enumerate().filter(|_| self.bends()) {
            let numbered = (own.start + chunk * together..).zip(found.iter());
            let starts = numbered.map(|(sample, (residual, _))| {
                let t = &metric_samples[&(sample / 2)];
                Straight { t, sign: sign(sample), residual }
            });
            let starts: Vec<Straight<'_, S::Vector>> = starts.collect();
            let bent = expansion.bend(space, &starts, &self.curve)?;
            for ((residual, outcome), bent) in found.iter_mut().zip(bent) {
                *residual = bent.x;
                outcome.curve = Some(bent.stop);
            }
        }
        Ok(found)
    }

    /// Solves the straight residuals of the `unsolved` ones of some pairs together. If samples are
    /// bent, all pairs get their metric samples.
    fn straighten(
        &self,
        space: &mut S,
        expansion: &Expansion<'_, S>,
        pairs: Range<usize>,
        unsolved: &BTreeSet<usize>,
    ) -> Result<Pairs<S::Vector>> {
        let (mut metric_samples, mut priors) = (BTreeMap::new(), Vec::new());
        for pair in pairs.filter(|pair| self.bends() || unsolved.contains(pair)) {
            let key = [self.drawn_in, pair as u32];
            let (t, prior) = expansion.metric_sample(space, self.excitations, key)?;
            metric_samples.insert(pair, t);
            if unsolved.contains(&pair) {
                priors.push((pair, prior));
            }
        }
        let (numbers, priors): (Vec<usize>, Vec<S::Vector>) = priors.into_iter().unzip();
        let starts = numbers.iter().map(|pair| &metric_samples[pair]).zip(priors);
        let is_preconditioned = self.preconditioner.is_some();
        let solve = |(t, prior)| Solve::new(space, (t, Some(prior)), &self.linear, is_preconditioned);
        let mut solves = starts.map(solve).collect::<Result<Vec<_>, _>>()?;
        expansion.run(space, &mut solves)?;
        let outcome = |(pair, solve)| Ok((pair, draw::straight(solve, pair as u32)?));
        let straight = numbers.into_iter().zip(solves).map(outcome).collect::<Result<_>>()?;
        Ok(Pairs { metric_samples, straight })
    }

    /// Returns `true` if samples are curved. Without steps none is, and likelihoods need no
    /// coordinates.
    fn bends(&self) -> bool {
        !matches!(self.sampling, Sampling::Linear(_)) && self.curve.maxiter > 0
    }
}

/// Returns the sign of a sample in its pair.
fn sign(sample: usize) -> f64 {
    if sample.is_multiple_of(2) { 1.0 } else { -1.0 }
}

/// Metric samples and straight residuals of pairs, those of the positive signs.
struct Pairs<V> {
    metric_samples: BTreeMap<usize, V>,
    straight: BTreeMap<usize, CgOutcome<V>>,
}
