//! Samples as residuals from an expansion point: straight (MGVI), and along a curve (geoVI).
//!
//! With the metric `M = L L^T + 1` at the expansion point `e` a sample starts with `t = L eta_d +
//! eta_p`, whose covariance is `M`.
//! - Straight: `r = M^-1 t` has the covariance `M^-1`; `+r` and `-r` are samples.
//! - Bent: `g(x) = x - e + L (tau(x) - tau(e))` are coordinates in which the posterior is nearly
//!   normal with covariance `M`, with `L` and the coordinates `tau` of the likelihood at `e`. Each
//!   sign solves `g(x) = +-t` by minimizing `|t - g(x)|^2 / 2` from `e +- r`; the residual of the
//!   sample is `x - e`.
//!
//! Point estimates have residual 0: they are left out of `eta_p`, `L` and `M`.

use std::rc::Rc;

use super::conjugate_gradient::{CgOptions, CgOutcome, CgStop, Precondition};
use super::error::{InferenceError, Result};
use super::log_likelihood::{LogLikelihood, LogLikelihoodAt};
use super::newton_cg::{Minimization, NewtonOptions, NewtonOutcome, Objective, ObjectiveAt, minimize};
use super::preconditioner::Preconditioner;
use super::solve::{self, Solve};
use super::vector_space::{Reduction, Stream, VectorSpace, clear, no_part};

/// Which of a sample's two random vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excited {
    /// Noise of the data, in the domain of the left square root.
    Data,
    /// Noise of the prior, a latent vector.
    Prior,
}

/// Which random vector: of which sample, drawn in which iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excitation {
    /// The iteration in which it was drawn.
    pub iteration: u32,
    /// The sample: the number of a mirrored pair.
    pub sample: u32,
    /// Which of its two vectors.
    pub what: Excited,
}

type Given<S> = dyn Fn(&mut S, Excitation, &mut <S as VectorSpace>::Vector) -> Result<()>;

/// The source of the standard normal numbers of samples.
pub enum Excitations<S: VectorSpace> {
    /// Each number is a function of the seed, the iteration, the sample, and its place: whatever
    /// devices, ranks and further samples there are.
    Seed(u64),
    /// Numbers of the caller.
    Given(Rc<Given<S>>),
}

impl<S: VectorSpace> Clone for Excitations<S> {
    fn clone(&self) -> Self {
        match self {
            Excitations::Seed(seed) => Excitations::Seed(*seed),
            Excitations::Given(given) => Excitations::Given(given.clone()),
        }
    }
}

impl<S: VectorSpace> std::fmt::Debug for Excitations<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Excitations::Seed(seed) => write!(f, "Seed({seed})"),
            Excitations::Given(_) => write!(f, "Given"),
        }
    }
}

impl<S: VectorSpace> Excitations<S> {
    /// Fills `out`.
    pub(super) fn fill(&self, space: &mut S, excitation: Excitation, out: &mut S::Vector) -> Result<()> {
        match self {
            Excitations::Seed(seed) => {
                let Excitation { iteration, sample, what } = excitation;
                space.white_noise(Stream::new(*seed, iteration, sample, what as u32), out)
            }
            Excitations::Given(given) => given(space, excitation, out),
        }
    }
}

/// Returns the parts with these names, or below branches with these names.
pub(super) fn parts_of<S: VectorSpace>(space: &S, names: &[String], x: &S::Vector) -> Result<Vec<String>> {
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

/// Returns the number of values of `x` outside of `parts`.
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
    preconditioner: Option<&'a Preconditioner<S>>,
}

impl<'a, S: VectorSpace> Expansion<'a, S> {
    /// Creates the expansion about `position`; samples do not vary `point_estimates`.
    ///
    /// # Errors
    /// - Errors of the likelihood.
    pub fn new(
        space: &mut S,
        likelihood: &'a dyn LogLikelihood<S>,
        position: &S::Vector,
        point_estimates: &'a [String],
    ) -> Result<Self> {
        let position = space.copy(position)?;
        let at = likelihood.at(space, &position)?;
        Ok(Expansion { likelihood, at, position, point_estimates, preconditioner: None })
    }

    /// Sets the preconditioner of straight samples. Bent samples have none, as they then end at
    /// larger residuals.
    #[must_use]
    pub fn with_preconditioner(mut self, preconditioner: Option<&'a Preconditioner<S>>) -> Self {
        self.preconditioner = preconditioner;
        self
    }

