//! Kernels compiled for a device.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::array::RawArray;
use super::device::Gpu;
use super::error::DeviceError;
use super::pipeline_cache::PipelineCache;
use super::source::{Access, KernelSource};

/// Largest `params` of a kernel in bytes; also the alignment of a dispatch's parameters.
pub(super) const PARAMS: u64 = 256;

/// A compiled kernel for given numbers of windows.
pub(super) struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
    pub label: String,
}

/// A kernel that is compiled when it is first dispatched with arrays of a given number of windows.
///
/// The device keeps what it compiled by its text: a second kernel with the same text compiles nothing.
pub struct Kernel {
    source: KernelSource,
    compiled: Mutex<HashMap<Vec<u32>, Arc<Pipeline>>>,
}

impl Kernel {
    /// A kernel with this text.
    pub fn new(source: KernelSource) -> Self {
        Kernel { source, compiled: Mutex::default() }
    }

    /// Its text.
    pub fn source(&self) -> &KernelSource {
        &self.source
    }

    /// The compiled form for these arrays.
    pub(super) fn pipeline(&self, gpu: &Gpu, arrays: &[&RawArray]) -> Result<Arc<Pipeline>, DeviceError> {
        let slots = self.source.slots();
        let misuse = |why: String| DeviceError::Misuse { what: self.source.label.clone(), why };
        if arrays.len() != slots.len() {
            return Err(misuse(format!("{} arrays given, {} declared", arrays.len(), slots.len())));
        }
        if let Some((slot, array)) = slots.iter().zip(arrays).find(|(slot, array)| slot.element != array.element) {
            return Err(misuse(format!(
                "`{}` is declared as {:?}, an array of {:?} was given",
                slot.name, slot.element, array.element
            )));
        }
        let windows: Vec<u32> = arrays.iter().map(|array| array.windows()).collect();
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = compiled.get(&windows) {
            return Ok(pipeline.clone());
        }
        let pipeline = compile(gpu, &self.source, &windows)?;
        compiled.insert(windows, pipeline.clone());
        Ok(pipeline)
    }
}

/// How a kernel binds its parameters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Params {
    /// As a uniform, as kernels are written.
    Uniform,
    /// As a storage buffer. Lavapipe compiles a kernel anew for every set of uniforms that its loops and conditions depend
    /// on, which takes longer than most kernels run.
    Stored,
}

impl Params {
    fn of(gpu: &Gpu, windows: u32) -> Self {
        let lavapipe = gpu.capabilities().loop_rounds.is_some();
        if lavapipe && windows < gpu.capabilities().bindings { Params::Stored } else { Params::Uniform }
    }

    fn wgsl(self, text: String) -> String {
        match self {
            Params::Uniform => text,
            Params::Stored => text.replacen("var<uniform> params", "var<storage, read> params", 1),
        }
    }

    fn binding(self) -> wgpu::BufferBindingType {
        match self {
            Params::Uniform => wgpu::BufferBindingType::Uniform,
            Params::Stored => wgpu::BufferBindingType::Storage { read_only: true },
        }
    }
}

fn compile(gpu: &Gpu, source: &KernelSource, windows: &[u32]) -> Result<Arc<Pipeline>, DeviceError> {
    let (capabilities, tuning) = (gpu.capabilities(), gpu.tuning());
    let needed: u32 = windows.iter().sum();
    let params = Params::of(gpu, needed);
    if needed > capabilities.bindings {
        let (kernel, limit, window) = (source.label.clone(), capabilities.bindings, capabilities.window_bytes);
        return Err(DeviceError::TooManyWindows { kernel, needed, limit, window });
    }
    let words = (1u64 << capabilities.window_bytes.ilog2()) / 4;
    let text = params.wgsl(source.wgsl(windows, words, tuning.group, tuning.items)?);
    let entry = {
        let mut pipelines = gpu.0.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        pipelines.entry(text.clone()).or_insert_with(|| Arc::new(OnceLock::new())).clone()
    };
    // Ranks that want the same kernel wait here for the one that compiles it.
    entry.get_or_init(|| build(gpu, source, windows, params, &text).map(Arc::new)).clone()
}

fn build(
    gpu: &Gpu,
    source: &KernelSource,
    windows: &[u32],
    params: Params,
    text: &str,
) -> Result<Pipeline, DeviceError> {
    let (device, label) = (gpu.device(), Some(source.label.as_str()));
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let entry = |binding: u32, ty: wgpu::BufferBindingType, dynamic: bool| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: dynamic, min_binding_size: None },
        count: None,
    };
    let mut entries = vec![entry(0, params.binding(), true)];
    for (slot, &windows) in source.slots().iter().zip(windows) {
        for _ in 0..windows {
            let read_only = slot.access == Access::Read;
            entries.push(entry(entries.len() as u32, wgpu::BufferBindingType::Storage { read_only }, false));
        }
    }
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &entries });
    let checks =
        if gpu.checked() { wgpu::ShaderRuntimeChecks::checked() } else { wgpu::ShaderRuntimeChecks::unchecked() };
    let descriptor = wgpu::ShaderModuleDescriptor { label, source: wgpu::ShaderSource::Wgsl(text.into()) };
    // SAFETY: kernels of this library index within the arrays they are dispatched with, end all their loops and divide
    // by nothing that can be zero; the suite runs them checked as well.
    let module = unsafe { device.create_shader_module_trusted(descriptor, checks) };
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label,
        layout: Some(&device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            ..Default::default()
        })),
        module: &module,
        entry_point: Some("main"),
        // Kernels write workgroup memory before they read it; clearing it is slow on several drivers.
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache: gpu.0.cache.as_ref().map(PipelineCache::handle),
    });
    match pollster::block_on(scope.pop()) {
        Some(error) => Err(DeviceError::Shader { kernel: source.label.clone(), why: error.to_string() }),
        None => {
            gpu.0.cache.iter().for_each(PipelineCache::compiled);
            Ok(Pipeline { pipeline, layout, label: source.label.clone() })
        }
    }
}
