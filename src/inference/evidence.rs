//! How probable the data are under a model: a bound, to compare models of the same data.
//!
//! With `n` latent values, the energy `H(x) = E(x) + x.x / 2` and samples of a normal distribution with the metric `M`
//! ```text
//! ln p(data) >= n / 2 - mean H(x_s) - ln det(M) / 2          (up to the constants that E leaves out)
//! ln p(data) ~          -     H(x)   - ln det(M) / 2          (Laplace's approximation, of the most probable place without samples)
//! ```
//! Both are equalities for linear models with Gaussian noise: there samples have on average `n / 2` more energy than their mean.
//!
//! Lanczos' method makes an orthonormal basis `Q` of the directions that data say most of. By interlacing `ln det(1 + Q^T (M - 1) Q)` is `ln det(M)` or
//! less, whatever the basis; it grows by the logarithm of one pivot a direction. From one vector the method finds each curvature once, however many
//! directions have it (all modes of one wavenumber, all cells of one noise). Where it has no more to add it goes on from new noise, beside all directions that there
//! are, and ends only if that adds nothing either.

use super::error::InferenceError;
use super::groups::SampleGroups;
use super::log_likelihood::{LogLikelihood, LogLikelihoodAt};
use super::samples::Samples;
use super::vector_space::{Reduction, Stream, VectorSpace};

/// A bound of the logarithm of the evidence, `ln p(data)`, up to constants of the likelihood.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvidenceBound {
    /// The bound, with `ln det(M)` as far as it was found.
    pub value: f64,
    /// The standard error of its mean over pairs of samples: infinite for one pair, which knows of no spread, and 0 without samples.
    pub error: f64,
    /// `ln det(M)` as far as it was found.
    pub log_determinant: f64,
    /// What directions that were not looked at may add to `ln det(M)`, if none adds more than the last one: the bound may be lower by half of that.
    pub rest: f64,
    /// Directions that were looked at: an application of the metric each, and one more for each new beginning.
    pub directions: u64,
}

/// A bound of the evidence from the samples of a fit and the metric at its position; of a fit without samples Laplace's approximation. At most `directions`
/// directions are looked at, whose vectors are all kept, and none after a new beginning that adds less than `tolerance` for all that are left. All ranks of all
/// groups call it.
///
/// Latent values that were point estimates of samples are taken as if these varied them: the value is too large then by half of their number.
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
    let mean = crate::map::tree::tree_sum(&energies) / energies.len() as f64;
    // What samples have more than their mean.
    let above = if samples.count() > 0 { space.len(&samples.position) as f64 / 2.0 } else { 0.0 };
    let found = log_determinant(space, likelihood, &samples.position, directions, tolerance)?;
    let value = above - mean - found.log_determinant / 2.0;
    Ok(EvidenceBound { value, error: if samples.count() > 0 { error_over_pairs(&energies) } else { 0.0 }, ..found })
}

/// The standard error of the mean of the energies of mirrored pairs. The two of a pair are one draw, however many they look: what is odd in the residual has
/// opposite signs in them, and what is even is the same.
fn error_over_pairs(energies: &[f64]) -> f64 {
    let pairs: Vec<f64> = energies.chunks(2).map(|pair| pair.iter().sum::<f64>() / pair.len() as f64).collect();
    let count = pairs.len() as f64;
    let mean = pairs.iter().sum::<f64>() / count;
    let square: f64 = pairs.iter().map(|energy| (energy - mean).powi(2)).sum();
    if pairs.len() > 1 { (square / (count - 1.0) / count).sqrt() } else { f64::INFINITY }
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
    // More directions than the data are numbers of a model, or latent values, have no curvature but the prior's.
    let data = likelihood.data(space)?;
    let most = space.len(&data).min(space.len(position));
    let mut found = EvidenceBound { value: 0.0, error: 0.0, log_determinant: 0.0, rest: 0.0, directions: 0 };
    let (mut basis, mut pivots): (Vec<S::Vector>, _) = (Vec::new(), Pivots::default());
    let (mut next, mut length) = beginning(space, &*at, position, &basis)?;
    let (mut begins, mut scale) = (true, 0.0_f64);
    while found.directions < directions.min(most) {
        if begins && length == 0.0 {
            // New noise has no curvature: no direction is left that has any.
            found.rest = 0.0;
            break;
        }
        if !begins && (length <= 16.0 * space.epsilon() * scale || found.rest < tolerance) {
            (next, length) = beginning(space, &*at, position, &basis)?;
            begins = true;
            continue;
        }
        let mut direction = space.like(&next)?;
        space.axpby(1.0 / length, &next, 0.0, &mut direction)?;
        at.metric(space, &direction, &mut next)?;
        basis.push(direction);
        // The metric between this direction and all others, and its own.
        let column;
        (column, length) = orthogonal(space, &basis, &mut next)?;
        scale = column.last().map_or(scale, |&own| scale.max(own));
        let pivot = pivots.add(&column);
        if pivot <= 0.0 {
            return Err(InferenceError::NotPositive { what: "the metric, for the evidence".into(), curvature: pivot });
        }
        found.directions += 1;
        found.log_determinant += pivot.ln();
        found.rest = pivot.ln().max(0.0) * most.saturating_sub(found.directions) as f64;
        if begins && found.rest < tolerance {
            break;
        }
        begins = false;
    }
    Ok(found)
}

