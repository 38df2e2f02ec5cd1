//! The device layer on whatever adapter the machine offers: arrays in windows, kernels, recording,
//! errors.

use super::events::Events;
use meshloom::Rank;
use meshloom::comm::Communicator;
use meshloom::gpu::*;

const SCALE: &str = r"
var<uniform> params: Params;
var<storage, read> x: array<f32>;
var<storage, read_write> y: array<f32>;
fn each(i: u32) { store_y(i, load_x(i) * params.factor + load_y(i)); }
#each params.count";

meshloom::kernel_params! {
    struct Params {
        count: u32,
        factor: f32,
    }
}

meshloom::kernel_params! {
    struct Workgroups {
        count: u32,
    }
}

fn scale() -> Kernel {
    Kernel::new(KernelSource::new("test::scale", SCALE).params::<Params>())
}

fn open(window_bytes: Option<u64>) -> Gpu {
    Gpu::open(&Options { window_bytes, ..meshloom_sanitizer::options().unwrap() }, 0).unwrap()
}

fn run(gpu: &Gpu, n: u64) -> Result<Vec<f32>, DeviceError> {
    let mut recorder = Recorder::new(gpu)?;
    let (x, y) = (gpu.array::<f32>("x", n)?, gpu.array::<f32>("y", n)?);
    recorder.upload(&x, 0, &(0..n).map(|i| i as f32).collect::<Vec<_>>())?;
    recorder.upload(&y, 0, &vec![1.0; n as usize])?;
    recorder.each(&scale(), &[x.raw(), y.raw()], &Params { count: n as u32, factor: 2.0 }, n)?;
    recorder.download(&y, 0, n)
}

#[test]
fn a_kernel_sees_one_array_whatever_its_windows() {
    for (window, sizes) in
        [(None, vec![0, 1, 63, 64, 1025, 100_000]), (Some(1024), vec![0, 1, 255, 256, 257, 768, 1000])]
    {
        let gpu = open(window);
        for n in sizes {
            let expected: Vec<f32> = (0..n).map(|i| 2.0 * i as f32 + 1.0).collect();
            assert_eq!(run(&gpu, n).unwrap(), expected, "n = {n}, window = {window:?}");
        }
    }
}

meshloom::kernel_params! {
    struct Row {
        count: u32,
        row: u32,
        pad: [u32; 2],
        rows: [[f32; 4]; 15],
    }
}

/// Returns the sums of parameters that `dispatches` dispatches of two kernels, with 8 and with 256
/// bytes of parameters, add to arrays, and the bytes that were staged for them.
fn sums_of_params(gpu: &Gpu, dispatches: u32) -> ([Vec<f32>; 2], u64) {
    const ROW: &str = r"
        var<uniform> params: Params;
        var<storage, read_write> y: array<f32>;
        fn each(i: u32) { store_y(i, load_y(i) + params.rows[params.row][i & 3u]); }
        #each params.count";
    let row = Kernel::new(KernelSource::new("test::row", ROW).params::<Row>());
    let (scale, mut recorder) = (scale(), Recorder::new(gpu).unwrap());
    let [x, y, z] = ["x", "y", "z"].map(|label| gpu.array::<f32>(label, 4).unwrap());
    recorder.upload(&x, 0, &[1.0, 2.0, 3.0, 4.0]).unwrap();
    recorder.clear(&y);
    recorder.clear(&z);
    for n in 0..dispatches {
        recorder.each(&scale, &[x.raw(), y.raw()], &Params { count: 4, factor: n as f32 }, 4).unwrap();
        let rows = std::array::from_fn(|k| [(n + 16 * k as u32) as f32; 4]);
        recorder.each(&row, &[z.raw()], &Row { count: 4, row: n % 15, pad: [0; 2], rows }, 4).unwrap();
    }
    let sums = [&y, &z].map(|array| recorder.download(array, 0, 4).unwrap());
    (sums, recorder.counts().parameter_bytes)
}

