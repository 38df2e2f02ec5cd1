//! Linear operators.

use std::rc::Rc;

use super::error::OperatorError;
use super::fingerprint::Fingerprint;
use super::operator::{Differentiable, Linearised};
use super::signature::{CallCost, OperatorCost, Signature};
use super::vector::Vector;
use crate::rank::Rank;

/// A linear operator with its adjoint. It is [`Differentiable`]; [`Adjoint`] swaps its directions.
pub trait Linear {
    /// Returns the name, the domain and the target.
    fn signature(&self) -> &Signature;

    /// Computes `y = A x` for vectors of the right spaces.
    ///
    /// # Errors
    /// The errors of the operator's work.
    fn forward(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError>;

    /// Computes `x = A^T y` for vectors of the right spaces.
    ///
    /// # Errors
    /// The errors of the operator's work.
    fn adjoint(&self, rank: &mut Rank, y: &Vector, x: &mut Vector) -> Result<(), OperatorError>;

    /// Writes the constants of the operator, as [`Differentiable::constants`] requires.
    ///
    /// # Errors
    /// Same as [`Fingerprint::field`].
    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError>;

    /// Returns the costs of both directions for this rank.
    fn costs(&self) -> [CallCost; 2];
}

impl<L: Linear + 'static> Differentiable for L {
    fn signature(&self) -> &Signature {
        Linear::signature(self)
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.fits(x, y)?;
        self.forward(rank, x, y)
    }

    fn linearise(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearised>, OperatorError> {
        self.apply(rank, x, y)?;
        Ok(Box::new(Itself(self)))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        Linear::constants(self, rank, out)
    }

    fn cost(&self) -> OperatorCost {
        let [forward, adjoint] = self.costs();
        OperatorCost { apply: forward, jvp: forward, vjp: adjoint }
    }
}

/// The derivative of a linear operator: the operator itself.
struct Itself<L>(Rc<L>);

impl<L: Linear + 'static> Linearised for Itself<L> {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.0.apply(rank, dx, dy)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.0.fits(dx, dy)?;
        self.0.adjoint(rank, dy, dx)
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

    fn forward(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.operator.adjoint(rank, x, y)
    }

    fn adjoint(&self, rank: &mut Rank, y: &Vector, x: &mut Vector) -> Result<(), OperatorError> {
        self.operator.forward(rank, y, x)
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        self.operator.constants(rank, out)
    }

    fn costs(&self) -> [CallCost; 2] {
        let [forward, adjoint] = self.operator.costs();
        [adjoint, forward]
    }
}
