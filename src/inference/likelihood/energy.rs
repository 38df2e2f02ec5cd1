//! Energies: a term of two floats for each datum, and their exact sum.

use crate::gpu::{Array, Kernel, KernelSource, RawArray, TWO_FLOATS};
use crate::inference::error::InferenceError;
use crate::operators::{Leaf, OperatorError, Space, Vector, VectorSum};
use crate::rank::Rank;

crate::gpu::kernel_params! {
    struct EnergyParams {
        count: u32,
        classes: u32,
        dof: f32,
        weight: f32,
        /// Always 0; a parameter so that the compiler does not fold it.
        nothing: u32,
    }
}

/// Kinds of likelihoods, by the flags of the kernel.
pub(super) const KINDS: [&str; 6] =
    ["gaussian", "poisson", "student", "gaussian_inferred", "student_inferred", "categorical"];

fn source(kind: &str, weighted: bool) -> KernelSource {
    let text = KernelSource::new("inference::energy", include_str!("../../../shaders/inference/energy.wgsl"))
        .params::<EnergyParams>()
        .module("gpu::two_floats", TWO_FLOATS)
        .flag("weighted", weighted);
    KINDS.into_iter().fold(text, |text, flag| text.flag(flag, flag == kind))
}

/// Returns the kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    KINDS.into_iter().flat_map(|kind| [false, true].map(|weighted| source(kind, weighted))).collect()
}

/// The energy of data as a function of the values of a model.
///
/// For each datum the kernel reads 8 bytes and the values of the model, and writes 8; the sum
/// reads 16.
pub(super) struct Energy {
    name: String,
    /// Places of the data.
    leaf: Leaf,
    data: Array<f32>,
    /// Weights of each datum.
    weights: Option<Array<f32>>,
    params: EnergyParams,
    kernel: Kernel,
}

impl Energy {
    /// Creates the energy of a kind; `uniform` has degrees of freedom, weight and number of
    /// classes.
    pub fn new(
        (name, kind): (&str, &str),
        leaf: &Leaf,
        data: &Vector,
        weights: Option<&Vector>,
        uniform: (f64, f64, u32),
    ) -> Result<Self, InferenceError> {
        let params = EnergyParams {
            count: leaf.entries() as u32,
            classes: uniform.2,
            dof: uniform.0 as f32,
            weight: uniform.1 as f32,
            nothing: 0,
        };
        Ok(Energy {
            name: name.into(),
            leaf: leaf.clone(),
            data: data.array("data")?.clone(),
            weights: weights.map(|weights| weights.array("weight").cloned()).transpose()?,
            params,
            kernel: Kernel::trusted(source(kind, weights.is_some())),
        })
    }

    /// Returns the terms whose sum is the energy. Records only.
    pub fn terms(&self, rank: &mut Rank, s: &Array<f32>) -> Result<Vector, OperatorError> {
        let space = Space::of("energy", self.leaf.clone().components(2))?;
        let found = Vector::new(&rank.gpu, &space)?;
        let terms = found.single()?;
        let mut arrays: Vec<&RawArray> = vec![s.raw(), self.data.raw()];
        arrays.extend(self.weights.as_ref().map(Array::raw));
        arrays.push(terms.raw());
        rank.recorder.each(&self.kernel, &arrays, &self.params, self.leaf.entries())?;
        Ok(found)
    }

    /// Computes the energy. Collective; blocks.
    pub fn of(&self, rank: &mut Rank, s: &Array<f32>) -> Result<f64, InferenceError> {
        let terms = self.terms(rank, s)?;
        match rank.vector_reductions(&[VectorSum::Values(&terms)]) {
            Ok(found) => Ok(found[0]),
            Err(OperatorError::NotFinite { value, .. }) => {
                InferenceError::finite(&format!("the energy of `{}`", self.name), value)
            }
            Err(error) => Err(error.into()),
        }
    }
}
