// Which neighbors of a sorted array of codes need more than the code: keys of a code that is exact
// are equal.
//
// A run is what has one code that is not exact. It is long if all of an aligned BLOCK of keys
// belongs to it; others have at most 2 BLOCK - 2 keys.

#import gpu::sort::exact

// What counts of a word. Codes from a sample have nothing above them but EXACT, which equal codes
// share, so that one word tells all; other codes have any bits above, and none is exact.
var<private> counting: u32;

fn set_counting() { counting = select(params.code_mask, 0xffffffffu, load_sample(2u * params.splitters) > 0u); }

fn code_at(i: u32) -> u32 { return load_codes(i) & counting; }

/// Returns `true` if keys with this code may differ.
fn leaves_open(code: u32) -> bool { return code < EXACT; }
