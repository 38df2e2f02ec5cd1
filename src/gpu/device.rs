//! A device: opened once, shared by all who work on it.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use super::capabilities::{ATOMIC_U64, BINDING_ARRAYS, Capabilities, CommonLimits};
use super::copy_queues::CopyQueues;
use super::open_device::{DeviceOwner, OpenDevice, RawDevice};
use super::pipeline::Pipelines;
use super::pipeline_cache::PipelineCache;
use super::pool::{MemoryKind, Pool};
use super::{DeviceError, Element, ExchangePath, HostPages, Options, PeerMemory, WorkgroupShape, adapter, import};
use crate::parallel::locked;

pub(super) struct Inner {
    pub open: OpenDevice,
    pub pipelines: Pipelines,
    pub pool: Pool,
    /// See [`Options::poison`].
    poison: bool,
    /// See [`Options::exchange`].
    exchange: Option<ExchangePath>,
}

/// A device with its memory pool and its compiled kernels.
///
/// - A clone is another handle on the same device. Ranks that are threads of one process and share
///   an adapter share one `Gpu`, so that each kernel is compiled once.
/// - Nothing here submits or waits, except [`Recorder`](super::Recorder), which each rank has of
///   its own.
/// - It is opened by [`Gpu::open`], or made from a caller's own `wgpu::Device` by
///   [`Gpu::from_wgpu`].
#[derive(Clone)]
pub struct Gpu(pub(super) Arc<Inner>, CommonLimits);

shallow_send_sync!(Gpu: Arc<Inner>, CommonLimits);

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("name", &self.info().name).finish_non_exhaustive()
    }
}

/// Devices that are open in this process, by adapter and options.
type Open = Vec<(wgpu::Adapter, Options, Weak<Inner>)>;

