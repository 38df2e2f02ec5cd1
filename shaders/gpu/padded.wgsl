// A place in workgroup memory with a word left out behind each BANKS: words that lie a power of two
// apart are in different banks.

fn padded(at: u32) -> u32 { return at + at / BANKS; }
