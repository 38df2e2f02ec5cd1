//! A model and the density of one data set.

use std::rc::Rc;

use super::density::{Coordinates, Density};
use crate::inference::error::{InferenceError, Result};
use crate::operators::{
    Contents, Derivative, ExcitedModes, Fingerprint, Linearization, Model, OperatorError, Space, Vector,
};
use crate::rank::Rank;

/// A density of data as a function of latent values. The last pointwise step of the model and the
/// root of the density are one kernel.
#[derive(Clone)]
pub(super) struct Term {
    pub density: Rc<Density>,
    domain: Space,
    /// The model before its last pointwise step.
    head: Option<Model>,
    /// The last pointwise step.
    tail: Option<Model>,
    /// The last pointwise step, then the root of the density.
    root: Model,
    /// Coordinates of the whole.
    coordinates: Option<Coordinates>,
}

impl Term {
    /// Creates a term of the identity.
    pub fn new(density: Density) -> Self {
        let (domain, functions) = (density.space.clone(), &density.functions);
        let (root, coordinates) = (functions.root.clone(), functions.coordinates.clone());
        Term { density: Rc::new(density), domain, head: None, tail: None, root, coordinates }
    }

    /// Returns the model; `None` for the identity.
    fn model(&self) -> Result<Option<Model>, OperatorError> {
        match (&self.head, &self.tail) {
            (Some(head), Some(tail)) => head.then(tail).map(Some),
            (head, tail) => Ok(head.as_ref().or(tail.as_ref()).cloned()),
        }
    }

    /// Returns the term as a function of the domain of `model`.
    pub fn amend(&self, model: &Model) -> Result<Self, OperatorError> {
        let model = self.model()?.map_or_else(|| Ok(model.clone()), |own| model.then(&own))?;
        let [head, tail] = model.parted();
        let functions = &self.density.functions;
        let root = tail.as_ref().map_or_else(|| Ok(functions.root.clone()), |tail| tail.then(&functions.root))?;
        let coordinates = match &functions.coordinates {
            Some(Coordinates::Fixed(own)) => Some(Coordinates::Fixed(model.then(own)?)),
            other => other.clone(),
        };
        let domain = model.domain().clone();
        Ok(Term { density: self.density.clone(), domain, head, tail, root, coordinates })
    }

    /// Returns the domain.
    pub fn domain(&self) -> &Space {
        &self.domain
    }

    /// Writes the model into a fingerprint.
    pub fn identify(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        [&self.head, &self.tail].into_iter().flatten().try_for_each(|model| model.identify(rank, out))
    }

    /// Computes the value of the model.
    pub fn signal(&self, rank: &mut Rank, x: &Vector) -> Result<Vector, OperatorError> {
        let between = self.head.as_ref().map_or_else(|| Ok(x.clone()), |head| head.value(rank, x))?;
        self.tail.as_ref().map_or_else(|| Ok(between.clone()), |tail| tail.value(rank, &between))
    }

    /// Computes the energy; blocks.
    pub fn energy(&self, rank: &mut Rank, x: &Vector) -> Result<f64> {
        let signal = self.signal(rank, x)?;
        self.density.energy.of(rank, signal.single()?)
    }

    /// Returns the terms of the energy.
    pub fn energy_terms(&self, rank: &mut Rank, x: &Vector) -> Result<Vector, OperatorError> {
        let signal = self.signal(rank, x)?;
        self.density.energy.terms(rank, signal.single()?)
    }

    /// Returns `true` if the term has coordinates.
    pub fn has_coordinates(&self) -> bool {
        self.coordinates.is_some()
    }

    /// Computes the derivatives at a point.
    pub fn at(&self, rank: &mut Rank, x: &Vector) -> Result<TermAt, OperatorError> {
        let head = self.head.as_ref().map(|head| head.at(rank, x)).transpose()?;
        let between = head.as_ref().map_or(x, |head| &head.value);
        let tail = self.tail.as_ref().map(|tail| tail.at(rank, between)).transpose()?;
        let root = self.root.derivative(rank, between)?;
        let signal = tail.as_ref().map_or(between, |tail| &tail.value).clone();
        Ok(TermAt { term: self.clone(), signal, before_root: between.clone(), head, tail, root })
    }
}

/// Records coordinates of the values of a model at the expansion point and elsewhere.
fn about(rank: &mut Rank, coordinates: &Model, values: [&Vector; 2], out: &mut Vector) -> Result<(), OperatorError> {
    let pair = [values[0].single()?, values[1].single()?].map(|array| Contents::Device(array.clone()));
    let pair = Vector::over(coordinates.domain(), pair.to_vec())?;
    coordinates.apply(rank, &pair, out)
}

