//! The posterior of a linear model with Gaussian noise, by conjugate gradients.

use std::fmt::Debug;

use super::conjugate_gradient::{CgOptions, CgStop, Precondition};
use super::draw::Excitations;
use super::error::{InferenceError, Result, if_finite};
use super::groups::SampleGroups;
use super::log_likelihood::{LogLikelihood, posterior_gradient};
use super::newton_cg::NewtonOptions;
use super::preconditioner::{Preconditioner, Preconditioning};
use super::report::{Convergence, SampleOutcome};
use super::samples::{Draw, Drawing, Samples, Sampling};
use super::solve::conjugate_gradient;
use super::vector_space::{Reduction, VectorSpace};

/// The result of a Wiener filter.
#[derive(Debug)]
pub struct WienerFilter<S: VectorSpace> {
    /// The mean, and samples about it.
    pub samples: Samples<S>,
    /// Convergence of the samples and, as one more, of the mean.
    pub convergence: Convergence,
    /// Norm of the gradient of the energy at the mean, without the residual of conjugate gradients,
    /// over the larger of the gradient at the position and the forces of prior and data at the
    /// mean. It is rounding for a linear model with Gaussian noise.
    pub bend: f64,
    /// Whether `bend` exceeds rounding: then this is not the posterior.
    pub is_bent: bool,
}

/// Computes the mean and `pairs` mirrored pairs of samples of the posterior of a linear model
/// (Wiener filter).
///
/// With the energy `H` the mean is `x - D H'(x)` for any `x`, with `D = (M + 1)^-1`; samples have
/// covariance `D`. Of other models and noise the mean is that of the model linearized at
/// `position`, samples are drawn about it, and [`WienerFilter::is_bent`] is set. Collective over
/// all groups.
///
/// # Errors
/// - [`CommError::Differ`](crate::comm::CommError::Differ) on all ranks if their options differ.
/// - [`InferenceError::NotPositive`] if the metric is not positive.
/// - Errors of the likelihood and the ranks.
pub fn wiener_filter<S: VectorSpace>(
    space: &mut S,
    likelihood: &dyn LogLikelihood<S>,
    groups: &SampleGroups,
    position: &S::Vector,
    (pairs, excitations): (usize, &Excitations<S>),
    options: &CgOptions,
) -> Result<WienerFilter<S>> {
    let arguments: [(&str, &dyn Debug); 3] =
        [("pairs (n_samples)", &pairs), ("seed", excitations), ("options (draw_linear_kwargs)", options)];
    groups.all().agree("wiener_filter", &arguments)?;
    let preconditioner = Preconditioner::new(space, likelihood, groups, (position, &[]), Preconditioning::default())?;
    let at = likelihood.at(space, position)?;
    let gradient = posterior_gradient(space, &*at, position)?;
    let mut metric = |space: &mut S, v: &S::Vector, out: &mut S::Vector| {
        at.metric(space, v, out)?;
        space.axpby(1.0, v, 1.0, out)
    };
    let precondition = preconditioner.as_ref().map(|own| own as &dyn Precondition<S>);
    let step = conjugate_gradient(space, &mut metric, precondition, &gradient, None, options)?;
    if let CgStop::NotPositive(curvature) = step.stop {
        return Err(InferenceError::NotPositive { what: "the metric of the Wiener filter".into(), curvature });
    }
    // If the model is linear, the gradient at the mean is the residual of conjugate gradients.
    let mut left = space.like(position)?;
    metric(space, &step.x, &mut left)?;
    space.axpby(1.0, &gradient, -1.0, &mut left)?;
    let mut mean = space.copy(position)?;
    space.axpby(-1.0, &step.x, 1.0, &mut mean)?;
    // Near the mean the gradient is small, but the forces of which it is the difference are not.
    let mut force = space.like(position)?;
    metric(space, &mean, &mut force)?;
    drop(at);
    let bend = bend(space, likelihood, &mean, left, [&gradient, &force])?;
    let is_bent = bend > space.epsilon().sqrt();
    let drawing = Drawing {
        likelihood,
        groups,
        excitations,
        sampling: Sampling::Linear(Draw::New),
        pairs,
        drawn_in: 0,
        linear: *options,
        curve: NewtonOptions::default(),
        point_estimates: &[],
        preconditioner: preconditioner.as_ref(),
        concurrency: space.concurrency(position),
    };
    let mut samples = Samples::none(mean);
    drawing.draw(space, &mut samples, &mut |_| ())?;
    let of_mean = SampleOutcome { steps: step.iterations, error_ratio: step.error_ratio, curve: None };
    let convergence = Convergence::over(groups, samples.outcomes())?.and(of_mean);
    Ok(WienerFilter { samples, convergence, bend, is_bent })
}

/// Returns the distance of the gradient at the mean from `left`, over the larger of `before` and
/// `force`.
fn bend<S: VectorSpace>(
    space: &mut S,
    likelihood: &dyn LogLikelihood<S>,
    mean: &S::Vector,
    mut left: S::Vector,
    [before, force]: [&S::Vector; 2],
) -> Result<f64> {
    let at = likelihood.at(space, mean)?;
    let gradient = posterior_gradient(space, &*at, mean)?;
    drop(at);
    space.axpby(1.0, &gradient, -1.0, &mut left)?;
    // A gradient that overflows belongs to no linear model.
    let found = if_finite(space.reduce(&[&left, before, force].map(|x| Reduction::Dot(x, x))))?;
    Ok(found.map_or(
        f64::INFINITY,
        |found| {
            if found[0] == 0.0 { 0.0 } else { (found[0] / found[1].max(found[2])).sqrt() }
        },
    ))
}
