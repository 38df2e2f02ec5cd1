//! A device: opened once, shared by all who work on it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::adapter::{self, Choice};
use super::array::{Array, DeviceElement, LONGEST, Memory, RawArray, Storage};
use super::error::DeviceError;
use super::pipeline::{Pipeline, Trust};
use super::pipeline_cache::{self, PipelineCache};
use super::pool::Pool;
use super::tuning::{Profile, Tuning};

/// How a device is opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Which adapter.
    pub choice: Choice,
    /// Largest window of an array in bytes, a power of two of at least 256; the device's binding limit otherwise. Tests
    /// set a few KiB, so that small arrays are cut as large ones are.
    pub window_bytes: Option<u64>,
    /// Checked kernels: bounds, loops and divisions guarded as WebGPU prescribes, in the library's kernels as in those with a
    /// caller's text, which always are. Slower; for finding errors.
    pub checked: bool,
    /// Keeps to the floor (WebGPU's default limits, no optional feature), whatever the device could do.
    pub floor: bool,
    /// Fills arrays with NaN when they are handed out, so that a read of undefined contents is seen.
    pub poison: bool,
    /// Directory in which compiled kernels are kept from run to run, where the driver can do so (Vulkan, not on the
    /// floor); `None` keeps none. By default `$MESHLOOM_CACHE` (none if that is empty), else `meshloom` in
    /// `$XDG_CACHE_HOME`, `$HOME/.cache` or, on Windows, `%LOCALAPPDATA%`. Drivers trust what they find there: it must
    /// be a directory that nobody else writes to.
    pub cache: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            choice: Choice::Auto,
            window_bytes: None,
            checked: false,
            floor: false,
            poison: cfg!(debug_assertions),
            cache: pipeline_cache::directory(),
        }
    }
}

impl Options {
    /// The defaults, changed by the environment: `MESHLOOM_DEVICE` (an index, a name or a PCI address),
    /// `MESHLOOM_CHECKED=1`, `MESHLOOM_FLOOR=1`, `MESHLOOM_POISON=0|1`, `MESHLOOM_WINDOW_BYTES=n`,
    /// `MESHLOOM_CACHE` (a directory for compiled kernels; empty for none; the defaults heed it too).
    ///
    /// # Errors
    /// [`DeviceError::Misuse`] when a variable has another value.
    pub fn from_env() -> Result<Self, DeviceError> {
        let flag = |name: &str, default: bool| match std::env::var(name).as_deref() {
            Err(_) | Ok("") => Ok(default),
            Ok("1") => Ok(true),
            Ok("0") => Ok(false),
            Ok(other) => Err(DeviceError::Misuse { what: name.into(), why: format!("it is `{other}`, not 0 or 1") }),
        };
        let defaults = Options::default();
        let mut options = Options {
            checked: flag("MESHLOOM_CHECKED", defaults.checked)?,
            floor: flag("MESHLOOM_FLOOR", defaults.floor)?,
            poison: flag("MESHLOOM_POISON", defaults.poison)?,
            ..defaults
        };
        if let Ok(words) = std::env::var("MESHLOOM_DEVICE") {
            let Ok(choice) = words.parse();
            options.choice = choice;
        }
        if let Ok(words) = std::env::var("MESHLOOM_WINDOW_BYTES") {
            let bytes = words.parse().ok().filter(|bytes: &u64| *bytes >= 256 && bytes.is_power_of_two());
            options.window_bytes = Some(bytes.ok_or_else(|| DeviceError::Misuse {
                what: "MESHLOOM_WINDOW_BYTES".into(),
                why: format!("it is `{words}`, not a power of two of at least 256"),
            })?);
        }
        Ok(options)
    }

