//! Compositions of operators: chains, pairs, renamed leaves.

use std::rc::Rc;

use super::part::Part;
use super::{
    Derivative, Differentiable, ExcitedModes, Fingerprint, Linearization, Linearized, Model, OperatorCost,
    OperatorError, PointwiseOperator, Result, Signature, Space, Vector, refuse,
};
use crate::rank::Rank;

impl Model {
    /// Returns the composition `next(self(x))`. Adjacent pointwise functions become one kernel.
    ///
    /// ```no_run
    /// # fn body(space: &meshloom::operators::Space) -> Result<(), meshloom::operators::OperatorError> {
    /// use meshloom::operators::{Model, PointwiseOperator};
    ///
    /// let square = Model::new(PointwiseOperator::wgsl("fn f(x: f32) -> f32 { return x * x; }", "f", space, "y")?);
    /// let damp = Model::new(PointwiseOperator::wgsl("fn g(x: f32) -> f32 { return exp(-x); }", "g", square.target(), "z")?);
    /// assert!(square.then(&damp)?.is_pointwise());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the domain of `next` is not the target of this model.
    pub fn then(&self, next: &Model) -> Result<Model> {
        next.domain().admits(self.target(), next.name())?;
        if let (Some(first), Some(second)) = (self.0.as_pointwise(), next.0.as_pointwise()) {
            return Ok(Model::new(first.then(second)?));
        }
        // Appends step by step, so that adjacent pointwise functions fuse.
        if let Some([first, last]) = next.0.parted() {
            return self.then(&first)?.then(&last);
        }
        if let ([Some(before), Some(last)], true) = (self.parted(), next.is_pointwise()) {
            return before.then(&last.then(next)?);
        }
        let name = format!("{} -> {}", self.name(), next.name());
        let signature = Signature::new(name, self.domain(), next.target());
        Ok(Model::new(Then { signature, first: self.clone(), second: next.clone() }))
    }

    /// Returns both models side by side: a function of the leaves of both with the results of both.
    /// Arguments of one name are shared.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if arguments of one name differ.
    /// - [`OperatorError::Space`] if both have a result of one name.
    pub fn zip(&self, other: &Model) -> Result<Model> {
        if let (Some(first), Some(second)) = (self.0.as_pointwise(), other.0.as_pointwise())
            && let Some(both) = first.beside(second)?
        {
            return Ok(Model::new(both));
        }
        let name = format!("({}, {})", self.name(), other.name());
        let domain = self.domain().joined(other.domain(), &name)?;
        let target = self.target().beside(other.target())?;
        Ok(Model::new(Zip {
            signature: Signature::new(name, &domain, &target),
            first: self.clone(),
            second: other.clone(),
        }))
    }

    /// Returns the model with the results of `inner` in place of the arguments of the same names: a
    /// function of the arguments of `inner` and of the other arguments of this model.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the model has no such argument, or arguments of one name differ.
    pub fn substitute(&self, inner: &Model) -> Result<Model> {
        if let Some((name, _)) = inner.target().leaves().find(|(name, _)| self.domain().position(name).is_none()) {
            return Err(OperatorError::surplus(self.name(), name, self.domain()));
        }
        let mut all = inner.clone();
        for (name, leaf) in self.domain().leaves().filter(|(name, _)| inner.target().position(name).is_none()) {
            all = all.zip(&Model::identity(&Space::of(name, leaf.clone())?)?)?;
        }
        all.then(self)
    }

    /// Restricts the results to the leaves of `target`. Models of a [`zip`](Self::zip) without such
    /// a leaf are left out; other models drop the unwanted values.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the model lacks a leaf of `target`.
    pub fn giving(&self, target: &Space) -> Result<Model> {
        if self.target().admits(target, "").is_ok() {
            return Ok(self.clone());
        }
        for (name, leaf) in target.leaves() {
            self.target().find(name, leaf, self.name())?;
        }
        match self.0.giving(target)? {
            Some(less) => Ok(less),
            None => Ok(Model::new(Part::new(self, target))),
        }
    }

