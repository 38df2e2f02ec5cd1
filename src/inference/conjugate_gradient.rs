//! Systems that conjugate gradients solve: operators, stopping rules with those of NIFTy as
//! defaults, and outcomes.

use super::error::{InferenceError, Result};
use super::vector_space::VectorSpace;

/// The norm of the residual that is compared with [`CgOptions::resnorm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOrder {
    /// The sum of magnitudes.
    One,
    /// The Euclidean norm.
    Two,
}

/// The stopping rules of conjugate gradients. The energy of `x` is `x.Mx / 2 - x.j`, which falls in
/// each iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CgOptions {
    /// Fall of the energy, in nats, below which an iteration is the last one.
    pub absdelta: Option<f64>,
    /// Norm of the residual `M x - j` below which the iterations end; 1e-5 of the norm of `j` if
    /// this and `absdelta` are `None`.
    pub resnorm: Option<f64>,
    /// The norm.
    pub norm: NormOrder,
    /// Iterations before the first two rules apply; 6 by default.
    pub miniter: Option<u64>,
    /// Maximum number of iterations; by default 200, or 20 for each number of the vector if that is
    /// less.
    pub maxiter: Option<u64>,
}

impl Default for CgOptions {
    fn default() -> Self {
        CgOptions { absdelta: None, resnorm: None, norm: NormOrder::Two, miniter: None, maxiter: None }
    }
}

impl CgOptions {
    /// Creates rules that end once the Euclidean norm of the residual is smaller.
    #[must_use]
    pub fn resnorm(resnorm: f64) -> Self {
        CgOptions { resnorm: Some(resnorm), ..CgOptions::default() }
    }

    /// Creates rules that end once the energy falls by less, in nats.
    #[must_use]
    pub fn absdelta(absdelta: f64) -> Self {
        CgOptions { absdelta: Some(absdelta), ..CgOptions::default() }
    }

    /// Refuses limits that are negative or NaN.
    pub(super) fn check(&self, what: &str) -> Result<()> {
        let wrong = |limit: Option<f64>| limit.is_some_and(|limit| limit.is_nan() || limit < 0.0);
        if wrong(self.absdelta) || wrong(self.resnorm) {
            let why = format!("absdelta {:?} and resnorm {:?}; both are 0 or more", self.absdelta, self.resnorm);
            return Err(InferenceError::options(what, why));
        }
        Ok(())
    }
}

/// The reason why conjugate gradients ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CgStop {
    /// The residual is below its target, or 0.
    Residual,
    /// The last iteration lowered the energy by less than `absdelta`.
    Energy,
    /// The energy does not fall any more, or rises: rounding errors exceed progress.
    Rising,
    /// The number of iterations reached its maximum.
    Iterations,
    /// The operator has a direction without positive curvature, `d.M d`.
    NotPositive(f64),
}

/// The result of conjugate gradients.
#[derive(Clone, Debug)]
pub struct CgOutcome<V> {
    /// The approximate solution.
    pub x: V,
    /// Number of iterations.
    pub iterations: u64,
    /// Applications of the operator.
    pub applications: u64,
    /// The reason why the iterations ended.
    pub stop: CgStop,
    /// The error relative to its target; the solution has converged if it is 1 or less, whatever
    /// rule ended the iterations.
    ///
    /// With a target [`resnorm`](CgOptions::resnorm) it is the norm of the last residual over the
    /// target. With [`absdelta`](CgOptions::absdelta) it is the last change of the energy over
    /// that. With both it is the smaller one.
    pub error_ratio: f64,
}

/// A symmetric, positive operator: `out = M v`.
pub type Metric<'a, S> =
    dyn FnMut(&mut S, &<S as VectorSpace>::Vector, &mut <S as VectorSpace>::Vector) -> Result<()> + 'a;

/// An approximation of the inverse of a metric: symmetric and positive.
pub trait Precondition<S: VectorSpace> {
    /// Computes `out = P r`.
    ///
    /// # Errors
    /// - [`InferenceError::NotFinite`] if a number of `r` is not finite.
    /// - Errors of the vector space.
    fn apply(&self, space: &mut S, r: &S::Vector, out: &mut S::Vector) -> Result<()>;

    /// Computes `out = P r` for several pairs of `r` and `out`, with the bits of
    /// [`apply`](Self::apply): by default one after the other.
    ///
    /// # Errors
    /// Same as [`apply`](Self::apply).
    fn apply_to_all(&self, space: &mut S, pairs: &mut [(&S::Vector, &mut S::Vector)]) -> Result<()> {
        pairs.iter_mut().try_for_each(|(r, out)| self.apply(space, r, out))
    }
}
