//! Adaptation of a chain while it warms up.

use std::ops::Deref;
use std::rc::Rc;

use super::adaptation::{Batches, DualAverage, EnergyAverage, Moments, windows};
use super::phase::Target;
use super::{Algorithm, Chain, Sampler, StepAverage, TRIALS};
use crate::inference::error::{InferenceError, Result};
use crate::inference::log_likelihood::LogLikelihood;
use crate::inference::vector_space::VectorSpace;

impl<S: VectorSpace, L: Deref<Target: LogLikelihood<S> + Sized>> Sampler<S, L> {
    /// Finds a step size for the scales of a chain, and starts its average again.
    pub(super) fn restart(&self, space: &mut S, chain: &mut Chain<S>) -> Result<()> {
        let target = Target { likelihood: &*self.likelihood, scale: &chain.scale };
        if chain.flight.take().is_some() {
            // The gradient of a flight is in units of the scales before.
            let x = space.copy(&chain.place.x)?;
            let Some(place) = target.place(space, x)? else {
                let what = format!("the energy of chain {}", chain.number);
                return Err(InferenceError::NotFinite { what, value: f64::NAN });
            };
            chain.place = Rc::new(place);
        }
        // A standard deviation of all numbers, which move one after the other in MCLMC.
        let deviation = (space.len(&chain.place.x).max(1) as f64).sqrt();
        match self.options.algorithm {
            Algorithm::Mclmc { .. } => {
                chain.step = 0.25 * deviation;
                chain.average = StepAverage::Energy(EnergyAverage::default());
            }
            Algorithm::AdjustedMclmc { acceptance, .. } => {
                chain.step = deviation * self.first_step(space, &target, chain)?;
                let average = DualAverage::new(chain.step, acceptance);
                // Larger steps would all be rejected, and make the next ones far too small.
                chain.average = StepAverage::Acceptance(DualAverage { center: chain.step.ln(), ..average });
            }
            Algorithm::Nuts { acceptance, .. } | Algorithm::Hmc { acceptance, .. } => {
                chain.step = self.first_step(space, &target, chain)?;
                chain.average = StepAverage::Acceptance(DualAverage::new(chain.step, acceptance));
            }
        }
        Ok(())
    }

    /// Returns a step size at which one step is accepted about half of the time, to a factor of 2
    /// (Hoffman & Gelman 2014, algorithm 4).
    fn first_step(&self, space: &mut S, target: &Target<'_, S>, chain: &Chain<S>) -> Result<f64> {
        let start = self.with_momentum(space, target, chain, TRIALS)?;
        let is_accepted = |space: &mut S, step: f64| {
            let end = target.leapfrog(space, &start, step)?;
            Ok::<_, InferenceError>(end.is_some_and(|end| start.energy() - end.energy() > 0.5_f64.ln()))
        };
        let mut step = 1.0;
        let grows = is_accepted(space, step)?;
        for _ in 0..60 {
            let next = if grows { 2.0 * step } else { step / 2.0 };
            // Scales are standard deviations: no larger step is of use.
            if next > 4.0 || is_accepted(space, next)? != grows {
                return Ok(if grows { step } else { next });
            }
            step = next;
        }
        let what = format!("the energy of chain {} after any step from its start", chain.number);
        Err(InferenceError::NotFinite { what, value: f64::NAN })
    }

    /// Returns the steps of a batch at a draw of the window that finds the length of MCLMC;
    /// otherwise `None`.
    pub(super) fn batch(&self, draw: u32) -> Option<u32> {
        let Algorithm::Mclmc { steps, length: None, .. } = self.options.algorithm else { return None };
        let (first, ends) = windows(self.options.warmup);
        let (last, others) = ends.split_last()?;
        let window = *others.last().unwrap_or(&first)..*last;
        window.contains(&draw).then(|| ((window.end - window.start).saturating_mul(steps) / Batches::<S>::COUNT).max(1))
    }

    /// Takes a draw of the warm-up into the scales, and ends windows.
    pub(super) fn adapt(&self, space: &mut S, chain: &mut Chain<S>) -> Result<()> {
        let (first, ends) = windows(self.options.warmup);
        let done = self.done + 1;
        if self.done >= first && ends.last().is_some_and(|last| done <= *last) {
            chain.moments.add(space, &chain.place.x)?;
        }
        if ends.contains(&done) {
            if let (Some(batches), Some(size)) = (chain.batches.take(), self.batch(self.done)) {
                /// Length over the distance of correlated positions (Robnik et al. 2023).
                const PART: f64 = 0.4;
                let time = batches.time(space, &chain.moments, size)?;
                chain.length = (PART * chain.step * time).max(chain.step);
            }
            chain.scale.diagonal = chain.moments.scale(space, &chain.scale.diagonal)?;
            chain.moments = Moments::new(space, &chain.place.x)?;
            self.restart(space, chain)?;
        } else if let (true, StepAverage::Acceptance(average)) = (done == self.options.warmup, &chain.average) {
            chain.step = average.step();
        }
        // The device works on it while the next chain is recorded.
        space.submit()
    }
}
