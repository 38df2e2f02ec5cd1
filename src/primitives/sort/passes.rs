//! One pass of a radix sort: count the digits of every tile, scan, scatter.

use super::keys::Flip;
use super::plan::{Digit, Form, Tiles, tiles};
use crate::device::{Access, Array, DeviceError, Element, Kernel, KernelSource, Profile, Recorder};
use crate::primitives::count::{COUNTED, Counted};
use crate::primitives::scan::Scan;

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    count: u32,
    device: u32,
    tiles: u32,
    tile: u32,
    shift: u32,
    mask: u32,
    flip: u32,
    negative: u32,
}

const PARAMS: &str = "count: u32, device: u32, tiles: u32, tile: u32, shift: u32, mask: u32, flip: u32, negative: u32";

/// What a kernel of the downsweep carries along.
#[derive(Clone, Copy)]
struct Variant {
    /// There are no indices yet: an element's index is its place.
    first: bool,
    /// Keys are stored too.
    keep: bool,
    /// Keys are not ordered as unsigned numbers.
    flip: bool,
}

impl Variant {
    const ALL: [Variant; 8] = {
        let mut all = [Variant { first: false, keep: false, flip: false }; 8];
        let mut n = 0;
        while n < 8 {
            all[n] = Variant { first: n & 4 != 0, keep: n & 2 != 0, flip: n & 1 != 0 };
            n += 1;
        }
        all
    };

    fn place(self) -> usize {
        usize::from(self.first) * 4 + usize::from(self.keep) * 2 + usize::from(self.flip)
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
    scatter: [Kernel; 8],
    scan: Scan,
}

/// Arrays of one pass.
pub(super) struct Pass<'a> {
    pub keys: &'a Array<u32>,
    /// What goes along with the keys; their places if there is none.
    pub index: Option<&'a Array<u32>>,
    pub to_keys: Option<&'a Array<u32>>,
    pub to_index: &'a Array<u32>,
    pub digit: Digit,
    pub flip: Flip,
}

/// WGSL: the digit of a key.
fn digit(flip: bool) -> String {
    let ordered =
        if flip { "key ^ params.flip ^ (bitcast<u32>(bitcast<i32>(key) >> 31u) & params.negative)" } else { "key" };
    let digit = include_str!("../../../shaders/primitives/sort/digit.wgsl");
    format!("{COUNTED}\nfn ordered(key: u32) -> u32 {{ return {ordered}; }}\n{digit}\n")
}

fn count(form: Form, group: u32, flip: bool) -> KernelSource {
    let body = match form {
        Form::Software => include_str!("../../../shaders/primitives/sort/serial_count.wgsl"),
        Form::Portable | Form::Subgroups => include_str!("../../../shaders/primitives/sort/group_count.wgsl"),
    };
    KernelSource::new("primitives::sort_count", format!("{}{body}", digit(flip)))
        .params(PARAMS)
        .array("keys", Element::U32, Access::Read)
        .array("count", Element::U32, Access::Read)
        .array("table", Element::U32, Access::ReadWrite)
        .group(group)
}

fn scatter(form: Form, group: u32, variant: Variant) -> KernelSource {
    let body = match form {
        Form::Software => include_str!("../../../shaders/primitives/sort/serial_scatter.wgsl"),
        Form::Portable => include_str!("../../../shaders/primitives/sort/portable_scatter.wgsl"),
        Form::Subgroups => include_str!("../../../shaders/primitives/sort/subgroup_scatter.wgsl"),
    };
    let payload = if variant.first { "i" } else { "load_index(i)" };
    let keep = if variant.keep { "store_to_keys(at, key); " } else { "" };
    let moves = format!(
        "fn payload(i: u32) -> u32 {{ return {payload}; }}\n\
         fn place(at: u32, key: u32, payload: u32) {{ {keep}store_to_index(at, payload); }}\n"
    );
    let mut source = KernelSource::new("primitives::sort_scatter", format!("{}{moves}{body}", digit(variant.flip)))
        .params(PARAMS)
        .array("keys", Element::U32, Access::Read)
        .array("count", Element::U32, Access::Read)
        .array("table", Element::U32, Access::Read)
        .group(group);
    if !variant.first {
        source = source.array("index", Element::U32, Access::Read);
    }
    if variant.keep {
        source = source.array("to_keys", Element::U32, Access::ReadWrite);
    }
    source.array("to_index", Element::U32, Access::ReadWrite)
}

impl Passes {
    /// `group` invocations a workgroup for a renderer of so many `threads`.
    pub fn new(form: Form, group: u32, threads: u32) -> Self {
        let profile = if form == Form::Software { Profile::Software } else { Profile::Gpu };
        Passes {
            form,
            group,
            threads,
            count: [false, true].map(|flip| Kernel::new(count(form, group, flip))),
            scatter: Variant::ALL.map(|variant| Kernel::new(scatter(form, group, variant))),
            scan: Scan::with(profile),
        }
    }

    pub fn form(&self) -> Form {
        self.form
    }

    pub fn tiles(&self, keys: u32) -> Tiles {
        tiles(self.form, self.group, self.threads, keys)
    }

    /// Records one pass.
    pub fn record(&self, recorder: &mut Recorder, counted: &Counted, pass: &Pass<'_>) -> Result<(), DeviceError> {
        let gpu = recorder.gpu().clone();
        let Tiles { number, len } = self.tiles(counted.most);
        let params = Params {
            count: counted.most,
            device: counted.device,
            tiles: number,
            tile: len,
            shift: pass.digit.shift,
            mask: (1 << pass.digit.bits) - 1,
            flip: pass.flip.flip,
            negative: pass.flip.negative,
        };
        let words = u64::from(number) << pass.digit.bits;
        let groups = match self.form {
            Form::Software => u64::from(number.div_ceil(self.group)),
            Form::Portable | Form::Subgroups => u64::from(number),
        };
        let flip = pass.flip != Flip::NONE;
        let table = gpu.array::<u32>("primitives::digits", words)?;
        let arrays = [pass.keys.raw(), counted.raw(), table.raw()];
        recorder.dispatch(&self.count[usize::from(flip)], &arrays, &params, groups)?;
        let places = gpu.array::<u32>("primitives::places", words)?;
        let all = counted.all_of(&gpu, "Sort", words)?;
        self.scan.record(recorder, &table, &all, &places)?;
        let variant = Variant { first: pass.index.is_none(), keep: pass.to_keys.is_some(), flip };
        let mut arrays = vec![pass.keys.raw(), counted.raw(), places.raw()];
        arrays.extend(pass.index.iter().map(|index| index.raw()));
        arrays.extend(pass.to_keys.iter().map(|keys| keys.raw()));
        arrays.push(pass.to_index.raw());
        recorder.dispatch(&self.scatter[variant.place()], &arrays, &params, groups)
    }

    /// Its kernels, without those of the scan.
    pub fn sources(&self) -> Vec<KernelSource> {
        self.count.iter().chain(&self.scatter).map(|kernel| kernel.source().clone()).collect()
    }
}
