//! The evidence: how probable the data are under a model, with bounds.
//!
//! With `n` latent values, the energy `H(x) = E(x) + x.x / 2` and samples of a normal distribution
//! with the metric `M`
//! ```text
//! ln p(data) ~ n / 2 - mean H(x_s) - ln det(M) / 2     (up to the constants of E)
//! ln p(data) ~       -      H(x)   - ln det(M) / 2     (Laplace's approximation without samples)
//! ```
//! Both are exact for linear models with Gaussian noise, whose samples have on average `n / 2` more
//! energy than their mean, and approximations otherwise.
//!
//! The determinant is that of `1 + K`, with `K = L L^T` over the latent values or `K = L^T L` over
//! the data, whichever are fewer. Lanczos' method makes an orthonormal basis `Q` of directions in
//! which `K` is large; `ln det(Q^T (1 + K) Q)` is a sum of logarithms of pivots. The other factor
//! is the determinant of the Schur complement `S`. Lanczos leaves one vector `r` that couples both,
//! so with the last pivot `p`
//! ```text
//! S = 1 + P K P - r r^T / p,        P = 1 - Q Q^T,        tr ln S = d mean of z.ln(S) z
//! ```
//! over random unit vectors `z` in the remaining `d` dimensions (stochastic Lanczos quadrature;
//! Ubaru, Chen & Saad 2017). Quadrature bounds each term (Golub & Meurant 1994): Gauss' rule is too
//! large, and Radau's rule with a node at 1 is too small, since no eigenvalue of `S` is below 1.
//! Only the mean over `z` is random.

use super::error::{InferenceError, Result};
use super::groups::SampleGroups;
use super::log_likelihood::{LogLikelihood, LogLikelihoodAt};
use super::samples::Samples;
use super::vector_space::{Stream, VectorSpace, remove};
use crate::timeline;

/// The work for a determinant, in products with the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvidenceOptions {
    /// Directions whose part of the determinant is exact. Their vectors are kept.
    pub directions: u64,
    /// Random vectors for the other directions; 2 or more tell their spread.
    pub probes: u64,
    /// Products for each of these, at most.
    pub steps: u64,
    /// The seed of the random vectors. Models of the same data with the same seed share much of the
    /// error.
    pub seed: u64,
}

impl Default for EvidenceOptions {
    fn default() -> Self {
        EvidenceOptions { directions: 64, probes: 8, steps: 20, seed: 0 }
    }
}

/// The logarithm of the evidence, `ln p(data)`, up to constants of the likelihood.
///
/// `lower` and `upper` bound it up to `error`, under the approximation that samples are normal: a
/// linear model with Gaussian noise needs no approximation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// The estimate with the upper bound of the determinant.
    pub lower: f64,
    /// The estimate with the lower bound of the determinant.
    pub upper: f64,
    /// The standard error of both: of the mean over pairs of samples (infinite for one pair, 0
    /// without samples), and of the mean over random vectors (infinite for one).
    pub error: f64,
    /// Bounds of `ln det(M)`, whose standard error is in `error` by half.
    pub log_determinant: [f64; 2],
    /// Products with the metric that were computed.
    pub products: u64,
}

impl Evidence {
    /// Returns a sentence if the bounds are further apart than two standard errors and one unit.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        let apart = self.upper - self.lower;
        (apart > 1.0 && apart > 2.0 * self.error).then(|| {
            format!(
                "the bounds of the evidence, {:.1} and {:.1}, are further apart than their error of {:.1}; give more directions or steps",
                self.lower, self.upper, self.error
            )
        })
    }
}

