//! Kernels compiled for a device.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::inspect::{self, Extent};
use super::open_device::{COMPILATION, OpenDevice, PATIENCE};
use super::pipeline_cache::PipelineCache;
use super::variant::{Assembled, ParamsSpace, Shader, Variant, WindowBinding};
use super::{Access, Capabilities, DeviceError, DispatchObserver, ObservedKernel, Options, Slot};
use crate::parallel::locked;
use crate::timeline;

/// The guarantee that a kernel's text stays within its arrays, ends its loops and does not divide
/// by zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Trust {
    /// The library's own, whose suite runs its kernels checked as well.
    Library,
    /// A caller's, given with `unsafe`.
    Caller,
    /// No guarantee: the text is compiled with run-time checks.
    Nobody,
}

/// Place of the parameters of a compiled kernel.
pub(super) enum ParamsPlace {
    /// In a buffer, at binding 0 of the group of the arrays.
    WithArrays,
    /// In a buffer, in a group of this layout, because windows are bound together.
    OwnGroup(wgpu::BindGroupLayout),
    /// In immediate data of this number of bytes; 0 without parameters.
    Immediate(u32),
}

/// A compiled kernel for given numbers of windows.
pub(super) struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    /// Layout of the group of the arrays.
    pub layout: wgpu::BindGroupLayout,
    /// Binding of the windows of the arrays.
    pub binding: WindowBinding,
    pub place: ParamsPlace,
    /// Whether its parameters begin with the strides of copies.
    pub stacked: bool,
    pub label: String,
    /// Whether it may write each array.
    pub writes: Vec<bool>,
    /// Extent of the parameters of a caller's text.
    pub params: Option<Extent>,
    /// The text as prepared by the observer, if there is one.
    pub observed: Option<Box<dyn ObservedKernel>>,
    /// When it was used last, by the clock of its device.
    used: AtomicU64,
}

/// A pipeline, once somebody has compiled it.
type Compiled = Arc<OnceLock<Result<Arc<Pipeline>, DeviceError>>>;

/// The pipelines of a device. A text that is among the last ones used is not compiled again.
pub(super) struct Pipelines {
    /// Whether the library's kernels have run-time checks, too.
    pub checked: bool,
    /// Observer of kernels and dispatches.
    pub observer: Option<Arc<dyn DispatchObserver>>,
    /// File of compiled kernels.
    pub cache: Option<PipelineCache>,
    /// Kept pipelines, by text.
    pub kept: Mutex<HashMap<(String, Trust), Compiled>>,
    /// Pipelines at most that are kept.
    most: usize,
    /// Texts that were compiled, and uses.
    pub built: AtomicUsize,
    clock: AtomicU64,
    /// Time that compilations took.
    microseconds: AtomicU64,
}

impl Pipelines {
    pub fn new(options: &Options, cache: Option<PipelineCache>) -> Self {
        let &Options { checked, kernels: most, .. } = options;
        let observer = options.observer.clone();
        let (kept, built) = (Mutex::default(), AtomicUsize::new(0));
        let [clock, microseconds] = [AtomicU64::new(0), AtomicU64::new(0)];
        Pipelines { checked, observer, cache, kept, most, built, clock, microseconds }
    }

