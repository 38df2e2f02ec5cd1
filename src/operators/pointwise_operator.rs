//! Pointwise functions between vectors: the assignment of leaves to arguments.

use std::cell::OnceCell;

use super::pointwise::Form;
use super::{
    Argument, Leaf, OperatorError, Pointwise, PointwiseError, Result, Signature, Space, Support, Vector, refuse,
};
use crate::fft::Values;
use crate::gpu::Kernel;

/// A pointwise function of vectors, with one kernel for the value and one for each derivative.
/// Chains become one kernel ([`Model::then`](super::Model::then)). Derivatives compute the value
/// again, so only the arguments are kept. Functions of parameters are computed on the host in f64.
pub struct PointwiseOperator {
    pub(super) signature: Signature,
    /// Its results are the leaves of the target.
    pub(super) function: Pointwise,
    /// Handles of arguments that are not varied.
    pub(super) constants: Vec<Vector>,
    /// The kernels of the value and the derivatives, made when they are first called.
    pub(super) calls: [OnceCell<Call>; 4],
}

/// The kernels of an evaluation, and the arrays that they read.
pub(super) struct Call {
    /// Elements are numbers, or pairs.
    pub plain: Kernel,
    /// Elements are four numbers; `None` with pairs or numbers for all places.
    pub quads: Option<Kernel>,
    /// Indices of the arrays among the given ones, arguments first.
    pub read: Vec<usize>,
}

/// Returns the components of the values of a leaf as a function sees them.
pub(super) fn width(leaf: &Leaf) -> u32 {
    match leaf.values {
        Values::Real => leaf.components,
        // A complex number is a vector of two.
        Values::Complex => 2 * leaf.components,
    }
}

/// Returns `true` for a vector of one place, which counts for all places of the other leaves.
fn is_single(leaf: &Leaf) -> bool {
    matches!(leaf.support, Support::Vector { len: 1 })
}

/// Returns the leaf whose places the function runs over: the first that is not a single number.
fn main_of<'a>(mut leaves: impl Iterator<Item = &'a Leaf> + Clone) -> Option<&'a Leaf> {
    leaves.clone().find(|leaf| !is_single(leaf)).or_else(|| leaves.next())
}

fn parsed(text: &str, name: &str) -> Result<Pointwise> {
    Pointwise::new(text, name).map_err(|error| OperatorError::Pointwise { operator: name.into(), error })
}

impl PointwiseOperator {
    /// Creates the operator of the function `name` in `text`. Leaves of `domain` are arguments by
    /// name; a single leaf may have another name than a single argument. A [`Leaf::vector`] of one
    /// place counts for all places of the other leaves. The result is a real leaf `result` at the
    /// same places.
    ///
    /// # Errors
    /// - [`OperatorError::Pointwise`] with the line of a construct that is not supported.
    /// - [`OperatorError::Fit`] for leaves that do not match arguments, or at different places.
    pub fn wgsl(text: &str, name: &str, domain: &Space, result: &str) -> Result<Self> {
        let function = parsed(text, name)?;
        let target = target_of(name, &function, domain, result)?;
        Self::bound(name, function, domain, None, &target)
    }

    /// Creates the operator with a `target` of one leaf, which may be complex.
    ///
    /// # Errors
    /// - Same as [`wgsl`](Self::wgsl).
    pub fn wgsl_onto(text: &str, name: &str, domain: &Space, target: &Space) -> Result<Self> {
        Self::bound(name, parsed(text, name)?, domain, None, target)
    }

    /// Creates the operator with the leaves of `constants` as fixed arguments, which derivatives do
    /// not vary. It keeps handles: later changes of the constants change the operator.
    ///
    /// ```no_run
    /// # use meshloom::operators::{OperatorError, PointwiseOperator, Space, Vector};
    /// # fn body(log_flux: &Space, exposure: &Vector) -> Result<(), OperatorError> {
    /// let text = "fn counts(log_flux: f32, exposure: f32) -> f32 { return exposure * exp(log_flux); }";
    /// let counts = PointwiseOperator::wgsl_with(text, "counts", log_flux, exposure, "counts")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - Same as [`wgsl`](Self::wgsl).
    pub fn wgsl_with(text: &str, name: &str, domain: &Space, constants: &Vector, result: &str) -> Result<Self> {
        let function = parsed(text, name)?;
        let target = target_of(name, &function, domain, result)?;
        Self::bound(name, function, domain, Some(constants), &target)
    }

    /// Returns the function of the leaves of the domain, and then of the constants.
    #[must_use]
    pub fn function(&self) -> &Pointwise {
        &self.function
    }

