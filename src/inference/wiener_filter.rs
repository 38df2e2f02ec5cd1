//! The posterior of data that depend linearly on latent values, with Gaussian noise: in closed form, up to conjugate gradients.

use super::conjugate_gradient::{CgOptions, CgStop, conjugate_gradient};
use super::convergence::Convergence;
use super::draw::{Draw, Drawing, Sampling};
use super::error::InferenceError;
use super::excitation::Excitations;
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::newton_cg::NewtonOptions;
use super::samples::Samples;
use super::vector_space::VectorSpace;

/// The mean and `pairs` mirrored pairs of samples of the posterior (Wiener filter), of a model that is linear about `position`.
///
/// With the energy `H` the mean is `x - D H'(x)` for any `x`, with `D = (M + 1)^-1`; samples have covariance `D`. Of other models it is the posterior of the model
/// linearised at `position`, and samples are drawn about the mean. All ranks of all groups call it.
///
/// With it comes whether conjugate gradients converged, of the samples and, as one more, of the mean: what did not is neither.
///
/// # Errors
/// [`InferenceError::NotPositive`]; what the likelihood and the ranks can fail with.
pub fn wiener_filter<S: VectorSpace>(
    space: &mut S,
    likelihood: &dyn LogLikelihood<S>,
    groups: &SampleGroups,
    position: &S::Vector,
    (pairs, excitations): (usize, &Excitations<S>),
    options: &CgOptions,
) -> Result<(Samples<S>, Convergence), InferenceError> {
    let at = likelihood.at(space, position)?;
    let mut gradient = space.like(position)?;
    at.gradient(space, &mut gradient)?;
    space.axpby(1.0, position, 1.0, &mut gradient)?;
    let mut metric = |space: &mut S, v: &S::Vector, out: &mut S::Vector| {
        at.metric(space, v, out)?;
        space.axpby(1.0, v, 1.0, out)
    };
    let step = conjugate_gradient(space, &mut metric, &gradient, None, options)?;
    if let CgStop::NotPositive(curvature) = step.stop {
        return Err(InferenceError::NotPositive { what: "the metric of the Wiener filter".into(), curvature });
    }
    drop(at);
    let mut mean = space.copy(position)?;
    space.axpby(-1.0, &step.x, 1.0, &mut mean)?;
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
    };
    let (samples, solved) = drawing.samples(space, Samples::none(mean), &mut |_| ())?;
    Ok((samples, Convergence::over(groups, &solved)?.and(step.iterations, step.stop)))
}
