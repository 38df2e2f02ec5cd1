//! Scalars of conjugate gradients that stay where the vectors are, so that steps never wait for the
//! host.

use super::error::Result;

/// The vectors of conjugate gradients.
pub struct CgVectors<'a, V> {
    /// The right-hand side.
    pub j: &'a V,
    /// The solution.
    pub x: V,
    /// The residual.
    pub r: V,
    /// The direction.
    pub d: V,
    /// The product with the direction, and space for another product.
    pub q: V,
    /// The preconditioned residual.
    pub z: Option<V>,
}

/// The update of the solution and its residual in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepUpdate {
    /// Moves both along the direction.
    Both,
    /// Moves the solution; a product with it follows.
    Solution,
    /// Computes the residual from the product `q` with the solution.
    Residual,
}

/// The limits of the stopping rules in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLimits {
    /// Square of the residual up to which it is 0.
    pub tiny: f64,
    /// Norm of the residual below which steps end.
    pub resnorm: Option<f64>,
    /// Fall of the energy below which steps end.
    pub absdelta: Option<f64>,
    /// Rise of the energy, relative to it, that is rounding.
    pub rise: f64,
    /// Whether the step is the last one in any case.
    pub is_last: bool,
}

/// A step of a solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SolveStep {
    /// The number of the solve.
    pub solve: usize,
    /// The number of the step, from 1 on.
    pub step: u64,
}

/// The end of steps that never wait for the host.
#[derive(Clone, Debug, PartialEq)]
pub struct StepsEnd {
    /// The number of the last step that has updated the solution.
    pub step: u64,
    /// Whether the rules must still decide on this step; otherwise the next one must begin.
    pub is_open: bool,
    /// The sums of this step, in the order of [`StepScalars::sums`]; `None` before the first one.
    pub sums: Option<Vec<f64>>,
    /// `r.P r` and the energy: of this step, and before it if it is open.
    pub gamma: f64,
    /// See `gamma`.
    pub energy: f64,
    /// The energy before this step, if it is not open.
    pub earlier: f64,
}

/// Scalars of several solves of conjugate gradients that stay where the vectors are.
///
/// Solves are known by their numbers. Methods record, except for [`look`](Self::look). At an event
/// that the host must decide the steps of a solve end: by a stopping rule, at a curvature that is
/// not positive, and where a sum is not finite. The vectors then keep the values that they have in
/// the step, except for `q` and `z`: what is recorded later changes nothing.
pub trait StepScalars<S, V> {
    /// Returns the number of steps after which the host looks.
    fn ahead(&self) -> u64;

    /// Begins a solve after step number `first`, with `r.P r` and the energy.
    fn begin(&mut self, space: &mut S, solve: usize, first: u64, numbers: [f64; 2]) -> Result<()>;

    /// Computes the length of a step of a solve from `d.q`.
    fn length(&mut self, space: &mut S, step: SolveStep, vectors: &CgVectors<'_, V>) -> Result<()>;

    /// Updates the solution of a solve and its residual.
    fn update(&mut self, space: &mut S, solve: usize, update: StepUpdate, vectors: &mut CgVectors<'_, V>)
    -> Result<()>;

    /// Computes the sums of a step of a solve, decides by the rules, and computes the next
    /// direction: `r.r`, `r.x`, `j.x`, `r.z` with a preconditioner, and the sum of magnitudes of
    /// `r` if it is the norm.
    fn sums(
        &mut self,
        space: &mut S,
        step: SolveStep,
        limits: &StepLimits,
        vectors: &mut CgVectors<'_, V>,
    ) -> Result<()>;

    /// Returns the end of the steps of each of some solves, if they have ended; blocks once.
    fn look(&mut self, space: &mut S, solves: &[(usize, &CgVectors<'_, V>)]) -> Result<Vec<Option<StepsEnd>>>;
}
