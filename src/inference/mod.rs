//! Inference: what data say about the latent values of a model, and how sure that is.
//!
//! Latent values are standard normal a priori; the model contains all prior knowledge. Samples
//! around a mean approximate the posterior: of a Gaussian (MGVI, Knollmüller & Ensslin 2019), or
//! bent by a coordinate transformation (geoVI, Frank, Leike & Ensslin 2021).
//!
//! | item | what it is |
//! |---|---|
//! | [`CorrelatedField`], [`FieldPrior`] | a field whose power spectrum is inferred with it, as an operator of latent values |
//! | [`Likelihood`], [`Data`] | what data say of a model: Gaussian, Poisson and other densities of data, and their sums |
//! | [`Prior`] | numbers of other distributions, as operators of standard normal ones |
//! | [`VectorSpace`] | operations of algorithms on vectors |
//! | [`Fit`], [`FitOptions`] | a fit: iterations with options of each, progress, state that survives a kill |
//! | [`Sampler`], [`Algorithm`] | chains whose draws follow the posterior: NUTS, HMC, MCLMC |
//! | [`effective_sample_size`], [`split_r_hat`] | how far chains tell about the posterior |
//! | [`wiener_filter`], [`WienerFilter`] | linear models with Gaussian noise, in one call |
//! | [`evidence`] | how probable the data are under a model, with bounds |
//! | [`Expansion`], [`Excitations`] | draws samples about a position |
//! | [`Samples`], [`SampleGroups`] | samples, dealt to groups of ranks |
//! | [`Convergence`], [`SampleOutcome`] | how well samples are solved |
//! | [`Footprint`] | the memory that a fit takes, known before it runs |
//! | [`Identity`] | fingerprints of a likelihood, by which a state and other ranks know it |
//! | [`Kl`], [`Curvature`] | the energy averaged over samples, which a fit minimizes, and its metric |
//! | [`newton_cg`], [`conjugate_gradient`] | minimizers |
//! | [`Preconditioner`] | what makes conjugate gradients take fewer steps |
//! | [`LogLikelihood`], [`LogLikelihoodAt`] | `-ln p(data \| x)` with its gradient, Fisher metric and the metric's square roots |

mod conjugate_gradient;
mod correlated_field;
mod device_directions;
mod device_steps;
mod diagnostics;
mod draw;
mod error;
mod evidence;
mod field_preconditioners;
mod fields;
mod fit;
mod footprint;
mod groups;
mod kl;
mod likelihood;
mod log_likelihood;
mod newton_cg;
mod preconditioner;
mod priors;
mod report;
mod sampler;
mod samples;
mod schedule;
mod solve;
mod state;
mod state_file;
mod vector_space;
mod wiener_filter;

pub use conjugate_gradient::{CgOptions, CgOutcome, CgStop, Metric, NormOrder, Precondition};
pub use correlated_field::{AmplitudePrior, AxesPrior, CorrelatedField, FieldPrior, MaternScale, PriorSpectrum};
pub use diagnostics::{effective_sample_size, split_r_hat};
pub use draw::{Excitation, Excitations, Excited, Expansion};
pub use error::InferenceError;
pub use evidence::{Evidence, EvidenceOptions, evidence};
pub use fit::{Fit, FitEnd, FitOptions, Progress};
pub use footprint::Footprint;
pub use groups::SampleGroups;
pub use kl::{Curvature, Kl};
pub use likelihood::{Data, DataSetReport, Likelihood, MetricCheck, NoiseLevel, check_metric};
pub use log_likelihood::{EnergyTerms, FieldPreconditioner, Identity, LogLikelihood, LogLikelihoodAt};
pub use newton_cg::{NewtonOptions, NewtonOutcome, NewtonStep, NewtonStop, Objective, ObjectiveAt, newton_cg};
pub use preconditioner::{Preconditioner, Preconditioning};
pub use priors::Prior;
pub use report::{Convergence, IterationReport, SampleOutcome};
pub use sampler::{Algorithm, DrawStatistics, Draws, Sampler, SamplerOptions, SamplerStep};
pub use samples::{Draw, SampleFunction, Samples, Sampling};
pub use schedule::{IterationOptions, Schedule};
pub use solve::conjugate_gradient;
pub use state_file::Existing;
pub use vector_space::{
    AddDirections, CgVectors, Directions, Elementwise, Reduction, Share, SolveStep, Staged, StepLimits, StepScalars,
    StepUpdate, StepsEnd, Stream, VectorSpace,
};
pub use wiener_filter::{WienerFilter, wiener_filter};

use crate::gpu::KernelSource;

/// Returns the kernels of the room.
pub(crate) fn kernels() -> Vec<KernelSource> {
    [
        correlated_field::kernels(),
        device_directions::kernels(),
        device_steps::kernels(),
        likelihood::kernels(),
        field_preconditioners::kernels(),
        fields::kernels(),
    ]
    .concat()
}
