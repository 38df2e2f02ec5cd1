//! Systems that conjugate gradients solve: operators, stopping rules with those of NIFTy as
//! defaults, and outcomes.

use super::error::{InferenceError, Result};
use super::vector_space::{CgVectors, Reduction, StepLimits, VectorSpace};

/// The norm of the residual that is compared with [`CgOptions::resnorm`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormOrder {
    /// The sum of magnitudes.
    One,
    /// The Euclidean norm.
    #[default]
    Two,
}

/// The stopping rules of conjugate gradients. The energy of `x` is `x.Mx / 2 - x.j`, which falls in
/// each iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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

/// The numbers that the rules compare after an iteration.
pub(super) struct Now {
    /// `r.P r`.
    pub gamma: f64,
    /// `r.r`.
    pub square: f64,
    pub norm: f64,
    pub energy: f64,
}

/// The rules with their defaults filled in.
pub(super) struct Rules {
    options: CgOptions,
    /// The options' target, or the default one.
    resnorm: Option<f64>,
    miniter: u64,
    pub maxiter: u64,
    /// Rise of the energy, relative to it, that is rounding.
    pub epsilon: f64,
    /// Square of the residual up to which it is 0.
    tiny: f64,
}

impl Rules {
    /// Creates the rules for a right-hand side of `len` values.
    pub fn new(options: &CgOptions, len: u64, epsilon: f64) -> Self {
        let most = len.saturating_mul(20);
        let miniter = options.miniter.unwrap_or(options.maxiter.unwrap_or(most).min(6));
        let tiny = if epsilon > f64::EPSILON { f64::from(f32::MIN_POSITIVE) } else { f64::MIN_POSITIVE };
        let maxiter = options.maxiter.unwrap_or(most.min(200).max(miniter));
        let (resnorm, epsilon, tiny) = (options.resnorm, 6.0 * epsilon, 6.0 * tiny);
        Rules { options: *options, resnorm, miniter, maxiter, epsilon, tiny }
    }

    /// Returns the norm of `j` that the default target is a part of; `None` if the options have a
    /// target.
    pub fn norm_of<'v, V>(&self, j: &'v V) -> Option<Reduction<'v, V>> {
        match (self.options.absdelta, self.options.resnorm, self.options.norm) {
            (None, None, NormOrder::One) => Some(Reduction::Norm1(j)),
            (None, None, NormOrder::Two) => Some(Reduction::Dot(j, j)),
            _ => None,
        }
    }

    /// Sets the default target from the sum of [`norm_of`](Self::norm_of).
    pub fn set_target(&mut self, sum: f64) {
        let norm = if self.options.norm == NormOrder::One { sum } else { sum.sqrt() };
        self.resnorm = Some(1e-5 * norm);
    }

    /// Returns the sums of an iteration, in the order of [`now`](Self::now).
    pub fn sums<'v, V>(&self, vectors: &'v CgVectors<'_, V>) -> Vec<Reduction<'v, V>> {
        let CgVectors { j, x, r, z, .. } = vectors;
        let mut sums = vec![Reduction::Dot(r, r), Reduction::Dot(r, x), Reduction::Dot(*j, x)];
        sums.extend(z.as_ref().map(|z| Reduction::Dot(r, z)));
        sums.extend(self.sums_magnitudes().then_some(Reduction::Norm1(r)));
        sums
    }

    /// Returns `true` if the norm is the sum of magnitudes.
    pub fn sums_magnitudes(&self) -> bool {
        self.resnorm.is_some() && self.options.norm == NormOrder::One
    }

    /// Returns the numbers of the sums `r.r`, `r.x`, `j.x`, `r.P r` if `is_preconditioned`, and the
    /// sum of magnitudes if it is the norm.
    pub fn now(&self, sums: &[f64], is_preconditioned: bool) -> Now {
        let norm = if self.sums_magnitudes() { sums[sums.len() - 1] } else { sums[0].sqrt() };
        let gamma = if is_preconditioned { sums[3] } else { sums[0] };
        Now { gamma, square: sums[0], norm, energy: (sums[1] - sums[2]) / 2.0 }
    }

    /// Returns the limits that [`end`](Self::end) compares with in an iteration.
    pub fn limits(&self, iterations: u64) -> StepLimits {
        let is_late = iterations >= self.miniter;
        StepLimits {
            tiny: self.tiny,
            resnorm: self.resnorm.filter(|_| is_late),
            absdelta: self.options.absdelta.filter(|_| is_late),
            rise: self.epsilon,
            is_last: iterations >= self.maxiter,
        }
    }

    /// Returns the error relative to its target, in the measure that the rules compare. `change` is
    /// that of the energy.
    pub fn error_ratio(&self, change: f64, now: &Now) -> f64 {
        // A rise within rounding errors counts as no change.
        let ratio = |error: f64, target: f64| if error > 0.0 { error / target } else { 0.0 };
        if now.square <= self.tiny {
            return 0.0;
        }
        let residual = self.resnorm.map(|resnorm| ratio(now.norm, resnorm));
        let energy = self.options.absdelta.map(|absdelta| ratio(change, absdelta));
        [residual, energy].into_iter().flatten().fold(f64::INFINITY, f64::min)
    }

    /// Returns why this iteration is the last, if it is.
    pub fn end(&self, iterations: u64, before: f64, now: &Now) -> Option<CgStop> {
        let late = iterations >= self.miniter;
        let fall = before - now.energy;
        if now.square <= self.tiny || late && self.resnorm.is_some_and(|resnorm| now.norm < resnorm) {
            Some(CgStop::Residual)
        } else if fall < -self.epsilon * now.energy.abs() {
            Some(CgStop::Rising)
        } else if late && self.options.absdelta.is_some_and(|absdelta| fall < absdelta) {
            Some(CgStop::Energy)
        } else if iterations >= self.maxiter {
            Some(CgStop::Iterations)
        } else {
            None
        }
    }
}
