//! Samples as residuals from an expansion point: straight (MGVI), and along a curve (geoVI).
//!
//! With the metric `M = L L^T + 1` at the expansion point `e` a sample begins with `t = L eta_d + eta_p`, whose covariance is `M`.
//! - Straight: `r = M^-1 t`, whose covariance is `M^-1`; `+r` and `-r` are samples.
//! - Curved: `g(x) = x - e + L (tau(x) - tau(e))`, with `L` and the coordinates `tau` of the likelihood at `e`, are coordinates in which the posterior is near to normal with covariance `M`; each sign solves
//!   `g(x) = +-t` by minimising `|t - g(x)|^2 / 2` from `e +- r`, and `x - e` is the sample's residual.
//!
//! Parts of latent values that are point estimates have residual 0: they are left out of `eta_p`, `L` and `M`.

use super::conjugate_gradient::{CgOptions, CgOutcome, CgStop, conjugate_gradient};
use super::error::InferenceError;
use super::excitation::{Excitation, Excitations, Excited};
use super::log_likelihood::{LogLikelihood, LogLikelihoodAt};
use super::newton_cg::{NewtonOptions, NewtonOutcome, Objective, ObjectiveAt, newton_cg};
use super::vector_space::{Reduction, VectorSpace, no_part};

/// Sets parts of a vector to 0.
pub(super) fn clear<S: VectorSpace>(space: &mut S, parts: &[String], x: &mut S::Vector) -> Result<(), InferenceError> {
    parts.iter().try_for_each(|name| space.clear_part(name, x))
}

/// The parts that `names` stand for: a name is that of a part, or of a branch whose parts it has all.
pub(super) fn parts_of<S: VectorSpace>(
    space: &S,
    names: &[String],
    x: &S::Vector,
) -> Result<Vec<String>, InferenceError> {
    let parts = space.parts(x);
    let mut found = Vec::new();
    for name in names {
        let before = found.len();
        let belongs =
            |part: &str| part.strip_prefix(&name[..]).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        found.extend(parts.iter().map(|(part, _)| part.clone()).filter(|part| belongs(part)));
        if found.len() == before {
            return Err(no_part(name, &parts));
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Numbers of `x` in none of `parts`.
pub(super) fn free<S: VectorSpace>(space: &S, parts: &[String], x: &S::Vector) -> u64 {
    let named = space.parts(x).into_iter().filter(|(name, _)| parts.contains(name));
    space.len(x) - named.map(|(_, len)| len).sum::<u64>()
}

/// The posterior about an expansion point, from which samples are drawn.
pub struct Expansion<'a, S: VectorSpace> {
    likelihood: &'a dyn LogLikelihood<S>,
    at: Box<dyn LogLikelihoodAt<S> + 'a>,
    position: S::Vector,
    point_estimates: &'a [String],
}

impl<'a, S: VectorSpace> Expansion<'a, S> {
    /// About `position`, where `point_estimates` are taken as known.
    ///
    /// # Errors
    /// What the likelihood fails with.
    pub fn new(
        space: &mut S,
        likelihood: &'a dyn LogLikelihood<S>,
        position: &S::Vector,
        point_estimates: &'a [String],
    ) -> Result<Self, InferenceError> {
        let position = space.copy(position)?;
        let at = likelihood.at(space, &position)?;
        Ok(Expansion { likelihood, at, position, point_estimates })
    }

    /// `out = L eta`.
    fn left(&self, space: &mut S, eta: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError> {
        self.at.left_sqrt(space, eta, out)?;
        clear(space, self.point_estimates, out)
    }

    /// The metric sample `t` of positive sign, and the part of it that is a sample of the prior.
    fn metric_sample(
        &self,
        space: &mut S,
        excitations: &Excitations<S>,
        [iteration, sample]: [u32; 2],
    ) -> Result<(S::Vector, S::Vector), InferenceError> {
        let mut eta = self.likelihood.data(space)?;
        excitations.fill(space, Excitation { iteration, sample, what: Excited::Data }, &mut eta)?;
        let mut t = space.like(&self.position)?;
        self.left(space, &eta, &mut t)?;
        let mut prior = space.like(&self.position)?;
        excitations.fill(space, Excitation { iteration, sample, what: Excited::Prior }, &mut prior)?;
        clear(space, self.point_estimates, &mut prior)?;
        space.axpby(1.0, &prior, 1.0, &mut t)?;
        Ok((t, prior))
    }

    /// The residual of the positive sign of a linear sample; the other is its mirror image. Conjugate gradients start with the sample of the prior, which
    /// is right already where data say nothing. A solution that ended with [`CgStop::Iterations`] is none yet.
    ///
    /// # Errors
    /// [`InferenceError::NotPositive`]; what the likelihood fails with.
    pub fn linear(
        &self,
        space: &mut S,
        excitations: &Excitations<S>,
        [iteration, sample]: [u32; 2],
        options: &CgOptions,
    ) -> Result<CgOutcome<S::Vector>, InferenceError> {
        let (t, prior) = self.metric_sample(space, excitations, [iteration, sample])?;
        let mut metric = |space: &mut S, v: &S::Vector, out: &mut S::Vector| {
            self.at.metric(space, v, out)?;
            clear(space, self.point_estimates, out)?;
            space.axpby(1.0, v, 1.0, out)
        };
        let found = conjugate_gradient(space, &mut metric, &t, Some(prior), options)?;
        match found.stop {
            CgStop::NotPositive(curvature) => {
                Err(InferenceError::NotPositive { what: format!("the metric, for sample {sample}"), curvature })
            }
            _ => Ok(found),
        }
    }

    /// The residual of a curved sample of this sign (1 or -1), from `residual` on.
    ///
    /// # Errors
    /// [`InferenceError::NoTransformation`]; what the likelihood fails with.
    pub fn curve(
        &self,
        space: &mut S,
        excitations: &Excitations<S>,
        sample: [u32; 2],
        sign: f64,
        residual: &S::Vector,
        options: &NewtonOptions,
    ) -> Result<NewtonOutcome<S::Vector>, InferenceError> {
        let (positive, _) = self.metric_sample(space, excitations, sample)?;
        let mut t = space.like(&positive)?;
        space.axpby(sign, &positive, 0.0, &mut t)?;
        let mut tau = self.likelihood.data(space)?;
        self.at.coordinates(space, &self.position, &mut tau)?;
        let mut x = space.copy(&self.position)?;
        space.axpby(1.0, residual, 1.0, &mut x)?;
        let curve = Curve { expansion: self, t, tau };
        let mut found = newton_cg(space, &curve, x, options, &mut |_| {})?;
        space.axpby(-1.0, &self.position, 1.0, &mut found.x)?;
        clear(space, self.point_estimates, &mut found.x)?;
        Ok(found)
    }
}

/// `|t - g(x)|^2 / 2` of a curved sample.
struct Curve<'a, S: VectorSpace> {
    expansion: &'a Expansion<'a, S>,
    t: S::Vector,
    /// `tau(e)`.
    tau: S::Vector,
}

impl<S: VectorSpace> Objective<S> for Curve<'_, S> {
    fn at<'a>(&'a self, space: &mut S, x: &S::Vector) -> Result<(f64, Box<dyn ObjectiveAt<S> + 'a>), InferenceError> {
        let expansion = self.expansion;
        let at = expansion.likelihood.at(space, x)?;
        let mut tau = space.like(&self.tau)?;
        expansion.at.coordinates(space, x, &mut tau)?;
        space.axpby(-1.0, &self.tau, 1.0, &mut tau)?;
        // rest = t - (x - e + L (tau(x) - tau(e)))
        let mut rest = space.like(&self.t)?;
        expansion.left(space, &tau, &mut rest)?;
        space.axpby(1.0, x, 1.0, &mut rest)?;
        space.axpby(-1.0, &expansion.position, 1.0, &mut rest)?;
        space.axpby(1.0, &self.t, -1.0, &mut rest)?;
        clear(space, expansion.point_estimates, &mut rest)?;
        let value = space.dot(&rest, &rest)? / 2.0;
        Ok((value, Box::new(CurveAt { curve: self, at, rest })))
    }

    /// The length in the metric at the expansion point: `sqrt(p.M p)`.
    fn length(&self, space: &mut S, step: &S::Vector) -> Result<f64, InferenceError> {
        let mut right = space.like(&self.tau)?;
        self.expansion.at.right_sqrt(space, step, &mut right)?;
        let found = space.reduce(&[Reduction::Dot(step, step), Reduction::Dot(&right, &right)])?;
        Ok((found[0] + found[1]).sqrt())
    }

    fn free(&self, space: &mut S, x: &S::Vector) -> u64 {
        free(space, self.expansion.point_estimates, x)
    }
}

