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

use super::conjugate_gradient::Precondition;
use super::draw::free;
use super::error::InferenceError;
use super::groups::SampleGroups;
use super::log_likelihood::{LogLikelihood, LogLikelihoodAt};
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

    /// Returns the value, from the likelihood's energies at the places of this group's samples.
    fn mean_value(
        &self,
        space: &mut S,
        places: &[S::Vector],
        energies: Vec<Result<f64, InferenceError>>,
    ) -> Result<f64, InferenceError> {
        let squares: Vec<_> = places.iter().map(|place| Reduction::Dot(place, place)).collect();
        // An energy that is not finite must not keep the other groups waiting: all learn of it.
        let squares = match space.reduce(&squares) {
            Err(InferenceError::NotFinite { value, .. }) => vec![value; places.len()],
            squares => squares?,
        };
        let value = |(energy, square): (Result<f64, InferenceError>, f64)| match energy {
            Ok(energy) => Ok(energy + square / 2.0),
            Err(InferenceError::NotFinite { value, .. }) => Ok(value),
            Err(error) => Err(error),
        };
        let values: Vec<f64> = energies.into_iter().zip(squares).map(value).collect::<Result<_, _>>()?;
        let mean = self.groups.sum_numbers(&values)? / self.samples.terms() as f64;
        InferenceError::finite("the energy, averaged over samples,", mean)
    }
}

impl<S: VectorSpace> Objective<S> for Kl<'_, S> {
    fn at<'a>(&'a self, space: &mut S, x: &S::Vector) -> Result<(f64, Box<dyn ObjectiveAt<S> + 'a>), InferenceError> {
        let block = self.groups.block(self.samples.terms());
        let mut places = Vec::new();
        let (mut energies, mut kept) = (Vec::new(), Vec::new());
        for sample in block.clone() {
            let place = self.place(space, x, sample)?;
            if kept.len() < self.kept {
                let at = self.likelihood.at(space, &place)?;
                energies.push(at.energy(space));
                kept.push(at);
            } else {
                energies.push(self.likelihood.energy(space, &place));
            }
            places.push(place);
        }
        let value = self.mean_value(space, &places, energies)?;
        let whole = self.preconditioner.map(|own| own as &dyn Precondition<S>);
        let preconditioner = whole.map(|whole| Without { whole, parts: self.constants });
        let position = self.is_at_position().then(|| space.copy(x)).transpose()?;
        let (kept, at_position) = (RefCell::new(kept), RefCell::default());
        let kl = self;
        Ok((value, Box::new(KlAt { kl, first: block.start, places, kept, position, at_position, preconditioner })))
    }

    fn value(&self, space: &mut S, x: &S::Vector) -> Result<f64, InferenceError> {
        let (mut places, mut energies) = (Vec::new(), Vec::new());
        for sample in self.groups.block(self.samples.terms()) {
            let place = self.place(space, x, sample)?;
            energies.push(self.likelihood.energy(space, &place));
            places.push(place);
        }
        self.mean_value(space, &places, energies)
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
