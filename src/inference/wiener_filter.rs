//! The posterior of data that depend linearly on latent values, with Gaussian noise: in closed form, up to conjugate gradients.

use super::agreement::{self, Asked};
use super::conjugate_gradient::{CgOptions, CgStop, conjugate_gradient};
use super::convergence::Convergence;
use super::draw::{Draw, Drawing, Sampling};
use super::error::InferenceError;
use super::excitation::Excitations;
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::newton_cg::NewtonOptions;
use super::samples::Samples;
use super::vector_space::{Reduction, VectorSpace};

/// What a Wiener filter finds.
#[derive(Debug)]
pub struct WienerFilter<S: VectorSpace> {
    /// The mean, and samples about it.
    pub samples: Samples<S>,
    /// Whether conjugate gradients converged, of the samples and, as one more, of the mean: what did not is neither.
    pub convergence: Convergence,
    /// The gradient of the energy at the mean, less what conjugate gradients have left of it, over that at the position and what the prior and the data pull at the mean:
    /// how far the model is from a linear one with Gaussian noise, for which it is rounding.
    pub bend: f64,
    /// Whether that is more than rounding explains: then this is not the posterior.
    pub is_bent: bool,
}

/// The mean and `pairs` mirrored pairs of samples of the posterior (Wiener filter), of a model that is linear about `position`.
///
/// With the energy `H` the mean is `x - D H'(x)` for any `x`, with `D = (M + 1)^-1`; samples have covariance `D`. Of other models and noise the mean is that of the
/// model linearised at `position`, samples are drawn about it, and [`WienerFilter::is_bent`] says so. All ranks of all groups call it.
///
/// # Errors
/// [`InferenceError::Differ`] on all ranks where they ask for different things; [`InferenceError::NotPositive`]; what the likelihood and the ranks can fail with.
pub fn wiener_filter<S: VectorSpace>(
    space: &mut S,
    likelihood: &dyn LogLikelihood<S>,
    groups: &SampleGroups,
    position: &S::Vector,
    (pairs, excitations): (usize, &Excitations<S>),
    options: &CgOptions,
) -> Result<WienerFilter<S>, InferenceError> {
    let one = |name, said| Asked { name, said: vec![said] };
    let asked = [
        one("pairs (n_samples)", pairs.to_string()),
        one("seed", format!("{excitations:?}")),
        one("options (draw_linear_kwargs)", format!("{options:?}")),
    ];
    agreement::of_options(groups.all(), &asked)?;
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
    // What the gradient at the mean is if the model is linear: nothing but what conjugate gradients have left.
    let mut left = space.like(position)?;
    metric(space, &step.x, &mut left)?;
    space.axpby(1.0, &gradient, -1.0, &mut left)?;
    let mut mean = space.copy(position)?;
    space.axpby(-1.0, &step.x, 1.0, &mut mean)?;
    // Of a position near the mean the gradient is small, but not what it is the difference of.
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
    };
    let (samples, solved) = drawing.samples(space, Samples::none(mean), &mut |_| ())?;
    let convergence = Convergence::over(groups, &solved)?.and(step.iterations, step.stop);
    Ok(WienerFilter { samples, convergence, bend, is_bent })
}

/// How far the gradient of the energy at the mean is from what is left, over the largest of what it is made of.
fn bend<S: VectorSpace>(
    space: &mut S,
    likelihood: &dyn LogLikelihood<S>,
    mean: &S::Vector,
    mut left: S::Vector,
    [before, force]: [&S::Vector; 2],
) -> Result<f64, InferenceError> {
    let mut gradient = space.like(mean)?;
    likelihood.at(space, mean)?.gradient(space, &mut gradient)?;
    space.axpby(1.0, mean, 1.0, &mut gradient)?;
    space.axpby(1.0, &gradient, -1.0, &mut left)?;
    match space.reduce(&[&left, before, force].map(|x| Reduction::Dot(x, x))) {
        Ok(found) if found[0] == 0.0 => Ok(0.0),
        Ok(found) => Ok((found[0] / found[1].max(found[2])).sqrt()),
        // A mean at which the gradient overflows is as far from linear as can be.
        Err(InferenceError::NotFinite { .. }) => Ok(f64::INFINITY),
        Err(error) => Err(error),
    }
}