#[test]
fn parameters_arrive_as_immediate_data_and_in_a_buffer() {
    const DISPATCHES: u32 = 200;
    let sum: u32 = (0..DISPATCHES).sum();
    let rows: u32 = (0..DISPATCHES).map(|n| n + 16 * (n % 15)).sum();
    let expected = [(1..=4).map(|x| (x * sum) as f32).collect(), vec![rows as f32; 4]];
    for floor in [false, true] {
        let gpu = Gpu::open(&Options { floor, ..meshloom_sanitizer::options().unwrap() }, 0).unwrap();
        let (sums, staged) = sums_of_params(&gpu, DISPATCHES);
        assert_eq!(sums, expected, "{:?}", gpu.capabilities());
        // Submissions of up to 256 dispatches: where only the larger parameters lie in the buffer,
        // the smaller ones keep their places.
        let bytes = if gpu.capabilities().immediate_bytes >= 256 { 0 } else { 2 * 256 * u64::from(DISPATCHES) };
        assert_eq!(staged, bytes, "{:?}", gpu.capabilities());
        assert!(!floor || bytes > 0);
    }
}

#[test]
fn warmed_work_allocates_nothing_and_submits_once() {
    // A device of its own, so that no other test allocates on it meanwhile.
    let options = Options { window_bytes: Some(4096), kernels: 402, ..meshloom_sanitizer::options().unwrap() };
    let gpu = Gpu::open(&options, 0).unwrap();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let kernel = scale();
    let x = gpu.array::<f32>("x", 3000).unwrap();
    recorder.upload(&x, 0, &[1.0; 3000]).unwrap();
    let step = |recorder: &mut Recorder| {
        let y = gpu.array::<f32>("y", 3000).unwrap();
        recorder.clear(&y);
        for _ in 0..5 {
            recorder.each(&kernel, &[x.raw(), y.raw()], &Params { count: 3000, factor: 1.0 }, 3000).unwrap();
        }
        recorder.submit().unwrap();
        y
    };
    drop(step(&mut recorder));
    let (before, allocations) = (recorder.counts(), gpu.allocations());
    let y = step(&mut recorder);
    let after = recorder.counts();
    assert_eq!((after.submits - before.submits, after.dispatches - before.dispatches), (1, 5));
    assert_eq!((after.uploads - before.uploads, after.downloads - before.downloads), (0, 0));
    assert_eq!(gpu.allocations(), allocations);
    assert_eq!(recorder.download(&y, 2990, 10).unwrap(), [5.0; 10]);
}

#[test]
fn memory_is_not_reused_before_the_work_on_it_is_submitted() {
    let gpu = Gpu::open(&Options { poison: true, ..meshloom_sanitizer::options().unwrap() }, 0).unwrap();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let result = gpu.array::<f32>("result", 100).unwrap();
    recorder.upload(&result, 0, &[0.0; 100]).unwrap();
    let scratch = gpu.array::<f32>("scratch", 100).unwrap();
    recorder.upload(&scratch, 0, &[3.0; 100]).unwrap();
    recorder.each(&scale(), &[scratch.raw(), result.raw()], &Params { count: 100, factor: 1.0 }, 100).unwrap();
    drop(scratch);
    let _other = gpu.array::<f32>("other", 100).unwrap();
    assert_eq!(recorder.download(&result, 0, 100).unwrap(), [3.0; 100]);
}

#[test]
fn copies_cross_buffers_and_clears_cover_all() {
    let gpu = open(Some(256));
    let mut recorder = Recorder::new(&gpu).unwrap();
    let (a, b) = (gpu.array::<u32>("a", 1000).unwrap(), gpu.array::<u32>("b", 500).unwrap());
    recorder.upload(&a, 0, &(0..1000).collect::<Vec<u32>>()).unwrap();
    recorder.clear(&b);
    recorder.copy(&a, 333, &b, 77, 400).unwrap();
    let got = recorder.download(&b, 0, 500).unwrap();
    let expected: Vec<u32> = (0..500).map(|i| if (77..477).contains(&i) { 333 + i - 77 } else { 0 }).collect();
    assert_eq!(got, expected);
}

