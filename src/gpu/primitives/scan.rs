//! Exclusive prefix sums: reduce, then scan.
//!
//! The input is cut into parts. The sums of the parts are scanned first, in the same way, then
//! every part again with the sum of those before it.

use super::count::{COUNTED, Count, Counted, distinct, holds};
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Profile, Recorder};

/// Elements of a part on a GPU: a workgroup's.
const GROUP_PART: u32 = 2048;
/// Parts of a software renderer, unless they became too long: one invocation scans their sums.
const SERIAL_PARTS: u32 = 512;
/// Elements of such a part at least.
const SERIAL_LEAST: u32 = 256;
/// Elements of such a part at most: llvmpipe silently ends all loops of an invocation after 65,535
/// iterations in all.
const SERIAL_MOST: u32 = 1 << 15;

crate::gpu::kernel_params! {
    struct ScanParams {
        count: u32,
        device: u32,
        /// Elements of the output that are written, at most.
        span: u32,
        parts: u32,
        /// Elements per part.
        chunk: u32,
        /// Whether there are sums of the parts before.
        offset: u32,
    }
}

/// The parts of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    parts: u32,
    chunk: u32,
}

impl Level {
    fn params(&self, counted: &Counted, span: u32, offset: bool) -> ScanParams {
        let (count, device, offset) = (counted.most, counted.device, u32::from(offset));
        ScanParams { count, device, span, parts: self.parts, chunk: self.chunk, offset }
    }

    /// Workgroups that treat its parts.
    fn groups(&self, profile: Profile) -> u64 {
        match profile {
            Profile::Gpu => u64::from(self.parts),
            Profile::Software => u64::from(self.parts).div_ceil(8),
        }
    }
}

/// Returns the levels over `span` elements; the last has one part.
fn levels(profile: Profile, span: u32) -> Vec<Level> {
    let mut levels = Vec::new();
    let mut rest = span.max(1);
    loop {
        let parts = match profile {
            Profile::Gpu => rest.div_ceil(GROUP_PART),
            Profile::Software if levels.is_empty() => {
                (rest / SERIAL_LEAST).clamp(1, SERIAL_PARTS).max(rest.div_ceil(SERIAL_MOST))
            }
            Profile::Software => rest.div_ceil(SERIAL_MOST),
        };
        let chunk = if profile == Profile::Gpu { GROUP_PART } else { rest.div_ceil(parts) };
        levels.push(Level { parts, chunk });
        if parts == 1 {
            return levels;
        }
        rest = parts;
    }
}

/// Returns the sources of one form: sums of parts, and the scan of parts.
fn sources(profile: Profile) -> [KernelSource; 2] {
    let (sums, apply, group) = match profile {
        Profile::Gpu => (
            include_str!("../../../shaders/gpu/scan/group_sums.wgsl"),
            include_str!("../../../shaders/gpu/scan/group_apply.wgsl"),
            256,
        ),
        Profile::Software => (
            include_str!("../../../shaders/gpu/scan/serial_sums.wgsl"),
            include_str!("../../../shaders/gpu/scan/serial_apply.wgsl"),
            8,
        ),
    };
    [("primitives::scan_sums", sums), ("primitives::scan_apply", apply)].map(|(label, text)| {
        padded_memory(KernelSource::new(label, text))
            .params::<ScanParams>()
            .module("gpu::counted", COUNTED)
            .group(group)
    })
}

/// Returns all kernels.
pub(super) fn kernels() -> Vec<KernelSource> {
    [Profile::Gpu, Profile::Software].map(sources).concat()
}

/// Exclusive scan of words: `output[i]` = the sum of `input[0..i]`.
///
/// Sums wrap modulo 2^32. An element is read twice and written once, plus some hundredths of that
/// for the sums of parts.
#[must_use = "a scan does nothing until it is recorded"]
pub struct Scan {
    /// The profile it was made for; the device's own otherwise.
    profile: Option<Profile>,
    gpu: [Kernel; 2],
    software: [Kernel; 2],
}

impl Default for Scan {
    fn default() -> Self {
        Self::new()
    }
}

impl Scan {
    /// Creates a scan in the form that the device wants.
    pub fn new() -> Self {
        let [gpu, software] = [Profile::Gpu, Profile::Software].map(|profile| sources(profile).map(Kernel::trusted));
        Scan { profile: None, gpu, software }
    }

