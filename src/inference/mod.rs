//! Inference: what data say about the latent values of a model, and how sure that is.
//!
//! Latent values are standard normal a priori; all prior knowledge is in the model. The posterior is approximated by samples around a mean: by a
//! Gaussian (MGVI) or one bent by a coordinate transformation (geoVI), of Knollmüller & Ensslin (2019) and Frank, Leike & Ensslin (2021).
//!
//! | item | what it is |
//! |---|---|
//! | [`CorrelatedField`], [`FieldPrior`] | a field whose power spectrum is inferred with it, as an operator of latent values |
//! | [`Likelihood`], [`Data`] | what data say of a model: Gaussian, Poisson and other densities of data, and their sums |
//! | [`VectorSpace`], [`Host`] | what algorithms do with vectors: fields of a [`Worker`](crate::operators::Worker), or f64 on the host |
//! | [`LogLikelihood`], [`LogLikelihoodAt`] | `-ln p(data \| x)` with its gradient, Fisher metric and the metric's square roots |

mod correlated_field;
mod error;
mod likelihood;
mod log_likelihood;
mod vector_space;

pub use correlated_field::{AmplitudePrior, AxesPrior, CorrelatedField, FieldPrior, MaternScale, Spectrum};
pub use error::InferenceError;
pub use likelihood::{Data, DataSetReport, Likelihood, LikelihoodAt, MetricCheck, Noise, check_metric};
pub use log_likelihood::{LogLikelihood, LogLikelihoodAt};
pub use vector_space::{Host, Reduction, Staged, Stream, VectorSpace};

use crate::gpu::KernelSource;

/// The kernels of the room.
pub(crate) fn kernels() -> Vec<KernelSource> {
    [correlated_field::kernels(), likelihood::kernels()].concat()
}
