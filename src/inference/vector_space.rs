//! What algorithms do with vectors.

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::InferenceError;
use crate::grid::{Box3, volume};
use crate::random::{philox4x32, white_noise};

/// A number that is made of whole vectors.
#[derive(Debug)]
pub enum Reduction<'a, V> {
    /// The inner product.
    Dot(&'a V, &'a V),
    /// The sum of magnitudes.
    Norm1(&'a V),
}

impl<V> Clone for Reduction<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Reduction<'_, V> {}

/// Which white noise: a stream of standard normal numbers, each a function of the stream and its place alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub u64);

impl Stream {
    /// The stream of a kind of noise of a sample in an iteration.
    pub fn new(seed: u64, iteration: u32, sample: u32, kind: u32) -> Self {
        Stream(seed).below([iteration, sample, kind])
    }

    /// The stream of a part of what this one is for.
    #[must_use]
    pub fn below(self, [a, b, c]: [u32; 3]) -> Self {
        // Another counter than any that white noise counts with, whose last two words are 0.
        let words = philox4x32([a, b, c, u32::MAX], [self.0 as u32, (self.0 >> 32) as u32]);
        Stream(u64::from(words[1]) << 32 | u64::from(words[0]))
    }
}

/// This rank's numbers of a vector on the host, to be sent or saved: those that are f32 where they live, and those that are f64.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Staged {
    /// Numbers of the device.
    pub singles: Vec<f32>,
    /// Numbers of the host.
    pub doubles: Vec<f64>,
}

/// What a rank has of one part of a vector: a box of a lattice, of each of its fields, one after the other. The lattice is the same for every number of
/// ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Sites of the whole lattice.
    pub shape: [u64; 3],
    /// Those of this rank, whose numbers stand in C order.
    pub own: Box3,
    /// Fields.
    pub fields: u64,
    /// Whether every rank has the whole.
    pub is_replicated: bool,
    /// Whether its numbers are f64: those are among the [`Staged::doubles`], the others among the [`Staged::singles`].
    pub is_double: bool,
}

impl Share {
    /// This rank's numbers.
    pub(super) fn len(&self) -> u64 {
        self.fields * volume(&self.own)
    }
}

/// Vectors and what algorithms do with them. The ranks of a space call its methods together, in one order; results are the same on each, and do
/// not depend on their number.
pub trait VectorSpace {
    /// Its vectors.
    type Vector;

    /// A new vector like `x`, undefined.
    ///
    /// # Errors
    /// Where there is no memory left.
    fn like(&mut self, x: &Self::Vector) -> Result<Self::Vector, InferenceError>;

    /// A vector of zeros like `x`.
    ///
    /// # Errors
    /// As [`like`](Self::like).
    fn zeros(&mut self, x: &Self::Vector) -> Result<Self::Vector, InferenceError>;

    /// `y = a x + b y`; with `b == 0`, `y` may be undefined before.
    ///
    /// # Errors
    /// For vectors of different spaces; what its work can fail with.
    fn axpby(&mut self, a: f64, x: &Self::Vector, b: f64, y: &mut Self::Vector) -> Result<(), InferenceError>;

    /// `y = a x z + b y`, number by number; with `b == 0`, `y` may be undefined before.
    ///
    /// # Errors
    /// As [`axpby`](Self::axpby).
    fn multiply(&mut self, a: f64, xz: [&Self::Vector; 2], b: f64, y: &mut Self::Vector) -> Result<(), InferenceError>;

    /// `x = sqrt(x)`, number by number.
    ///
    /// # Errors
    /// What its work can fail with.
    fn sqrt(&mut self, x: &mut Self::Vector) -> Result<(), InferenceError>;

