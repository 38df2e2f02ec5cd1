//! Hashes that are the same on every host and in every build, unlike the standard library's: 64-bit
//! FNV-1a of bytes, and a mixed number of a number.

/// The hash of no bytes.
pub(crate) const START: u64 = 0xcbf2_9ce4_8422_2325;

/// Returns the hash of the bytes that have the hash `hash` followed by `bytes`.
pub(crate) fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Returns the next number of SplitMix64 (Steele, Lea & Flood 2014) in the state `x`: each bit
/// depends on all of `x`.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Returns the number of a value's bits at a site, of which sums identify values and places in any
/// order.
pub(crate) fn placed(site: u64, bits: u64) -> u64 {
    // Mixed twice, so that a site and the bits of a value cannot cancel each other.
    mix(mix(site) ^ bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_are_met() {
        assert_eq!(fnv1a(START, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(START, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(START, b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a(fnv1a(START, b"foo"), b"bar"), fnv1a(START, b"foobar"));
        // The first number of the generator with seed 0, as Java's SplittableRandom and others have
        // it.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    }
}
