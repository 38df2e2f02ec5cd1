//! Adaptation of a chain while it warms up: step sizes and scales, as in Stan.

use std::ops::Deref;
use std::rc::Rc;

use super::phase::Target;
use super::{Algorithm, Chain, Sampler, StepAverage, TRIALS};
use crate::inference::error::{InferenceError, Result};
use crate::inference::log_likelihood::LogLikelihood;
use crate::inference::vector_space::{Elementwise, VectorSpace};

/// Step sizes by dual averaging (Hoffman & Gelman 2014).
#[derive(Clone, Copy, Debug)]
pub(super) struct DualAverage {
    pub center: f64,
    pub target: f64,
    pub count: f64,
    pub error: f64,
    pub mean: f64,
}

impl DualAverage {
    /// Starts at a step size, toward an acceptance.
    pub fn new(step: f64, target: f64) -> Self {
        DualAverage { center: (10.0 * step).ln(), target, count: 0.0, error: 0.0, mean: step.ln() }
    }

    /// Returns the next step size, after one trajectory with an acceptance.
    pub fn next(&mut self, acceptance: f64) -> f64 {
        const SHRINKAGE: f64 = 0.05;
        const DELAY: f64 = 10.0;
        const DECAY: f64 = 0.75;
        self.count += 1.0;
        let weight = 1.0 / (self.count + DELAY);
        self.error = (1.0 - weight) * self.error + weight * (self.target - acceptance);
        let next = self.center - self.error * self.count.sqrt() / SHRINKAGE;
        let weight = self.count.powf(-DECAY);
        self.mean = weight * next + (1.0 - weight) * self.mean;
        next.exp()
    }

    /// Returns the step size of the draws.
    pub fn step(&self) -> f64 {
        self.mean.exp()
    }
}

/// Step sizes of MCLMC, at which the variance of the energy's error per number has a given value
/// (Robnik et al. 2023).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EnergyAverage {
    pub sum: f64,
    pub weight: f64,
}

impl EnergyAverage {
    /// Returns the next step size, after a step of size `step` with `relative`, the square of the
    /// energy's error over the wanted one.
    pub fn next(&mut self, step: f64, relative: f64) -> f64 {
        /// Steps that count, and the standard deviation of the logarithm of the error in units of
        /// 6, beyond which a step counts little.
        const MEMORY: f64 = 150.0;
        const SPREAD: f64 = 1.5;
        let relative = relative + 1e-8;
        let weight = (-0.5 * (relative.ln() / (6.0 * SPREAD)).powi(2)).exp();
        let kept = (MEMORY - 1.0) / (MEMORY + 1.0);
        self.sum = kept * self.sum + weight * relative / step.powi(6);
        self.weight = kept * self.weight + weight;
        (self.sum / self.weight).powf(-1.0 / 6.0)
    }
}

/// The mean and the variance of each number over the draws of a window (Welford 1962).
pub(super) struct Moments<S: VectorSpace> {
    /// Number of draws.
    pub count: u32,
    pub mean: S::Vector,
    /// Sum of squared distances from the mean.
    pub squares: S::Vector,
}

impl<S: VectorSpace> Moments<S> {
    pub fn new(space: &mut S, like: &S::Vector) -> Result<Self> {
        Ok(Moments { count: 0, mean: space.zeros(like)?, squares: space.zeros(like)? })
    }

    /// Adds a draw.
    pub fn add(&mut self, space: &mut S, x: &S::Vector) -> Result<()> {
        self.count += 1;
        let count = f64::from(self.count);
        let mut distance = space.copy(x)?;
        space.axpby(-1.0, &self.mean, 1.0, &mut distance)?;
        space.axpby(1.0 / count, &distance, 1.0, &mut self.mean)?;
        space.multiply((count - 1.0) / count, [&distance, &distance], 1.0, &mut self.squares)
    }

    /// Returns the root of the variance, averaged with `scale`, which weighs as much as a few
    /// draws: the variance of few draws may be far too small.
    pub fn scale(&self, space: &mut S, scale: &S::Vector) -> Result<S::Vector> {
        const WEIGHT: f64 = 5.0;
        let count = f64::from(self.count);
        let mut next = space.copy(&self.squares)?;
        let total = count + WEIGHT;
        let kept = (count / (count - 1.0).max(1.0)) / total;
        space.multiply(WEIGHT / total, [scale, scale], kept, &mut next)?;
        space.map(Elementwise::Sqrt, &mut next)?;
        Ok(next)
    }
}

