//! The library as a guest: on a caller's device, in a caller's buffers, within a caller's encoder.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshloom::gpu::*;

meshloom::kernel_params! { struct Scale { count: u32, factor: f32 } }

/// y = factor x + y.
fn scale() -> Kernel {
    let text = "
        var<uniform> params: Params;
        var<storage, read> x: array<f32>;
        var<storage, read_write> y: array<f32>;

        fn each(i: u32) { store_y(i, load_x(i) * params.factor + load_y(i)); }

        #each params.count
    ";
    Kernel::new(KernelSource::new("test::scale", text).params::<Scale>())
}

fn record(recorder: &mut Recorder, kernel: &Kernel, x: &Array<f32>, y: &Array<f32>, factor: f32) {
    let params = Scale { count: y.len() as u32, factor };
    recorder.each(kernel, &[x.raw(), y.raw()], &params, y.len()).unwrap();
}

/// A program with a device, a pipeline and handlers of its own.
struct Host {
    adapter: &'static wgpu::Adapter,
    device: wgpu::Device,
    queue: wgpu::Queue,
    /// Squares each element of a buffer.
    square: wgpu::ComputePipeline,
    /// Errors that its handler heard of.
    errors: Arc<AtomicUsize>,
}

const SQUARE: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&x) { x[id.x] = x[id.x] * x[id.x]; }
    }";

impl Host {
    fn new() -> Self {
        let adapter = choose(&meshloom_sanitizer::options().unwrap().adapter, 0).unwrap();
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).unwrap();
        let errors = Arc::new(AtomicUsize::new(0));
        let heard = errors.clone();
        device.on_uncaptured_error(Arc::new(move |_| {
            heard.fetch_add(1, Ordering::Relaxed);
        }));
        let source = wgpu::ShaderSource::Wgsl(SQUARE.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        let square = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
        Host { adapter, device, queue, square, errors }
    }

    fn gpu(&self, window_bytes: Option<u64>) -> Gpu {
        let options = Options { window_bytes, ..Options::default() };
        Gpu::from_wgpu(self.adapter, self.device.clone(), self.queue.clone(), &options).unwrap()
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    /// Records the squaring of a range.
    fn square(&self, encoder: &mut wgpu::CommandEncoder, range: wgpu::BufferBinding<'_>) {
        let groups = range.size.unwrap().get().div_ceil(4 * 64) as u32;
        let entry = wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(range) };
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.square.get_bind_group_layout(0),
            entries: &[entry],
        });
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.square);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(groups, 1, 1);
    }

    fn buffer(&self, bytes: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        let label = Some("the caller's");
        self.device.create_buffer(&wgpu::BufferDescriptor { label, size: bytes, usage, mapped_at_creation: false })
    }

    /// A buffer with data that the library can work on.
    fn filled(&self, data: &[f32]) -> wgpu::Buffer {
        let buffer = self.buffer(4 * data.len() as u64, USAGE);
        self.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(data));
        buffer
    }

    fn errors(&self) -> usize {
        self.errors.load(Ordering::Relaxed)
    }
}

const USAGE: wgpu::BufferUsages =
    wgpu::BufferUsages::STORAGE.union(wgpu::BufferUsages::COPY_SRC).union(wgpu::BufferUsages::COPY_DST);

#[track_caller]
fn is_misuse<T>(result: Result<T, DeviceError>, why: &str) {
    match result.map(drop) {
        Err(error @ DeviceError::Misuse { .. }) => assert!(error.to_string().contains(why), "{error}"),
        other => panic!("{why}: {other:?}"),
    }
}