    fn check(&self) -> Result<(), DeviceError> {
        match self.window_bytes.filter(|bytes| *bytes < 256 || !bytes.is_power_of_two()) {
            None => Ok(()),
            Some(bytes) => Err(DeviceError::Misuse {
                what: "Options::window_bytes".into(),
                why: format!("it is {bytes}, not a power of two of at least 256"),
            }),
        }
    }
}

/// What a device allows and what it is good at.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Largest storage binding in bytes: the size of a window.
    pub window_bytes: u64,
    /// Largest buffer in bytes.
    pub buffer_bytes: u64,
    /// Storage buffers that one kernel can bind.
    pub bindings: u32,
    /// Workgroup memory in bytes.
    pub workgroup_bytes: u32,
    /// Invocations a workgroup.
    pub invocations: u32,
    /// Workgroups a dimension of a dispatch.
    pub workgroups: u32,
    /// GPU or software renderer.
    pub profile: Profile,
    /// Device memory that the host maps directly: exchanges copy nothing twice.
    pub host_visible: bool,
    /// Double precision in kernels.
    pub f64: bool,
    /// Operations across a subgroup.
    pub subgroups: bool,
    /// The least number of invocations in a full subgroup; 1 without such operations.
    pub subgroup_least: u32,
    /// Rounds after which the driver ends all loops of an invocation together, without a word; llvmpipe does so.
    pub loop_rounds: Option<u32>,
    /// Timestamps.
    pub timestamps: bool,
    /// Bytes of device memory, where the driver tells.
    pub memory: Option<u64>,
}

/// A pipeline, once somebody has compiled it.
type Compiled = Arc<OnceLock<Result<Arc<Pipeline>, DeviceError>>>;

pub(super) struct Inner {
    /// No other device of this process ever has it.
    pub number: u64,
    pub info: wgpu::AdapterInfo,
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub capabilities: Capabilities,
    options: Options,
    pool: Mutex<Pool>,
    pub cache: Option<PipelineCache>,
    pub pipelines: Mutex<HashMap<(String, Trust), Compiled>>,
    allocated: AtomicU64,
    allocations: AtomicU64,
    failure: Arc<OnceLock<String>>,
}

/// A device with its memory pool and its compiled kernels.
///
/// - A clone is another handle on the same device. Ranks that are threads of one process and share an adapter share one
///   `Gpu`, so that each kernel is compiled once.
/// - Nothing here submits or waits, except [`Recorder`](super::Recorder), which each rank has of its own.
/// - It is opened by [`Gpu::open`], or made from a caller's own `wgpu::Device` by [`Gpu::from_wgpu`].
#[derive(Clone)]
pub struct Gpu(pub(super) Arc<Inner>);

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("name", &self.0.info.name).finish_non_exhaustive()
    }
}

