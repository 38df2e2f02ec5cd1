//! The function that a fit minimizes: the energy of the posterior, averaged over samples.
//!
//! With the residuals `r_s` of `n` samples and `H(x) = -ln p(data | x) + x.x / 2`
//! ```text
//! value     KL(x) = mean H(x + r_s)     (the divergence from the posterior, up to a constant)
//! gradient          mean (dE(x + r_s) + x + r_s)
//! metric            mean M(x + r_s) + 1, or M(x) + 1
//! ```
//! Without samples the only residual is 0, and the minimum is the most probable position (MAP).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;

use super::conjugate_gradient::Precondition;
use super::draw::free;
use super::error::{InferenceError, Result};
use super::groups::SampleGroups;
use super::log_likelihood::{EnergyTerms, LogLikelihood, LogLikelihoodAt, posterior_gradient};
use super::newton_cg::{Objective, ObjectiveAt};
use super::preconditioner::{Preconditioner, Without};
use super::samples::Samples;
use super::vector_space::{Reduction, VectorSpace, clear};
use crate::map::tree::{Node, nodes, tree_sum};

/// The metric of the Newton steps of a position. It decides the steps, not the minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Curvature {
    /// The average over samples: a product takes one application of the likelihood's metric for
    /// each sample, and a sum over groups.
    #[default]
    SampleAverage,
    /// The metric at the position: a product takes one application in each group and no exchange
    /// between groups. It suits nearly linear models. Where the metric varies over samples, steps
    /// are shorter and many more: iteration 2 of `meshloom infer --demo` takes 50 steps, the limit,
    /// of 1484 products in 17 s, instead of 6 steps of 42 averaged products in 4 s (lavapipe).
    AtPosition,
}

/// The energy of the posterior, averaged over the samples of all groups.
pub struct Kl<'a, S: VectorSpace> {
    /// The likelihood.
    pub likelihood: &'a dyn LogLikelihood<S>,
    /// The samples; their position does not matter.
    pub samples: &'a Samples<S>,
    /// The groups that share the samples.
    pub groups: &'a SampleGroups,
    /// Parts of latent values that do not move.
    pub constants: &'a [String],
    /// Number of samples of a group that keep the inputs of their derivatives.
    pub kept: usize,
    /// Number of samples of a group whose products and gradients are submitted together.
    pub concurrency: usize,
    /// The preconditioner of the metric, built near the position.
    pub preconditioner: Option<&'a Preconditioner<S>>,
    /// The metric that products apply.
    pub curvature: Curvature,
}

/// The likelihood's energy at a place.
enum Energy<V> {
    Known(Result<f64>),
    Recorded(EnergyTerms<V>),
}

impl<V> Energy<V> {
    /// Returns the energies of the vectors of a stack, or the one of a single vector.
    fn entries<S: VectorSpace<Vector = V>>(self, space: &mut S, copies: usize) -> Result<Vec<Self>> {
        match self {
            Energy::Recorded(terms) if copies > 1 => {
                let entry = |number| {
                    let vectors = terms.vectors.iter().map(|stack| space.entry(stack, number));
                    let vectors = vectors.collect::<Result<_, _>>()?;
                    Ok(Energy::Recorded(EnergyTerms { vectors, divisor: terms.divisor }))
                };
                (0..copies).map(entry).collect()
            }
            Energy::Known(energy) if copies > 1 => {
                let energy = energy?;
                Ok((0..copies).map(|_| Energy::Known(Ok(energy))).collect())
            }
            one => Ok(vec![one]),
        }
    }

    /// Returns the vectors of terms that are not summed yet.
    fn vectors(&self) -> &[V] {
        match self {
            Energy::Known(_) => &[],
            Energy::Recorded(terms) => &terms.vectors,
        }
    }
}

