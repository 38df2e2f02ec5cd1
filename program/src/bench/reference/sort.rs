//! A sort of keys with their index, by rayon.

use rayon::prelude::*;

/// Name of the reference in reports.
pub const NAME: &str = "rayon, par_sort_by_key of (u64, u32)";

/// Sorts by the key; equal ones keep their order.
pub fn by_key(pairs: &mut [(u64, u32)]) {
    pairs.par_sort_by_key(|pair| pair.0);
}
