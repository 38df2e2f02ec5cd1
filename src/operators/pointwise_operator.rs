//! Pointwise functions on the device: one kernel for the value, one for each derivative.

use std::cell::OnceCell;
use std::rc::Rc;

use super::error::OperatorError;
use super::fingerprint::Fingerprint;
use super::operator::{Differentiable, Linearized};
use super::pointwise::{Form, Pointwise, PointwiseParams, kernel};
use super::pointwise_map::{PointwiseMap, target_of};
use super::signature::{OperatorCost, Signature};
use super::space::Space;
use super::vector::{Contents, Vector};
use crate::exchange::Terms;
use crate::gpu::{Element, Kernel, RawArray};
use crate::grid::Cost;
use crate::rank::Rank;

/// A pointwise function of vectors, with one kernel for the value and one for each derivative.
/// Chains become one kernel ([`Model::then`](super::Model::then)). Derivatives compute the value
/// again, so only the arguments are kept. Functions of parameters are computed on the host in f64.
pub struct PointwiseOperator {
    map: PointwiseMap,
    apply: OnceCell<Call>,
    jvp: OnceCell<Call>,
    vjp: OnceCell<Call>,
    normal: OnceCell<Call>,
}

/// A kernel and the arrays that it reads.
struct Call {
    /// Of elements of a number each, or of pairs.
    plain: Kernel,
    /// Of elements of four numbers each, if there are no pairs and no numbers for all places.
    quads: Option<Kernel>,
    /// Indices of the arrays among the given ones, arguments first.
    read: Vec<usize>,
}

impl Call {
    fn new(label: String, function: &Pointwise, forms: [&[Form]; 2], batched: bool) -> Self {
        let source = |value| kernel(label.clone(), function, forms, batched, value);
        let is_apart = forms.into_iter().flatten().all(|form| *form == Form::Apart);
        let (plain, read) = source(Element::F32);
        // The library writes the text: arithmetic of values at places below the count.
        let quads = is_apart.then(|| Kernel::trusted(source(Element::Vec4).0));
        Call { plain: Kernel::trusted(plain), quads, read }
    }

    fn record(
        &self,
        rank: &mut Rank,
        map: &PointwiseMap,
        (x, more): (&Vector, Option<&Vector>),
        out: &[RawArray],
    ) -> Result<(), OperatorError> {
        let [count, places] = map.places();
        let given: Vec<RawArray> = std::iter::once(x).chain(map.constants()).chain(more).flat_map(arrays).collect();
        let arrays: Vec<&RawArray> = self.read.iter().map(|&number| &given[number]).chain(out).collect();
        let quads = self.quads.as_ref().filter(|_| places.is_multiple_of(4));
        let (arrays, kernel, each) = match quads.and_then(|kernel| Some((RawArray::in_quads(&arrays)?, kernel))) {
            Some((arrays, kernel)) => (arrays, kernel, 4),
            None => (arrays.into_iter().cloned().collect(), &self.plain, 1),
        };
        let [count, places] = [count, places].map(|numbers| numbers / each);
        let arrays: Vec<&RawArray> = arrays.iter().collect();
        let params = PointwiseParams { count: count as u32, places: places as u32 };
        Ok(rank.recorder.each(kernel, &arrays, &params, count)?)
    }
}

/// Returns the arrays of a vector as kernels see them: complex numbers as pairs.
fn arrays(field: &Vector) -> Vec<RawArray> {
    let array = |((_, leaf), contents): ((&str, &super::leaf::Leaf), &Contents)| match contents {
        Contents::Device(array) if leaf.numbers() == 2 => Some(array.raw().seen_as(Element::Complex32)),
        Contents::Device(array) => Some(array.raw().clone()),
        Contents::Host(_) => None,
    };
    field.space().leaves().zip(field.contents()).filter_map(array).collect()
}

impl PointwiseOperator {
    /// Creates the operator of a map.
    #[must_use]
    pub fn new(map: PointwiseMap) -> Self {
        let [apply, jvp, vjp, normal] = std::array::from_fn(|_| OnceCell::new());
        PointwiseOperator { map, apply, jvp, vjp, normal }
    }

    /// Creates the operator of the function `name` in `text`. Leaves of `domain` are arguments by
    /// name; the result is a real leaf `result` at the same places.
    ///
    /// # Errors
    /// - [`OperatorError::Pointwise`] with the line of a construct that is not supported.
    /// - [`OperatorError::Fit`] for leaves that do not match arguments.
    pub fn wgsl(text: &str, name: &str, domain: &Space, result: &str) -> Result<Self, OperatorError> {
        let function =
            Pointwise::new(text, name).map_err(|error| OperatorError::Pointwise { operator: name.into(), error })?;
        Ok(Self::new(PointwiseMap::new(name, function, domain, result)?))
    }

