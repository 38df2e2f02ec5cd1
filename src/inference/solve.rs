//! Conjugate gradients (Hestenes & Stiefel 1952) for one solve, or for several that advance
//! together.
//!
//! The host blocks for all of them at once: a reduction has the sums of all that need some, and
//! where scalars stay on the device, the next iterations of all solves are recorded before the
//! host looks at the ends of all. A solve that has ended takes no further part.

use super::conjugate_gradient::{CgOptions, CgOutcome, CgStop, Metric, Now, Precondition, Rules};
use super::error::Result;
use super::vector_space::{CgVectors, Reduction, SolveStep, StepScalars, StepUpdate, StepsEnd, VectorSpace};

/// Iterations after which the residual is computed from the solution.
const RESET: u64 = 20;

/// The sums that a solve needs next, or the place where it goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The sums of the start.
    Start {
        /// Whether the start is 0.
        is_zero: bool,
    },
    /// `r.P r` of the start.
    First,
    /// No sum: the next iteration can begin where the vectors are, or on the host.
    Ready,
    /// `d.q` of the next iteration, on the host.
    Curvature,
    /// The sums after an update of the solution and its residual.
    Update(Residual),
    /// No sum: the scalars are where the vectors are.
    Ahead {
        /// The number of the last iteration that is recorded.
        recorded: u64,
    },
    /// No sum: the solve has ended.
    Ended(CgStop),
}

/// Why the residual of an iteration is computed from the solution, if it is not the twentieth.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Residual {
    /// It is updated.
    Updated,
    /// It has reached its target.
    Confirmed,
    /// The energy has risen.
    Restarted,
}

/// A solve of `M x = j`.
pub(super) struct Solve<'a, S: VectorSpace> {
    vectors: CgVectors<'a, S::Vector>,
    rules: Rules,
    stage: Stage,
    iterations: u64,
    /// `r.P r` and the energy of the last iteration.
    gamma: f64,
    energy: f64,
    applications: u64,
    /// The energy at the last restart.
    restarted: f64,
    error_ratio: f64,
}

impl<'a, S: VectorSpace> Solve<'a, S> {
    /// Creates a solve from `start`, or from 0. Records only.
    pub fn new(
        space: &mut S,
        (j, start): (&'a S::Vector, Option<S::Vector>),
        options: &CgOptions,
        is_preconditioned: bool,
    ) -> Result<Self> {
        options.check("conjugate gradients")?;
        let is_zero = start.is_none();
        let x = start.map_or_else(|| space.zeros(j), Ok)?;
        let [r, d, q] = [space.like(j)?, space.like(j)?, space.like(j)?];
        let z = is_preconditioned.then(|| space.like(j)).transpose()?;
        Ok(Solve {
            vectors: CgVectors { j, x, r, d, q, z },
            rules: Rules::new(options, space.len(j), space.epsilon()),
            stage: Stage::Start { is_zero },
            iterations: 0,
            gamma: 0.0,
            energy: 0.0,
            applications: 0,
            restarted: f64::INFINITY,
            error_ratio: 0.0,
        })
    }

    /// Returns the outcome of a solve that has ended.
    pub fn outcome(self) -> CgOutcome<S::Vector> {
        let Solve { vectors, stage, iterations, applications, error_ratio, .. } = self;
        let stop = if let Stage::Ended(stop) = stage { stop } else { CgStop::Iterations };
        CgOutcome { x: vectors.x, iterations, applications, stop, error_ratio }
    }

    /// Returns `true` if the stage needs sums.
    pub fn needs_sums(&self) -> bool {
        matches!(self.stage, Stage::Start { .. } | Stage::First | Stage::Curvature | Stage::Update(_))
    }

    /// Returns the residual, and the vector for `P` times it, if the sums of the stage need it.
    pub fn preconditioned(&mut self) -> Option<(&S::Vector, &mut S::Vector)> {
        let is_needed = matches!(self.stage, Stage::First | Stage::Update(_));
        self.vectors.z.as_mut().filter(|_| is_needed).map(|z| (&self.vectors.r, z))
    }

    /// Computes the vectors of the sums, except for the [preconditioned](Self::preconditioned)
    /// residual.
    pub fn prepare(&mut self, space: &mut S, metric: &mut Metric<'_, S>) -> Result<()> {
        match self.stage {
            Stage::Start { is_zero: true } => space.axpby(-1.0, self.vectors.j, 0.0, &mut self.vectors.r),
            Stage::Start { is_zero: false } => self.residual(space, metric),
            Stage::Curvature => {
                self.iterations += 1;
                self.applications += 1;
                metric(space, &self.vectors.d, &mut self.vectors.q)
            }
            _ => Ok(()),
        }
    }

    /// Returns the sums of the stage.
    pub fn sums(&self) -> Vec<Reduction<'_, S::Vector>> {
        let CgVectors { j, x, r, d, q, z } = &self.vectors;
        match self.stage {
            Stage::Start { is_zero } => {
                let own = [Reduction::Dot(r, r), Reduction::Dot(r, x), Reduction::Dot(*j, x)];
                let own = if is_zero { &own[..1] } else { &own[..] };
                own.iter().copied().chain(self.rules.norm_of(*j)).collect()
            }
            Stage::First => z.iter().map(|z| Reduction::Dot(r, z)).collect(),
            Stage::Curvature => vec![Reduction::Dot(d, q)],
            Stage::Update(_) => self.rules.sums(&self.vectors),
            _ => Vec::new(),
        }
    }

