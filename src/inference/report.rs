//! The report of an iteration.

use std::fmt;

use super::convergence::Convergence;
use super::error::InferenceError;
use super::groups::SampleGroups;
use super::log_likelihood::LogLikelihood;
use super::newton_cg::NewtonStop;
use super::samples::Samples;
use super::vector_space::VectorSpace;

/// The report of an iteration of a fit; its `Display` is one line.
#[derive(Clone, Debug, PartialEq)]
pub struct IterationReport {
    /// Number of the iteration, from 0 on.
    pub iteration: u32,
    /// Number of samples, both signs of each pair.
    pub samples: usize,
    /// How well these are solved.
    pub sampling: Convergence,
    /// The energy, averaged over samples, up to constants. It is no bound of `-ln p(data)`: the entropy of the samples is
    /// left out. Energies are comparable within an iteration, and between iterations only with the same samples.
    pub energy: f64,
    /// Newton steps of the position.
    pub steps: u64,
    /// Applications of the averaged metric for these steps.
    pub applications: u64,
    /// The reason why the steps ended. The position is unreliable after a failure ([`NewtonStop::is_failure`]).
    pub stop: NewtonStop,
    /// Reduced chi-squared of the data with normalized residuals and of the latent values, averaged over samples. About 1
    /// is expected, except for [`Likelihood::student_t`](super::Likelihood::student_t).
    pub chi_squared: [Option<f64>; 2],
    /// Duration in seconds.
    pub seconds: f64,
    /// Number of groups without a sample.
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
        match stop {
            NewtonStop::NoDescent => write!(f, ", no step lowers the energy")?,
            NewtonStop::NotPositive => write!(f, ", the metric has no positive curvature")?,
            _ => (),
        }
        let Convergence { unconverged, error_ratio, failed, limited, .. } = sampling;
        if *unconverged > 0 {
            write!(f, ", {unconverged} samples not converged (error up to {error_ratio:.1e} times the target)")?;
        }
        if *failed > 0 {
            write!(f, ", {failed} samples without descent")?;
        }
        if *limited > 0 {
            write!(f, ", {limited} samples bent in part (limit of steps)")?;
        }
        if *idle > 0 { write!(f, ", {idle} groups idle") } else { Ok(()) }
    }
}

impl IterationReport {
    /// Returns `true` if the position or the samples of this iteration are not solved.
    pub(super) fn is_doubtful(&self) -> bool {
        let Convergence { unconverged, failed, limited, .. } = self.sampling;
        unconverged + failed + limited > 0 || self.stop.is_failure()
    }

    /// Returns a sentence for each reason not to rely on a fit whose last iteration this is.
    ///
    /// `expected` is the range that the likelihood expects ([`LogLikelihood::expected_chi_squared`]). Without samples
    /// only its upper end counts, because the most probable place follows noise. [`Convergence::doubts`] covers the samples.
    pub fn doubts(&self, expected: Option<[f64; 2]>) -> Vec<String> {
        let mut doubts = Vec::new();
        let why = match self.stop {
            NewtonStop::NoDescent => Some("where no step lowers the energy, though the minimum is elsewhere"),
            NewtonStop::NotPositive => Some("where the metric has no positive curvature"),
            _ => None,
        };
        doubts.extend(why.map(|why| format!("the last iteration ended {why}: the position is unreliable")));
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

    /// Returns the reduced chi-squared of data and latent values over all samples. Collective over all groups.
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
                // An overflow here is reported and no error: the energy decides.
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
