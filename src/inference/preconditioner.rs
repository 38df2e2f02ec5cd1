//! A preconditioner of conjugate gradients from the prior and the data.
//!
//! The metric is `A + 1` with `A = J^T F J`. Its latent values are of two kinds.
//!
//! *Fields* are parts that excite the modes of a field. Each has an approximate inverse `D` of its
//! own ([`FieldPreconditioner`]).
//!
//! *Others* are few or matter in few directions: slopes, offsets, spectra. Products with random
//! vectors span the directions `q` in which the data know most (Halko, Martinsson & Tropp 2011).
//! With `T = q^T A q` the inverse on them is
//! ```text
//! S = 1/s - q (1/s - (1 + T)^-1) q^T        s: about the metric in the remaining directions
//! ```
//! Data hardly know a change of such a number together with the change of the field that undoes it:
//! these directions decide how fast conjugate gradients converge. For each `q` a few steps of
//! conjugate gradients on the fields find `y = -(A + 1)^-1 A q`, and a coarse correction follows
//! with `w = q + y` and `E = w^T (A + 1) w` (an additive two-level method, Nicolaides 1987):
//! ```text
//! P = D + S + w E^-1 w^T
//! ```
//! Building it takes the products of the fields and up to `3 + SOLVES` for each direction. Applying
//! it takes the inner products with all `w`, of all `r` it is applied to at once. It does not block
//! where the space has [`VectorSpace::directions`], and otherwise twice.

use super::conjugate_gradient::Precondition;
use super::error::{Result, if_finite};
use super::groups::SampleGroups;
use super::log_likelihood::{FieldPreconditioner, LogLikelihood, LogLikelihoodAt};
use super::vector_space::{AddDirections, Directions, Reduction, Stream, VectorSpace, clear, remove};

/// Products that look for directions, which bound their number.
const PROBES: usize = 16;

/// Size of `A` in a direction up to which it is left to conjugate gradients.
const KNOWN: f64 = 2.0;

/// Maximum number of steps that find the answer of a field to a direction, and the fall of the
/// residual at which they end.
const SOLVES: usize = 10;
const SOLVED: f64 = 0.03;

/// The stream of random numbers of all preconditioners.
const STREAM: Stream = Stream(0x7072_6563);

/// Which models have a preconditioner for linear samples and for steps of the position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preconditioning {
    /// None. The steps are those of NIFTy.
    Off,
    /// Models with correlated fields, and initial conditions of simulations.
    #[default]
    Fields,
    /// All models. Without correlated fields, up to 16 directions are preconditioned in which the
    /// data know most.
    Always,
}

/// A small square matrix, row by row.
type Matrix = Vec<Vec<f64>>;

/// The preconditioner of the posterior's metric at a position.
pub struct Preconditioner<S: VectorSpace> {
    fields: Vec<Box<dyn FieldPreconditioner<S>>>,
    /// Without vectors if they are `placed`.
    directions: Directions<S::Vector>,
    placed: Option<Box<dyn AddDirections<S, S::Vector>>>,
    /// Products with the metric that it took.
    products: u64,
}

impl<S: VectorSpace> std::fmt::Debug for Preconditioner<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Preconditioner { directions, products, .. } = self;
        let (Directions { fields, others, scale, .. }, count) = (directions, self.directions());
        write!(f, "Preconditioner {{ {fields:?}, {others:?}, scale {scale}, {count} directions, {products} products }}")
    }
}

impl<S: VectorSpace> Preconditioner<S> {
    /// Returns the number of products with the metric that it took.
    #[must_use]
    pub fn products(&self) -> u64 {
        self.products
    }

    /// Returns the number of directions that are treated one by one.
    #[must_use]
    pub fn directions(&self) -> usize {
        self.directions.inner.len()
    }