    /// Goes on to the next stage with the sums of this one.
    pub fn take(&mut self, space: &mut S, metric: &mut Metric<'_, S>, sums: &[f64]) -> Result<()> {
        match self.stage {
            Stage::Start { is_zero } => self.begin(space, is_zero, sums),
            Stage::First => {
                self.gamma = sums[0];
                self.set_direction(space, 0.0)
            }
            Stage::Curvature => self.update(space, metric, sums[0]),
            Stage::Update(residual) => {
                let now = self.rules.now(sums, self.vectors.z.is_some());
                self.decide(space, metric, residual, &now)
            }
            _ => Ok(()),
        }
    }

    /// Takes the end of iterations whose scalars were where the vectors are.
    pub fn arrive(&mut self, space: &mut S, metric: &mut Metric<'_, S>, end: &StepsEnd) -> Result<()> {
        let first = self.iterations;
        self.applications += end.step - first + end.step / RESET - first / RESET;
        (self.iterations, self.gamma, self.energy) = (end.step, end.gamma, end.energy);
        let now = end.sums.as_ref().map(|sums| self.rules.now(sums, self.vectors.z.is_some()));
        let is_finite = end.sums.iter().flatten().all(|sum| sum.is_finite());
        match now {
            Some(now) if end.is_open && is_finite => self.decide(space, metric, Residual::Updated, &now)?,
            // The sums on the host name what is not finite.
            _ if end.is_open => self.stage = Stage::Update(Residual::Updated),
            now => {
                if let Some(now) = now {
                    self.error_ratio = self.rules.error_ratio(end.earlier - now.energy, &now);
                }
                self.stage = Stage::Curvature;
            }
        }
        Ok(())
    }

    /// Computes the residual `r = M x - j`.
    fn residual(&mut self, space: &mut S, metric: &mut Metric<'_, S>) -> Result<()> {
        self.applications += 1;
        metric(space, &self.vectors.x, &mut self.vectors.r)?;
        space.axpby(-1.0, self.vectors.j, 1.0, &mut self.vectors.r)
    }

    fn begin(&mut self, space: &mut S, is_zero: bool, sums: &[f64]) -> Result<()> {
        let (own, norm) = sums.split_at(if is_zero { 1 } else { 3 });
        norm.iter().for_each(|&norm| self.rules.set_target(norm));
        self.gamma = own[0];
        self.energy = if is_zero { 0.0 } else { (own[1] - own[2]) / 2.0 };
        self.error_ratio = if self.gamma > 0.0 { f64::INFINITY } else { 0.0 };
        if self.vectors.z.is_some() && self.gamma > 0.0 {
            self.stage = Stage::First;
            return Ok(());
        }
        self.set_direction(space, 0.0)
    }

