//! Runs of keys with equal codes, once the codes are in order.
//!
//! Short runs are sorted by insertion. The keys of long ones are found, so that passes over both
//! words sort them alone.

use super::codes::{WideKeys, wide_key};
use super::plan::{BLOCK, CodeShape, Form, part_of_runs};
use super::sweeps::ListedRuns;
use crate::gpu::primitives::count::Counted;
use crate::gpu::primitives::scan::Scan;
use crate::gpu::{Array, DeviceError, Kernel, KernelSource, Profile, Recorder};

crate::gpu::kernel_params! {
    struct RunParams {
        count: u32,
        device: u32,
        parts: u32,
        /// Codes per part.
        chunk: u32,
        /// Same as in codes.
        high_mask: u32,
        splitters: u32,
        /// Bits of a word that are its code.
        code_mask: u32,
    }
}

/// Invocations of a workgroup: few, since parts are few and long on a software renderer.
const GROUP: u32 = 64;

/// Sorts short runs and takes the keys of long ones out and in.
pub(super) struct Runs {
    form: Form,
    /// Without and with a list of longer runs.
    short: [Kernel; 2],
    long: Kernel,
    /// Copies the entries of `order` that belong to long runs, in their order, and the words of
    /// `low` that they point to: arrays `order`, `low`, `compact`, `words`.
    pub take: Kernel,
    /// Copies indices back: arrays `compact`, `order`.
    pub restore: Kernel,
    scan: Scan,
}

fn source(label: &str, text: &'static str) -> KernelSource {
    wide_key(KernelSource::new(label, text).params::<RunParams>())
        .module("gpu::sort::tied", include_str!("../../../../shaders/gpu/sort/tied.wgsl"))
        .constant("BLOCK", BLOCK)
        .group(GROUP)
}

/// Returns all kernels, without the scan.
pub(super) fn kernels() -> [KernelSource; 5] {
    let copy = |back| {
        let text = include_str!("../../../../shaders/gpu/sort/run_copy.wgsl");
        source("primitives::sort_run_copy", text).flag("back", back)
    };
    let short = |listed| {
        let text = include_str!("../../../../shaders/gpu/sort/short_runs.wgsl");
        source("primitives::sort_short_runs", text).flag("listed", listed)
    };
    let long = include_str!("../../../../shaders/gpu/sort/long_runs.wgsl");
    [short(false), short(true), source("primitives::sort_long_runs", long), copy(false), copy(true)]
}

/// Sorted codes of keys.
pub(super) struct SortedCodes<'a> {
    pub keys: WideKeys<'a>,
    pub codes: &'a Array<u32>,
    /// See [`Codes::record`](super::codes::Codes::record).
    pub sample: &'a Array<u32>,
    pub shape: CodeShape,
}

/// Places of the keys of long runs.
pub(super) struct LongRuns {
    ends: Array<u32>,
    places: Array<u32>,
    params: RunParams,
    /// Their number, in one word.
    pub total: Array<u32>,
}

impl Runs {
    pub fn new(form: Form) -> Self {
        let profile = if form == Form::Software { Profile::Software } else { Profile::Gpu };
        let [short, listing, long, take, restore] = kernels().map(Kernel::trusted);
        Runs { form, short: [short, listing], long, take, restore, scan: Scan::with(profile) }
    }

    /// Records the sorting of short runs: `order` holds the indices of keys in the order of their
    /// codes. Longer runs are listed if there is a list: all that are not sorted.
    pub fn sort_short(
        &self,
        recorder: &mut Recorder,
        sorted: &SortedCodes<'_>,
        counted: &Counted,
        order: &Array<u32>,
        listed: Option<&ListedRuns>,
    ) -> Result<(), DeviceError> {
        let SortedCodes { keys, codes, sample, .. } = sorted;
        let params = params(sorted, counted, part_of_runs(self.form, counted.most));
        let mut arrays = vec![codes.raw(), keys.high.raw(), keys.low.raw(), counted.raw(), sample.raw(), order.raw()];
        arrays.extend(listed.into_iter().flat_map(|ListedRuns { runs, tied }| [runs.raw(), tied.raw()]));
        recorder.dispatch(
            &self.short[usize::from(listed.is_some())],
            &arrays,
            &params,
            u64::from(params.parts.div_ceil(GROUP)),
        )
    }

    /// Allocates a list of runs among the keys, which is empty.
    pub fn list(&self, recorder: &mut Recorder, keys: u32) -> Result<ListedRuns, DeviceError> {
        // A run has more keys than insertion sorts.
        let most = u64::from(keys / (2 * BLOCK - 1)).max(1);
        let gpu = recorder.gpu();
        let listed = ListedRuns { runs: gpu.array("sort::runs", 2 * most)?, tied: gpu.array("sort::tied", 2)? };
        recorder.clear(&listed.tied);
        Ok(listed)
    }

    /// Records the search for long runs.
    pub fn find_long(
        &self,
        recorder: &mut Recorder,
        sorted: &SortedCodes<'_>,
        counted: &Counted,
    ) -> Result<LongRuns, DeviceError> {
        let gpu = recorder.gpu().clone();
        let params = params(sorted, counted, BLOCK);
        let blocks = u64::from(params.parts);
        let array = |label: &str| gpu.array::<u32>(label, blocks);
        let (ends, sizes, places) = (array("sort::ends")?, array("sort::sizes")?, array("sort::places")?);
        let total = gpu.array::<u32>("sort::tied", 1)?;
        recorder.clear(&total);
        let SortedCodes { codes, sample, .. } = sorted;
        let arrays = [codes.raw(), counted.raw(), sample.raw(), ends.raw(), sizes.raw(), total.raw()];
        recorder.dispatch(&self.long, &arrays, &params, blocks.div_ceil(u64::from(GROUP)))?;
        self.scan.record(recorder, &sizes, &Counted::known(&gpu, "Sort", blocks)?, &places)?;
        Ok(LongRuns { ends, places, params, total })
    }
}

impl LongRuns {
    /// Records copies by one of the kernels [`Runs::take`] and [`Runs::restore`].
    pub fn copy(&self, recorder: &mut Recorder, kernel: &Kernel, arrays: &[&Array<u32>]) -> Result<(), DeviceError> {
        let arrays: Vec<_> = [&self.ends, &self.places].iter().chain(arrays).map(|array| array.raw()).collect();
        recorder.dispatch(kernel, &arrays, &self.params, u64::from(self.params.parts.div_ceil(GROUP)))
    }
}

fn params(sorted: &SortedCodes<'_>, counted: &Counted, chunk: u32) -> RunParams {
    RunParams {
        count: counted.most,
        device: counted.device,
        parts: counted.most.div_ceil(chunk),
        chunk,
        high_mask: sorted.keys.high_mask(),
        splitters: sorted.shape.splitters,
        code_mask: u32::MAX >> (u32::BITS - sorted.shape.bits),
    }
}