    /// Builds the preconditioner of the posterior at `position`; `None` if it would do nothing, or
    /// if a product with the metric is not finite. Collective over all groups; all get that of the
    /// first group.
    ///
    /// Parts in `fixed` do not vary.
    ///
    /// # Errors
    /// - Errors of the likelihood and the ranks.
    pub fn new(
        space: &mut S,
        likelihood: &dyn LogLikelihood<S>,
        groups: &SampleGroups,
        (position, fixed): (&S::Vector, &[String]),
        preconditioning: Preconditioning,
    ) -> Result<Option<Self>> {
        if preconditioning == Preconditioning::Off {
            return Ok(None);
        }
        let at = likelihood.at(space, position)?;
        let mut fields = at.fields(space)?;
        fields.retain(|field| !fixed.iter().any(|name| name == field.part()));
        if fields.is_empty() && preconditioning == Preconditioning::Fields {
            return Ok(None);
        }
        let of_fields: Vec<String> = fields.iter().map(|field| field.part().to_string()).collect();
        let others = space.parts(position).into_iter().map(|(name, _)| name);
        let others = others.filter(|name| !of_fields.contains(name) && !fixed.contains(name)).collect();
        let builder = Builder { at: &*at, fixed, fields, names: [of_fields, others], products: 0 };
        let built = if_finite(builder.finish(space, position))?;
        if groups.gather(&[f64::from(u8::from(built.is_none()))])?.contains(&1.0) {
            return Ok(None);
        }
        let Some(mut own) = built else { return Ok(None) };
        if groups.count() > 1 {
            own.share(space, groups, position)?;
        }
        own.placed = space.directions(&own.directions)?;
        if own.placed.is_some() {
            own.directions.vectors = Vec::new();
        }
        Ok(Some(own))
    }

    /// Takes the numbers of the first group: devices round differently.
    fn share(&mut self, space: &mut S, groups: &SampleGroups, like: &S::Vector) -> Result<()> {
        let own = &mut self.directions;
        let mut numbers = [own.inner.len() as f64, own.scale];
        groups.share_numbers(&mut numbers)?;
        let count = numbers[0] as usize;
        own.scale = numbers[1];
        while own.vectors.len() < count {
            own.vectors.push(space.zeros(like)?);
        }
        own.vectors.truncate(count);
        for direction in &mut own.vectors {
            let copy = space.copy(direction)?;
            *direction = groups.share(space, 0, copy)?;
        }
        for matrix in [&mut own.inner, &mut own.coarse] {
            let mut numbers = [0.0; PROBES * PROBES];
            numbers.iter_mut().zip(matrix.iter().flatten()).for_each(|(number, own)| *number = *own);
            groups.share_numbers(&mut numbers)?;
            *matrix = numbers.chunks(count.max(1)).take(count).map(<[f64]>::to_vec).collect();
        }
        self.fields.iter_mut().try_for_each(|field| field.share(space, groups))
    }
}

impl<S: VectorSpace> Precondition<S> for Preconditioner<S> {
    fn apply(&self, space: &mut S, r: &S::Vector, out: &mut S::Vector) -> Result<()> {
        self.apply_to_all(space, &mut [(r, out)])
    }

    fn apply_to_all(&self, space: &mut S, pairs: &mut [(&S::Vector, &mut S::Vector)]) -> Result<()> {
        for (r, out) in pairs.iter_mut() {
            space.axpby(1.0 / self.directions.scale, r, 0.0, out)?;
            self.fields.iter().try_for_each(|field| field.apply(space, r, out))?;
        }
        match &self.placed {
            _ if self.directions() == 0 => Ok(()),
            Some(placed) => pairs.iter_mut().try_for_each(|(r, out)| placed.add(space, r, out)),
            None => add_directions(space, &self.directions, pairs),
        }
    }
}

