//! Linear operators: those that are their own derivative.

use std::rc::Rc;

use super::cost::{CallCost, OperatorCost};
use super::error::OperatorError;
use super::fingerprint::Fingerprint;
use super::operator::{Differentiable, Linearised};
use super::signature::Signature;
use super::vector::Vector;
use crate::rank::Rank;

/// A linear operator with its adjoint. It is [`Differentiable`] by itself, and [`Adjoint`] turns it round.
pub trait Linear {
    /// Returns the name, the domain and the target.
    fn signature(&self) -> &Signature;

    /// `y = A x`. The fields have been checked.
    ///
    /// # Errors
    /// What its work can fail with.
    fn forward(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError>;

    /// `x = A^T y`. The fields have been checked.
    ///
    /// # Errors
    /// What its work can fail with.
    fn adjoint(&self, rank: &mut Rank, y: &Vector, x: &mut Vector) -> Result<(), OperatorError>;

    /// Writes the constants that values depend on beside the spaces: weights, taps, settings.
    ///
    /// Fits refuse to go on from the state of a model with another fingerprint. A constant that is not written can change
    /// unnoticed. An operator without constants writes nothing, one made of others writes these
    /// ([`Model::identify`](super::Model::identify)). Collective.
    ///
    /// # Errors
    /// - Same as [`Fingerprint::field`].
    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError>;

    /// What the two cost this rank.
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

/// The derivative of a linear operator.
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

/// The adjoint of a linear operator, as an operator.
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
