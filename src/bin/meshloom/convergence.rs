//! What `infer` and `reconstruct` say of samples that are not solved for.

use meshloom::inference::IterationReport;

/// The warning that samples of the last iteration are not those of the posterior, with what to do; none where all have converged.
pub fn warning(last: Option<&IterationReport>, advice: &str) -> Option<String> {
    let last = last.filter(|last| last.sampling.unconverged > 0)?;
    Some(format!(
        "meshloom: warning: conjugate gradients have not converged after {} steps for {} of the {} samples, whose deviations may be many times too large; {advice}",
        last.sampling.steps, last.sampling.unconverged, last.samples
    ))
}