impl<S: VectorSpace> Kl<'_, S> {
    /// Returns `true` if products are computed at the position and not for each sample.
    fn is_at_position(&self) -> bool {
        self.curvature == Curvature::AtPosition && self.samples.count() > 0
    }

    /// `position` with the residual of a sample of this group.
    fn place(&self, space: &mut S, position: &S::Vector, sample: usize, place: &mut S::Vector) -> Result<()> {
        space.axpby(1.0, position, 0.0, place)?;
        match self.samples.residual(sample) {
            Some(residual) => space.axpby(1.0, residual, 1.0, place),
            None => Ok(()),
        }
    }

    /// Returns the places of samples of this group: a stack of them, if there are several.
    /// `None` if the space has none.
    fn places(&self, space: &mut S, position: &S::Vector, samples: Range<usize>) -> Result<Option<S::Vector>> {
        let made = at_once(space, position, samples.len(), |space| space.like(position))?;
        let Some(mut places) = made else { return Ok(None) };
        if samples.len() == 1 {
            self.place(space, position, samples.start, &mut places)?;
            return Ok(Some(places));
        }
        for (number, sample) in samples.enumerate() {
            let mut place = space.entry(&places, number)?;
            self.place(space, position, sample, &mut place)?;
        }
        Ok(Some(places))
    }

    /// Returns the values at places, from the likelihood's energies there. Blocks once for the
    /// energies that are recorded.
    fn values(&self, space: &mut S, places: &[S::Vector], energies: Vec<Energy<S::Vector>>) -> Result<Vec<f64>> {
        let squares = places.iter().map(|place| Reduction::Dot(place, place));
        let terms = energies.iter().flat_map(Energy::vectors).map(Reduction::Sum);
        // An energy that is not finite must not keep the other groups waiting: all learn of it.
        let sums = match space.reduce(&squares.chain(terms).collect::<Vec<_>>()) {
            Err(InferenceError::NotFinite { value, .. }) => return Ok(vec![value; places.len()]),
            sums => sums?,
        };
        let (squares, terms) = sums.split_at(places.len());
        let mut terms = terms.iter();
        let mut value = |(energy, square): (Energy<S::Vector>, &f64)| match energy {
            Energy::Recorded(own) => {
                let sum: f64 = terms.by_ref().take(own.vectors.len()).sum();
                Ok(sum / own.divisor + square / 2.0)
            }
            Energy::Known(Ok(energy)) => Ok(energy + square / 2.0),
            Energy::Known(Err(InferenceError::NotFinite { value, .. })) => Ok(value),
            Energy::Known(Err(error)) => Err(error),
        };
        energies.into_iter().zip(squares).map(&mut value).collect()
    }

    /// Returns the value at the position, from those at the places of this group's samples.
    fn mean_value(&self, values: &[f64]) -> Result<f64> {
        let mean = tree_sum(&self.groups.gather(values)?) / self.samples.terms() as f64;
        InferenceError::finite("the energy, averaged over samples,", mean)
    }

    /// Returns the samples of this group, those together whose work is recorded at once. The first
    /// ones, up to `kept`, keep their derivatives.
    fn parts(&self, space: &mut S, x: &S::Vector, kept: usize) -> Vec<Range<usize>> {
        let Range { start, end } = self.groups.block(self.samples.terms());
        let most = space.most_stacked(x).min(self.concurrency).max(1);
        let middle = end.min(start.saturating_add(kept));
        let cut = |from: usize, to: usize| (from..to).step_by(most).map(move |first| first..to.min(first + most));
        cut(start, middle).chain(cut(middle, end)).collect()
    }

    /// Evaluates the likelihood at the places of samples. `None` if it cannot be evaluated at
    /// several at once.
    fn evaluate<'a>(
        &'a self,
        space: &mut S,
        x: &S::Vector,
        samples: Range<usize>,
        keeps: bool,
    ) -> Result<Option<(Part<'a, S>, Vec<Energy<S::Vector>>)>> {
        let Some(places) = self.places(space, x, samples.clone())? else { return Ok(None) };
        let found = at_once(space, x, samples.len(), |space| {
            let at = keeps.then(|| self.likelihood.at(space, &places)).transpose()?;
            let terms = match &at {
                Some(at) => at.energy_terms(space)?,
                None => self.likelihood.energy_terms(space, &places)?,
            };
            let energy = match (terms, &at) {
                (Some(terms), _) => Energy::Recorded(terms),
                (None, Some(at)) => Energy::Known(at.energy(space)),
                (None, None) => Energy::Known(self.likelihood.energy(space, &places)),
            };
            Ok((at, energy))
        })?;
        let Some((at, energy)) = found else { return Ok(None) };
        let energies = energy.entries(space, samples.len())?;
        Ok(Some((Part { samples, places, at }, energies)))
    }

    /// Returns the values at the places of this group's samples, and the parts, of which the first
    /// ones, up to `kept` samples, have derivatives. Blocks once for samples that are computed
    /// together.
    fn value_of_samples<'a>(
        &'a self,
        space: &mut S,
        x: &S::Vector,
        kept: usize,
    ) -> Result<(Vec<f64>, Vec<Part<'a, S>>)> {
        let first = self.groups.block(self.samples.terms()).start;
        let (mut values, mut parts) = (Vec::new(), Vec::new());
        let (mut places, mut energies) = (Vec::new(), Vec::new());
        for samples in self.parts(space, x, kept) {
            let keeps = samples.start - first < kept;
            let mut found = Vec::new();
            match self.evaluate(space, x, samples.clone(), keeps)? {
                Some(all) => found.push(all),
                None => {
                    for sample in samples {
                        found.extend(self.evaluate(space, x, sample..sample + 1, keeps)?);
                    }
                }
            }
            for (part, own) in found {
                places.extend(part.entries(space)?);
                energies.extend(own);
                parts.push(part);
                if energies.len() >= self.concurrency.max(1) {
                    values.extend(self.values(space, &std::mem::take(&mut places), std::mem::take(&mut energies))?);
                }
            }
        }
        if !energies.is_empty() {
            values.extend(self.values(space, &places, energies)?);
        }
        Ok((values, parts))
    }
}

