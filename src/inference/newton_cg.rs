//! Minimisation by Newton's method, whose steps conjugate gradients find: with the stopping rules of NIFTy.

use super::conjugate_gradient::{CgOptions, CgStop, NormOrder, conjugate_gradient};
use super::error::InferenceError;
use super::vector_space::{Reduction, VectorSpace};

/// A function to be minimised.
pub trait Objective<S: VectorSpace> {
    /// Its value and derivatives at `x`, which must stay as it is while they live. The value is waited for.
    ///
    /// # Errors
    /// [`InferenceError::NotFinite`]; what its work can fail with.
    fn at<'a>(&'a self, space: &mut S, x: &S::Vector) -> Result<(f64, Box<dyn ObjectiveAt<S> + 'a>), InferenceError>;

    /// The length of a step, which is compared with [`NewtonOptions::xtol`]: the sum of magnitudes, if it is not another.
    ///
    /// # Errors
    /// What its work can fail with.
    fn length(&self, space: &mut S, step: &S::Vector) -> Result<f64, InferenceError> {
        space.norm1(step)
    }

    /// Numbers of `x` that are minimised over; the others keep their values.
    fn free(&self, space: &mut S, x: &S::Vector) -> u64 {
        space.len(x)
    }
}

/// The derivatives of an [`Objective`] at a point.
pub trait ObjectiveAt<S: VectorSpace> {
    /// `out` = the gradient.
    ///
    /// # Errors
    /// What its work can fail with.
    fn gradient(&self, space: &mut S, out: &mut S::Vector) -> Result<(), InferenceError>;

    /// `out = M v`: the curvature, or a metric near it.
    ///
    /// # Errors
    /// What its work can fail with.
    fn metric(&self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<(), InferenceError>;
}

/// When Newton's method ends, and its steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewtonOptions {
    /// A step that lowers the value by less, in units of information, is the last one (if it was halved at most once).
    pub absdelta: Option<f64>,
    /// A step whose length is this or less for each number of the vector is the last one.
    pub xtol: f64,
    /// The steps before these two rules apply.
    pub miniter: u64,
    /// Steps at most.
    pub maxiter: u64,
    /// Conjugate gradients for a step end where an iteration gains less than this part of what the step before has gained.
    pub energy_reduction: f64,
    /// Rules for conjugate gradients in place of those that follow from the values and gradients of the steps.
    pub cg: Option<CgOptions>,
}

impl Default for NewtonOptions {
    fn default() -> Self {
        NewtonOptions { absdelta: None, xtol: 1e-5, miniter: 0, maxiter: 200, energy_reduction: 0.1, cg: None }
    }
}

impl NewtonOptions {
    /// So many steps at most.
    #[must_use]
    pub fn steps(mut self, maxiter: u64) -> Self {
        self.maxiter = maxiter;
        self
    }

    /// Ends once a step lowers the value by less.
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

    /// Rules for the step from a point of this value and norm of the gradient.
    fn for_step(&self, before: Option<f64>, value: f64, magnitude: f64) -> CgOptions {
        self.cg.unwrap_or_else(|| CgOptions {
            absdelta: match before {
                Some(before) if self.energy_reduction > 0.0 => Some(self.energy_reduction * (before - value)),
                _ => self.absdelta.map(|absdelta| absdelta / 100.0),
            },
            resnorm: Some(magnitude.sqrt().min(0.5) * magnitude),
            norm: NormOrder::One,
            miniter: None,
            maxiter: None,
        })
    }
}

/// Why Newton's method ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewtonStop {
    /// A step lowers the value by little.
    Value,
    /// A step is short.
    Step,
    /// There were as many steps as are allowed.
    Iterations,
    /// No step lowers the value, and the minimum is no further than it is wide: it is one to rounding.
    Rounding,
    /// No step along what was found lowers the value, though the minimum is further away: derivatives are wrong, or the value is far from a parabola here.
    NoDescent,
}

/// A step that was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewtonStep {
    /// Its number, from 1 on.
    pub number: u64,
    /// The value after it.
    pub value: f64,
    /// Applications of the metric to find it.
    pub applications: u64,
    /// The part of it that was gone.
    pub scale: f64,
    /// Its length.
    pub length: f64,
}

/// What Newton's method found.
#[derive(Clone, Debug)]
pub struct NewtonOutcome<V> {
    /// The place of the smallest value.
    pub x: V,
    /// That value.
    pub value: f64,
    /// Steps.
    pub steps: u64,
    /// Evaluations of the value and gradient.
    pub evaluations: u64,
    /// Applications of the metric.
    pub applications: u64,
    /// Why it ended.
    pub stop: NewtonStop,
}

