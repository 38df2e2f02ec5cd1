//! Whether the conjugate gradients that samples are drawn with have converged.

use super::conjugate_gradient::CgStop;
use super::error::InferenceError;
use super::groups::SampleGroups;

/// How conjugate gradients ended for all samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Convergence {
    /// Steps of the sample that took the most.
    pub steps: u64,
    /// Samples, both signs of each, whose steps ended only because no more were allowed ([`CgStop::Iterations`]). These samples lie between prior and
    /// posterior: where noise is low their deviations are many times too large.
    pub unconverged: u64,
}

impl Convergence {
    /// Of the samples of all groups, from the steps and ends of each group's block. All ranks of all groups call it.
    pub(super) fn over(groups: &SampleGroups, own: &[(u64, CgStop)]) -> Result<Self, InferenceError> {
        // Whole numbers below 2^53 are exact.
        let steps: Vec<f64> = own.iter().map(|&(steps, _)| steps as f64).collect();
        let ended = own.iter().map(|&(_, stop)| if stop == CgStop::Iterations { 1.0 } else { 0.0 });
        let ended: Vec<f64> = ended.collect();
        let (steps, ended) = (groups.gather(&steps)?, groups.gather(&ended)?);
        let most = steps.into_iter().fold(0.0, f64::max);
        Ok(Convergence { steps: most as u64, unconverged: ended.iter().sum::<f64>() as u64 })
    }

    /// With those of one more solution.
    #[must_use]
    pub(super) fn and(self, steps: u64, stop: CgStop) -> Self {
        Convergence {
            steps: self.steps.max(steps),
            unconverged: self.unconverged + u64::from(stop == CgStop::Iterations),
        }
    }
}