    /// Creates the operator of `function` with the leaves of `constants` as further arguments, by
    /// name.
    pub(super) fn bound(
        name: &str,
        function: Pointwise,
        domain: &Space,
        constants: Option<&Vector>,
        target: &Space,
    ) -> Result<Self> {
        let named: Vec<&str> = constants.iter().flat_map(|field| field.space().names()).collect();
        let order = order(name, &function, domain, &named)?;
        let signature = Signature::new(name.to_string(), domain, target);
        let operator = Self::new(signature, function.reordered(&order), constants.into_iter().cloned().collect());
        operator.check()?;
        Ok(operator)
    }

    fn new(signature: Signature, function: Pointwise, constants: Vec<Vector>) -> Self {
        PointwiseOperator { signature, function, constants, calls: std::array::from_fn(|_| OnceCell::new()) }
    }

    fn check(&self) -> Result<()> {
        let given: Vec<(&str, &Leaf)> = self.signature.domain.leaves().chain(self.constant_leaves()).collect();
        let results: Vec<(&str, &Leaf)> = self.signature.target.leaves().collect();
        let sides = [(given, self.function.arguments()), (results, self.function.results())];
        let main = self.main();
        for (side, (leaves, arguments)) in sides.into_iter().enumerate() {
            if leaves.len() != arguments.len() {
                let why = format!("{} leaves for {} values of the function", leaves.len(), arguments.len());
                return refuse(&self.signature.name, why);
            }
            for ((leaf_name, leaf), argument) in leaves.into_iter().zip(arguments) {
                let fault = |why: String| {
                    let (operator, leaf) = (self.signature.name.to_string(), leaf_name.to_string());
                    Err(OperatorError::Fit { operator, leaf, why })
                };
                if width(leaf) != argument.width {
                    return fault(format!("it is {leaf}, `{}` has {} numbers", argument.name, argument.width));
                }
                if leaf.values == Values::Complex && leaf.components > 1 {
                    return fault("complex vectors; make each component a leaf".into());
                }
                let Some(other) = main else { continue };
                if leaf.is_on_host() && (!other.is_on_host() || leaf.fields() > 1) {
                    return fault("parameters are on the host; bring them to the device first".into());
                }
                let counts_for_all = side == 0 && is_single(leaf) && leaf.numbers() == 1 && !other.is_on_host();
                let places = leaf.support == other.support || counts_for_all;
                if !places || leaf.batch != other.batch {
                    return fault(format!(
                        "it is {leaf}, and another value of the function is {other}: not the same places"
                    ));
                }
            }
        }
        Ok(())
    }

    fn constant_leaves(&self) -> impl Iterator<Item = (&str, &Leaf)> + Clone {
        self.constants.iter().flat_map(|field| field.space().leaves())
    }

    /// Returns the leaf at whose places the function is computed.
    pub(super) fn main(&self) -> Option<&Leaf> {
        let leaves = self.signature.domain.leaves().chain(self.constant_leaves()).chain(self.signature.target.leaves());
        main_of(leaves.map(|(_, leaf)| leaf))
    }

    /// Returns `true` if the leaves are parameters on the host.
    pub(super) fn is_on_host(&self) -> bool {
        self.main().is_some_and(Leaf::is_on_host)
    }

    /// Returns the forms of the leaves of the domain and the constants, and of the target.
    pub(super) fn forms(&self) -> [Vec<Form>; 2] {
        let single = self.main().is_none_or(is_single);
        let form = |leaf: &Leaf| match leaf.values {
            Values::Complex => Form::Pairs,
            Values::Real if is_single(leaf) && !single => Form::Uniform,
            Values::Real => Form::Apart,
        };
        let given = self.signature.domain.leaves().chain(self.constant_leaves());
        [
            given.map(|(_, leaf)| form(leaf)).collect(),
            self.signature.target.leaves().map(|(_, leaf)| form(leaf)).collect(),
        ]
    }

    /// Returns the number of values of a component of a leaf, and of one field of a batch.
    pub(super) fn places(&self) -> [u64; 2] {
        self.main().map_or([0, 0], |leaf| [leaf.entries(), leaf.places()])
    }

    /// Returns the identity on `space`; `None` if its leaves are at different places or on the
    /// host.
    pub(super) fn identity(space: &Space) -> Option<Self> {
        let argument = |(name, leaf): (&str, &Leaf)| Argument { name: name.into(), width: width(leaf) };
        let function = Pointwise::identity(space.leaves().map(argument).collect());
        let identity = Self::new(Signature::new("identity", space, space), function, Vec::new());
        identity.check().ok().map(|()| identity)
    }

