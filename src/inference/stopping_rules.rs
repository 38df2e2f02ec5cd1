//! The stopping rules of conjugate gradients.

use super::conjugate_gradient::{CgOptions, CgStop, NormOrder};
use super::step_scalars::{CgVectors, StepLimits};
use super::vector_space::Reduction;

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
