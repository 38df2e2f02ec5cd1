//! Energies: a term of two floats for each datum, and their exact sum.

use super::data::{Data, Weighted};
use crate::gpu::{Array, Kernel, KernelSource, RawArray, TWO_FLOATS};
use crate::inference::error::{InferenceError, Result};
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
    /// Creates the energy of a kind for `classes` values of the model at each place.
    pub fn new(data: &Data<'_>, (kind, dof): (&str, f64), classes: u32, weighted: &Weighted) -> Result<Self> {
        let (numbers, weights) = weighted.arrays()?;
        let (count, weight) = (data.leaf.entries() as u32, weighted.uniform as f32);
        Ok(Energy {
            name: data.name.into(),
            leaf: data.leaf.clone(),
            data: numbers,
            kernel: Kernel::trusted(source(kind, weights.is_some())),
            weights,
            params: EnergyParams { count, classes, dof: dof as f32, weight, nothing: 0 },
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
    pub fn of(&self, rank: &mut Rank, s: &Array<f32>) -> Result<f64> {
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
