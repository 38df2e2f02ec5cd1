//! Mistakes of callers with kernels and arrays: none harms the process, and after
//! each error all goes on.

use meshloom::comm::Communicator;
use meshloom::exchange::{Exchange, ExchangeError};
use meshloom::gpu::*;
use meshloom::grid::{Transfer, Transfers};
use meshloom::kernel_params;

/// Twice `x`, and more of what `y` holds.
const ADD: &str = r"
var<uniform> params: Params;
var<storage, read> x: array<u32>;
var<storage, read_write> y: array<u32>;
fn each(i: u32) { store_y(i, load_x(i) * 2u + load_y(i)); }
#each params.count";

kernel_params! {
    struct Count {
        count: u32,
        unused: u32,
    }
}

/// Number of elements.
fn of(count: u32) -> Count {
    Count { count, unused: 0 }
}

fn add() -> Kernel {
    Kernel::new(KernelSource::new("test::add", ADD).params::<Count>())
}

/// A device for those who ask for such windows; each is another one.
fn open(window_bytes: u64) -> Gpu {
    Gpu::open(&Options { window_bytes: Some(window_bytes), ..meshloom_sanitizer::options().unwrap() }, 0).unwrap()
}

/// Returns the device of tests that need none for themselves.
fn shared() -> Gpu {
    open(1 << 16)
}

fn filled(recorder: &mut Recorder, data: &[u32]) -> Array<u32> {
    let array = recorder.gpu().array("data", data.len() as u64).unwrap();
    recorder.upload(&array, 0, data).unwrap();
    array
}

