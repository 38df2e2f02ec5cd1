//! Minimization by Newton's method with conjugate gradients, and the stopping rules of NIFTy.

use super::conjugate_gradient::{CgOptions, CgStop, NormOrder, Precondition, conjugate_gradient};
use super::error::InferenceError;
use super::vector_space::{Reduction, VectorSpace};

/// A function to minimize.
pub trait Objective<S: VectorSpace> {
    /// Returns the value and the derivatives at `x`, which must not change while they live. Blocks.
    ///
    /// # Errors
    /// - [`InferenceError::NotFinite`] if the value is not finite.
    /// - Errors of the vector space.
    fn at<'a>(&'a self, space: &mut S, x: &S::Vector) -> Result<(f64, Box<dyn ObjectiveAt<S> + 'a>), InferenceError>;

    /// Returns the value at `x` without derivatives, with the same bits as [`at`](Self::at). Blocks.
    ///
    /// # Errors
    /// Same as [`at`](Self::at).
    fn value(&self, space: &mut S, x: &S::Vector) -> Result<f64, InferenceError> {
        Ok(self.at(space, x)?.0)
    }

    /// Returns the length of a step, which is compared with [`NewtonOptions::xtol`]: by default the
    /// sum of magnitudes.
    ///
    /// # Errors
    /// - Errors of the vector space.
    fn length(&self, space: &mut S, step: &S::Vector) -> Result<f64, InferenceError> {
        space.norm1(step)
    }

    /// Replaces `x` and `numbers`, which each group of ranks has computed from products of the
    /// metric, by those of the first group. By default there is one group, or products are the same
    /// bits on all groups.
    ///
    /// # Errors
    /// - Errors of the ranks.
    fn agree(&self, _space: &mut S, x: S::Vector, _numbers: &mut [f64]) -> Result<S::Vector, InferenceError> {
        Ok(x)
    }

    /// Returns how many numbers of `x` vary; the others keep their values.
    fn free(&self, space: &mut S, x: &S::Vector) -> u64 {
        space.len(x)
    }
}

/// The derivatives of an [`Objective`] at a point.
pub trait ObjectiveAt<S: VectorSpace> {
    /// Computes `out`, the gradient.
    ///
    /// # Errors
    /// - Errors of the vector space.
    fn gradient(&self, space: &mut S, out: &mut S::Vector) -> Result<(), InferenceError>;

    /// Computes `out = M v` with the curvature, or a metric close to it.
    ///
    /// # Errors
    /// - Errors of the vector space.
    fn metric(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError>;

    /// Returns the preconditioner for the metric, if there is one.
    fn preconditioner(&self) -> Option<&dyn Precondition<S>> {
        None
    }
}

/// The stopping rules and the steps of Newton's method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewtonOptions {
    /// Fall of the value, in nats, below which a step is the last one, if it was halved at most
    /// once. The default is 0.1 with a preconditioner; without one this rule is off.
    pub absdelta: Option<f64>,
    /// Length for each number of the vector up to which a step is the last one.
    pub xtol: f64,
    /// Steps before these two rules apply.
    pub miniter: u64,
    /// Maximum number of steps.
    pub maxiter: u64,
    /// Conjugate gradients end where an iteration gains less than this fraction of the gain of the
    /// step before.
    pub energy_reduction: f64,
    /// Rules for conjugate gradients; by default they follow from the values and gradients of the
    /// steps.
    pub cg: Option<CgOptions>,
}

impl Default for NewtonOptions {
    fn default() -> Self {
        NewtonOptions { absdelta: None, xtol: 1e-5, miniter: 0, maxiter: 200, energy_reduction: 0.1, cg: None }
    }
}

impl NewtonOptions {
    /// Sets the maximum number of steps.
    #[must_use]
    pub fn steps(mut self, maxiter: u64) -> Self {
        self.maxiter = maxiter;
        self
    }

    /// Sets the fall of the value below which a step is the last one.
    #[must_use]
    pub fn absdelta(mut self, absdelta: f64) -> Self {
        self.absdelta = Some(absdelta);
        self
    }

    pub(super) fn check(&self, what: &str) -> Result<(), InferenceError> {
        let numbers = [self.absdelta.unwrap_or(0.0), self.xtol, self.energy_reduction];
        if numbers.iter().any(|number| number.is_nan() || *number < 0.0) {
            let why = format!(
                "absdelta {:?}, xtol {} and energy reduction {}; all are 0 or more",
                self.absdelta, self.xtol, self.energy_reduction
            );
            return Err(InferenceError::options(what, why));
        }
        self.cg.map_or(Ok(()), |cg| cg.check(what))
    }

