//! The samples of an iteration of a fit.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::conjugate_gradient::{CgOptions, CgOutcome};
use super::draw::{self, Excitations, Expansion, Straight};
use super::error::Result;
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::newton_cg::NewtonOptions;
use super::preconditioner::Preconditioner;
use super::report::SampleOutcome;
use super::samples::Samples;
use super::vector_space::{VectorSpace, clear};

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

impl Sampling {
    /// Returns `true` if the random numbers repeat the iteration before.
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
                self.draw_together(space, &expansion, samples, start..next, &mut |sample, residual, outcome| {
                    residuals.push(residual);
                    outcomes.push(outcome);
                    told(sample);
                })?;
                start = next;
            }
        }
        samples.replace(self.groups, count, residuals, outcomes)
    }

    /// Draws samples of whole pairs, or of one sign at the ends, and gives each to `take`.
    fn draw_together(
        &self,
        space: &mut S,
        expansion: &Expansion<'_, S>,
        samples: &Samples<S>,
        own: Range<usize>,
        take: &mut dyn FnMut(usize, S::Vector, SampleOutcome),
    ) -> Result<()> {
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
        for sample in own.clone().filter(|_| self.bends()).step_by(self.concurrency.max(1)) {
            let block = sample..sample.saturating_add(self.concurrency.max(1)).min(own.end);
            let places = sample - own.start..block.end - own.start;
            self.bend(space, expansion, &metric_samples, (block, &mut found[places]))?;
        }
        own.zip(found).for_each(|(sample, (residual, outcome))| take(sample, residual, outcome));
        Ok(())
    }

    /// Bends samples together, from their straight residuals.
    fn bend(
        &self,
        space: &mut S,
        expansion: &Expansion<'_, S>,
        metric_samples: &BTreeMap<usize, S::Vector>,
        (own, found): (Range<usize>, &mut [(S::Vector, SampleOutcome)]),
    ) -> Result<()> {
        let starts = own.zip(found.iter()).map(|(sample, (residual, _))| {
            let t = &metric_samples[&(sample / 2)];
            Straight { t, sign: sign(sample), residual }
        });
        let starts: Vec<Straight<'_, S::Vector>> = starts.collect();
        let bent = expansion.bend(space, &starts, &self.curve)?;
        for ((residual, outcome), bent) in found.iter_mut().zip(bent) {
            *residual = bent.x;
            outcome.curve = Some(bent.stop);
        }
        Ok(())
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
        let solves = starts.map(|start| expansion.solve(space, start, &self.linear));
        let mut solves = solves.collect::<Result<Vec<_>, _>>()?;
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
