//! One pass of a radix sort: count the digits of every tile, scan, scatter.

use super::keys::Flip;
use super::plan::{Digit, Form, Tiles, WIDEST, keys_each, tiles};
use crate::gpu::primitives::banks::padded_memory;
use crate::gpu::primitives::count::{COUNTED, Counted, index};
use crate::gpu::primitives::scan::Scan;
use crate::gpu::{Array, DeviceError, Gpu, Kernel, KernelSource, Profile, Recorder};

crate::gpu::kernel_params! {
    struct DigitParams {
        count: u32,
        device: u32,
        /// Number of tiles of the serial form, all of which have keys.
        tiles: u32,
        /// The digit: bits from this one on, and as many as the mask has.
        shift: u32,
        mask: u32,
        /// See [`Flip`].
        flip: u32,
        negative: u32,
    }
}

/// The kernels of one form and the scan between them.
pub(super) struct Passes {
    form: Form,
    /// Invocations of a workgroup.
    group: u32,
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
    pub keys: &'a Array<u32>,
    /// Values that move with the keys; their places if `None`.
    pub index: Option<&'a Array<u32>>,
    pub to_keys: &'a Array<u32>,
    pub to_index: &'a Array<u32>,
    pub digit: Digit,
    pub flip: Flip,
}

/// A kernel of a pass; `flip` where keys are not ordered as unsigned numbers.
fn source(label: &str, text: &'static str, (form, group): (Form, u32), flip: bool) -> KernelSource {
    padded_memory(KernelSource::new(label, text))
        .params::<DigitParams>()
        .module("gpu::counted", COUNTED)
        .module("gpu::sort::digit", include_str!("../../../../shaders/gpu/sort/digit.wgsl"))
        .module("gpu::sort::serial_tile", include_str!("../../../../shaders/gpu/sort/serial_tile.wgsl"))
        .module("gpu::sort::group_tile", include_str!("../../../../shaders/gpu/sort/group_tile.wgsl"))
        .module("gpu::sort::place", include_str!("../../../../shaders/gpu/sort/place.wgsl"))
        .flag("flip", flip)
        .constant("EACH", keys_each(form))
        .repeat('$', keys_each(form))
        .group(group)
}

fn count(form: Form, group: u32, flip: bool) -> KernelSource {
    let text = match form {
        Form::Software => include_str!("../../../../shaders/gpu/sort/serial_count.wgsl"),
        Form::Portable | Form::Subgroups => include_str!("../../../../shaders/gpu/sort/group_count.wgsl"),
    };
    source("primitives::sort_count", text, (form, group), flip)
}

fn scatter(form: Form, group: u32, indexed: bool, flip: bool) -> KernelSource {
    let text = match form {
        Form::Software => include_str!("../../../../shaders/gpu/sort/serial_scatter.wgsl"),
        Form::Portable => include_str!("../../../../shaders/gpu/sort/portable_scatter.wgsl"),
        Form::Subgroups => include_str!("../../../../shaders/gpu/sort/subgroup_scatter.wgsl"),
    };
    source("primitives::sort_scatter", text, (form, group), flip).flag("indexed", indexed)
}

/// Returns the kernels of one form, without the scan.
pub(super) fn kernels(form: Form, group: u32) -> Vec<KernelSource> {
    let flips = [false, true];
    let counts = flips.map(|flip| count(form, group, flip));
    let scatters = [false, true].map(|indexed| flips.map(|flip| scatter(form, group, indexed, flip)));
    counts.into_iter().chain(scatters.into_iter().flatten()).collect()
}

impl Passes {
    /// Creates the passes with `group` invocations per workgroup, for a software renderer with
    /// `threads` threads.
    pub fn new(form: Form, group: u32, threads: u32) -> Self {
        let profile = if form == Form::Software { Profile::Software } else { Profile::Gpu };
        Passes {
            form,
            group,
            threads,
            count: [false, true].map(|flip| Kernel::trusted(count(form, group, flip))),
            scatter: [false, true]
                .map(|indexed| [false, true].map(|flip| Kernel::trusted(scatter(form, group, indexed, flip)))),
            scan: Scan::with(profile),
        }
    }

    pub fn form(&self) -> Form {
        self.form
    }

    pub fn tiles(&self, keys: u32) -> Tiles {
        tiles(self.form, self.group, self.threads, keys)
    }

    /// Allocates the memory of passes over at most `keys` keys.
    pub fn tables(&self, gpu: &Gpu, keys: u32) -> Result<Tables, DeviceError> {
        let most_words = u64::from(self.tiles(keys).number) << WIDEST;
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
        let number = self.tiles(counted.most).number;
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
        let groups = match self.form {
            Form::Software => u64::from(number.div_ceil(self.group)),
            Form::Portable | Form::Subgroups => u64::from(number),
        };
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
