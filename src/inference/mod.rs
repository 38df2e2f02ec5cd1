//! Inference: what data say about the latent values of a model, and how sure that is.
//!
//! Latent values are standard normal a priori; all prior knowledge is in the model. The posterior is approximated by samples around a mean: by a
//! Gaussian (MGVI) or one bent by a coordinate transformation (geoVI), of Knollmüller & Ensslin (2019) and Frank, Leike & Ensslin (2021).
//!
//! | item | what it is |
//! |---|---|
//! | [`VectorSpace`], [`Host`] | what algorithms do with vectors: fields of a [`Worker`](crate::operators::Worker), or f64 on the host |
//! | [`OptimizeKl`] | a fit: options of each iteration, progress, state that survives a kill |
//! | [`wiener_filter`] | linear models with Gaussian noise, in one call |
//! | [`Expansion`], [`Excitations`] | draws samples about a position |
//! | [`Samples`], [`SampleGroups`] | samples, dealt to groups of ranks |
//! | [`Kl`] | the energy averaged over samples, which a fit minimises |
//! | [`newton_cg`], [`conjugate_gradient`] | minimisers |
//! | [`LogLikelihood`], [`LogLikelihoodAt`] | `-ln p(data \| x)` with its gradient, Fisher metric and the metric's square roots |

mod conjugate_gradient;
mod draw;
mod error;
mod excitation;
mod fields;
mod groups;
mod kl;
mod log_likelihood;
mod newton_cg;
mod optimize_kl;
mod report;
mod residual;
mod samples;
mod state;
mod tree;
mod vector_space;
mod wiener_filter;

pub use conjugate_gradient::{CgOptions, CgOutcome, CgStop, Metric, NormOrder, conjugate_gradient};
pub use draw::{Draw, Sampling};
pub use error::InferenceError;
pub use excitation::{Excitation, Excitations, Excited};
pub use groups::SampleGroups;
pub use kl::Kl;
pub use log_likelihood::{LogLikelihood, LogLikelihoodAt};
pub use newton_cg::{NewtonOptions, NewtonOutcome, NewtonStep, NewtonStop, Objective, ObjectiveAt, newton_cg};
pub use optimize_kl::{Fit, FitEnd, IterationOptions, OptimizeKl, Progress};
pub use report::IterationReport;
pub use residual::Expansion;
pub use samples::{SampleFunction, Samples};
pub use vector_space::{Host, Reduction, Staged, Stream, VectorSpace};
pub use wiener_filter::wiener_filter;
