//! A likelihood of one data set: a model and the density of the data for what it says.

use std::rc::Rc;

use super::density::{Coordinates, Density};
use crate::inference::error::InferenceError;
use crate::operators::{Contents, Derivative, Fingerprint, Linearisation, Model, OperatorError, Space, Vector, Worker};

/// A density of data for what a model says of them. The model's last step, where it is pointwise, is one kernel with the density's root.
#[derive(Clone)]
pub(super) struct Term {
    pub density: Rc<Density>,
    domain: Space,
    /// The model but for its last pointwise step.
    head: Option<Model>,
    /// That step.
    tail: Option<Model>,
    /// That step and then the density's root.
    root: Model,
    /// Coordinates of all of it.
    coordinates: Option<Coordinates>,
}

impl Term {
    /// A density as a function of what it is a density for.
    pub fn new(density: Density) -> Self {
        let (domain, root, coordinates) = (density.space.clone(), density.root.clone(), density.coordinates.clone());
        Term { density: Rc::new(density), domain, head: None, tail: None, root, coordinates }
    }

    /// The model; none if it is the identity.
    fn model(&self) -> Result<Option<Model>, OperatorError> {
        match (&self.head, &self.tail) {
            (Some(head), Some(tail)) => head.then(tail).map(Some),
            (head, tail) => Ok(head.as_ref().or(tail.as_ref()).cloned()),
        }
    }

    /// The same as a function of what `model` is a function of, which gives what this is one of.
    pub fn amend(&self, model: &Model) -> Result<Self, OperatorError> {
        let model = self.model()?.map_or_else(|| Ok(model.clone()), |own| model.then(&own))?;
        let [head, tail] = model.parted();
        let root = tail.as_ref().map_or_else(|| Ok(self.density.root.clone()), |tail| tail.then(&self.density.root))?;
        let coordinates = match &self.density.coordinates {
            Some(Coordinates::Fixed(own)) => Some(Coordinates::Fixed(model.then(own)?)),
            other => other.clone(),
        };
        let domain = model.domain().clone();
        Ok(Term { density: self.density.clone(), domain, head, tail, root, coordinates })
    }

    /// What it is a function of.
    pub fn domain(&self) -> &Space {
        &self.domain
    }

    /// Writes the model.
    pub fn identify(&self, worker: &mut Worker<'_>, out: &mut Fingerprint) -> Result<(), OperatorError> {
        [&self.head, &self.tail].into_iter().flatten().try_for_each(|model| model.identify(worker, out))
    }

    /// What the model says.
    pub fn signal(&self, worker: &mut Worker<'_>, x: &Vector) -> Result<Vector, OperatorError> {
        let between = self.head.as_ref().map_or_else(|| Ok(x.clone()), |head| head.value(worker, x))?;
        self.tail.as_ref().map_or_else(|| Ok(between.clone()), |tail| tail.value(worker, &between))
    }

    /// The energy.
    pub fn energy(&self, worker: &mut Worker<'_>, x: &Vector) -> Result<f64, InferenceError> {
        let signal = self.signal(worker, x)?;
        self.density.energy.of(worker, signal.single()?)
    }

    /// Returns `true` if there are coordinates of what the model says.
    pub fn has_coordinates(&self) -> bool {
        self.coordinates.is_some()
    }

    /// The derivatives at a point.
    pub fn at(&self, worker: &mut Worker<'_>, x: &Vector) -> Result<TermAt, OperatorError> {
        let head = self.head.as_ref().map(|head| head.at(worker, x)).transpose()?;
        let between = head.as_ref().map_or(x, |head| &head.value);
        let tail = self.tail.as_ref().map(|tail| tail.at(worker, between)).transpose()?;
        let root = self.root.derivative(worker, between)?;
        let signal = tail.as_ref().map_or(between, |tail| &tail.value).clone();
        Ok(TermAt { term: self.clone(), signal, head, tail, root })
    }
}

/// The derivatives of a term at a point.
pub(super) struct TermAt {
    term: Term,
    /// What the model says.
    signal: Vector,
    head: Option<Linearisation>,
    tail: Option<Linearisation>,
    root: Derivative,
}

impl TermAt {
    /// Records the coordinates of what the model says at `x`.
    pub fn coordinates(&self, worker: &mut Worker<'_>, x: &Vector, out: &mut Vector) -> Result<(), InferenceError> {
        match &self.term.coordinates {
            Some(Coordinates::Fixed(coordinates)) => Ok(coordinates.apply(worker, x, out)?),
            Some(Coordinates::About(coordinates)) => {
                let signal = self.term.signal(worker, x)?;
                let pair = [self.signal.single()?, signal.single()?].map(|array| Contents::Device(array.clone()));
                let pair = Vector::over(coordinates.domain(), pair.to_vec())?;
                Ok(coordinates.apply(worker, &pair, out)?)
            }
            None => Err(InferenceError::NoTransformation { likelihood: self.term.density.name.clone() }),
        }
    }

    /// The energy at the point.
    pub fn energy(&self, worker: &mut Worker<'_>) -> Result<f64, InferenceError> {
        self.term.density.energy.of(worker, self.signal.single()?)
    }

    /// What lies between the model's head and its tail, or the latent values themselves.
    fn between(&self) -> &Space {
        self.head.as_ref().map_or(&self.term.domain, |head| head.model().target())
    }

    /// `out = J^T cotangent`, through the head alone.
    fn back(&self, worker: &mut Worker<'_>, cotangent: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        match &self.head {
            Some(head) => head.vjp(worker, cotangent, out),
            None => out.copy_from(&mut worker.context.recorder, cotangent),
        }
    }

    /// `out` = the gradient of the energy.
    pub fn gradient(&self, worker: &mut Worker<'_>, out: &mut Vector) -> Result<(), OperatorError> {
        let mut score = Vector::new(worker.gpu(), &self.term.density.space)?;
        self.term.density.score.of(worker, &self.signal, &mut score)?;
        let Some(tail) = &self.tail else { return self.back(worker, &score, out) };
        if self.head.is_none() {
            return tail.vjp(worker, &score, out);
        }
        let mut between = Vector::new(worker.gpu(), self.between())?;
        tail.vjp(worker, &score, &mut between)?;
        self.back(worker, &between, out)
    }

    /// `out = J^T sqrt(F) eta`.
    pub fn left_sqrt(&self, worker: &mut Worker<'_>, eta: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        if self.head.is_none() {
            return self.root.vjp(worker, eta, out);
        }
        let mut between = Vector::new(worker.gpu(), self.between())?;
        self.root.vjp(worker, eta, &mut between)?;
        self.back(worker, &between, out)
    }

    /// `out = sqrt(F) J v`.
    pub fn right_sqrt(&self, worker: &mut Worker<'_>, v: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        let Some(head) = &self.head else { return self.root.jvp(worker, v, out) };
        let mut between = Vector::new(worker.gpu(), self.between())?;
        head.jvp(worker, v, &mut between)?;
        self.root.jvp(worker, &between, out)
    }

    /// `out = J^T F J v`.
    pub fn metric(&self, worker: &mut Worker<'_>, v: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        let Some(head) = &self.head else { return self.root.normal(worker, v, out) };
        let [mut tangent, mut cotangent] =
            [Vector::new(worker.gpu(), self.between())?, Vector::new(worker.gpu(), self.between())?];
        head.jvp(worker, v, &mut tangent)?;
        self.root.normal(worker, &tangent, &mut cotangent)?;
        self.back(worker, &cotangent, out)
    }
}
