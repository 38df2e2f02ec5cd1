//! A pointwise function between fields: which leaf is which argument. Pure.

use super::error::OperatorError;
use super::leaf::{Leaf, Support};
use super::pointwise::{Argument, Form, Pointwise, PointwiseError};
use super::space::Space;
use crate::fft::Values;

/// A pointwise function whose arguments are the leaves of a domain, in order, and whose results are the leaves of a target.
#[derive(Clone, Debug)]
pub struct PointwiseMap {
    name: String,
    function: Pointwise,
    domain: Space,
    target: Space,
}

/// Components of the values of a leaf, as a function sees them.
fn width(leaf: &Leaf) -> u32 {
    match leaf.values {
        Values::Real => leaf.components,
        // A complex number is a vector of two.
        Values::Complex => 2 * leaf.components,
    }
}

/// Whether a leaf is a vector of one place, which counts for all places of others.
fn is_single(leaf: &Leaf) -> bool {
    matches!(leaf.support, Support::Vector { len: 1 })
}

/// The leaf whose places are those of the function: the first that is no single number, if any is.
fn main_of<'a>(mut leaves: impl Iterator<Item = &'a Leaf> + Clone) -> Option<&'a Leaf> {
    leaves.clone().find(|leaf| !is_single(leaf)).or_else(|| leaves.next())
}

impl PointwiseMap {
    /// `function` of the leaves of `domain`, found by the names of its arguments (where it has one argument and the domain one leaf, whatever they
    /// are called), as a real field `result` at the same places. A [`Leaf::vector`] of one place among others counts for all their places.
    ///
    /// # Errors
    /// [`OperatorError::Pointwise`], [`OperatorError::Fit`] where leaves do not fit arguments or are at different places.
    pub fn new(name: &str, function: Pointwise, domain: &Space, result: &str) -> Result<Self, OperatorError> {
        let Some(main) = main_of(domain.leaves().map(|(_, leaf)| leaf)) else {
            return Err(OperatorError::invalid(name, "a pointwise function of no leaf has no places"));
        };
        let target = Leaf { values: Values::Real, components: function.width(), ..main.clone() };
        let target = Space::of(result, target)?;
        Self::onto(name, function, domain, &target)
    }