#[test]
fn large_clears_and_copies_are_kernels_on_gpus() {
    // One window, several, more than the device binds, and arrays of two buffers.
    for (window_bytes, commands) in [(None, false), (Some(64 << 10), false), (Some(4096), true)] {
        let profile = Some(Profile::Gpu);
        let options = Options { window_bytes, profile, ..meshloom_sanitizer::options().unwrap() };
        let gpu = Gpu::open(&options, 0).unwrap();
        let mut recorder = Recorder::new(&gpu).unwrap();
        let (a, b) = (gpu.array::<[f32; 2]>("a", 20_000).unwrap(), gpu.array::<[f32; 2]>("b", 30_001).unwrap());
        let values: Vec<[f32; 2]> = (0..20_000).map(|i| [i as f32, f32::from_bits(0x7f80_0001 + i)]).collect();
        recorder.upload(&a, 0, &values).unwrap();
        recorder.upload(&b, 0, &vec![[1.0, f32::NAN]; 30_001]).unwrap();
        recorder.clear(&b);
        recorder.copy(&a, 7, &b, 10_001, 19_000).unwrap();
        // Within one array, to a range that overlaps.
        recorder.copy(&b, 10_001, &b, 10_000, 20_000).unwrap();
        assert_eq!(recorder.counts().moved_by_commands > 0, commands, "{window_bytes:?}");
        let got = recorder.download(&b, 0, 30_001).unwrap();
        let bits = |row: &[f32; 2]| row.map(f32::to_bits);
        let expected = |i: usize| match i {
            10_000..29_000 => bits(&values[i - 10_000 + 7]),
            _ => [0, 0],
        };
        // A copy within an array leaves the element behind its target as it was.
        assert!(got[..30_000].iter().enumerate().all(|(i, row)| bits(row) == expected(i)), "{window_bytes:?}");
        // Small ranges stay commands.
        let before = recorder.counts();
        recorder.copy(&a, 0, &b, 0, 100).unwrap();
        recorder.submit().unwrap();
        let after = recorder.counts();
        assert_eq!(after.moved_by_commands - before.moved_by_commands, 800);
        assert_eq!(after.dispatches, before.dispatches);
    }
}

#[test]
fn a_large_dispatch_is_folded_into_two_dimensions() {
    let gpu = Gpu::open(&Options { poison: false, ..meshloom_sanitizer::options().unwrap() }, 0).unwrap();
    let mut recorder = Recorder::new(&gpu).unwrap();
    let kernel = Kernel::new(
        KernelSource::new(
            "test::count",
            r"
            var<uniform> params: Params;
            var<storage, read_write> sum: array<atomic<u32>>;
            fn each_workgroup(w: u32, lane: u32) { if w < params.count { add_sum(w & 7u, 1u); } }
            #each_workgroup",
        )
        .params::<Workgroups>()
        .group(1),
    );
    let sum = gpu.array::<u32>("sum", 8).unwrap();
    recorder.clear(&sum);
    recorder.dispatch(&kernel, &[sum.raw()], &Workgroups { count: 80_000 }, 80_000).unwrap();
    assert_eq!(recorder.download(&sum, 0, 8).unwrap(), [10_000; 8]);
}

#[test]
fn passes_are_timed_where_the_device_can() {
    let gpu = open(None);
    let mut recorder = Recorder::new(&gpu).unwrap();
    let (x, y) = (gpu.array::<f32>("x", 1 << 16).unwrap(), gpu.array::<f32>("y", 1 << 16).unwrap());
    recorder.clear(&x);
    recorder.clear(&y);
    recorder.measure(true).unwrap();
    recorder.each(&scale(), &[x.raw(), y.raw()], &Params { count: 1 << 16, factor: 1.0 }, 1 << 16).unwrap();
    recorder.submit().unwrap();
    assert_eq!(recorder.counts().seconds > 0.0, gpu.capabilities().timestamps);
    recorder.each(&scale(), &[x.raw(), y.raw()], &Params { count: 1 << 16, factor: 1.0 }, 1 << 16).unwrap();
    recorder.clear(&y);
    recorder.wait().unwrap();
    let times = recorder.kernel_times();
    let mut found: Vec<_> =
        times.iter().map(|time| (time.kernel.as_str(), time.dispatches, time.seconds > 0.0)).collect();
    found.sort_unstable();
    let kernel = scale();
    let mut want = Vec::new();
    if gpu.capabilities().timestamps {
        want.push((kernel.source().label(), 2, true));
        // GPUs clear this array by a kernel; commands cannot be timed.
        if gpu.capabilities().profile == Profile::Gpu {
            want.insert(0, ("gpu::clear", 1, true));
        }
    }
    assert_eq!(found, want);
    let all: f64 = times.iter().map(|time| time.seconds).sum();
    assert!((all - recorder.counts().seconds).abs() <= 1e-12);
    recorder.measure(false).unwrap();
    assert!(recorder.kernel_times().is_empty());
    let before = recorder.counts().seconds;
    recorder.each(&scale(), &[x.raw(), y.raw()], &Params { count: 1 << 16, factor: 1.0 }, 1 << 16).unwrap();
    recorder.wait().unwrap();
    assert_eq!(recorder.counts().seconds, before);
}

