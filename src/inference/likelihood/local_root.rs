//! Square roots of metrics that are the derivative of no function.

use std::rc::Rc;

use crate::gpu::{Array, Kernel, KernelSource, RawArray};
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

/// The gradient of an energy by the values of a model.
pub(super) trait Score {
    /// Records the gradient at `s` in `y`.
    fn of(&self, rank: &mut Rank, s: &Vector, y: &mut Vector) -> Result<(), OperatorError>;
}

impl Score for Model {
    fn of(&self, rank: &mut Rank, s: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.apply(rank, s, y)
    }
}

/// The gradient of the categorical energy, or products with the roots of its metric.
pub(super) struct Categorical {
    space: Space,
    data: Array<f32>,
    weights: Option<Array<f32>>,
    is_score: bool,
    kernel: Kernel,
}

impl Categorical {
    /// Creates it for one of the flags of the kernel.
    pub fn new(flag: &str, space: &Space, data: &Vector, weights: Option<&Vector>) -> Result<Self, OperatorError> {
        Ok(Categorical {
            space: space.clone(),
            data: data.array("data")?.clone(),
            weights: weights.map(|weights| weights.array("weight").cloned()).transpose()?,
            is_score: flag == "score",
            kernel: Kernel::trusted(source(flag, weights.is_some())),
        })
    }

    /// Records the product of `u` with the root at `s`; the gradient has no `u`.
    fn record(&self, rank: &mut Rank, s: &Vector, u: Option<&Vector>, y: &Vector) -> Result<(), OperatorError> {
        let Some((_, leaf)) = self.space.only() else { return Ok(()) };
        let params = CategoricalParams { count: leaf.places() as u32, classes: leaf.components };
        let second = match u {
            Some(u) if !self.is_score => u.single()?,
            _ => &self.data,
        };
        let mut arrays: Vec<&RawArray> = vec![s.single()?.raw(), second.raw()];
        arrays.extend(self.weights.as_ref().map(Array::raw));
        arrays.push(y.single()?.raw());
        Ok(rank.recorder.each(&self.kernel, &arrays, &params, leaf.places())?)
    }
}

impl Score for Categorical {
    fn of(&self, rank: &mut Rank, s: &Vector, y: &mut Vector) -> Result<(), OperatorError> {
        self.record(rank, s, None, y)
    }
}

enum Form {
    /// Factors of each value as a function of the point.
    Diagonal(Model),
    /// The right and the left root.
    Categorical(Box<[Categorical; 2]>),
}

/// An operator without a value; its derivative is a right square root of a metric.
pub(super) struct LocalRoot {
    signature: Signature,
    form: Rc<Form>,
}

impl LocalRoot {
    /// Creates the root of a diagonal metric from the model of its factors.
    pub fn diagonal(factors: Model) -> Self {
        let space = factors.target();
        LocalRoot { signature: Signature::new(NAME, space, space), form: Rc::new(Form::Diagonal(factors)) }
    }

    /// Creates the root of the categorical metric.
    pub fn categorical(right: Categorical, left: Categorical) -> Self {
        let signature = Signature::new(NAME, &right.space, &right.space);
        LocalRoot { signature, form: Rc::new(Form::Categorical(Box::new([right, left]))) }
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
        let kept = match &*self.form {
            Form::Diagonal(factors) => factors.value(rank, x)?,
            Form::Categorical(_) => x.clone(),
        };
        Ok(Box::new(At { form: self.form.clone(), kept }))
    }

    fn constants(&self, rank: &mut Rank, out: &mut Fingerprint) -> Result<(), OperatorError> {
        match &*self.form {
            Form::Diagonal(factors) => factors.identify(rank, out),
            Form::Categorical(sides) => {
                let Some((_, leaf)) = self.signature.domain.only() else { return Ok(()) };
                let [side, _] = &**sides;
                let arrays = std::iter::once(&side.data).chain(&side.weights);
                arrays.into_iter().try_for_each(|array| out.array(rank, leaf, array))
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
    form: Rc<Form>,
    kept: Vector,
}

impl At {
    fn record(&self, rank: &mut Rank, u: &Vector, y: &Vector, side: usize) -> Result<(), OperatorError> {
        match &*self.form {
            Form::Diagonal(_) => rank.vector_product(&self.kept, u, y),
            Form::Categorical(sides) => sides[side].record(rank, &self.kept, Some(u), y),
        }
    }
}

impl Linearized for At {
    fn jvp(&self, rank: &mut Rank, dx: &Vector, dy: &mut Vector) -> Result<(), OperatorError> {
        self.record(rank, dx, dy, 0)
    }

    fn vjp(&self, rank: &mut Rank, dy: &Vector, dx: &mut Vector) -> Result<(), OperatorError> {
        self.record(rank, dy, dx, 1)
    }
}
