//! Compositions of operators: chains, pairs, sums, products, renamed leaves.

use std::rc::Rc;

use super::error::OperatorError;
use super::fingerprint::Fingerprint;
use super::leaf::Leaf;
use super::operator::{Differentiable, ExcitedModes, Linearized, Model};
use super::part::Part;
use super::pointwise::{Binary, Pointwise};
use super::pointwise_map::PointwiseMap;
use super::pointwise_operator::PointwiseOperator;
use super::signature::{OperatorCost, Signature};
use super::space::Space;
use super::vector::Vector;
use crate::fft::Values;
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
    pub fn then(&self, next: &Model) -> Result<Model, OperatorError> {
        next.domain().admits(self.target(), next.name())?;
        if let (Some(first), Some(second)) = (self.0.as_pointwise(), next.0.as_pointwise()) {
            return Ok(Model::new(PointwiseOperator::new(first.then(second)?)));
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
        Ok(Model::new(Then { signature, first: self.0.clone(), second: next.0.clone() }))
    }

    /// Returns both models side by side: a function of the leaves of both with the results of both.
    /// Arguments of one name are shared.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if arguments of one name differ.
    /// - [`OperatorError::Space`] if both have a result of one name.
    pub fn zip(&self, other: &Model) -> Result<Model, OperatorError> {
        if let (Some(first), Some(second)) = (self.0.as_pointwise(), other.0.as_pointwise())
            && let Some(both) = first.beside(second)?
        {
            return Ok(Model::new(PointwiseOperator::new(both)));
        }
        let name = format!("({}, {})", self.name(), other.name());
        let domain = self.domain().joined(other.domain(), &name)?;
        let leaves = self.target().leaves().chain(other.target().leaves());
        let target = Space::new(leaves.map(|(name, leaf)| (name, leaf.clone())))?;
        Ok(Model::new(Zip {
            signature: Signature::new(name, &domain, &target),
            first: self.0.clone(),
            second: other.0.clone(),
        }))
    }

    /// Returns the sum of both models, leaf by leaf.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the targets differ, or arguments of one name differ.
    pub fn plus(&self, other: &Model) -> Result<Model, OperatorError> {
        self.joined(other, "sum", Binary::Add)
    }

    /// Returns the product of both models, leaf by leaf, for real leaves.
    ///
    /// # Errors
    /// Same as [`plus`](Self::plus).
    pub fn times(&self, other: &Model) -> Result<Model, OperatorError> {
        if let Some((name, leaf)) = self.target().leaves().find(|(_, leaf)| leaf.values == Values::Complex) {
            let why = format!("it is {leaf}; write the product of complex numbers as a pointwise function");
            return Err(OperatorError::Fit { operator: "product".into(), leaf: name.into(), why });
        }
        self.joined(other, "product", Binary::Mul)
    }

    /// Returns a function of the values of both, component by component.
    fn joined(&self, other: &Model, name: &str, function: Binary) -> Result<Model, OperatorError> {
        other.target().admits(self.target(), name)?;
        let [a, b] = [("a/", self), ("b/", other)].map(|(branch, model)| model.below(branch));
        let both = a?.zip(&b?)?;
        let mut joined: Option<Model> = None;
        for (leaf_name, leaf) in self.target().leaves() {
            let one = Model::new(PointwiseOperator::new(componentwise(function, leaf_name, leaf)?));
            joined = Some(match joined {
                None => one,
                Some(before) => before.zip(&one)?,
            });
        }
        match joined {
            Some(joined) => both.then(&joined),
            None => Err(OperatorError::invalid(name, "models without leaves")),
        }
    }

    /// Puts `branch` before the names of the results.
    fn below(&self, branch: &str) -> Result<Model, OperatorError> {
        let target = Space::new(self.target().leaves().map(|(name, leaf)| (format!("{branch}{name}"), leaf.clone())))?;
        Ok(self.with_names(self.domain().clone(), target))
    }

    /// Restricts the results to the leaves of `target`. Models of a [`zip`](Self::zip) without such
    /// a leaf are left out; other models drop the unwanted values.
    ///
    /// # Errors
    /// - [`OperatorError::Fit`] if the model lacks a leaf of `target`.
    pub fn giving(&self, target: &Space) -> Result<Model, OperatorError> {
        if self.target().admits(target, "").is_ok() {
            return Ok(self.clone());
        }
        for (name, leaf) in target.leaves() {
            match self.target().leaf(name) {
                Some(own) if own == leaf => {}
                Some(own) => return Err(OperatorError::fit(self.name(), name, leaf, own)),
                None => return Err(OperatorError::missing(self.name(), name, self.target())),
            }
        }
        match self.0.giving(target)? {
            Some(less) => Ok(less),
            None => Ok(Model::new(Part::new(&self.0, target)?)),
        }
    }

    /// Renames the only result to `target`.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if the model has several results.
    pub fn named(&self, target: &str) -> Result<Model, OperatorError> {
        let Some((_, leaf)) = self.target().only() else {
            return Err(OperatorError::invalid(self.name(), format!("it gives {}, not one leaf", self.target())));
        };
        Ok(self.with_names(self.domain().clone(), Space::of(target, leaf.clone())?))
    }

    /// Renames the only argument to `domain`.
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if the model has several arguments.
    pub fn of(&self, domain: &str) -> Result<Model, OperatorError> {
        let Some((_, leaf)) = self.domain().only() else {
            return Err(OperatorError::invalid(self.name(), format!("it takes {}, not one leaf", self.domain())));
        };
        Ok(self.with_names(Space::of(domain, leaf.clone())?, self.target().clone()))
    }

    /// Renames arguments and results; their order stays.
    fn with_names(&self, domain: Space, target: Space) -> Model {
        match self.0.as_pointwise() {
            Some(map) => Model::new(PointwiseOperator::new(map.renamed(&domain, &target))),
            None => {
                let signature = Signature::new(self.signature().name.clone(), &domain, &target);
                Model::new(Renamed { signature, inner: self.0.clone() })
            }
        }
    }

    /// Returns the identity on `space`, which passes leaves on beside another model in
    /// [`zip`](Self::zip).
    ///
    /// # Errors
    /// - [`OperatorError::Invalid`] if leaves are at different places or on the host.
    pub fn identity(space: &Space) -> Result<Model, OperatorError> {
        match PointwiseMap::identity(space) {
            Some(map) => Ok(Model::new(PointwiseOperator::new(map))),
            None => Err(OperatorError::invalid(
                "identity",
                format!("{space} has leaves at different places, or on the host"),
            )),
        }
    }
}

