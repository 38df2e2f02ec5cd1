// The leading `params.code_bits` bits of a key, of all that count.

/// A number of two words without its `shift` lowest bits, if what is left fits one word.
fn shifted(key: vec2<u32>, shift: u32) -> u32 {
    if shift >= 32u { return key.x >> (shift - 32u); }
    return (key.y >> shift) | select(key.x << (32u - shift), 0u, shift == 0u);
}

fn leading_bits(key: vec2<u32>) -> u32 { return shifted(key, params.bits - params.code_bits); }