    /// Creates the operator with a `target` of one leaf, which may be complex.
    ///
    /// # Errors
    /// - Same as [`wgsl`](Self::wgsl).
    pub fn wgsl_onto(text: &str, name: &str, domain: &Space, target: &Space) -> Result<Self, OperatorError> {
        let function =
            Pointwise::new(text, name).map_err(|error| OperatorError::Pointwise { operator: name.into(), error })?;
        Ok(Self::new(PointwiseMap::onto(name, function, domain, target)?))
    }

    /// Creates the operator with the leaves of `constants` as fixed arguments, which derivatives do
    /// not vary. It keeps handles: later changes of the constants change the operator.
    ///
    /// ```no_run
    /// # fn body(log_flux: &meshloom::operators::Space, exposure: &meshloom::operators::Vector) ->
    /// Result<(), meshloom::operators::OperatorError> { use meshloom::operators::PointwiseOperator;
    ///
    /// let text = "fn counts(log_flux: f32, exposure: f32) -> f32 { return exposure *
    /// exp(log_flux); }"; let counts = PointwiseOperator::wgsl_with(text, "counts", log_flux,
    /// exposure, "counts")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - Same as [`wgsl`](Self::wgsl).
    pub fn wgsl_with(
        text: &str,
        name: &str,
        domain: &Space,
        constants: &Vector,
        result: &str,
    ) -> Result<Self, OperatorError> {
        let function =
            Pointwise::new(text, name).map_err(|error| OperatorError::Pointwise { operator: name.into(), error })?;
        let target = target_of(name, &function, domain, result)?;
        Ok(Self::new(PointwiseMap::bound(name, function, domain, Some(constants), &target)?))
    }

    /// Returns the assignment of leaves to arguments.
    pub fn map(&self) -> &PointwiseMap {
        &self.map
    }

    /// Computes `function` of the arguments and of the leaves of `more` in f64 if they are
    /// parameters on the host; otherwise returns `false`.
    fn on_host(
        &self,
        function: impl FnOnce() -> Pointwise,
        (x, more): (&Vector, Option<&Vector>),
        out: &mut Vector,
    ) -> bool {
        if !self.map.is_on_host() {
            return false;
        }
        let function = function();
        let given = std::iter::once(x).chain(self.map.constants()).chain(more).flat_map(Vector::contents);
        let given: Vec<&[f64]> = given.map(|contents| contents.on_host().unwrap_or_default()).collect();
        for place in 0..self.map.places()[1] as usize {
            let values: Vec<f64> = given.iter().map(|values| values[place]).collect();
            for (own, value) in out.contents_mut().iter_mut().zip(function.evaluate(&values)) {
                if let Contents::Host(own) = own {
                    own[place] = value;
                }
            }
        }
        true
    }

    fn batched(&self) -> bool {
        let [count, places] = self.map.places();
        count != places
    }

    fn label(&self, call: &str) -> String {
        format!("operators::{}{call}", self.map.name())
    }

    fn apply_call(&self) -> &Call {
        self.apply.get_or_init(|| {
            let [given, results] = self.map.forms();
            Call::new(self.label(""), self.map.function(), [&given, &results], self.batched())
        })
    }

    fn jvp_call(&self) -> &Call {
        self.jvp.get_or_init(|| {
            let [given, results] = self.map.forms();
            let given = [&given[..], &given[..self.map.domain().len()]].concat();
            Call::new(self.label(" (jvp)"), &self.map.jvp(), [&given, &results], self.batched())
        })
    }

    fn vjp_call(&self) -> &Call {
        self.vjp.get_or_init(|| {
            let [given, results] = self.map.forms();
            let all = [&given[..], &results].concat();
            let apart = given.iter().map(|form| if *form == Form::Uniform { Form::Apart } else { *form });
            let apart: Vec<Form> = apart.take(self.map.domain().len()).collect();
            Call::new(self.label(" (vjp)"), &self.map.vjp(), [&all, &apart], self.batched())
        })
    }

    fn normal_call(&self) -> &Call {
        self.normal.get_or_init(|| {
            let [given, _] = self.map.forms();
            let varied = &given[..self.map.domain().len()];
            let all = [&given[..], varied].concat();
            Call::new(self.label(" (normal)"), &self.map.normal(), [&all, varied], self.batched())
        })
    }

    fn call_cost(&self, call: &Call, more: Option<&Space>, out: &Space) -> Cost {
        let constants = self.map.constants().iter().map(Vector::space);
        let spaces = std::iter::once(self.map.domain()).chain(constants).chain(more);
        let leaves: Vec<u64> = spaces.flat_map(|space| space.leaves()).map(|(_, leaf)| leaf.len()).collect();
        let read: u64 = call.read.iter().map(|&number| leaves[number]).sum();
        Cost::kernels(1, 4 * (read + out.leaves().map(|(_, leaf)| leaf.len()).sum::<u64>()))
    }
}

