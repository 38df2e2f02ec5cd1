//! Features, limits and preferences of a device.

use super::{ExchangePath, Options, Painting, Profile, memory};

/// Features, limits and preferences of a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// Largest storage binding in bytes: the size of a window.
    pub window_bytes: u64,
    /// Largest buffer in bytes.
    pub buffer_bytes: u64,
    /// Storage buffers that one kernel can bind.
    pub bindings: u32,
    /// Workgroup memory in bytes.
    pub workgroup_bytes: u32,
    /// Invocations per workgroup.
    pub invocations: u32,
    /// Workgroups along one dimension of a dispatch.
    pub workgroups: u32,
    /// GPU or software renderer, or what [`Options::profile`] says.
    pub profile: Profile,
    /// The method of painting, if [`Options::painting`] chooses one.
    pub painting: Option<Painting>,
    /// Device memory that the host maps directly, so that an exchange needs no staging buffers.
    pub host_visible: bool,
    /// Host memory that ranks share can be imported, so that exchanges can use a ring of pages.
    pub host_import: bool,
    /// Queues for the copies of exchanges, besides that of kernels; see
    /// [`Options::copy_queues`]. 0 if kernels and copies share one.
    pub copy_queues: u32,
    /// Double precision in kernels.
    pub f64: bool,
    /// Integers of 64 bits in kernels, and atomic operations on them.
    pub atomic_u64: bool,
    /// Operations across a subgroup.
    pub subgroups: bool,
    /// The least number of invocations in a full subgroup; 1 without such operations.
    pub subgroup_least: u32,
    /// The greatest number of them.
    pub subgroup_most: u32,
    /// Barriers of a subgroup, on GPUs.
    pub subgroup_barrier: bool,
    /// Windows that a kernel can bind as arrays of bindings and index like memory; 0 where it
    /// cannot, and where that was never tried: through other interfaces than Vulkan, and on
    /// software renderers, which gain nothing by it.
    pub binding_arrays: u32,
    /// Bytes of immediate data, which commands carry to kernels: parameters that need no buffer. 0
    /// where there are none, on lavapipe, which would compile kernels again for other parameters,
    /// and through other interfaces than Vulkan, where that was never tried.
    pub immediate_bytes: u32,
    /// Iterations after which the driver silently ends all loops of an invocation, counted
    /// together; llvmpipe does so.
    pub loop_rounds: Option<u32>,
    /// Timestamps in compute passes; see [`Recorder::measure`](super::Recorder::measure).
    pub timestamps: bool,
    /// Bytes of the last cache in front of device memory, by the name of the device: no interface
    /// tells it. 0 if it is unknown, and on software renderers.
    pub cache_bytes: u64,
    /// Bytes of device memory; `None` where the driver does not tell.
    pub memory: Option<u64>,
}

/// Bytes of a binding at most: where a backend allows more (Metal does), checked kernels know
/// lengths in bytes as `u32` only.
const LARGEST_BINDING: u64 = (1 << 32) - 256;

/// Features that additions to 64-bit integers need.
pub(super) const ATOMIC_U64: wgpu::Features =
    wgpu::Features::SHADER_INT64.union(wgpu::Features::SHADER_INT64_ATOMIC_ALL_OPS);

/// Features that binding the windows of arrays together needs.
pub(super) const BINDING_ARRAYS: wgpu::Features = wgpu::Features::BUFFER_BINDING_ARRAY
    .union(wgpu::Features::STORAGE_RESOURCE_BINDING_ARRAY)
    .union(wgpu::Features::SAMPLED_TEXTURE_AND_STORAGE_BUFFER_ARRAY_NON_UNIFORM_INDEXING);

