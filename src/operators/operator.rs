//! Operators: functions of fields with their derivatives.

use std::fmt;
use std::rc::Rc;

use super::{Fingerprint, OperatorCost, PointwiseOperator, Result, Signature, Space, Vector};
use crate::gpu::Array;
use crate::grid::Mesh;
use crate::rank::Rank;

/// A differentiable function from vectors of one space to vectors of another.
///
/// All methods are collective. They record their work, and block only for exchanges between ranks,
/// for leaves on the host ([`Parameters`](super::Support::Parameters)), and for functions on the
/// host ([`HostFunction`](super::HostFunction)). Outputs are overwritten; they must not share
/// arrays with inputs. Cotangents of replicated leaves are the same on every rank.
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

    /// Computes `y = f(x)`.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`](super::OperatorError::Fit) if `x` or `y` belongs to another space.
    /// - The errors of the operator's work.
    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<()>;

    /// Computes `y = f(x)` and returns the derivative at `x`.
    ///
    /// The derivative keeps handles to the arrays of `x`, which must not change while it exists.
    ///
    /// # Errors
    /// Same as [`apply`](Self::apply).
    fn linearize(self: Rc<Self>, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Box<dyn Linearized>>;

    /// Returns the derivative at `x` without the value.
    ///
    /// # Errors
    /// Same as [`apply`](Self::apply).
    fn derivative(self: Rc<Self>, rank: &mut Rank, x: &Vector) -> Result<Box<dyn Linearized>> {
        let mut value = Vector::new(&rank.gpu, self.target())?;
        self.linearize(rank, x, &mut value)
    }

    /// Writes the constants of the operator: weights, taps, settings.
    ///
    /// A fit resumes only from a state with the same fingerprint, so a missing constant can change
    /// unnoticed. An operator made of others writes these ([`Model::identify`]).
    ///
    /// # Errors
    /// Same as [`Fingerprint::field`].
    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()>;

    /// Returns the cost of the calls for this rank.
    fn cost(&self) -> OperatorCost;

    /// Checks that `x` is a vector of the domain and `y` one of the target.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`](super::OperatorError::Fit) otherwise.
    fn fits(&self, x: &Vector, y: &Vector) -> Result<()> {
        self.signature().check(x, y)
    }

    /// Returns the function of a pointwise operator, for fusion with its neighbors.
    fn as_pointwise(&self) -> Option<&PointwiseOperator> {
        None
    }

    /// Returns the two operators of a composition.
    fn parted(&self) -> Option<[Model; 2]> {
        None
    }

    /// Returns the leaf of the domain that a leaf of the target is, if it is one unchanged.
    /// Preconditioners look for the arguments of later operators by it.
    fn passed(&self, _target: &str) -> Option<String> {
        None
    }

    /// Returns an operator that computes only the leaves of a space, if that saves work.
    ///
    /// # Errors
    /// Same as [`Model::giving`].
    fn giving(&self, _target: &Space) -> Result<Option<Model>> {
        Ok(None)
    }
}

/// The derivative of an operator at a point.
pub trait Linearized {
    /// Computes `dy = f'(x) dx`.
    ///
    /// # Errors
    /// Same as [`Differentiable::apply`].
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<()>;

    /// Computes `dx = f'(x)^T dy`. The inner product of a space is the sum of products of all
    /// numbers.
    ///
    /// # Errors
    /// Same as [`Differentiable::apply`].
    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<()>;

    /// Computes `out = f'(x)^T f'(x) dx` if one step saves work; otherwise returns `false`.
    ///
    /// # Errors
    /// Same as [`Differentiable::apply`].
    fn normal(&self, _rank: &mut Rank, _dx: &Vector, _out: &mut Vector) -> Result<bool> {
        Ok(false)
    }

    /// Returns the leaves of the domain that excite the modes of a field. By default there is none.
    /// A leaf at modes has their amplitudes; one at cells is filtered in a way that is not known.
    ///
    /// # Errors
    /// Same as [`Differentiable::apply`].
    fn excited(&self, _rank: &mut Rank) -> Result<Vec<ExcitedModes>> {
        Ok(Vec::new())
    }
}

/// A leaf at all modes of a grid whose numbers, times an amplitude each and Hartley transformed,
/// make a field; or a leaf at the cells of a grid that makes a field by about a filter.
/// Preconditioners build on it.
#[derive(Clone, Debug)]
pub struct ExcitedModes {
    /// The name of the leaf.
    pub leaf: String,
    /// The grid.
    pub mesh: Mesh,
    /// The amplitude of each mode of this rank; `None` for a leaf at cells.
    pub amplitude: Option<Array<f32>>,
}

/// An operator that can be composed with others. Clones share the operator.
#[derive(Clone)]
pub struct Model(pub(super) Rc<dyn Differentiable>);

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.signature())
    }
}

impl Model {
    /// Creates a model of an operator.
    pub fn new(operator: impl Differentiable + 'static) -> Self {
        Model(Rc::new(operator))
    }

