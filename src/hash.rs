//! A hash that is the same on every host and in every build, unlike the standard library's: 64-bit FNV-1a.

/// The hash of no bytes.
pub(crate) const START: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash of the bytes that have the hash `hash` followed by `bytes`.
pub(crate) fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
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
    }
}
