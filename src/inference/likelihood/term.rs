//! A model and the density of one data set, and terms that share a model.

use std::rc::Rc;

use super::data::{Coordinates, Density};
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
    pub domain: Space,
    /// The model before its last pointwise step.
    head: Option<Model>,
    /// The last pointwise step.
    tail: Option<Model>,
    /// The last pointwise step, then the root of the density.
    root: Model,
    /// Coordinates of the whole.
    pub coordinates: Option<Coordinates>,
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

    /// Writes the model into a fingerprint.
    pub fn identify(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        [&self.head, &self.tail].into_iter().flatten().try_for_each(|model| model.identify(rank, out))
    }

    /// Computes the value of the model.
    pub fn signal(&self, rank: &mut Rank, x: &Vector) -> Result<Vector, OperatorError> {
        let between = self.head.as_ref().map_or_else(|| Ok(x.clone()), |head| head.value(rank, x))?;
        self.tail.as_ref().map_or_else(|| Ok(between.clone()), |tail| tail.value(rank, &between))
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
    pub signal: Vector,
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

    /// Computes `out` through the head from the cotangent of its value, which `give` computes.
    fn back(
        &self,
        rank: &mut Rank,
        out: &mut Vector,
        give: impl FnOnce(&mut Rank, &mut Vector) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        let Some(head) = &self.head else { return give(rank, out) };
        let mut between = Vector::new(&rank.gpu, head.model().target())?;
        give(rank, &mut between)?;
        head.vjp(rank, &between, out)
    }

    /// Computes the gradient of the energy.
    pub fn gradient(&self, rank: &mut Rank, out: &mut Vector) -> Result<(), OperatorError> {
        let Density { space, functions, .. } = &*self.term.density;
        self.back(rank, out, |rank, out| {
            let Some(tail) = &self.tail else { return (functions.score)(rank, &self.signal, out) };
            let mut score = Vector::new(&rank.gpu, space)?;
            (functions.score)(rank, &self.signal, &mut score)?;
            tail.vjp(rank, &score, out)
        })
    }

    /// Computes `out = J^T sqrt(F) eta`.
    pub fn left_sqrt(&self, rank: &mut Rank, eta: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        self.back(rank, out, |rank, out| self.root.vjp(rank, eta, out))
    }

    /// Returns the product of the head with a tangent; `None` without a head.
    fn tangent(&self, rank: &mut Rank, v: &Vector) -> Result<Option<Vector>, OperatorError> {
        let Some(head) = &self.head else { return Ok(None) };
        let mut tangent = Vector::new(&rank.gpu, head.model().target())?;
        head.jvp(rank, v, &mut tangent)?;
        Ok(Some(tangent))
    }

    /// Computes `out = sqrt(F) J v`.
    pub fn right_sqrt(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        let tangent = self.tangent(rank, v)?;
        self.root.jvp(rank, tangent.as_ref().unwrap_or(v), out)
    }

    /// Returns the leaves that excite the modes of a field.
    pub fn excited(&self, rank: &mut Rank) -> Result<Vec<ExcitedModes>, OperatorError> {
        self.head.as_ref().map_or_else(|| Ok(Vec::new()), |head| head.excited(rank))
    }

    /// Computes `out = J^T F J v`.
    pub fn metric(&self, rank: &mut Rank, v: &Vector, out: &mut Vector) -> Result<(), OperatorError> {
        let tangent = self.tangent(rank, v)?;
        self.back(rank, out, |rank, out| self.root.normal(rank, tangent.as_ref().unwrap_or(v), out))
    }
}

/// Terms after one model that they share, which is evaluated once for all.
#[derive(Clone)]
pub(super) struct Group {
    /// The model; a single term has it in itself.
    pub shared: Option<Model>,
    pub terms: Vec<Term>,
    /// Domain of the shared model, or of all terms.
    pub domain: Space,
}

impl Group {
    /// Returns the values that terms take parts of.
    pub fn values(&self, rank: &mut Rank, x: &Vector) -> Result<Vector> {
        let own = x.part(&self.domain, "likelihood")?;
        Ok(self.shared.as_ref().map_or_else(|| Ok(own.clone()), |shared| shared.value(rank, &own))?)
    }

    /// Returns the terms with the shared model in each.
    pub fn apart(&self) -> Result<Vec<Term>> {
        let Some(shared) = &self.shared else { return Ok(self.terms.clone()) };
        self.terms.iter().map(|term| Ok(term.amend(&shared.giving(&term.domain)?)?)).collect()
    }

    /// Computes the derivatives at a point.
    pub fn at(&self, rank: &mut Rank, x: &Vector) -> Result<GroupAt> {
        let own = x.part(&self.domain, "likelihood")?;
        let shared = self.shared.as_ref().map(|shared| shared.at(rank, &own)).transpose()?;
        let values = shared.as_ref().map_or(&own, |shared| &shared.value);
        let one = |term: &Term| Ok(term.at(rank, &values.part(&term.domain, "likelihood")?)?);
        let terms = self.terms.iter().map(one).collect::<Result<_>>()?;
        Ok(GroupAt { shared, terms, domain: self.domain.clone() })
    }
}

/// The derivatives of a [`Group`] at a point.
pub(super) struct GroupAt {
    pub shared: Option<Linearization>,
    pub terms: Vec<TermAt>,
    pub domain: Space,
}

/// Computes `out` as the sum of what `give` computes for parts of it, in the spaces `parts`.
pub(super) fn summed(
    rank: &mut Rank,
    parts: &[&Space],
    out: &mut Vector,
    mut give: impl FnMut(&mut Rank, usize, &mut Vector) -> Result<()>,
) -> Result<()> {
    if let [own] = parts
        && own.len() == out.space().len()
    {
        return give(rank, 0, out);
    }
    let zeros = Vector::zeros(&mut rank.recorder, out.space())?;
    out.copy_from(&mut rank.recorder, &zeros)?;
    for (number, own) in parts.iter().enumerate() {
        let mut found = Vector::joined(&mut rank.recorder, own)?;
        give(rank, number, &mut found)?;
        let mut part = out.part(own, "likelihood")?;
        rank.vector_axpby(1.0, &found, 1.0, &mut part)?;
        out.put(part);
    }
    Ok(())
}

impl GroupAt {
    /// Computes `out` from the cotangents of values that `give` computes for each term.
    pub fn back(
        &self,
        rank: &mut Rank,
        out: &mut Vector,
        mut give: impl FnMut(&mut Rank, &TermAt, &mut Vector) -> Result<()>,
    ) -> Result<()> {
        let parts: Vec<&Space> = self.terms.iter().map(|at| &at.term.domain).collect();
        let give = |rank: &mut Rank, number: usize, out: &mut Vector| give(rank, &self.terms[number], out);
        let Some(shared) = &self.shared else { return summed(rank, &parts, out, give) };
        let mut values = Vector::joined(&mut rank.recorder, shared.value.space())?;
        summed(rank, &parts, &mut values, give)?;
        Ok(shared.vjp(rank, &values, out)?)
    }

    /// Returns the tangent of the values for a tangent of latent values.
    pub fn tangent(&self, rank: &mut Rank, v: &Vector) -> Result<Vector> {
        let own = v.part(&self.domain, "likelihood")?;
        let Some(shared) = &self.shared else { return Ok(own) };
        let mut values = Vector::new(&rank.gpu, shared.value.space())?;
        shared.jvp(rank, &own, &mut values)?;
        Ok(values)
    }
}
