//! Operators: functions of fields with their derivatives.

use std::fmt;
use std::rc::Rc;

use super::cost::OperatorCost;
use super::error::OperatorError;
use super::fingerprint::Fingerprint;
use super::pointwise_map::PointwiseMap;
use super::signature::Signature;
use super::space::Space;
use super::vector::Vector;
use crate::rank::Rank;

/// A function from fields of one space to fields of another, with its derivative. All ranks of a [`Rank`] call its methods together, in one
/// order.
///
/// Methods record their work and wait for nothing but exchanges between ranks; where leaves are [`Parameters`](super::Support::Parameters), which
/// are on the host, what computes them waits for the device. Outputs are overwritten, whatever they held; they must be other arrays than inputs.
///
/// On leaves that every rank has as a whole, cotangents are the same on every rank, as values are.
pub trait Differentiable {
    /// Returns the name, the domain and the target.
    fn signature(&self) -> &Signature;

    /// Returns the name in errors and reports.
    fn name(&self) -> &str {
        &self.signature().name
    }

    /// Returns the space of the arguments.
    fn domain(&self) -> &Space {
        &self.signature().domain
    }

    /// Returns the space of the values.
    fn target(&self) -> &Space {
        &self.signature().target
    }

    /// `y = f(x)`.
    ///
    /// # Errors
    /// [`OperatorError::Fit`] for fields of other spaces; what its work can fail with.
    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError>;

    /// `y = f(x)` and the derivative there. It keeps handles on the arrays of `x`, which must stay as they are until the derivative is dropped.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    fn linearise(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearised>, OperatorError>;

    /// The derivative at `x` alone, for who has no use for the value.
    ///
    /// # Errors
    /// As [`linearise`](Self::linearise).
    fn derivative(self: Rc<Self>, rank: &mut Rank, x: &Vector) -> Result<Box<dyn Linearised>, OperatorError> {
        let mut value = Vector::new(&rank.gpu, self.target())?;
        self.linearise(rank, x, &mut value)
    }

    /// Writes the constants that values depend on beside the spaces: weights, taps, settings.
    ///
    /// Fits refuse to go on from the state of a model with another fingerprint. A constant that is not written can change
    /// unnoticed. An operator without constants writes nothing, one made of others writes these
    /// ([`Model::identify`]). Collective.
    ///
    /// # Errors
    /// - Same as [`Fingerprint::field`].
    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError>;

    /// What its calls cost this rank.
    fn cost(&self) -> OperatorCost;

    /// Refuses fields of other spaces than its own, for values and both products.
    ///
    /// # Errors
    /// [`OperatorError::Fit`] with its name.
    fn fits(&self, x: &Vector, y: &Vector) -> Result<(), OperatorError> {
        self.signature().check(x, y)
    }

    /// Its function, if it is a pointwise operator, which can be made one with its neighbours.
    fn as_pointwise(&self) -> Option<&PointwiseMap> {
        None
    }

    /// What it does first and what it does last, if it is two operators one after the other.
    fn parted(&self) -> Option<[Model; 2]> {
        None
    }

    /// An operator that gives these of its leaves, if that is less work than all of it.
    ///
    /// # Errors
    /// As [`Model::giving`].
    fn giving(&self, _target: &Space) -> Result<Option<Model>, OperatorError> {
        Ok(None)
    }
}

/// The derivative of an operator at a point.
pub trait Linearised {
    /// `dy = f'(x) dx`.
    ///
    /// # Errors
    /// As [`Differentiable::apply`].
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError>;

    /// `dx = f'(x)^T dy`, with the sum of products over all numbers of a space as its inner product.
    ///
    /// # Errors
    /// As [`Differentiable::apply`].
    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError>;

    /// `out = f'(x)^T f'(x) dx` at once, where that is less work than one after the other; false, and nothing done, where it is not.
    ///
    /// # Errors
    /// As [`Differentiable::apply`].
    fn normal(&self, _rank: &mut Rank, _dx: &Vector, _out: &mut Vector) -> Result<bool, OperatorError> {
        Ok(false)
    }
}

/// An operator that can be composed with others. A clone is another handle.
#[derive(Clone)]
pub struct Model(pub(super) Rc<dyn Differentiable>);

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.signature())
    }
}

impl Model {
    /// An operator as a model.
    pub fn new(operator: impl Differentiable + 'static) -> Self {
        Model(Rc::new(operator))
    }

