//! Conjugate gradients (Hestenes & Stiefel 1952) for one solve, or for several that advance
//! together.
//!
//! The host blocks for all of them at once: a reduction has the sums of all that need some, and
//! where scalars stay on the device, the next iterations of all solves are recorded before the
//! host looks at the ends of all. A solve that has ended takes no further part.

use super::conjugate_gradient::{CgOptions, CgOutcome, Metric, Precondition};
use super::error::InferenceError;
use super::solve::{RESET, Solve, Stage};
use super::step_scalars::{SolveStep, StepScalars, StepUpdate};
use super::vector_space::VectorSpace;

/// The metric of each solve: `out = M v` for the solve of a number.
pub(super) type Metrics<'a, S> = dyn FnMut(&mut S, usize, &<S as VectorSpace>::Vector, &mut <S as VectorSpace>::Vector) -> Result<(), InferenceError>
    + 'a;

/// The common part of solves that advance together.
struct LockStep<'a, 'm, S: VectorSpace> {
    metrics: &'a mut Metrics<'m, S>,
    preconditioner: Option<&'a dyn Precondition<S>>,
    scalars: Scalars<S>,
    /// Whether the host takes part in products, and in the preconditioner.
    metric_waits: bool,
    preconditioner_waits: bool,
    /// Iterations until the next look.
    until_look: u64,
}

/// The scalars of iterations.
enum Scalars<S: VectorSpace> {
    /// Not known before the first iteration.
    Unknown,
    OnHost,
    WithVectors(Box<dyn StepScalars<S, S::Vector>>),
}

