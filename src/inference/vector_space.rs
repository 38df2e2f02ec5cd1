//! Vectors, the operations of algorithms on them, and scalars and directions that are where vectors
//! are.

use std::ops::Range;

use super::error::{InferenceError, Result};
use crate::grid::{Box3, volume};
use crate::random::philox4x32;

/// A number that depends on whole vectors.
#[derive(Debug)]
pub enum Reduction<'a, V> {
    /// The inner product.
    Dot(&'a V, &'a V),
    /// The inner product over some parts, 0 for none.
    DotOver(&'a [String], &'a V, &'a V),
    /// The sum of magnitudes.
    Norm1(&'a V),
    /// The sum of values.
    Sum(&'a V),
}

impl<V> Clone for Reduction<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Reduction<'_, V> {}

/// A function of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elementwise {
    /// `sqrt(max(x, 0))`.
    Sqrt,
    /// 1 for 0 and above, otherwise -1.
    Sign,
    /// `1 / sqrt(1 + max(x, 0))`: the standard deviation of a standard normal number that is
    /// measured with precision `x`.
    Deviation,
}

impl Elementwise {
    /// Returns the value of the function.
    #[must_use]
    pub fn of(self, x: f64) -> f64 {
        match self {
            Elementwise::Sqrt => x.max(0.0).sqrt(),
            Elementwise::Sign if x >= 0.0 => 1.0,
            Elementwise::Sign => -1.0,
            Elementwise::Deviation => 1.0 / (1.0 + x.max(0.0)).sqrt(),
        }
    }
}

/// A stream of standard normal numbers, each a function of the stream and its place alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub u64);

impl Stream {
    /// Creates the stream of a kind of noise of a sample in an iteration.
    #[must_use]
    pub fn new(seed: u64, iteration: u32, sample: u32, kind: u32) -> Self {
        Stream(seed).below([iteration, sample, kind])
    }

    /// Returns the stream of a part.
    #[must_use]
    pub fn below(self, [a, b, c]: [u32; 3]) -> Self {
        // White noise never uses this counter, since the last two words of its counters are 0.
        let words = philox4x32([a, b, c, u32::MAX], [self.0 as u32, (self.0 >> 32) as u32]);
        Stream(u64::from(words[1]) << 32 | u64::from(words[0]))
    }
}

/// The values of a vector on this rank, on the host, to be sent or saved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Staged {
    /// Values of the device.
    pub singles: Vec<f32>,
    /// Values of the host.
    pub doubles: Vec<f64>,
}

/// The part of a leaf that a rank holds: a box of a lattice for each field, one field after the
/// other.
///
/// The lattice is the same for every number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Shape of the lattice.
    pub shape: [u64; 3],
    /// Sites of this rank, whose values are in C order.
    pub own: Box3,
    /// Number of fields.
    pub fields: u64,
    /// Whether every rank has all sites.
    pub is_replicated: bool,
    /// Whether the values are f64, among the [`Staged::doubles`], and not among the
    /// [`Staged::singles`].
    pub is_double: bool,
}

impl Share {
    /// Returns the number of values on this rank.
    pub(super) fn len(&self) -> u64 {
        self.fields * volume(&self.own)
    }
}

/// Vectors over ranks and the operations of algorithms on them.
///
/// All methods are collective unless they only record; results are equal on all ranks and have the
/// same bits on any number of them. Errors come from the device and the ranks, and include
/// [`InferenceError::Invalid`] for vectors that do not match.
pub trait VectorSpace {
    /// The type of vectors.
    type Vector;

    /// Creates a vector like `x` with undefined values.
    fn like(&mut self, x: &Self::Vector) -> Result<Self::Vector>;

    /// Creates a vector of zeros like `x`.
    fn zeros(&mut self, x: &Self::Vector) -> Result<Self::Vector>;

    /// Computes `y = a x + b y`; with `b == 0` the values of `y` do not matter.
    fn axpby(&mut self, a: f64, x: &Self::Vector, b: f64, y: &mut Self::Vector) -> Result<()>;