#[track_caller]
fn misused<T>(result: Result<T, DeviceError>, about: &str) {
    match result {
        Err(DeviceError::Misuse { what, why }) => assert!(why.contains(about), "{what}: {why}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("`{about}` is no error"),
    }
}

/// Checks that the device works, and the arrays that were there still hold what they held.
#[track_caller]
fn works(recorder: &mut Recorder, x: &Array<u32>, holds: &[u32]) {
    assert_eq!(recorder.download(x, 0, x.len()).unwrap(), holds);
    let y = filled(recorder, &vec![1; holds.len()]);
    recorder.each(&add(), &[x.raw(), y.raw()], &of(x.len() as u32), x.len()).unwrap();
    let want: Vec<u32> = holds.iter().map(|x| 2 * x + 1).collect();
    assert_eq!(recorder.download(&y, 0, y.len()).unwrap(), want);
}

kernel_params! {
    struct Hostile {
        zero: u32,
        far: u32,
    }
}

const HOSTILE: &str = r"
var<uniform> params: Params;
var<storage, read> x: array<u32>;
var<storage, read_write> out: array<u32>;
var<workgroup> unwritten: array<u32, 64>;
@compute @workgroup_size(GROUP) fn main() {
    var few = array<u32, 4>(11u, 12u, 13u, 14u);
    store_out(0u, 7u / params.zero);
    store_out(1u, 7u % params.zero);
    store_out(2u, unwritten[params.far & 63u]);
    store_out(3u, few[params.far]);
    few[params.far] = 99u;
    store_out(4u, few[0] + few[1] + few[2]);
    store_out(5u, load_x(params.far));
    store_out(params.far, 1u);
}";

#[test]
fn a_callers_text_is_checked_unless_unsafe_says_otherwise() {
    let gpu = shared();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let source = KernelSource::new("test::hostile", HOSTILE).params::<Hostile>().group(1);
    let x = filled(&mut recorder, &[5, 6, 7]);
    let out = filled(&mut recorder, &[77; 8]);
    recorder
        .dispatch(&Kernel::new(source.clone()), &[x.raw(), out.raw()], &Hostile { zero: 0, far: 0x1234_5678 }, 1)
        .unwrap();
    let got = recorder.download(&out, 0, 8).unwrap();
    assert_eq!(got[..3], [7, 0, 0], "division, remainder, workgroup memory");
    // Which element an index beyond the end means is left open, but it is one of these.
    assert!((11..=14).contains(&got[3]), "{got:?}");
    assert!([36, 99 + 12 + 13, 11 + 99 + 13, 11 + 12 + 99].contains(&got[4]), "{got:?}");
    assert!([0, 5, 6, 7].contains(&got[5]), "{got:?}");
    assert!(got[6] == 77 && [77, 1].contains(&got[7]), "{got:?}");
    works(&mut recorder, &x, &[5, 6, 7]);
}

#[test]
fn one_text_is_one_kernel_with_checks_and_one_without() {
    let gpu = open(1 << 19);
    let mut recorder = Recorder::new(&gpu).unwrap();
    let (x, y) = (filled(&mut recorder, &[1, 2]), filled(&mut recorder, &[5, 5]));
    for (kernels, compiled) in [(1, 1), (2, 2), (2, 2)] {
        let kernel = if kernels == 1 {
            add()
        } else {
            // SAFETY: the text keeps to the first `count` elements, of which both arrays have so
            // many.
            unsafe { Kernel::new_unchecked(add().source().clone()) }
        };
        recorder.each(&kernel, &[x.raw(), y.raw()], &of(2), 2).unwrap();
        assert_eq!(gpu.compiled(), compiled);
    }
    assert_eq!(recorder.download(&y, 0, 2).unwrap(), [11, 17]);
}

#[test]
fn texts_that_reach_for_more_than_they_were_given_are_refused() {
    let gpu = shared();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let x = filled(&mut recorder, &[1, 2, 3]);
    for more in [
        "@group(0) @binding(9) var<storage, read_write> stolen: array<u32>;",
        "@group(0) @binding(1) var<storage, read> again: array<vec4<u32>>;",
        "@compute @workgroup_size(1) fn second() { store_y(0u, 1u); }",
    ] {
        let text = format!("{more}\n{ADD}");
        let source = KernelSource::new("test::greedy", text).params::<Count>();
        let y = filled(&mut recorder, &[0; 3]);
        let error = recorder.each(&Kernel::new(source), &[x.raw(), y.raw()], &of(3), 3).unwrap_err();
        assert!(matches!(error, DeviceError::Shader { .. }), "{error}");
    }
    works(&mut recorder, &x, &[1, 2, 3]);
}

kernel_params! {
    struct Only { count: u32 }
}
kernel_params! {
    struct Swapped { unused: u32, count: u32 }
}
kernel_params! {
    struct Same { count: u32, unused: u32 }
}
kernel_params! {
    struct Moved { count: u32, half: [f32; 2] }
}
kernel_params! {
    struct Padded { side: [f32; 4], count: u32 }
}

#[test]
fn parameters_must_be_those_of_the_text() {
    let gpu = shared();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let (x, y) = (filled(&mut recorder, &[1, 2, 3]), filled(&mut recorder, &[0; 3]));
    let arrays = [x.raw(), y.raw()];
    let only = Only { count: 3 };
    misused(recorder.each(&add(), &arrays, &only, 3), "(count: u32) are given, it takes (count: u32, unused: u32)");
    let swapped = Swapped { unused: 0, count: 3 };
    misused(recorder.each(&add(), &arrays, &swapped, 3), "(unused: u32, count: u32) are given");
    misused(recorder.each(&add(), &arrays, &(), 3), "() are given");
    // Another type with the same fields is as good.
    recorder.each(&add(), &arrays, &Same { count: 3, unused: 0 }, 3).unwrap();
    assert_eq!(recorder.download(&y, 0, 3).unwrap(), [2, 4, 6]);
    // WGSL would read `half` from another place than Rust writes it to.
    let moved = Kernel::new(KernelSource::new("test::moved", ADD).params::<Moved>());
    let error = recorder.each(&moved, &arrays, &Moved { count: 3, half: [0.0; 2] }, 3).unwrap_err();
    assert!(
        matches!(&error, DeviceError::Shader { why, .. } if why.contains("`half: vec2<f32>` is at byte 4")),
        "{error}"
    );
    // The padding behind the last field is left out.
    let padded = Kernel::new(KernelSource::new("test::padded", ADD).params::<Padded>());
    recorder.each(&padded, &arrays, &Padded { side: [0.0; 4], count: 3 }, 3).unwrap();
    assert_eq!(recorder.download(&y, 0, 3).unwrap(), [4, 8, 12]);
    works(&mut recorder, &x, &[1, 2, 3]);
}

#[test]
fn an_array_that_is_written_stands_in_one_slot() {
    let gpu = shared();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let x = filled(&mut recorder, &[1, 2, 3]);
    misused(recorder.each(&add(), &[x.raw(), x.raw()], &of(3), 3), "`x` and `y` are one array");
    let seen = x.cast::<i32>().unwrap();
    let source = |access: [&str; 2]| {
        let [a, b] = access;
        let text = format!(
            "var<storage, {a}>; var<storage, {b}>;
             var<storage, read_write> out: array<u32>;
             @compute @workgroup_size(GROUP) fn main() {{ store_out(0u, load_a(1u) + u32(load_b(2u))); }}"
        );
        KernelSource::new("test::three", text.replace("; var", ";\nvar")).group(1)
    };
    let out = filled(&mut recorder, &[0]);
    let [read, write] = ["read> a: array<u32", "read_write> a: array<u32"];
    let atomic = "read_write> a: array<atomic<u32>";
    let [read_b, write_b] = ["read> b: array<i32", "read_write> b: array<i32"];
    for access in [[write, write_b], [atomic, write_b], [write, read_b]] {
        let kernel = Kernel::new(source(access));
        misused(recorder.dispatch(&kernel, &[x.raw(), seen.raw(), out.raw()], &(), 1), "`a` and `b` are one array");
    }
    // All may read it.
    let kernel = Kernel::new(source([read, read_b]));
    recorder.dispatch(&kernel, &[x.raw(), seen.raw(), out.raw()], &(), 1).unwrap();
    assert_eq!(recorder.download(&out, 0, 1).unwrap(), [5]);
    works(&mut recorder, &x, &[1, 2, 3]);
}

#[test]
fn an_array_is_copied_to_itself_as_if_there_were_two() {
    let gpu = shared();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let x = filled(&mut recorder, &[1, 2, 3, 4, 5, 6]);
    recorder.copy(&x, 0, &x, 4, 2).unwrap();
    recorder.copy(&x, 0, &x, 1, 3).unwrap();
    works(&mut recorder, &x, &[1, 1, 2, 3, 1, 2]);
}

#[test]
fn a_kernel_serves_every_device_and_an_array_its_own() {
    let (first, second) = (open(1 << 17), open(1 << 18));
    let mut recorders = [&first, &second].map(|gpu| Recorder::new(gpu).unwrap());
    let kernel = add();
    for recorder in &mut recorders {
        let (x, y) = (filled(recorder, &[1, 2]), filled(recorder, &[5, 5]));
        recorder.each(&kernel, &[x.raw(), y.raw()], &of(2), 2).unwrap();
        assert_eq!(recorder.download(&y, 0, 2).unwrap(), [7, 9]);
    }
    let [here, there] = &mut recorders;
    let (mine, theirs) = (filled(here, &[1, 2]), filled(there, &[3, 4]));
    let foreign = "another device";
    misused(here.each(&kernel, &[theirs.raw(), mine.raw()], &of(2), 2), foreign);
    misused(here.copy(&theirs, 0, &mine, 0, 2), foreign);
    misused(here.copy(&mine, 0, &theirs, 0, 2), foreign);
    misused(here.upload(&theirs, 0, &[8]), foreign);
    misused(here.download(&theirs, 0, 1), foreign);
    here.clear(&theirs);
    misused(here.submit(), foreign);
    let own_part = Transfers {
        send: vec![Transfer { peer: 0, start: 0, len: 2 }],
        receive: vec![Transfer { peer: 0, start: 0, len: 2 }],
    };
    let mut exchange = Exchange::new(Communicator::solo());
    for (outgoing, incoming, about) in
        [(&theirs, &mine, foreign), (&mine, &theirs, foreign), (&mine, &mine, "are the same")]
    {
        let Err(ExchangeError::Device(error)) = exchange.run(here, &own_part, outgoing, incoming) else {
            panic!("{about} is no error")
        };
        misused(Err::<(), _>(error), about);
    }
    works(here, &mine, &[1, 2]);
    works(there, &theirs, &[3, 4]);

    // A kernel outlives its devices.
    drop((recorders, mine, theirs, first, second));
    let gpu = open(1 << 17);
    let mut recorder = Recorder::new(&gpu).unwrap();
    let (x, y) = (filled(&mut recorder, &[1, 2]), filled(&mut recorder, &[5, 5]));
    recorder.each(&kernel, &[x.raw(), y.raw()], &of(2), 2).unwrap();
    assert_eq!(recorder.download(&y, 0, 2).unwrap(), [7, 9]);
}

#[test]
fn sizes_beyond_what_indices_hold_are_refused() {
    let gpu = shared();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let x = filled(&mut recorder, &[1, 2, 3]);
    for len in [LONGEST + 1, 1 << 32, u64::MAX] {
        let Err(error) = gpu.array::<u32>("long", len) else { panic!("{len} elements") };
        assert!(matches!(error, DeviceError::TooLong { .. }), "{error}");
        let y = filled(&mut recorder, &[0; 3]);
        let error = recorder.each(&add(), &[x.raw(), y.raw()], &of(3), len).unwrap_err();
        assert!(matches!(error, DeviceError::TooLong { .. }), "{error}");
    }
    for workgroups in [1 << 32, u64::MAX] {
        misused(recorder.dispatch(&add(), &[x.raw(), x.raw()], &of(3), workgroups), "one array");
        let y = filled(&mut recorder, &[0; 3]);
        misused(recorder.dispatch(&add(), &[x.raw(), y.raw()], &of(3), workgroups), "workgroups");
    }
    misused(recorder.copy(&x, 2, &x, 0, 2), "2 elements from 2");
    misused(recorder.upload(&x, u64::MAX, &[1]), "of an array of 3");
    works(&mut recorder, &x, &[1, 2, 3]);
    for bytes in [0, 3, 128, 300] {
        let options = Options { window_bytes: Some(bytes), ..meshloom_sanitizer::options().unwrap() };
        misused(Gpu::open(&options, 0), "power of two");
    }
    let shape = Profile::Gpu.workgroup_shape();
    let variant = Variant::plain(&[1], 1024, shape);
    misused(KernelSource::new("test::none", "#each_workgroup").wgsl(&variant), "windows");
}

#[test]
fn kernels_that_were_used_longest_ago_make_room() {
    let gpu = Gpu::open(&Options { kernels: 2, ..meshloom_sanitizer::options().unwrap() }, 0).unwrap();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let kernel = |factor: u32| {
        let text = ADD.replace("2u", &format!("{factor}u"));
        Kernel::new(KernelSource::new("test::factor", text).params::<Count>())
    };
    let kernels = [kernel(3), kernel(5), kernel(7)];
    let x = filled(&mut recorder, &[10]);
    for (number, compiled) in [(0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (1, 4), (0, 4), (2, 5)] {
        let y = filled(&mut recorder, &[1]);
        recorder.each(&kernels[number], &[x.raw(), y.raw()], &of(1), 1).unwrap();
        assert_eq!((gpu.compiled(), gpu.kernels_kept()), (compiled, compiled.min(2)), "kernel {number}");
        assert_eq!(recorder.download(&y, 0, 1).unwrap(), [[31, 51, 71][number]]);
    }
    // What is recorded keeps its kernel until it has run.
    let y = filled(&mut recorder, &[1]);
    for kernel in &kernels {
        recorder.each(kernel, &[x.raw(), y.raw()], &of(1), 1).unwrap();
    }
    assert_eq!((recorder.download(&y, 0, 1).unwrap(), gpu.kernels_kept()), (vec![151], 2));
    assert!(Gpu::open(&Options { kernels: 0, ..Options::default() }, 0).is_err());
}

#[test]
fn a_device_that_failed_is_not_given_again() {
    let gpu = open(1 << 15);
    assert_eq!(open(1 << 15).compiled(), gpu.compiled());
    gpu.failure_reporter()("as was asked for");
    assert!(matches!(gpu.check(), Err(DeviceError::Lost(_))));
    let mut recorder = Recorder::new(&open(1 << 15)).unwrap();
    let x = filled(&mut recorder, &[1, 2, 3]);
    works(&mut recorder, &x, &[1, 2, 3]);
    let mut lost = Recorder::new(&gpu).unwrap();
    assert!(
        lost.upload(&x, 0, &[1]).is_err() && gpu.array::<u32>("x", 4).and_then(|x| lost.download(&x, 0, 4)).is_err()
    );
}
