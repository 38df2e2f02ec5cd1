//! Which adapter: enumeration, description and choice.

use std::sync::OnceLock;

use super::error::DeviceError;

/// The words by which an adapter is chosen.
///
/// ```
/// use meshloom::gpu::Choice;
/// assert_eq!("auto".parse(), Ok(Choice::Auto));
/// assert_eq!("2".parse(), Ok(Choice::Index(2)));
/// assert_eq!("0000:3b:00.0".parse(), Ok(Choice::Pci("0000:3b:00.0".into())));
/// assert_eq!("llvmpipe".parse(), Ok(Choice::Name("llvmpipe".into())));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The best kind of adapter there is (discrete, integrated, virtual, software); ranks on one host take the adapters
    /// of that kind in turn.
    #[default]
    Auto,
    /// The adapter with this index in [`adapters`].
    Index(usize),
    /// The adapter on this PCI bus address, as `0000:3b:00.0`.
    Pci(String),
    /// The first adapter whose name contains this, whatever the case.
    Name(String),
}

impl std::str::FromStr for Choice {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let pci = text.len() == 12 && text.as_bytes()[4] == b':' && text.as_bytes()[7] == b':' && text.contains('.');
        Ok(match text.parse() {
            Ok(index) => Choice::Index(index),
            Err(_) if text.is_empty() || text.eq_ignore_ascii_case("auto") => Choice::Auto,
            Err(_) if pci => Choice::Pci(text.to_lowercase()),
            Err(_) => Choice::Name(text.to_string()),
        })
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Choice::Auto => write!(f, "auto"),
            Choice::Index(index) => write!(f, "{index}"),
            Choice::Pci(text) | Choice::Name(text) => write!(f, "{text}"),
        }
    }
}

/// One instance a process: drivers do not like many, and creating one takes a while.
pub(super) fn instance() -> &'static wgpu::Instance {
    static INSTANCE: OnceLock<wgpu::Instance> = OnceLock::new();
    INSTANCE.get_or_init(|| {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::PRIMARY;
        // Kernels clamp the counts of their indirect dispatches themselves; wgpu's own check costs a dispatch each.
        descriptor.flags = wgpu::InstanceFlags::empty().with_env();
        wgpu::Instance::new(descriptor)
    })
}

/// Every adapter that the drivers of this machine offer, in their order, usable or not.
///
/// Enumerated once a process.
pub fn adapters() -> &'static [wgpu::Adapter] {
    static ADAPTERS: OnceLock<Vec<wgpu::Adapter>> = OnceLock::new();
    ADAPTERS.get_or_init(|| pollster::block_on(instance().enumerate_adapters(wgpu::Backends::PRIMARY)))
}

/// Why an adapter is below the floor that kernels are written for (WebGPU's default limits), if it is.
pub fn unsuitable(adapter: &wgpu::Adapter) -> Option<String> {
    let (have, floor) = (adapter.limits(), floor());
    let checks = [
        (
            "storage buffers a stage",
            have.max_storage_buffers_per_shader_stage.into(),
            floor.max_storage_buffers_per_shader_stage.into(),
        ),
        ("bytes a storage binding", have.max_storage_buffer_binding_size, floor.max_storage_buffer_binding_size),
        (
            "bytes of workgroup memory",
            have.max_compute_workgroup_storage_size.into(),
            floor.max_compute_workgroup_storage_size.into(),
        ),
        (
            "invocations a workgroup",
            have.max_compute_invocations_per_workgroup.into(),
            floor.max_compute_invocations_per_workgroup.into(),
        ),
        (
            "workgroups a dimension",
            have.max_compute_workgroups_per_dimension.into(),
            floor.max_compute_workgroups_per_dimension.into(),
        ),
    ];
    if !adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS) {
        return Some("it has no compute shaders".into());
    }
    checks
        .into_iter()
        .find(|&(_, have, need): &(_, u64, u64)| have < need)
        .map(|(what, have, need)| format!("it has {have} {what}, {need} are needed"))
}

/// The floor: WebGPU's default limits.
pub(super) fn floor() -> wgpu::Limits {
    wgpu::Limits::default()
}

/// The adapter that `choice` names, for the rank number `local_rank` of its host.
///
/// # Errors
/// [`DeviceError::NoAdapter`] when there is none, [`DeviceError::UnknownAdapter`] when none matches,
/// [`DeviceError::Unsuitable`] when the one that was named is below the floor.
pub fn choose(choice: &Choice, local_rank: usize) -> Result<&'static wgpu::Adapter, DeviceError> {
    let all = adapters();
    let named = |index: usize, adapter: &wgpu::Adapter| format!("{index}: {}", adapter.get_info().name);
    if all.is_empty() {
        return Err(DeviceError::NoAdapter { why: "the drivers offer none".into() });
    }
    let found = match choice {
        Choice::Auto => {
            let usable: Vec<_> = all.iter().filter(|adapter| unsuitable(adapter).is_none()).collect();
            let Some(best) = usable.iter().map(|adapter| kind(adapter)).min() else {
                let why = all
                    .iter()
                    .enumerate()
                    .map(|(i, a)| format!("{}: {}", named(i, a), unsuitable(a).unwrap_or_default()));
                return Err(DeviceError::NoAdapter { why: why.collect::<Vec<_>>().join("; ") });
            };
            let best: Vec<_> = usable.into_iter().filter(|adapter| kind(adapter) == best).collect();
            Some(best[local_rank % best.len()])
        }
        Choice::Index(index) => all.get(*index),
        Choice::Pci(id) => all.iter().find(|adapter| adapter.get_info().device_pci_bus_id.eq_ignore_ascii_case(id)),
        Choice::Name(name) => {
            let name = name.to_lowercase();
            let matching: Vec<_> =
                all.iter().filter(|adapter| adapter.get_info().name.to_lowercase().contains(&name)).collect();
            (!matching.is_empty()).then(|| matching[local_rank % matching.len()])
        }
    };
    let adapter = found.ok_or_else(|| DeviceError::UnknownAdapter {
        wanted: choice.to_string(),
        available: all.iter().enumerate().map(|(i, a)| named(i, a)).collect::<Vec<_>>().join(", "),
    })?;
    match unsuitable(adapter) {
        Some(why) => Err(DeviceError::Unsuitable { adapter: adapter.get_info().name, why }),
        None => Ok(adapter),
    }
}

/// Rank of a kind of adapter, best first.
fn kind(adapter: &wgpu::Adapter) -> u8 {
    match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

/// Bytes of the adapter's largest device-local heap, where the driver tells (Vulkan).
pub fn memory(adapter: &wgpu::Adapter) -> Option<u64> {
    #[cfg(any(target_os = "linux", target_os = "windows", target_os = "android"))]
    {
        // SAFETY: the handles are only asked for properties and live as long as the adapter.
        let hal = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
        let instance = hal.shared_instance().raw_instance();
        // SAFETY: the physical device belongs to this instance.
        let properties = unsafe { instance.get_physical_device_memory_properties(hal.raw_physical_device()) };
        let heaps = &properties.memory_heaps[..properties.memory_heap_count as usize];
        // Bit 0 of a heap's flags is VK_MEMORY_HEAP_DEVICE_LOCAL_BIT.
        heaps.iter().filter(|heap| heap.flags.as_raw() & 1 == 1).map(|heap| heap.size).max()
    }
    #[cfg(not(any(target_os = "linux", target_os = "windows", target_os = "android")))]
    {
        let _ = adapter;
        None
    }
}
