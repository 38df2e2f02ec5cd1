//! One pass of a radix sort: count the digits of every tile, scan, scatter.

use super::keys::Flip;
use super::plan::{Digit, Form, Tiles, tiles};
use crate::gpu::primitives::count::{COUNTED, Counted};
use crate::gpu::primitives::scan::Scan;
use crate::gpu::{Access, Array, DeviceError, Element, Kernel, KernelSource, Profile, Recorder};

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

/// The kernels of one form and the scan between them.
pub(super) struct Passes {
    form: Form,
    /// Invocations of a workgroup.
    group: u32,
    /// Threads of a software renderer.
    threads: u32,
    count: [Kernel; 2],
    /// Where there are no indices yet, and with indices; for keys that are ordered and for others.
    scatter: [[Kernel; 2]; 2],
    scan: Scan,
}

/// Arrays of one pass.
pub(super) struct Pass<'a> {
    pub keys: &'a Array<u32>,
    /// What goes along with the keys; their places if there is none.
    pub index: Option<&'a Array<u32>>,
    pub to_keys: &'a Array<u32>,
    pub to_index: &'a Array<u32>,
    pub digit: Digit,
    pub flip: Flip,
}

/// WGSL: the digit of a key.
fn digit(flip: bool) -> String {
    let ordered =
        if flip { "key ^ params.flip ^ (bitcast<u32>(bitcast<i32>(key) >> 31u) & params.negative)" } else { "key" };
    let digit = include_str!("../../../../shaders/gpu/sort/digit.wgsl");
    format!("{COUNTED}\nfn ordered(key: u32) -> u32 {{ return {ordered}; }}\n{digit}\n")
}

fn count(form: Form, group: u32, flip: bool) -> KernelSource {
    let body = match form {
        Form::Software => include_str!("../../../../shaders/gpu/sort/serial_count.wgsl"),
        Form::Portable | Form::Subgroups => include_str!("../../../../shaders/gpu/sort/group_count.wgsl"),
    };
    KernelSource::new("primitives::sort_count", format!("{}{body}", digit(flip)))
        .fields(PARAMS)
        .array("keys", Element::U32, Access::Read)
        .array("count", Element::U32, Access::Read)
        .array("table", Element::U32, Access::ReadWrite)
        .group(group)
}

fn scatter(form: Form, group: u32, indexed: bool, flip: bool) -> KernelSource {
    let body = match form {
        Form::Software => include_str!("../../../../shaders/gpu/sort/serial_scatter.wgsl"),
        Form::Portable => include_str!("../../../../shaders/gpu/sort/portable_scatter.wgsl"),
        Form::Subgroups => include_str!("../../../../shaders/gpu/sort/subgroup_scatter.wgsl"),
    };
    let payload = if indexed { "load_index(i)" } else { "i" };
    let moves = format!(
        "fn payload(i: u32) -> u32 {{ return {payload}; }}\n\
         fn place(at: u32, key: u32, payload: u32) {{ store_to_keys(at, key); store_to_index(at, payload); }}\n"
    );
    let mut source = KernelSource::new("primitives::sort_scatter", format!("{}{moves}{body}", digit(flip)))
        .fields(PARAMS)
        .array("keys", Element::U32, Access::Read)
        .array("count", Element::U32, Access::Read)
        .array("table", Element::U32, Access::Read)
        .group(group);
    if indexed {
        source = source.array("index", Element::U32, Access::Read);
    }
    source.array("to_keys", Element::U32, Access::ReadWrite).array("to_index", Element::U32, Access::ReadWrite)
}

impl Passes {
    /// `group` invocations a workgroup for a renderer of so many `threads`.
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
        let mut arrays = vec![pass.keys.raw(), counted.raw(), places.raw()];
        arrays.extend(pass.index.iter().map(|index| index.raw()));
        arrays.extend([pass.to_keys.raw(), pass.to_index.raw()]);
        let kernel = &self.scatter[usize::from(pass.index.is_some())][usize::from(flip)];
        recorder.dispatch(kernel, &arrays, &params, groups)
    }

    /// Its kernels, without those of the scan.
    pub fn sources(&self) -> Vec<KernelSource> {
        self.count.iter().chain(self.scatter.iter().flatten()).map(|kernel| kernel.source().clone()).collect()
    }
}