    /// Notes that a pipeline is used now.
    pub fn touch(&self, pipeline: &Pipeline) {
        pipeline.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Returns the entry of a text. Where it is a new one, the one that was used longest ago makes
    /// room: what is recorded keeps its own until it has run.
    fn entry(&self, key: (String, Trust)) -> Compiled {
        let mut kept = locked(&self.kept);
        if !kept.contains_key(&key) && kept.len() >= self.most {
            // What is being compiled at this moment stays.
            let last_use = |compiled: &Compiled| match compiled.get() {
                None => u64::MAX,
                Some(Err(_)) => 0,
                Some(Ok(pipeline)) => pipeline.used.load(Ordering::Relaxed),
            };
            let oldest = kept.iter().min_by_key(|(_, compiled)| last_use(compiled)).map(|(key, _)| key.clone());
            oldest.map(|key| kept.remove(&key));
        }
        kept.entry(key).or_default().clone()
    }

    /// Returns a kernel compiled for arrays with these numbers of windows, for stacks or not.
    ///
    /// # Errors
    /// [`DeviceError::TooManyWindows`], [`DeviceError::Shader`].
    pub fn get(
        &self,
        open: &OpenDevice,
        source: &Assembled,
        trust: Trust,
        (windows, stacked): (&[u32], bool),
    ) -> Result<Arc<Pipeline>, DeviceError> {
        let capabilities = &open.capabilities;
        let needed: u32 = windows.iter().sum();
        // Observers see windows by themselves only, and run-time checks know no lengths within
        // arrays of bindings.
        let plain = trust == Trust::Library && !self.checked && self.observer.is_none();
        let together = plain && windows.iter().any(|&windows| windows > 1) && needed <= capabilities.binding_arrays;
        let binding = if together { WindowBinding::BindingArray } else { WindowBinding::Switch };
        if needed > capabilities.bindings && !together {
            let (kernel, limit, window) = (source.label.clone(), capabilities.bindings, capabilities.window_bytes);
            return Err(DeviceError::TooManyWindows { kernel, needed, limit, window });
        }
        let window = (1u64 << capabilities.window_bytes.ilog2()) / 4;
        let params = params_space(capabilities, needed, source.params_bytes_of(stacked));
        let (shape, subgroup_barrier) = (capabilities.profile.workgroup_shape(), capabilities.subgroup_barrier);
        let variant = Variant { windows, window, shape, params, binding, subgroup_barrier, stacked };
        let shader = source.wgsl(&variant)?;
        // The same text may be compiled with checks and without.
        let entry = self.entry((shader.text.clone(), trust));
        // Ranks that want the same kernel wait here for the one that compiles it.
        let build = || {
            self.built.fetch_add(1, Ordering::Relaxed);
            self.build(open, source, trust, &variant, &shader).map(Arc::new)
        };
        let activity = entry.get().is_none().then(|| timeline::activity!("compile", kernel = source.label));
        let compiled = entry.get_or_init(build).clone();
        drop(activity);
        compiled.iter().for_each(|pipeline| self.touch(pipeline));
        compiled
    }

    /// Notes the time of a compilation, and says so after each second.
    fn note_compilation(&self, open: &OpenDevice, took: Duration) {
        open.new_kernels.fetch_add(1, Ordering::Relaxed);
        let took = took.as_micros() as u64;
        let before = self.microseconds.fetch_add(took, Ordering::Relaxed);
        let second = PATIENCE.as_micros() as u64;
        if before / second < (before + took) / second {
            let (kernels, seconds) = (self.built.load(Ordering::Relaxed), (before + took) as f64 / 1e6);
            tracing::info!(target: COMPILATION, "kernels compiled so far: {kernels}, in {seconds:.1} s");
        }
    }

    fn build(
        &self,
        open: &OpenDevice,
        source: &Assembled,
        trust: Trust,
        variant: &Variant<'_>,
        shader: &Shader,
    ) -> Result<Pipeline, DeviceError> {
        let text = shader.text.as_str();
        let refused = |message: String| {
            let hint = source.hint(&message).map_or_else(String::new, |hint| format!("\n{hint}"));
            DeviceError::Shader { kernel: source.label.clone(), why: shader.locate(&message) + &hint }
        };
        let params = match trust {
            Trust::Library => None,
            Trust::Caller | Trust::Nobody => {
                let (arrays, has_params) = (variant.windows.iter().sum(), !source.fields.is_empty());
                // Its own parameters come behind the strides of copies.
                let alone = source.wgsl(&Variant { stacked: false, ..*variant })?.text;
                Some(inspect::params(&alone, arrays, has_params, &source.layout).map_err(refused)?)
            }
        };
        let observed = self.observer.as_ref().map(|observer| observer.kernel(text)).transpose().map_err(refused)?;
        let (device, label, start) = (&open.device, Some(source.label.as_str()), Instant::now());
        let checked = trust == Trust::Nobody || self.checked;
        // A driver that fails on a text fails as an internal error.
        let made = open.attempt(|| {
            let (layout, place) = bind_group_layouts(device, source, variant);
            let (params_layout, immediate_size) = match &place {
                ParamsPlace::WithArrays => (None, 0),
                ParamsPlace::OwnGroup(layout) => (Some(layout), 0),
                ParamsPlace::Immediate(bytes) => (None, *bytes),
            };
            let layouts: Vec<_> = std::iter::once(&layout).chain(params_layout).map(Some).collect();
            let module = shader_module(device, label, text, checked);
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label,
                layout: Some(&device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                    label,
                    bind_group_layouts: &layouts,
                    immediate_size,
                })),
                module: &module,
                entry_point: Some("main"),
                // Those who may be trusted write workgroup memory before they read it; clearing it
                // is slow on several drivers.
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: checked,
                    ..Default::default()
                },
                cache: self.cache.as_ref().map(|cache| &cache.cache),
            });
            (pipeline, layout, place)
        });
        let (pipeline, layout, place) = made.map_err(|error| match error {
            wgpu::Error::OutOfMemory { .. } => DeviceError::Lost(error.to_string()),
            error => refused(error.to_string()),
        })?;
        self.cache.iter().for_each(PipelineCache::compiled);
        let took = start.elapsed();
        tracing::debug!(kernel = source.label, ?trust, seconds = took.as_secs_f64(), "kernel compiled");
        self.note_compilation(open, took);
        let writes = source.slots.iter().map(|slot| slot.access != Access::Read).collect();
        let (label, used) = (source.label.clone(), AtomicU64::new(0));
        let &Variant { binding, stacked, .. } = variant;
        Ok(Pipeline { pipeline, layout, binding, place, stacked, label, writes, params, observed, used })
    }
}

