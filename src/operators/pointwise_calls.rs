//! Pointwise functions on the device: one kernel for the value, one for each derivative.

use std::rc::Rc;

use super::pointwise::{Form, PointwiseParams, kernel};
use super::pointwise_operator::Call;
use super::{
    Contents, Differentiable, Fingerprint, Linearized, OperatorCost, Pointwise, PointwiseOperator, Result, Signature,
    Space, Vector,
};
use crate::exchange::Terms;
use crate::gpu::{Element, Kernel, RawArray};
use crate::grid::Cost;
use crate::rank::Rank;

/// A computation with a pointwise function.
#[derive(Clone, Copy)]
enum Evaluation {
    Value,
    /// The derivative times tangents.
    Jvp,
    /// Cotangents times the derivative.
    Vjp,
    /// The product of both, with tangents.
    Normal,
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
    /// Returns the function of an evaluation: of the arguments, and then of tangents or cotangents.
    fn function_of(&self, evaluation: Evaluation) -> Pointwise {
        let varied = self.domain().len();
        match evaluation {
            Evaluation::Value => self.function.clone(),
            Evaluation::Jvp => self.function.jvp_by(varied),
            Evaluation::Vjp => self.function.vjp_by(varied),
            Evaluation::Normal => self.function.normal_by(varied),
        }
    }

    fn call(&self, evaluation: Evaluation) -> &Call {
        self.calls[evaluation as usize].get_or_init(|| {
            let [given, results] = self.forms();
            let varied = &given[..self.domain().len()];
            let apart = varied.iter().map(|form| if *form == Form::Uniform { Form::Apart } else { *form });
            let (suffix, more, written) = match evaluation {
                Evaluation::Value => ("", &[][..], results.clone()),
                Evaluation::Jvp => (" (jvp)", varied, results.clone()),
                Evaluation::Vjp => (" (vjp)", &results[..], apart.collect()),
                Evaluation::Normal => (" (normal)", varied, varied.to_vec()),
            };
            let [count, places] = self.places();
            let (function, read) = (self.function_of(evaluation), [&given[..], more].concat());
            let source = |value| {
                let label = format!("operators::{}{suffix}", self.name());
                kernel(label, &function, [&read, &written], count != places, value)
            };
            let is_apart = read.iter().chain(&written).all(|form| *form == Form::Apart);
            // The library writes the texts: arithmetic of values at places below the count.
            let quads = is_apart.then(|| Kernel::trusted(source(Element::Vec4).0));
            let (plain, read) = source(Element::F32);
            Call { plain: Kernel::trusted(plain), quads, read }
        })
    }

    /// Records an evaluation at `x` with the tangents or cotangents `more`.
    fn record(
        &self,
        rank: &mut Rank,
        evaluation: Evaluation,
        (x, more): (&Vector, Option<&Vector>),
        out: &[RawArray],
    ) -> Result<()> {
        let ([count, places], Call { plain, quads, read }) = (self.places(), self.call(evaluation));
        let given: Vec<RawArray> = std::iter::once(x).chain(&self.constants).chain(more).flat_map(arrays).collect();
        let arrays: Vec<&RawArray> = read.iter().map(|&number| &given[number]).chain(out).collect();
        let quads = quads.as_ref().filter(|_| places.is_multiple_of(4));
        let (arrays, kernel, each) = match quads.and_then(|kernel| Some((RawArray::in_quads(&arrays)?, kernel))) {
            Some((arrays, kernel)) => (arrays, kernel, 4),
            None => (arrays.into_iter().cloned().collect(), plain, 1),
        };
        let [count, places] = [count, places].map(|numbers| numbers / each);
        let arrays: Vec<&RawArray> = arrays.iter().collect();
        let params = PointwiseParams { count: count as u32, places: places as u32 };
        Ok(rank.recorder.each(kernel, &arrays, &params, count)?)
    }

    /// Computes an evaluation of parameters on the host in f64.
    fn on_host(&self, evaluation: Evaluation, (x, more): (&Vector, Option<&Vector>), out: &mut Vector) {
        let function = self.function_of(evaluation);
        let given = std::iter::once(x).chain(&self.constants).chain(more).flat_map(Vector::contents);
        let given: Vec<&[f64]> = given.map(|contents| contents.on_host().unwrap_or_default()).collect();
        for place in 0..self.places()[1] as usize {
            let values: Vec<f64> = given.iter().map(|values| values[place]).collect();
            for (own, value) in out.contents_mut().iter_mut().zip(function.evaluate(&values)) {
                if let Contents::Host(own) = own {
                    own[place] = value;
                }
            }
        }
    }

    fn evaluate(
        &self,
        rank: &mut Rank,
        evaluation: Evaluation,
        given: (&Vector, Option<&Vector>),
        out: &mut Vector,
    ) -> Result<()> {
        if self.is_on_host() {
            self.on_host(evaluation, given, out);
            return Ok(());
        }
        self.record(rank, evaluation, given, &arrays(out))
    }