/// Samples whose work is recorded at once.
struct Part<'a, S: VectorSpace> {
    /// Numbers of the samples.
    samples: Range<usize>,
    /// The place of the sample, or the stack of places of several.
    places: S::Vector,
    /// The derivatives there, if they are kept.
    at: Option<Box<dyn LogLikelihoodAt<S> + 'a>>,
}

impl<S: VectorSpace> Part<'_, S> {
    /// Returns the place of each sample.
    fn entries(&self, space: &mut S) -> Result<Vec<S::Vector>> {
        (0..self.samples.len()).map(|number| space.entry(&self.places, number)).collect()
    }
}

/// Returns what work on one vector like `x`, or on a stack of several, records; `None` if the space
/// has no such stack.
fn at_once<S: VectorSpace, T>(
    space: &mut S,
    x: &S::Vector,
    copies: usize,
    mut work: impl FnMut(&mut S) -> Result<T>,
) -> Result<Option<T>> {
    if copies <= 1 {
        return work(space).map(Some);
    }
    let mut made = None;
    let is_made = space.stacked(x, copies, &mut |space| work(space).map(|own| made = Some(own)))?;
    Ok(made.filter(|_| is_made))
}

impl<S: VectorSpace> Objective<S> for Kl<'_, S> {
    fn at<'a>(&'a self, space: &mut S, x: &S::Vector) -> Result<(f64, Box<dyn ObjectiveAt<S> + 'a>)> {
        let (values, parts) = self.value_of_samples(space, x, self.kept)?;
        let value = self.mean_value(&values)?;
        let whole = self.preconditioner.map(|own| own as &dyn Precondition<S>);
        let preconditioner = whole.map(|whole| Without { whole, parts: self.constants });
        let position = self.is_at_position().then(|| space.copy(x)).transpose()?;
        let (parts, at_position) = (RefCell::new(parts), RefCell::default());
        let kl = self;
        Ok((value, Box::new(KlAt { kl, parts, position, at_position, preconditioner })))
    }

    fn value(&self, space: &mut S, x: &S::Vector) -> Result<f64> {
        let (values, _) = self.value_of_samples(space, x, 0)?;
        self.mean_value(&values)
    }

    fn free(&self, space: &mut S, x: &S::Vector) -> u64 {
        free(space, self.constants, x)
    }

    /// Products of the averaged metric are sums that all groups receive. Each group computes those
    /// at the position by itself, and devices of different groups may round them differently.
    fn agree(&self, space: &mut S, x: S::Vector, numbers: &mut [f64]) -> Result<S::Vector> {
        if !self.is_at_position() {
            return Ok(x);
        }
        self.groups.share_numbers(numbers)?;
        self.groups.share(space, 0, x)
    }
}

/// The derivatives at a position.
struct KlAt<'a, S: VectorSpace> {
    kl: &'a Kl<'a, S>,
    /// The samples of this group.
    parts: RefCell<Vec<Part<'a, S>>>,
    /// The position, if the metric is the one there.
    position: Option<S::Vector>,
    /// The derivatives at the position after the first product.
    at_position: RefCell<Option<Box<dyn LogLikelihoodAt<S> + 'a>>>,
    preconditioner: Option<Without<'a, S>>,
}

