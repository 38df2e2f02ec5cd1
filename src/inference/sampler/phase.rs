//! Places of a chain with their momenta, and the steps between them.

use std::rc::Rc;

use super::scale::Scale;
use crate::inference::error::{InferenceError, Result};
use crate::inference::log_likelihood::LogLikelihood;
use crate::inference::vector_space::{Reduction, VectorSpace};

/// A place and a momentum.
pub(super) struct Phase<V> {
    pub x: V,
    pub momentum: V,
    /// The gradient of the potential.
    pub gradient: V,
    /// `-ln p(data | x) + x.x / 2`.
    pub potential: f64,
    /// `p.p / 2`.
    pub kinetic: f64,
}

impl<V> Phase<V> {
    /// Returns the total energy.
    pub fn energy(&self) -> f64 {
        self.potential + self.kinetic
    }
}

/// The posterior in units of a scale for each latent value, in which momenta have unit mass.
pub(super) struct Target<'a, S: VectorSpace> {
    pub likelihood: &'a dyn LogLikelihood<S>,
    pub scale: &'a Scale<S>,
}

/// Returns `None` for a result that is NaN or infinite.
pub(super) fn finite<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Err(InferenceError::NotFinite { .. }) => Ok(None),
        found => found.map(Some),
    }
}

impl<S: VectorSpace> Target<'_, S> {
    /// Returns the place `x` at rest; `None` if the posterior is not finite there.
    pub fn place(&self, space: &mut S, x: S::Vector) -> Result<Option<Phase<S::Vector>>> {
        let momentum = space.zeros(&x)?;
        let place = |space: &mut S| {
            let at = self.likelihood.at(space, &x)?;
            let mut gradient = space.like(&x)?;
            at.gradient(space, &mut gradient)?;
            let energy = at.energy(space)?;
            space.axpby(1.0, &x, 1.0, &mut gradient)?;
            let squares = space.reduce(&[Reduction::Dot(&x, &x), Reduction::Dot(&gradient, &gradient)])?;
            Ok((gradient, energy + squares[0] / 2.0))
        };
        let Some((gradient, potential)) = finite(place(space))? else { return Ok(None) };
        Ok(Some(Phase { x, momentum, gradient, potential, kinetic: 0.0 }))
    }

    /// Returns the place with another momentum.
    pub fn with_momentum(
        &self,
        space: &mut S,
        from: &Phase<S::Vector>,
        momentum: S::Vector,
    ) -> Result<Phase<S::Vector>> {
        let kinetic = space.dot(&momentum, &momentum)? / 2.0;
        let (x, gradient) = (space.copy(&from.x)?, space.copy(&from.gradient)?);
        Ok(Phase { x, momentum, gradient, potential: from.potential, kinetic })
    }

    /// Takes a leapfrog step of a size, which is negative for a step back in time. `None` if the
    /// energy is not finite there. Takes one gradient and blocks twice.
    pub fn leapfrog(&self, space: &mut S, from: &Phase<S::Vector>, step: f64) -> Result<Option<Rc<Phase<S::Vector>>>> {
        let mut momentum = space.copy(&from.momentum)?;
        self.scale.apply(space, (-step / 2.0, &from.gradient), 1.0, &mut momentum)?;
        let mut x = space.copy(&from.x)?;
        self.scale.apply(space, (step, &momentum), 1.0, &mut x)?;
        let mut arrive = |space: &mut S| {
            let at = self.likelihood.at(space, &x)?;
            let mut gradient = space.like(&x)?;
            at.gradient(space, &mut gradient)?;
            space.axpby(1.0, &x, 1.0, &mut gradient)?;
            self.scale.apply(space, (-step / 2.0, &gradient), 1.0, &mut momentum)?;
            let energy = at.energy(space)?;
            let squares = space.reduce(&[Reduction::Dot(&x, &x), Reduction::Dot(&momentum, &momentum)])?;
            Ok((gradient, energy + squares[0] / 2.0, squares[1] / 2.0))
        };
        let Some((gradient, potential, kinetic)) = finite(arrive(space))? else { return Ok(None) };
        Ok(Some(Rc::new(Phase { x, momentum, gradient, potential, kinetic })))
    }
}
