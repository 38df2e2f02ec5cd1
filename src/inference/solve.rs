//! The state of one solve of conjugate gradients, and what the host does in an iteration.

use super::conjugate_gradient::{CgOptions, CgOutcome, CgStop, Metric};
use super::error::Result;
use super::step_scalars::{CgVectors, StepsEnd};
use super::stopping_rules::{Now, Rules};
use super::vector_space::{Reduction, VectorSpace};

/// Iterations after which the residual is computed from the solution.
pub(super) const RESET: u64 = 20;

/// The sums that a solve needs next, or the place where it goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stage {
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
pub(super) enum Residual {
    /// It is updated.
    Updated,
    /// It has reached its target.
    Confirmed,
    /// The energy has risen.
    Restarted,
}

/// A solve of `M x = j`.
pub(super) struct Solve<'a, S: VectorSpace> {
    pub vectors: CgVectors<'a, S::Vector>,
    pub rules: Rules,
    pub stage: Stage,
    pub iterations: u64,
    /// `r.P r` and the energy of the last iteration.
    pub gamma: f64,
    pub energy: f64,
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
