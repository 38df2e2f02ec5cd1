//! Conjugate gradients (Hestenes & Stiefel 1952), with the stopping rules of NIFTy.

use super::error::InferenceError;
use super::step_scalars::{CgVectors, StepLimits, StepScalars, StepUpdate, StepsEnd};
use super::vector_space::{Reduction, VectorSpace};

/// Iterations after which the residual is computed from the solution.
const RESET: u64 = 20;

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
    pub(super) fn check(&self, what: &str) -> Result<(), InferenceError> {
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
    dyn FnMut(&mut S, &<S as VectorSpace>::Vector, &mut <S as VectorSpace>::Vector) -> Result<(), InferenceError> + 'a;

/// An approximation of the inverse of a metric: symmetric and positive.
pub trait Precondition<S: VectorSpace> {
    /// Computes `out = P r`.
    ///
    /// # Errors
    /// - [`InferenceError::NotFinite`] if a number of `r` is not finite.
    /// - Errors of the vector space.
    fn apply(&self, space: &mut S, r: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError>;
}

/// Solves `M x = j` from `start`, or from 0.
///
/// With a preconditioner `P`, an approximation of `M^-1`, directions follow from `P r` in place of
/// the residual `r`. The rules measure the same, and a residual that has reached its target is
/// computed from `x` before the iterations end.
///
/// Each iteration applies `M` once; each twentieth applies it twice, to compute the residual from
/// `x`. Where the energy rises, the search restarts from the residual of `x`, as long as it makes
/// progress. Where the first direction has negative curvature, `x` is `gamma / |curvature| j`,
/// which goes downhill; later iterations keep the `x` before.
///
/// The host blocks twice in an iteration. Where the space has [`VectorSpace::step_scalars`] and
/// products do not block, iterations after the first are recorded ahead, with the same bits: the
/// host blocks once in up to four, and once in each if the preconditioner blocks. Products that it
/// has recorded behind the end change nothing, and do not count as applications.
///
/// # Errors
/// - [`InferenceError::NotFinite`] if a product is not finite.
/// - [`InferenceError::Options`] for limits that are negative or NaN.
/// - Errors of `M`.
pub fn conjugate_gradient<S: VectorSpace>(
    space: &mut S,
    metric: &mut Metric<'_, S>,
    preconditioner: Option<&dyn Precondition<S>>,
    j: &S::Vector,
    start: Option<S::Vector>,
    options: &CgOptions,
) -> Result<CgOutcome<S::Vector>, InferenceError> {
    options.check("conjugate gradients")?;
    let (rules, started) = (Rules::new(space, j, options)?, start.is_some());
    let (x, r, mut gamma, mut energy) = begin(space, metric, j, start)?;
    let mut applications = u64::from(started);
    let mut error_ratio = if gamma > 0.0 { f64::INFINITY } else { 0.0 };
    let mut z = preconditioner.map(|_| space.like(j)).transpose()?;
    // Whether the host takes part in products, and in the preconditioner.
    let (mut metric_waits, mut preconditioner_waits) = (false, false);
    if let (Some(preconditioner), Some(z), true) = (preconditioner, &mut z, gamma > 0.0) {
        let before = space.waits();
        preconditioner.apply(space, &r, z)?;
        preconditioner_waits = space.waits() > before;
        gamma = space.dot(&r, z)?;
    }
    let (d, q) = (space.copy(z.as_ref().unwrap_or(&r))?, space.like(j)?);
    let mut vectors = CgVectors { j, x, r, d, q, z };
    let mut ahead: Option<Box<dyn StepScalars<S, S::Vector>>> = None;
    let (mut iterations, mut stop) = (0, CgStop::Residual);
    // The energy at the last restart.
    let mut restarted = f64::INFINITY;
    while gamma > 0.0 {
        let mut sums = None;
        if let Some(scalars) = &mut ahead {
            let first = iterations;
            let most = if preconditioner_waits { 1 } else { scalars.ahead() };
            let mut run = RunAhead { scalars, metric, preconditioner, rules: &rules, most };
            let end = run.steps(space, &mut vectors, first, [gamma, energy])?;
            (iterations, gamma, energy) = (end.step, end.gamma, end.energy);
            applications += iterations - first + iterations / RESET - first / RESET;
            match end.sums {
                sums_of_step if end.is_open => sums = sums_of_step,
                Some(sums) => {
                    let now = rules.now(&sums, vectors.z.is_some());
                    error_ratio = rules.error_ratio(end.earlier - now.energy, &now);
                }
                None => {}
            }
        }
        let CgVectors { x, r, d, q, z, .. } = &mut vectors;
        if sums.is_none() {
            iterations += 1;
            let before = space.waits();
            metric(space, d, q)?;
            metric_waits |= space.waits() > before;
            applications += 1;
            let curvature = space.dot(d, q)?;
            if curvature <= 0.0 {
                if iterations == 1 && curvature < 0.0 {
                    // The direction is uphill.
                    space.axpby(gamma / curvature, d, 0.0, x)?;
                }
                stop = CgStop::NotPositive(curvature);
                break;
            }
            let alpha = gamma / curvature;
            space.axpby(-alpha, d, 1.0, x)?;
            if iterations % RESET == 0 {
                residual(space, metric, x, j, r)?;
                applications += 1;
            } else {
                space.axpby(-alpha, q, 1.0, r)?;
            }
        }
        let mut now = match sums {
            Some(sums) if sums.iter().all(|sum| sum.is_finite()) => rules.now(&sums, z.is_some()),
            _ => rules.measure(space, (preconditioner, z), r, x, j)?,
        };
        let mut end = rules.end(iterations, energy, &now);
        if z.is_some() && end == Some(CgStop::Residual) && iterations % RESET != 0 {
            // Few iterations fall far: rounding of the residual is more than what is left of it.
            residual(space, metric, x, j, r)?;
            applications += 1;
            now = rules.measure(space, (preconditioner, z), r, x, j)?;
            end = rules.end(iterations, energy, &now);
        }
        let is_rising = end == Some(CgStop::Rising);
        if is_rising {
            // The energies before have the rounding errors of a residual that was updated in each
            // iteration. With the residual of `x` the search restarts, as long as its energy is
            // below the one of the last restart.
            if iterations % RESET != 0 {
                residual(space, metric, x, j, r)?;
                applications += 1;
                now = rules.measure(space, (preconditioner, z), r, x, j)?;
            }
            let is_lower = restarted - now.energy > rules.epsilon * now.energy.abs();
            end = rules.end(iterations, restarted, &now).or((!is_lower).then_some(CgStop::Rising));
            if restarted.is_finite() {
                energy = restarted;
            }
            restarted = now.energy;
        }
        let fall = energy - now.energy;
        let change = if end == Some(CgStop::Rising) { fall.abs() } else { fall };
        error_ratio = rules.error_ratio(change, &now);
        if let Some(end) = end {
            stop = end;
            break;
        }
        energy = now.energy;
        let conjugate = if is_rising { 0.0 } else { now.gamma / gamma };
        space.axpby(1.0, z.as_ref().unwrap_or(r), conjugate, d)?;
        gamma = now.gamma;
        if iterations == 1 && !metric_waits {
            ahead = space.step_scalars(&vectors, rules.sums_magnitudes())?;
        }
    }
    Ok(CgOutcome { x: vectors.x, iterations, applications, stop, error_ratio })
}

/// Iterations that are recorded before the numbers of earlier ones are known.
struct RunAhead<'a, 'm, S: VectorSpace> {
    scalars: &'a mut Box<dyn StepScalars<S, S::Vector>>,
    metric: &'a mut Metric<'m, S>,
    preconditioner: Option<&'a dyn Precondition<S>>,
    rules: &'a Rules,
    /// Iterations from one look to the next at most.
    most: u64,
}

impl<S: VectorSpace> RunAhead<'_, '_, S> {
    /// Runs the iterations after number `first`, until one needs the host.
    fn steps(
        &mut self,
        space: &mut S,
        vectors: &mut CgVectors<'_, S::Vector>,
        first: u64,
        numbers: [f64; 2],
    ) -> Result<StepsEnd, InferenceError> {
        self.scalars.begin(space, first, numbers)?;
        // Few iterations waste few: the first looks come early.
        let (mut step, mut until_look) = (first, 1);
        loop {
            for place in 0..until_look.min(self.rules.maxiter.saturating_sub(step)).max(1) {
                if place > 0 {
                    // The device works on it while the next one is recorded.
                    space.submit()?;
                }
                step += 1;
                self.step(space, vectors, step)?;
            }
            if let Some(end) = self.scalars.look(space, vectors)? {
                return Ok(end);
            }
            until_look = (2 * until_look).min(self.most);
        }
    }

    /// Records an iteration.
    fn step(&mut self, space: &mut S, vectors: &mut CgVectors<'_, S::Vector>, step: u64) -> Result<(), InferenceError> {
        (self.metric)(space, &vectors.d, &mut vectors.q)?;
        self.scalars.length(space, step, vectors)?;
        if step.is_multiple_of(RESET) {
            self.scalars.update(space, StepUpdate::Solution, vectors)?;
            (self.metric)(space, &vectors.x, &mut vectors.q)?;
            self.scalars.update(space, StepUpdate::Residual, vectors)?;
        } else {
            self.scalars.update(space, StepUpdate::Both, vectors)?;
        }
        if let (Some(preconditioner), Some(z)) = (self.preconditioner, &mut vectors.z) {
            preconditioner.apply(space, &vectors.r, z)?;
        }
        self.scalars.sums(space, step, &self.rules.limits(step), vectors)
    }
}

/// Computes the residual `r = M x - j`.
fn residual<S: VectorSpace>(
    space: &mut S,
    metric: &mut Metric<'_, S>,
    x: &S::Vector,
    j: &S::Vector,
    r: &mut S::Vector,
) -> Result<(), InferenceError> {
    metric(space, x, r)?;
    space.axpby(-1.0, j, 1.0, r)
}

/// Returns the start `x`, the residual `r = M x - j`, `r.r` and the energy.
fn begin<S: VectorSpace>(
    space: &mut S,
    metric: &mut Metric<'_, S>,
    j: &S::Vector,
    start: Option<S::Vector>,
) -> Result<(S::Vector, S::Vector, f64, f64), InferenceError> {
    let mut r = space.like(j)?;
    let Some(x) = start else {
        space.axpby(-1.0, j, 0.0, &mut r)?;
        let gamma = space.dot(j, j)?;
        return Ok((space.zeros(j)?, r, gamma, 0.0));
    };
    residual(space, metric, &x, j, &mut r)?;
    let found = space.reduce(&[Reduction::Dot(&r, &r), Reduction::Dot(&r, &x), Reduction::Dot(j, &x)])?;
    Ok((x, r, found[0], (found[1] - found[2]) / 2.0))
}

/// The numbers that the rules compare after an iteration.
struct Now {
    /// `r.P r`.
    gamma: f64,
    /// `r.r`.
    square: f64,
    norm: f64,
    energy: f64,
}

/// The rules with their defaults filled in.
struct Rules {
    options: CgOptions,
    resnorm: Option<f64>,
    miniter: u64,
    maxiter: u64,
    epsilon: f64,
    tiny: f64,
}

impl Rules {
    fn new<S: VectorSpace>(space: &mut S, j: &S::Vector, options: &CgOptions) -> Result<Self, InferenceError> {
        let most = space.len(j).saturating_mul(20);
        let miniter = options.miniter.unwrap_or(options.maxiter.unwrap_or(most).min(6));
        let resnorm = match (options.absdelta, options.resnorm) {
            (None, None) if options.norm == NormOrder::One => Some(1e-5 * space.norm1(j)?),
            (None, None) => Some(1e-5 * space.dot(j, j)?.sqrt()),
            (_, resnorm) => resnorm,
        };
        let epsilon = space.epsilon();
        let tiny = if epsilon > f64::EPSILON { f64::from(f32::MIN_POSITIVE) } else { f64::MIN_POSITIVE };
        let maxiter = options.maxiter.unwrap_or(most.min(200).max(miniter));
        Ok(Rules { options: *options, resnorm, miniter, maxiter, epsilon: 6.0 * epsilon, tiny: 6.0 * tiny })
    }

    /// Computes the numbers that the rules compare, and `z = P r`. Blocks once, and as often as
    /// the preconditioner does.
    fn measure<S: VectorSpace>(
        &self,
        space: &mut S,
        (preconditioner, z): (Option<&dyn Precondition<S>>, &mut Option<S::Vector>),
        r: &S::Vector,
        x: &S::Vector,
        j: &S::Vector,
    ) -> Result<Now, InferenceError> {
        if let (Some(preconditioner), Some(z)) = (preconditioner, z.as_mut()) {
            preconditioner.apply(space, r, z)?;
        }
        let mut what = vec![Reduction::Dot(r, r), Reduction::Dot(r, x), Reduction::Dot(j, x)];
        what.extend(z.as_ref().map(|z| Reduction::Dot(r, z)));
        what.extend(self.sums_magnitudes().then_some(Reduction::Norm1(r)));
        Ok(self.now(&space.reduce(&what)?, z.is_some()))
    }

    /// Returns `true` if the norm is the sum of magnitudes.
    fn sums_magnitudes(&self) -> bool {
        self.resnorm.is_some() && self.options.norm == NormOrder::One
    }

    /// Returns the numbers of the sums `r.r`, `r.x`, `j.x`, `r.P r` if `is_preconditioned`, and the
    /// sum of magnitudes if it is the norm.
    fn now(&self, sums: &[f64], is_preconditioned: bool) -> Now {
        let norm = if self.sums_magnitudes() { sums[sums.len() - 1] } else { sums[0].sqrt() };
        let gamma = if is_preconditioned { sums[3] } else { sums[0] };
        Now { gamma, square: sums[0], norm, energy: (sums[1] - sums[2]) / 2.0 }
    }

    /// Returns the limits that [`end`](Self::end) compares with in an iteration.
    fn limits(&self, iterations: u64) -> StepLimits {
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
    fn error_ratio(&self, change: f64, now: &Now) -> f64 {
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
    fn end(&self, iterations: u64, before: f64, now: &Now) -> Option<CgStop> {
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
