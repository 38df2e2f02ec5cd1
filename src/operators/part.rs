//! Operators restricted to some leaves of their values.

use std::rc::Rc;

use super::{
    Derivative, Differentiable, ExcitedModes, Fingerprint, Linearized, Model, OperatorCost, Result, Signature, Space,
    Vector,
};
use crate::rank::Rank;

/// An operator restricted to some leaves of its target.
pub(super) struct Part {
    inner: Model,
    signature: Signature,
    /// The other leaves.
    rest: Space,
}

impl Part {
    /// Restricts `inner` to the leaves of `target`.
    pub fn new(inner: &Model, target: &Space) -> Self {
        let rest = inner.target().filtered(|name| target.position(name).is_none());
        let signature = Signature::new(inner.signature().name.clone(), inner.domain(), target);
        Part { inner: inner.clone(), signature, rest }
    }

    /// Returns a vector of all leaves of the inner target.
    fn all(&self, wanted: &Vector, rest: &Vector) -> Result<Vector> {
        let (space, wanted) = (self.inner.target(), wanted.part(&self.signature.target, self.name())?);
        let of = |name: &str| match self.signature.target.position(name) {
            Some(at) => Some(wanted.contents()[at].clone()),
            None => self.rest.position(name).map(|at| rest.contents()[at].clone()),
        };
        Vector::over(space, space.names().filter_map(of).collect())
    }

    /// Calls `run` with a vector of all leaves, with new arrays for the unwanted ones, and takes
    /// over the wanted ones.
    fn forward<T>(
        &self,
        rank: &mut Rank,
        y: &mut Vector,
        run: impl FnOnce(&mut Rank, &mut Vector) -> Result<T>,
    ) -> Result<T> {
        let mut all = self.all(y, &Vector::new(&rank.gpu, &self.rest)?)?;
        let found = run(rank, &mut all)?;
        y.put(all.part(&self.signature.target, self.name())?);
        Ok(found)
    }
}

impl Differentiable for Part {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<()> {
        self.fits(x, y)?;
        self.forward(rank, y, |rank, all| self.inner.apply(rank, x, all))
    }

    fn linearize(self: Rc<Self>, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Box<dyn Linearized>> {
        self.fits(x, y)?;
        let derivative = self.forward(rank, y, |rank, all| self.inner.linearize(rank, x, all))?;
        Ok(Box::new(PartAt { operator: self, derivative }))
    }

    fn derivative(self: Rc<Self>, rank: &mut Rank, x: &Vector) -> Result<Box<dyn Linearized>> {
        let derivative = self.inner.derivative(rank, x)?;
        Ok(Box::new(PartAt { operator: self, derivative }))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        self.inner.identify(rank, out)
    }

    fn cost(&self) -> OperatorCost {
        let mut cost = self.inner.cost();
        // Cotangents of the other leaves are cleared.
        for (_, leaf) in self.rest.leaves().filter(|(_, leaf)| !leaf.is_on_host()) {
            cost.vjp.dispatches += 1;
            cost.vjp.device_bytes += 4 * leaf.len();
        }
        cost
    }

    fn giving(&self, target: &Space) -> Result<Option<Model>> {
        self.inner.giving(target).map(Some)
    }
}

struct PartAt {
    operator: Rc<Part>,
    derivative: Derivative,
}

impl Linearized for PartAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<()> {
        self.operator.fits(dx, dy)?;
        self.operator.forward(rank, dy, |rank, all| self.derivative.jvp(rank, dx, all))
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<()> {
        self.operator.fits(dx, dy)?;
        let nothing = Vector::zeros(&mut rank.recorder, &self.operator.rest)?;
        let all = self.operator.all(dy, &nothing)?;
        self.derivative.vjp(rank, &all, dx)
    }

    fn excited(&self, rank: &mut Rank) -> Result<Vec<ExcitedModes>> {
        self.derivative.excited(rank)
    }
}
