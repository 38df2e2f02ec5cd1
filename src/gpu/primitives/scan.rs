//! Exclusive prefix sums: reduce, then scan.
//!
//! The input is cut into parts. The sums of the parts are scanned first, in the same way, then every part again with
//! the sum of those before it.

use super::count::{COUNTED, Count, Counted, distinct, holds, index, misuse};
use crate::gpu::{Access, Array, DeviceError, Element, Kernel, KernelSource, Profile, RawArray, Recorder};

/// Elements of a part on a GPU: a workgroup's.
const GROUP_PART: u32 = 2048;
/// Parts of a software renderer, unless they became too long: one invocation scans their sums.
const SERIAL_PARTS: u32 = 512;
/// Elements of such a part at least.
const SERIAL_LEAST: u32 = 256;
/// And at most: llvmpipe ends all loops of an invocation, without a word, after 65,535 rounds in all.
const SERIAL_MOST: u32 = 1 << 15;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    count: u32,
    device: u32,
    /// Elements that results reach to, at most.
    span: u32,
    /// Elements of the output.
    outputs: u32,
    parts: u32,
    chunk: u32,
    /// Whether there are sums of the parts before.
    offset: u32,
}

const PARAMS: &str = "count: u32, device: u32, span: u32, outputs: u32, parts: u32, chunk: u32, offset: u32";

/// The parts of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    parts: u32,
    chunk: u32,
}

/// The levels over `span` elements; the last has one part.
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

/// The kernels over one kind of input.
pub(super) struct Passes {
    sums: Kernel,
    apply: Kernel,
}

impl Passes {
    /// `text` says what is scanned; `more` are arrays behind the output.
    pub fn new(profile: Profile, name: &str, text: &str, more: &[&'static str]) -> Self {
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
        let kernel = |half: &str, text: String| {
            KernelSource::new(format!("primitives::{name}_{half}"), text)
                .fields(PARAMS)
                .array("input", Element::U32, Access::Read)
                .array("count", Element::U32, Access::Read)
                .group(group)
        };
        // Only the first function of `text` is needed for sums.
        let value = text.split("fn emit").next().unwrap_or(text);
        let sums = kernel("sums", format!("{COUNTED}\n{value}\n{sums}")).array("sums", Element::U32, Access::ReadWrite);
        let apply = kernel("apply", format!("{COUNTED}\n{text}\n{apply}"))
            .array("offsets", Element::U32, Access::Read)
            .array("output", Element::U32, Access::ReadWrite);
        let apply = more.iter().fold(apply, |source, name| source.array(name, Element::U32, Access::ReadWrite));
        Passes { sums: Kernel::trusted(sums), apply: Kernel::trusted(apply) }
    }

    #[doc(hidden)]
    pub fn sources(&self) -> Vec<KernelSource> {
        [&self.sums, &self.apply].map(|kernel| kernel.source().clone()).to_vec()
    }
}

/// The input and output of a scan.
pub(super) struct Job<'a> {
    pub input: &'a Array<u32>,
    pub counted: &'a Counted,
    pub output: &'a Array<u32>,
    /// Elements that results reach to, at most.
    pub span: u32,
    /// Arrays behind the output.
    pub more: &'a [&'a RawArray],
}

/// Exclusive scan of words: `output[i]` = the sum of `input[0..i]`.
///
/// Sums wrap modulo 2^32. Two reads and a write an element, and some hundredths for the sums of parts.
pub struct Scan {
    /// The profile it was made for; the device's own otherwise.
    profile: Option<Profile>,
    gpu: Passes,
    software: Passes,
}

impl Default for Scan {
    fn default() -> Self {
        Self::new()
    }
}

impl Scan {
    /// A scan in the form that the device wants.
    pub fn new() -> Self {
        let words = include_str!("../../../shaders/gpu/scan/words.wgsl");
        let [gpu, software] = [Profile::Gpu, Profile::Software].map(|profile| Passes::new(profile, "scan", words, &[]));
        Scan { profile: None, gpu, software }
    }

    /// A scan in the form for such devices, on any device.
    pub fn with(profile: Profile) -> Self {
        Scan { profile: Some(profile), ..Self::new() }
    }