/// Estimates the evidence from the samples of a fit and the metric at its position, with bounds of
/// the determinant.
///
/// Without samples it is Laplace's approximation. Collective over all ranks of all groups; blocks.
/// Latent values that were point estimates of samples count as if samples varied them: the values
/// are too large then by half of their number.
///
/// # Errors
/// - [`InferenceError::Options`] without random vectors, or without steps for them.
/// - [`InferenceError::NotFinite`] and [`InferenceError::NotPositive`] of the energy and the
///   metric.
/// - Errors of the likelihood and the ranks.
pub fn evidence<S: VectorSpace>(
    space: &mut S,
    likelihood: &dyn LogLikelihood<S>,
    groups: &SampleGroups,
    samples: &Samples<S>,
    options: &EvidenceOptions,
) -> Result<Evidence> {
    if options.probes == 0 || options.steps == 0 {
        let why = format!("{} of {} steps; expected 1 or more of both", options.probes, options.steps);
        return Err(InferenceError::options("probes", why));
    }
    let _activity = timeline::activity!("evidence");
    let mut energies = Vec::new();
    for sample in groups.block(samples.terms()) {
        let place = samples.at(space, sample)?;
        energies.push(likelihood.energy(space, &place)? + space.dot(&place, &place)? / 2.0);
    }
    let energies = groups.gather(&energies)?;
    let mean = crate::map::tree::tree_sum(&energies) / energies.len() as f64;
    // Samples have this much more energy than their mean.
    let above = if samples.count() > 0 { space.len(&samples.position) as f64 / 2.0 } else { 0.0 };
    let Determinant { bounds: [low, high], error, products } =
        log_determinant(space, likelihood, &samples.position, options)?;
    // A mirrored pair is one draw.
    let pairs: Vec<f64> = energies.chunks(2).map(|pair| pair.iter().sum::<f64>() / pair.len() as f64).collect();
    let of_samples = if samples.count() > 0 { standard_error(&pairs) } else { 0.0 };
    Ok(Evidence {
        lower: above - mean - high / 2.0,
        upper: above - mean - low / 2.0,
        error: of_samples.hypot(error / 2.0),
        log_determinant: [low, high],
        products,
    })
}

/// Returns the standard error of the mean; infinite for one number.
fn standard_error(numbers: &[f64]) -> f64 {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let square: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    if numbers.len() > 1 { (square / (count - 1.0) / count).sqrt() } else { f64::INFINITY }
}

/// `K` at a position.
struct Curvature<'a, S: VectorSpace> {
    at: &'a dyn LogLikelihoodAt<S>,
    /// A latent vector, if `K` is over the data.
    latent: Option<S::Vector>,
    products: u64,
}

impl<S: VectorSpace> Curvature<'_, S> {
    /// `out = K x`.
    fn apply(&mut self, space: &mut S, x: &S::Vector, out: &mut S::Vector) -> Result<()> {
        self.products += 1;
        match &mut self.latent {
            None => self.at.metric(space, x, out),
            Some(latent) => {
                self.at.left_sqrt(space, x, latent)?;
                self.at.right_sqrt(space, latent, out)
            }
        }
    }
}

/// `ln det(1 + K)`.
struct Determinant {
    bounds: [f64; 2],
    /// The standard error of both bounds.
    error: f64,
    products: u64,
}