impl Capabilities {
    /// Returns the capabilities of `device`, opened with `options` on `adapter`.
    pub(super) fn of(device: &wgpu::Device, adapter: &wgpu::Adapter, options: &Options) -> Capabilities {
        let (info, limits, features) = (&adapter.get_info(), device.limits(), device.features());
        let largest = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size).min(LARGEST_BINDING);
        let kind = if info.device_type == wgpu::DeviceType::Cpu { Profile::Software } else { Profile::Gpu };
        let profile = options.profile.unwrap_or(kind);
        let subgroups = features.contains(wgpu::Features::SUBGROUP) && ballots_are_whole(info);
        let emulated = options.observer.as_ref().and_then(|observer| observer.subgroup());
        let [subgroup_least, subgroup_most] = match emulated {
            _ if !subgroups => [1; 2],
            Some(lanes) => [lanes; 2],
            None => subgroup_sizes(info),
        };
        let (is_vulkan, is_llvmpipe) = (info.backend == wgpu::Backend::Vulkan, info.name.starts_with("llvmpipe"));
        let ends_loops = is_llvmpipe && emulated.is_none();
        let has_arrays = features.contains(BINDING_ARRAYS) && profile == Profile::Gpu && is_vulkan;
        let has_immediates = features.contains(wgpu::Features::IMMEDIATES) && is_vulkan && !is_llvmpipe;
        Capabilities {
            window_bytes: options.window_bytes.map_or(largest, |bytes| bytes.min(largest)),
            // Whole words, so that all bytes can be mapped and cleared: some drivers say 2^31 - 1.
            buffer_bytes: limits.max_buffer_size & !255,
            bindings: limits.max_storage_buffers_per_shader_stage,
            workgroup_bytes: limits.max_compute_workgroup_storage_size,
            invocations: limits.max_compute_invocations_per_workgroup.min(limits.max_compute_workgroup_size_x),
            workgroups: limits.max_compute_workgroups_per_dimension,
            profile,
            painting: options.painting,
            host_visible: features.contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS)
                && matches!(options.exchange, None | Some(ExchangePath::Mapped)),
            host_import: false,
            copy_queues: 0,
            f64: features.contains(wgpu::Features::SHADER_F64),
            atomic_u64: features.contains(ATOMIC_U64),
            subgroups,
            subgroup_least,
            subgroup_most,
            subgroup_barrier: kind == Profile::Gpu && subgroups && features.contains(wgpu::Features::SUBGROUP_BARRIER),
            binding_arrays: if has_arrays { limits.max_binding_array_elements_per_shader_stage } else { 0 },
            immediate_bytes: if has_immediates { limits.max_immediate_size } else { 0 },
            loop_rounds: ends_loops.then_some(65_535),
            cache_bytes: if profile == Profile::Gpu { cache_bytes(&info.name) } else { 0 },
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            memory: memory(adapter),
        }
    }
}

/// Returns the bytes of the L2 of a device with this name, as its maker states them; 0 if they are
/// not listed here.
fn cache_bytes(name: &str) -> u64 {
    const MB: u64 = 1_000_000;
    let known = [("NVIDIA A100", 40 * MB), ("NVIDIA H100", 50 * MB), ("NVIDIA H200", 50 * MB)];
    known.iter().find(|(device, _)| name.starts_with(device)).map_or(0, |(_, bytes)| *bytes)
}

/// Returns `true` if a ballot has a bit for each lane. For Metal, the compiler writes the first 32,
/// which are all of Apple's GPUs; AMD's in older Macs have 64.
fn ballots_are_whole(info: &wgpu::AdapterInfo) -> bool {
    info.backend != wgpu::Backend::Metal || info.name.starts_with("Apple")
}

/// Returns the least and the greatest subgroup of an adapter. For Metal, wgpu reports what any GPU
/// could have, from 4 on; Apple's have 32 lanes.
fn subgroup_sizes(info: &wgpu::AdapterInfo) -> [u32; 2] {
    if info.backend == wgpu::Backend::Metal && info.name.starts_with("Apple") {
        return [32; 2];
    }
    let least = info.subgroup_min_size.max(1);
    [least, info.subgroup_max_size.max(least)]
}

/// Limits that all of several devices satisfy. Plans made for them are equal on all ranks, down to
/// the messages that ranks exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommonLimits {
    /// The class that kernels are shaped for: [`Profile::Software`] where one of them is a software
    /// renderer, since the others wait for it anyway.
    pub profile: Profile,
    /// Workgroup memory in bytes.
    pub workgroup_bytes: u32,
    /// Invocations per workgroup.
    pub invocations: u32,
    /// Bytes of the cache in front of device memory; 0 if that of a device is unknown.
    pub cache_bytes: u64,
}

impl CommonLimits {
    /// Returns the limits of one device.
    #[must_use]
    pub fn of(capabilities: &Capabilities) -> Self {
        let &Capabilities { profile, workgroup_bytes, invocations, cache_bytes, .. } = capabilities;
        CommonLimits { profile, workgroup_bytes, invocations, cache_bytes }
    }

    /// Returns the limits as numbers; the limits of several devices are their minima.
    pub(crate) fn numbers(self) -> [u64; 4] {
        let profile = u64::from(self.profile == Profile::Gpu);
        [profile, u64::from(self.workgroup_bytes), u64::from(self.invocations), self.cache_bytes]
    }

    /// Creates limits from their [`numbers`](Self::numbers).
    pub(crate) fn from_numbers([profile, workgroup_bytes, invocations, cache_bytes]: [u64; 4]) -> Self {
        let profile = if profile == 0 { Profile::Software } else { Profile::Gpu };
        let [workgroup_bytes, invocations] = [workgroup_bytes, invocations].map(|number| number as u32);
        CommonLimits { profile, workgroup_bytes, invocations, cache_bytes }
    }
}
