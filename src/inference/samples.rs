//! Samples of a posterior.

use std::ops::Range;

use super::error::{InferenceError, Result};
use super::groups::SampleGroups;
use super::report::SampleOutcome;
use super::vector_space::{Elementwise, VectorSpace};

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
        let Samples { position, count, first, residuals, outcomes } = self;
        Samples {
            position: position.clone(),
            count: *count,
            first: *first,
            residuals: residuals.clone(),
            outcomes: outcomes.clone(),
        }
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
        self.check(sample)?;
        let own = self.at(space, sample)?;
        groups.share(space, groups.group_of(sample, self.count), own)
    }

    /// Returns the residual of a sample on the ranks of all groups. Collective over all groups.
    ///
    /// # Errors
    /// - [`InferenceError::Invalid`] if `sample` is not below [`count`](Self::count).
    /// - [`InferenceError::Comm`], and errors of the vector space.
    pub fn residual_everywhere(&self, space: &mut S, groups: &SampleGroups, sample: usize) -> Result<S::Vector> {
        self.check(sample)?;
        let own = match self.residual(sample) {
            Some(residual) => space.copy(residual)?,
            None => space.zeros(&self.position)?,
        };
        groups.share(space, groups.group_of(sample, self.count), own)
    }

    fn check(&self, sample: usize) -> Result<()> {
        if sample < self.count {
            return Ok(());
        }
        let why = format!("there is no sample {sample} of {}", self.count);
        Err(InferenceError::Invalid { what: "Samples".into(), why })
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
