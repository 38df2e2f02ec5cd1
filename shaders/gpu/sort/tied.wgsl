// Which neighbours of a sorted array of codes need more than the code: keys of a code that is exact are equal.
//
// A run is what has one code that is not exact. It is long if all of an aligned BLOCK of keys belongs to it; others have at
// most 2 BLOCK - 2 keys.

#import gpu::sort::two_words

fn code_at(i: u32) -> u32 { return load_codes(i) & params.code_mask; }

/// Whether keys with this code equal a splitter, or splitters around them are so near that all keys between have codes of their own.
fn is_exact(code: u32) -> bool {
    if load_sample(2u * params.splitters) == 0u { return false; }
    let found = code >> params.inner_bits;
    if (code & ((1u << params.inner_bits) - 1u)) == 0u { return true; }
    if found == 0u || found + 1u == params.splitters { return false; }
    let below = vec2<u32>(load_sample(found), load_sample(params.splitters + found));
    let above = vec2<u32>(load_sample(found + 1u), load_sample(params.splitters + found + 1u));
    let span = minus(above, below);
    return span.x == 0u && (span.y >> params.inner_bits) == 0u;
}