    /// `out = L eta`.
    fn left(&self, space: &mut S, eta: &S::Vector, out: &mut S::Vector) -> Result<()> {
        self.at.left_sqrt(space, eta, out)?;
        clear(space, self.point_estimates, out)
    }

    /// Returns the metric sample `t` of positive sign, and its part `eta_p`.
    pub(super) fn metric_sample(
        &self,
        space: &mut S,
        excitations: &Excitations<S>,
        [iteration, sample]: [u32; 2],
    ) -> Result<(S::Vector, S::Vector)> {
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

    /// Returns the residual of the positive sign of a straight sample; the other sign is its mirror
    /// image.
    ///
    /// Conjugate gradients start from the sample of the prior, which is right where data say
    /// nothing.
    ///
    /// # Errors
    /// - [`InferenceError::NotPositive`], and errors of the likelihood.
    pub fn linear(
        &self,
        space: &mut S,
        excitations: &Excitations<S>,
        [iteration, sample]: [u32; 2],
        options: &CgOptions,
    ) -> Result<CgOutcome<S::Vector>> {
        let (t, prior) = self.metric_sample(space, excitations, [iteration, sample])?;
        let mut solve = Solve::new(space, (&t, Some(prior)), options, self.preconditioner.is_some())?;
        self.run(space, std::slice::from_mut(&mut solve))?;
        straight(solve, sample)
    }

    /// Runs solves of straight residuals together.
    pub(super) fn run(&self, space: &mut S, solves: &mut [Solve<'_, S>]) -> Result<()> {
        let mut metrics = |space: &mut S, _: usize, v: &S::Vector, out: &mut S::Vector| {
            self.at.metric(space, v, out)?;
            clear(space, self.point_estimates, out)?;
            space.axpby(1.0, v, 1.0, out)
        };
        let preconditioner = self.preconditioner.map(|own| own as &dyn Precondition<S>);
        solve::run(space, &mut metrics, preconditioner, solves)
    }

    /// Returns the coordinates of `x`, where `at` has the derivatives.
    fn coordinates(&self, space: &mut S, at: &dyn LogLikelihoodAt<S>, x: &S::Vector) -> Result<S::Vector> {
        let mut tau = self.likelihood.data(space)?;
        if !at.coordinates_about(space, &*self.at, &mut tau)? {
            self.at.coordinates(space, x, &mut tau)?;
        }
        Ok(tau)
    }

    /// Returns the residual of a curved sample of this sign (1 or -1), starting from `residual`.
    ///
    /// # Errors
    /// - [`InferenceError::NoTransformation`], and errors of the likelihood.
    pub fn curve(
        &self,
        space: &mut S,
        excitations: &Excitations<S>,
        sample: [u32; 2],
        sign: f64,
        residual: &S::Vector,
        options: &NewtonOptions,
    ) -> Result<NewtonOutcome<S::Vector>> {
        let (t, _) = self.metric_sample(space, excitations, sample)?;
        let mut bent = self.bend(space, &[Straight { t: &t, sign, residual }], options)?;
        Ok(bent.remove(0))
    }

    /// Returns the residuals of samples that are curved together.
    pub(super) fn bend(
        &self,
        space: &mut S,
        samples: &[Straight<'_, S::Vector>],
        options: &NewtonOptions,
    ) -> Result<Vec<NewtonOutcome<S::Vector>>> {
        let tau = self.coordinates(space, &*self.at, &self.position)?;
        let curves = samples.iter().map(|one| Curve { expansion: self, t: one.t, sign: one.sign, tau: &tau });
        let curves: Vec<Curve<'_, S>> = curves.collect();
        let mut all = Vec::new();
        for (curve, sample) in curves.iter().zip(samples) {
            let mut x = space.copy(&self.position)?;
            space.axpby(1.0, sample.residual, 1.0, &mut x)?;
            all.push(Minimization::new(space, curve, x)?);
        }
        minimize(space, &mut all, options, &mut |_| ())?;
        let mut bent: Vec<_> = all.into_iter().map(|one| one.found).collect();
        for one in &mut bent {
            space.axpby(-1.0, &self.position, 1.0, &mut one.x)?;
            clear(space, self.point_estimates, &mut one.x)?;
        }
        Ok(bent)
    }
}

/// A sample to bend.
pub(super) struct Straight<'t, V> {
    /// The metric sample of its pair.
    pub t: &'t V,
    /// 1 or -1.
    pub sign: f64,
    /// Its straight residual.
    pub residual: &'t V,
}

/// Returns the outcome of a solve for the straight residual of a sample.
pub(super) fn straight<S: VectorSpace>(solve: Solve<'_, S>, sample: u32) -> Result<CgOutcome<S::Vector>> {
    let found = solve.outcome();
    match found.stop {
        CgStop::NotPositive(curvature) => {
            Err(InferenceError::NotPositive { what: format!("the metric, for sample {sample}"), curvature })
        }
        _ => Ok(found),
    }
}

/// `|t - g(x)|^2 / 2` of a curved sample, or with `-t` for the negative sign.
struct Curve<'a, S: VectorSpace> {
    expansion: &'a Expansion<'a, S>,
    t: &'a S::Vector,
    sign: f64,
    /// `tau(e)`.
    tau: &'a S::Vector,
}

impl<S: VectorSpace> Curve<'_, S> {
    /// Returns `t - g(x)` and the value, for the coordinates `tau` of `x`.
    fn rest(&self, space: &mut S, x: &S::Vector, mut tau: S::Vector) -> Result<(S::Vector, f64)> {
        let expansion = self.expansion;
        space.axpby(-1.0, self.tau, 1.0, &mut tau)?;
        // rest = t - (x - e + L (tau(x) - tau(e)))
        let mut rest = space.like(self.t)?;
        expansion.left(space, &tau, &mut rest)?;
        space.axpby(1.0, x, 1.0, &mut rest)?;
        space.axpby(-1.0, &expansion.position, 1.0, &mut rest)?;
        space.axpby(self.sign, self.t, -1.0, &mut rest)?;
        clear(space, expansion.point_estimates, &mut rest)?;
        let value = space.dot(&rest, &rest)? / 2.0;
        Ok((rest, value))
    }
}

