//! Kernels compiled for a device.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::array::RawArray;
use super::device::Gpu;
use super::error::DeviceError;
use super::inspect::{self, Extent};
use super::pipeline_cache::PipelineCache;
use super::source::{Access, Assembled, KernelSource, ParamsSpace, Variant};

/// Largest `params` of a kernel in bytes; also the alignment of a dispatch's parameters.
pub(super) const PARAMS: u64 = 256;

/// On whose word a kernel's text keeps within its arrays, ends its loops and divides by nothing that is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Trust {
    /// The library's own, whose suite runs its kernels checked as well.
    Library,
    /// A caller's, given with `unsafe`.
    Caller,
    /// Nobody's: the text is compiled with run-time checks.
    Nobody,
}

/// A compiled kernel for given numbers of windows.
pub(super) struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
    pub label: String,
    /// Of a caller's text: what its parameters take.
    pub params: Option<Extent>,
}

/// A kernel that is compiled when it is first dispatched with arrays of a given number of windows, for each device that
/// it is used on.
///
/// A device keeps what it compiled by its text: a second kernel with the same text compiles nothing.
pub struct Kernel {
    source: KernelSource,
    assembled: Result<Assembled, DeviceError>,
    trust: Trust,
    compiled: Mutex<Compiled>,
}

/// By a device's number and the windows. The pipelines belong to the device and go with it.
type Compiled = HashMap<(u64, Vec<u32>), Weak<Pipeline>>;

impl Kernel {
    /// A kernel with this text, compiled with run-time checks, so that no text can harm the process:
    ///
    /// - an index beyond an array reads and writes some element of that array or nothing, and so it is with private and
    ///   workgroup arrays,
    /// - a division by zero gives the dividend, a remainder by zero 0,
    /// - workgroup memory is zero before it is written,
    /// - a loop without an end stays one: the driver ends it, or the device is lost.
    ///
    /// A text with entry points or bindings of its own, besides `main` and the arrays of its [`KernelSource`], is refused
    /// when it is compiled.
    pub fn new(source: KernelSource) -> Self {
        Self::on_word_of(Trust::Nobody, source)
    }

    /// As [`new`](Self::new) without run-time checks.
    ///
    /// # Safety
    /// In every dispatch of the kernel the text must keep within its arrays, private and workgroup ones too, read no
    /// workgroup memory before it was written, end all its loops, and divide no integer by zero nor the least `i32` by -1.
    /// Drivers may do anything otherwise, with the memory of the process too.
    pub unsafe fn new_unchecked(source: KernelSource) -> Self {
        Self::on_word_of(Trust::Caller, source)
    }

    /// A kernel of the library.
    pub(crate) fn trusted(source: KernelSource) -> Self {
        Self::on_word_of(Trust::Library, source)
    }

    pub(crate) fn on_word_of(trust: Trust, source: KernelSource) -> Self {
        Kernel { assembled: source.assemble(), source, trust, compiled: Mutex::default() }
    }

    /// Its text.
    pub fn source(&self) -> &KernelSource {
        &self.source
    }

    pub(super) fn misuse(&self, why: String) -> DeviceError {
        DeviceError::Misuse { what: self.source.label().into(), why }
    }

    /// The compiled form for these arrays.
    pub(super) fn pipeline(&self, gpu: &Gpu, arrays: &[&RawArray]) -> Result<Arc<Pipeline>, DeviceError> {
        let assembled = self.assembled.as_ref().map_err(Clone::clone)?;
        self.check(gpu, assembled, arrays)?;
        let key = (gpu.0.number, arrays.iter().map(|array| array.windows()).collect::<Vec<_>>());
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = compiled.get(&key).and_then(Weak::upgrade) {
            return Ok(pipeline);
        }
        let pipeline = compile(gpu, assembled, self.trust, &key.1)?;
        compiled.retain(|_, pipeline| pipeline.strong_count() > 0);
        compiled.insert(key, Arc::downgrade(&pipeline));
        Ok(pipeline)
    }

    /// Refuses arrays that are not what the slots say, that another device has, or that alias.
    fn check(&self, gpu: &Gpu, assembled: &Assembled, arrays: &[&RawArray]) -> Result<(), DeviceError> {
        let (slots, label) = (&assembled.slots, &assembled.label);
        if arrays.len() != slots.len() {
            return Err(self.misuse(format!("{} arrays given, {} declared", arrays.len(), slots.len())));
        }
        for (n, (slot, array)) in slots.iter().zip(arrays).enumerate() {
            if slot.element != array.element {
                return Err(self.misuse(format!(
                    "`{}` is declared as {:?}, an array of {:?} was given",
                    slot.name, slot.element, array.element
                )));
            }
            array.on(gpu, label)?;
            if slot.access != Access::Read {
                array.written(label)?;
            }
            let collides = |(other, o): &(&super::Slot, &&RawArray)| {
                array.shares(o)
                    && match (slot.access, other.access) {
                        (Access::Read, Access::Read) => false,
                        // A buffer is bound either for reading or for writing.
                        (Access::Read, _) | (_, Access::Read) => true,
                        _ => array.overlaps(o),
                    }
            };
            if let Some((other, _)) = slots[..n].iter().zip(arrays).find(collides) {
                return Err(self.misuse(format!(
                    "`{}` and `{}` are one array, and it is written; give it once, or a copy",
                    other.name, slot.name
                )));
            }
        }
        Ok(())
    }
}