/// Returns a function of two numbers for each component of the leaves `a/name` and `b/name`.
fn componentwise(function: Binary, leaf_name: &str, leaf: &Leaf) -> Result<PointwiseMap, OperatorError> {
    let name = if function == Binary::Add { "sum" } else { "product" };
    let function = Pointwise::componentwise(function, leaf.components * leaf.numbers() as u32);
    let space = Space::new([("a", leaf.clone()), ("b", leaf.clone())])?;
    let target = Space::of(leaf_name, leaf.clone())?;
    let map = PointwiseMap::onto(name, function, &space, &target)?;
    let domain = Space::new(["a", "b"].map(|branch| (format!("{branch}/{leaf_name}"), leaf.clone())))?;
    Ok(map.renamed(&domain, &target))
}

/// One operator after another.
struct Then {
    signature: Signature,
    first: Rc<dyn Differentiable>,
    second: Rc<dyn Differentiable>,
}

impl Then {
    fn between(&self, rank: &Rank) -> Result<Vector, OperatorError> {
        Ok(Vector::new(&rank.gpu, self.first.target())?)
    }
}

impl Differentiable for Then {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        let mut between = self.between(rank)?;
        self.first.apply(rank, x, &mut between)?;
        self.second.apply(rank, &between, y)
    }

    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        let mut between = self.between(rank)?;
        let first = self.first.clone().linearize(rank, x, &mut between)?;
        let second = self.second.clone().linearize(rank, &between, y)?;
        Ok(Box::new(ThenAt { operator: self, first, second }))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        [&self.first, &self.second].into_iter().try_for_each(|one| Model(one.clone()).identify(rank, out))
    }

    fn cost(&self) -> OperatorCost {
        self.first.cost() + self.second.cost()
    }

    fn parted(&self) -> Option<[Model; 2]> {
        Some([&self.first, &self.second].map(|model| Model(model.clone())))
    }

    fn giving(&self, target: &Space) -> Result<Option<Model>, OperatorError> {
        let [first, second] = [&self.first, &self.second].map(|model| Model(model.clone()));
        let Some(second) = second.0.giving(target)? else { return Ok(None) };
        first.giving(second.domain())?.then(&second).map(Some)
    }
}

struct ThenAt {
    operator: Rc<Then>,
    first: Box<dyn Linearized>,
    second: Box<dyn Linearized>,
}

impl Linearized for ThenAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        let mut between = self.operator.between(rank)?;
        self.first.jvp(rank, dx, &mut between)?;
        self.second.jvp(rank, &between, dy)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        let mut between = Vector::new(&rank.gpu, self.operator.second.domain())?;
        self.second.vjp(rank, dy, &mut between)?;
        self.first.vjp(rank, &between, dx)
    }

    fn excited(&self, rank: &mut Rank) -> Result<Vec<ExcitedModes>, OperatorError> {
        self.first.excited(rank)
    }
}

/// Two operators side by side.
struct Zip {
    signature: Signature,
    first: Rc<dyn Differentiable>,
    second: Rc<dyn Differentiable>,
}