impl Differentiable for PointwiseOperator {
    fn signature(&self) -> &Signature {
        self.map.signature()
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.fits(x, y)?;
        if self.on_host(|| self.map.function().clone(), (x, None), y) {
            return Ok(());
        }
        self.apply_call().record(rank, &self.map, (x, None), &arrays(y))
    }

    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        self.apply(rank, x, y)?;
        self.derivative(rank, x)
    }

    fn derivative(self: Rc<Self>, _rank: &mut Rank, x: &Vector) -> Result<Box<dyn Linearized>, OperatorError> {
        self.map.domain().admits(x.space(), self.map.name())?;
        Ok(Box::new(At { operator: self, x: x.clone() }))
    }

    fn passed(&self, target: &str) -> Option<String> {
        let argument = self.map.function().passed(self.map.target().position(target)?)?;
        self.map.domain().names().nth(argument).map(str::to_string)
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        let (lines, values) = self.map.function().wgsl(|argument, component| format!("a{argument}.{component}"));
        out.text(&lines);
        values.iter().for_each(|value| out.text(value));
        self.map.constants().iter().try_for_each(|constant| out.field(rank, constant))
    }

    fn cost(&self) -> OperatorCost {
        let (domain, target) = (self.map.domain(), self.map.target());
        if self.map.is_on_host() {
            return OperatorCost::default();
        }
        let mut vjp = self.call_cost(self.vjp_call(), Some(target), domain);
        let places = self.map.places()[1];
        for ((_, leaf), form) in domain.leaves().zip(&self.map.forms()[0]) {
            if *form == Form::Uniform {
                // Written at each place, read twice, with three passes for each sum.
                vjp += Cost::kernels(3 * leaf.len(), 12 * leaf.len() * places);
            }
        }
        OperatorCost {
            apply: self.call_cost(self.apply_call(), None, target),
            jvp: self.call_cost(self.jvp_call(), Some(domain), target),
            vjp,
        }
    }

    fn as_pointwise(&self) -> Option<&PointwiseMap> {
        Some(&self.map)
    }
}

/// The derivative at `x`.
struct At {
    operator: Rc<PointwiseOperator>,
    x: Vector,
}

impl Linearized for At {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.operator.fits(dx, dy)?;
        let map = &self.operator.map;
        if self.operator.on_host(|| map.jvp(), (&self.x, Some(dx)), dy) {
            return Ok(());
        }
        self.operator.jvp_call().record(rank, map, (&self.x, Some(dx)), &arrays(dy))
    }

    fn normal(&self, rank: &mut Rank, dx: &Vector, out: &mut Vector) -> Result<bool, OperatorError> {
        let map = &self.operator.map;
        map.domain().admits(dx.space(), map.name())?;
        map.domain().admits(out.space(), map.name())?;
        if self.operator.on_host(|| map.normal(), (&self.x, Some(dx)), out) {
            return Ok(true);
        }
        // The cotangent of a number that counts for all places is a sum over them.
        if map.forms()[0][..map.domain().len()].contains(&Form::Uniform) {
            return Ok(false);
        }
        self.operator.normal_call().record(rank, map, (&self.x, Some(dx)), &arrays(out))?;
        Ok(true)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.operator.fits(dx, dy)?;
        let map = &self.operator.map;
        // A constant has no arguments, and a kernel without results is not valid.
        if map.domain().is_empty() || self.operator.on_host(|| map.vjp(), (&self.x, Some(dy)), dx) {
            return Ok(());
        }
        // The cotangent of a number that counts for all places is computed at each place, then
        // summed.
        let [_, places] = map.places();
        let (mut out, mut sums) = (arrays(dx), Vec::new());
        for (number, form) in map.forms()[0][..map.domain().len()].iter().enumerate() {
            if let (Form::Uniform, Contents::Device(own)) = (form, &dx.contents()[number]) {
                let apart = rank.gpu.array::<f32>("operators::uniform", own.len() * places)?;
                out[number] = apart.raw().clone();
                sums.push((apart, own.clone()));
            }
        }
        self.operator.vjp_call().record(rank, map, (&self.x, Some(dy)), &out)?;
        let Some(main) = map.main() else { return Ok(()) };
        let total = main.total() / (main.fields() * main.numbers());
        for (apart, own) in sums {
            let terms = Terms { x: &apart, y: None, index: None, sums: 1, batches: own.len(), total };
            let sum = rank.exact_sums();
            let (recorder, comm) = (&mut rank.recorder, &rank.comm);
            sum.record(recorder, main.is_distributed().then_some(comm), &terms, &own)?;
        }
        Ok(())
    }
}