/// Trials of a line search that the reference makes, the one after which it goes along the gradient, and trials at most.
const TRIALS: u32 = 9;
const TURN: u32 = 6;
const MOST_TRIALS: u32 = 60;

/// How far from the minimum a place may be that counts as one: so many of its standard deviations, those of all directions together. Samples know a mean no better.
const NEAR: f64 = 1.0;

/// Minimises `objective` from `x` on; `watch` is told each step.
///
/// A step `p` solves `M p = gradient`; it is halved until the value does not rise. After six halvings it is replaced by the best step along the
/// gradient, which is halved on until it promises less than values can tell: exponentials of what is far from the data need steps of a thousandth. Then the search
/// is given up: the last place is kept. (The reference gives up after three trials along the gradient; what it finds by these is found here.)
///
/// # Errors
/// [`InferenceError::NotFinite`], and [`InferenceError::Options`]; what `objective` can fail with.
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
        let rules = options.for_step(before, found.value, magnitude);
        let cg = conjugate_gradient(space, &mut |space, v, out| at.metric(space, v, out), &gradient, None, &rules)?;
        if let CgStop::NotPositive(curvature) = cg.stop
            && curvature == 0.0
        {
            return Err(InferenceError::NotPositive { what: "Newton's method".into(), curvature });
        }
        // The derivatives of the next place take the memory of these.
        drop(at);
        let step = match descend(space, objective, &found, &gradient, cg.x)? {
            Search::Found(step) => step,
            Search::Nothing { trials, apart } => {
                found.applications += cg.applications;
                found.evaluations += u64::from(trials);
                found.steps += 1;
                found.stop = if apart <= NEAR { NewtonStop::Rounding } else { NewtonStop::NoDescent };
                break;
            }
        };
        found.steps += 1;
        let applications = cg.applications + u64::from(step.trials > TURN);
        found.applications += applications;
        found.evaluations += u64::from(step.trials);
        let fall = found.value - step.value;
        before = Some(found.value);
        (found.x, found.value, at) = (step.x, step.value, step.at);
        let length = step.scale * objective.length(space, &step.direction)?;
        let told = NewtonStep { number: found.steps, value: found.value, applications, scale: step.scale, length };
        watch(&told);
        let late = found.steps > options.miniter;
        if late && step.trials <= 2 && options.absdelta.is_some_and(|absdelta| fall < absdelta) {
            found.stop = NewtonStop::Value;
            break;
        }
        if late && length <= xtol {
            found.stop = NewtonStop::Step;
            break;
        }
        at.gradient(space, &mut gradient)?;
    }
    Ok(found)
}

/// The place that a line search ends at.
struct Descent<'a, S: VectorSpace> {
    x: S::Vector,
    value: f64,
    at: Box<dyn ObjectiveAt<S> + 'a>,
    direction: S::Vector,
    scale: f64,
    trials: u32,
}

/// What a line search finds.
enum Search<'a, S: VectorSpace> {
    Found(Descent<'a, S>),
    /// No place with a smaller value after so many trials, though the minimum is `apart` away by what derivatives say: in standard deviations, `sqrt(g.M^-1 g)`.
    Nothing {
        trials: u32,
        apart: f64,
    },
}

/// Goes along `-direction`, or less far, until the value does not rise.
fn descend<'a, S: VectorSpace>(
    space: &mut S,
    objective: &'a dyn Objective<S>,
    from: &NewtonOutcome<S::Vector>,
    gradient: &S::Vector,
    mut direction: S::Vector,
) -> Result<Search<'a, S>, InferenceError> {
    // A fall of less is rounding.
    let least = space.epsilon() * from.value.abs();
    let (mut scale, mut apart, mut slope) = (1.0, 0.0, 0.0);
    let mut trials = 0;
    while trials < TRIALS || trials < MOST_TRIALS && scale * slope > least {
        trials += 1;
        let mut x = space.copy(&from.x)?;
        space.axpby(-scale, &direction, 1.0, &mut x)?;
        // What is not finite is no descent, but for the first place of all.
        match objective.at(space, &x) {
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
            let what = [(gradient, gradient), (gradient, &curved), (gradient, &direction)];
            let found = space.reduce(&what.map(|(a, b)| Reduction::Dot(a, b)))?;
            let best = found[0] / found[1];
            (scale, slope, apart) = (1.0, best * found[0], found[2].max(0.0).sqrt());
            space.axpby(best, gradient, 0.0, &mut direction)?;
        }
    }
    Ok(Search::Nothing { trials, apart })
}