    /// Returns the rules for the step from a point with this value and norm of the gradient.
    ///
    /// They are those of NIFTy, and tighter with a preconditioner, which needs few iterations.
    fn for_step(&self, before: Option<f64>, value: f64, magnitude: f64, is_preconditioned: bool) -> CgOptions {
        let further = if is_preconditioned { FURTHER } else { 1.0 };
        self.cg.unwrap_or_else(|| CgOptions {
            absdelta: match before {
                Some(before) if self.energy_reduction > 0.0 => Some(further * self.energy_reduction * (before - value)),
                _ => self.absdelta.map(|absdelta| absdelta / 100.0),
            },
            resnorm: Some(further * magnitude.sqrt().min(0.5) * magnitude),
            norm: NormOrder::One,
            miniter: is_preconditioned.then_some(LEAST),
            maxiter: None,
        })
    }
}

/// The reason why Newton's method ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewtonStop {
    /// The last step lowered the value by less than `absdelta`.
    Value,
    /// The last step was shorter than `xtol`.
    Step,
    /// The number of steps reached its maximum.
    #[default]
    Iterations,
    /// No step lowers the value, and the minimum is within one standard deviation: rounding hides
    /// it.
    Rounding,
    /// No step lowers the value, although the minimum is further away: derivatives are wrong, or
    /// the value is far from a parabola here.
    NoDescent,
    /// The metric has no positive curvature along the gradient. The last position is kept.
    NotPositive,
}

impl NewtonStop {
    /// Returns `true` if the method failed: the position is not a minimum, and more steps would not
    /// help.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, NewtonStop::NoDescent | NewtonStop::NotPositive)
    }
}

/// A step of Newton's method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewtonStep {
    /// Number of the step, from 1 on.
    pub number: u64,
    /// The value after the step.
    pub value: f64,
    /// Applications of the metric for the step.
    pub applications: u64,
    /// The fraction of the step that was taken.
    pub scale: f64,
    /// Length of the step.
    pub length: f64,
}

/// The result of Newton's method.
#[derive(Clone, Debug)]
pub struct NewtonOutcome<V> {
    /// The position of the smallest value.
    pub x: V,
    /// The smallest value.
    pub value: f64,
    /// Number of steps.
    pub steps: u64,
    /// Positions at which the value was computed.
    pub evaluations: u64,
    /// Applications of the metric.
    pub applications: u64,
    /// The reason why the method ended.
    pub stop: NewtonStop,
}

/// Fall of the value that counts as none with a preconditioner, unless the options say another.
const SMALL: f64 = 0.1;

/// Factor of the limits of conjugate gradients with a preconditioner.
const FURTHER: f64 = 0.2;

/// Iterations of conjugate gradients at least, with a preconditioner.
const LEAST: u64 = 2;

/// Trials of a line search: those of NIFTy, those before the search turns to the gradient, and the
/// maximum.
const TRIALS: u32 = 9;
const TURN: u32 = 6;
const MOST_TRIALS: u32 = 60;

/// Distance from the minimum, in standard deviations over all directions, that counts as none.
/// Samples know a mean no better.
const NEAR: f64 = 1.0;

/// Minimizes `objective` from `x` on; calls `watch` after each step. Blocks.
///
/// A step `p` solves `M p = gradient`; it is halved until the value does not rise. After six
/// halvings it is replaced by the best step along the gradient, which is halved until its expected
/// fall is below rounding: exponentials far from the data need steps of a thousandth. Then the
/// search ends and keeps the last position, as it does where the metric has no curvature along the
/// gradient. NIFTy ends after three trials along the gradient.
///
/// # Errors
/// - [`InferenceError::NotFinite`] if the value at `x` or a product is not finite.
/// - [`InferenceError::Options`] for limits that are negative or NaN.
/// - Errors of `objective`.
pub fn newton_cg<S: VectorSpace>(
    space: &mut S,
    objective: &dyn Objective<S>,
    x: S::Vector,
    options: &NewtonOptions,
    watch: &mut dyn FnMut(&NewtonStep),
) -> Result<NewtonOutcome<S::Vector>, InferenceError> {
    options.check("Newton's method")?;
    let xtol = options.xtol * objective.free(space, &x) as f64;
    let (value, mut at) = objective.at(space, &x)?;
    let mut gradient = space.like(&x)?;
    at.gradient(space, &mut gradient)?;
    let mut found = NewtonOutcome { x, value, steps: 0, evaluations: 1, applications: 0, stop: NewtonStop::Iterations };
    let mut before = None;
    while found.steps < options.maxiter {
        let magnitude = space.norm1(&gradient)?;
        let is_preconditioned = at.preconditioner().is_some();
        let rules = options.for_step(before, found.value, magnitude, is_preconditioned);
        let mut metric = |space: &mut S, v: &S::Vector, out: &mut S::Vector| at.metric(space, v, out);
        let cg = conjugate_gradient(space, &mut metric, at.preconditioner(), &gradient, None, &rules)?;
        // Along a negative curvature the step goes downhill, and later iterations keep the step so
        // far. Along a first direction without curvature no step is taken.
        let is_flat = cg.stop == CgStop::NotPositive(0.0) && cg.iterations == 1;
        let mut numbers = [f64::from(u8::from(is_flat)), cg.applications as f64];
        let direction = objective.agree(space, cg.x, &mut numbers)?;
        let (is_flat, products) = (numbers[0] == 1.0, numbers[1] as u64);
        if is_flat {
            found.applications += products;
            found.stop = NewtonStop::NotPositive;
            break;
        }
        // The derivatives of the next position use the memory of these.
        drop(at);
        let is_last = found.steps + 1 == options.maxiter;
        let step = match descend(space, objective, &found, &gradient, direction, is_last)? {
            Search::Found(step) => step,
            Search::Nothing { trials, apart } => {
                found.applications += products;
                found.evaluations += u64::from(trials);
                found.steps += 1;
                found.stop = if apart <= NEAR { NewtonStop::Rounding } else { NewtonStop::NoDescent };
                break;
            }
        };
        found.steps += 1;
        let applications = products + u64::from(step.trials > TURN);
        found.applications += applications;
        found.evaluations += u64::from(step.trials);
        let fall = found.value - step.value;
        before = Some(found.value);
        (found.x, found.value) = (step.x, step.value);
        let length = step.scale * objective.length(space, &step.direction)?;
        let told = NewtonStep { number: found.steps, value: found.value, applications, scale: step.scale, length };
        watch(&told);
        let late = found.steps > options.miniter;
        let absdelta = options.absdelta.or(is_preconditioned.then_some(SMALL));
        if late && step.trials <= 2 && absdelta.is_some_and(|absdelta| fall < absdelta) {
            found.stop = NewtonStop::Value;
            break;
        }
        if late && length <= xtol {
            found.stop = NewtonStop::Step;
            break;
        }
        if is_last {
            break;
        }
        at = match step.at {
            Some(at) => at,
            None => objective.at(space, &found.x)?.1,
        };
        at.gradient(space, &mut gradient)?;
    }
    Ok(found)
}

