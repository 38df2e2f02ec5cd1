//! What `infer` and `reconstruct` say of fits that are not to be relied on.

use meshloom::inference::IterationReport;

/// The warning that samples of the last iteration are not those of the posterior, with what to do; none where all have converged.
pub fn warning(last: Option<&IterationReport>, advice: &str) -> Option<String> {
    let last = last.filter(|last| last.sampling.unconverged > 0)?;
    Some(format!(
        "conjugate gradients have not converged after {} steps for {} of the {} samples, whose deviations may be many times too large; {advice}",
        last.sampling.steps, last.sampling.unconverged, last.samples
    ))
}

/// The warnings that a fit with this last iteration has not found the posterior, with what to do. `expected` is what chi-squared may be.
pub fn doubts(last: Option<&IterationReport>, expected: Option<[f64; 2]>, advice: &str) -> Vec<String> {
    let doubts = last.map_or_else(Vec::new, |last| last.doubts(expected));
    doubts.into_iter().map(|why| format!("{why}; {advice}")).collect()
}