    /// Several reductions over all ranks at once: on a device they are waited for once.
    ///
    /// # Errors
    /// [`InferenceError::NotFinite`] where one is NaN or infinite; what its work can fail with.
    fn reduce(&mut self, what: &[Reduction<'_, Self::Vector>]) -> Result<Vec<f64>, InferenceError>;

    /// The distance of 1 to the next number that its vectors can hold.
    fn epsilon(&self) -> f64;

    /// Numbers of a vector, over all ranks.
    fn len(&self, x: &Self::Vector) -> u64;

    /// Fills `out` with the white noise of a stream: by the place of a number in the whole vector, whatever ranks there are.
    ///
    /// # Errors
    /// For a vector whose numbers have no place of their own; what its work can fail with.
    fn white_noise(&mut self, stream: Stream, out: &mut Self::Vector) -> Result<(), InferenceError>;

    /// The parts of `x`: their names, and numbers over all ranks.
    fn parts(&self, x: &Self::Vector) -> Vec<(String, u64)>;

    /// Sets a part of `x` to 0.
    ///
    /// # Errors
    /// [`InferenceError::Options`] when there is no part of this name; what its work can fail with.
    fn clear_part(&mut self, name: &str, x: &mut Self::Vector) -> Result<(), InferenceError>;

    /// What this rank has of each part, in the order of [`parts`](Self::parts) and of what is [staged](Self::stage).
    ///
    /// # Errors
    /// [`InferenceError::Invalid`] for a part whose numbers are not each one rank's; [`InferenceError::Comm`].
    fn shares(&self, x: &Self::Vector) -> Result<Vec<Share>, InferenceError>;

    /// Hands what is recorded to the device without waiting for it, so that the memory of vectors that are gone is used again.
    ///
    /// # Errors
    /// What its work can fail with.
    fn submit(&mut self) -> Result<(), InferenceError>;

    /// Waits for the device, and gives back what it keeps of memory to be used again.
    ///
    /// # Errors
    /// What its work can fail with.
    fn settle(&mut self) -> Result<(), InferenceError>;

    /// Bytes that all ranks of this rank's device take of its memory, in use or kept to be used again; 0 where that is not counted.
    fn allocated(&self) -> u64;

    /// This rank's numbers. Waits for the device.
    ///
    /// # Errors
    /// What its work can fail with.
    fn stage(&mut self, x: &Self::Vector) -> Result<Staged, InferenceError>;

    /// Sets this rank's numbers.
    ///
    /// # Errors
    /// [`InferenceError::Invalid`] for another number of them; what its work can fail with.
    fn unstage(&mut self, from: &Staged, x: &mut Self::Vector) -> Result<(), InferenceError>;

    /// A copy of `x`.
    ///
    /// # Errors
    /// As [`like`](Self::like).
    fn copy(&mut self, x: &Self::Vector) -> Result<Self::Vector, InferenceError> {
        let mut copy = self.like(x)?;
        self.axpby(1.0, x, 0.0, &mut copy)?;
        Ok(copy)
    }

    /// The inner product.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    fn dot(&mut self, x: &Self::Vector, y: &Self::Vector) -> Result<f64, InferenceError> {
        Ok(self.reduce(&[Reduction::Dot(x, y)])?[0])
    }

    /// The sum of magnitudes.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    fn norm1(&mut self, x: &Self::Vector) -> Result<f64, InferenceError> {
        Ok(self.reduce(&[Reduction::Norm1(x)])?[0])
    }
}

/// Vectors of f64 on the host, for small problems and for tests. Their parts may have names.
#[derive(Clone, Debug, Default)]
pub struct Host {
    parts: BTreeMap<String, Range<usize>>,
}

impl Host {
    /// A space whose vectors have these parts, one after the other.
    pub fn new<N: Into<String>>(parts: impl IntoIterator<Item = (N, usize)>) -> Self {
        let mut end = 0;
        let part = |(name, len): (N, usize)| {
            end += len;
            (name.into(), end - len..end)
        };
        Host { parts: parts.into_iter().map(part).collect() }
    }

    fn fits(x: &[f64], y: &[f64]) -> Result<(), InferenceError> {
        let why = || format!("a vector of {} numbers and one of {}", x.len(), y.len());
        if x.len() == y.len() { Ok(()) } else { Err(InferenceError::Invalid { what: "Host".into(), why: why() }) }
    }
}

impl VectorSpace for Host {
    type Vector = Vec<f64>;

