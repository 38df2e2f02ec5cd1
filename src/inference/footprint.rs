//! The device memory of a fit, measured before the fit runs.

use super::error::{InferenceError, Result, if_finite};
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::vector_space::{Reduction, VectorSpace};
use crate::comm::Op;

/// Vectors beside those of samples: of the position, the minimizers and a trial.
const VECTORS: u64 = 12;

/// Vectors of a preconditioner: its directions, and three fields at modes and at cells with their
/// precision and amplitudes.
const PRECONDITIONER: u64 = 24;

/// Vectors of a solve, and of the position and gradient of the sample that it bends.
const SOLVE: u64 = 10;

/// Vectors of noise and coordinates for a curved sample.
const EXCITATIONS: u64 = 6;

/// Bytes of device memory of the parts of a fit, on the rank with the most; threads that share a
/// device count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// A latent vector.
    pub vector: u64,
    /// A vector of the space of the noise.
    pub excitation: u64,
    /// The inputs of the derivatives at a point.
    pub linearization: u64,
    /// Temporary memory of derivatives and inner products.
    pub work: u64,
}

impl Footprint {
    /// Measures the pieces at `position` by computing each once: a value, a gradient and a product
    /// with the metric.
    ///
    /// Collective over all groups; blocks, and returns cached memory to the device.
    ///
    /// # Errors
    /// - Errors of the likelihood and the ranks.
    pub fn measure<S: VectorSpace>(
        space: &mut S,
        groups: &SampleGroups,
        likelihood: &dyn LogLikelihood<S>,
        position: &S::Vector,
    ) -> Result<Self> {
        let mut out = space.like(position)?;
        let before = settled(space, groups)?;
        let place = space.copy(position)?;
        let vector = settled(space, groups)?;
        let eta = likelihood.data(space)?;
        let excitation = settled(space, groups)?;
        let at = likelihood.at(space, &place)?;
        let linearization = settled(space, groups)?;
        at.gradient(space, &mut out)?;
        at.metric(space, &place, &mut out)?;
        // The fit reports values that are not finite.
        let all = [Reduction::Dot(&out, &out), Reduction::Dot(&out, &place), Reduction::Dot(&place, &place)];
        for found in [at.energy(space).map(drop), space.reduce(&all).map(drop)] {
            if_finite(found)?;
        }
        groups.all().barrier()?;
        let work = space.allocated();
        groups.all().barrier()?;
        drop((at, eta, place));
        settled(space, groups)?;
        let steps = [[before, vector], [vector, excitation], [excitation, linearization], [linearization, work]];
        let mut bytes = steps.map(|[before, after]| after.saturating_sub(before));
        groups.all().all_reduce(&mut bytes, Op::Max)?;
        let [vector, excitation, linearization, work] = bytes;
        Ok(Footprint { vector, excitation, linearization, work })
    }

    /// Returns the bytes of a sample: residual, place and, if `kept`, the inputs of its
    /// derivatives.
    #[must_use]
    pub fn sample(&self, kept: bool) -> u64 {
        2 * self.vector + if kept { self.linearization } else { 0 }
    }

    /// Returns the bytes of an iteration with `samples` of a group, of which `kept` keep the inputs
    /// of their derivatives and `together` are computed together.
    #[must_use]
    pub fn bytes(&self, samples: usize, kept: usize, together: usize) -> u64 {
        let more = together.clamp(1, samples.max(1)) as u64 - 1;
        let (samples, kept) = (samples as u64, kept.min(samples) as u64);
        let levels = u64::from(samples.max(1).next_power_of_two().ilog2()) + 1;
        let vectors = 2 * samples + levels + VECTORS + PRECONDITIONER;
        let vectors = vectors * self.vector + EXCITATIONS * self.excitation;
        // One more for samples that are not kept. A curved sample needs two, and submits two
        // products together.
        let linearizations = (kept + u64::from(kept < samples)).max(2);
        vectors + linearizations * self.linearization + 2 * self.work + more * self.solve()
    }

    /// Returns the bytes of a solve beside the first: a curved sample has a linearization, and so
    /// has a product of a sample that is not kept.
    fn solve(&self) -> u64 {
        SOLVE * self.vector + self.work + self.linearization
    }

    /// Returns how many of `samples` can be kept within `budget` bytes.
    ///
    /// # Errors
    /// - [`InferenceError::Memory`] if an iteration that keeps none does not fit.
    pub fn kept(&self, samples: usize, budget: u64) -> Result<usize> {
        let fits = |kept: &usize| self.bytes(samples, *kept, 1) <= budget;
        let most = (0..=samples).rev().find(fits);
        most.ok_or_else(|| InferenceError::Memory { needed: self.bytes(samples, 0, 1), budget, samples })
    }

    /// Returns how many solves, or products of samples, are computed together within `budget` bytes
    /// in an iteration with `samples` of which `kept` are kept: one at least.
    #[must_use]
    pub fn concurrency(&self, samples: usize, kept: usize, budget: u64) -> usize {
        let spare = budget.saturating_sub(self.bytes(samples, kept, 1));
        let more = spare / self.solve().max(1);
        1 + (more as usize).min(samples.saturating_sub(1))
    }
}

/// Returns the bytes in use after all ranks have returned cached memory. Collective over all
/// groups.
fn settled<S: VectorSpace>(space: &mut S, groups: &SampleGroups) -> Result<u64> {
    space.settle()?;
    groups.all().barrier()?;
    // Memory may be freed after another rank of the device has trimmed its cache.
    space.settle()?;
    groups.all().barrier()?;
    let bytes = space.allocated();
    groups.all().barrier()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_samples_are_kept_as_fit() {
        let footprint = Footprint { vector: 10, excitation: 5, linearization: 100, work: 50 };
        // 2 vectors a sample, 4 levels, 36 more; two products; 100 for each linearization, of which
        // there are two at least.
        let least = (16 + 4 + 36) * 10 + 30 + 100;
        for (budget, kept) in [(200, 1), (299, 1), (300, 2), (799, 6), (800, 8), (10_000, 8)] {
            assert_eq!(footprint.kept(8, least + budget).unwrap(), kept, "{budget}");
            assert!(footprint.bytes(8, kept, 1) <= least + budget);
        }
        let error = footprint.kept(8, least + 199).unwrap_err();
        assert!(
            matches!(error, InferenceError::Memory { needed, budget, samples: 8 } if needed == budget + 1),
            "{error}"
        );
        // Ten vectors, a linearization and temporary memory for each solve beside the first.
        let all = footprint.bytes(8, 8, 1);
        for (spare, together) in [(0, 1), (249, 1), (250, 2), (499, 2), (1749, 7), (1750, 8), (100_000, 8)] {
            assert_eq!(footprint.concurrency(8, 8, all + spare), together, "{spare}");
            assert!(footprint.bytes(8, 8, together) <= all + spare);
        }
        assert_eq!(footprint.concurrency(8, 8, 0), 1);
        assert_eq!(footprint.sample(true) - footprint.sample(false), 100);
        assert_eq!(Footprint { vector: 0, excitation: 0, linearization: 0, work: 0 }.kept(8, 0).unwrap(), 8);
    }
}