/// Where a kernel that binds so many windows finds its parameters on this device.
fn params_space(gpu: &Gpu, windows: u32) -> ParamsSpace {
    let lavapipe = gpu.capabilities().loop_rounds.is_some();
    if lavapipe && windows < gpu.capabilities().bindings { ParamsSpace::Storage } else { ParamsSpace::Uniform }
}

fn compile(gpu: &Gpu, source: &Assembled, trust: Trust, windows: &[u32]) -> Result<Arc<Pipeline>, DeviceError> {
    let (capabilities, tuning) = (gpu.capabilities(), gpu.tuning());
    let needed: u32 = windows.iter().sum();
    let params = params_space(gpu, needed);
    if needed > capabilities.bindings {
        let (kernel, limit, window) = (source.label.clone(), capabilities.bindings, capabilities.window_bytes);
        return Err(DeviceError::TooManyWindows { kernel, needed, limit, window });
    }
    let window = (1u64 << capabilities.window_bytes.ilog2()) / 4;
    let text = source.wgsl(&Variant { windows, window, tuning, params })?;
    let entry = {
        let mut pipelines = gpu.0.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        // The same text may be compiled with checks and without.
        pipelines.entry((text.clone(), trust)).or_insert_with(|| Arc::new(OnceLock::new())).clone()
    };
    // Ranks that want the same kernel wait here for the one that compiles it.
    entry.get_or_init(|| build(gpu, source, trust, windows, params, &text).map(Arc::new)).clone()
}

fn build(
    gpu: &Gpu,
    source: &Assembled,
    trust: Trust,
    windows: &[u32],
    params: ParamsSpace,
    text: &str,
) -> Result<Pipeline, DeviceError> {
    let refused = |why: String| DeviceError::Shader { kernel: source.label.clone(), why };
    let extent = match trust {
        Trust::Library => None,
        Trust::Caller | Trust::Nobody => {
            let has_params = !source.fields.is_empty();
            Some(inspect::params(text, windows.iter().sum(), has_params, &source.layout).map_err(refused)?)
        }
    };
    let (device, label) = (gpu.device(), Some(source.label.as_str()));
    // A driver that fails on a text fails as an internal error.
    let scopes =
        [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::Validation].map(|filter| device.push_error_scope(filter));
    let layout = bind_group_layout(device, source, windows, params);
    let checked = trust == Trust::Nobody || gpu.checked();
    let module = shader_module(device, label, text, checked);
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label,
        layout: Some(&device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            ..Default::default()
        })),
        module: &module,
        entry_point: Some("main"),
        // Those who may be trusted write workgroup memory before they read it; clearing it is slow on several drivers.
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: checked,
            ..Default::default()
        },
        cache: gpu.0.cache.as_ref().map(PipelineCache::handle),
    });
    let errors: Vec<_> = scopes.into_iter().rev().filter_map(|scope| pollster::block_on(scope.pop())).collect();
    match errors.first() {
        Some(error) => Err(refused(error.to_string())),
        None => {
            gpu.0.cache.iter().for_each(PipelineCache::compiled);
            Ok(Pipeline { pipeline, layout, label: source.label.clone(), params: extent })
        }
    }
}

/// The parameters at binding 0, then the windows of each array.
fn bind_group_layout(
    device: &wgpu::Device,
    source: &Assembled,
    windows: &[u32],
    params: ParamsSpace,
) -> wgpu::BindGroupLayout {
    let entry = |binding: u32, ty: wgpu::BufferBindingType| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: binding == 0, min_binding_size: None },
        count: None,
    };
    let params = match params {
        ParamsSpace::Uniform => wgpu::BufferBindingType::Uniform,
        ParamsSpace::Storage => wgpu::BufferBindingType::Storage { read_only: true },
    };
    let mut entries = vec![entry(0, params)];
    for (slot, &windows) in source.slots.iter().zip(windows) {
        for _ in 0..windows {
            let read_only = slot.access == Access::Read;
            entries.push(entry(entries.len() as u32, wgpu::BufferBindingType::Storage { read_only }));
        }
    }
    let label = Some(source.label.as_str());
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &entries })
}

/// The text as a module, with run-time checks or without.
fn shader_module(device: &wgpu::Device, label: Option<&str>, text: &str, checked: bool) -> wgpu::ShaderModule {
    let descriptor = wgpu::ShaderModuleDescriptor { label, source: wgpu::ShaderSource::Wgsl(text.into()) };
    if checked {
        return device.create_shader_module(descriptor);
    }
    // SAFETY: without checks a text must keep within its arrays, end all its loops and divide by nothing that is zero. A
    // caller has promised that with `unsafe`. Kernels of this library do so for arrays of the lengths that the functions
    // around them require, and the suite runs them checked as well. What
    // they read indices from is also theirs, and given away for reading only.
    unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
}