impl<S: VectorSpace> Objective<S> for Curve<'_, S> {
    fn at<'a>(&'a self, space: &mut S, x: &S::Vector) -> Result<(f64, Box<dyn ObjectiveAt<S> + 'a>)> {
        let at = self.expansion.likelihood.at(space, x)?;
        let tau = self.expansion.coordinates(space, &*at, x)?;
        let (rest, value) = self.rest(space, x, tau)?;
        Ok((value, Box::new(CurveAt { curve: self, at, rest })))
    }

    fn value(&self, space: &mut S, x: &S::Vector) -> Result<f64> {
        let mut tau = space.like(self.tau)?;
        self.expansion.at.coordinates(space, x, &mut tau)?;
        Ok(self.rest(space, x, tau)?.1)
    }

    /// Returns the length in the metric at the expansion point: `sqrt(p.M p)`.
    fn length(&self, space: &mut S, step: &S::Vector) -> Result<f64> {
        let mut right = space.like(self.tau)?;
        self.expansion.at.right_sqrt(space, step, &mut right)?;
        let found = space.reduce(&[Reduction::Dot(step, step), Reduction::Dot(&right, &right)])?;
        Ok((found[0] + found[1]).sqrt())
    }

    fn free(&self, space: &mut S, x: &S::Vector) -> u64 {
        free(space, self.expansion.point_estimates, x)
    }
}

/// The derivatives at `x`, where the derivative of `g` is `1 + L(e) L(x)^T`.
struct CurveAt<'a, S: VectorSpace> {
    curve: &'a Curve<'a, S>,
    at: Box<dyn LogLikelihoodAt<S> + 'a>,
    rest: S::Vector,
}

impl<'a, S: VectorSpace> CurveAt<'a, S> {
    /// Computes `out = v + A B^T v` with the left square roots `A` and `B`.
    fn product(
        &self,
        space: &mut S,
        [a, b]: [&(dyn LogLikelihoodAt<S> + 'a); 2],
        v: &S::Vector,
        out: &mut S::Vector,
    ) -> Result<()> {
        let mut right = space.like(self.curve.tau)?;
        b.right_sqrt(space, v, &mut right)?;
        a.left_sqrt(space, &right, out)?;
        clear(space, self.curve.expansion.point_estimates, out)?;
        space.axpby(1.0, v, 1.0, out)
    }
}

impl<S: VectorSpace> ObjectiveAt<S> for CurveAt<'_, S> {
    fn gradient(&self, space: &mut S, out: &mut S::Vector) -> Result<()> {
        let mut rise = space.like(out)?;
        self.product(space, [&*self.at, &*self.curve.expansion.at], &self.rest, &mut rise)?;
        space.axpby(-1.0, &rise, 0.0, out)
    }

    fn metric(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<()> {
        let (here, there) = (&*self.at, &*self.curve.expansion.at);
        let mut between = space.like(v)?;
        self.product(space, [there, here], v, &mut between)?;
        self.product(space, [here, there], &between, out)
    }
}
