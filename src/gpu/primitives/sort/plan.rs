//! What a sort does: digits, tiles and bytes. Pure.

/// How keys are ranked. Results are the same in every form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// For software renderers: one invocation sorts one large tile serially, by a digit of 8 bits that it counts in
    /// private memory.
    Software,
    /// For any GPU: a workgroup sorts a tile by a digit of 8 bits, in two steps of 4, in workgroup memory.
    Portable,
    /// For GPUs with subgroups of 4 to 128 invocations: ballots find equal digits of 8 bits.
    Subgroups,
}

/// Bits of a digit at most.
const WIDEST: u32 = 8;

/// The bits of a word that one pass sorts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digit {
    pub shift: u32,
    pub bits: u32,
}

/// The digits of a word of which the `bits` lowest differ: as few as can be, of nearly equal widths, lowest first.
/// There is one at least.
pub(super) fn digits(bits: u32) -> Vec<Digit> {
    let bits = bits.clamp(1, 32);
    let passes = bits.div_ceil(WIDEST);
    let mut shift = 0;
    let widths = (0..passes).map(|pass| (bits + pass) / passes);
    widths
        .map(|bits| {
            shift += bits;
            Digit { shift: shift - bits, bits }
        })
        .collect()
}

/// Consecutive keys that are ranked together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    pub number: u32,
    pub len: u32,
}

/// Keys of a serial tile at least: with fewer, counting digits costs more than more tiles gain.
const SHORTEST: u32 = 1024;
/// Keys of a serial tile at most: llvmpipe silently ends all loops of an invocation after 65,535 iterations in all.
const LONGEST: u32 = 1 << 15;

/// The tiles of `keys` keys; `group` is the workgroup of a GPU's form. A software renderer gets two vectors of 8 for
/// each of its `threads`.
pub(super) fn tiles(form: Form, group: u32, threads: u32, keys: u32) -> Tiles {
    match form {
        Form::Software => {
            let most = threads.saturating_mul(16).clamp(32, 512);
            let number = (keys / SHORTEST).clamp(1, most).max(keys.div_ceil(LONGEST));
            Tiles { number, len: keys.div_ceil(number) }
        }
        Form::Portable | Form::Subgroups => Tiles { number: keys.div_ceil(group * 16), len: group * 16 },
    }
}

/// Whether 64-bit keys are sorted by their high words first, in the hope that few of those are equal: when there are at
/// most 4 keys for every value they can have.
pub(super) fn high_first(high_bits: u32, keys: u32) -> bool {
    high_bits + 2 >= u32::BITS - keys.leading_zeros()
}

/// Bytes that passes over these digits read and write; the `first` of them read no indices.
pub(super) fn traffic(digits: &[Digit], tiles: Tiles, keys: u64, first: bool) -> u64 {
    let words = digits.iter().enumerate().map(|(k, digit)| {
        let index = u64::from(!(first && k == 0));
        // Counting, then keys and indices in and out; the table is written, scanned (two reads, a write) and read.
        keys * (1 + 1 + index + 2) + (u64::from(tiles.number) << digit.bits) * 5
    });
    4 * words.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_cover_a_word_without_gaps() {
        for bits in 0..=40 {
            let digits = digits(bits);
            let mut at = 0;
            for digit in &digits {
                assert!(digit.shift == at && (1..=WIDEST).contains(&digit.bits), "{bits}: {digits:?}");
                at += digit.bits;
            }
            assert_eq!(at, bits.clamp(1, 32));
            assert_eq!(digits.len() as u32, bits.clamp(1, 32).div_ceil(WIDEST));
        }
    }

    #[test]
    fn tiles_cover_their_keys() {
        for form in [Form::Software, Form::Portable, Form::Subgroups] {
            for keys in [1, 31, 1023, 2047, 2048, 2049, 70_000, 1 << 20, u32::MAX - 1] {
                let tiles = tiles(form, 128, 2, keys);
                assert!(u64::from(tiles.number) * u64::from(tiles.len) >= u64::from(keys), "{form:?} {keys}");
                assert!(tiles.number > 0 && tiles.len <= LONGEST, "{form:?} {keys}");
            }
        }
    }

    #[test]
    fn the_high_word_alone_is_tried_when_it_can_tell_keys_apart() {
        assert!(high_first(31, 1 << 20) && high_first(19, 1 << 20) && high_first(1, 4));
        assert!(!high_first(18, 1 << 20) && !high_first(8, 70_000));
    }
}
