//! The random numbers that samples are made of.

use std::rc::Rc;

use super::error::InferenceError;
use super::vector_space::{Stream, VectorSpace};

/// Which of a sample's two random vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excited {
    /// That of the data, in the domain of the left square root.
    Data,
    /// That of the prior, a latent vector.
    Prior,
}

/// Which random vector: of which sample, drawn in which iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excitation {
    /// The iteration in which it was drawn.
    pub iteration: u32,
    /// The sample: the number of a mirrored pair.
    pub sample: u32,
    /// Which of its two vectors.
    pub what: Excited,
}

type Given<S> = dyn Fn(&mut S, Excitation, &mut <S as VectorSpace>::Vector) -> Result<(), InferenceError>;

/// Where samples get their standard normal numbers from.
pub enum Excitations<S: VectorSpace> {
    /// Each number is a function of the seed, the iteration, the sample, and its place: whatever devices, ranks and further samples there are.
    Seed(u64),
    /// What a caller fills in.
    Given(Rc<Given<S>>),
}

impl<S: VectorSpace> Clone for Excitations<S> {
    fn clone(&self) -> Self {
        match self {
            Excitations::Seed(seed) => Excitations::Seed(*seed),
            Excitations::Given(given) => Excitations::Given(given.clone()),
        }
    }
}

impl<S: VectorSpace> std::fmt::Debug for Excitations<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Excitations::Seed(seed) => write!(f, "Seed({seed})"),
            Excitations::Given(_) => write!(f, "Given"),
        }
    }
}

impl<S: VectorSpace> Excitations<S> {
    /// Fills `out`.
    pub(super) fn fill(
        &self,
        space: &mut S,
        excitation: Excitation,
        out: &mut S::Vector,
    ) -> Result<(), InferenceError> {
        match self {
            Excitations::Seed(seed) => {
                let Excitation { iteration, sample, what } = excitation;
                space.white_noise(Stream::new(*seed, iteration, sample, what as u32), out)
            }
            Excitations::Given(given) => given(space, excitation, out),
        }
    }
}
