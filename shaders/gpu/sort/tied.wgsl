// Which neighbours of a sorted array of codes need more than the code: keys of a code that is exact are equal.
//
// A run is what has one code that is not exact. It is long if all of an aligned BLOCK of keys belongs to it; others have at
// most 2 BLOCK - 2 keys.

#import gpu::sort::exact

fn code_at(i: u32) -> u32 { return load_codes(i) & params.code_mask; }

/// Whether codes were made from a sample; others say nothing of being exact, and have any bits above.
fn are_from_sample() -> bool { return load_sample(2u * params.splitters) > 0u; }

/// Whether the keys with the code at `i` are equal, for codes from a sample.
fn is_exact(i: u32, from_sample: bool) -> bool { return from_sample && load_codes(i) >= EXACT; }