    /// The same with a `target` of one leaf, which may be complex.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn onto(name: &str, function: Pointwise, domain: &Space, target: &Space) -> Result<Self, OperatorError> {
        let order = order(name, &function, domain)?;
        let map = PointwiseMap {
            name: name.into(),
            function: function.reordered(&order),
            domain: domain.clone(),
            target: target.clone(),
        };
        map.check()?;
        Ok(map)
    }

    fn check(&self) -> Result<(), OperatorError> {
        let sides = [(&self.domain, self.function.arguments()), (&self.target, self.function.results())];
        let main = self.main();
        for (side, (space, arguments)) in sides.into_iter().enumerate() {
            if space.len() != arguments.len() {
                let why = format!("{} leaves for {} values of the function", space.len(), arguments.len());
                return Err(OperatorError::invalid(&self.name, why));
            }
            for ((leaf_name, leaf), argument) in space.leaves().zip(arguments) {
                let fault = |why: String| {
                    let (operator, leaf) = (self.name.clone(), leaf_name.to_string());
                    Err(OperatorError::Fit { operator, leaf, why })
                };
                if width(leaf) != argument.width {
                    return fault(format!("it is {leaf}, `{}` has {} numbers", argument.name, argument.width));
                }
                if leaf.values == Values::Complex && leaf.components > 1 {
                    return fault("complex vectors; make each component a leaf".into());
                }
                if matches!(leaf.support, Support::Parameters { .. }) {
                    return fault("parameters are on the host; bring them to the device first".into());
                }
                let Some(other) = main else { continue };
                let places = leaf.support == other.support || (side == 0 && is_single(leaf) && leaf.numbers() == 1);
                if !places || leaf.batch != other.batch {
                    return fault(format!(
                        "it is {leaf}, and another value of the function is {other}: not the same places"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same under another name.
    #[must_use]
    pub fn named(mut self, name: String) -> Self {
        self.name = name;
        self
    }

    /// The function.
    pub fn function(&self) -> &Pointwise {
        &self.function
    }

    /// What it is a function of.
    pub fn domain(&self) -> &Space {
        &self.domain
    }

    /// What it gives.
    pub fn target(&self) -> &Space {
        &self.target
    }

    /// The leaf at whose places it is computed.
    pub fn main(&self) -> Option<&Leaf> {
        main_of(self.domain.leaves().chain(self.target.leaves()).map(|(_, leaf)| leaf))
    }

    /// How the leaves of the domain and of the target lie.
    pub fn forms(&self) -> [Vec<Form>; 2] {
        let single = self.main().is_none_or(is_single);
        let form = |leaf: &Leaf| match leaf.values {
            Values::Complex => Form::Pairs,
            Values::Real if is_single(leaf) && !single => Form::Uniform,
            Values::Real => Form::Apart,
        };
        [&self.domain, &self.target].map(|space| space.leaves().map(|(_, leaf)| form(leaf)).collect())
    }

    /// Values of a component of a leaf, and those of one batch.
    pub fn places(&self) -> [u64; 2] {
        self.main().map_or([0, 0], |leaf| [leaf.places() * leaf.batch, leaf.places()])
    }

    /// The function that gives the leaves of `space` back, or none where it cannot.
    pub fn identity(space: &Space) -> Option<Self> {
        let argument = |(name, leaf): (&str, &Leaf)| Argument { name: name.into(), width: width(leaf) };
        let function = Pointwise::identity(space.leaves().map(argument).collect());
        let map = PointwiseMap { name: "identity".into(), function, domain: space.clone(), target: space.clone() };
        map.check().ok().map(|()| map)
    }

    /// `next` of its results, as one function.
    ///
    /// # Errors
    /// [`OperatorError::Fit`] when `next` takes something else.
    pub fn then(&self, next: &PointwiseMap) -> Result<Self, OperatorError> {
        next.domain.admits(&self.target, &next.name)?;
        let from: Vec<usize> = (0..next.domain.len()).collect();
        let function = self.function.followed_by(&next.function, &from);
        let name = format!("{} -> {}", self.name, next.name);
        Ok(PointwiseMap { name, function, domain: self.domain.clone(), target: next.target.clone() })
    }

    /// Both, of the leaves of both; leaves of one name are one. None where they are functions of different places.
    ///
    /// # Errors
    /// [`OperatorError::Fit`] for leaves of one name that differ; [`OperatorError::Space`] for results of one name.
    pub fn beside(&self, other: &PointwiseMap) -> Result<Option<Self>, OperatorError> {
        let name = format!("({}, {})", self.name, other.name);
        let domain = self.domain.joined(&other.domain, &name)?;
        let target =
            Space::new(self.target.leaves().chain(other.target.leaves()).map(|(name, leaf)| (name, leaf.clone())))?;
        let shared: Vec<Option<usize>> = other.domain.names().map(|name| self.domain.position(name)).collect();
        let function = self.function.beside(&other.function, &shared);
        let names: Vec<&str> = self
            .domain
            .names()
            .chain(other.domain.names().filter(|name| self.domain.position(name).is_none()))
            .collect();
        let place = |name: &str| names.iter().position(|other| *other == name);
        let order: Vec<usize> = domain.names().filter_map(place).collect();
        let results: Vec<&str> = self.target.names().chain(other.target.names()).collect();
        let place = |name: &str| results.iter().position(|other| *other == name);
        let kept: Vec<usize> = target.names().filter_map(place).collect();
        let function = function.reordered(&order).with_results(&kept);
        let map = PointwiseMap { name, function, domain, target };
        Ok(map.check().is_ok().then_some(map))
    }

    /// The same function between spaces whose leaves have other names, in the same order.
    pub fn renamed(&self, domain: &Space, target: &Space) -> Self {
        PointwiseMap { domain: domain.clone(), target: target.clone(), ..self.clone() }
    }
}

/// Which argument of the function each leaf of the domain is.
fn order(name: &str, function: &Pointwise, domain: &Space) -> Result<Vec<usize>, OperatorError> {
    let arguments = function.arguments();
    if arguments.len() == 1 && domain.len() == 1 {
        return Ok(vec![0]);
    }
    if let Some(argument) = arguments.iter().find(|argument| domain.position(&argument.name).is_none()) {
        return Err(OperatorError::missing(name, &argument.name, domain));
    }
    let place = |leaf: &str| {
        let found = arguments.iter().position(|argument| argument.name == leaf);
        found.ok_or_else(|| {
            let error = PointwiseError::Mismatch(format!("the function has no argument for the leaf `{leaf}`"));
            OperatorError::Pointwise { operator: name.into(), error }
        })
    };
    domain.names().map(place).collect()
}
