//! Likelihoods as inference sees them.

use super::error::InferenceError;
use super::identity::Identity;
use super::vector_space::VectorSpace;

/// `-ln p(data | x)` of latent vectors `x`, up to a constant.
///
/// A likelihood of data `d` and a model `f` is one of them; so is a sum of several. All ranks of a [`VectorSpace`] call its methods together, in
/// one order. Outputs are overwritten, whatever they held.
pub trait LogLikelihood<S: VectorSpace> {
    /// What errors and reports call it.
    fn name(&self) -> String;

    /// Returns what identifies it: its data and its model with all constants, the same on all ranks.
    ///
    /// A fit refuses the state of a likelihood with another identity. Collective.
    ///
    /// # Errors
    /// - Those of the device and the ranks.
    fn identity(&self, space: &mut S) -> Result<Identity, InferenceError>;

    /// A new latent vector, undefined.
    ///
    /// # Errors
    /// What its work can fail with.
    fn latent(&self, space: &mut S) -> Result<S::Vector, InferenceError>;

    /// A new vector of the space that noise of the data lives in: the domain of the left square root. Undefined.
    ///
    /// # Errors
    /// What its work can fail with.
    fn data(&self, space: &mut S) -> Result<S::Vector, InferenceError>;

    /// The energy `-ln p(data | x)`, in natural units of information; waits for the device.
    ///
    /// # Errors
    /// [`InferenceError::NotFinite`]; what its work can fail with.
    fn energy(&self, space: &mut S, x: &S::Vector) -> Result<f64, InferenceError>;

    /// The derivatives at `x`, which must stay as it is while they live.
    ///
    /// # Errors
    /// What its work can fail with.
    fn at<'a>(&'a self, space: &mut S, x: &S::Vector) -> Result<Box<dyn LogLikelihoodAt<S> + 'a>, InferenceError>;

    /// Returns `true` if the likelihood has [`coordinates`](LogLikelihoodAt::coordinates), without which samples are not bent.
    fn has_coordinates(&self) -> bool {
        true
    }

    /// What is to be expected of noise, at `x`: data minus model over the noise's standard deviation, and how many data of it count, over all ranks: squares
    /// have mean 1 where model and noise are right, but for Student's t distribution ([`Likelihood::student_t`](super::Likelihood::student_t)). `None` where there
    /// is no such vector.
    ///
    /// # Errors
    /// What its work can fail with.
    fn normalized_residual(&self, space: &mut S, x: &S::Vector) -> Result<Option<(S::Vector, u64)>, InferenceError>;

    /// Numbers of the data that count, over all ranks: masked ones do not.
    fn degrees_of_freedom(&self) -> u64;

    /// Between what the mean square of [`normalized_residual`](Self::normalized_residual) is for samples of the posterior, where model and noise are right. `None`
    /// where that is not known.
    fn expected_chi_squared(&self) -> Option<[f64; 2]> {
        None
    }
}

/// The derivatives of a [`LogLikelihood`] at a point: with the Jacobian J of the model and the Fisher metric F of the data's distribution, `L = J^T sqrt(F)`
/// is the left square root of the metric `M = J^T F J`.
pub trait LogLikelihoodAt<S: VectorSpace> {
    /// The energy at the point; waits for the device.
    ///
    /// # Errors
    /// As [`LogLikelihood::energy`].
    fn energy(&self, space: &mut S) -> Result<f64, InferenceError>;

    /// `out` = the gradient of the energy.
    ///
    /// # Errors
    /// What its work can fail with.
    fn gradient(&self, space: &mut S, out: &mut S::Vector) -> Result<(), InferenceError>;

    /// `out = M v`.
    ///
    /// # Errors
    /// What its work can fail with.
    fn metric(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError>;

    /// `out = L eta`, of a vector in the space of the data.
    ///
    /// # Errors
    /// What its work can fail with.
    fn left_sqrt(&self, space: &mut S, eta: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError>;

    /// `out = L^T v`, in the space of the data.
    ///
    /// # Errors
    /// What its work can fail with.
    fn right_sqrt(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError>;

    /// Computes `out = tau(f(x))`, in the space of the data: coordinates of `x` about the point of the derivatives, along
    /// which samples are bent.
    ///
    /// The derivative of `tau(f)` at the point itself must be the right square root; otherwise bent samples have a wrong
    /// width. [`check_metric`](super::check_metric) compares the two.
    ///
    /// # Errors
    /// [`InferenceError::NoTransformation`] if the likelihood has no coordinates; what its work can fail with.
    fn coordinates(&self, space: &mut S, x: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError>;
}
