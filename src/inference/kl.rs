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
use std::ops::Range;

use super::conjugate_gradient::Precondition;
use super::draw::free;
use super::error::InferenceError;
use super::groups::SampleGroups;
use super::log_likelihood::{EnergyTerms, LogLikelihood, LogLikelihoodAt};
use super::newton_cg::{Objective, ObjectiveAt};
use super::preconditioner::{Preconditioner, Without};
use super::samples::Samples;
use super::vector_space::{Reduction, VectorSpace, clear};

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
    Known(Result<f64, InferenceError>),
    Recorded(EnergyTerms<V>),
}

impl<V> Energy<V> {
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
    fn place(&self, space: &mut S, position: &S::Vector, sample: usize) -> Result<S::Vector, InferenceError> {
        let mut place = space.copy(position)?;
        if let Some(residual) = self.samples.residual(sample) {
            space.axpby(1.0, residual, 1.0, &mut place)?;
        }
        Ok(place)
    }

    /// Computes the likelihood's energy at a place, or records it.
    fn energy(&self, space: &mut S, place: &S::Vector) -> Result<Energy<S::Vector>, InferenceError> {
        let terms = self.likelihood.energy_terms(space, place)?;
        Ok(terms.map_or_else(|| Energy::Known(self.likelihood.energy(space, place)), Energy::Recorded))
    }

    /// Returns the values at places, from the likelihood's energies there. Blocks once for the
    /// energies that are recorded.
    fn values(
        &self,
        space: &mut S,
        places: &[S::Vector],
        energies: Vec<Energy<S::Vector>>,
    ) -> Result<Vec<f64>, InferenceError> {
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
    fn mean_value(&self, values: &[f64]) -> Result<f64, InferenceError> {
        let mean = self.groups.sum_numbers(values)? / self.samples.terms() as f64;
        InferenceError::finite("the energy, averaged over samples,", mean)
    }

    /// Returns the samples of this group, those together that are computed together.
    fn batches(&self) -> Vec<Range<usize>> {
        let Range { start, end } = self.groups.block(self.samples.terms());
        let each = self.concurrency.max(1);
        (start..end).step_by(each).map(|first| first..end.min(first.saturating_add(each))).collect()
    }
}

impl<S: VectorSpace> Objective<S> for Kl<'_, S> {
    fn at<'a>(&'a self, space: &mut S, x: &S::Vector) -> Result<(f64, Box<dyn ObjectiveAt<S> + 'a>), InferenceError> {
        let first = self.groups.block(self.samples.terms()).start;
        let (mut places, mut values, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        for batch in self.batches() {
            let (before, mut energies) = (places.len(), Vec::new());
            for sample in batch {
                let place = self.place(space, x, sample)?;
                if kept.len() < self.kept {
                    let at = self.likelihood.at(space, &place)?;
                    let terms = at.energy_terms(space)?;
                    energies.push(terms.map_or_else(|| Energy::Known(at.energy(space)), Energy::Recorded));
                    kept.push(at);
                } else {
                    energies.push(self.energy(space, &place)?);
                }
                places.push(place);
            }
            values.extend(self.values(space, &places[before..], energies)?);
        }
        let value = self.mean_value(&values)?;
        let whole = self.preconditioner.map(|own| own as &dyn Precondition<S>);
        let preconditioner = whole.map(|whole| Without { whole, parts: self.constants });
        let position = self.is_at_position().then(|| space.copy(x)).transpose()?;
        let (kept, at_position) = (RefCell::new(kept), RefCell::default());
        let kl = self;
        Ok((value, Box::new(KlAt { kl, first, places, kept, position, at_position, preconditioner })))
    }

    fn value(&self, space: &mut S, x: &S::Vector) -> Result<f64, InferenceError> {
        let mut values = Vec::new();
        for batch in self.batches() {
            let (mut places, mut energies) = (Vec::new(), Vec::new());
            for sample in batch {
                let place = self.place(space, x, sample)?;
                energies.push(self.energy(space, &place)?);
                places.push(place);
            }
            values.extend(self.values(space, &places, energies)?);
        }
        self.mean_value(&values)
    }

    fn free(&self, space: &mut S, x: &S::Vector) -> u64 {
        free(space, self.constants, x)
    }

    /// Products of the averaged metric are sums that all groups receive. Each group computes those
    /// at the position by itself, and devices of different groups may round them differently.
    fn agree(&self, space: &mut S, x: S::Vector, numbers: &mut [f64]) -> Result<S::Vector, InferenceError> {
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
    /// The first sample of this group.
    first: usize,
    /// The place of each of them.
    places: Vec<S::Vector>,
    /// The derivatives of the first ones.
    kept: RefCell<Vec<Box<dyn LogLikelihoodAt<S> + 'a>>>,
    /// The position, if the metric is the one there.
    position: Option<S::Vector>,
    /// The derivatives at the position after the first product.
    at_position: RefCell<Option<Box<dyn LogLikelihoodAt<S> + 'a>>>,
    preconditioner: Option<Without<'a, S>>,
}

impl<S: VectorSpace> KlAt<'_, S> {
    /// `out` = the mean over samples of what `one` makes of the derivatives at their places.
    fn mean(
        &self,
        space: &mut S,
        one: &mut dyn FnMut(&mut S, &dyn LogLikelihoodAt<S>, &S::Vector) -> Result<S::Vector, InferenceError>,
        out: &mut S::Vector,
    ) -> Result<(), InferenceError> {
        let terms = self.kl.samples.terms();
        let kept = self.kept.borrow();
        let mut sample = |space: &mut S, sample: usize| {
            let own = sample - self.first;
            let place = &self.places[own];
            let made = match kept.get(own) {
                Some(at) => one(space, &**at, place)?,
                None => {
                    let at = self.kl.likelihood.at(space, place)?;
                    one(space, &*at, place)?
                }
            };
            if (own + 1).is_multiple_of(self.kl.concurrency.max(1)) {
                // The device works on them while the next ones are recorded, which take the memory
                // that is free then.
                space.submit()?;
            }
            Ok(made)
        };
        let sum = self.kl.groups.sum(space, terms, &mut sample, out)?;
        space.axpby(1.0 / terms as f64, &sum, 0.0, out)
    }
}

impl<S: VectorSpace> ObjectiveAt<S> for KlAt<'_, S> {
    fn gradient(&self, space: &mut S, out: &mut S::Vector) -> Result<(), InferenceError> {
        let mut one = |space: &mut S, at: &dyn LogLikelihoodAt<S>, place: &S::Vector| {
            let mut gradient = space.like(place)?;
            at.gradient(space, &mut gradient)?;
            space.axpby(1.0, place, 1.0, &mut gradient)?;
            Ok(gradient)
        };
        self.mean(space, &mut one, out)?;
        if self.position.is_some() {
            // No product uses the derivatives of samples: the position takes their memory.
            self.kept.take();
        }
        clear(space, self.kl.constants, out)
    }

    fn metric(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError> {
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
