//! Samples of a posterior.

use std::ops::Range;

use super::error::InferenceError;
use super::groups::SampleGroups;
use super::vector_space::VectorSpace;

/// A position and the residuals of samples about it, of which a group has a block. Samples come in pairs: `2 j` and `2 j + 1` are the two signs of
/// excitation `j`.
pub struct Samples<S: VectorSpace> {
    /// The position that residuals are about: the mean of an approximation, or the most probable place without samples.
    pub position: S::Vector,
    /// All samples, both signs of each.
    count: usize,
    /// The first one of this group, and the residuals.
    first: usize,
    residuals: Vec<S::Vector>,
}

impl<S: VectorSpace> std::fmt::Debug for Samples<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Samples({} of {})", self.residuals.len(), self.count)
    }
}

impl<S: VectorSpace> Samples<S> {
    /// A position without samples.
    pub fn none(position: S::Vector) -> Self {
        Samples { position, count: 0, first: 0, residuals: Vec::new() }
    }

    /// A position and the residuals of this group's block of `count` samples.
    ///
    /// # Errors
    /// [`InferenceError::Invalid`] for another number of residuals than the block has.
    pub fn new(
        position: S::Vector,
        groups: &SampleGroups,
        count: usize,
        residuals: Vec<S::Vector>,
    ) -> Result<Self, InferenceError> {
        let block = groups.block(count);
        if block.len() != residuals.len() {
            let why = format!("{} residuals are given, this group has {} of {count}", residuals.len(), block.len());
            return Err(InferenceError::Invalid { what: "Samples".into(), why });
        }
        Ok(Samples { position, count, first: block.start, residuals })
    }

    /// Samples of all groups, both signs of each.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Terms of a mean over samples: without samples the position itself is one.
    pub fn terms(&self) -> usize {
        self.count.max(1)
    }

    /// This group's samples.
    pub fn own(&self) -> Range<usize> {
        self.first..self.first + self.residuals.len()
    }

    /// The residual of a sample of this group.
    pub fn residual(&self, sample: usize) -> Option<&S::Vector> {
        self.residuals.get(sample.checked_sub(self.first)?)
    }

    /// A sample: the position and its residual. Of a sample of another group it is the position.
    ///
    /// # Errors
    /// What vectors can fail with.
    pub fn at(&self, space: &mut S, sample: usize) -> Result<S::Vector, InferenceError> {
        let mut place = space.copy(&self.position)?;
        if let Some(residual) = self.residual(sample) {
            space.axpby(1.0, residual, 1.0, &mut place)?;
        }
        Ok(place)
    }

    /// A sample, on the ranks of all groups: the group that has it sends it to the others. All ranks of all groups call it.
    ///
    /// # Errors
    /// [`InferenceError::Invalid`] for a sample that there is not; what vectors can fail with; [`InferenceError::Comm`].
    pub fn everywhere(&self, space: &mut S, groups: &SampleGroups, sample: usize) -> Result<S::Vector, InferenceError> {
        if sample >= self.count {
            let why = format!("there is no sample {sample} of {}", self.count);
            return Err(InferenceError::Invalid { what: "Samples".into(), why });
        }
        let own = self.at(space, sample)?;
        groups.share(space, groups.group_of(sample, self.count), own)
    }

    /// The mean of a function of all samples, and without samples its value at the position. One value after the other is computed; no more than a
    /// few are held. All ranks of all groups call it.
    ///
    /// # Errors
    /// What `function` fails with; [`InferenceError::Comm`].
    pub fn mean(
        &self,
        space: &mut S,
        groups: &SampleGroups,
        like: &S::Vector,
        function: &mut SampleFunction<'_, S>,
    ) -> Result<S::Vector, InferenceError> {
        let mut value = |space: &mut S, sample: usize| {
            let place = self.at(space, sample)?;
            function(space, &place)
        };
        let sum = groups.sum(space, self.terms(), &mut value, like)?;
        let mut mean = space.like(like)?;
        space.axpby(1.0 / self.terms() as f64, &sum, 0.0, &mut mean)?;
        Ok(mean)
    }

    /// The mean of a function of all samples, and the standard deviation of one of them: the root of the sum of squared distances from the mean over
    /// the number of samples less 1, as NIFTy has it; 0 for one sample or none. Mirrored samples have the position for their mean, which needs no
    /// sample to be known: of a linear function this is larger than the posterior's by the root of `n / (n - 1)` for `n` samples, 15 % for two
    /// pairs. The function is computed twice for each sample. All ranks of all groups call it.
    ///
    /// # Errors
    /// As [`mean`](Self::mean).
    pub fn mean_and_std(
        &self,
        space: &mut S,
        groups: &SampleGroups,
        like: &S::Vector,
        function: &mut SampleFunction<'_, S>,
    ) -> Result<(S::Vector, S::Vector), InferenceError> {
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
        if self.count > 1 {
            let sum = groups.sum(space, self.count, &mut square, like)?;
            space.axpby(1.0 / (self.count - 1) as f64, &sum, 0.0, &mut std)?;
            space.sqrt(&mut std)?;
        }
        Ok((mean, std))
    }
}

/// A function of a latent vector.
pub type SampleFunction<'a, S> =
    dyn FnMut(&mut S, &<S as VectorSpace>::Vector) -> Result<<S as VectorSpace>::Vector, InferenceError> + 'a;
