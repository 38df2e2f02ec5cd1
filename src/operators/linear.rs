//! Linear operators, their adjoints, and the upload of parameters.

use std::rc::Rc;

use super::{
    Contents, Differentiable, Fingerprint, Leaf, Linearized, OperatorCost, Result, Signature, Space, Support, Vector,
    refuse,
};
use crate::grid::Cost;
use crate::host_memory;
use crate::rank::Rank;

/// The operator or its adjoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the domain to the target.
    Forward,
    /// From the target to the domain.
    Adjoint,
}

impl Direction {
    /// Returns the other direction.
    #[must_use]
    pub fn turned(self) -> Self {
        match self {
            Direction::Forward => Direction::Adjoint,
            Direction::Adjoint => Direction::Forward,
        }
    }
}

/// A linear operator with its adjoint. It is [`Differentiable`]; [`Adjoint`] swaps its directions.
pub trait Linear {
    /// Returns the name, the domain and the target.
    fn signature(&self) -> &Signature;

    /// Computes `out = A v` or `out = A^T v` for vectors of the right spaces.
    ///
    /// # Errors
    /// The errors of the operator's work.
    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()>;

    /// Writes the constants of the operator, as [`Differentiable::constants`] requires.
    ///
    /// # Errors
    /// Same as [`Fingerprint::field`].
    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()>;

    /// Returns the costs of both directions for this rank, forward first.
    fn costs(&self) -> [Cost; 2];
}

impl<L: Linear + 'static> Differentiable for L {
    fn signature(&self) -> &Signature {
        Linear::signature(self)
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<()> {
        self.fits(x, y)?;
        self.run(rank, Direction::Forward, x, y)
    }

    fn linearize(self: Rc<Self>, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Box<dyn Linearized>> {
        self.apply(rank, x, y)?;
        Ok(Box::new(Itself(self)))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        Linear::constants(self, rank, out)
    }

    fn cost(&self) -> OperatorCost {
        let [forward, adjoint] = self.costs();
        OperatorCost { apply: forward, jvp: forward, vjp: adjoint }
    }
}

/// The derivative of a linear operator: the operator itself.
struct Itself<L>(Rc<L>);

impl<L: Linear + 'static> Linearized for Itself<L> {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<()> {
        self.0.apply(rank, dx, dy)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<()> {
        self.0.fits(dx, dy)?;
        self.0.run(rank, Direction::Adjoint, dy, dx)
    }
}

/// The adjoint of a linear operator.
#[derive(Clone, Debug)]
pub struct Adjoint<L> {
    signature: Signature,
    operator: L,
}

impl<L: Linear> Adjoint<L> {
    /// Creates the adjoint of `operator`.
    pub fn new(operator: L) -> Self {
        let Signature { name, domain, target } = operator.signature();
        Adjoint { signature: Signature::new(format!("adjoint of {name}"), target, domain), operator }
    }
}

impl<L: Linear> Linear for Adjoint<L> {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        self.operator.run(rank, direction.turned(), v, out)
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        self.operator.constants(rank, out)
    }

    fn costs(&self) -> [Cost; 2] {
        let [forward, adjoint] = self.operator.costs();
        [adjoint, forward]
    }
}

/// Parameters of the host as a vector on the device. Its adjoint blocks, since it downloads the
/// cotangent.
pub struct ToDevice {
    signature: Signature,
}

impl ToDevice {
    /// Creates the operator from the only leaf of `domain`.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`](super::OperatorError::Invalid) unless the leaf is parameters.
    pub fn new(domain: &Space) -> Result<Self> {
        match domain.only() {
            Some((name, leaf)) if leaf.is_on_host() => {
                let target = Space::of(name, Leaf { support: Support::Vector { len: leaf.places() }, ..leaf.clone() })?;
                Ok(ToDevice { signature: Signature::new("upload", domain, &target) })
            }
            _ => refuse("upload", format!("{domain} is not one leaf of parameters")),
        }
    }
}

impl Linear for ToDevice {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn run(&self, rank: &mut Rank, direction: Direction, v: &Vector, out: &mut Vector) -> Result<()> {
        match (direction, v.contents(), out.contents_mut()) {
            (Direction::Forward, [Contents::Host(values)], [Contents::Device(array)]) => {
                let values = host_memory::collect("values of a field", values.iter().map(|&value| value as f32))?;
                rank.recorder.upload(array, 0, &values)?;
            }
            (Direction::Adjoint, [Contents::Device(array)], [Contents::Host(own)]) => {
                let values = rank.recorder.download(array, 0, array.len())?;
                own.iter_mut().zip(values).for_each(|(own, value)| *own = value.into());
            }
            _ => {}
        }
        Ok(())
    }

    fn constants(&self, _rank: &mut Rank, _out: &mut Fingerprint) -> Result<()> {
        Ok(())
    }

    fn costs(&self) -> [Cost; 2] {
        [Cost::kernels(0, 4 * self.signature.target.own_numbers()); 2]
    }
}
