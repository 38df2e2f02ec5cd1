// The leading `params.code_bits` bits of a key, of all that count.

#import gpu::sort::wide_key

fn leading_bits(key: vec2<u32>) -> u32 { return shifted(key, params.bits - params.code_bits); }

/// Returns the leading bits of a key by its number. Where the high word has all of them, the low
/// one is not read.
fn leading_bits_of(i: u32) -> u32 {
    let shift = params.bits - params.code_bits;
    if shift >= 32u { return (load_high(i) & params.high_mask) >> (shift - 32u); }
    return leading_bits(wide_key(i));
}