/// The metric times new noise beside a basis, and its length: nothing of directions that are in it, or that the data say nothing of.
fn beginning<S: VectorSpace>(
    space: &mut S,
    at: &dyn LogLikelihoodAt<S>,
    like: &S::Vector,
    basis: &[S::Vector],
) -> Result<(S::Vector, f64), InferenceError> {
    let (mut noise, mut next) = (space.like(like)?, space.like(like)?);
    // Other noise for each number of directions.
    space.white_noise(Stream::new(0, u32::MAX, basis.len() as u32, 0), &mut noise)?;
    orthogonal(space, basis, &mut noise)?;
    at.metric(space, &noise, &mut next)?;
    let (_, length) = orthogonal(space, basis, &mut next)?;
    Ok((next, length))
}

/// Makes `x` orthogonal to an orthonormal basis; returns what it had along that, and its length then.
fn orthogonal<S: VectorSpace>(
    space: &mut S,
    basis: &[S::Vector],
    x: &mut S::Vector,
) -> Result<(Vec<f64>, f64), InferenceError> {
    let column = remove(space, basis, x)?;
    // Twice orthogonal is orthogonal to rounding, unless the second time takes most of what was left: then that was rounding, and nothing is left.
    let again: f64 = remove(space, basis, x)?.iter().map(|product| product * product).sum();
    let square = space.dot(x, x)?;
    Ok((column, if again > square { 0.0 } else { square.sqrt() }))
}

/// Takes what `x` has along an orthonormal basis from it; returns how much that was.
fn remove<S: VectorSpace>(space: &mut S, basis: &[S::Vector], x: &mut S::Vector) -> Result<Vec<f64>, InferenceError> {
    let products: Vec<_> = basis.iter().map(|direction| Reduction::Dot(direction, &*x)).collect();
    let products = space.reduce(&products)?;
    basis.iter().zip(&products).try_for_each(|(direction, product)| space.axpby(-product, direction, 1.0, x))?;
    Ok(products)
}

/// The Cholesky factor of `1 + A`, of which rows are known one after the other.
#[derive(Default)]
struct Pivots {
    rows: Vec<Vec<f64>>,
}

impl Pivots {
    /// Adds a row of `A`, up to its diagonal; returns what it multiplies the determinant by.
    fn add(&mut self, column: &[f64]) -> f64 {
        let mut row: Vec<f64> = Vec::with_capacity(column.len());
        for (above, own) in self.rows.iter().zip(column) {
            let before: f64 = above.iter().zip(&row).map(|(a, b)| a * b).sum();
            row.push((own - before) / above[row.len()]);
        }
        let pivot = 1.0 + column[row.len()] - row.iter().map(|a| a * a).sum::<f64>();
        row.push(pivot.max(0.0).sqrt());
        self.rows.push(row);
        pivot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pivots_multiply_to_the_determinant() {
        // 1 + A = [4 2 1; 2 3 1; 1 1 5], whose determinant is 37.
        let mut pivots = Pivots::default();
        let found: Vec<f64> = [&[3.0][..], &[2.0, 2.0], &[1.0, 1.0, 4.0]].map(|row| pivots.add(row)).into();
        assert!((found.iter().product::<f64>() - 37.0).abs() < 1e-12 && found[0] == 4.0, "{found:?}");
    }
}
