//! Words of workgroup memory that a subgroup accesses at once lie in different banks.

use crate::gpu::KernelSource;

/// Banks of workgroup memory that arrays are padded for: those of most GPUs. Where there are half
/// as many, two words of a padded access share one.
const BANKS: u32 = 32;

/// Adds the function `padded`, which leaves a word out behind each [`BANKS`], to a kernel that may
/// import it.
pub(super) fn padded_memory(source: KernelSource) -> KernelSource {
    source.constant("BANKS", BANKS).module("gpu::padded", include_str!("../../../shaders/gpu/padded.wgsl"))
}

#[cfg(test)]
mod tests {
    use super::BANKS;
    use meshloom_sanitizer::machine::{GPUS, H100, Machine};

    /// Consecutive words per invocation, as in scans and scatters without subgroups, and adjacent
    /// words.
    #[test]
    fn padded_words_conflict_in_pairs_at_most() {
        for machine in GPUS {
            for stride in [1, 8, 16] {
                for first in [0, 1, 7, 500] {
                    let plain: Vec<u64> = (0..u64::from(machine.subgroup)).map(|lane| first + lane * stride).collect();
                    let padded: Vec<u64> = plain.iter().map(|at| at + at / u64::from(BANKS)).collect();
                    let cycles = machine.conflicts(&padded, 4);
                    assert!(cycles <= 2.0, "{}: {cycles} for words {stride} apart", machine.name);
                    assert!(stride == 1 || machine.conflicts(&plain, 4) >= 4.0, "padding serves nothing");
                }
            }
        }
    }

    /// Cycles that a subgroup takes to find random keys among 1024 splitters, by the place of what
    /// it asks for on a level, `path` nodes from the left.
    fn cycles(machine: &Machine, place: fn(u32, u64) -> u64) -> f64 {
        const DRAWS: u32 = 200;
        let mut bits = 1u64;
        let mut random = || {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bits >> 54
        };
        let draw = |_| {
            let keys: Vec<u64> = (0..machine.subgroup).map(|_| random()).collect();
            let asked = |level: u32| keys.iter().map(|key| place(level, key >> (10 - level))).collect::<Vec<_>>();
            (0..10).map(|level| machine.conflicts(&asked(level), 4)).sum::<f64>()
        };
        (0..DRAWS).map(draw).sum::<f64>() / f64::from(DRAWS)
    }

    /// Uses the layout of `code_of.wgsl` next to a sorted array.
    #[test]
    fn levels_of_a_search_tree_lie_in_different_banks() {
        fn tree(level: u32, path: u64) -> u64 {
            (1 << level) + path
        }
        fn sorted(level: u32, path: u64) -> u64 {
            (2 * path + 1) << (9 - level)
        }
        for machine in GPUS {
            let (tree, sorted) = (cycles(&machine, tree), cycles(&machine, sorted));
            assert!(tree <= 21.0 && sorted >= 2.0 * tree, "{}: {tree} and {sorted}", machine.name);
        }
        let [tree, sorted] = [cycles(&H100, tree), cycles(&H100, sorted)];
        assert!((17.0..20.0).contains(&tree) && sorted > 60.0, "{tree} and {sorted}");
    }
}