/// The same at `x`, where the derivative of `g` is `1 + L(e) L(x)^T`.
struct CurveAt<'a, S: VectorSpace> {
    curve: &'a Curve<'a, S>,
    at: Box<dyn LogLikelihoodAt<S> + 'a>,
    rest: S::Vector,
}

impl<'a, S: VectorSpace> CurveAt<'a, S> {
    /// `out = v + A B^T v` with the left square roots `A` and `B`.
    fn product(
        &self,
        space: &mut S,
        [a, b]: [&(dyn LogLikelihoodAt<S> + 'a); 2],
        v: &S::Vector,
        out: &mut S::Vector,
    ) -> Result<(), InferenceError> {
        let mut right = space.like(&self.curve.tau)?;
        b.right_sqrt(space, v, &mut right)?;
        a.left_sqrt(space, &right, out)?;
        clear(space, self.curve.expansion.point_estimates, out)?;
        space.axpby(1.0, v, 1.0, out)
    }
}

impl<S: VectorSpace> ObjectiveAt<S> for CurveAt<'_, S> {
    fn gradient(&self, space: &mut S, out: &mut S::Vector) -> Result<(), InferenceError> {
        let mut rise = space.like(out)?;
        self.product(space, [&*self.at, &*self.curve.expansion.at], &self.rest, &mut rise)?;
        space.axpby(-1.0, &rise, 0.0, out)
    }

    fn metric(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError> {
        let (here, there) = (&*self.at, &*self.curve.expansion.at);
        let mut between = space.like(v)?;
        self.product(space, [there, here], v, &mut between)?;
        self.product(space, [here, there], &between, out)
    }
}
