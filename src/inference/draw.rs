//! The samples of an iteration.

use super::conjugate_gradient::{CgOptions, CgOutcome, CgStop};
use super::error::InferenceError;
use super::excitation::Excitations;
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::newton_cg::NewtonOptions;
use super::residual::{Expansion, clear};
use super::samples::Samples;
use super::vector_space::VectorSpace;

/// Which random numbers samples are drawn with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// New ones, of this iteration.
    New,
    /// Those of the iteration before: samples follow the position, and the energy with them.
    Again,
}

/// What samples are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Straight: of a Gaussian (MGVI).
    Linear(Draw),
    /// Straight ones that are bent to the posterior (geoVI), each sign for itself.
    Curved(Draw),
    /// The samples of the iteration before, bent anew about the new position. Where their number changes they are drawn again, with the same numbers.
    Update,
}

impl Sampling {
    /// Whether its random numbers are those of the iteration before.
    pub(super) fn repeats(self) -> bool {
        !matches!(self, Sampling::Linear(Draw::New) | Sampling::Curved(Draw::New))
    }
}

/// What the samples of an iteration are drawn with.
pub(super) struct Drawing<'a, S: VectorSpace> {
    pub likelihood: &'a dyn LogLikelihood<S>,
    pub groups: &'a SampleGroups,
    pub excitations: &'a Excitations<S>,
    pub sampling: Sampling,
    /// Mirrored pairs.
    pub pairs: usize,
    /// The iteration whose random numbers are taken.
    pub drawn_in: u32,
    pub linear: CgOptions,
    pub curve: NewtonOptions,
    pub point_estimates: &'a [String],
}

impl<S: VectorSpace> Drawing<'_, S> {
    /// Draws this group's samples about the position of `before`, with the steps of conjugate gradients that each took and why they ended; `told` hears of each.
    /// Groups do not meet.
    pub fn samples(
        &self,
        space: &mut S,
        before: Samples<S>,
        told: &mut dyn FnMut(usize),
    ) -> Result<(Samples<S>, Vec<(u64, CgStop)>), InferenceError> {
        let count = 2 * self.pairs;
        if count == 0 {
            return Ok((Samples::none(before.position), Vec::new()));
        }
        let expansion = Expansion::new(space, self.likelihood, &before.position, self.point_estimates)?;
        let moves = self.sampling == Sampling::Update && before.count() == count;
        let (mut residuals, mut solved) = (Vec::new(), Vec::new());
        // The straight residual of the positive sign of a pair serves both.
        let mut straight: Option<(usize, CgOutcome<S::Vector>)> = None;
        for sample in self.groups.block(count) {
            let (pair, sign) = (sample / 2, if sample % 2 == 0 { 1.0 } else { -1.0 });
            let key = [self.drawn_in, pair as u32];
            let mut residual = space.like(&before.position)?;
            match before.residual(sample) {
                Some(own) if moves => {
                    space.axpby(1.0, own, 0.0, &mut residual)?;
                    // Some may have become point estimates since it was drawn.
                    clear(space, self.point_estimates, &mut residual)?;
                    // It was solved for when it was drawn.
                    solved.push((0, CgStop::Residual));
                }
                _ => {
                    let positive = match straight.take() {
                        Some((of, positive)) if of == pair => positive,
                        _ => expansion.linear(space, self.excitations, key, &self.linear)?,
                    };
                    space.axpby(sign, &positive.x, 0.0, &mut residual)?;
                    solved.push((positive.iterations, positive.stop));
                    straight = Some((pair, positive));
                }
            }
            // Without steps nothing is bent, and likelihoods need no coordinates.
            if !matches!(self.sampling, Sampling::Linear(_)) && self.curve.maxiter > 0 {
                residual = expansion.curve(space, self.excitations, key, sign, &residual, &self.curve)?.x;
            }
            residuals.push(residual);
            told(sample);
        }
        Ok((Samples::new(before.position, self.groups, count, residuals)?, solved))
    }
}