    fn like(&mut self, x: &Vec<f64>) -> Result<Vec<f64>, InferenceError> {
        // So that what is read before it is written is seen.
        Ok(vec![f64::NAN; x.len()])
    }

    fn zeros(&mut self, x: &Vec<f64>) -> Result<Vec<f64>, InferenceError> {
        Ok(vec![0.0; x.len()])
    }

    fn axpby(&mut self, a: f64, x: &Vec<f64>, b: f64, y: &mut Vec<f64>) -> Result<(), InferenceError> {
        Host::fits(x, y)?;
        y.iter_mut().zip(x).for_each(|(y, x)| *y = if b == 0.0 { a * x } else { a * x + b * *y });
        Ok(())
    }

    fn multiply(&mut self, a: f64, [x, z]: [&Vec<f64>; 2], b: f64, y: &mut Vec<f64>) -> Result<(), InferenceError> {
        Host::fits(x, y)?;
        Host::fits(z, y)?;
        let update = |(y, (x, z)): (&mut f64, (&f64, &f64))| *y = a * x * z + if b == 0.0 { 0.0 } else { b * *y };
        y.iter_mut().zip(x.iter().zip(z)).for_each(update);
        Ok(())
    }

    fn sqrt(&mut self, x: &mut Vec<f64>) -> Result<(), InferenceError> {
        x.iter_mut().for_each(|x| *x = x.sqrt());
        Ok(())
    }

    fn reduce(&mut self, what: &[Reduction<'_, Vec<f64>>]) -> Result<Vec<f64>, InferenceError> {
        let one = |reduction: &Reduction<'_, Vec<f64>>| match reduction {
            Reduction::Dot(x, y) => {
                Host::fits(x, y)?;
                InferenceError::finite("an inner product", x.iter().zip(*y).map(|(x, y)| x * y).sum())
            }
            Reduction::Norm1(x) => InferenceError::finite("a norm", x.iter().map(|x| x.abs()).sum()),
        };
        what.iter().map(one).collect()
    }

    fn epsilon(&self) -> f64 {
        f64::EPSILON
    }

    fn len(&self, x: &Vec<f64>) -> u64 {
        x.len() as u64
    }

    fn white_noise(&mut self, stream: Stream, out: &mut Vec<f64>) -> Result<(), InferenceError> {
        out.iter_mut().enumerate().for_each(|(i, out)| *out = white_noise(stream.0, i as u64));
        Ok(())
    }

    fn parts(&self, _x: &Vec<f64>) -> Vec<(String, u64)> {
        self.parts.iter().map(|(name, range)| (name.clone(), range.len() as u64)).collect()
    }

    fn clear_part(&mut self, name: &str, x: &mut Vec<f64>) -> Result<(), InferenceError> {
        match self.parts.get(name).and_then(|range| x.get_mut(range.clone())) {
            Some(part) => part.fill(0.0),
            None => return Err(no_part(name, &self.parts(x))),
        }
        Ok(())
    }

    fn shares(&self, x: &Vec<f64>) -> Result<Vec<Share>, InferenceError> {
        let shape = [1, 1, x.len() as u64];
        Ok(vec![Share { shape, own: shape.map(|n| 0..n), fields: 1, is_replicated: true, is_double: true }])
    }

    fn submit(&mut self) -> Result<(), InferenceError> {
        Ok(())
    }

    fn settle(&mut self) -> Result<(), InferenceError> {
        Ok(())
    }

    fn allocated(&self) -> u64 {
        0
    }

    fn stage(&mut self, x: &Vec<f64>) -> Result<Staged, InferenceError> {
        Ok(Staged { singles: Vec::new(), doubles: x.clone() })
    }

    fn unstage(&mut self, from: &Staged, x: &mut Vec<f64>) -> Result<(), InferenceError> {
        Host::fits(&from.doubles, x)?;
        x.copy_from_slice(&from.doubles);
        Ok(())
    }
}

/// A part that is not among those of a vector.
pub(super) fn no_part(name: &str, parts: &[(String, u64)]) -> InferenceError {
    let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
    let why = format!("there is no part `{name}` of the latent values; they have {}", names.join(", "));
    InferenceError::options("point estimates, constants", why)
}