/// The derivatives of a term at a point.
pub(super) struct TermAt {
    pub term: Term,
    /// The value of the model.
    signal: Vector,
    /// The argument of the root: the value of the head, or the latent values.
    before_root: Vector,
    head: Option<Linearization>,
    tail: Option<Linearization>,
    root: Derivative,
}

impl TermAt {
    /// Records the coordinates of `x`.
    pub fn coordinates(&self, rank: &mut Rank, x: &Vector, out: &mut Vector) -> Result<()> {
        match &self.term.coordinates {
            Some(Coordinates::Fixed(coordinates)) => Ok(coordinates.apply(rank, x, out)?),
            Some(Coordinates::About(coordinates)) => {
                let signal = self.term.signal(rank, x)?;
                Ok(about(rank, coordinates, [&self.signal, &signal], out)?)
            }
            None => Err(InferenceError::NoTransformation { likelihood: self.term.density.name.clone() }),
        }
    }

    /// Records the coordinates of the point, for the value of the model at the expansion point;
    /// returns `false` if the term has none.
    pub fn coordinates_about(&self, rank: &mut Rank, expansion: Option<&Vector>, out: &mut Vector) -> Result<bool> {
        match (&self.term.coordinates, expansion) {
            // The root is the same kernel as the last step of the coordinates.
            (Some(Coordinates::Fixed(_)), _) => self.term.root.apply(rank, &self.before_root, out)?,
            (Some(Coordinates::About(coordinates)), Some(expansion)) => {
                about(rank, coordinates, [expansion, &self.signal], out)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the value of the model if coordinates depend on the value at the expansion point.
    pub fn expansion_value(&self) -> Option<&Vector> {
        matches!(self.term.coordinates, Some(Coordinates::About(_))).then_some(&self.signal)
    }

    /// Computes the energy at the point; blocks.
    pub fn energy(&self, rank: &mut Rank) -> Result<f64> {
        self.term.density.energy.of(rank, self.signal.single()?)
    }

    /// Returns the terms of the energy at the point.
    pub fn energy_terms(&self, rank: &mut Rank) -> Result<Vector, OperatorError> {
        self.term.density.energy.terms(rank, self.signal.single()?)
    }

    /// Returns the space between head and tail of the model, or the domain.
    fn between(&self) -> &Space {
        self.head.as_ref().map_or(&self.term.domain, |head| head.model().target())
    }

    /// Computes `out = J^T cotangent` through the head alone.
    fn back(&self, rank: &mut Rank, cotangent: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        match &self.head {
            Some(head) => head.vjp(rank, cotangent, out),
            None => out.copy_from(&mut rank.recorder, cotangent),
        }
    }

    /// Computes the gradient of the energy.
    pub fn gradient(&self, rank: &mut Rank, out: &mut Vector) -> Result<(), OperatorError> {
        let mut score = Vector::new(&rank.gpu, &self.term.density.space)?;
        (self.term.density.functions.score)(rank, &self.signal, &mut score)?;
        let Some(tail) = &self.tail else { return self.back(rank, &score, out) };
        if self.head.is_none() {
            return tail.vjp(rank, &score, out);
        }
        let mut between = Vector::new(&rank.gpu, self.between())?;
        tail.vjp(rank, &score, &mut between)?;
        self.back(rank, &between, out)
    }

    /// Computes `out = J^T sqrt(F) eta`.
    pub fn left_sqrt(&self, rank: &mut Rank, eta: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        if self.head.is_none() {
            return self.root.vjp(rank, eta, out);
        }
        let mut between = Vector::new(&rank.gpu, self.between())?;
        self.root.vjp(rank, eta, &mut between)?;
        self.back(rank, &between, out)
    }

    /// Computes `out = sqrt(F) J v`.
    pub fn right_sqrt(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        let Some(head) = &self.head else { return self.root.jvp(rank, v, out) };
        let mut between = Vector::new(&rank.gpu, self.between())?;
        head.jvp(rank, v, &mut between)?;
        self.root.jvp(rank, &between, out)
    }

    /// Returns the leaves that excite the modes of a field.
    pub fn excited(&self, rank: &mut Rank) -> Result<Vec<ExcitedModes>, OperatorError> {
        self.head.as_ref().map_or_else(|| Ok(Vec::new()), |head| head.excited(rank))
    }

    /// Computes `out = J^T F J v`.
    pub fn metric(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        let Some(head) = &self.head else { return self.root.normal(rank, v, out) };
        let [mut tangent, mut cotangent] =
            [Vector::new(&rank.gpu, self.between())?, Vector::new(&rank.gpu, self.between())?];
        head.jvp(rank, v, &mut tangent)?;
        self.root.normal(rank, &tangent, &mut cotangent)?;
        self.back(rank, &cotangent, out)
    }
}
