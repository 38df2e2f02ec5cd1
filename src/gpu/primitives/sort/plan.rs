//! Plan of a sort: digits, tiles and bytes. Pure.

/// Method of ranking keys. Results are the same in every form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// For software renderers: one invocation sorts one large tile serially, by a digit of 8 bits
    /// that it counts in private memory.
    Software,
    /// For any GPU: a workgroup sorts a tile by a digit of 8 bits, in two steps of 4, in workgroup
    /// memory.
    Portable,
    /// For GPUs with subgroups of 4 to 128 invocations: ballots find equal digits of 8 bits.
    Subgroups,
}

/// Bits of a digit at most.
pub(super) const WIDEST: u32 = 8;

/// The bits of a word that one pass sorts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digit {
    pub shift: u32,
    pub bits: u32,
}

/// Returns the digits of a word of which the `bits` lowest differ: as few as can be, of nearly
/// equal widths, lowest first. There is one at least.
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
/// Keys of a serial tile at most: llvmpipe silently ends all loops of an invocation after 65,535
/// iterations in all.
const LONGEST: u32 = 1 << 15;

/// Keys that an invocation of a GPU's form loads at once: as many as the tile of 256 invocations
/// has in the 16 KiB of workgroup memory that every device gives; 1 in the serial form, whose tiles
/// are long.
pub(super) const fn keys_each(form: Form) -> u32 {
    match form {
        Form::Software => 1,
        Form::Portable => 16,
        Form::Subgroups => 12,
    }
}

/// Returns the tiles of `keys` keys; `group` is the workgroup of a GPU's form. A software renderer
/// gets two vectors of 8 for each of its `threads`.
pub(super) fn tiles(form: Form, group: u32, threads: u32, keys: u32) -> Tiles {
    match form {
        Form::Software => {
            let most = threads.saturating_mul(16).clamp(32, 512);
            let number = (keys / SHORTEST).clamp(1, most).max(keys.div_ceil(LONGEST));
            Tiles { number, len: keys.div_ceil(number) }
        }
        Form::Portable | Form::Subgroups => {
            let len = group * keys_each(form);
            Tiles { number: keys.div_ceil(len), len }
        }
    }
}

/// Mapping of 64-bit keys to codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeShape {
    /// Bits of a code: whole digits, except the one bit of a word that does not belong to the code.
    pub bits: u32,
    /// Keys of the sample, a power of two.
    pub splitters: u32,
    /// Bits of a code that tell where between two splitters a key lies.
    pub inner_bits: u32,
    /// Keys of a workgroup, or of an invocation in the serial form.
    pub chunk: u32,
}

/// Bits of a code beyond those that number the keys: room for clumps that the sample does not see.
/// With 4, half of a million keys in 300 or 10,000 small clumps left 0.2 to 0.4 of all tied, with
/// 8, 0.1 or none; uniform keys would take a pass less.
const SPARE_BITS: u32 = 8;

/// Keys of the largest sample. Every one is compared with all others, and a software renderer keeps
/// them in private memory, so that it has few.
pub(super) const fn most_splitters(form: Form) -> u32 {
    if matches!(form, Form::Software) { 128 } else { 1024 }
}

/// Returns the shape of the codes of `keys` keys with `key_bits` bits, more than 32.
pub(super) fn code_shape(form: Form, key_bits: u32, keys: u32) -> CodeShape {
    let splitters = 1 << (keys / 256).clamp(1, most_splitters(form)).ilog2();
    let wanted = u32::BITS - keys.saturating_sub(1).leading_zeros() + SPARE_BITS;
    let bits = wanted.next_multiple_of(WIDEST).clamp(2 * WIDEST, 31);
    // Bits of the high words alone, if they are enough or nearly as many as a code can have, spare
    // reading the low ones.
    let bits = if wanted.min(30) <= key_bits - 32 { bits.min(key_bits - 32) } else { bits };
    let chunk = match form {
        // For each of many threads some; few enough for the rounds that a driver counts.
        Form::Software => (keys / 64).clamp(1024, 1 << 14),
        // Each workgroup reads the splitters.
        Form::Portable | Form::Subgroups => (keys / 2048).next_power_of_two().clamp(4096, 1 << 15),
    };
    CodeShape { bits, splitters, inner_bits: bits - splitters.ilog2(), chunk }
}

/// Sorted keys among which long runs are looked for: a run is long if all of an aligned block
/// belongs to it.
pub(super) const BLOCK: u32 = 16;

/// Returns the number of consecutive keys in which one invocation sorts short runs: on a software
/// renderer enough that looking back at the key before costs nothing, and few enough for all
/// threads; 1 on a GPU, so that adjacent invocations read adjacent codes.
pub(super) fn part_of_runs(form: Form, keys: u32) -> u32 {
    match form {
        Form::Software => (keys / 2048).clamp(4, 2048),
        Form::Portable | Form::Subgroups => 1,
    }
}

/// Returns the bytes that passes over these digits read and write; the first of them reads no
/// indices.
pub(super) fn traffic(digits: &[Digit], tiles: Tiles, keys: u64) -> u64 {
    let words = digits.iter().enumerate().map(|(k, digit)| {
        let index = u64::from(k > 0);
        // Counting, then keys and indices in and out; the table is written, scanned (two reads, a
        // write) and read.
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
    fn codes_are_whole_digits_with_room_for_all_keys() {
        for form in [Form::Software, Form::Portable, Form::Subgroups] {
            for (keys, passes) in [(1, 2), (256, 2), (257, 3), (1 << 16, 3), ((1 << 16) + 1, 4), (u32::MAX - 1, 4)] {
                for bits in [33, 63, 64] {
                    let shape = code_shape(form, bits, keys);
                    assert_eq!(digits(shape.bits).len(), passes, "{form:?} {bits} {keys}");
                    assert!(shape.splitters.is_power_of_two() && shape.splitters <= 1024 && shape.inner_bits >= 12);
                    assert_eq!(shape.splitters << shape.inner_bits, 1u32.checked_shl(shape.bits).unwrap_or(0));
                    // Rounds of a workgroup's loops, of which a driver may count no more than
                    // 65,535.
                    assert!(shape.chunk + 1024 < 1 << 16 && part_of_runs(form, keys) * 18 < 1 << 16);
                }
            }
        }
    }
}