    /// Returns `next` after this function, as one function.
    pub(super) fn then(&self, next: &Self) -> Result<Self> {
        next.signature.domain.admits(&self.signature.target, &next.signature.name)?;
        let refused = |error| OperatorError::Pointwise { operator: next.signature.name.clone().into_owned(), error };
        let function = self.function.then(&next.function).map_err(refused)?;
        let name = format!("{} -> {}", self.signature.name, next.signature.name);
        let constants = [&self.constants[..], &next.constants].concat();
        Ok(Self::new(Signature::new(name, &self.signature.domain, &next.signature.target), function, constants))
    }

    /// Returns both side by side as one function; leaves of one name are shared. `None` if they are
    /// functions of different places.
    pub(super) fn beside(&self, other: &Self) -> Result<Option<Self>> {
        let name = format!("({}, {})", self.signature.name, other.signature.name);
        let domain = self.signature.domain.joined(&other.signature.domain, &name)?;
        let target = self.signature.target.beside(&other.signature.target)?;
        let own = |name: &str| self.signature.domain.position(name);
        let fixed = |map: &PointwiseOperator| map.constant_leaves().count();
        let shared: Vec<Option<usize>> =
            other.signature.domain.names().map(own).chain(std::iter::repeat_n(None, fixed(other))).collect();
        let function = self.function.beside(&other.function, &shared);
        // The present arguments: by name in the domain; constants have no name.
        let more = other.signature.domain.names().filter(|name| own(name).is_none()).map(Some);
        let unnamed = |map: &PointwiseOperator| std::iter::repeat_n(None, fixed(map));
        let names: Vec<Option<&str>> =
            self.signature.domain.names().map(Some).chain(unnamed(self)).chain(more).chain(unnamed(other)).collect();
        let place = |name: &str| names.iter().position(|other| *other == Some(name));
        let unnamed = (0..names.len()).filter(|&at| names[at].is_none());
        let order: Vec<usize> = domain.names().filter_map(place).chain(unnamed).collect();
        let results: Vec<&str> = self.signature.target.names().chain(other.signature.target.names()).collect();
        let place = |name: &str| results.iter().position(|other| *other == name);
        let kept: Vec<usize> = target.names().filter_map(place).collect();
        let function = function.reordered(&order).with_results(&kept);
        let constants = [&self.constants[..], &other.constants].concat();
        let both = Self::new(Signature { name: name.into(), domain, target }, function, constants);
        Ok(both.check().is_ok().then_some(both))
    }

    /// Renames leaves. Leaf `i` of the new domain and target was number `orders[..][i]`.
    pub(super) fn renamed(&self, [domain, target]: [&Space; 2], orders: [&[usize]; 2]) -> Self {
        let constants = domain.len()..self.function.arguments().len();
        let arguments: Vec<usize> = orders[0].iter().copied().chain(constants).collect();
        let signature = Signature::new(self.signature.name.clone(), domain, target);
        Self::new(signature, self.function.reordered(&arguments).with_results(orders[1]), self.constants.clone())
    }
}

/// Returns one real leaf of this name at the places of `domain`, with the components of the
/// function.
fn target_of(name: &str, function: &Pointwise, domain: &Space, result: &str) -> Result<Space> {
    match main_of(domain.leaves().map(|(_, leaf)| leaf)) {
        Some(main) => Space::of(result, Leaf { values: Values::Real, components: function.width(), ..main.clone() }),
        None => refuse(name, "a pointwise function of no leaf has no places"),
    }
}

/// Returns the number of the argument of each leaf of the domain and then of each constant.
fn order(name: &str, function: &Pointwise, domain: &Space, constants: &[&str]) -> Result<Vec<usize>> {
    let arguments = function.arguments();
    let of_name = |leaf: &str| {
        let found = arguments.iter().position(|argument| argument.name == leaf);
        found.ok_or_else(|| {
            let error = PointwiseError::Mismatch(format!("the function has no argument for the leaf `{leaf}`"));
            OperatorError::Pointwise { operator: name.into(), error }
        })
    };
    let constant = constants.iter().map(|leaf| of_name(leaf)).collect::<Result<Vec<_>, _>>()?;
    let varied: Vec<usize> = (0..arguments.len()).filter(|at| !constant.contains(at)).collect();
    if varied.len() == 1 && domain.len() == 1 {
        return Ok([varied, constant].concat());
    }
    if let Some(&at) = varied.iter().find(|&&at| domain.position(&arguments[at].name).is_none()) {
        return Err(OperatorError::missing(name, &arguments[at].name, domain));
    }
    if let Some(leaf) = domain.names().find(|leaf| constants.contains(leaf)) {
        let why = "it is a constant of the function, too; give one of them another name";
        return Err(OperatorError::Fit { operator: name.into(), leaf: leaf.into(), why: why.into() });
    }
    domain.names().map(of_name).chain(constant.iter().map(|&at| Ok(at))).collect()
}
