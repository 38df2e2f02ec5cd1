//! Warnings of `infer` and `reconstruct` about fits that are not solved.

use meshloom::inference::{Convergence, IterationReport, Schedule};

/// Returns the warnings that samples of the last iteration are not solved. `remedies` are for conjugate gradients and for
/// Newton's method.
///
/// Bent samples may run out of steps before a fit can settle, because updates go on from there.
pub fn warnings(history: &[IterationReport], remedies: [&str; 2]) -> Vec<String> {
    let Some(last) = history.last() else { return Vec::new() };
    let limited = if history.len() < Schedule::LEAST { 0 } else { last.sampling.limited };
    let sampling = Convergence { limited, ..last.sampling };
    sampling.doubts(&format!("the {} samples", last.samples), remedies)
}

/// Returns the warnings that a fit with this last iteration has not found the posterior, each with `advice`. `expected`
/// is the range of reduced chi-squared.
pub fn doubts(last: Option<&IterationReport>, expected: Option<[f64; 2]>, advice: &str) -> Vec<String> {
    let doubts = last.map_or_else(Vec::new, |last| last.doubts(expected));
    doubts.into_iter().map(|why| format!("{why}; {advice}")).collect()
}