#[test]
fn errors_are_typed_and_say_what_to_do() {
    // Some devices bind more windows than any test makes.
    let floor = Options { window_bytes: Some(256), floor: true, ..meshloom_sanitizer::options().unwrap() };
    let gpu = Gpu::open(&floor, 0).unwrap();
    let error = run(&gpu, 64 * 300).unwrap_err();
    assert!(matches!(error, DeviceError::TooManyWindows { needed: 600, .. }), "{error}");
    let Err(error) = gpu.array::<f32>("huge", 1 << 33) else { panic!("8 Gi elements") };
    assert!(matches!(error, DeviceError::TooLong { .. }), "{error}");
    if let Some(memory) = gpu.capabilities().memory.filter(|memory| *memory < 16 << 30) {
        let open = Gpu::open(&Options { poison: false, ..meshloom_sanitizer::options().unwrap() }, 0).unwrap();
        let Err(error) = open.array::<f32>("large", memory / 4 + 1000) else { panic!("more than there is") };
        assert!(matches!(error, DeviceError::OutOfMemory { .. }), "{error}");
    }
    let bad = Kernel::new(KernelSource::new("test::bad", "fn main() { let x: u32 = 1.0; }"));
    let mut recorder = Recorder::new(&gpu).unwrap();
    let error = recorder.dispatch(&bad, &[], &(), 1).unwrap_err();
    assert!(matches!(error, DeviceError::Shader { .. }), "{error}");
    let x = gpu.array::<u32>("x", 5).unwrap();
    let error = recorder.dispatch(&scale(), &[x.raw(), x.raw()], &Params { count: 0, factor: 0.0 }, 1).unwrap_err();
    assert!(matches!(error, DeviceError::Misuse { .. }), "{error}");
    assert!(matches!(recorder.download(&x, 3, 3), Err(DeviceError::Misuse { .. })));
    let unknown = Options { adapter: AdapterSelector::Name("no such device".into()), ..Options::default() };
    let error = Gpu::open(&unknown, 0).unwrap_err();
    assert!(matches!(error, DeviceError::UnknownAdapter { .. }), "{error}");
}

/// Each message names what is wrong in the author's own words and says what to write instead.
#[test]
fn mistakes_in_a_kernel_are_explained() {
    let gpu = open(None);
    let mut recorder = Recorder::new(&gpu).unwrap();
    let [x, y] = ["x", "y"].map(|name| gpu.array::<f32>(name, 8).unwrap());
    let arrays = [x.raw(), y.raw()];
    let mut refused = |text: &str, arrays: &[&RawArray]| {
        let kernel = Kernel::new(KernelSource::new("test::mistake", text.to_string()).params::<Params>());
        recorder.dispatch(&kernel, arrays, &Params { count: 8, factor: 2.0 }, 1).unwrap_err().to_string()
    };
    let declarations = "var<uniform> params: Params;\nvar<storage, read> x: array<f32>;\n\
                        var<storage, read_write> y: array<f32>;\n";
    let each = |body: &str| format!("{declarations}fn each(i: u32) {{\n    {body}\n}}\n#each params.count");

    let without_entry = refused(&format!("{declarations}fn each(i: u32) {{}}"), &arrays);
    assert!(without_entry.contains("no `#each COUNT` line"), "{without_entry}");
    let raw = "@group(0) @binding(1) var<storage, read_write> y: array<f32>;\n\
               @compute @workgroup_size(1) fn main() { y[0] = 1.0; }";
    let raw = refused(raw, &[y.raw()]);
    assert!(raw.contains("expected 0 arrays, got 1") && raw.contains("without @group and @binding"), "{raw}");
    let element = refused("var<storage, read> x: array<vec3<f32>>;\n#each 1u", &arrays);
    assert!(element.contains("`x`: unsupported element type vec3<f32>; expected one of f32, u32"), "{element}");
    // What follows a declaration in its line would be lost.
    for text in [
        "var<storage, read> x: array<f32>; fn each(i: u32) {}\n#each 1u",
        "var<uniform> params: Params; fn f() {}\n#each 1u",
    ] {
        let joined = refused(text, &arrays);
        assert!(joined.contains("begin a new line after `;`"), "{joined}");
    }
    let indexed = refused(&each("y[i] = 2.0;"), &arrays);
    assert!(indexed.contains("read its elements with `load_y(i)`, write them with `store_y(i, value)`"), "{indexed}");
    // The place is that of the author's text, not of the generated one.
    assert!(indexed.contains("line 5 of the kernel's text, column 5"), "{indexed}");
    let read_only = refused(&each("store_x(i, 2.0);"), &arrays);
    assert!(read_only.contains("declare `var<storage, read_write> x: array<f32>;`"), "{read_only}");
    let not_atomic = refused(&each("let old = add_y(i, 2.0);"), &arrays);
    assert!(not_atomic.contains("array<atomic<f32>>"), "{not_atomic}");
    let whole = gpu.array::<u32>("whole", 8).unwrap();
    let other_type = refused(SCALE, &[whole.raw(), y.raw()]);
    assert!(other_type.contains("`x`: declared as f32, got an array of u32"), "{other_type}");
    assert_eq!(run(&gpu, 5).unwrap(), [1.0, 3.0, 5.0, 7.0, 9.0], "the device still works");
}

