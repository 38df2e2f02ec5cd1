//! How probable the data are under a model: a bound, to compare models of the same data.
//!
//! With `n` latent values, the energy `H(x) = E(x) + x.x / 2` and samples of a normal distribution with the metric `M`
//! ```text
//! ln p(data) >= n / 2 - mean H(x_s) - ln det(M) / 2          (up to the constants that E leaves out)
//! ```
//! which is an equality for linear models with Gaussian noise. Lanczos' method writes `M - 1` in an orthonormal basis of the directions that data say
//! most of, as a tridiagonal matrix `T`. By interlacing `ln det(1 + T)` is `ln det(M)` or less; it grows by the logarithm of one pivot a step.

use super::error::InferenceError;
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::samples::Samples;
use super::vector_space::{Reduction, Stream, VectorSpace};

/// A bound of the logarithm of the evidence, `ln p(data)`, up to constants of the likelihood.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvidenceBound {
    /// The bound, with `ln det(M)` as far as it was found.
    pub value: f64,
    /// The standard error of its mean over samples.
    pub error: f64,
    /// `ln det(M)` as far as it was found.
    pub log_determinant: f64,
    /// What directions that were not looked at may add to `ln det(M)`, if none adds more than the last one: the bound may be lower by half of that.
    pub rest: f64,
    /// Directions that were looked at: applications of the metric.
    pub directions: u64,
}

/// A bound of the evidence from the samples of a fit and the metric at its position. At most `directions` directions are looked at, whose vectors are all kept,
/// and none after one that adds less than `tolerance` for all that are left. All ranks of all groups call it.
///
/// # Errors
/// [`InferenceError::NotFinite`], [`InferenceError::NotPositive`]; what the likelihood and the ranks can fail with.
pub fn evidence_bound<S: VectorSpace>(
    space: &mut S,
    likelihood: &dyn LogLikelihood<S>,
    groups: &SampleGroups,
    samples: &Samples<S>,
    directions: u64,
    tolerance: f64,
) -> Result<EvidenceBound, InferenceError> {
    let mut energies = Vec::new();
    for sample in groups.block(samples.terms()) {
        let place = samples.at(space, sample)?;
        energies.push(likelihood.energy(space, &place)? + space.dot(&place, &place)? / 2.0);
    }
    let energies = groups.gather(&energies)?;
    let terms = energies.len() as f64;
    let mean = crate::map::tree::tree_sum(&energies) / terms;
    let square = energies.iter().map(|energy| (energy - mean).powi(2)).sum::<f64>() / (terms - 1.0).max(1.0);
    let latent = space.len(&samples.position);
    let found = log_determinant(space, likelihood, &samples.position, directions, tolerance)?;
    Ok(EvidenceBound {
        value: latent as f64 / 2.0 - mean - found.log_determinant / 2.0,
        error: (square / terms).sqrt(),
        ..found
    })
}

/// `ln det(M)` at a position.
fn log_determinant<S: VectorSpace>(
    space: &mut S,
    likelihood: &dyn LogLikelihood<S>,
    position: &S::Vector,
    directions: u64,
    tolerance: f64,
) -> Result<EvidenceBound, InferenceError> {
    let at = likelihood.at(space, position)?;
    // More directions than there are data, or latent values, have no curvature but the prior's.
    let most = likelihood.degrees_of_freedom().min(space.len(position));
    let (mut noise, mut next) = (space.like(position)?, space.like(position)?);
    space.white_noise(Stream::new(0, u32::MAX, 0, 0), &mut noise)?;
    // Nothing of directions that the data say nothing of.
    at.metric(space, &noise, &mut next)?;
    let mut found = EvidenceBound { value: 0.0, error: 0.0, log_determinant: 0.0, rest: 0.0, directions: 0 };
    let mut basis: Vec<S::Vector> = Vec::new();
    let (mut pivot, mut scale) = (1.0, 0.0_f64);
    while found.directions < directions.min(most) {
        // Twice orthogonal to all before is orthogonal to rounding.
        for _ in 0..2 {
            remove(space, &basis, &mut next)?;
        }
        let length = space.dot(&next, &next)?.sqrt();
        if length <= 16.0 * space.epsilon() * scale {
            found.rest = 0.0;
            return Ok(found);
        }
        let coupling = if basis.is_empty() { 0.0 } else { length };
        let mut direction = space.like(&next)?;
        space.axpby(1.0 / length, &next, 0.0, &mut direction)?;
        at.metric(space, &direction, &mut next)?;
        let curvature = space.dot(&direction, &next)?;
        scale = scale.max(curvature);
        pivot = 1.0 + curvature - coupling * coupling / pivot;
        if pivot <= 0.0 {
            return Err(InferenceError::NotPositive { what: "the metric, for the evidence".into(), curvature: pivot });
        }
        found.directions += 1;
        found.log_determinant += pivot.ln();
        found.rest = pivot.ln().max(0.0) * most.saturating_sub(found.directions) as f64;
        basis.push(direction);
        if found.rest < tolerance && found.directions > 1 {
            break;
        }
    }
    Ok(found)
}

/// Takes what `x` has along an orthonormal basis from it.
fn remove<S: VectorSpace>(space: &mut S, basis: &[S::Vector], x: &mut S::Vector) -> Result<(), InferenceError> {
    let products: Vec<_> = basis.iter().map(|direction| Reduction::Dot(direction, &*x)).collect();
    let products = space.reduce(&products)?;
    basis.iter().zip(products).try_for_each(|(direction, product)| space.axpby(-product, direction, 1.0, x))
}