/// Work with the derivatives at the place of a sample, or those of a stack.
type AtPlace<'a, S> =
    dyn FnMut(&mut S, &dyn LogLikelihoodAt<S>, &<S as VectorSpace>::Vector) -> Result<<S as VectorSpace>::Vector> + 'a;

impl<S: VectorSpace> KlAt<'_, S> {
    /// Returns what `one` makes of a part: sums of nodes of the tree over samples. `None` if it
    /// cannot be done for several samples at once.
    fn of_part(
        &self,
        space: &mut S,
        part: &Part<'_, S>,
        one: &mut AtPlace<'_, S>,
    ) -> Result<Option<Vec<(Node, S::Vector)>>> {
        let Range { start, end } = part.samples;
        let made = at_once(space, &part.places, end - start, |space| match &part.at {
            Some(at) => one(space, &**at, &part.places),
            None => {
                let at = self.kl.likelihood.at(space, &part.places)?;
                one(space, &*at, &part.places)
            }
        })?;
        let Some(made) = made else { return Ok(None) };
        if end - start == 1 {
            return Ok(Some(vec![(Node::item(start as u64), made)]));
        }
        let sum = |node: Node| {
            let first = node.first() as usize - start;
            Ok((node, space.sum_of_entries(&made, first..first + (1 << node.level))?))
        };
        nodes(start as u64..end as u64).into_iter().map(sum).collect::<Result<_, _>>().map(Some)
    }

    /// Replaces a part by its samples, whose work is recorded one by one.
    fn divide(&self, space: &mut S, number: usize) -> Result<()> {
        let part = self.parts.borrow_mut().remove(number);
        let (samples, keeps) = (part.samples.clone(), part.at.is_some());
        let mut singles = Vec::new();
        for (sample, places) in samples.zip(part.entries(space)?) {
            let at = keeps.then(|| self.kl.likelihood.at(space, &places)).transpose()?;
            singles.push(Part { samples: sample..sample + 1, places, at });
        }
        self.parts.borrow_mut().splice(number..number, singles);
        Ok(())
    }

    /// `out` = the mean over samples of what `one` makes of the derivatives at their places.
    fn mean(&self, space: &mut S, one: &mut AtPlace<'_, S>, out: &mut S::Vector) -> Result<()> {
        let terms = self.kl.samples.terms();
        let (mut next, mut recorded, mut made) = (0, 0, VecDeque::new());
        let mut summand = |space: &mut S, _: usize| {
            loop {
                if let Some(one) = made.pop_front() {
                    return Ok(one);
                }
                let found = self.of_part(space, &self.parts.borrow()[next], one)?;
                let Some(found) = found else {
                    self.divide(space, next)?;
                    continue;
                };
                made.extend(found);
                recorded += self.parts.borrow()[next].samples.len();
                next += 1;
                if recorded >= self.kl.concurrency {
                    // The device works on them while the next ones are recorded, which take the
                    // memory that is free then.
                    space.submit()?;
                    recorded = 0;
                }
            }
        };
        let sum = self.kl.groups.sum_of_nodes(space, terms, &mut summand, out)?;
        space.axpby(1.0 / terms as f64, &sum, 0.0, out)
    }
}

impl<S: VectorSpace> ObjectiveAt<S> for KlAt<'_, S> {
    fn gradient(&self, space: &mut S, out: &mut S::Vector) -> Result<()> {
        self.mean(space, &mut posterior_gradient, out)?;
        if self.position.is_some() {
            // No product uses the derivatives of samples: the position takes their memory.
            self.parts.borrow_mut().iter_mut().for_each(|part| part.at = None);
        }
        clear(space, self.kl.constants, out)
    }

    fn metric(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<()> {
        let mut one = |space: &mut S, at: &dyn LogLikelihoodAt<S>, _: &S::Vector| {
            let mut product = space.like(v)?;
            at.metric(space, v, &mut product)?;
            Ok(product)
        };
        match &self.position {
            Some(position) => {
                let mut at = self.at_position.borrow_mut();
                let at = match &mut *at {
                    Some(at) => at,
                    none => none.insert(self.kl.likelihood.at(space, position)?),
                };
                at.metric(space, v, out)?;
            }
            None => self.mean(space, &mut one, out)?,
        }
        clear(space, self.kl.constants, out)?;
        space.axpby(1.0, v, 1.0, out)
    }

    fn preconditioner(&self) -> Option<&dyn Precondition<S>> {
        self.preconditioner.as_ref().map(|own| own as &dyn Precondition<S>)
    }
}