/// `ln det(M)` at a position.
fn log_determinant<S: VectorSpace>(
    space: &mut S,
    likelihood: &dyn LogLikelihood<S>,
    position: &S::Vector,
    options: &EvidenceOptions,
) -> Result<Determinant> {
    let at = likelihood.at(space, position)?;
    let data = likelihood.data(space)?;
    let over_data = space.len(&data) < space.len(position);
    let latent = if over_data { Some(space.like(position)?) } else { None };
    let like = if over_data { &data } else { position };
    let most = space.len(like);
    let mut curvature = Curvature { at: &*at, latent, products: 0 };
    let (mut basis, mut factor): (Vec<S::Vector>, _) = (Vec::new(), Vec::new());
    let (mut next, mut length) = beginning(space, &mut curvature, like, &basis)?;
    let (mut begins, mut scale, mut exact) = (true, 0.0_f64, 0.0);
    let mut pivot = 1.0;
    while (basis.len() as u64) < options.directions.min(most) {
        if begins && length == 0.0 {
            // New noise has no curvature, so no direction that is left has any.
            return Ok(Determinant { bounds: [exact; 2], error: 0.0, products: curvature.products });
        }
        if !begins && length <= 16.0 * space.epsilon() * scale {
            // Lanczos' method finds each curvature once from one vector. Others begin with new
            // noise.
            (next, length) = beginning(space, &mut curvature, like, &basis)?;
            begins = true;
            continue;
        }
        let direction = space.scaled(1.0 / length, &next)?;
        curvature.apply(space, &direction, &mut next)?;
        basis.push(direction);
        // The product of this direction with all others, and its own.
        let column;
        (column, length) = orthogonal(space, &basis, &mut next)?;
        scale = column.last().map_or(scale, |&own| scale.max(own));
        pivot = add_pivot(&mut factor, &column);
        if pivot <= 0.0 {
            return Err(InferenceError::NotPositive { what: "the metric, for the evidence".into(), curvature: pivot });
        }
        exact += pivot.ln();
        begins = false;
    }
    let left = most - basis.len() as u64;
    // After a beginning `next` couples nothing to the basis.
    let coupled = if begins || length <= 16.0 * space.epsilon() * scale { 0.0 } else { 1.0 / pivot };
    let mut complement = Complement { curvature, basis: &basis, coupling: &next, coupled };
    let (mut low, mut high) = (Vec::new(), Vec::new());
    if left > 0 {
        for probe in 0..options.probes {
            let [below, above] = complement.quadrature(space, probe as u32, options, scale, left as f64)?;
            low.push(below * left as f64);
            high.push(above * left as f64);
        }
    }
    let mean = |numbers: &[f64]| if left > 0 { numbers.iter().sum::<f64>() / numbers.len() as f64 } else { 0.0 };
    let error = match left {
        // In one dimension there is one direction.
        0 | 1 => 0.0,
        _ => standard_error(&low).max(standard_error(&high)),
    };
    let bounds = [exact + mean(&low), exact + mean(&high)];
    Ok(Determinant { bounds, error, products: complement.curvature.products })
}

/// `S - 1` in the directions beside a basis.
struct Complement<'a, S: VectorSpace> {
    curvature: Curvature<'a, S>,
    basis: &'a [S::Vector],
    /// The vector `r`, and one over the pivot; 0 if nothing is coupled.
    coupling: &'a S::Vector,
    coupled: f64,
}

impl<S: VectorSpace> Complement<'_, S> {
    /// `out = (S - 1) x`, of an `x` beside the basis.
    fn apply(&mut self, space: &mut S, x: &S::Vector, out: &mut S::Vector) -> Result<()> {
        self.curvature.apply(space, x, out)?;
        remove(space, None, self.basis, out)?;
        if self.coupled > 0.0 {
            let product = space.dot(self.coupling, x)?;
            space.axpby(-self.coupled * product, self.coupling, 1.0, out)?;
        }
        Ok(())
    }

    /// Returns bounds of `z.ln(S) z` for a random unit vector, once `left` times their distance is
    /// small.
    fn quadrature(
        &mut self,
        space: &mut S,
        probe: u32,
        options: &EvidenceOptions,
        scale: f64,
        left: f64,
    ) -> Result<[f64; 2]> {
        let (mut noise, mut next) = (space.like(self.coupling)?, space.like(self.coupling)?);
        space.white_noise(Stream::new(options.seed, u32::MAX, probe, 2), &mut noise)?;
        let (_, mut length) = orthogonal(space, self.basis, &mut noise)?;
        let (mut before, mut x) = (space.like(&noise)?, space.like(&noise)?);
        let mut jacobi = Jacobi::default();
        let mut scale = scale;
        let mut bounds = [0.0; 2];
        for step in 0..options.steps {
            if length == 0.0 {
                break;
            }
            std::mem::swap(&mut before, &mut x);
            space.axpby(1.0 / length, &noise, 0.0, &mut x)?;
            self.apply(space, &x, &mut next)?;
            let own = space.dot(&x, &next)?;
            space.axpby(-own, &x, 1.0, &mut next)?;
            if step > 0 {
                space.axpby(-length, &before, 1.0, &mut next)?;
            }
            scale = scale.max(own);
            let coupling = space.dot(&next, &next)?.sqrt();
            length = if coupling <= 16.0 * space.epsilon() * scale { 0.0 } else { coupling };
            std::mem::swap(&mut noise, &mut next);
            jacobi.add(own, length);
            bounds = jacobi.bounds_of_ln(space.epsilon() * scale);
            if left * (bounds[1] - bounds[0]) < 0.02 {
                break;
            }
        }
        InferenceError::finite("the curvature of the metric, for the evidence,", bounds[0] + bounds[1])?;
        Ok(bounds)
    }
}

