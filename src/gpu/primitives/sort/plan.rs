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

/// Returns the digits of a word of which the `bits` lowest differ: as few as can be, lowest first.
/// There is one at least. Serial tables are shorter with nearly equal widths; a GPU's histogram has
/// whole bytes.
pub(super) fn digits(form: Form, bits: u32) -> Vec<Digit> {
    let bits = bits.clamp(1, 32);
    let passes = bits.div_ceil(WIDEST);
    let mut shift = 0;
    let widths = (0..passes).map(|pass| match form {
        Form::Software => (bits + pass) / passes,
        Form::Portable | Form::Subgroups => WIDEST.min(bits - pass * WIDEST),
    });
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
// `serial_digits.wgsl` counts the keys of a tile in 16 bits.
const _: () = assert!(LONGEST < 1 << 16);

/// Keys from which on tiles are larger: enough of them for a GPU with a hundred processors.
pub(super) const SHORTEST_LARGE: u32 = 1 << 21;

/// The workgroup of a form for GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupShape {
    pub form: Form,
    /// Invocations.
    pub group: u32,
    /// Keys per invocation.
    pub each: u32,
}

impl GroupShape {
    /// Returns the keys of a tile.
    pub fn tile(self) -> u32 {
        self.group * self.each
    }

    /// Returns the bytes of workgroup memory that a kernel of this shape takes at most, with
    /// subgroups.
    pub fn memory_bytes(self) -> u32 {
        // A word a key, and the sums over digits.
        4 * (self.tile().max(2304) + 1000)
    }
}

/// Returns the shape for few or many keys. A small tile of 256 invocations fits the 16 KiB of
/// workgroup memory that every device gives; a large one writes runs of 24 keys.
pub(super) fn group_shape(form: Form, group: u32, large: bool) -> GroupShape {
    let each = match (form, large) {
        (Form::Subgroups, true) => 24,
        (Form::Subgroups, false) => 12,
        (Form::Software | Form::Portable, _) => 16,
    };
    GroupShape { form, group, each }
}

/// Returns the serial tiles of `keys` keys. A software renderer gets two vectors of 8 for each of
/// its `threads`.
pub(super) fn tiles(threads: u32, keys: u32) -> Tiles {
    let most = threads.saturating_mul(16).clamp(32, 512);
    let number = (keys / SHORTEST).clamp(1, most).max(keys.div_ceil(LONGEST));
    Tiles { number, len: keys.div_ceil(number) }
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
    let chunk = chunk_of_codes(form, keys);
    CodeShape { bits, splitters, inner_bits: bits - splitters.ilog2(), chunk }
}

/// Returns the keys that a workgroup makes codes of, or an invocation in the serial form.
pub(super) fn chunk_of_codes(form: Form, keys: u32) -> u32 {
    match form {
        // For each of many threads some; few enough for the rounds that a driver counts.
        Form::Software => (keys / 64).clamp(1024, 1 << 14),
        // Each workgroup reads the splitters, and adds a histogram.
        Form::Portable | Form::Subgroups => (keys / 2048).next_power_of_two().clamp(4096, 1 << 15),
    }
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
pub(super) fn traffic(form: Form, digits: &[Digit], tiles: u32, keys: u64) -> u64 {
    // Counting: in each serial pass, and once for all sweeps.
    let counting = |k: usize| u64::from(form == Form::Software || k == 0);
    let words = digits.iter().enumerate().map(|(k, digit)| {
        let index = u64::from(k > 0);
        let bits = if form == Form::Software { digit.bits } else { WIDEST };
        // Keys and indices in and out. A serial table is written, scanned (two reads, a write) and
        // read; states are cleared, written twice and read twice or so.
        keys * (counting(k) + 1 + index + 2) + (u64::from(tiles) << bits) * 5
    });
    4 * words.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::LONGEST as LONGEST_ARRAY;

    const FORMS: [Form; 3] = [Form::Software, Form::Portable, Form::Subgroups];

    #[test]
    fn digits_cover_a_word_without_gaps() {
        for (form, bits) in FORMS.into_iter().flat_map(|form| (0..=40).map(move |bits| (form, bits))) {
            let digits = digits(form, bits);
            let mut at = 0;
            for digit in &digits {
                assert!(digit.shift == at && (1..=WIDEST).contains(&digit.bits), "{bits}: {digits:?}");
                assert!(form == Form::Software || at.is_multiple_of(8), "{bits}: {digits:?}");
                at += digit.bits;
            }
            assert_eq!(at, bits.clamp(1, 32));
            assert_eq!(digits.len() as u32, bits.clamp(1, 32).div_ceil(WIDEST));
        }
    }

    #[test]
    fn tiles_cover_their_keys() {
        for keys in [1, 31, 1023, 2047, 2048, 2049, 70_000, 1 << 20, u32::MAX - 1] {
            let tiles = tiles(2, keys);
            assert!(u64::from(tiles.number) * u64::from(tiles.len) >= u64::from(keys), "{keys}");
            assert!(tiles.number > 0 && tiles.len <= LONGEST, "{keys}");
        }
    }

    /// Checks that the last state of a tile and the last place of a table are words.
    #[test]
    fn states_of_all_keys_fit_words() {
        for (form, group) in [(Form::Portable, 128), (Form::Subgroups, 64), (Form::Subgroups, 256)] {
            let shape = group_shape(form, group, false);
            let tiles = LONGEST_ARRAY.div_ceil(u64::from(shape.tile()));
            assert!(LONGEST_ARRAY + u64::from(shape.tile()) + 2 <= u64::from(u32::MAX), "{shape:?}");
            assert!(1024 + 512 * tiles <= LONGEST_ARRAY, "{shape:?}");
            assert!(shape.memory_bytes() <= 16 << 10, "{shape:?}");
        }
    }

    #[test]
    fn codes_are_whole_digits_with_room_for_all_keys() {
        for form in FORMS {
            for (keys, passes) in [(1, 2), (256, 2), (257, 3), (1 << 16, 3), ((1 << 16) + 1, 4), (u32::MAX - 1, 4)] {
                for bits in [33, 63, 64] {
                    let shape = code_shape(form, bits, keys);
                    assert_eq!(digits(form, shape.bits).len(), passes, "{form:?} {bits} {keys}");
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