/// Runs solves in one space, whose rules have the same norm, until all have ended.
///
/// Results have the bits of one solve after the other. Blocks as often as the longest of them.
pub(super) fn run<S: VectorSpace>(
    space: &mut S,
    metrics: &mut Metrics<'_, S>,
    preconditioner: Option<&dyn Precondition<S>>,
    solves: &mut [Solve<'_, S>],
) -> Result<(), InferenceError> {
    let mut all = LockStep {
        metrics,
        preconditioner,
        scalars: Scalars::Unknown,
        metric_waits: false,
        preconditioner_waits: false,
        until_look: 1,
    };
    loop {
        if solves.iter().any(Solve::needs_sums) {
            all.sum(space, solves)?;
        } else if solves.iter().any(|solve| solve.stage == Stage::Ready) {
            all.begin(space, solves)?;
        } else if solves.iter().any(|solve| matches!(solve.stage, Stage::Ahead { .. })) {
            all.run_ahead(space, solves)?;
        } else {
            return Ok(());
        }
    }
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
    let mut solve = Solve::new(space, (j, start), options, preconditioner.is_some())?;
    let mut metrics = |space: &mut S, _: usize, v: &S::Vector, out: &mut S::Vector| metric(space, v, out);
    run(space, &mut metrics, preconditioner, std::slice::from_mut(&mut solve))?;
    Ok(solve.outcome())
}

impl<S: VectorSpace> LockStep<'_, '_, S> {
    /// Makes the sums of all solves that need some, and takes each of these to its next stage.
    /// Blocks once for all, and as often as products and the preconditioner.
    fn sum(&mut self, space: &mut S, solves: &mut [Solve<'_, S>]) -> Result<(), InferenceError> {
        let is_start = solves.iter().any(|solve| matches!(solve.stage, Stage::Start { .. }));
        let before = space.waits();
        for (number, solve) in solves.iter_mut().enumerate() {
            solve.prepare(space, &mut metric_of(self.metrics, number))?;
        }
        let prepared = space.waits();
        let mut pairs: Vec<_> = solves.iter_mut().filter_map(Solve::preconditioned).collect();
        if let Some(preconditioner) = self.preconditioner.filter(|_| !pairs.is_empty()) {
            preconditioner.apply_to_all(space, &mut pairs)?;
        }
        self.metric_waits |= prepared > before && !is_start;
        self.preconditioner_waits |= space.waits() > prepared;
        let each: Vec<_> = solves.iter().map(Solve::sums).collect();
        let found = space.reduce(&each.concat())?;
        let counts: Vec<usize> = each.iter().map(Vec::len).collect();
        let mut rest = &found[..];
        for (number, (solve, count)) in solves.iter_mut().zip(counts).enumerate() {
            let own;
            (own, rest) = rest.split_at(count);
            solve.take(space, &mut metric_of(self.metrics, number), own)?;
        }
        Ok(())
    }

    /// Begins the next iteration of solves that are ready: where the vectors are after the first
    /// one, if that can be.
    fn begin(&mut self, space: &mut S, solves: &mut [Solve<'_, S>]) -> Result<(), InferenceError> {
        let is_first = solves.iter().all(|solve| solve.iterations == 0);
        if matches!(self.scalars, Scalars::Unknown) && !is_first {
            let vectors: Vec<_> = solves.iter().map(|solve| &solve.vectors).collect();
            let has_norm = solves.iter().any(|solve| solve.rules.sums_magnitudes());
            let found = if self.metric_waits { None } else { space.step_scalars(&vectors, has_norm)? };
            self.scalars = found.map_or(Scalars::OnHost, Scalars::WithVectors);
        }
        for (number, solve) in solves.iter_mut().enumerate().filter(|(_, solve)| solve.stage == Stage::Ready) {
            solve.stage = Stage::Curvature;
            if let Scalars::WithVectors(scalars) = &mut self.scalars {
                scalars.begin(space, number, solve.iterations, [solve.gamma, solve.energy])?;
                solve.stage = Stage::Ahead { recorded: solve.iterations };
                // Few iterations waste few: the first looks come early.
                self.until_look = 1;
            }
        }
        Ok(())
    }

    /// Records iterations of all solves whose scalars are where the vectors are, and looks at their
    /// ends. Blocks once.
    fn run_ahead(&mut self, space: &mut S, solves: &mut [Solve<'_, S>]) -> Result<(), InferenceError> {
        let Scalars::WithVectors(scalars) = &mut self.scalars else { return Ok(()) };
        for place in 0..self.until_look {
            if place > 0 {
                // The device works on them while the next ones are recorded.
                space.submit()?;
            }
            for (number, solve) in solves.iter_mut().enumerate() {
                let Stage::Ahead { recorded } = &mut solve.stage else { continue };
                if place > 0 && *recorded >= solve.rules.maxiter {
                    continue;
                }
                *recorded += 1;
                let mut step = Step { scalars: &mut **scalars, of: SolveStep { solve: number, step: *recorded } };
                step.record(space, &mut metric_of(self.metrics, number), self.preconditioner, solve)?;
            }
        }
        let most = if self.preconditioner_waits { 1 } else { scalars.ahead() };
        self.until_look = (2 * self.until_look).min(most);
        let is_ahead = |solve: &Solve<'_, S>| matches!(solve.stage, Stage::Ahead { .. });
        let ahead = solves.iter().enumerate().filter(|(_, solve)| is_ahead(solve));
        let ahead: Vec<_> = ahead.map(|(number, solve)| (number, &solve.vectors)).collect();
        let mut ends = scalars.look(space, &ahead)?.into_iter();
        for (number, solve) in solves.iter_mut().enumerate().filter(|(_, solve)| is_ahead(solve)) {
            if let Some(end) = ends.next().flatten() {
                solve.arrive(space, &mut metric_of(self.metrics, number), &end)?;
            }
        }
        Ok(())
    }
}

/// Returns the metric of a solve.
fn metric_of<'f, S: VectorSpace>(
    metrics: &'f mut Metrics<'_, S>,
    number: usize,
) -> impl FnMut(&mut S, &S::Vector, &mut S::Vector) -> Result<(), InferenceError> + 'f {
    move |space, v, out| metrics(space, number, v, out)
}

/// An iteration whose scalars are where the vectors are.
struct Step<'a, S: VectorSpace> {
    scalars: &'a mut dyn StepScalars<S, S::Vector>,
    of: SolveStep,
}

impl<S: VectorSpace> Step<'_, S> {
    fn record(
        &mut self,
        space: &mut S,
        metric: &mut Metric<'_, S>,
        preconditioner: Option<&dyn Precondition<S>>,
        solve: &mut Solve<'_, S>,
    ) -> Result<(), InferenceError> {
        let Step { scalars, of } = self;
        let (vectors, limits) = (&mut solve.vectors, solve.rules.limits(of.step));
        metric(space, &vectors.d, &mut vectors.q)?;
        scalars.length(space, *of, vectors)?;
        if of.step.is_multiple_of(RESET) {
            scalars.update(space, of.solve, StepUpdate::Solution, vectors)?;
            metric(space, &vectors.x, &mut vectors.q)?;
            scalars.update(space, of.solve, StepUpdate::Residual, vectors)?;
        } else {
            scalars.update(space, of.solve, StepUpdate::Both, vectors)?;
        }
        if let (Some(preconditioner), Some(z)) = (preconditioner, &mut vectors.z) {
            preconditioner.apply(space, &vectors.r, z)?;
        }
        scalars.sums(space, *of, &limits, vectors)
    }
}