    /// Returns the name, the domain and the target.
    pub fn signature(&self) -> &Signature {
        self.0.signature()
    }

    /// Returns the name in errors and reports.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the space of the arguments.
    pub fn domain(&self) -> &Space {
        self.0.domain()
    }

    /// Returns the space of the values.
    pub fn target(&self) -> &Space {
        self.0.target()
    }

    /// What its calls cost this rank.
    pub fn cost(&self) -> OperatorCost {
        self.0.cost()
    }

    /// Writes its name, its spaces and its constants into a fingerprint.
    ///
    /// Collective; blocks where constants are on the device.
    ///
    /// # Errors
    /// - Same as [`Fingerprint::field`].
    pub fn identify(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        out.text(self.name());
        out.space(rank, self.domain())?;
        out.space(rank, self.target())?;
        self.0.constants(rank, out)
    }

    /// What comes before its last pointwise function, and that function: where it ends in one.
    pub fn parted(&self) -> [Option<Model>; 2] {
        if self.is_pointwise() {
            return [None, Some(self.clone())];
        }
        match self.0.parted() {
            Some([first, last]) if last.is_pointwise() => [Some(first), Some(last)],
            _ => [Some(self.clone()), None],
        }
    }

    /// Whether it is one kernel.
    pub fn is_pointwise(&self) -> bool {
        self.0.as_pointwise().is_some()
    }

    /// `y = f(x)`.
    ///
    /// # Errors
    /// As [`Differentiable::apply`].
    pub fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.0.apply(rank, x, y)
    }

    /// `f(x)` in a new field.
    ///
    /// # Errors
    /// As [`Differentiable::apply`].
    pub fn value(&self, rank: &mut Rank, x: &Vector) -> Result<Vector, OperatorError> {
        let mut y = Vector::new(&rank.gpu, self.target())?;
        self.0.apply(rank, x, &mut y)?;
        Ok(y)
    }

    /// The value and the derivative at `x`, whose arrays must stay as they are while it lives.
    ///
    /// # Errors
    /// As [`Differentiable::linearise`].
    pub fn at(&self, rank: &mut Rank, x: &Vector) -> Result<Linearisation, OperatorError> {
        let mut value = Vector::new(&rank.gpu, self.target())?;
        let derivative = self.0.clone().linearise(rank, x, &mut value)?;
        Ok(Linearisation { value, derivative: Derivative { model: self.clone(), at: derivative } })
    }

    /// The derivative at `x` alone, whose arrays must stay as they are while it lives: of a pointwise function nothing is computed.
    ///
    /// # Errors
    /// As [`Differentiable::linearise`].
    pub fn derivative(&self, rank: &mut Rank, x: &Vector) -> Result<Derivative, OperatorError> {
        Ok(Derivative { model: self.clone(), at: self.0.clone().derivative(rank, x)? })
    }
}

/// The derivative of a model at a point.
pub struct Derivative {
    model: Model,
    at: Box<dyn Linearised>,
}

impl fmt::Debug for Derivative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derivative").field("model", &self.model).finish_non_exhaustive()
    }
}

impl Derivative {
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// `dy = f'(x) dx`.
    ///
    /// # Errors
    /// As [`Linearised::jvp`].
    pub fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.at.jvp(rank, dx, dy)
    }

    /// `dx = f'(x)^T dy`.
    ///
    /// # Errors
    /// As [`Linearised::vjp`].
    pub fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.at.vjp(rank, dy, dx)
    }

    /// `out = f'(x)^T f'(x) dx`.
    ///
    /// # Errors
    /// As [`Linearised::jvp`].
    pub fn normal(&self, rank: &mut Rank, dx: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        if self.at.normal(rank, dx, out)? {
            return Ok(());
        }
        let mut between = Vector::new(&rank.gpu, self.model.target())?;
        self.at.jvp(rank, dx, &mut between)?;
        self.at.vjp(rank, &between, out)
    }
}

/// A model at a point: its value there, and its derivative, whose methods it has.
pub struct Linearisation {
    /// The value.
    pub value: Vector,
    /// The derivative.
    pub derivative: Derivative,
}

impl std::ops::Deref for Linearisation {
    type Target = Derivative;

    fn deref(&self) -> &Derivative {
        &self.derivative
    }
}

impl fmt::Debug for Linearisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linearisation").field("model", &self.derivative.model).finish_non_exhaustive()
    }
}