/// Means of batches of steps, which give the autocorrelation time: the variance of a mean is that
/// of a position times this time over the size of the batch.
pub(super) struct Batches<S: VectorSpace> {
    /// Steps of the present batch, and their sum.
    pub steps: u32,
    pub sum: S::Vector,
    pub means: Moments<S>,
}

impl<S: VectorSpace> Batches<S> {
    /// Number of batches of a window.
    pub const COUNT: u32 = 8;

    pub fn new(space: &mut S, like: &S::Vector) -> Result<Self> {
        Ok(Batches { steps: 0, sum: space.zeros(like)?, means: Moments::new(space, like)? })
    }

    /// Adds the position after a step to batches of `size` steps.
    pub fn add(&mut self, space: &mut S, x: &S::Vector, size: u32) -> Result<()> {
        let kept = f64::from(u8::from(self.steps > 0));
        space.axpby(1.0 / f64::from(size), x, kept, &mut self.sum)?;
        self.steps += 1;
        if self.steps == size {
            self.means.add(space, &self.sum)?;
            self.steps = 0;
        }
        Ok(())
    }

    /// Returns the mean autocorrelation time of all numbers in steps, for batches of `size` steps
    /// and the moments of the window. Blocks once.
    pub fn time(&self, space: &mut S, moments: &Moments<S>, size: u32) -> Result<f64> {
        /// Variances far below the inverse of this number count little.
        const LARGE: f64 = 1e6;
        let [of_means, of_places] = [&self.means, moments].map(|of| f64::from(of.count.max(2) - 1));
        let mut inverse = space.scaled(LARGE / of_places, &moments.squares)?;
        space.map(Elementwise::Deviation, &mut inverse)?;
        let mut ratio = space.like(&self.sum)?;
        space.multiply(LARGE / of_means, [&inverse, &self.means.squares], 0.0, &mut ratio)?;
        Ok(f64::from(size) * space.dot(&inverse, &ratio)? / space.len(&ratio) as f64)
    }
}

/// Returns the numbers of the draws after which scales change, for a number of draws of warm-up:
/// the first draws find the typical set, windows double, and the last draws find the step size.
pub(super) fn windows(warmup: u32) -> (u32, Vec<u32>) {
    const FIRST: u32 = 75;
    const LAST: u32 = 50;
    const WINDOW: u32 = 25;
    const SHORT: u32 = 10;
    const LEAST: u32 = 20;
    if warmup < LEAST {
        return (warmup, Vec::new());
    }
    let (first, last, mut window) = if warmup >= FIRST + LAST + WINDOW {
        (FIRST, LAST, WINDOW)
    } else {
        // A step size needs some draws after the last change of scales.
        let (first, last) = (warmup * 15 / 100, (warmup / 10).max(SHORT));
        (first, last, warmup.saturating_sub(first + last))
    };
    let mut ends = Vec::new();
    let end = warmup - last;
    let mut at = first;
    while at < end {
        // The last window takes what a next one would not fill.
        at = if at + 3 * window > end { end } else { at + window };
        ends.push(at);
        window *= 2;
    }
    (first, ends)
}

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
        let start = self.with_momentum(space, chain, TRIALS)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_double_and_leave_the_last_draws() {
        assert_eq!(windows(1000), (75, vec![100, 150, 250, 450, 950]));
        assert_eq!(windows(150), (75, vec![100]));
        assert_eq!(windows(100), (15, vec![90]));
        assert_eq!(windows(20), (3, vec![10]));
        assert_eq!(windows(19), (19, vec![]));
        assert_eq!(windows(0), (0, vec![]));
    }

    #[test]
    fn dual_averaging_finds_the_acceptance() {
        // Acceptance falls with the step size; 0.8 is at ln(1 / 0.8) = 0.223.
        let mut average = DualAverage::new(2.0, 0.8);
        let mut step: f64 = 2.0;
        for _ in 0..500 {
            step = average.next((-step).exp());
        }
        assert!((average.step() - 0.223).abs() < 0.02, "{}", average.step());
    }

    #[test]
    fn energy_averages_find_the_step_of_the_wanted_error() {
        // The relative square grows by the sixth power and is 1 at 0.5.
        let (mut average, mut step) = (EnergyAverage::default(), 0.1);
        for _ in 0..100 {
            step = average.next(step, (step / 0.5_f64).powi(6));
        }
        assert!((step - 0.5).abs() < 1e-2, "{step}");
    }
}
