//! What is told of an iteration.

use std::fmt;

use super::convergence::Convergence;
use super::error::InferenceError;
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::newton_cg::NewtonStop;
use super::samples::Samples;
use super::vector_space::VectorSpace;

/// An iteration of a fit. As text it is one line.
#[derive(Clone, Debug, PartialEq)]
pub struct IterationReport {
    /// Its number, from 0 on.
    pub iteration: u32,
    /// Samples, both signs of each pair.
    pub samples: usize,
    /// Whether conjugate gradients converged that drew them.
    pub sampling: Convergence,
    /// The energy, averaged over samples: a bound of `-ln p(data)`, up to constants.
    pub energy: f64,
    /// Steps of the position.
    pub steps: u64,
    /// Applications of the averaged metric for them.
    pub applications: u64,
    /// Why these ended. With [`NewtonStop::NoDescent`] the position is none to rely on.
    pub stop: NewtonStop,
    /// Reduced chi-squared of the data whose likelihood has normalized residuals, and of the latent values, averaged over samples: 1 is to be expected, but for data of
    /// Student's t distribution ([`Likelihood::student_t`](super::Likelihood::student_t)).
    pub chi_squared: [Option<f64>; 2],
    /// Time it took.
    pub seconds: f64,
    /// Groups of ranks that had no sample.
    pub idle: usize,
}

impl fmt::Display for IterationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IterationReport {
            iteration,
            samples,
            sampling,
            energy,
            steps,
            applications,
            stop,
            chi_squared,
            seconds,
            idle,
        } = self;
        write!(
            f,
            "iteration {iteration}: energy {energy:.6e}, {samples} samples, {steps} steps, {applications} metrics"
        )?;
        for (what, chi_squared) in ["data", "latent"].into_iter().zip(chi_squared) {
            if let Some(chi_squared) = chi_squared {
                write!(f, ", chi2/dof {what} {chi_squared:.3}")?;
            }
        }
        write!(f, ", {seconds:.2} s")?;
        if *stop == NewtonStop::NoDescent {
            write!(f, ", no step lowers the energy")?;
        }
        if sampling.unconverged > 0 {
            write!(f, ", {} samples not converged after {} steps", sampling.unconverged, sampling.steps)?;
        }
        if *idle > 0 { write!(f, ", {idle} groups idle") } else { Ok(()) }
    }
}

impl IterationReport {
    /// Why what a fit has found with this iteration as its last one is not to be relied on, a sentence for each reason. `expected` is what the likelihood says
    /// ([`LogLikelihood::expected_chi_squared`]); of the most probable place, which follows noise, only the upper end counts.
    ///
    /// Samples that have not converged are told by [`sampling`](Self::sampling).
    pub fn doubts(&self, expected: Option<[f64; 2]>) -> Vec<String> {
        let mut doubts = Vec::new();
        if self.stop == NewtonStop::NoDescent {
            doubts.push(
                "the last iteration ended where no step lowers the energy, though the minimum is elsewhere: the position is none to rely on".into(),
            );
        }
        if let (Some([least, most]), [Some(found), _]) = (expected, self.chi_squared) {
            let least = if self.samples > 0 { least } else { 0.0 };
            if !(least..=most).contains(&found) {
                let why = match found < least {
                    true => "noise is less than was said",
                    false => "the model does not follow the data, or noise is more than was said",
                };
                doubts.push(format!(
                    "the reduced chi-squared of the data is {found:.3e}, where {least:.2} to {most:.2} are to be expected: {why}"
                ));
            }
        }
        doubts
    }

    /// Reduced chi-squared of data and latent values over all samples. All ranks of all groups call it.
    pub(super) fn chi_squared<S: VectorSpace>(
        space: &mut S,
        likelihood: &dyn LogLikelihood<S>,
        groups: &SampleGroups,
        samples: &Samples<S>,
    ) -> Result<[Option<f64>; 2], InferenceError> {
        let terms = samples.terms();
        let (mut data, mut latent) = (Vec::new(), Vec::new());
        for sample in groups.block(terms) {
            let place = samples.at(space, sample)?;
            if let Some((residual, count)) = likelihood.normalized_residual(space, &place)? {
                // A model that is as far away as that is reported, and no error: the energy decides.
                let square = match space.dot(&residual, &residual) {
                    Err(InferenceError::NotFinite { value, .. }) => value.abs(),
                    square => square?,
                };
                data.push(square / count.max(1) as f64);
            }
            latent.push(space.dot(&place, &place)? / space.len(&place).max(1) as f64);
        }
        let [data, latent] = [groups.gather(&data)?, groups.gather(&latent)?];
        let mean =
            |values: Vec<f64>| (!values.is_empty()).then(|| crate::map::tree::tree_sum(&values) / values.len() as f64);
        Ok([mean(data), mean(latent)])
    }
}
