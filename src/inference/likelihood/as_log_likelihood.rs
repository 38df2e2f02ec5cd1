//! Likelihoods of fields as what inference takes.

use super::term::Term;
use super::{Likelihood, LikelihoodAt};
use crate::inference::error::InferenceError;
use crate::inference::identity::Identity;
use crate::inference::log_likelihood::{LogLikelihood, LogLikelihoodAt};
use crate::operators::{Vector, Worker};

impl<'w> LogLikelihood<Worker<'w>> for Likelihood {
    fn name(&self) -> String {
        Likelihood::name(self)
    }

    fn identity(&self, worker: &mut Worker<'w>) -> Result<Identity, InferenceError> {
        Likelihood::identity(self, worker)
    }

    fn latent(&self, worker: &mut Worker<'w>) -> Result<Vector, InferenceError> {
        Ok(Vector::new(worker.gpu(), self.domain())?)
    }

    fn data(&self, worker: &mut Worker<'w>) -> Result<Vector, InferenceError> {
        Ok(Vector::new(worker.gpu(), self.data_space())?)
    }

    fn energy(&self, worker: &mut Worker<'w>, x: &Vector) -> Result<f64, InferenceError> {
        Likelihood::energy(self, worker, x)
    }

    fn at<'a>(
        &'a self,
        worker: &mut Worker<'w>,
        x: &Vector,
    ) -> Result<Box<dyn LogLikelihoodAt<Worker<'w>> + 'a>, InferenceError> {
        Ok(Box::new(Likelihood::at(self, worker, x)?))
    }

    fn has_coordinates(&self) -> bool {
        self.terms.iter().all(Term::has_coordinates)
    }

    fn normalized_residual(
        &self,
        worker: &mut Worker<'w>,
        x: &Vector,
    ) -> Result<Option<(Vector, u64)>, InferenceError> {
        let counts = self.terms.iter().filter(|term| term.density.residual.is_some()).map(|term| term.density.count);
        Ok(Likelihood::normalized_residual(self, worker, x)?.map(|residual| (residual, counts.sum())))
    }

    fn degrees_of_freedom(&self) -> u64 {
        Likelihood::degrees_of_freedom(self)
    }

    fn expected_chi_squared(&self) -> Option<[f64; 2]> {
        Likelihood::expected_chi_squared(self)
    }
}

impl<'w> LogLikelihoodAt<Worker<'w>> for LikelihoodAt {
    fn energy(&self, worker: &mut Worker<'w>) -> Result<f64, InferenceError> {
        LikelihoodAt::energy(self, worker)
    }

    fn gradient(&self, worker: &mut Worker<'w>, out: &mut Vector) -> Result<(), InferenceError> {
        LikelihoodAt::gradient(self, worker, out)
    }

    fn metric(&self, worker: &mut Worker<'w>, v: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        LikelihoodAt::metric(self, worker, v, out)
    }

    fn left_sqrt(&self, worker: &mut Worker<'w>, eta: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        LikelihoodAt::left_sqrt(self, worker, eta, out)
    }

    fn right_sqrt(&self, worker: &mut Worker<'w>, v: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        LikelihoodAt::right_sqrt(self, worker, v, out)
    }

    fn coordinates(&self, worker: &mut Worker<'w>, x: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        LikelihoodAt::coordinates(self, worker, x, out)
    }
}
