//! Square roots of metrics that are the derivative of no function.

use std::rc::Rc;

use super::data::Weighted;
use crate::gpu::{Array, Kernel, KernelSource};
use crate::grid::Cost;
use crate::operators::{
    Differentiable, Fingerprint, Linearized, Model, OperatorCost, OperatorError, Signature, Space, Vector,
};
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct CategoricalParams {
        count: u32,
        classes: u32,
    }
}

const FLAGS: [&str; 3] = ["score", "right", "left"];

fn source(flag: &str, weighted: bool) -> KernelSource {
    let text = KernelSource::new("inference::categorical", include_str!("../../../shaders/inference/categorical.wgsl"))
        .params::<CategoricalParams>()
        .flag("weighted", weighted);
    FLAGS.into_iter().fold(text, |text, other| text.flag(other, other == flag))
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    FLAGS.into_iter().flat_map(|flag| [false, true].map(|weighted| source(flag, weighted))).collect()
}

/// The gradient of the categorical energy, and products with the roots of its metric.
pub(super) struct Categorical {
    space: Space,
    data: Array<f32>,
    weights: Option<Array<f32>>,
    /// In the order of [`FLAGS`].
    kernels: [Kernel; 3],
}

impl Categorical {
    /// Creates it for models that give the leaf of `space`.
    pub fn new(space: &Space, weighted: &Weighted) -> Result<Rc<Self>, OperatorError> {
        let data = weighted.data.single()?.clone();
        let weights = weighted.weights.as_ref().map(|weights| weights.single().cloned()).transpose()?;
        let kernels = FLAGS.map(|flag| Kernel::trusted(source(flag, weights.is_some())));
        Ok(Rc::new(Categorical { space: space.clone(), data, weights, kernels }))
    }

    fn record(&self, rank: &mut Rank, kernel: &Kernel, [s, second, y]: [&Array<f32>; 3]) -> Result<(), OperatorError> {
        let Some((_, leaf)) = self.space.only() else { return Ok(()) };
        let params = CategoricalParams { count: leaf.places() as u32, classes: leaf.components };
        let arrays: Vec<_> = [s, second].into_iter().chain(&self.weights).chain([y]).map(Array::raw).collect();
        Ok(rank.recorder.each(kernel, &arrays, &params, leaf.places())?)
    }

    /// Records the gradient at `s` in `y`.
    pub fn score(&self, rank: &mut Rank, s: &Vector, y: &Vector) -> Result<(), OperatorError> {
        self.record(rank, &self.kernels[0], [s.single()?, &self.data, y.single()?])
    }
}

enum Form {
    /// Factors of each value as a function of the point.
    Diagonal(Model),
    Categorical(Rc<Categorical>),
}

/// An operator without a value; its derivative is a right square root of a metric.
pub(super) struct LocalRoot {
    signature: Signature,
    form: Form,
}

impl LocalRoot {
    /// Creates the root of a diagonal metric from the model of its factors.
    pub fn diagonal(factors: Model) -> Self {
        let space = factors.target();
        LocalRoot { signature: Signature::new(NAME, space, space), form: Form::Diagonal(factors) }
    }

    /// Creates the root of the categorical metric.
    pub fn categorical(categorical: &Rc<Categorical>) -> Self {
        let space = &categorical.space;
        LocalRoot { signature: Signature::new(NAME, space, space), form: Form::Categorical(categorical.clone()) }
    }
}

const NAME: &str = "root of the metric";

impl Differentiable for LocalRoot {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn apply(&self, _rank: &mut Rank, _x: &Vector, _y: &mut Vector) -> Result<(), OperatorError> {
        Err(OperatorError::Invalid { operator: NAME.into(), why: "it has a derivative and no value".into() })
    }

    fn linearize(
        self: Rc<Self>,
        rank: &mut Rank,
        x: &Vector,
        _y: &mut Vector,
    ) -> Result<Box<dyn Linearized>, OperatorError> {
        let kept = match &self.form {
            Form::Diagonal(factors) => factors.value(rank, x)?,
            Form::Categorical(_) => x.clone(),
        };
        Ok(Box::new(At { root: self, kept }))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        match &self.form {
            Form::Diagonal(factors) => factors.identify(rank, out),
            Form::Categorical(own) => {
                let Some((_, leaf)) = self.signature.domain.only() else { return Ok(()) };
                [&own.data].into_iter().chain(&own.weights).try_for_each(|array| out.array(rank, leaf, array))
            }
        }
    }

    fn cost(&self) -> OperatorCost {
        let call = Cost::kernels(1, 12 * self.signature.domain.own_numbers());
        OperatorCost { apply: call, jvp: call, vjp: call }
    }
}

/// The root at a point: its factors, or the point.
struct At {
    root: Rc<LocalRoot>,
    kept: Vector,
}

impl At {
    /// Records the product of `u` with the right root, or with the left one.
    fn record(&self, rank: &mut Rank, u: &Vector, y: &mut Vector, is_left: bool) -> Result<(), OperatorError> {
        match &self.root.form {
            Form::Diagonal(_) => rank.vector_multiply(1.0, [&self.kept, u], 0.0, y),
            Form::Categorical(own) => {
                let kernel = &own.kernels[1 + usize::from(is_left)];
                own.record(rank, kernel, [self.kept.single()?, u.single()?, y.single()?])
            }
        }
    }
}

impl Linearized for At {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.record(rank, dx, dy, false)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.record(rank, dy, dx, true)
    }
}