/// The matrix of Lanczos' method for `S - 1`: its diagonal, and what is beside that.
#[derive(Default)]
struct Jacobi {
    diagonal: Vec<f64>,
    beside: Vec<f64>,
    /// The last pivot of its elimination.
    pivot: f64,
}

impl Jacobi {
    fn add(&mut self, own: f64, length: f64) {
        let before = self.beside.last().map_or(0.0, |length| length * length / self.pivot);
        // A pivot below rounding is one of a curvature of 0.
        self.pivot = (own - before).max(f64::MIN_POSITIVE);
        self.diagonal.push(own);
        self.beside.push(length);
    }

    /// Returns the rules of Gauss and Radau (with a node at 0), and of Gauss, for `ln(1 + x)`.
    fn bounds_of_ln(&self, rounding: f64) -> [f64; 2] {
        let count = self.diagonal.len();
        let gauss = sum_of_ln(self.diagonal.clone(), &self.beside[..count - 1]);
        let length = self.beside[count - 1];
        if length == 0.0 {
            return [gauss; 2];
        }
        let mut diagonal = self.diagonal.clone();
        diagonal.push(length * length / self.pivot.max(rounding));
        let radau = sum_of_ln(diagonal, &self.beside);
        [radau.min(gauss), gauss]
    }
}

/// Returns `e.ln(1 + T) e` for the first unit vector and a symmetric tridiagonal matrix without
/// negative eigenvalues, by implicit QL steps (Golub & Welsch 1969).
fn sum_of_ln(mut diagonal: Vec<f64>, beside: &[f64]) -> f64 {
    let count = diagonal.len();
    let mut beside: Vec<f64> = beside.iter().copied().chain([0.0]).collect();
    let mut row = vec![0.0; count];
    row[0] = 1.0;
    for l in 0..count {
        // Two or three steps for each eigenvalue.
        for _ in 0..60 {
            let is_small = |m: usize| beside[m].abs() <= f64::EPSILON * (diagonal[m].abs() + diagonal[m + 1].abs());
            let m = (l..count - 1).find(|&m| is_small(m)).unwrap_or(count - 1);
            if m == l {
                break;
            }
            let half = (diagonal[l + 1] - diagonal[l]) / (2.0 * beside[l]);
            let root = half.hypot(1.0).copysign(half);
            let mut g = diagonal[m] - diagonal[l] + beside[l] / (half + root);
            let (mut sine, mut cosine, mut shift) = (1.0, 1.0, 0.0);
            let mut ended = false;
            for i in (l..m).rev() {
                let (f, b) = (sine * beside[i], cosine * beside[i]);
                let r = f.hypot(g);
                beside[i + 1] = r;
                if r == 0.0 {
                    diagonal[i + 1] -= shift;
                    beside[m] = 0.0;
                    ended = true;
                    break;
                }
                (sine, cosine) = (f / r, g / r);
                g = diagonal[i + 1] - shift;
                let r = (diagonal[i] - g) * sine + 2.0 * cosine * b;
                shift = sine * r;
                diagonal[i + 1] = g + shift;
                g = cosine * r - b;
                let f = row[i + 1];
                row[i + 1] = sine * row[i] + cosine * f;
                row[i] = cosine * row[i] - sine * f;
            }
            if !ended {
                diagonal[l] -= shift;
                beside[l] = g;
                beside[m] = 0.0;
            }
        }
    }
    diagonal.iter().zip(&row).map(|(value, weight)| weight * weight * value.max(0.0).ln_1p()).sum()
}

