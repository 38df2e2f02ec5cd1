// The leading `params.code_bits` bits of a key, of all that count.

#import gpu::sort::two_words

fn leading_bits(key: vec2<u32>) -> u32 { return shifted(key, params.bits - params.code_bits); }