    /// Moves along the direction by its curvature.
    fn update(&mut self, space: &mut S, metric: &mut Metric<'_, S>, curvature: f64) -> Result<()> {
        let CgVectors { x, r, d, q, .. } = &mut self.vectors;
        if curvature <= 0.0 {
            self.stage = Stage::Ended(CgStop::NotPositive(curvature));
            if self.iterations == 1 && curvature < 0.0 {
                // The direction is uphill.
                space.axpby(self.gamma / curvature, d, 0.0, x)?;
            }
            return Ok(());
        }
        let alpha = self.gamma / curvature;
        self.stage = Stage::Update(Residual::Updated);
        space.axpby(-alpha, d, 1.0, x)?;
        match self.iterations.is_multiple_of(RESET) {
            true => self.residual(space, metric),
            false => space.axpby(-alpha, q, 1.0, r),
        }
    }

    /// Decides by the numbers of an iteration whether it is the last one.
    fn decide(&mut self, space: &mut S, metric: &mut Metric<'_, S>, residual: Residual, now: &Now) -> Result<()> {
        let is_updated = !self.iterations.is_multiple_of(RESET);
        let is_preconditioned = self.vectors.z.is_some();
        let confirmed = match (residual, self.rules.end(self.iterations, self.energy, now)) {
            // Few iterations fall far: rounding of the residual is more than what is left of it.
            (Residual::Updated, Some(CgStop::Residual)) if is_preconditioned && is_updated => Residual::Confirmed,
            (Residual::Updated | Residual::Confirmed, Some(CgStop::Rising)) if is_updated => Residual::Restarted,
            (Residual::Restarted, _) | (_, Some(CgStop::Rising)) => return self.restart(space, now),
            (_, end) => return self.advance(space, now, end, now.gamma / self.gamma),
        };
        self.stage = Stage::Update(confirmed);
        self.residual(space, metric)
    }

    /// Restarts the search from the residual of `x`, as long as its energy is below the one of the
    /// last restart. Energies before have the rounding errors of residuals that were updated.
    fn restart(&mut self, space: &mut S, now: &Now) -> Result<()> {
        let is_lower = self.restarted - now.energy > self.rules.epsilon * now.energy.abs();
        let end = self.rules.end(self.iterations, self.restarted, now);
        let end = end.or((!is_lower).then_some(CgStop::Rising));
        if self.restarted.is_finite() {
            self.energy = self.restarted;
        }
        self.restarted = now.energy;
        self.advance(space, now, end, 0.0)
    }

    /// Ends, or sets the next direction.
    fn advance(&mut self, space: &mut S, now: &Now, end: Option<CgStop>, conjugate: f64) -> Result<()> {
        let fall = self.energy - now.energy;
        let change = if end == Some(CgStop::Rising) { fall.abs() } else { fall };
        self.error_ratio = self.rules.error_ratio(change, now);
        if let Some(end) = end {
            self.stage = Stage::Ended(end);
            return Ok(());
        }
        (self.energy, self.gamma) = (now.energy, now.gamma);
        self.set_direction(space, conjugate)
    }

    /// Computes the direction `d = P r + conjugate d`.
    fn set_direction(&mut self, space: &mut S, conjugate: f64) -> Result<()> {
        let CgVectors { r, d, z, .. } = &mut self.vectors;
        self.stage = if self.gamma > 0.0 { Stage::Ready } else { Stage::Ended(CgStop::Residual) };
        space.axpby(1.0, z.as_ref().unwrap_or(r), conjugate, d)
    }
}

/// The metric of each solve: `out = M v` for the solve of a number.
type Metrics<'a, S> =
    dyn FnMut(&mut S, usize, &<S as VectorSpace>::Vector, &mut <S as VectorSpace>::Vector) -> Result<()> + 'a;

