//! Pseudo-random numbers, different for every rank and the same in every run.

/// Pseudo-random values between -1 and 1, different for every rank.
pub fn values(count: u64, rank: usize) -> Vec<f32> {
    let mut state = (rank as u32).wrapping_mul(2_654_435_769).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count as usize).collect()
}

/// Random keys of so many bits, different for every rank.
pub fn keys(count: u64, bits: u32, rank: usize) -> Vec<u64> {
    let mut state = rank as u64;
    let next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) >> (64 - bits)
    };
    std::iter::repeat_with(next).take(count as usize).collect()
}