/// Returns the address space of the parameters, of `bytes` bytes, of a kernel that binds `windows`
/// windows.
fn params_space(capabilities: &Capabilities, windows: u32, bytes: u64) -> ParamsSpace {
    if bytes <= u64::from(capabilities.immediate_bytes) {
        ParamsSpace::Immediate
    } else if capabilities.loop_rounds.is_some() && windows < capabilities.bindings {
        // Lavapipe: see `ParamsSpace::Storage`.
        ParamsSpace::Storage
    } else {
        ParamsSpace::Uniform
    }
}

/// Returns the layout of the bindings of arrays from 1 on, and the place of the parameters: those
/// in a buffer are at binding 0, or in the second group where windows are bound together.
fn bind_group_layouts(
    device: &wgpu::Device,
    source: &Assembled,
    variant: &Variant<'_>,
) -> (wgpu::BindGroupLayout, ParamsPlace) {
    let entry = |binding: u32, ty: wgpu::BufferBindingType| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: binding == 0, min_binding_size: None },
        count: None,
    };
    let label = Some(source.label.as_str());
    let layout = |entries: &[wgpu::BindGroupLayoutEntry]| {
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries })
    };
    let params = match variant.params {
        ParamsSpace::Uniform => Some(entry(0, wgpu::BufferBindingType::Uniform)),
        ParamsSpace::Storage => Some(entry(0, wgpu::BufferBindingType::Storage { read_only: true })),
        ParamsSpace::Immediate => None,
    };
    let immediate = ParamsPlace::Immediate(source.params_bytes_of(variant.stacked) as u32);
    let slots = source.slots.iter().zip(variant.windows);
    let of_slot = |slot: &Slot| wgpu::BufferBindingType::Storage { read_only: slot.access == Access::Read };
    match variant.binding {
        WindowBinding::Switch => {
            let windows = slots.flat_map(|(slot, &windows)| (0..windows).map(move |_| of_slot(slot)));
            let windows = (1..).zip(windows).map(|(binding, ty)| entry(binding, ty));
            let place = if params.is_some() { ParamsPlace::WithArrays } else { immediate };
            (layout(&params.into_iter().chain(windows).collect::<Vec<_>>()), place)
        }
        WindowBinding::BindingArray => {
            let array = |(binding, (slot, &windows)): (u32, (&Slot, &u32))| {
                let count = NonZeroU32::new(windows).filter(|_| windows > 1);
                wgpu::BindGroupLayoutEntry { count, ..entry(binding, of_slot(slot)) }
            };
            let place = params.map_or(immediate, |params| ParamsPlace::OwnGroup(layout(&[params])));
            (layout(&(1..).zip(slots).map(array).collect::<Vec<_>>()), place)
        }
    }
}

/// Returns the text as a module, with run-time checks or without.
fn shader_module(device: &wgpu::Device, label: Option<&str>, text: &str, checked: bool) -> wgpu::ShaderModule {
    let descriptor = wgpu::ShaderModuleDescriptor { label, source: wgpu::ShaderSource::Wgsl(text.into()) };
    if checked {
        return device.create_shader_module(descriptor);
    }
    // SAFETY: without checks a text must keep within its arrays, end all its loops and divide by
    // nothing that is zero. A caller has promised that with `unsafe`. Kernels of this library do so
    // for arrays of the lengths that the functions around them require, and the suite runs them
    // checked as well. What they read indices from is also theirs, and given away for reading only.
    unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
}