/// The common part of solves that advance together.
struct LockStep<'a, 'm, S: VectorSpace> {
    metrics: &'a mut Metrics<'m, S>,
    preconditioner: Option<&'a dyn Precondition<S>>,
    /// Scalars that stay where the vectors are, for vectors that have such.
    scalars: Option<Box<dyn StepScalars<S, S::Vector>>>,
    /// Whether `scalars` are known: not before the first iteration.
    is_known: bool,
    /// Whether the host takes part in products, and in the preconditioner.
    metric_waits: bool,
    preconditioner_waits: bool,
    /// Iterations until the next look.
    until_look: u64,
}

/// Runs solves in one space, whose rules have the same norm, until all have ended.
///
/// Results have the bits of one solve after the other. Blocks as often as the longest of them.
pub(super) fn run<S: VectorSpace>(
    space: &mut S,
    metrics: &mut Metrics<'_, S>,
    preconditioner: Option<&dyn Precondition<S>>,
    solves: &mut [Solve<'_, S>],
) -> Result<()> {
    let mut all = LockStep {
        metrics,
        preconditioner,
        scalars: None,
        is_known: false,
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
/// - [`InferenceError::NotFinite`](super::InferenceError::NotFinite) if a product is not finite.
/// - [`InferenceError::Options`](super::InferenceError::Options) for limits that are negative or
///   NaN.
/// - Errors of `M`.
pub fn conjugate_gradient<S: VectorSpace>(
    space: &mut S,
    metric: &mut Metric<'_, S>,
    preconditioner: Option<&dyn Precondition<S>>,
    j: &S::Vector,
    start: Option<S::Vector>,
    options: &CgOptions,
) -> Result<CgOutcome<S::Vector>> {
    let mut solve = Solve::new(space, (j, start), options, preconditioner.is_some())?;
    let mut metrics = |space: &mut S, _: usize, v: &S::Vector, out: &mut S::Vector| metric(space, v, out);
    run(space, &mut metrics, preconditioner, std::slice::from_mut(&mut solve))?;
    Ok(solve.outcome())
}

impl<S: VectorSpace> LockStep<'_, '_, S> {
    /// Makes the sums of all solves that need some, and takes each of these to its next stage.
    /// Blocks once for all, and as often as products and the preconditioner.
    fn sum(&mut self, space: &mut S, solves: &mut [Solve<'_, S>]) -> Result<()> {
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
    fn begin(&mut self, space: &mut S, solves: &mut [Solve<'_, S>]) -> Result<()> {
        let is_first = solves.iter().all(|solve| solve.iterations == 0);
        if !self.is_known && !is_first {
            let vectors: Vec<_> = solves.iter().map(|solve| &solve.vectors).collect();
            let has_norm = solves.iter().any(|solve| solve.rules.sums_magnitudes());
            self.scalars = if self.metric_waits { None } else { space.step_scalars(&vectors, has_norm)? };
            self.is_known = true;
        }
        for (number, solve) in solves.iter_mut().enumerate().filter(|(_, solve)| solve.stage == Stage::Ready) {
            solve.stage = Stage::Curvature;
            if let Some(scalars) = &mut self.scalars {
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
    fn run_ahead(&mut self, space: &mut S, solves: &mut [Solve<'_, S>]) -> Result<()> {
        let Some(scalars) = &mut self.scalars else { return Ok(()) };
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
                let step = SolveStep { solve: number, step: *recorded };
                let metric = &mut metric_of(self.metrics, number);
                record_step(space, &mut **scalars, step, metric, self.preconditioner, solve)?;
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
) -> impl FnMut(&mut S, &S::Vector, &mut S::Vector) -> Result<()> + 'f {
    move |space, v, out| metrics(space, number, v, out)
}

/// Records a step of a solve.
fn record_step<S: VectorSpace>(
    space: &mut S,
    scalars: &mut dyn StepScalars<S, S::Vector>,
    of: SolveStep,
    metric: &mut Metric<'_, S>,
    preconditioner: Option<&dyn Precondition<S>>,
    solve: &mut Solve<'_, S>,
) -> Result<()> {
    let (vectors, limits) = (&mut solve.vectors, solve.rules.limits(of.step));
    metric(space, &vectors.d, &mut vectors.q)?;
    scalars.length(space, of, vectors)?;
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
    scalars.sums(space, of, &limits, vectors)
}
