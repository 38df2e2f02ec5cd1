//! One pass of a radix sort on software renderers: count the digits of every tile, scan, scatter.

use super::keys::Flip;
use super::plan::{Digit, WIDEST, tiles};
use crate::gpu::primitives::count::{COUNTED, Counted, index};
use crate::gpu::primitives::scan::Scan;
use crate::gpu::{Array, DeviceError, Gpu, Kernel, KernelSource, Profile, Recorder};

crate::gpu::kernel_params! {
    struct DigitParams {
        count: u32,
        device: u32,
        /// Number of tiles, all of which have keys.
        tiles: u32,
        /// The digit: bits from this one on, and as many as the mask has.
        shift: u32,
        mask: u32,
        /// See [`Flip`].
        flip: u32,
        negative: u32,
    }
}

/// Invocations per workgroup.
const GROUP: u32 = 8;

/// The kernels and the scan between them.
pub(super) struct Passes {
    /// Threads of a software renderer.
    threads: u32,
    count: [Kernel; 2],
    /// Without and with indices to read; for keys that are ordered as unsigned numbers, and for
    /// others.
    scatter: [[Kernel; 2]; 2],
    scan: Scan,
}

/// Counters that the passes use in turn.
pub(super) struct Tables {
    /// Keys of each tile, by digit, and how many of these numbers there are.
    digits: Array<u32>,
    words: Array<u32>,
    /// Target places of those keys.
    places: Array<u32>,
}

/// Arrays of one pass.
pub(super) struct Pass<'a> {
    /// Index of the pass, from 0.
    pub number: usize,
    pub keys: &'a Array<u32>,
    /// Values that move with the keys; their places if `None`.
    pub index: Option<&'a Array<u32>>,
    pub to_keys: &'a Array<u32>,
    pub to_index: &'a Array<u32>,
    pub digit: Digit,
    pub flip: Flip,
}

/// A kernel of a pass; `flip` where keys are not ordered as unsigned numbers.
fn source(label: &str, text: &'static str, flip: bool) -> KernelSource {
    KernelSource::new(label, text)
        .params::<DigitParams>()
        .module("gpu::counted", COUNTED)
        .module("gpu::sort::ordered", include_str!("../../../../shaders/gpu/sort/ordered.wgsl"))
        .module("gpu::sort::digit", include_str!("../../../../shaders/gpu/sort/digit.wgsl"))
        .module("gpu::sort::serial_digits", include_str!("../../../../shaders/gpu/sort/serial_digits.wgsl"))
        .module("gpu::sort::serial_tile", include_str!("../../../../shaders/gpu/sort/serial_tile.wgsl"))
        .module("gpu::sort::place", include_str!("../../../../shaders/gpu/sort/place.wgsl"))
        .flag("flip", flip)
        .group(GROUP)
}

fn count(flip: bool) -> KernelSource {
    source("primitives::sort_count", include_str!("../../../../shaders/gpu/sort/serial_count.wgsl"), flip)
}

fn scatter(indexed: bool, flip: bool) -> KernelSource {
    let text = include_str!("../../../../shaders/gpu/sort/serial_scatter.wgsl");
    source("primitives::sort_scatter", text, flip).flag("indexed", indexed)
}

/// Returns the kernels, without the scan.
pub(super) fn kernels() -> Vec<KernelSource> {
    let flips = [false, true];
    let scatters = flips.map(|indexed| flips.map(|flip| scatter(indexed, flip)));
    flips.map(count).into_iter().chain(scatters.into_iter().flatten()).collect()
}

impl Passes {
    /// Creates the passes for a software renderer with `threads` threads.
    pub fn new(threads: u32) -> Self {
        let flips = [false, true];
        Passes {
            threads,
            count: flips.map(|flip| Kernel::trusted(count(flip))),
            scatter: flips.map(|indexed| flips.map(|flip| Kernel::trusted(scatter(indexed, flip)))),
            scan: Scan::with(Profile::Software),
        }
    }

    /// Returns the number of tiles of `keys` keys.
    pub fn tiles(&self, keys: u32) -> u32 {
        tiles(self.threads, keys).number
    }

    /// Allocates the memory of passes over at most `keys` keys.
    pub fn tables(&self, gpu: &Gpu, keys: u32) -> Result<Tables, DeviceError> {
        let most_words = u64::from(self.tiles(keys)) << WIDEST;
        Ok(Tables {
            digits: gpu.array("primitives::digits", most_words)?,
            words: gpu.array("primitives::digit_words", 1)?,
            places: gpu.array("primitives::places", most_words)?,
        })
    }

    /// Records one pass, of which nothing is in `tables` afterwards that anybody needs.
    pub fn record(
        &self,
        recorder: &mut Recorder,
        counted: &Counted,
        tables: &Tables,
        pass: &Pass<'_>,
    ) -> Result<(), DeviceError> {
        let Tables { digits, words, places } = tables;
        let number = self.tiles(counted.most);
        let params = DigitParams {
            count: counted.most,
            device: counted.device,
            tiles: number,
            shift: pass.digit.shift,
            mask: (1 << pass.digit.bits) - 1,
            flip: pass.flip.flip,
            negative: pass.flip.negative,
        };
        let most_words = u64::from(number) << pass.digit.bits;
        let groups = u64::from(number.div_ceil(GROUP));
        let flip = pass.flip != Flip::NONE;
        let arrays = [pass.keys.raw(), counted.raw(), digits.raw(), words.raw()];
        recorder.dispatch(&self.count[usize::from(flip)], &arrays, &params, groups)?;
        self.scan.record(recorder, digits, &Counted::at_most(index("Sort", most_words)?, words), places)?;
        let mut arrays = vec![pass.keys.raw(), counted.raw(), places.raw()];
        arrays.extend(pass.index.iter().map(|index| index.raw()));
        arrays.extend([pass.to_keys.raw(), pass.to_index.raw()]);
        let kernel = &self.scatter[usize::from(pass.index.is_some())][usize::from(flip)];
        recorder.dispatch(kernel, &arrays, &params, groups)
    }
}