impl Gpu {
    /// Opens the adapter that `options` choose for the rank with number `local_rank` on this host,
    /// or returns a handle to the device that this process has already opened on it, unless that
    /// device has failed.
    ///
    /// # Errors
    /// Same as [`choose`](super::choose), [`DeviceError::Open`] when the driver refuses,
    /// [`DeviceError::Misuse`] for windows that are not a power of two of at least 256.
    pub fn open(options: &Options, local_rank: usize) -> Result<Gpu, DeviceError> {
        options.check()?;
        // Opening one at a time: drivers crash when devices are created in parallel.
        static OPEN: Mutex<Open> = Mutex::new(Vec::new());
        let adapter = adapter::choose(&options.adapter, local_rank)?;
        let mut open = locked(&OPEN);
        open.retain(|(_, _, inner)| inner.upgrade().is_some_and(|inner| inner.open.check().is_ok()));
        if let Some(inner) =
            open.iter().find(|(a, o, _)| a == adapter && o == options).and_then(|(_, _, weak)| weak.upgrade())
        {
            return Ok(Self::alone(inner));
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
        wanted |= ATOMIC_U64 | BINDING_ARRAYS | wgpu::Features::SUBGROUP_BARRIER | wgpu::Features::IMMEDIATES;
        if options.cache.is_some() {
            wanted |= wgpu::Features::PIPELINE_CACHE;
        }
        let ranks_map = matches!(options.exchange, None | Some(ExchangePath::Mapped));
        if shared && ranks_map {
            // On a discrete card this would put arrays into host memory.
            wanted |= wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;
        }
        let features = if options.floor { wgpu::Features::empty() } else { adapter.features() & wanted };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("meshloom"),
            required_features: features,
            required_limits: limits,
            memory_hints: wgpu::MemoryHints::Performance,
            ..Default::default()
        };
        let maps = features.contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS);
        let wants_ring = options.exchange.map_or(!maps, ExchangePath::lends);
        let importing = if wants_ring && !options.floor {
            import::open_device(adapter, &descriptor, options.copy_queues)
        } else {
            None
        };
        let host_import = importing.is_some();
        let raw = match importing {
            Some(raw) => raw,
            None => {
                let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
                    .map_err(|e| DeviceError::Open { adapter: info.name.clone(), why: e.to_string() })?;
                RawDevice { device, queue, copies: None }
            }
        };
        let cache = options.cache.as_ref().and_then(|directory| PipelineCache::open(&raw.device, &info, directory));
        let mut capabilities = Capabilities::of(&raw.device, adapter, options);
        capabilities.host_import = host_import;
        capabilities.copy_queues = raw.copies.as_ref().map_or(0, CopyQueues::count);
        if options.exchange == Some(ExchangePath::Mapped) && !capabilities.host_visible {
            let why = "the host cannot map its arrays, as exchange path `mapped` needs".into();
            return Err(DeviceError::Unsuitable { adapter: info.name, why });
        }
        let open = OpenDevice::new(raw, info, capabilities, DeviceOwner::Library);
        Ok(Self::with(open, options, cache))
    }

    /// Works on a device that the caller owns, with its limits and features as they are.
    ///
    /// - Its uncaptured-error and device-lost handlers stay the caller's. Errors of the library's
    ///   own calls are caught in error scopes around them and become [`DeviceError::Lost`]; they
    ///   reach no handler, and scopes that the caller has open see none.
    /// - A lost device is noticed by the next call that waits for it (`download`, `wait`), and
    ///   sooner where the caller's device-lost handler calls the function that
    ///   [`failure_reporter`](Self::failure_reporter) gives.
    /// - Compiled kernels are not kept on disk, and each call makes a device of its own in the
    ///   library's eyes: arrays of one do not serve on another.
    ///
    /// # Errors
    /// [`DeviceError::Unsuitable`] when the device was requested with less than WebGPU's default
    /// limits, [`DeviceError::Misuse`] as [`open`](Self::open).
    pub fn from_wgpu(
        adapter: &wgpu::Adapter,
        device: wgpu::Device,
        queue: wgpu::Queue,
        options: &Options,
    ) -> Result<Gpu, DeviceError> {
        options.check()?;
        let info = adapter.get_info();
        if let Some(why) = adapter::below_floor(&device.limits()) {
            let why = format!("the device was requested with less than WebGPU's default limits: {why}");
            return Err(DeviceError::Unsuitable { adapter: info.name, why });
        }
        let capabilities = Capabilities::of(&device, adapter, options);
        let open = OpenDevice::new(RawDevice { device, queue, copies: None }, info, capabilities, DeviceOwner::Caller);
        Ok(Self::with(open, options, None))
    }

    fn with(open: OpenDevice, options: &Options, cache: Option<PipelineCache>) -> Gpu {
        let (info, capabilities) = (&open.info, &open.capabilities);
        tracing::debug!(
            adapter = info.name,
            backend = %info.backend,
            profile = ?capabilities.profile,
            bindings = capabilities.bindings,
            window_bytes = capabilities.window_bytes,
            subgroup = capabilities.subgroup_most,
            "device opened"
        );
        let pipelines = Pipelines::new(options, cache);
        let &Options { poison, exchange, .. } = options;
        Self::alone(Arc::new(Inner { open, pipelines, pool: Pool::default(), poison, exchange }))
    }

    /// A device that has nothing in common with others yet.
    fn alone(inner: Arc<Inner>) -> Gpu {
        let own = CommonLimits::of(&inner.open.capabilities);
        Gpu(inner, own)
    }

    /// Name, driver, kind and backend of the adapter.
    #[must_use]
    pub fn info(&self) -> &wgpu::AdapterInfo {
        &self.0.open.info
    }

    /// Returns what the device allows.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.open.capabilities
    }

    /// Returns the limits that this device shares with the devices of the other ranks, where ranks
    /// have agreed on them, as those of a [`Rank`](crate::Rank) have; otherwise those of this
    /// device.
    #[must_use]
    pub fn common(&self) -> &CommonLimits {
        &self.1
    }

    /// A handle on this device for work together with others, which have this in common.
    pub(crate) fn among(&self, common: CommonLimits) -> Gpu {
        Gpu(self.0.clone(), common)
    }

    /// Shape of elementwise kernels on this device.
    #[must_use]
    pub fn workgroup_shape(&self) -> WorkgroupShape {
        self.capabilities().profile.workgroup_shape()
    }

    /// Returns `true` if the library's kernels run with WebGPU's run-time checks too; see
    /// [`Options::checked`].
    #[must_use]
    pub fn checked(&self) -> bool {
        self.0.pipelines.checked
    }

    /// Returns the device underneath.
    #[must_use]
    pub fn device(&self) -> &wgpu::Device {
        &self.0.open.device
    }

    /// Returns its queue.
    #[must_use]
    pub fn queue(&self) -> &wgpu::Queue {
        &self.0.open.queue
    }

    /// Returns how many kernels were compiled so far.
    #[must_use]
    pub fn compiled(&self) -> usize {
        self.0.pipelines.built.load(Ordering::Relaxed)
    }

    /// Returns how many compiled kernels are kept, of [`Options::kernels`] at most.
    #[must_use]
    pub fn kernels_kept(&self) -> usize {
        locked(&self.0.pipelines.kept).len()
    }

    /// Returns how many buffers were asked of the driver so far (a warmed step asks for none).
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.0.pool.allocations.load(Ordering::Relaxed)
    }

    /// Returns the bytes of buffers held at present, in use or pooled.
    #[must_use]
    pub fn allocated(&self) -> u64 {
        self.0.pool.allocated()
    }

    /// Returns the most bytes of buffers that were in use at a time since it was opened.
    #[must_use]
    pub fn most_used(&self) -> u64 {
        self.0.pool.most_used.load(Ordering::Relaxed)
    }

    /// Writes kernels that were compiled since the device was opened to [`Options::cache`], if the
    /// file lacks any. [`launch`](crate::launch()) and dropping the last handle do so, too; call it
    /// in programs that end in other ways. Failures to write are ignored: the cache is optional.
    pub fn save_pipelines(&self) {
        self.0.pipelines.cache.iter().for_each(PipelineCache::save);
    }

    /// Returns the file of compiled kernels, if the device has one.
    pub(crate) fn pipeline_file(&self) -> Option<&Path> {
        self.0.pipelines.cache.as_ref().map(|cache| cache.file.as_path())
    }

    /// Writes no compiled kernels from now on: another rank has the same and writes them.
    pub(crate) fn leave_pipelines_to_others(&self) {
        self.0.pipelines.cache.iter().for_each(PipelineCache::leave_to_others);
    }

    /// Gives the buffers that wait to be used again back to the driver.
    pub fn trim(&self) {
        self.0.pool.trim();
    }

    /// Refuses, for `what`, elements that the device cannot calculate with.
    pub(crate) fn supports(&self, element: Element, what: &str) -> Result<(), DeviceError> {
        let why = || format!("device `{}` does not support f64 in shaders; use f32", self.info().name);
        DeviceError::ensure(!element.is_double() || self.capabilities().f64, what, why)
    }

    /// Checks for errors that the driver reported asynchronously.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] once anything went wrong.
    pub fn check(&self) -> Result<(), DeviceError> {
        self.0.open.check()
    }

    /// Returns a function that makes all further work on the device fail with [`DeviceError::Lost`]
    /// and the words it is given: for the device-lost handler of a caller's own device. It does not
    /// keep the device alive.
    pub fn failure_reporter(&self) -> impl Fn(&str) + Send + Sync + 'static {
        let failure = self.0.open.failure.clone();
        move |why| failure.note(why.into())
    }

    /// Returns the path of device data between ranks that the options of the device force.
    pub(crate) fn forced_exchange(&self) -> Option<ExchangePath> {
        self.0.exchange
    }

    /// Imports pages of host memory as a buffer for copies.
    ///
    /// # Errors
    /// The reason, if the driver refuses.
    pub(crate) fn import(&self, pages: &Arc<HostPages>) -> Result<wgpu::Buffer, String> {
        self.check().map_err(|error| error.to_string())?;
        let buffer = self.0.open.attempt(|| import::import(self.device(), self.families(), pages));
        buffer.map_err(|error| error.to_string())?
    }

    /// Imports device memory of its own, allocated by the vendor's driver, as a buffer for copies.
    ///
    /// # Errors
    /// The reason, if the driver refuses.
    pub(crate) fn import_peer_memory(&self, memory: &Arc<PeerMemory>) -> Result<wgpu::Buffer, String> {
        self.check().map_err(|error| error.to_string())?;
        let buffer = self.0.open.attempt(|| memory.import(self.device(), self.families()));
        buffer.map_err(|error| error.to_string())?
    }

    /// Returns the queues for copies beside kernels, if the device has them.
    pub(super) fn copies(&self) -> Option<&CopyQueues> {
        self.0.open.copies.as_ref()
    }

    /// Returns the families of queues that use the memory of exchanges; none if there is one queue.
    fn families(&self) -> &[u32] {
        self.copies().map_or(&[], CopyQueues::families)
    }

    /// Returns a number that no other device of this process ever has.
    pub(crate) fn number(&self) -> u64 {
        self.0.open.number
    }

    /// Returns a buffer for an array, from the pool.
    pub(super) fn buffer(&self, label: &str, kind: MemoryKind, bytes: u64) -> Result<wgpu::Buffer, DeviceError> {
        let buffer = self.0.pool.take(&self.0.open, label, kind, bytes)?;
        if self.0.poison {
            poison(&self.0.open, &buffer);
        }
        Ok(buffer)
    }

    /// Binds a buffer, for nothing but the driver's verdict.
    pub(super) fn try_binding(&self, buffer: &wgpu::Buffer) -> Result<(), wgpu::Error> {
        let device = self.device();
        let ty = wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: false },
            has_dynamic_offset: false,
            min_binding_size: None,
        };
        let entry = wgpu::BindGroupLayoutEntry { binding: 0, visibility: wgpu::ShaderStages::COMPUTE, ty, count: None };
        let label = Some("meshloom::binding");
        let size = wgpu::BufferSize::new(buffer.size().min(4));
        let resource = wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset: 0, size });
        let entries = &[wgpu::BindGroupEntry { binding: 0, resource }];
        self.0.open.attempt(|| {
            let layout = wgpu::BindGroupLayoutDescriptor { label, entries: &[entry] };
            let layout = &device.create_bind_group_layout(&layout);
            let _ = device.create_bind_group(&wgpu::BindGroupDescriptor { label, layout, entries });
        })
    }
}

/// Fills a buffer with a NaN that is also a conspicuous integer.
fn poison(open: &OpenDevice, buffer: &wgpu::Buffer) {
    const CHUNK: u64 = 1 << 20;
    let pattern = vec![0x7fc0_dead_u32; (buffer.size().min(CHUNK) / 4) as usize];
    let bytes: &[u8] = bytemuck::cast_slice(&pattern);
    for at in (0..buffer.size()).step_by(CHUNK as usize) {
        let len = (buffer.size() - at).min(CHUNK) / 4 * 4;
        open.write(buffer, at, &bytes[..len as usize]);
    }
}
