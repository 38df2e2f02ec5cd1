//! Inference: what data say about the latent values of a model, and how sure that is.
//!
//! Latent values are standard normal a priori; all prior knowledge is in the model. The posterior is approximated by samples around a mean: by a
//! Gaussian (MGVI) or one bent by a coordinate transformation (geoVI), of Knollmüller & Ensslin (2019) and Frank, Leike & Ensslin (2021).
//!
//! | item | what it is |
//! |---|---|
//! | [`CorrelatedField`], [`FieldPrior`] | a field whose power spectrum is inferred with it, as an operator of latent values |
//! | [`Likelihood`], [`Data`] | what data say of a model: Gaussian, Poisson and other densities of data, and their sums |
//! | [`Prior`] | numbers of other distributions, as operators of standard normal ones |
//! | [`VectorSpace`], [`Host`] | what algorithms do with vectors: fields of a [`Rank`](crate::operators::Rank), or f64 on the host |
//! | [`OptimizeKl`] | a fit: options of each iteration, progress, state that survives a kill |
//! | [`wiener_filter`], [`WienerFilter`] | linear models with Gaussian noise, in one call |
//! | [`evidence`] | how probable the data are under a model, with bounds |
//! | [`Expansion`], [`Excitations`] | draws samples about a position |
//! | [`Samples`], [`SampleGroups`] | samples, dealt to groups of ranks |
//! | [`Convergence`], [`SampleOutcome`] | how well samples are solved |
//! | [`Footprint`] | the memory that a fit takes, known before it runs |
//! | [`Identity`] | fingerprints of a likelihood, by which a state and other ranks know it |
//! | [`Kl`] | the energy averaged over samples, which a fit minimises |
//! | [`newton_cg`], [`conjugate_gradient`] | minimisers |
//! | [`LogLikelihood`], [`LogLikelihoodAt`] | `-ln p(data \| x)` with its gradient, Fisher metric and the metric's square roots |

mod agreement;
mod conjugate_gradient;
mod convergence;
mod correlated_field;
mod draw;
mod error;
mod evidence;
mod excitation;
mod fields;
mod footprint;
mod groups;
mod identity;
mod kl;
mod likelihood;
mod log_likelihood;
mod newton_cg;
mod optimize_kl;
mod priors;
mod report;
mod residual;
mod samples;
mod schedule;
mod state;
mod state_layout;
mod tempered;
mod vector_space;
mod wiener_filter;

pub use conjugate_gradient::{CgOptions, CgOutcome, CgStop, Metric, NormOrder, conjugate_gradient};
pub use convergence::{Convergence, SampleOutcome};
pub use correlated_field::{AmplitudePrior, AxesPrior, CorrelatedField, FieldPrior, MaternScale, PriorSpectrum};
pub use draw::{Draw, Sampling};
pub use error::InferenceError;
pub use evidence::{Evidence, EvidenceOptions, evidence};
pub use excitation::{Excitation, Excitations, Excited};
pub use footprint::Footprint;
pub use groups::SampleGroups;
pub use identity::Identity;
pub use kl::Kl;
pub use likelihood::{Data, DataSetReport, Likelihood, LikelihoodAt, MetricCheck, NoiseLevel, check_metric};
pub use log_likelihood::{LogLikelihood, LogLikelihoodAt};
pub use newton_cg::{NewtonOptions, NewtonOutcome, NewtonStep, NewtonStop, Objective, ObjectiveAt, newton_cg};
pub use optimize_kl::{Fit, FitEnd, OptimizeKl, Progress};
pub use priors::Prior;
pub use report::IterationReport;
pub use residual::Expansion;
pub use samples::{SampleFunction, Samples};
pub use schedule::{IterationOptions, Schedule};
pub use vector_space::{Host, Reduction, Share, Staged, Stream, VectorSpace};
pub use wiener_filter::{WienerFilter, wiener_filter};

use crate::gpu::KernelSource;

/// The kernels of the room.
pub(crate) fn kernels() -> Vec<KernelSource> {
    [correlated_field::kernels(), likelihood::kernels()].concat()
}