/// Devices that are open in this process, by adapter and options.
type Open = Vec<(wgpu::Adapter, Options, Weak<Inner>)>;

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// Opens the adapter that `options` choose for the rank number `local_rank` of this host, or gives the handle on it
    /// that this process already has.
    ///
    /// # Errors
    /// As [`choose`](super::choose), [`DeviceError::Open`] when the driver refuses, [`DeviceError::Misuse`] for windows that are
    /// no power of two of at least 256.
    pub fn open(options: &Options, local_rank: usize) -> Result<Gpu, DeviceError> {
        options.check()?;
        // Opening one at a time: drivers crash when devices are created in parallel.
        static OPEN: Mutex<Open> = Mutex::new(Vec::new());
        let adapter = adapter::choose(&options.choice, local_rank)?;
        let mut open = unpoisoned(&OPEN);
        open.retain(|(_, _, inner)| inner.strong_count() > 0);
        if let Some(inner) =
            open.iter().find(|(a, o, _)| a == adapter && o == options).and_then(|(_, _, weak)| weak.upgrade())
        {
            return Ok(Gpu(inner));
        }
        let gpu = Self::request(adapter, options)?;
        open.push((adapter.clone(), options.clone(), Arc::downgrade(&gpu.0)));
        Ok(gpu)
    }

    fn request(adapter: &wgpu::Adapter, options: &Options) -> Result<Gpu, DeviceError> {
        let info = adapter.get_info();
        let limits = if options.floor { adapter::floor() } else { adapter.limits() };
        let shared = matches!(info.device_type, wgpu::DeviceType::Cpu | wgpu::DeviceType::IntegratedGpu);
        let mut wanted = wgpu::Features::SHADER_F64 | wgpu::Features::SUBGROUP | wgpu::Features::TIMESTAMP_QUERY;
        if options.cache.is_some() {
            wanted |= wgpu::Features::PIPELINE_CACHE;
        }
        if shared {
            // On a discrete card this would put arrays into host memory.
            wanted |= wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;
        }
        let features = if options.floor { wgpu::Features::empty() } else { adapter.features() & wanted };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("meshloom"),
            required_features: features,
            required_limits: limits,
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
            .map_err(|e| DeviceError::Open { adapter: info.name.clone(), why: e.to_string() })?;
        let cache = options.cache.as_ref().and_then(|directory| PipelineCache::open(&device, &info, directory));
        Ok(Self::assemble(info, device, queue, options, adapter::memory(adapter), cache))
    }

    /// Works on a device that the caller owns. Its limits and features are taken as they are; its uncaptured-error and
    /// device-lost handlers are replaced by ones that turn errors into [`DeviceError::Lost`]. Compiled kernels are not
    /// kept on disk.
    ///
    /// # Errors
    /// [`DeviceError::Unsuitable`] when the device was requested with less than WebGPU's default limits,
    /// [`DeviceError::Misuse`] as [`open`](Self::open).
    pub fn from_wgpu(
        adapter: &wgpu::Adapter,
        device: wgpu::Device,
        queue: wgpu::Queue,
        options: &Options,
    ) -> Result<Gpu, DeviceError> {
        options.check()?;
        let (have, floor) = (device.limits(), adapter::floor());
        let info = adapter.get_info();
        if have.max_storage_buffers_per_shader_stage < floor.max_storage_buffers_per_shader_stage
            || have.max_compute_invocations_per_workgroup < floor.max_compute_invocations_per_workgroup
            || have.max_compute_workgroup_storage_size < floor.max_compute_workgroup_storage_size
        {
            let why = "the device was requested with less than WebGPU's default limits".into();
            return Err(DeviceError::Unsuitable { adapter: info.name, why });
        }
        Ok(Self::assemble(info, device, queue, options, adapter::memory(adapter), None))
    }

    fn assemble(
        info: wgpu::AdapterInfo,
        device: wgpu::Device,
        queue: wgpu::Queue,
        options: &Options,
        memory: Option<u64>,
        cache: Option<PipelineCache>,
    ) -> Gpu {
        let (limits, features) = (device.limits(), device.features());
        let largest = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        let profile = if info.device_type == wgpu::DeviceType::Cpu { Profile::Software } else { Profile::Gpu };
        let subgroups = features.contains(wgpu::Features::SUBGROUP);
        let capabilities = Capabilities {
            window_bytes: options.window_bytes.map_or(largest, |bytes| bytes.min(largest)),
            buffer_bytes: limits.max_buffer_size,
            bindings: limits.max_storage_buffers_per_shader_stage,
            workgroup_bytes: limits.max_compute_workgroup_storage_size,
            invocations: limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x),
            workgroups: limits.max_compute_workgroups_per_dimension,
            profile,
            host_visible: features.contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS),
            f64: features.contains(wgpu::Features::SHADER_F64),
            subgroups,
            subgroup_least: if subgroups { info.subgroup_min_size.max(1) } else { 1 },
            loop_rounds: info.name.starts_with("llvmpipe").then_some(65_535),
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            memory,
        };
        let failure = Arc::new(OnceLock::new());
        let seen = failure.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let _ = seen.set(error.to_string());
        }));
        let seen = failure.clone();
        device.set_device_lost_callback(move |reason, message| {
            if reason != wgpu::DeviceLostReason::Destroyed {
                let _ = seen.set(format!("the device was lost ({message})"));
            }
        });
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Gpu(Arc::new(Inner {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            info,
            device,
            queue,
            capabilities,
            options: options.clone(),
            pool: Mutex::default(),
            cache,
            pipelines: Mutex::default(),
            allocated: AtomicU64::new(0),
            allocations: AtomicU64::new(0),
            failure,
        }))
    }

    /// Name, driver, kind and backend of the adapter.
    pub fn info(&self) -> &wgpu::AdapterInfo {
        &self.0.info
    }

    /// What the device allows.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    /// Shape of elementwise kernels on this device.
    pub fn tuning(&self) -> Tuning {
        self.0.capabilities.profile.tuning()
    }

    /// Whether the library's kernels run with WebGPU's run-time checks too; see [`Options::checked`].
    pub fn checked(&self) -> bool {
        self.0.options.checked
    }

    /// Whether arrays of [`Memory::Outgoing`] and [`Memory::Incoming`] can be mapped without a copy.
    pub fn host_visible(&self) -> bool {
        self.0.capabilities.host_visible
    }

    /// The device underneath.
    pub fn device(&self) -> &wgpu::Device {
        &self.0.device
    }

    /// Its queue.
    pub fn queue(&self) -> &wgpu::Queue {
        &self.0.queue
    }

    /// How many kernels were compiled so far.
    pub fn compiled(&self) -> usize {
        unpoisoned(&self.0.pipelines).len()
    }

    /// How many buffers were asked of the driver so far (a warmed step asks for none).
    pub fn allocations(&self) -> u64 {
        self.0.allocations.load(Ordering::Relaxed)
    }

    /// Bytes of buffers held at present, in use or pooled.
    pub fn allocated(&self) -> u64 {
        self.0.allocated.load(Ordering::Relaxed)
    }

    /// Writes kernels that were compiled since the device was opened to [`Options::cache`], if the file lacks any. Done
    /// anyway by [`launch`](crate::launch()) and when the last handle is dropped; for programs that end in other ways.
    /// That it cannot be written is no error.
    pub fn save_pipelines(&self) {
        self.0.cache.iter().for_each(PipelineCache::save);
    }

    /// An array of `len` elements in device memory, with undefined contents.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::TooLong`].
    pub fn array<T: DeviceElement>(&self, label: &str, len: u64) -> Result<Array<T>, DeviceError> {
        self.array_in(label, len, Memory::Device)
    }

    /// As [`Gpu::array`], in memory that the host reads or writes too.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::TooLong`].
    pub fn array_in<T: DeviceElement>(&self, label: &str, len: u64, memory: Memory) -> Result<Array<T>, DeviceError> {
        self.check()?;
        if len > LONGEST {
            return Err(DeviceError::TooLong { label: label.into(), len });
        }
        let (bytes, capabilities) = (T::ELEMENT.bytes(), self.capabilities());
        let one_window = len * bytes <= capabilities.window_bytes;
        let (window, per_buffer) = if one_window {
            (len.max(1), 1)
        } else {
            let window = 1u64 << (capabilities.window_bytes / bytes).ilog2();
            (window, (capabilities.buffer_bytes / (window * bytes)).clamp(1, len.div_ceil(window)))
        };
        let per = window * per_buffer;
        let mut storage = Storage { gpu: self.clone(), memory, buffers: Vec::new(), lent: AtomicBool::new(false) };
        for start in (0..len.max(1)).step_by(per as usize) {
            let bytes = ((len - start.min(len)).min(per) * bytes).max(4);
            storage.buffers.push(self.buffer(label, memory, bytes)?);
        }
        Ok(Array::new(RawArray {
            storage: Arc::new(storage),
            element: T::ELEMENT,
            len,
            start: 0,
            window,
            per_buffer,
            writable: true,
        }))
    }

    fn buffer(&self, label: &str, memory: Memory, bytes: u64) -> Result<wgpu::Buffer, DeviceError> {
        let size = Pool::class(bytes).min(self.0.capabilities.buffer_bytes);
        let pooled = unpoisoned(&self.0.pool).take(memory, size);
        let buffer = match pooled {
            Some(buffer) => buffer,
            None => {
                let mut usage =
                    wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
                if self.host_visible() {
                    match memory {
                        Memory::Device => {}
                        Memory::Outgoing => usage |= wgpu::BufferUsages::MAP_READ,
                        Memory::Incoming => usage |= wgpu::BufferUsages::MAP_WRITE,
                    }
                }
                self.new_buffer(label, size, usage)?
            }
        };
        if self.0.options.poison {
            poison(&self.0.queue, &buffer);
        }
        Ok(buffer)
    }

    /// A buffer straight from the driver, with the books kept.
    pub(super) fn new_buffer(
        &self,
        label: &str,
        size: u64,
        usage: wgpu::BufferUsages,
    ) -> Result<wgpu::Buffer, DeviceError> {
        let inner = &self.0;
        let fits = |in_use: u64| inner.capabilities.memory.is_none_or(|memory| in_use + size <= memory);
        if !fits(self.allocated()) {
            self.trim();
        }
        let error = || DeviceError::OutOfMemory {
            label: label.into(),
            needed: size,
            in_use: self.allocated(),
            capacity: inner.capabilities.memory,
        };
        if !fits(self.allocated()) {
            return Err(error());
        }
        let make = || {
            let memory = inner.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
            let valid = inner.device.push_error_scope(wgpu::ErrorFilter::Validation);
            let descriptor = wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false };
            let buffer = inner.device.create_buffer(&descriptor);
            let errors = (pollster::block_on(valid.pop()), pollster::block_on(memory.pop()));
            matches!(errors, (None, None)).then_some(buffer)
        };
        let buffer = make().or_else(|| {
            self.trim();
            make()
        });
        let buffer = buffer.ok_or_else(error)?;
        inner.allocations.fetch_add(1, Ordering::Relaxed);
        inner.allocated.fetch_add(size, Ordering::Relaxed);
        Ok(buffer)
    }

    /// Gives the pool's buffers back to the driver.
    pub fn trim(&self) {
        let freed = unpoisoned(&self.0.pool).empty();
        self.0.allocated.fetch_sub(freed, Ordering::Relaxed);
    }

    /// A buffer of [`Gpu::new_buffer`] is gone.
    pub(super) fn forget(&self, buffer: &wgpu::Buffer) {
        self.0.allocated.fetch_sub(buffer.size(), Ordering::Relaxed);
    }

    pub(super) fn recycle(&self, memory: Memory, buffer: wgpu::Buffer) {
        unpoisoned(&self.0.pool).put(memory, buffer);
    }

    /// What the driver reported after the fact.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] once anything went wrong.
    pub fn check(&self) -> Result<(), DeviceError> {
        self.0.failure.get().map_or(Ok(()), |why| Err(DeviceError::Lost(why.clone())))
    }
}

/// Fills a buffer with a NaN that is also a conspicuous integer.
fn poison(queue: &wgpu::Queue, buffer: &wgpu::Buffer) {
    const CHUNK: u64 = 1 << 20;
    let pattern = vec![0x7fc0_dead_u32; (buffer.size().min(CHUNK) / 4) as usize];
    let bytes: &[u8] = bytemuck::cast_slice(&pattern);
    for at in (0..buffer.size()).step_by(CHUNK as usize) {
        let len = (buffer.size() - at).min(CHUNK) / 4 * 4;
        queue.write_buffer(buffer, at, &bytes[..len as usize]);
    }
}