    /// Returns the name, the domain and the target.
    #[must_use]
    pub fn signature(&self) -> &Signature {
        self.0.signature()
    }

    /// Returns the name in errors and reports.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the space of the arguments.
    #[must_use]
    pub fn domain(&self) -> &Space {
        self.0.domain()
    }

    /// Returns the space of the values.
    #[must_use]
    pub fn target(&self) -> &Space {
        self.0.target()
    }

    /// Returns the cost of the calls for this rank.
    #[must_use]
    pub fn cost(&self) -> OperatorCost {
        self.0.cost()
    }

    /// Writes the name, the spaces and the constants into a fingerprint. Collective; blocks for
    /// constants on the device.
    ///
    /// # Errors
    /// Same as [`Fingerprint::field`].
    pub fn identify(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        out.text(self.name());
        out.space(rank, self.domain())?;
        out.space(rank, self.target())?;
        self.0.constants(rank, out)
    }

    /// Returns the last pointwise function, and the part before it. The function is `None` if the
    /// model does not end in one.
    #[must_use]
    pub fn parted(&self) -> [Option<Model>; 2] {
        if self.is_pointwise() {
            return [None, Some(self.clone())];
        }
        match self.0.parted() {
            Some([first, last]) if last.is_pointwise() => [Some(first), Some(last)],
            _ => [Some(self.clone()), None],
        }
    }

    /// Returns `true` if the model is one kernel.
    #[must_use]
    pub fn is_pointwise(&self) -> bool {
        self.0.as_pointwise().is_some()
    }

    /// Computes `y = f(x)`.
    ///
    /// # Errors
    /// Same as [`Differentiable::apply`].
    pub fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<()> {
        self.0.apply(rank, x, y)
    }

    /// Returns `f(x)`.
    ///
    /// # Errors
    /// Same as [`Differentiable::apply`].
    pub fn value(&self, rank: &mut Rank, x: &Vector) -> Result<Vector> {
        let mut y = Vector::new(&rank.gpu, self.target())?;
        self.0.apply(rank, x, &mut y)?;
        Ok(y)
    }

    /// Returns the value and the derivative at `x`, whose arrays must not change while the result
    /// exists.
    ///
    /// # Errors
    /// Same as [`Differentiable::linearize`].
    pub fn at(&self, rank: &mut Rank, x: &Vector) -> Result<Linearization> {
        let mut value = Vector::new(&rank.gpu, self.target())?;
        Ok(Linearization { derivative: self.linearize(rank, x, &mut value)?, value })
    }

    /// Computes `y = f(x)` and returns the derivative at `x`.
    pub(super) fn linearize(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Derivative> {
        Ok(Derivative { model: self.clone(), at: self.0.clone().linearize(rank, x, y)? })
    }

    /// Returns the derivative at `x` without the value. A pointwise function computes nothing yet.
    ///
    /// # Errors
    /// Same as [`Differentiable::linearize`].
    pub fn derivative(&self, rank: &mut Rank, x: &Vector) -> Result<Derivative> {
        Ok(Derivative { model: self.clone(), at: self.0.clone().derivative(rank, x)? })
    }
}

/// The derivative of a model at a point.
pub struct Derivative {
    model: Model,
    at: Box<dyn Linearized>,
}

impl fmt::Debug for Derivative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derivative").field("model", &self.model).finish_non_exhaustive()
    }
}

impl Derivative {
    /// Returns the model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Computes `dy = f'(x) dx`.
    ///
    /// # Errors
    /// Same as [`Linearized::jvp`].
    pub fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<()> {
        self.at.jvp(rank, dx, dy)
    }

    /// Computes `dx = f'(x)^T dy`.
    ///
    /// # Errors
    /// Same as [`Linearized::vjp`].
    pub fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<()> {
        self.at.vjp(rank, dy, dx)
    }

    /// Returns the leaves that excite the modes of a field.
    ///
    /// # Errors
    /// Same as [`Linearized::excited`].
    pub fn excited(&self, rank: &mut Rank) -> Result<Vec<ExcitedModes>> {
        self.at.excited(rank)
    }

    /// Computes `out = f'(x)^T f'(x) dx`.
    ///
    /// # Errors
    /// Same as [`Linearized::jvp`].
    pub fn normal(&self, rank: &mut Rank, dx: &Vector, out: &mut Vector) -> Result<()> {
        if self.at.normal(rank, dx, out)? {
            return Ok(());
        }
        let mut between = Vector::new(&rank.gpu, self.model.target())?;
        self.at.jvp(rank, dx, &mut between)?;
        self.at.vjp(rank, &between, out)
    }
}

/// The value and the derivative of a model at a point. It has the methods of the derivative.
#[derive(Debug)]
pub struct Linearization {
    /// The value.
    pub value: Vector,
    /// The derivative.
    pub derivative: Derivative,
}

impl std::ops::Deref for Linearization {
    type Target = Derivative;

    fn deref(&self) -> &Derivative {
        &self.derivative
    }
}
