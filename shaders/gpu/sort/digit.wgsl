// The digit of a key that one pass sorts by.

#import gpu::sort::ordered

fn digit(key: u32) -> u32 { return (ordered(key) >> params.shift) & params.mask; }