    /// Creates a scan in the form for such devices, on any device.
    pub fn with(profile: Profile) -> Self {
        Scan { profile: Some(profile), ..Self::new() }
    }

    /// Records the scan of the leading elements of `input` that count. `output` has room for as
    /// many; if it has room for one more, that receives the total. What lies behind stays as it is.
    /// `input` and `output` are different arrays.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when `output` is too short or the same array; as
    /// [`Recorder::dispatch`].
    pub fn exclusive(
        &self,
        recorder: &mut Recorder,
        input: &Array<u32>,
        output: &Array<u32>,
        count: Count<'_>,
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "Scan::exclusive";
        let counted = Counted::new(recorder.gpu(), WHAT, count, input.len())?;
        distinct(WHAT, output.raw(), &[input.raw(), counted.raw()])?;
        holds(WHAT, "output", output.len(), u64::from(counted.most))?;
        self.record(recorder, input, &counted, output)
    }

    /// Same as [`Scan::exclusive`], after its checks.
    pub(super) fn record(
        &self,
        recorder: &mut Recorder,
        input: &Array<u32>,
        counted: &Counted,
        output: &Array<u32>,
    ) -> Result<(), DeviceError> {
        let gpu = recorder.gpu().clone();
        let profile = self.profile.unwrap_or(gpu.capabilities().profile);
        let [sum, apply] = match profile {
            Profile::Gpu => &self.gpu,
            Profile::Software => &self.software,
        };
        let span = (u64::from(counted.most) + 1).min(output.len()) as u32;
        let levels = levels(profile, span);
        // Up: the sums of the parts of each level are the input of the next; the last level is one
        // part.
        let mut inputs = vec![(input.clone(), counted.clone())];
        for (k, level) in levels[..levels.len() - 1].iter().enumerate() {
            let (input, counted) = &inputs[k];
            let sums = gpu.array("primitives::scan_sums", level.parts.into())?;
            let arrays = [input.raw(), counted.raw(), sums.raw()];
            recorder.dispatch(sum, &arrays, &level.params(counted, span, false), level.groups(profile))?;
            inputs.push((sums, Counted::known(&gpu, "primitives::scan", level.parts.into())?));
        }
        // Down: every level is scanned, beginning with the scanned sums of the level above.
        let mut above: Option<Array<u32>> = None;
        for (k, level) in levels.iter().enumerate().rev() {
            let (input, counted) = &inputs[k];
            let (scanned, span) = match k {
                0 => (output.clone(), span),
                _ => (gpu.array("primitives::scan_offsets", input.len())?, counted.most),
            };
            let params = level.params(counted, span, above.is_some());
            let offsets = above.map_or_else(|| gpu.array("primitives::no_offsets", 1), Ok)?;
            let arrays = [input.raw(), counted.raw(), offsets.raw(), scanned.raw()];
            recorder.dispatch(apply, &arrays, &params, level.groups(profile))?;
            above = Some(scanned);
        }
        Ok(())
    }
}

/// Banks of workgroup memory that arrays are padded for: those of most GPUs. Where there are half
/// as many, two words of a padded access share one.
const BANKS: u32 = 32;

/// Words that a subgroup accesses at once should lie in different banks: adds the function
/// `padded`, which leaves a word out behind each [`BANKS`], to a kernel that may
/// import it.
pub(super) fn padded_memory(source: KernelSource) -> KernelSource {
    source.constant("BANKS", BANKS).module("gpu::padded", include_str!("../../../shaders/gpu/padded.wgsl"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshloom_sanitizer::machine::{GPUS, H100, Machine};

    #[test]
    fn levels_cover_their_elements_and_end_in_one_part() {
        for profile in [Profile::Gpu, Profile::Software] {
            for span in [0, 1, 255, 256, 257, 2048, 2049, 70_000, 1 << 22, u32::MAX - 1] {
                let mut rest = u64::from(span.max(1));
                let levels = levels(profile, span);
                for level in &levels {
                    assert!(u64::from(level.parts) * u64::from(level.chunk) >= rest, "{profile:?} {span} {levels:?}");
                    assert!((u64::from(level.parts) - 1) * u64::from(level.chunk) < rest, "{profile:?} {span}");
                    assert!(level.chunk <= SERIAL_MOST, "{profile:?} {span} {levels:?}");
                    rest = u64::from(level.parts);
                }
                assert_eq!(rest, 1);
            }
        }
    }

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