/// Adds to each `out` of pairs of `r` and `out` what directions add to `P r`. Blocks twice for
/// all of them.
fn add_directions<S: VectorSpace>(
    space: &mut S,
    directions: &Directions<S::Vector>,
    pairs: &mut [(&S::Vector, &mut S::Vector)],
) -> Result<()> {
    let Directions { vectors, fields, others, scale, inner, coarse } = directions;
    let count = vectors.len();
    let over = |r, parts| vectors.iter().map(move |w| Reduction::DotOver(parts, w, r));
    let dots = pairs.iter().flat_map(|(r, _)| over(*r, &others[..]).chain(over(*r, &fields[..])));
    let dots: Vec<_> = dots.collect();
    let found = space.reduce(&dots)?;
    let mut numbers = Vec::new();
    for (found, (_, out)) in found.chunks(2 * count).zip(pairs.iter_mut()) {
        let (of_others, of_fields) = found.split_at(count);
        let all: Vec<f64> = of_others.iter().zip(of_fields).map(|(a, b)| a + b).collect();
        let (inner, coarse) = (product(inner, of_others), product(coarse, &all));
        let wanted: Vec<f64> = inner.iter().zip(&coarse).map(|(inner, coarse)| inner + coarse).collect();
        let change = wanted.iter().zip(of_others).map(|(wanted, r)| wanted - r / scale);
        let terms: Vec<_> = change.zip(vectors).collect();
        space.add(Some(others), &terms, out)?;
        numbers.push((wanted, coarse));
    }
    // The preconditioner reduces the component along a direction by orders of magnitude. The
    // difference would be rounding, so a second pass measures the result and corrects it.
    let dots: Vec<_> = pairs.iter().flat_map(|(_, out)| over(&**out, &others[..])).collect();
    let found = space.reduce(&dots)?;
    for ((along, (wanted, coarse)), (_, out)) in found.chunks(count).zip(numbers).zip(pairs) {
        let change = wanted.iter().zip(along).map(|(wanted, along)| wanted - along);
        let terms: Vec<_> = change.zip(vectors).collect();
        space.add(Some(others), &terms, out)?;
        let terms: Vec<_> = coarse.into_iter().zip(vectors).collect();
        space.add(Some(fields), &terms, out)?;
    }
    Ok(())
}

fn product(matrix: &Matrix, x: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| row.iter().zip(x).map(|(a, x)| a * x).sum()).collect()
}

/// The preconditioner of a metric that leaves some parts out, which are 0 in all vectors.
pub(super) struct Without<'a, S: VectorSpace> {
    pub whole: &'a dyn Precondition<S>,
    pub parts: &'a [String],
}

impl<S: VectorSpace> Precondition<S> for Without<'_, S> {
    fn apply(&self, space: &mut S, r: &S::Vector, out: &mut S::Vector) -> Result<()> {
        self.whole.apply(space, r, out)?;
        clear(space, self.parts, out)
    }

    fn apply_to_all(&self, space: &mut S, pairs: &mut [(&S::Vector, &mut S::Vector)]) -> Result<()> {
        self.whole.apply_to_all(space, pairs)?;
        pairs.iter_mut().try_for_each(|(_, out)| clear(space, self.parts, out))
    }
}

struct Builder<'a, S: VectorSpace> {
    at: &'a dyn LogLikelihoodAt<S>,
    fixed: &'a [String],
    fields: Vec<Box<dyn FieldPreconditioner<S>>>,
    names: [Vec<String>; 2],
    products: u64,
}

/// Orthonormal directions among the others.
struct Basis<V> {
    q: Vec<V>,
    /// Size of `A` in the remaining directions.
    rest: f64,
}