impl Differentiable for Zip {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        for one in [&self.first, &self.second] {
            let name = one.name();
            let mut own = y.part(one.target(), name)?;
            one.apply(rank, &x.part(one.domain(), name)?, &mut own)?;
            y.put(own);
        }
        Ok(())
    }

    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        let mut at = |one: &Rc<dyn Differentiable>| {
            let name = one.name();
            let mut own = y.part(one.target(), name)?;
            let derivative = one.clone().linearize(rank, &x.part(one.domain(), name)?, &mut own)?;
            y.put(own);
            Ok::<_, OperatorError>(derivative)
        };
        let (first, second) = (at(&self.first)?, at(&self.second)?);
        Ok(Box::new(ZipAt { operator: self, first, second }))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        [&self.first, &self.second].into_iter().try_for_each(|one| Model(one.clone()).identify(rank, out))
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

    fn giving(&self, target: &Space) -> Result<Option<Model>, OperatorError> {
        let of = |one: &Rc<dyn Differentiable>| {
            let own = target.leaves().filter(|(name, _)| one.target().position(name).is_some());
            let own = Space::new(own.map(|(name, leaf)| (name, leaf.clone())))?;
            if own.is_empty() { Ok(None) } else { Model(one.clone()).giving(&own).map(Some) }
        };
        match (of(&self.first)?, of(&self.second)?) {
            (Some(first), Some(second)) => first.zip(&second).map(Some),
            (first, second) => Ok(first.or(second)),
        }
    }
}

struct ZipAt {
    operator: Rc<Zip>,
    first: Box<dyn Linearized>,
    second: Box<dyn Linearized>,
}

impl Linearized for ZipAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        let Zip { first, second, .. } = &*self.operator;
        for (one, derivative) in [(first, &self.first), (second, &self.second)] {
            let name = one.name();
            let mut own = dy.part(one.target(), name)?;
            derivative.jvp(rank, &dx.part(one.domain(), name)?, &mut own)?;
            dy.put(own);
        }
        Ok(())
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        let Zip { first, second, .. } = &*self.operator;
        let name = first.name();
        let mut own = dx.part(first.domain(), name)?;
        self.first.vjp(rank, &dy.part(first.target(), name)?, &mut own)?;
        dx.put(own);
        // Cotangents of shared arguments are added through arrays of their own.
        let name = second.name();
        let shared = second.domain().leaves().filter(|(name, _)| first.domain().position(name).is_some());
        let shared = Space::new(shared.map(|(name, leaf)| (name, leaf.clone())))?;
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

    fn excited(&self, rank: &mut Rank) -> Result<Vec<ExcitedModes>, OperatorError> {
        let mut all = self.first.excited(rank)?;
        for modes in self.second.excited(rank)? {
            if all.iter().all(|other| other.leaf != modes.leaf) {
                all.push(modes);
            }
        }
        Ok(all)
    }
}

/// An operator between spaces whose leaves have other names.
struct Renamed {
    signature: Signature,
    inner: Rc<dyn Differentiable>,
}

impl Differentiable for Renamed {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.fits(x, y)?;
        let mut own = y.renamed(self.inner.target());
        self.inner.apply(rank, &x.renamed(self.inner.domain()), &mut own)?;
        *y = own.renamed(y.space());
        Ok(())
    }

    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        self.fits(x, y)?;
        let mut own = y.renamed(self.inner.target());
        let derivative = self.inner.clone().linearize(rank, &x.renamed(self.inner.domain()), &mut own)?;
        *y = own.renamed(y.space());
        Ok(Box::new(RenamedAt { operator: self, derivative }))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        Model(self.inner.clone()).identify(rank, out)
    }

    fn cost(&self) -> OperatorCost {
        self.inner.cost()
    }
}

struct RenamedAt {
    operator: Rc<Renamed>,
    derivative: Box<dyn Linearized>,
}

impl Linearized for RenamedAt {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.operator.fits(dx, dy)?;
        let inner = &self.operator.inner;
        let mut own = dy.renamed(inner.target());
        self.derivative.jvp(rank, &dx.renamed(inner.domain()), &mut own)?;
        *dy = own.renamed(dy.space());
        Ok(())
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.operator.fits(dx, dy)?;
        let inner = &self.operator.inner;
        let mut own = dx.renamed(inner.domain());
        self.derivative.vjp(rank, &dy.renamed(inner.target()), &mut own)?;
        *dx = own.renamed(dx.space());
        Ok(())
    }

    fn excited(&self, rank: &mut Rank) -> Result<Vec<ExcitedModes>, OperatorError> {
        let Renamed { signature, inner } = &*self.operator;
        // Leaves have the same order under both names.
        let renamed = |modes: ExcitedModes| {
            let at = inner.domain().position(&modes.leaf)?;
            let leaf = signature.domain.names().nth(at)?.to_string();
            Some(ExcitedModes { leaf, ..modes })
        };
        Ok(self.derivative.excited(rank)?.into_iter().filter_map(renamed).collect())
    }
}