/// A driver that ends loops early must not do so silently.
#[test]
fn loops_longer_than_the_driver_runs_are_refused() {
    const ROUNDS: u32 = 100_000;
    const TEXT: &str = "
        var<uniform> params: Params;
        var<storage, read_write> y: array<u32>;
        fn each_invocation(i: u32) {
            var sum = 0u;
            for (var n = 0u; n < params.count; n++) { sum += 1u; }
            store_y(i, sum);
        }
        #each_invocation 1u";
    let gpu = open(None);
    let mut recorder = Recorder::new(&gpu).unwrap();
    let y = gpu.array::<u32>("y", 1).unwrap();
    let source = |rounds: u32| KernelSource::new("test::rounds", TEXT).params::<Workgroups>().loop_rounds(rounds);
    let params = Workgroups { count: ROUNDS };
    let result = recorder.dispatch(&Kernel::new(source(ROUNDS)), &[y.raw()], &params, 1);
    match gpu.capabilities().loop_rounds.map(u64::from).filter(|&limit| limit < u64::from(ROUNDS)) {
        Some(limit) => {
            let error = result.unwrap_err();
            let expected = DeviceError::LoopRounds { kernel: "test::rounds".into(), rounds: u64::from(ROUNDS), limit };
            assert_eq!(error, expected, "{error}");
        }
        None => {
            result.unwrap();
            assert_eq!(recorder.download(&y, 0, 1).unwrap(), [ROUNDS]);
        }
    }
    // A kernel within the limit runs.
    recorder.dispatch(&Kernel::new(source(1000)), &[y.raw()], &Workgroups { count: 1000 }, 1).unwrap();
    assert_eq!(recorder.download(&y, 0, 1).unwrap(), [1000]);
}

/// Four numbers of an element are read and written together.
#[test]
fn arrays_of_four_numbers_reach_kernels() {
    const TEXT: &str = "
        var<storage, read_write> x: array<vec4<f32>>;
        fn each(i: u32) { store_x(i, load_x(i).wzyx * 2.0); }
        #each 3u";
    for window in [None, Some(256)] {
        let gpu = open(window);
        let mut recorder = Recorder::new(&gpu).unwrap();
        let numbers: Vec<[f32; 4]> = (0..40).map(|i| [0, 1, 2, 3].map(|j| (4 * i + j) as f32)).collect();
        let x = gpu.array::<[f32; 4]>("x", 40).unwrap();
        recorder.upload(&x, 0, &numbers).unwrap();
        recorder.each(&Kernel::new(KernelSource::new("test::four", TEXT)), &[x.raw()], &(), 3).unwrap();
        let turned = |row: &[f32; 4]| [3, 2, 1, 0].map(|j| 2.0 * row[j]);
        let expected: Vec<[f32; 4]> =
            numbers.iter().enumerate().map(|(i, row)| if i < 3 { turned(row) } else { *row }).collect();
        assert_eq!(recorder.download(&x, 0, 40).unwrap(), expected, "{window:?}");
    }
}

