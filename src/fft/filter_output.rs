//! The output of filters: fields, or the numbers of vectors.

use super::core::Limits;
use super::error::FftError;
use super::plan::{Plan, Route};

/// The output of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterOutput {
    /// A field for each result.
    Fields,
    /// A field of vectors, whose numbers are the results.
    Vectors,
}

impl FilterOutput {
    /// Returns the fused route of a plan, if it has one.
    pub fn fused(self, plan: &Plan, results: u32, limits: Limits, pieces: u64) -> Result<Option<Route>, FftError> {
        match self {
            FilterOutput::Fields => plan.filter(results, limits, pieces),
            FilterOutput::Vectors => plan.vector_filter(results, limits, pieces),
        }
    }

    /// Returns the route from the modes to a result.
    pub fn inverse(self, plan: &Plan, limits: Limits, pieces: u64) -> Result<Route, FftError> {
        match self {
            FilterOutput::Fields => Ok(plan.inverse.clone()),
            FilterOutput::Vectors => plan.inverse_to_vectors(limits, pieces),
        }
    }
}
