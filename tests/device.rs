//! The device layer on whatever adapter the machine offers: arrays in windows, kernels, recording, errors.

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
    Gpu::open(&Options { window_bytes, ..Options::from_env().unwrap() }, 0).unwrap()
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

#[test]
fn warmed_work_allocates_nothing_and_submits_once() {
    // A device of its own, so that nobody else allocates on it meanwhile.
    let options = Options { window_bytes: Some(4096), kernels: 402, ..Options::from_env().unwrap() };
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
    let gpu = Gpu::open(&Options { poison: true, ..Options::from_env().unwrap() }, 0).unwrap();
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
fn a_large_dispatch_is_folded_into_two_dimensions() {
    let gpu = Gpu::open(&Options { poison: false, ..Options::from_env().unwrap() }, 0).unwrap();
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
    let found: Vec<_> = times.iter().map(|time| (time.kernel.as_str(), time.dispatches, time.seconds > 0.0)).collect();
    let want = [(scale().source().label().to_string(), 2, true)];
    let want: Vec<_> = want.iter().map(|(kernel, n, took)| (kernel.as_str(), *n, *took)).collect();
    assert_eq!(found, if gpu.capabilities().timestamps { want } else { Vec::new() });
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
    let floor = Options { window_bytes: Some(256), floor: true, ..Options::from_env().unwrap() };
    let gpu = Gpu::open(&floor, 0).unwrap();
    let error = run(&gpu, 64 * 300).unwrap_err();
    assert!(matches!(error, DeviceError::TooManyWindows { needed: 600, .. }), "{error}");
    let Err(error) = gpu.array::<f32>("huge", 1 << 33) else { panic!("8 Gi elements") };
    assert!(matches!(error, DeviceError::TooLong { .. }), "{error}");
    if let Some(memory) = gpu.capabilities().memory.filter(|memory| *memory < 16 << 30) {
        let open = Gpu::open(&Options { poison: false, ..Options::from_env().unwrap() }, 0).unwrap();
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

/// Kernels, primitives and searches of a GPU run on any device that is told so.
#[test]
fn a_profile_can_be_forced() {
    let options = Options::from_env().unwrap();
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
    let adapter = choose(&Options::from_env().unwrap().adapter, 0).unwrap();
    let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).unwrap();
    let gpu = Gpu::from_wgpu(adapter, device, queue, &Options::default()).unwrap();
    assert_eq!(run(&gpu, 3).unwrap(), [1.0, 3.0, 5.0]);
}

/// What is written is handed over piece by piece, as it comes or out of one upload: all of it arrives, after what was recorded before.
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
