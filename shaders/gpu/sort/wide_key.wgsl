// Keys of two words, of which `params.high_mask` says which bits of the high one count.

#import gpu::sort::two_words

fn wide_key(i: u32) -> vec2<u32> { return vec2<u32>(load_high(i) & params.high_mask, load_low(i)); }
