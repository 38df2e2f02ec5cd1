//! The memory of a device that a fit takes, measured on what it is made of, before it runs.

use super::error::InferenceError;
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::vector_space::{Reduction, VectorSpace};
use crate::comm::Op;

/// Vectors beside those of samples: the position, the gradient, a step, those of conjugate gradients, a trial and what is on its way.
const VECTORS: u64 = 12;

/// Vectors of noise and coordinates of the data that a bent sample is found with.
const EXCITATIONS: u64 = 6;

/// Bytes of device memory that the pieces of a fit take; of the rank whose device has the least to spare. Ranks that share a device as threads count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// A latent vector.
    pub vector: u64,
    /// A vector of noise of the data.
    pub excitation: u64,
    /// What the derivatives at a point keep: the arrays between operators.
    pub linearisation: u64,
    /// What applications of the derivatives and inner products take beside that, for a while.
    pub work: u64,
}

impl Footprint {
    /// Measures the pieces at `position`: one value, gradient and product with the metric. All ranks of all groups call it.
    pub(super) fn measure<S: VectorSpace>(
        space: &mut S,
        groups: &SampleGroups,
        likelihood: &dyn LogLikelihood<S>,
        position: &S::Vector,
    ) -> Result<Self, InferenceError> {
        let mut out = space.like(position)?;
        let before = settled(space, groups)?;
        let place = space.copy(position)?;
        let vector = settled(space, groups)?;
        let eta = likelihood.data(space)?;
        let excitation = settled(space, groups)?;
        let at = likelihood.at(space, &place)?;
        let linearisation = settled(space, groups)?;
        at.gradient(space, &mut out)?;
        at.metric(space, &place, &mut out)?;
        // What is not finite is an error of the fit, which begins with this.
        let all = [Reduction::Dot(&out, &out), Reduction::Dot(&out, &place), Reduction::Dot(&place, &place)];
        for found in [at.energy(space).map(drop), space.reduce(&all).map(drop)] {
            if !matches!(found, Err(InferenceError::NotFinite { .. })) {
                found?;
            }
        }
        groups.all().barrier()?;
        let work = space.allocated();
        groups.all().barrier()?;
        drop((at, eta, place));
        settled(space, groups)?;
        let steps = [[before, vector], [vector, excitation], [excitation, linearisation], [linearisation, work]];
        let mut bytes = steps.map(|[before, after]| after.saturating_sub(before));
        groups.all().all_reduce(&mut bytes, Op::Max)?;
        let [vector, excitation, linearisation, work] = bytes;
        Ok(Footprint { vector, excitation, linearisation, work })
    }

    /// Bytes that a sample takes: its residual and place, and, where it is kept, what its derivatives need.
    pub fn sample(&self, kept: bool) -> u64 {
        2 * self.vector + if kept { self.linearisation } else { 0 }
    }

    /// Bytes that an iteration takes of a rank whose group has so many samples, of which `kept` keep what their derivatives need.
    pub fn bytes(&self, samples: usize, kept: usize) -> u64 {
        let (samples, kept) = (samples as u64, kept.min(samples) as u64);
        let levels = u64::from(samples.max(1).next_power_of_two().ilog2()) + 1;
        let vectors = (2 * samples + levels + VECTORS) * self.vector + EXCITATIONS * self.excitation;
        // One more for what is not kept; a bent sample needs two, and makes two products before it submits them. Products of samples are submitted one by one.
        let linearisations = (kept + u64::from(kept < samples)).max(2);
        vectors + linearisations * self.linearisation + 2 * self.work
    }

    /// How many of so many samples can be kept within `budget` bytes.
    ///
    /// # Errors
    /// [`InferenceError::Memory`] where not even an iteration that keeps none fits.
    pub fn kept(&self, samples: usize, budget: u64) -> Result<usize, InferenceError> {
        let fits = |kept: &usize| self.bytes(samples, *kept) <= budget;
        let most = (0..=samples).rev().find(fits);
        most.ok_or_else(|| InferenceError::Memory { needed: self.bytes(samples, 0), budget, samples })
    }
}

/// Bytes that are in use once all ranks have done all their work and gave back what they keep. All ranks of all groups call it.
fn settled<S: VectorSpace>(space: &mut S, groups: &SampleGroups) -> Result<u64, InferenceError> {
    space.settle()?;
    groups.all().barrier()?;
    // What one has waited for may have come back after another's turn.
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
        let footprint = Footprint { vector: 10, excitation: 5, linearisation: 100, work: 50 };
        // 2 vectors a sample, 4 levels, 12 more; two products; 100 for each linearisation, of which there are two at least.
        let least = (16 + 4 + 12) * 10 + 30 + 100;
        for (budget, kept) in [(200, 1), (299, 1), (300, 2), (799, 6), (800, 8), (10_000, 8)] {
            assert_eq!(footprint.kept(8, least + budget).unwrap(), kept, "{budget}");
            assert!(footprint.bytes(8, kept) <= least + budget);
        }
        let error = footprint.kept(8, least + 199).unwrap_err();
        assert!(
            matches!(error, InferenceError::Memory { needed, budget, samples: 8 } if needed == budget + 1),
            "{error}"
        );
        assert_eq!(footprint.sample(true) - footprint.sample(false), 100);
        assert_eq!(Footprint { vector: 0, excitation: 0, linearisation: 0, work: 0 }.kept(8, 0).unwrap(), 8);
    }
}