    /// Computes `y = a x z + b y` for each value; with `b == 0` the values of `y` do not matter.
    fn multiply(&mut self, a: f64, xz: [&Self::Vector; 2], b: f64, y: &mut Self::Vector) -> Result<()>;

    /// Computes `y = y + a x` for each of `terms` in order, for some parts or for all.
    fn add(&mut self, parts: Option<&[String]>, terms: &[(f64, &Self::Vector)], y: &mut Self::Vector) -> Result<()>;

    /// Replaces each value by a function of it.
    fn map(&mut self, function: Elementwise, x: &mut Self::Vector) -> Result<()>;

    /// Computes several reductions over all ranks, and blocks once for all of them.
    ///
    /// Fails with [`InferenceError::NotFinite`] if one is NaN or infinite.
    fn reduce(&mut self, what: &[Reduction<'_, Self::Vector>]) -> Result<Vec<f64>>;

    /// Returns the distance of 1 to the next value of a vector.
    fn epsilon(&self) -> f64;

    /// Returns the number of values of a vector over all ranks.
    fn len(&self, x: &Self::Vector) -> u64;

    /// Fills `out` with white noise, by the place of each value in the whole vector.
    fn white_noise(&mut self, stream: Stream, out: &mut Self::Vector) -> Result<()>;

    /// Returns the names of the parts of `x`, and their numbers of values over all ranks.
    fn parts(&self, x: &Self::Vector) -> Vec<(String, u64)>;

    /// Sets a part of `x` to 0; fails with [`InferenceError::Options`] if no part has this name.
    fn clear_part(&mut self, name: &str, x: &mut Self::Vector) -> Result<()>;

    /// Returns what this rank holds of each part, in the order of [`parts`](Self::parts).
    ///
    /// Fails with [`InferenceError::Invalid`] for values that belong to no rank or to several.
    fn shares(&self, x: &Self::Vector) -> Result<Vec<Share>>;

    /// Submits what is recorded, so that the memory of dropped vectors can be reused.
    fn submit(&mut self) -> Result<()>;

    /// Blocks, and returns cached memory to the device.
    fn settle(&mut self) -> Result<()>;

    /// Returns the bytes of device memory that all ranks of this device use or cache; 0 if they are
    /// not counted.
    fn allocated(&self) -> u64;

    /// Returns the values of this rank; blocks.
    fn stage(&mut self, x: &Self::Vector) -> Result<Staged>;

    /// Sets the values of this rank; fails with [`InferenceError::Invalid`] for another number of
    /// them.
    fn unstage(&mut self, from: &Staged, x: &mut Self::Vector) -> Result<()>;

    /// Returns how many independent solves or products with vectors like `x` take less time
    /// together than one after the other; the same on all ranks. By default all do.
    fn concurrency(&self, _x: &Self::Vector) -> usize {
        usize::MAX
    }

    /// Returns how many vectors like `x` a [stack](Self::stacked) can hold: 1, as by default,
    /// without stacks.
    fn most_stacked(&mut self, _x: &Self::Vector) -> usize {
        1
    }

    /// Records `work` once for several vectors like `x`: each vector that it creates is a stack of
    /// `copies` vectors, with the bits of `work` for one after the other. Vectors from before are
    /// common to all of them and must not change.
    ///
    /// Returns `false`, as by default, if that is not possible. Then what `work` has made is
    /// undefined, and the caller must do it for one vector at a time.
    fn stacked(
        &mut self,
        _x: &Self::Vector,
        _copies: usize,
        _work: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<bool> {
        Ok(false)
    }

    /// Returns a vector of a stack, or the single vector 0, which may share its memory.
    fn entry(&mut self, stack: &Self::Vector, _number: usize) -> Result<Self::Vector> {
        self.copy(stack)
    }

    /// Returns the sum of neighboring vectors of a stack, a power of two of them, in the order of a
    /// binary tree.
    fn sum_of_entries(&mut self, _stack: &Self::Vector, _entries: Range<usize>) -> Result<Self::Vector> {
        let (what, why) = ("a stack of vectors".into(), "this vector space has none".into());
        Err(InferenceError::Invalid { what, why })
    }

    /// Returns how often the host has waited for the device.
    fn waits(&self) -> u64 {
        0
    }

    /// Creates scalars of solves of conjugate gradients with these vectors that do not wait for the
    /// host; `None`, as by default, if the host must take part. `has_norm` tells whether the sum of
    /// magnitudes of the residual is one of the sums.
    fn step_scalars(
        &mut self,
        _solves: &[&CgVectors<'_, Self::Vector>],
        _has_norm: bool,
    ) -> Result<Option<Box<dyn StepScalars<Self, Self::Vector>>>>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Copies the directions of a preconditioner to where products with them do not wait for the
    /// host; `None`, as by default, if the host must take part.
    fn directions(
        &mut self,
        _from: &Directions<Self::Vector>,
    ) -> Result<Option<Box<dyn AddDirections<Self, Self::Vector>>>>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Returns a copy of `x`.
    fn copy(&mut self, x: &Self::Vector) -> Result<Self::Vector> {
        self.scaled(1.0, x)
    }

    /// Returns `a x`.
    fn scaled(&mut self, a: f64, x: &Self::Vector) -> Result<Self::Vector> {
        let mut scaled = self.like(x)?;
        self.axpby(a, x, 0.0, &mut scaled)?;
        Ok(scaled)
    }

    /// Returns the inner product, like [`reduce`](Self::reduce).
    fn dot(&mut self, x: &Self::Vector, y: &Self::Vector) -> Result<f64> {
        Ok(self.reduce(&[Reduction::Dot(x, y)])?[0])
    }
}

/// Sets parts of a vector to 0.
pub(super) fn clear<S: VectorSpace>(space: &mut S, parts: &[String], x: &mut S::Vector) -> Result<()> {
    parts.iter().try_for_each(|name| space.clear_part(name, x))
}

/// Subtracts from `x` its components along an orthonormal basis, over some parts or over all;
/// returns the components. Blocks once.
pub(super) fn remove<S: VectorSpace>(
    space: &mut S,
    parts: Option<&[String]>,
    basis: &[S::Vector],
    x: &mut S::Vector,
) -> Result<Vec<f64>> {
    let product = |direction| match parts {
        Some(parts) => Reduction::DotOver(parts, direction, x),
        None => Reduction::Dot(direction, x),
    };
    let products: Vec<_> = basis.iter().map(product).collect();
    let products = space.reduce(&products)?;
    let terms: Vec<_> = products.iter().map(|product| -product).zip(basis).collect();
    space.add(parts, &terms, x)?;
    Ok(products)
}

/// Returns the error of a part that a vector does not have.
pub(super) fn no_part(name: &str, parts: &[(String, u64)]) -> InferenceError {
    let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
    let why = format!("there is no part `{name}` of the latent values; they have {}", names.join(", "));
    InferenceError::options("point estimates, constants", why)
}

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

/// The directions `w` of a preconditioner with its inverses on them.
///
/// To `P r` they add what it lacks: `(inner o + coarse (o + f)) w` over the other parts with
/// `o = w.r` there, where `P r` has `r / scale`, and `coarse (o + f) w` over fields with `f = w.r`
/// there.
#[derive(Clone, Debug)]
pub struct Directions<V> {
    /// The directions.
    pub vectors: Vec<V>,
    /// Names of the parts of fields.
    pub fields: Vec<String>,
    /// Names of the other parts.
    pub others: Vec<String>,
    /// About the metric of the other parts in the remaining directions.
    pub scale: f64,
    /// The inverse over the other parts, row by row.
    pub inner: Vec<Vec<f64>>,
    /// The inverse over all parts, row by row.
    pub coarse: Vec<Vec<f64>>,
}

/// Directions that are where vectors are, so that no product with them waits for the host.
pub trait AddDirections<S, V> {
    /// Adds to `out` what directions add to `P r`; records only. Numbers of `r` that are not finite
    /// make those of `out` NaN.
    ///
    /// # Errors
    /// - Errors of the vector space.
    fn add(&self, space: &mut S, r: &V, out: &mut V) -> Result<()>;
}