/// Returns `K` times new noise beside a basis, and its length: 0 if no direction beside it has
/// curvature.
fn beginning<S: VectorSpace>(
    space: &mut S,
    curvature: &mut Curvature<'_, S>,
    like: &S::Vector,
    basis: &[S::Vector],
) -> Result<(S::Vector, f64)> {
    let (mut noise, mut next) = (space.like(like)?, space.like(like)?);
    // Other noise for each number of directions.
    space.white_noise(Stream::new(0, u32::MAX, basis.len() as u32, 0), &mut noise)?;
    orthogonal(space, basis, &mut noise)?;
    curvature.apply(space, &noise, &mut next)?;
    let (_, length) = orthogonal(space, basis, &mut next)?;
    Ok((next, length))
}

/// Makes `x` orthogonal to an orthonormal basis; returns what it had along that, and its length
/// then.
fn orthogonal<S: VectorSpace>(space: &mut S, basis: &[S::Vector], x: &mut S::Vector) -> Result<(Vec<f64>, f64)> {
    let column = remove(space, None, basis, x)?;
    // Twice orthogonal is orthogonal to rounding, unless the second time takes most of what was
    // left: then that was rounding, and nothing is left.
    let again: f64 = remove(space, None, basis, x)?.iter().map(|product| product * product).sum();
    let square = space.dot(x, x)?;
    Ok((column, if again > square { 0.0 } else { square.sqrt() }))
}

/// Adds a row of `A`, up to its diagonal, to the rows of the Cholesky factor of `1 + A`; returns
/// what it multiplies the determinant by.
fn add_pivot(rows: &mut Vec<Vec<f64>>, column: &[f64]) -> f64 {
    let mut row: Vec<f64> = Vec::with_capacity(column.len());
    for (above, own) in rows.iter().zip(column) {
        let before: f64 = above.iter().zip(&row).map(|(a, b)| a * b).sum();
        row.push((own - before) / above[row.len()]);
    }
    let pivot = 1.0 + column[row.len()] - row.iter().map(|a| a * a).sum::<f64>();
    row.push(pivot.max(0.0).sqrt());
    rows.push(row);
    pivot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quadrature_bounds_the_logarithm_and_becomes_exact() {
        // A tridiagonal matrix of eigenvalues 0.5 (1 - cos(j pi / 13)) times 200, of the unit
        // vector e: in closed form.
        let count = 12;
        let angle = |j: usize| std::f64::consts::PI * j as f64 / (count + 1) as f64;
        let of =
            |j: usize| 2.0 / (count + 1) as f64 * angle(j).sin().powi(2) * (100.0 * (1.0 - angle(j).cos())).ln_1p();
        let exact: f64 = (1..=count).map(of).sum();
        let (mut jacobi, mut apart) = (Jacobi::default(), f64::INFINITY);
        for step in 1..=count {
            jacobi.add(100.0, if step < count { 50.0 } else { 0.0 });
            let [low, high] = jacobi.bounds_of_ln(0.0);
            assert!(low <= exact + 1e-12 && exact <= high + 1e-12, "{step}: {low} {exact} {high}");
            assert!(high - low < apart, "{step}");
            apart = high - low;
        }
        assert!(apart == 0.0 && (jacobi.bounds_of_ln(0.0)[0] - exact).abs() < 1e-12);
    }

    #[test]
    fn pivots_multiply_to_the_determinant() {
        // 1 + A = [4 2 1; 2 3 1; 1 1 5], whose determinant is 37.
        let mut factor = Vec::new();
        let found: Vec<f64> = [&[3.0][..], &[2.0, 2.0], &[1.0, 1.0, 4.0]].map(|row| add_pivot(&mut factor, row)).into();
        assert!((found.iter().product::<f64>() - 37.0).abs() < 1e-12 && found[0] == 4.0, "{found:?}");
    }
}
