//! How many entries the lists of `knn_list.wgsl` have: kernels are compiled for some lengths only.

/// Entries that a list can have; longer ones take several passes.
pub const LENGTHS: [u32; 7] = [1, 2, 4, 8, 16, 24, 32];

/// The longest list.
pub const LONGEST: u32 = LENGTHS[LENGTHS.len() - 1];

/// The shortest list that holds `k` entries, at most the longest there is.
pub fn length(k: u32) -> u32 {
    LENGTHS.into_iter().find(|&length| length >= k).unwrap_or(LONGEST)
}
