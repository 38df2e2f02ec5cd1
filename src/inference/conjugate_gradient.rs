//! Conjugate gradients (Hestenes & Stiefel 1952), with the stopping rules of NIFTy.

use super::error::InferenceError;
use super::vector_space::{Reduction, VectorSpace};

/// The residual is computed anew once in so many iterations.
const RESET: u64 = 20;

/// Which norm of the residual is compared with [`CgOptions::resnorm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOrder {
    /// The sum of magnitudes.
    One,
    /// The Euclidean norm.
    Two,
}

/// When conjugate gradients end. The energy of `x` is `x.Mx / 2 - x.j`, which falls in each iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CgOptions {
    /// An iteration that lowers the energy by less is the last.
    pub absdelta: Option<f64>,
    /// A residual `M x - j` whose norm is smaller is small enough. Where neither this nor `absdelta` is given it is 1e-5 of the norm of `j`.
    pub resnorm: Option<f64>,
    /// The norm.
    pub norm: NormOrder,
    /// Iterations before the first two rules apply; 6 where nothing is said.
    pub miniter: Option<u64>,
    /// Iterations at most; 200, or 20 for each number of the vector if that is less, where nothing is said.
    pub maxiter: Option<u64>,
}

impl Default for CgOptions {
    fn default() -> Self {
        CgOptions { absdelta: None, resnorm: None, norm: NormOrder::Two, miniter: None, maxiter: None }
    }
}

impl CgOptions {
    /// Ends once the Euclidean norm of the residual is smaller.
    pub fn resnorm(resnorm: f64) -> Self {
        CgOptions { resnorm: Some(resnorm), ..CgOptions::default() }
    }

    /// Ends once the energy falls by less, in units of information.
    pub fn absdelta(absdelta: f64) -> Self {
        CgOptions { absdelta: Some(absdelta), ..CgOptions::default() }
    }

    /// Refuses options that say nothing: limits that are negative or no numbers.
    pub(super) fn check(&self, what: &str) -> Result<(), InferenceError> {
        let wrong = |limit: Option<f64>| limit.is_some_and(|limit| limit.is_nan() || limit < 0.0);
        if wrong(self.absdelta) || wrong(self.resnorm) {
            let why = format!("absdelta {:?} and resnorm {:?}; both are 0 or more", self.absdelta, self.resnorm);
            return Err(InferenceError::options(what, why));
        }
        Ok(())
    }
}

/// Why conjugate gradients ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CgStop {
    /// The residual is small, or exactly 0.
    Residual,
    /// The energy falls by little.
    Energy,
    /// The energy has risen, by more than roundings: those of the operator are too large for more.
    Rising,
    /// There were as many iterations as are allowed.
    Iterations,
    /// The operator has a direction without positive curvature, `d.M d`.
    NotPositive(f64),
}

/// What conjugate gradients found.
#[derive(Clone, Debug)]
pub struct CgOutcome<V> {
    /// The solution, as far as it is one.
    pub x: V,
    /// Iterations.
    pub iterations: u64,
    /// Applications of the operator.
    pub applications: u64,
    /// Why it ended.
    pub stop: CgStop,
}

/// A symmetric, positive operator: `out = M v`.
pub type Metric<'a, S> =
    dyn FnMut(&mut S, &<S as VectorSpace>::Vector, &mut <S as VectorSpace>::Vector) -> Result<(), InferenceError> + 'a;

/// Solves `M x = j` from `start`, or from 0.
///
/// Each iteration applies `M` once and waits for reductions twice; each twentieth applies it twice. Where the first direction has negative curvature, `x` is
/// `gamma / |curvature| j`, which goes downhill; in later iterations what was found before is kept.
///
/// # Errors
/// [`InferenceError::NotFinite`]; what `M` can fail with.
pub fn conjugate_gradient<S: VectorSpace>(
    space: &mut S,
    metric: &mut Metric<'_, S>,
    j: &S::Vector,
    start: Option<S::Vector>,
    options: &CgOptions,
) -> Result<CgOutcome<S::Vector>, InferenceError> {
    options.check("conjugate gradients")?;
    let (rules, started) = (Rules::new(space, j, options)?, start.is_some());
    let (mut x, mut r, mut gamma, mut energy) = begin(space, metric, j, start)?;
    let mut applications = u64::from(started);
    let mut d = space.copy(&r)?;
    let mut q = space.like(j)?;
    let (mut iterations, mut stop) = (0, CgStop::Residual);
    while gamma > 0.0 {
        iterations += 1;
        metric(space, &d, &mut q)?;
        applications += 1;
        let curvature = space.dot(&d, &q)?;
        if curvature <= 0.0 {
            if iterations == 1 && curvature < 0.0 {
                // The gradient of the energy at 0 is -j: downhill is along j.
                space.axpby(gamma / -curvature, j, 0.0, &mut x)?;
            }
            stop = CgStop::NotPositive(curvature);
            break;
        }
        let alpha = gamma / curvature;
        space.axpby(-alpha, &d, 1.0, &mut x)?;
        if iterations % RESET == 0 {
            metric(space, &x, &mut r)?;
            applications += 1;
            space.axpby(-1.0, j, 1.0, &mut r)?;
        } else {
            space.axpby(-alpha, &q, 1.0, &mut r)?;
        }
        let now = rules.measure(space, &r, &x, j)?;
        if let Some(end) = rules.end(iterations, energy, &now) {
            stop = end;
            break;
        }
        energy = now.energy;
        space.axpby(1.0, &r, now.gamma / gamma, &mut d)?;
        gamma = now.gamma;
    }
    Ok(CgOutcome { x, iterations, applications, stop })
}

/// Where it starts: `x`, the residual `r = M x - j`, `r.r`, and the energy.
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
    metric(space, &x, &mut r)?;
    space.axpby(-1.0, j, 1.0, &mut r)?;
    let found = space.reduce(&[Reduction::Dot(&r, &r), Reduction::Dot(&r, &x), Reduction::Dot(j, &x)])?;
    Ok((x, r, found[0], (found[1] - found[2]) / 2.0))
}

/// What is looked at after an iteration.
struct Now {
    gamma: f64,
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

    /// All that the rules look at, waited for once.
    fn measure<S: VectorSpace>(
        &self,
        space: &mut S,
        r: &S::Vector,
        x: &S::Vector,
        j: &S::Vector,
    ) -> Result<Now, InferenceError> {
        let mut what = vec![Reduction::Dot(r, r), Reduction::Dot(r, x), Reduction::Dot(j, x)];
        let sums = self.resnorm.is_some() && self.options.norm == NormOrder::One;
        what.extend(sums.then_some(Reduction::Norm1(r)));
        let found = space.reduce(&what)?;
        let norm = if sums { found[3] } else { found[0].sqrt() };
        Ok(Now { gamma: found[0], norm, energy: (found[1] - found[2]) / 2.0 })
    }

    /// Why this iteration is the last, if it is.
    fn end(&self, iterations: u64, before: f64, now: &Now) -> Option<CgStop> {
        let late = iterations >= self.miniter;
        let fall = before - now.energy;
        if now.gamma <= self.tiny || late && self.resnorm.is_some_and(|resnorm| now.norm < resnorm) {
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