/// Kernels, primitives and searches of a GPU run on any device in that profile.
#[test]
fn a_profile_can_be_forced() {
    let options = meshloom_sanitizer::options().unwrap();
    for (profile, shape) in [(Profile::Gpu, [256, 4]), (Profile::Software, [64, 16])] {
        let gpu = Gpu::open(&Options { profile: Some(profile), ..options.clone() }, 0).unwrap();
        let WorkgroupShape { group, items } = gpu.workgroup_shape();
        assert_eq!((gpu.capabilities().profile, [group, items]), (profile, shape));
        let expected: Vec<f32> = (0..5000).map(|i| 2.0 * i as f32 + 1.0).collect();
        assert_eq!(run(&gpu, 5000).unwrap(), expected);
    }
}

#[test]
fn a_callers_own_device_serves() {
    let adapter = choose(&meshloom_sanitizer::options().unwrap().adapter, 0).unwrap();
    let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).unwrap();
    let gpu = Gpu::from_wgpu(adapter, device, queue, &Options::default()).unwrap();
    assert_eq!(run(&gpu, 3).unwrap(), [1.0, 3.0, 5.0]);
}

/// Written bytes are handed over piece by piece, as it comes or out of one upload: all of it
/// arrives, after what was recorded before.
#[test]
fn long_uploads_arrive_whole() {
    let gpu = open(None);
    let mut recorder = Recorder::new(&gpu).unwrap();
    // 150 MiB, more than two pieces, which do not begin where uploads do.
    let data: Vec<u32> = (0..(150 << 18) + 3).map(|i: u32| i.wrapping_mul(0x9e37_79b9)).collect();
    let array = gpu.array::<u32>("data", data.len() as u64).unwrap();
    for most in [data.len(), 5_000_011] {
        recorder.clear(&array);
        for (number, part) in data.chunks(most).enumerate() {
            recorder.upload(&array, (number * most) as u64, part).unwrap();
        }
        assert!(recorder.download(&array, 0, array.len()).unwrap() == data, "{most}");
    }
}

#[test]
fn work_that_was_never_submitted_is_warned_of() {
    let gpu = open(None);
    let warnings = Events::of(tracing::Level::WARN, || {
        let x = gpu.array::<f32>("x", 8).unwrap();
        for submit in [true, false] {
            let mut recorder = Recorder::new(&gpu).unwrap();
            recorder.clear(&x);
            if submit {
                recorder.submit().unwrap();
            }
        }
    });
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("1 commands that were never submitted"), "{warnings:?}");
}

#[test]
fn grids_plans_and_collectives_are_traced() {
    let work = || {
        let mut rank = Rank::new(Communicator::solo(), open(None)).unwrap();
        let mesh = rank.mesh([4, 6]).periodic([1.0; 2]).build().unwrap();
        let field = rank.zeros::<f32>(&mesh).unwrap();
        // The second transform takes the plan of the first.
        (0..2).for_each(|_| drop(rank.fft(&field).unwrap()));
    };
    let traced = Events::of(tracing::Level::TRACE, work);
    let count = |text: &str| traced.iter().filter(|event| event.contains(text)).count();
    assert_eq!(count("process grid created"), 1, "{traced:?}");
    assert_eq!(count("plan created"), 1, "{traced:?}");
    assert!(count("all_gather(") > 0, "{traced:?}");
    // Each collective is an event, at a level of its own.
    assert!(Events::of(tracing::Level::DEBUG, work).iter().all(|event| !event.contains("all_gather(")));
}

/// Each in a process of its own, since variables are the whole process's.
#[test]
fn variables_that_cannot_be_followed_are_errors() {
    const INNER: &str = "MESHLOOM_TEST_INNER";
    if let Ok(expected) = std::env::var(INNER) {
        let error = Options::from_env().unwrap_err();
        assert!(matches!(error, DeviceError::Misuse { .. }), "{error}");
        assert!(expected.split(' ').all(|word| error.to_string().contains(word)), "{error}");
        return;
    }
    for (name, value, expected) in [
        ("MESHLOOM_SANITIZE", "1", "MESHLOOM_SANITIZE meshloom-sanitizer"),
        ("MESHLOOM_COPY_QUEUES", "two", "MESHLOOM_COPY_QUEUES own kernels `two`"),
        ("MESHLOOM_PAINTING", "cells", "MESHLOOM_PAINTING memory tiles `cells`"),
        ("MESHLOOM_EXCHANGE", "pigeon", "MESHLOOM_EXCHANGE peer staging `pigeon`"),
    ] {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.arg("variables_that_cannot_be_followed_are_errors").env(INNER, expected).env(name, value);
        let output = again.output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    }
}