    /// Renames the only result to `target`.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if the model has several results.
    pub fn named(&self, target: &str) -> Result<Model> {
        match self.target().only() {
            Some((name, _)) => self.renamed(&[], &[(name, target)]),
            None => refuse(self.name(), format!("it gives {}, not one leaf", self.target())),
        }
    }

    /// Renames the only argument to `domain`.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if the model has several arguments.
    pub fn of(&self, domain: &str) -> Result<Model> {
        match self.domain().only() {
            Some((name, _)) => self.renamed(&[(name, domain)], &[]),
            None => refuse(self.name(), format!("it takes {}, not one leaf", self.domain())),
        }
    }

    /// Renames arguments and results: pairs of a present and a new name. Other leaves keep theirs.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if no leaf has a present name.
    /// - [`OperatorError::Space`] if two leaves get one name, or a name is empty.
    pub fn renamed(&self, domain: &[(&str, &str)], target: &[(&str, &str)]) -> Result<Model> {
        let sides = [(self.domain(), domain), (self.target(), target)];
        for (space, pairs) in sides {
            if let Some((old, _)) = pairs.iter().find(|(old, _)| space.position(old).is_none()) {
                return Err(OperatorError::missing(self.name(), old, space));
            }
        }
        let [domain, target] = sides.map(|(space, pairs)| {
            let name = |old: &str| pairs.iter().find(|pair| pair.0 == old).map_or(old, |pair| pair.1).to_string();
            Arranged::new(space, space.names().map(name).collect())
        });
        self.arranged(domain?, target?)
    }

    /// Renames arguments and results.
    pub(super) fn arranged(&self, domain: Arranged, target: Arranged) -> Result<Model> {
        if let Some(map) = self.0.as_pointwise() {
            let map = map.renamed([&domain.space, &target.space], [&domain.order, &target.order]);
            return Ok(Model::new(map));
        }
        if let (Some([first, last]), true) = (self.0.parted(), domain.space == *self.domain()) {
            let between = last.domain().names().map(Into::into).collect();
            return first.then(&last.arranged(Arranged::new(last.domain(), between)?, target)?);
        }
        let signature = Signature::new(self.signature().name.clone(), &domain.space, &target.space);
        Ok(Model::new(Renamed { signature, inner: self.clone(), domain, target }))
    }

    /// Returns the identity on `space`, which passes leaves on beside another model in
    /// [`zip`](Self::zip).
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if leaves are at different places.
    pub fn identity(space: &Space) -> Result<Model> {
        match PointwiseOperator::identity(space) {
            Some(map) => Ok(Model::new(map)),
            None => refuse("identity", format!("{space} has leaves at different places")),
        }
    }
}

/// A space with other names for its leaves.
pub(super) struct Arranged {
    pub space: Space,
    /// Leaf `i` of the space was number `order[i]`.
    order: Vec<usize>,
    /// Leaf `i` before is number `inverse[i]` of the space.
    inverse: Vec<usize>,
}

impl Arranged {
    /// Gives the leaves of `space` new names, in their order.
    pub fn new(space: &Space, names: Vec<String>) -> Result<Self> {
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|&a, &b| names[a].cmp(&names[b]));
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, &old)| inverse[old] = new);
        let leaves = names.into_iter().zip(space.leaves().map(|(_, leaf)| leaf.clone()));
        Ok(Arranged { space: Space::new(leaves)?, order, inverse })
    }
}

/// One operator after another.
struct Then {
    signature: Signature,
    first: Model,
    second: Model,
}

impl Differentiable for Then {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<()> {
        let between = self.first.value(rank, x)?;
        self.second.apply(rank, &between, y)
    }

