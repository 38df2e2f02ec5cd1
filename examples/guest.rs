//! Works on a caller's device, in a caller's buffer and command encoder: a program that renders, or
//! uses another library of kernels, filters a field without a copy and without waiting.
//!
//! ```text
//! cargo run --release --example guest
//!
//! the first cell: 1.000 before, 0.674 after the filter, 0.454 squared
//! ```

use std::f64::consts::TAU;

use meshloom::comm::Communicator;
use meshloom::gpu::{Array, Gpu, Options, choose};
use meshloom::wgpu;
use meshloom::{Field, Rank};

const SQUARE: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&x) { x[id.x] = x[id.x] * x[id.x]; }
    }";

/// Runs the example.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The program's own device, pipeline and buffer.
    let options = Options::from_env()?;
    let adapter = choose(&options.adapter, 0)?;
    let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()))?;
    let source = wgpu::ShaderSource::Wgsl(SQUARE.into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
    let square = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let size = 4 * 32 * 32 * 32;
    let buffer = device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
    let wave: Vec<f32> = (0..32 * 32 * 32).map(|cell| (TAU * (cell / 1024) as f64 / 32.0).cos() as f32).collect();
    queue.write_buffer(&buffer, 0, meshloom::bytemuck::cast_slice(&wave));

    // meshloom as a guest: a field in that buffer, and a filter.
    let gpu = Gpu::from_wgpu(adapter, device.clone(), queue.clone(), &options)?;
    let mut rank = Rank::new(Communicator::solo(), gpu)?;
    let mesh = rank.mesh([32, 32, 32]).periodic([1.0; 3]).build()?;
    let field = Field::<f32>::from_array(&mesh, Array::from_buffer(&rank.gpu, buffer)?, 1)?;
    let smooth = rank.filter(&field, |k| (-0.01 * k.squared()).exp())?;

    // Its work and the program's own, in one encoder.
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    rank.recorder.encode_into(&mut encoder)?;
    for window in smooth.array().bindings()? {
        let groups = window.size.map_or(0, |bytes| bytes.get() as u32 / 4).div_ceil(64);
        let entries = [wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(window) }];
        let layout = square.get_bind_group_layout(0);
        let group =
            device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout: &layout, entries: &entries });
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&square);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(groups, 1, 1);
    }
    rank.recorder.submitted(queue.submit([encoder.finish()]));

    let [before, squared] = [rank.download(&field)?[0], rank.download(&smooth)?[0]];
    println!("the first cell: {before:.3} before, {:.3} after the filter, {squared:.3} squared", squared.sqrt());
    Ok(())
}
