//! Minimization by Newton's method with conjugate gradients, and the stopping rules of NIFTy.

use super::conjugate_gradient::{CgOptions, CgOutcome, CgStop, NormOrder, Precondition};
use super::error::{InferenceError, Result, if_finite};
use super::solve::{self, Solve};
use super::vector_space::{Reduction, VectorSpace};

/// A function to minimize.
pub trait Objective<S: VectorSpace> {
    /// Returns the value and the derivatives at `x`, which must not change while they live. Blocks.
    ///
    /// # Errors
    /// - [`InferenceError::NotFinite`] if the value is not finite.
    /// - Errors of the vector space.
    fn at<'a>(&'a self, space: &mut S, x: &S::Vector) -> Result<(f64, Box<dyn ObjectiveAt<S> + 'a>)>;

    /// Returns the value at `x` without derivatives, with the same bits as [`at`](Self::at). Blocks.
    ///
    /// # Errors
    /// Same as [`at`](Self::at).
    fn value(&self, space: &mut S, x: &S::Vector) -> Result<f64> {
        Ok(self.at(space, x)?.0)
    }

    /// Returns the length of a step, which is compared with [`NewtonOptions::xtol`]: by default the
    /// sum of magnitudes.
    ///
    /// # Errors
    /// - Errors of the vector space.
    fn length(&self, space: &mut S, step: &S::Vector) -> Result<f64> {
        Ok(space.reduce(&[Reduction::Norm1(step)])?[0])
    }

    /// Replaces `x` and `numbers`, which each group of ranks has computed from products of the
    /// metric, by those of the first group. By default there is one group, or products are the same
    /// bits on all groups.
    ///
    /// # Errors
    /// - Errors of the ranks.
    fn agree(&self, _space: &mut S, x: S::Vector, _numbers: &mut [f64]) -> Result<S::Vector> {
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
    fn gradient(&self, space: &mut S, out: &mut S::Vector) -> Result<()>;

    /// Computes `out = M v` with the curvature, or a metric close to it.
    ///
    /// # Errors
    /// - Errors of the vector space.
    fn metric(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<()>;

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

    pub(super) fn check(&self, what: &str) -> Result<()> {
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
) -> Result<NewtonOutcome<S::Vector>> {
    let mut one = Minimization::new(space, objective, x)?;
    minimize(space, std::slice::from_mut(&mut one), options, watch)?;
    Ok(one.found)
}

/// The state of a minimization.
pub(super) struct Minimization<'a, S: VectorSpace> {
    objective: &'a dyn Objective<S>,
    pub found: NewtonOutcome<S::Vector>,
    /// The derivatives at the position, as long as steps follow.
    at: Option<Box<dyn ObjectiveAt<S> + 'a>>,
    gradient: S::Vector,
    /// The value before the last step.
    before: Option<f64>,
}

/// Runs minimizations of one objective, or of several without preconditioners, until all have
/// ended. Blocks.
///
/// The steps of all are solved together, then each searches along its own. Results have the bits of
/// one minimization after the other.
pub(super) fn minimize<S: VectorSpace>(
    space: &mut S,
    all: &mut [Minimization<'_, S>],
    options: &NewtonOptions,
    watch: &mut dyn FnMut(&NewtonStep),
) -> Result<()> {
    options.check("Newton's method")?;
    for _ in 0..options.maxiter {
        let solved = solve_steps(space, all, options)?;
        if solved.is_empty() {
            break;
        }
        let going = all.iter_mut().filter(|one| one.at.is_some());
        going.zip(solved).try_for_each(|(one, solved)| one.step(space, solved, options, watch))?;
    }
    Ok(())
}

/// Solves the steps of the minimizations that have not ended.
fn solve_steps<S: VectorSpace>(
    space: &mut S,
    all: &[Minimization<'_, S>],
    options: &NewtonOptions,
) -> Result<Vec<CgOutcome<S::Vector>>> {
    let going: Vec<_> = all.iter().filter_map(|one| Some((one, one.at.as_deref()?))).collect();
    let Some((_, first)) = going.first() else { return Ok(Vec::new()) };
    let preconditioner = first.preconditioner();
    let norms: Vec<_> = going.iter().map(|(one, _)| Reduction::Norm1(&one.gradient)).collect();
    let mut solves = Vec::new();
    for ((one, _), magnitude) in going.iter().zip(space.reduce(&norms)?) {
        let rules = options.for_step(one.before, one.found.value, magnitude, preconditioner.is_some());
        solves.push(Solve::new(space, (&one.gradient, None), &rules, preconditioner.is_some())?);
    }
    let mut metrics =
        |space: &mut S, number: usize, v: &S::Vector, out: &mut S::Vector| going[number].1.metric(space, v, out);
    solve::run(space, &mut metrics, preconditioner, &mut solves)?;
    Ok(solves.into_iter().map(Solve::outcome).collect())
}

impl<'a, S: VectorSpace> Minimization<'a, S> {
    /// Creates the minimization of `objective` from `x` on. Blocks.
    pub fn new(space: &mut S, objective: &'a dyn Objective<S>, x: S::Vector) -> Result<Self> {
        let (value, at) = objective.at(space, &x)?;
        let mut gradient = space.like(&x)?;
        at.gradient(space, &mut gradient)?;
        let stop = NewtonStop::Iterations;
        let found = NewtonOutcome { x, value, steps: 0, evaluations: 1, applications: 0, stop };
        Ok(Minimization { objective, found, at: Some(at), gradient, before: None })
    }

    /// Searches along the solution of a step, and ends or computes the next gradient.
    fn step(
        &mut self,
        space: &mut S,
        solved: CgOutcome<S::Vector>,
        options: &NewtonOptions,
        watch: &mut dyn FnMut(&NewtonStep),
    ) -> Result<()> {
        let Minimization { objective, found, .. } = self;
        // The derivatives of the next position use the memory of these.
        let is_preconditioned = self.at.take().is_some_and(|at| at.preconditioner().is_some());
        // Along a negative curvature the step goes downhill, and later iterations keep the step so
        // far. Along a first direction without curvature no step is taken.
        let is_flat = solved.stop == CgStop::NotPositive(0.0) && solved.iterations == 1;
        let mut numbers = [f64::from(u8::from(is_flat)), solved.applications as f64];
        let direction = objective.agree(space, solved.x, &mut numbers)?;
        let (is_flat, products) = (numbers[0] == 1.0, numbers[1] as u64);
        found.applications += products;
        if is_flat {
            found.stop = NewtonStop::NotPositive;
            return Ok(());
        }
        let is_last = found.steps + 1 == options.maxiter;
        let search = descend(space, *objective, found, &self.gradient, direction, is_last)?;
        found.steps += 1;
        let step = match search {
            Search::Found(step) => step,
            Search::Nothing { trials, apart } => {
                found.evaluations += u64::from(trials);
                found.stop = if apart <= NEAR { NewtonStop::Rounding } else { NewtonStop::NoDescent };
                return Ok(());
            }
        };
        let turned = u64::from(step.trials > TURN);
        found.applications += turned;
        found.evaluations += u64::from(step.trials);
        let fall = found.value - step.value;
        self.before = Some(found.value);
        (found.x, found.value) = (step.x, step.value);
        let length = step.scale * objective.length(space, &step.direction)?;
        let (applications, scale) = (products + turned, step.scale);
        watch(&NewtonStep { number: found.steps, value: found.value, applications, scale, length });
        let is_late = found.steps > options.miniter;
        let absdelta = options.absdelta.or(is_preconditioned.then_some(SMALL));
        if is_late && step.trials <= 2 && absdelta.is_some_and(|absdelta| fall < absdelta) {
            found.stop = NewtonStop::Value;
        } else if is_late && length <= options.xtol * objective.free(space, &found.x) as f64 {
            found.stop = NewtonStop::Step;
        } else if !is_last {
            let at = step.at.map_or_else(|| Ok(objective.at(space, &found.x)?.1), Ok::<_, InferenceError>)?;
            at.gradient(space, &mut self.gradient)?;
            self.at = Some(at);
        }
        Ok(())
    }
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
) -> Result<Search<'a, S>> {
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
        if let Some((value, at)) = if_finite(found)?.filter(|(value, _)| *value <= from.value) {
            return Ok(Search::Found(Descent { x, value, at, direction, scale, trials }));
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