    fn linearize(self: Rc<Self>, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Box<dyn Linearized>> {
        let Linearization { value: between, derivative: first } = self.first.at(rank, x)?;
        let second = self.second.linearize(rank, &between, y)?;
        Ok(Box::new(ThenAt { first, second }))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        [&self.first, &self.second].into_iter().try_for_each(|one| one.identify(rank, out))
    }

    fn cost(&self) -> OperatorCost {
        self.first.cost() + self.second.cost()
    }

    fn parted(&self) -> Option<[Model; 2]> {
        Some([self.first.clone(), self.second.clone()])
    }

    fn passed(&self, target: &str) -> Option<String> {
        self.first.0.passed(&self.second.0.passed(target)?)
    }

    fn giving(&self, target: &Space) -> Result<Option<Model>> {
        let Some(second) = self.second.0.giving(target)? else { return Ok(None) };
        self.first.giving(second.domain())?.then(&second).map(Some)
    }
}

/// Adds the modes of leaves that are not among `all`.
fn with_modes(mut all: Vec<ExcitedModes>, others: impl IntoIterator<Item = ExcitedModes>) -> Vec<ExcitedModes> {
    for modes in others {
        if all.iter().all(|other| other.leaf != modes.leaf) {
            all.push(modes);
        }
    }
    all
}

struct ThenAt {
    first: Derivative,
    second: Derivative,
}

impl Linearized for ThenAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<()> {
        let mut between = Vector::new(&rank.gpu, self.first.model().target())?;
        self.first.jvp(rank, dx, &mut between)?;
        self.second.jvp(rank, &between, dy)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<()> {
        let mut between = Vector::new(&rank.gpu, self.second.model().domain())?;
        self.second.vjp(rank, dy, &mut between)?;
        self.first.vjp(rank, &between, dx)
    }

    fn excited(&self, rank: &mut Rank) -> Result<Vec<ExcitedModes>> {
        let passed = |modes: ExcitedModes| {
            let leaf = self.first.model().0.passed(&modes.leaf)?;
            Some(ExcitedModes { leaf, ..modes })
        };
        Ok(with_modes(self.first.excited(rank)?, self.second.excited(rank)?.into_iter().filter_map(passed)))
    }
}

/// Two operators side by side.
struct Zip {
    signature: Signature,
    first: Model,
    second: Model,
}

/// Calls `run` with the parts of `x` and `y` that are of `model`.
fn with_parts<T>(
    model: &Model,
    x: &Vector,
    y: &mut Vector,
    run: impl FnOnce(&Vector, &mut Vector) -> Result<T>,
) -> Result<T> {
    let mut own = y.part(model.target(), model.name())?;
    let found = run(&x.part(model.domain(), model.name())?, &mut own)?;
    y.put(own);
    Ok(found)
}

impl Differentiable for Zip {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<()> {
        let mut both = [&self.first, &self.second].into_iter();
        both.try_for_each(|one| with_parts(one, x, y, |x, y| one.apply(rank, x, y)))
    }

    fn linearize(self: Rc<Self>, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Box<dyn Linearized>> {
        let mut at = |one: &Model| with_parts(one, x, y, |x, y| one.linearize(rank, x, y));
        Ok(Box::new(ZipAt { first: at(&self.first)?, second: at(&self.second)? }))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        [&self.first, &self.second].into_iter().try_for_each(|one| one.identify(rank, out))
    }

    fn cost(&self) -> OperatorCost {
        let mut cost = self.first.cost() + self.second.cost();
        // Cotangents of leaves that both have are added.
        for (name, leaf) in self.second.domain().leaves() {
            if self.first.domain().position(name).is_some() {
                cost.vjp.dispatches += 1;
                cost.vjp.device_bytes += 12 * leaf.len();
            }
        }
        cost
    }

    fn passed(&self, target: &str) -> Option<String> {
        self.first.0.passed(target).or_else(|| self.second.0.passed(target))
    }

    fn giving(&self, target: &Space) -> Result<Option<Model>> {
        let of = |one: &Model| {
            let own = target.filtered(|name| one.target().position(name).is_some());
            if own.is_empty() { Ok(None) } else { one.giving(&own).map(Some) }
        };
        match (of(&self.first)?, of(&self.second)?) {
            (Some(first), Some(second)) => first.zip(&second).map(Some),
            (first, second) => Ok(first.or(second)),
        }
    }
}

struct ZipAt {
    first: Derivative,
    second: Derivative,
}

impl Linearized for ZipAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<()> {
        let mut both = [&self.first, &self.second].into_iter();
        both.try_for_each(|one| with_parts(one.model(), dx, dy, |dx, dy| one.jvp(rank, dx, dy)))
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<()> {
        let [first, second] = [self.first.model(), self.second.model()];
        let mut own = dx.part(first.domain(), first.name())?;
        self.first.vjp(rank, &dy.part(first.target(), first.name())?, &mut own)?;
        dx.put(own);
        // Cotangents of shared arguments are added through arrays of their own.
        let name = second.name();
        let shared = second.domain().filtered(|name| first.domain().position(name).is_some());
        let mut both = dx.part(&shared, name)?;
        let added = Vector::new(&rank.gpu, &shared)?;
        let mut own = dx.part(second.domain(), name)?.with(&added);
        self.second.vjp(rank, &dy.part(second.target(), name)?, &mut own)?;
        let added = own.part(&shared, name)?;
        dx.put(own);
        rank.vector_axpby(1.0, &added, 1.0, &mut both)?;
        dx.put(both);
        Ok(())
    }