impl<S: VectorSpace> Builder<'_, S> {
    /// Computes `out = A v`.
    fn apply(&mut self, space: &mut S, v: &S::Vector, out: &mut S::Vector) -> Result<()> {
        self.products += 1;
        self.at.metric(space, v, out)?;
        clear(space, self.fixed, out)
    }

    /// Computes `out = D r` on the fields, and 0 on the others.
    fn of_fields(&self, space: &mut S, r: &S::Vector, out: &mut S::Vector) -> Result<()> {
        self.fields.iter().try_for_each(|field| field.apply(space, r, out))?;
        clear(space, &self.names[1], out)?;
        clear(space, self.fixed, out)
    }

    /// Returns directions among the others in which `A` is large, orthonormal. Each is the product
    /// with a random vector that is orthogonal to those before, so that small ones are not lost in
    /// the rounding of large ones.
    fn directions(&mut self, space: &mut S, like: &S::Vector) -> Result<Basis<S::Vector>> {
        let others = self.names[1].clone();
        let parts = space.parts(like).into_iter().filter(|(name, _)| others.contains(name));
        let numbers: u64 = parts.map(|(_, len)| len).sum();
        let (mut q, mut first, mut rest): (Vec<S::Vector>, f64, f64) = (Vec::new(), 0.0, 0.0);
        for probe in 0..numbers.min(PROBES as u64) as u32 {
            let mut random = space.like(like)?;
            space.white_noise(STREAM.below([1, probe, 0]), &mut random)?;
            clear(space, &self.names[0], &mut random)?;
            clear(space, self.fixed, &mut random)?;
            remove(space, Some(&others), &q, &mut random)?;
            let mut next = space.like(like)?;
            self.apply(space, &random, &mut next)?;
            clear(space, &self.names[0], &mut next)?;
            remove(space, Some(&others), &q, &mut next)?;
            let norm = space.dot(&next, &next)?.sqrt();
            if norm <= KNOWN.max(8.0 * space.epsilon() * first) {
                return Ok(Basis { q, rest: norm });
            }
            first = first.max(norm);
            // There may be more directions in which `A` is about as large as in the last one.
            rest = if u64::from(probe) + 1 < numbers { norm } else { 0.0 };
            // Twice, so that rounding leaves nothing of the others.
            let mut unit = space.scaled(1.0 / norm, &next)?;
            remove(space, Some(&others), &q, &mut unit)?;
            let length = space.dot(&unit, &unit)?.sqrt();
            space.axpby(1.0 / length, &unit, 0.0, &mut next)?;
            q.push(next);
        }
        Ok(Basis { q, rest })
    }

    /// Solves `(A + 1) y = b` on the fields by a few steps of conjugate gradients.
    fn solve(&mut self, space: &mut S, b: &S::Vector) -> Result<S::Vector> {
        let (mut y, mut r) = (space.zeros(b)?, space.zeros(b)?);
        let [mut z, mut d, mut product] = [space.zeros(b)?, space.zeros(b)?, space.like(b)?];
        space.axpby(-1.0, b, 0.0, &mut r)?;
        let (mut gamma, mut target) = (0.0, 0.0);
        for step in 0..=SOLVES {
            self.of_fields(space, &r, &mut z)?;
            let now = space.dot(&r, &z)?;
            if step == 0 {
                target = SOLVED * SOLVED * now;
            }
            if step == SOLVES || now <= target {
                break;
            }
            let conjugate = if step == 0 { 0.0 } else { now / gamma };
            space.axpby(1.0, &z, conjugate, &mut d)?;
            gamma = now;
            self.apply(space, &d, &mut product)?;
            clear(space, &self.names[1], &mut product)?;
            space.axpby(1.0, &d, 1.0, &mut product)?;
            let alpha = gamma / space.dot(&d, &product)?;
            space.axpby(-alpha, &d, 1.0, &mut y)?;
            space.axpby(-alpha, &product, 1.0, &mut r)?;
        }
        Ok(y)
    }

    fn finish(mut self, space: &mut S, like: &S::Vector) -> Result<Preconditioner<S>> {
        let mut built = std::mem::take(&mut self.fields);
        for (number, field) in built.iter_mut().enumerate() {
            let mut metric = |space: &mut S, v: &S::Vector, out: &mut S::Vector| self.apply(space, v, out);
            field.build(space, &mut metric, STREAM.below([0, number as u32, 0]), like)?;
        }
        self.fields = built;
        let Basis { q, rest } = self.directions(space, like)?;
        let scale = (1.0 + rest).sqrt();
        let n = q.len();
        let [fields, others] = self.names.clone();
        let (mut inner, mut directions) = (Vec::new(), Vec::new());
        let mut product = space.like(like)?;
        for one in &q {
            self.apply(space, one, &mut product)?;
            space.axpby(1.0, one, 1.0, &mut product)?;
            let row: Vec<_> = q.iter().map(|other| Reduction::DotOver(&others, other, &product)).collect();
            inner.push(space.reduce(&row)?);
            let mut w = space.copy(one)?;
            if !fields.is_empty() {
                let mut b = space.zeros(one)?;
                space.add(Some(&fields), &[(-1.0, &product)], &mut b)?;
                let y = self.solve(space, &b)?;
                space.axpby(1.0, &y, 1.0, &mut w)?;
            }
            directions.push(w);
        }
        // By products with `w`, which data hardly know: differences of products with its parts
        // would be rounding.
        let mut coarse = vec![vec![0.0; n]; n];
        for (w, row) in directions.iter().zip(&mut coarse).filter(|_| !fields.is_empty()) {
            self.apply(space, w, &mut product)?;
            space.axpby(1.0, w, 1.0, &mut product)?;
            let dots: Vec<_> = directions.iter().map(|other| Reduction::Dot(other, &product)).collect();
            *row = space.reduce(&dots)?;
        }
        let inner = inverse(&inner, space.epsilon());
        let coarse = if fields.is_empty() { coarse } else { inverse(&coarse, space.epsilon()) };
        let directions = Directions { vectors: directions, fields, others, scale, inner, coarse };
        Ok(Preconditioner { fields: self.fields, directions, placed: None, products: self.products })
    }
}

