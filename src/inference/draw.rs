//! The samples of an iteration.

use super::conjugate_gradient::{CgOptions, CgOutcome};
use super::convergence::SampleOutcome;
use super::error::InferenceError;
use super::excitation::Excitations;
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::newton_cg::NewtonOptions;
use super::residual::{Expansion, clear};
use super::samples::Samples;
use super::vector_space::VectorSpace;

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
    /// The samples of the iteration before, bent about the new position. If their number changes, they are drawn again
    /// with the same random numbers.
    Update,
}

impl Sampling {
    /// Returns `true` if the random numbers are those of the iteration before.
    pub(super) fn repeats(self) -> bool {
        !matches!(self, Sampling::Linear(Draw::New) | Sampling::Curved(Draw::New))
    }
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
}

impl<S: VectorSpace> Drawing<'_, S> {
    /// Draws this group's samples about the position of `before`; calls `told` after each. Not
    /// collective over groups.
    pub fn samples(
        &self,
        space: &mut S,
        before: Samples<S>,
        told: &mut dyn FnMut(usize),
    ) -> Result<Samples<S>, InferenceError> {
        let count = 2 * self.pairs;
        if count == 0 {
            return Ok(Samples::none(before.position));
        }
        let expansion = Expansion::new(space, self.likelihood, &before.position, self.point_estimates)?;
        let moves = self.sampling == Sampling::Update && before.count() == count;
        let (mut residuals, mut outcomes) = (Vec::new(), Vec::new());
        // Both signs of a pair have the straight residual of the positive sign.
        let mut straight: Option<(usize, CgOutcome<S::Vector>)> = None;
        for sample in self.groups.block(count) {
            let (pair, sign) = (sample / 2, if sample % 2 == 0 { 1.0 } else { -1.0 });
            let key = [self.drawn_in, pair as u32];
            let mut residual = space.like(&before.position)?;
            let mut outcome = match before.residual(sample) {
                Some(own) if moves => {
                    space.axpby(1.0, own, 0.0, &mut residual)?;
                    // Parts may have become point estimates since the sample was drawn.
                    clear(space, self.point_estimates, &mut residual)?;
                    SampleOutcome { steps: 0, ..before.outcome(sample).unwrap_or_default() }
                }
                _ => {
                    let positive = match straight.take() {
                        Some((of, positive)) if of == pair => positive,
                        _ => expansion.linear(space, self.excitations, key, &self.linear)?,
                    };
                    space.axpby(sign, &positive.x, 0.0, &mut residual)?;
                    let (steps, error_ratio) = (positive.iterations, positive.error_ratio);
                    straight = Some((pair, positive));
                    SampleOutcome { steps, error_ratio, curve: None }
                }
            };
            // Without steps no sample is bent, and likelihoods need no coordinates.
            if !matches!(self.sampling, Sampling::Linear(_)) && self.curve.maxiter > 0 {
                let bent = expansion.curve(space, self.excitations, key, sign, &residual, &self.curve)?;
                residual = bent.x;
                outcome.curve = Some(bent.stop);
            }
            residuals.push(residual);
            outcomes.push(outcome);
            told(sample);
        }
        Samples::new(before.position, self.groups, count, residuals)?.with_outcomes(outcomes)
    }
}
