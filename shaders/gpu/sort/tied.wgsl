// Which neighbours of a sorted array of codes need more than the code: keys of a code that is exact are equal (codes.wgsl).
//
// A run is what has one code that is not exact. It is long if all of an aligned BLOCK of keys belongs to it; others have at
// most 2 BLOCK - 2 keys.

fn is_exact(code: u32) -> bool { return load_crowded(0u) > 0u && (code & ((1u << params.inner_bits) - 1u)) == 0u; }
