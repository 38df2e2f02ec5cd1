//! Inference: what data say about the latent values of a model, and how sure that is.
//!
//! Latent values are standard normal a priori; all prior knowledge is in the model. The posterior is approximated by samples around a mean: by a
//! Gaussian (MGVI) or one bent by a coordinate transformation (geoVI), of Knollmüller & Ensslin (2019) and Frank, Leike & Ensslin (2021).
//!
//! | item | what it is |
//! |---|---|
//! | [`VectorSpace`], [`Host`] | what algorithms do with vectors: fields of a [`Worker`](crate::operators::Worker), or f64 on the host |
//! | [`LogLikelihood`], [`LogLikelihoodAt`] | `-ln p(data \| x)` with its gradient, Fisher metric and the metric's square roots |

mod error;
mod log_likelihood;
mod vector_space;

pub use error::InferenceError;
pub use log_likelihood::{LogLikelihood, LogLikelihoodAt};
pub use vector_space::{Host, Reduction, Staged, Stream, VectorSpace};