/// The position at which a line search ends.
struct Descent<'a, S: VectorSpace> {
    x: S::Vector,
    value: f64,
    /// The derivatives, if they were computed with the value.
    at: Option<Box<dyn ObjectiveAt<S> + 'a>>,
    direction: S::Vector,
    scale: f64,
    trials: u32,
}

/// The result of a line search.
enum Search<'a, S: VectorSpace> {
    Found(Descent<'a, S>),
    /// No position with a smaller value after `trials`. By the derivatives the minimum is `apart`
    /// standard deviations away, `sqrt(g.M^-1 g)`.
    Nothing {
        trials: u32,
        apart: f64,
    },
}

/// Steps along `-direction`, with halving, until the value does not rise.
///
/// The first trial computes derivatives with the value, unless the step `is_last`; later trials
/// compute the value alone. In the fits of `tests/inference/host.rs` 99.5 % of 28,804 searches end
/// at the first trial. They linearize at 28,935 positions and compute 260 further values, instead
/// of 29,064 linearizations. Values at first trials would cost 28,673 evaluations more.
fn descend<'a, S: VectorSpace>(
    space: &mut S,
    objective: &'a dyn Objective<S>,
    from: &NewtonOutcome<S::Vector>,
    gradient: &S::Vector,
    mut direction: S::Vector,
    is_last: bool,
) -> Result<Search<'a, S>, InferenceError> {
    // A smaller fall is rounding.
    let least = space.epsilon() * from.value.abs();
    let (mut scale, mut apart, mut slope) = (1.0, 0.0, 0.0);
    let mut trials = 0;
    while trials < TRIALS || trials < MOST_TRIALS && scale * slope > least {
        trials += 1;
        let mut x = space.copy(&from.x)?;
        space.axpby(-scale, &direction, 1.0, &mut x)?;
        // A value that is not finite is not a descent.
        let found = if trials == 1 && !is_last {
            objective.at(space, &x).map(|(value, at)| (value, Some(at)))
        } else {
            objective.value(space, &x).map(|value| (value, None))
        };
        match found {
            Ok((value, at)) if value <= from.value => {
                return Ok(Search::Found(Descent { x, value, at, direction, scale, trials }));
            }
            Ok(_) | Err(InferenceError::NotFinite { .. }) => {}
            Err(error) => return Err(error),
        }
        scale /= 2.0;
        if trials == TURN {
            let (_, at) = objective.at(space, &from.x)?;
            let mut curved = space.like(gradient)?;
            at.metric(space, gradient, &mut curved)?;
            let curved = objective.agree(space, curved, &mut [])?;
            let what = [(gradient, gradient), (gradient, &curved), (gradient, &direction)];
            let found = space.reduce(&what.map(|(a, b)| Reduction::Dot(a, b)))?;
            let best = found[0] / found[1];
            (scale, slope, apart) = (1.0, best * found[0], found[2].max(0.0).sqrt());
            space.axpby(best, gradient, 0.0, &mut direction)?;
        }
    }
    Ok(Search::Nothing { trials, apart })
}