    fn excited(&self, rank: &mut Rank) -> Result<Vec<ExcitedModes>> {
        Ok(with_modes(self.first.excited(rank)?, self.second.excited(rank)?))
    }
}

/// An operator between spaces whose leaves have other names.
struct Renamed {
    signature: Signature,
    inner: Model,
    domain: Arranged,
    target: Arranged,
}

impl Renamed {
    /// Returns a vector of the domain as one of the inner domain.
    fn argument(&self, x: &Vector) -> Vector {
        x.renamed(self.inner.domain(), &self.domain.inverse)
    }

    /// Returns a vector of the target as one of the inner target.
    fn result(&self, y: &Vector) -> Vector {
        y.renamed(self.inner.target(), &self.target.inverse)
    }

    /// Calls `run` with the vectors of the inner spaces, and takes over the result.
    fn forward<T>(&self, x: &Vector, y: &mut Vector, run: impl FnOnce(&Vector, &mut Vector) -> Result<T>) -> Result<T> {
        self.fits(x, y)?;
        let mut own = self.result(y);
        let found = run(&self.argument(x), &mut own)?;
        *y = own.renamed(y.space(), &self.target.order);
        Ok(found)
    }
}

impl Differentiable for Renamed {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<()> {
        self.forward(x, y, |x, y| self.inner.apply(rank, x, y))
    }

    fn linearize(self: Rc<Self>, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Box<dyn Linearized>> {
        let derivative = self.forward(x, y, |x, y| self.inner.linearize(rank, x, y))?;
        Ok(Box::new(RenamedAt { operator: self, derivative }))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        for order in [&self.domain.order, &self.target.order] {
            // Leaves of one kind may have changed places.
            order.iter().enumerate().filter(|(new, old)| new != *old).for_each(|(_, &old)| out.number(old as u64));
        }
        self.inner.identify(rank, out)
    }

    fn cost(&self) -> OperatorCost {
        self.inner.cost()
    }
}

struct RenamedAt {
    operator: Rc<Renamed>,
    derivative: Derivative,
}

impl Linearized for RenamedAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<()> {
        self.operator.forward(dx, dy, |dx, dy| self.derivative.jvp(rank, dx, dy))
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<()> {
        let operator = &self.operator;
        operator.fits(dx, dy)?;
        let mut own = operator.argument(dx);
        self.derivative.vjp(rank, &operator.result(dy), &mut own)?;
        *dx = own.renamed(dx.space(), &operator.domain.order);
        Ok(())
    }

    fn excited(&self, rank: &mut Rank) -> Result<Vec<ExcitedModes>> {
        let Renamed { signature, inner, domain, .. } = &*self.operator;
        let renamed = |modes: ExcitedModes| {
            let at = inner.domain().position(&modes.leaf)?;
            let leaf = signature.domain.names().nth(domain.inverse[at])?.to_string();
            Some(ExcitedModes { leaf, ..modes })
        };
        Ok(self.derivative.excited(rank)?.into_iter().filter_map(renamed).collect())
    }
}