    /// Records the scan of the leading elements of `input` that count. `output` has room for as many; if it has room
    /// for one more, that receives the total. What lies behind stays as it is. `input` and `output` are different
    /// arrays.
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when `output` is too short or the same array; as [`Recorder::dispatch`].
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

    /// As [`Scan::exclusive`], with what was checked there.
    pub(super) fn record(
        &self,
        recorder: &mut Recorder,
        input: &Array<u32>,
        counted: &Counted,
        output: &Array<u32>,
    ) -> Result<(), DeviceError> {
        let span = (u64::from(counted.most) + 1).min(output.len()) as u32;
        let profile = self.profile(recorder);
        self.run(recorder, self.passes(profile), &Job { input, counted, output, span, more: &[] })
    }

    /// The profile of its kernels on a device.
    pub(super) fn profile(&self, recorder: &Recorder) -> Profile {
        self.profile.unwrap_or(recorder.gpu().capabilities().profile)
    }

    fn passes(&self, profile: Profile) -> &Passes {
        match profile {
            Profile::Gpu => &self.gpu,
            Profile::Software => &self.software,
        }
    }

    /// Scans with other kernels on the level of the input; `own` is for the scan's profile.
    pub(super) fn run(&self, recorder: &mut Recorder, own: &Passes, job: &Job<'_>) -> Result<(), DeviceError> {
        const WHAT: &str = "primitives::scan";
        let (gpu, profile) = (recorder.gpu().clone(), self.profile(recorder));
        let words = self.passes(profile);
        let levels = levels(profile, job.span);
        // Up: the sums of all levels but the last, which is one part.
        let mut sums: Vec<(Array<u32>, Counted)> = Vec::new();
        for level in &levels[..levels.len() - 1] {
            let parts = u64::from(level.parts);
            let (passes, input, counted) = match sums.last() {
                None => (own, job.input, job.counted),
                Some((input, counted)) => (words, input, counted),
            };
            let output = gpu.array("primitives::scan_sums", parts)?;
            let params = params(level, counted, job.span, 0, false);
            let arrays = [input.raw(), counted.raw(), output.raw()];
            recorder.dispatch(&passes.sums, &arrays, &params, groups(profile, level))?;
            sums.push((output, Counted::known(&gpu, WHAT, parts)?));
        }
        // Down: every level with the scanned sums of the level above.
        let mut above: Option<Array<u32>> = None;
        for (k, level) in levels.iter().enumerate().rev() {
            let offsets = match &above {
                Some(scanned) => scanned.clone(),
                None => gpu.array("primitives::no_offsets", 1)?,
            };
            if k == 0 {
                let outputs = index(WHAT, job.output.len().min(u64::from(u32::MAX - 1)))?;
                let params = params(level, job.counted, job.span, outputs, above.is_some());
                let mut arrays = vec![job.input.raw(), job.counted.raw(), offsets.raw(), job.output.raw()];
                arrays.extend(job.more);
                return recorder.dispatch(&own.apply, &arrays, &params, groups(profile, level));
            }
            let (input, counted) = &sums[k - 1];
            let scanned = gpu.array("primitives::scan_offsets", input.len())?;
            let params = params(level, counted, counted.most, counted.most, above.is_some());
            let arrays = [input.raw(), counted.raw(), offsets.raw(), scanned.raw()];
            recorder.dispatch(&words.apply, &arrays, &params, groups(profile, level))?;
            above = Some(scanned);
        }
        Err(misuse(WHAT, "a scan has at least one level".into()))
    }

    /// Its kernels of all forms.
    pub(super) fn sources(&self) -> Vec<KernelSource> {
        [&self.gpu, &self.software].into_iter().flat_map(Passes::sources).collect()
    }
}

fn params(level: &Level, counted: &Counted, span: u32, outputs: u32, offset: bool) -> Params {
    let (count, device, offset) = (counted.most, counted.device, u32::from(offset));
    Params { count, device, span, outputs, parts: level.parts, chunk: level.chunk, offset }
}

fn groups(profile: Profile, level: &Level) -> u64 {
    match profile {
        Profile::Gpu => u64::from(level.parts),
        Profile::Software => u64::from(level.parts).div_ceil(8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