/// Returns the inverse of a matrix that is symmetric and positive up to rounding, of which it is
/// enlarged so that the inverse is positive; 0 where it is not.
fn inverse(matrix: &Matrix, epsilon: f64) -> Matrix {
    let n = matrix.len();
    let trace: f64 = (0..n).map(|i| matrix[i][i]).sum();
    // Lower triangle of the Cholesky factor, then its inverse.
    let mut factor = vec![vec![0.0; n]; n];
    for i in 0..n {
        for j in 0..=i {
            let symmetric = (matrix[i][j] + matrix[j][i]) / 2.0;
            let before: f64 = (0..j).map(|k| factor[i][k] * factor[j][k]).sum();
            let own = symmetric - before + if i == j { 8.0 * epsilon * trace } else { 0.0 };
            match i == j {
                true if own > 0.0 => factor[i][i] = own.sqrt(),
                true => return vec![vec![0.0; n]; n],
                false => factor[i][j] = own / factor[j][j],
            }
        }
    }
    let mut lower = vec![vec![0.0; n]; n];
    for column in 0..n {
        for row in column..n {
            let before: f64 = (column..row).map(|k| factor[row][k] * lower[k][column]).sum();
            lower[row][column] = (f64::from(u8::from(row == column)) - before) / factor[row][row];
        }
    }
    (0..n).map(|i| (0..n).map(|j| (0..n).map(|k| lower[k][i] * lower[k][j]).sum()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses_undo_their_matrices() {
        let matrix: Matrix = vec![vec![4.0, 1.0, -0.5], vec![1.0, 3.0, 0.25], vec![-0.5, 0.25, 1.5]];
        let inverse_of = inverse(&matrix, f64::EPSILON);
        for (i, row) in inverse_of.iter().enumerate() {
            for j in 0..3 {
                let found: f64 = (0..3).map(|k| row[k] * matrix[k][j]).sum();
                assert!((found - f64::from(u8::from(i == j))).abs() < 1e-13, "{i} {j}: {found}");
            }
        }
        // Not positive: no correction.
        assert_eq!(inverse(&vec![vec![1.0, 2.0], vec![2.0, 1.0]], f64::EPSILON), vec![vec![0.0; 2]; 2]);
        assert!(inverse(&Matrix::new(), f64::EPSILON).is_empty());
    }
}