#[test]
fn a_callers_passes_stand_between_those_of_the_library() {
    let (host, kernel) = (Host::new(), scale());
    for window_bytes in [None, Some(1024)] {
        let gpu = host.gpu(window_bytes);
        let mut recorder = Recorder::new(&gpu).unwrap();
        let ones = gpu.array::<f32>("ones", 700).unwrap();
        let x = gpu.array::<f32>("x", 700).unwrap();
        recorder.upload(&ones, 0, &[1.0; 700]).unwrap();
        recorder.upload(&x, 0, &(0..700).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
        assert_eq!(x.bindings().unwrap().count(), if window_bytes.is_none() { 1 } else { 3 });

        let (counts, mut encoder) = (recorder.counts(), host.encoder());
        record(&mut recorder, &kernel, &ones, &x, 1.0); // i + 1
        recorder.encode_into(&mut encoder).unwrap();
        x.bindings().unwrap().for_each(|window| host.square(&mut encoder, window));
        record(&mut recorder, &kernel, &ones, &x, -2.0); // (i + 1)^2 - 2
        recorder.encode_into(&mut encoder).unwrap();
        // What is recorded before the encoder is submitted comes after it.
        record(&mut recorder, &kernel, &ones, &x, 0.5);
        recorder.submitted(host.queue.submit([encoder.finish()]));
        assert_eq!(recorder.counts(), counts);

        let expected: Vec<f32> = (0..700).map(|i| (i as f32 + 1.0).powi(2) - 1.5).collect();
        assert_eq!(recorder.download(&x, 0, 700).unwrap(), expected, "{window_bytes:?}");
        assert_eq!(host.errors(), 0);
    }
}

#[test]
fn nothing_overtakes_an_encoder_that_is_not_submitted() {
    let (host, kernel) = (Host::new(), scale());
    let gpu = host.gpu(None);
    let mut recorder = Recorder::new(&gpu).unwrap();
    let (x, y) = (gpu.array::<f32>("x", 10).unwrap(), gpu.array::<f32>("y", 10).unwrap());
    recorder.upload(&x, 0, &[1.0; 10]).unwrap();
    recorder.upload(&y, 0, &[0.0; 10]).unwrap();

    let mut encoder = host.encoder();
    record(&mut recorder, &kernel, &x, &y, 1.0);
    recorder.encode_into(&mut encoder).unwrap();
    is_misuse(recorder.submit(), "submit it and call Recorder::submitted");
    is_misuse(recorder.wait(), "caller's encoder");
    is_misuse(recorder.upload(&x, 0, &[2.0]), "caller's encoder");
    is_misuse(recorder.download(&x, 0, 1), "caller's encoder");
    // One submission has parameters of 256 dispatches.
    for _ in 1..256 {
        record(&mut recorder, &kernel, &x, &y, 1.0);
    }
    let params = Scale { count: 10, factor: 1.0 };
    is_misuse(recorder.each(&kernel, &[x.raw(), y.raw()], &params, 10), "caller's encoder");
    recorder.encode_into(&mut encoder).unwrap();
    recorder.submitted(host.queue.submit([encoder.finish()]));
    assert_eq!(recorder.download(&y, 0, 10).unwrap(), [256.0; 10]);

    // An encoder that is dropped does nothing; what comes after it does.
    let mut encoder = host.encoder();
    record(&mut recorder, &kernel, &x, &y, 1000.0);
    recorder.encode_into(&mut encoder).unwrap();
    record(&mut recorder, &kernel, &x, &y, 1.0);
    drop(encoder);
    recorder.discarded();
    assert_eq!(recorder.download(&y, 0, 10).unwrap(), [257.0; 10]);
    assert_eq!(host.errors(), 0);
}

#[test]
fn memory_of_encoded_work_is_not_reused_before_it_is_submitted() {
    let (host, kernel) = (Host::new(), scale());
    for recorder_is_dropped in [false, true] {
        let gpu = host.gpu(None);
        let mut recorder = Recorder::new(&gpu).unwrap();
        let (scratch, result) = (gpu.array::<f32>("scratch", 100).unwrap(), gpu.array::<f32>("result", 100).unwrap());
        recorder.upload(&scratch, 0, &[3.0; 100]).unwrap();
        recorder.upload(&result, 0, &[0.0; 100]).unwrap();
        let mut encoder = host.encoder();
        record(&mut recorder, &kernel, &scratch, &result, 1.0);
        recorder.encode_into(&mut encoder).unwrap();
        drop(scratch);
        let mut other = Recorder::new(&gpu).unwrap();
        let submit = |recorder: Option<Recorder>| {
            // Would be the scratch array's memory if that were free.
            let again = gpu.array::<f32>("again", 100).unwrap();
            other.upload(&again, 0, &[7.0; 100]).unwrap();
            let submission = host.queue.submit([encoder.finish()]);
            recorder.into_iter().for_each(|mut recorder| recorder.submitted(submission.clone()));
            assert_eq!(other.download(&result, 0, 100).unwrap(), [3.0; 100], "{recorder_is_dropped}");
        };
        if recorder_is_dropped {
            drop(recorder);
            submit(None);
        } else {
            submit(Some(recorder));
        }
    }
}

#[test]
fn callers_buffers_are_arrays() {
    let (host, kernel) = (Host::new(), scale());
    for window_bytes in [None, Some(256)] {
        let gpu = host.gpu(window_bytes);
        let mut recorder = Recorder::new(&gpu).unwrap();
        let buffer = host.filled(&(0..150).map(|i| i as f32).collect::<Vec<_>>());
        let x = Array::<f32>::from_buffer(&gpu, buffer.clone()).unwrap();
        assert_eq!((x.len(), x.bindings().unwrap().count()), (150, if window_bytes.is_none() { 1 } else { 3 }));
        let y = gpu.array::<f32>("y", 150).unwrap();
        recorder.clear(&y);
        record(&mut recorder, &kernel, &x, &y, 2.0);
        recorder.copy(&y, 0, &x, 0, 75).unwrap();
        recorder.upload(&x, 149, &[-1.0]).unwrap();
        let allocated = gpu.allocated();
        drop(x);
        assert_eq!(gpu.allocated(), allocated, "it was never the library's");
        // Another array would have its memory if it had gone to the pool.
        recorder.upload(&gpu.array::<f32>("other", 150).unwrap(), 0, &[9.0; 150]).unwrap();
        let x = Array::<f32>::from_buffer(&gpu, buffer).unwrap();
        let mut expected: Vec<f32> = (0..150).map(|i| if i < 75 { 2.0 * i as f32 } else { i as f32 }).collect();
        expected[149] = -1.0;
        assert_eq!(recorder.download(&x, 0, 150).unwrap(), expected, "{window_bytes:?}");
    }
    assert_eq!(host.errors(), 0);
}

#[test]
fn buffers_that_do_not_serve_are_refused() {
    let (host, other) = (Host::new(), Host::new());
    let gpu = host.gpu(None);
    is_misuse(Array::<f32>::from_buffer(&gpu, host.buffer(0, USAGE)), "0 bytes");
    is_misuse(Array::<[f32; 2]>::from_buffer(&gpu, host.buffer(12, USAGE)), "12 bytes, not some elements of 8");
    is_misuse(Array::<u32>::from_buffer(&gpu, host.buffer(16, wgpu::BufferUsages::STORAGE)), "usages");
    is_misuse(Array::<u32>::from_buffer(&gpu, other.buffer(16, USAGE)), "cannot bind");
    let destroyed = host.buffer(16, USAGE);
    destroyed.destroy();
    is_misuse(Array::<u32>::from_buffer(&gpu, destroyed), "cannot bind");
    // Two arrays of one buffer are one memory.
    let buffer = host.filled(&[1.0; 8]);
    let [a, b] = [buffer.clone(), buffer].map(|buffer| Array::<f32>::from_buffer(&gpu, buffer).unwrap());
    let mut recorder = Recorder::new(&gpu).unwrap();
    let params = Scale { count: 8, factor: 1.0 };
    is_misuse(recorder.each(&scale(), &[a.raw(), b.raw()], &params, 8), "one array");
    recorder.copy(&a, 0, &b, 4, 4).unwrap();
    assert_eq!(recorder.download(&a, 0, 8).unwrap(), [1.0; 8]);
    assert_eq!((host.errors(), other.errors()), (0, 0));
}

#[test]
fn a_callers_handlers_and_scopes_hear_of_their_own_errors_only() {
    let (host, kernel) = (Host::new(), scale());
    let gpu = host.gpu(None);
    let mut recorder = Recorder::new(&gpu).unwrap();
    let scope = host.device.push_error_scope(wgpu::ErrorFilter::Validation);
    // Errors of the library's own calls: a kernel that does not compile, and an array whose buffer
    // the caller destroys.
    let bad = Kernel::new(KernelSource::new("test::bad", "fn main() { let x: u32 = 1.0; }"));
    assert!(matches!(recorder.dispatch(&bad, &[], &(), 1), Err(DeviceError::Shader { .. })));
    let wrong = host.filled(&[1.0; 4]);
    let x = Array::<f32>::from_buffer(&gpu, wrong.clone()).unwrap();
    let y = gpu.array::<f32>("y", 4).unwrap();
    recorder.upload(&y, 0, &[1.0; 4]).unwrap();
    record(&mut recorder, &kernel, &x, &y, 1.0);
    wrong.destroy();
    let error = recorder.wait().unwrap_err();
    assert!(matches!(error, DeviceError::Lost(_)), "{error}");
    assert!(gpu.check().is_err() && gpu.array::<f32>("more", 1).is_err());
    assert!(pollster::block_on(scope.pop()).is_none(), "the caller's scope saw an error of the library");
    assert_eq!(host.errors(), 0);
    // The caller's own errors still reach them, as the first scope and without one.
    let scope = host.device.push_error_scope(wgpu::ErrorFilter::Validation);
    host.buffer(16, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::STORAGE);
    assert!(pollster::block_on(scope.pop()).is_some());
    host.buffer(16, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::STORAGE);
    assert_eq!(host.errors(), 1);
    // Another handle on the same device knows nothing of it.
    let mut recorder = Recorder::new(&host.gpu(None)).unwrap();
    let z = recorder.gpu().array::<f32>("z", 4).unwrap();
    recorder.upload(&z, 0, &[5.0; 4]).unwrap();
    assert_eq!(recorder.download(&z, 0, 4).unwrap(), [5.0; 4]);
}

#[test]
fn a_lost_device_is_noticed() {
    let host = Host::new();
    let gpu = host.gpu(None);
    let lost = Arc::new(AtomicUsize::new(0));
    let heard = lost.clone();
    host.device.set_device_lost_callback(move |_, _| {
        heard.fetch_add(1, Ordering::Relaxed);
    });
    let mut recorder = Recorder::new(&gpu).unwrap();
    let x = gpu.array::<f32>("x", 4).unwrap();
    recorder.upload(&x, 0, &[1.0; 4]).unwrap();
    assert_eq!(recorder.download(&x, 0, 4).unwrap(), [1.0; 4]);
    host.device.destroy();
    let error = recorder.download(&x, 0, 4).unwrap_err();
    assert!(matches!(error, DeviceError::Lost(_)), "{error}");
    let _ = host.device.poll(wgpu::PollType::Poll);
    assert_eq!(lost.load(Ordering::Relaxed), 1, "the caller's own handler");

    // Where the caller says so, at once.
    let host = Host::new();
    let gpu = host.gpu(None);
    let report = gpu.failure_reporter();
    host.device.set_device_lost_callback(move |_, why| report(&format!("lost ({why})")));
    gpu.check().unwrap();
    host.device.destroy();
    let _ = host.device.poll(wgpu::PollType::Poll);
    assert!(matches!(gpu.check(), Err(DeviceError::Lost(_))));
    assert_eq!(host.errors(), 0);
}

#[test]
fn a_transform_whose_first_layers_are_submitted_is_not_encoded() {
    use meshloom::comm::Communicator;
    use meshloom::exchange::GridComms;
    use meshloom::fft::{Spec, Transform, TransformOptions, TransformTuning};
    use meshloom::grid::Grid;

    let host = Host::new();
    let gpu = host.gpu(None);
    let mut recorder = Recorder::new(&gpu).unwrap();
    let grid = Grid::new([1, 1], 1).unwrap();
    let mut comms = GridComms::new(&Communicator::solo(), grid).unwrap();
    let spec = Spec::of::<[f32; 2]>([40, 4, 8]);
    // Layers of two planes, and one axis after the other.
    let mut spectra = Vec::new();
    for cache_bytes in [2 * 4 * 8 * 8, 0] {
        let tuning = TransformTuning { cache_bytes, ..TransformTuning::of(&gpu) };
        let options = TransformOptions::default().tuning(tuning);
        let transform = Transform::<[f32; 2]>::with(&gpu, &spec, grid, 0, &options).unwrap();
        let layout = transform.field_layout();
        let (field, spectrum) = (transform.field(&gpu, &layout).unwrap(), transform.spectrum(&gpu).unwrap());
        let numbers: Vec<[f32; 2]> = (0..field.len()).map(|i| [(i % 7) as f32, (i % 5) as f32]).collect();
        recorder.upload(&field, 0, &numbers).unwrap();
        transform.forward(&mut recorder, &mut comms, &field, &layout, &spectrum).unwrap();
        let mut encoder = host.encoder();
        if cache_bytes > 0 {
            is_misuse(recorder.encode_into(&mut encoder), "cache_bytes: 0");
            recorder.submit().unwrap();
        }
        recorder.encode_into(&mut encoder).unwrap();
        recorder.submitted(host.queue.submit([encoder.finish()]));
        spectra.push(recorder.download(&spectrum, 0, spectrum.len()).unwrap());
    }
    assert_eq!(spectra[0], spectra[1]);
    assert_eq!(host.errors(), 0);
}
