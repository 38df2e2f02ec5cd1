//! Compares the derivatives of a likelihood with each other.

use super::Likelihood;
use crate::inference::error::{InferenceError, Result};
use crate::inference::log_likelihood::{LogLikelihood, LogLikelihoodAt};
use crate::operators::{Vector, random_field};
use crate::rank::Rank;

/// The comparisons of [`check_metric`]. The numbers of each pair are equal in exact arithmetic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetricCheck {
    /// `<u, M v>` and `<v, M u>`.
    pub symmetric: [f64; 2],
    /// `<u, M u>` and `|R u|^2`, with the right square root R.
    pub square: [f64; 2],
    /// `<R u, eta>` and `<u, L eta>`, with the left square root L.
    pub transposed: [f64; 2],
    /// The slope of the energy along u, by its gradient and by differences of energies.
    pub slope: [f64; 2],
    /// The length of the difference between the derivative of the coordinates along u and `R u`, in
    /// units of the length of `R u`; `None` if the likelihood has no coordinates.
    pub coordinates: Option<f64>,
}

/// Checks the derivatives of a likelihood at `x` against each other, along random directions of
/// `seed`.
///
/// The metric must be symmetric and the square of its root, the roots each other's transpose, the
/// gradient that of the energy, and the derivative of the coordinates, along which samples are
/// bent, the right square root. Collective; blocks.
///
/// # Errors
/// - [`InferenceError::Invalid`] if two that should be equal differ by more than rounding, with
///   both values.
/// - Errors of the likelihood.
pub fn check_metric(rank: &mut Rank, likelihood: &Likelihood, x: &Vector, seed: u64) -> Result<MetricCheck> {
    let [u, v] = [0, 1].map(|next| random_field(rank, likelihood.domain(), seed.wrapping_add(next)));
    let (u, v, eta) = (u?, v?, random_field(rank, likelihood.data_space(), seed.wrapping_add(2))?);
    let at = likelihood.at(rank, x)?;
    let new = |rank: &Rank| Vector::new(&rank.gpu, likelihood.domain());
    let (mut mu, mut mv, mut left, mut gradient) = (new(rank)?, new(rank)?, new(rank)?, new(rank)?);
    let mut right = Vector::new(&rank.gpu, likelihood.data_space())?;
    at.metric(rank, &u, &mut mu)?;
    at.metric(rank, &v, &mut mv)?;
    at.right_sqrt(rank, &u, &mut right)?;
    at.left_sqrt(rank, &eta, &mut left)?;
    at.gradient(rank, &mut gradient)?;
    let mut norm = |field: &Vector| Ok::<_, InferenceError>(rank.vector_dot(field, field)?.sqrt());
    let norms =
        [norm(&u)? * norm(&mv)?, norm(&u)? * norm(&mu)?, norm(&right)? * norm(&eta)?, norm(&u)? * norm(&gradient)?];
    let found = MetricCheck {
        symmetric: [rank.vector_dot(&u, &mv)?, rank.vector_dot(&v, &mu)?],
        square: [rank.vector_dot(&u, &mu)?, rank.vector_dot(&right, &right)?],
        transposed: [rank.vector_dot(&right, &eta)?, rank.vector_dot(&u, &left)?],
        slope: [rank.vector_dot(&gradient, &u)?, slope(rank, likelihood, x, &u)?],
        coordinates: coordinates(rank, &*at, x, &u, &right)?,
    };
    // Sixteen roundings of the product of norms, as for adjoints, in each of the two passes through
    // the model. Differences of energies lose half of the digits.
    let rounding = f64::from(f32::EPSILON);
    let checks = [
        ("the metric is not symmetric", found.symmetric, 32.0 * rounding * norms[0]),
        ("the metric is not the square of its root", found.square, 32.0 * rounding * norms[1]),
        ("the left square root is not the right one's transpose", found.transposed, 32.0 * rounding * norms[2]),
        ("the gradient is not that of the energy", found.slope, 64.0 * rounding.sqrt() * norms[3]),
    ];
    let differs = |(_, [a, b], most): &(&str, [f64; 2], f64)| (a - b).abs() > *most || (a - b).is_nan();
    let wrong = |why| Err(InferenceError::Invalid { what: format!("likelihood of {}", likelihood.name()), why });
    if let Some((what, [a, b], most)) = checks.into_iter().find(differs) {
        return wrong(format!("{what}: {a:e} and {b:e} differ by more than {most:e}"));
    }
    match found.coordinates {
        // Differences of coordinates lose half of the digits, as those of energies.
        Some(away) if away.is_nan() || away > 64.0 * rounding.sqrt() => wrong(format!(
            "the derivative of the coordinates is not the right square root of the metric: it differs by {away:.2e} of its length"
        )),
        _ => Ok(found),
    }
}

/// Returns the slope of the energy along `u` by central differences of fourth order.
fn slope(rank: &mut Rank, likelihood: &Likelihood, x: &Vector, u: &Vector) -> Result<f64> {
    let step = f64::from(f32::EPSILON).powf(0.25);
    let mut moved = Vector::new(&rank.gpu, x.space())?;
    let mut energy = |steps: f64| {
        moved.copy_from(&mut rank.recorder, x)?;
        rank.vector_axpby(steps * step, u, 1.0, &mut moved)?;
        likelihood.energy(rank, &moved)
    };
    let (one, two) = (energy(1.0)? - energy(-1.0)?, energy(2.0)? - energy(-2.0)?);
    Ok((8.0 * one - two) / (12.0 * step))
}

/// Compares the derivative of the coordinates along `u`, by central differences of fourth order,
/// with `right`.
fn coordinates(
    rank: &mut Rank,
    at: &dyn LogLikelihoodAt<Rank>,
    x: &Vector,
    u: &Vector,
    right: &Vector,
) -> Result<Option<f64>> {
    let step = f64::from(f32::EPSILON).powf(0.25);
    let (mut moved, mut tau) = (Vector::new(&rank.gpu, x.space())?, Vector::new(&rank.gpu, right.space())?);
    let mut difference = Vector::zeros(&mut rank.recorder, right.space())?;
    for (steps, weight) in [(1.0, 8.0), (-1.0, -8.0), (2.0, -1.0), (-2.0, 1.0)] {
        moved.copy_from(&mut rank.recorder, x)?;
        rank.vector_axpby(steps * step, u, 1.0, &mut moved)?;
        match at.coordinates(rank, &moved, &mut tau) {
            Err(InferenceError::NoTransformation { .. }) => return Ok(None),
            done => done?,
        }
        rank.vector_axpby(weight / (12.0 * step), &tau, 1.0, &mut difference)?;
    }
    rank.vector_axpby(-1.0, right, 1.0, &mut difference)?;
    let [length, away] = [rank.vector_dot(right, right)?.sqrt(), rank.vector_dot(&difference, &difference)?.sqrt()];
    Ok(Some(if length > 0.0 { away / length } else { away }))
}
