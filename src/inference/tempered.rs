//! A likelihood at a temperature: to a power below 1, so that data count for less.

use super::error::InferenceError;
use super::identity::Identity;
use super::log_likelihood::{LogLikelihood, LogLikelihoodAt};
use super::vector_space::VectorSpace;

/// `-ln p(data | x) / T`: of Gaussian data, that of noise `sqrt(T)` times as large. Metrics are divided by T, their roots by its root.
pub(super) struct Tempered<'a, S: VectorSpace> {
    pub likelihood: &'a dyn LogLikelihood<S>,
    pub temperature: f64,
}

/// The derivatives of a [`Tempered`] likelihood at a point.
struct TemperedAt<'a, S: VectorSpace> {
    at: Box<dyn LogLikelihoodAt<S> + 'a>,
    temperature: f64,
}

/// Fills `out` by `make`, divided by `by`.
fn divided<S: VectorSpace>(
    space: &mut S,
    by: f64,
    out: &mut S::Vector,
    make: impl FnOnce(&mut S, &mut S::Vector) -> Result<(), InferenceError>,
) -> Result<(), InferenceError> {
    let mut whole = space.like(out)?;
    make(space, &mut whole)?;
    space.axpby(1.0 / by, &whole, 0.0, out)
}

impl<S: VectorSpace> LogLikelihood<S> for Tempered<'_, S> {
    fn name(&self) -> String {
        self.likelihood.name()
    }

    fn identity(&self, space: &mut S) -> Result<Identity, InferenceError> {
        self.likelihood.identity(space)
    }

    fn latent(&self, space: &mut S) -> Result<S::Vector, InferenceError> {
        self.likelihood.latent(space)
    }

    fn data(&self, space: &mut S) -> Result<S::Vector, InferenceError> {
        self.likelihood.data(space)
    }

    fn energy(&self, space: &mut S, x: &S::Vector) -> Result<f64, InferenceError> {
        Ok(self.likelihood.energy(space, x)? / self.temperature)
    }

    fn at<'a>(&'a self, space: &mut S, x: &S::Vector) -> Result<Box<dyn LogLikelihoodAt<S> + 'a>, InferenceError> {
        Ok(Box::new(TemperedAt { at: self.likelihood.at(space, x)?, temperature: self.temperature }))
    }

    fn has_coordinates(&self) -> bool {
        self.likelihood.has_coordinates()
    }

    fn normalized_residual(&self, space: &mut S, x: &S::Vector) -> Result<Option<(S::Vector, u64)>, InferenceError> {
        let Some((whole, count)) = self.likelihood.normalized_residual(space, x)? else { return Ok(None) };
        let mut residual = space.like(&whole)?;
        space.axpby(1.0 / self.temperature.sqrt(), &whole, 0.0, &mut residual)?;
        Ok(Some((residual, count)))
    }

    fn degrees_of_freedom(&self) -> u64 {
        self.likelihood.degrees_of_freedom()
    }
}

impl<S: VectorSpace> LogLikelihoodAt<S> for TemperedAt<'_, S> {
    fn energy(&self, space: &mut S) -> Result<f64, InferenceError> {
        Ok(self.at.energy(space)? / self.temperature)
    }

    fn gradient(&self, space: &mut S, out: &mut S::Vector) -> Result<(), InferenceError> {
        divided(space, self.temperature, out, |space, out| self.at.gradient(space, out))
    }

    fn metric(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError> {
        divided(space, self.temperature, out, |space, out| self.at.metric(space, v, out))
    }

    fn left_sqrt(&self, space: &mut S, eta: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError> {
        divided(space, self.temperature.sqrt(), out, |space, out| self.at.left_sqrt(space, eta, out))
    }

    fn right_sqrt(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError> {
        divided(space, self.temperature.sqrt(), out, |space, out| self.at.right_sqrt(space, v, out))
    }

    fn coordinates(&self, space: &mut S, x: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError> {
        divided(space, self.temperature.sqrt(), out, |space, out| self.at.coordinates(space, x, out))
    }
}
