//! Likelihoods of fields as what inference takes.

use super::term::Term;
use super::{Likelihood, LikelihoodAt};
use crate::inference::error::InferenceError;
use crate::inference::identity::Identity;
use crate::inference::log_likelihood::{LogLikelihood, LogLikelihoodAt};
use crate::operators::Vector;
use crate::rank::Rank;

impl LogLikelihood<Rank> for Likelihood {
    fn name(&self) -> String {
        Likelihood::name(self)
    }

    fn identity(&self, rank: &mut Rank) -> Result<Identity, InferenceError> {
        Likelihood::identity(self, rank)
    }

    fn latent(&self, rank: &mut Rank) -> Result<Vector, InferenceError> {
        Ok(Vector::new(&rank.gpu, self.domain())?)
    }

    fn data(&self, rank: &mut Rank) -> Result<Vector, InferenceError> {
        Ok(Vector::new(&rank.gpu, self.data_space())?)
    }

    fn energy(&self, rank: &mut Rank, x: &Vector) -> Result<f64, InferenceError> {
        Likelihood::energy(self, rank, x)
    }

    fn at<'a>(&'a self, rank: &mut Rank, x: &Vector) -> Result<Box<dyn LogLikelihoodAt<Rank> + 'a>, InferenceError> {
        Ok(Box::new(Likelihood::at(self, rank, x)?))
    }

    fn has_coordinates(&self) -> bool {
        self.terms.iter().all(Term::has_coordinates)
    }

    fn normalized_residual(&self, rank: &mut Rank, x: &Vector) -> Result<Option<(Vector, u64)>, InferenceError> {
        let counts = self.terms.iter().filter(|term| term.density.residual.is_some()).map(|term| term.density.count);
        Ok(Likelihood::normalized_residual(self, rank, x)?.map(|residual| (residual, counts.sum())))
    }

    fn degrees_of_freedom(&self) -> u64 {
        Likelihood::degrees_of_freedom(self)
    }

    fn expected_chi_squared(&self) -> Option<[f64; 2]> {
        Likelihood::expected_chi_squared(self)
    }
}

impl LogLikelihoodAt<Rank> for LikelihoodAt {
    fn energy(&self, rank: &mut Rank) -> Result<f64, InferenceError> {
        LikelihoodAt::energy(self, rank)
    }

    fn gradient(&self, rank: &mut Rank, out: &mut Vector) -> Result<(), InferenceError> {
        LikelihoodAt::gradient(self, rank, out)
    }

    fn metric(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        LikelihoodAt::metric(self, rank, v, out)
    }

    fn left_sqrt(&self, rank: &mut Rank, eta: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        LikelihoodAt::left_sqrt(self, rank, eta, out)
    }

    fn right_sqrt(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        LikelihoodAt::right_sqrt(self, rank, v, out)
    }

    fn coordinates(&self, rank: &mut Rank, x: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        LikelihoodAt::coordinates(self, rank, x, out)
    }
}
