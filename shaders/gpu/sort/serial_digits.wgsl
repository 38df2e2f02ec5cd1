// How many keys of a tile have had each digit so far, in 512 bytes of private memory, where a word
// costs a tenth of one of a storage buffer.
//
// A word has the numbers of two digits, because tiles have fewer than 2^16 keys, and because the
// time in which lavapipe compiles a private array grows as the square of its length.

var<private> digit_counts: array<u32, 128>;

fn keys_with(digit: u32) -> u32 { return extractBits(digit_counts[digit / 2u], 16u * (digit % 2u), 16u); }

fn count_one(digit: u32) { digit_counts[digit / 2u] += 1u << (16u * (digit % 2u)); }