    fn cost_of(&self, evaluation: Evaluation, more: Option<&Space>, out: &Space) -> Cost {
        let constants = self.constants.iter().map(Vector::space);
        let spaces = std::iter::once(self.domain()).chain(constants).chain(more);
        let leaves: Vec<u64> = spaces.flat_map(|space| space.leaves()).map(|(_, leaf)| leaf.len()).collect();
        let read: u64 = self.call(evaluation).read.iter().map(|&number| leaves[number]).sum();
        Cost::kernels(1, 4 * (read + out.own_numbers()))
    }
}

impl Differentiable for PointwiseOperator {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<()> {
        self.fits(x, y)?;
        self.evaluate(rank, Evaluation::Value, (x, None), y)
    }

    fn linearize(self: Rc<Self>, rank: &mut Rank, x: &Vector, y: &mut Vector) -> Result<Box<dyn Linearized>> {
        self.apply(rank, x, y)?;
        self.derivative(rank, x)
    }

    fn derivative(self: Rc<Self>, _rank: &mut Rank, x: &Vector) -> Result<Box<dyn Linearized>> {
        self.domain().admits(x.space(), self.name())?;
        Ok(Box::new(At { operator: self, x: x.clone() }))
    }

    fn passed(&self, target: &str) -> Option<String> {
        let argument = self.function.passed(self.target().position(target)?)?;
        self.domain().names().nth(argument).map(str::to_string)
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<()> {
        let (lines, values) = self.function.wgsl(|argument, component| format!("a{argument}.{component}"));
        out.text(&lines);
        values.iter().for_each(|value| out.text(value));
        self.constants.iter().try_for_each(|constant| out.field(rank, constant))
    }

    fn cost(&self) -> OperatorCost {
        if self.is_on_host() {
            return OperatorCost::default();
        }
        let (domain, target) = (self.domain(), self.target());
        let mut vjp = self.cost_of(Evaluation::Vjp, Some(target), domain);
        let places = self.places()[1];
        for ((_, leaf), form) in domain.leaves().zip(&self.forms()[0]) {
            if *form == Form::Uniform {
                // Written at each place, read twice, with three passes for each sum.
                vjp += Cost::kernels(3 * leaf.len(), 12 * leaf.len() * places);
            }
        }
        OperatorCost {
            apply: self.cost_of(Evaluation::Value, None, target),
            jvp: self.cost_of(Evaluation::Jvp, Some(domain), target),
            vjp,
        }
    }

    fn as_pointwise(&self) -> Option<&PointwiseOperator> {
        Some(self)
    }
}

/// The derivative at `x`.
struct At {
    operator: Rc<PointwiseOperator>,
    x: Vector,
}

impl Linearized for At {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<()> {
        self.operator.fits(dx, dy)?;
        self.operator.evaluate(rank, Evaluation::Jvp, (&self.x, Some(dx)), dy)
    }

    fn normal(&self, rank: &mut Rank, dx: &Vector, out: &mut Vector) -> Result<bool> {
        let (operator, domain) = (&*self.operator, self.operator.domain());
        domain.admits(dx.space(), operator.name())?;
        domain.admits(out.space(), operator.name())?;
        // The cotangent of a number that counts for all places is a sum over them.
        if operator.forms()[0][..domain.len()].contains(&Form::Uniform) {
            return Ok(false);
        }
        operator.evaluate(rank, Evaluation::Normal, (&self.x, Some(dx)), out)?;
        Ok(true)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<()> {
        let (operator, given) = (&*self.operator, (&self.x, Some(dy)));
        operator.fits(dx, dy)?;
        if operator.is_on_host() {
            operator.on_host(Evaluation::Vjp, given, dx);
            return Ok(());
        }
        // A constant has no arguments, and a kernel without results is not valid.
        let Some(main) = operator.main().filter(|_| !operator.domain().is_empty()) else { return Ok(()) };
        // The cotangent of a number that counts for all places is computed at each place, then
        // summed.
        let (mut out, mut sums) = (arrays(dx), Vec::new());
        for (number, form) in operator.forms()[0][..operator.domain().len()].iter().enumerate() {
            if let (Form::Uniform, Contents::Device(own)) = (form, &dx.contents()[number]) {
                let apart = rank.gpu.array::<f32>("operators::uniform", own.len() * main.places())?;
                out[number] = apart.raw().clone();
                sums.push((apart, own.clone()));
            }
        }
        operator.record(rank, Evaluation::Vjp, given, &out)?;
        let total = main.total() / (main.fields() * main.numbers());
        for (apart, own) in sums {
            let terms = Terms { x: &apart, y: None, index: None, sums: 1, batches: own.len(), total };
            rank.record_sum(main.is_distributed(), &terms, &own)?;
        }
        Ok(())
    }
}
