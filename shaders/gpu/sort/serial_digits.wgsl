// Counts the keys of a tile by digit, in 512 bytes of private memory, where a word costs a tenth of
// one in a storage buffer.
//
// A word has the counts of two digits: a tile has fewer than 2^16 keys, and the time that lavapipe
// takes to compile a private array grows with the square of its length.

var<private> digit_counts: array<u32, 128>;

fn keys_with(digit: u32) -> u32 { return extractBits(digit_counts[digit / 2u], 16u * (digit % 2u), 16u); }

fn count_one(digit: u32) { digit_counts[digit / 2u] += 1u << (16u * (digit % 2u)); }
