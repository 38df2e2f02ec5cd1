//! Directions of a preconditioner, which are treated one by one.

use super::error::Result;

/// The directions `w` of a preconditioner with its inverses on them.
///
/// To `P r` they add what it lacks: `(inner o + coarse (o + f)) w` over the other parts with
/// `o = w.r` there, where `P r` has `r / scale`, and `coarse (o + f) w` over fields with `f = w.r`
/// there.
#[derive(Clone, Debug)]
pub struct Directions<V> {
    /// The directions.
    pub vectors: Vec<V>,
    /// Names of the parts of fields.
    pub fields: Vec<String>,
    /// Names of the other parts.
    pub others: Vec<String>,
    /// About the metric of the other parts in the remaining directions.
    pub scale: f64,
    /// The inverse over the other parts, row by row.
    pub inner: Vec<Vec<f64>>,
    /// The inverse over all parts, row by row.
    pub coarse: Vec<Vec<f64>>,
}

/// Directions that are where vectors are, so that no product with them waits for the host.
pub trait AddDirections<S, V> {
    /// Adds to `out` what directions add to `P r`; records only. Numbers of `r` that are not finite
    /// make those of `out` NaN.
    ///
    /// # Errors
    /// - Errors of the vector space.
    fn add(&self, space: &mut S, r: &V, out: &mut V) -> Result<()>;
}

impl<V> Directions<V> {
    /// Returns the number of directions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.len()
    }
}
