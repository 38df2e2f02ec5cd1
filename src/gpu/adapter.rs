//! Which adapter: enumeration, description and choice.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use super::error::DeviceError;

/// Which adapter: the words of `--device` and `MESHLOOM_DEVICE`, parsed.
///
/// ```
/// use meshloom::gpu::AdapterSelector;
/// assert_eq!("auto".parse(), Ok(AdapterSelector::Auto));
/// assert_eq!("2".parse(), Ok(AdapterSelector::Index(2)));
/// assert_eq!("0000:3b:00.0".parse(), Ok(AdapterSelector::Pci("0000:3b:00.0".into())));
/// assert_eq!("llvmpipe".parse(), Ok(AdapterSelector::Name("llvmpipe".into())));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum AdapterSelector {
    /// The best kind of adapter there is (discrete, integrated, virtual, software); ranks on one
    /// host take the adapters of that kind in turn.
    #[default]
    Auto,
    /// The adapter with this index in [`adapters`].
    Index(usize),
    /// The adapter on this PCI bus address, as `0000:3b:00.0`.
    Pci(String),
    /// An adapter whose name contains this text, ignoring case; ranks on one host take such
    /// adapters in turn.
    Name(String),
}

impl std::str::FromStr for AdapterSelector {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let pci = text.len() == 12 && text.as_bytes()[4] == b':' && text.as_bytes()[7] == b':' && text.contains('.');
        Ok(match text.parse() {
            Ok(index) => AdapterSelector::Index(index),
            Err(_) if text.is_empty() || text.eq_ignore_ascii_case("auto") => AdapterSelector::Auto,
            Err(_) if pci => AdapterSelector::Pci(text.to_lowercase()),
            Err(_) => AdapterSelector::Name(text.to_string()),
        })
    }
}

impl std::fmt::Display for AdapterSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AdapterSelector::Auto => write!(f, "auto"),
            AdapterSelector::Index(index) => write!(f, "{index}"),
            AdapterSelector::Pci(text) | AdapterSelector::Name(text) => write!(f, "{text}"),
        }
    }
}

/// One instance per process: drivers do not like many, and creating one takes a while.
pub(super) fn instance() -> &'static wgpu::Instance {
    static INSTANCE: OnceLock<wgpu::Instance> = OnceLock::new();
    INSTANCE.get_or_init(|| {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::PRIMARY;
        // Kernels clamp the counts of their indirect dispatches themselves; wgpu's own check costs
        // an extra dispatch each.
        descriptor.flags = wgpu::InstanceFlags::empty().with_env();
        wgpu::Instance::new(descriptor)
    })
}

/// Every adapter that the drivers of this machine offer, in their order, usable or not.
///
/// Enumerated once per process.
pub fn adapters() -> &'static [wgpu::Adapter] {
    static ADAPTERS: OnceLock<Vec<wgpu::Adapter>> = OnceLock::new();
    ADAPTERS.get_or_init(|| pollster::block_on(instance().enumerate_adapters(wgpu::Backends::PRIMARY)))
}

/// Why an adapter is below the floor that kernels are written for (WebGPU's default limits), if it
/// is.
#[must_use]
pub fn unsuitable(adapter: &wgpu::Adapter) -> Option<String> {
    if !adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS) {
        return Some("it has no compute shaders".into());
    }
    below_floor(&adapter.limits())
}

/// Returns the first limit that lies below the floor, in words.
pub(super) fn below_floor(limits: &wgpu::Limits) -> Option<String> {
    let checks: [(&str, fn(&wgpu::Limits) -> u64); 5] = [
        ("storage buffers per stage", |limits| limits.max_storage_buffers_per_shader_stage.into()),
        ("bytes per storage binding", |limits| limits.max_storage_buffer_binding_size),
        ("bytes of workgroup memory", |limits| limits.max_compute_workgroup_storage_size.into()),
        ("invocations per workgroup", |limits| limits.max_compute_invocations_per_workgroup.into()),
        ("workgroups per dimension", |limits| limits.max_compute_workgroups_per_dimension.into()),
    ];
    let floor = floor();
    checks
        .into_iter()
        .map(|(what, of)| (what, of(limits), of(&floor)))
        .find(|(_, have, need)| have < need)
        .map(|(what, have, need)| format!("it has {have} {what}, {need} are needed"))
}

/// Returns the floor: WebGPU's default limits.
pub(super) fn floor() -> wgpu::Limits {
    wgpu::Limits::default()
}

/// Returns the adapter that `selector` names, for the rank number `local_rank` of its host.
///
/// # Errors
/// [`DeviceError::NoAdapter`] when there is none, [`DeviceError::UnknownAdapter`] when none
/// matches, [`DeviceError::Unsuitable`] when the one that was named is below the floor.
pub fn choose(selector: &AdapterSelector, local_rank: usize) -> Result<&'static wgpu::Adapter, DeviceError> {
    let all = adapters();
    if all.is_empty() {
        return Err(DeviceError::NoAdapter { why: "the drivers offer none".into() });
    }
    let found = match selector {
        AdapterSelector::Auto => Some(best(&cards(all), local_rank)?),
        AdapterSelector::Index(index) => all.get(*index),
        AdapterSelector::Pci(id) => {
            all.iter().find(|adapter| adapter.get_info().device_pci_bus_id.eq_ignore_ascii_case(id))
        }
        AdapterSelector::Name(name) => {
            let name = name.to_lowercase();
            let mut matching = cards(all);
            matching.retain(|adapter| adapter.get_info().name.to_lowercase().contains(&name));
            (!matching.is_empty()).then(|| matching[local_rank % matching.len()])
        }
    };
    let adapter = found.ok_or_else(|| DeviceError::UnknownAdapter {
        wanted: selector.to_string(),
        available: all.iter().enumerate().map(numbered).collect::<Vec<_>>().join(", "),
    })?;
    match unsuitable(adapter) {
        Some(why) => Err(DeviceError::Unsuitable { adapter: adapter.get_info().name, why }),
        None => Ok(adapter),
    }
}

/// Returns the adapters without those of cards that another backend has offered before (on Windows,
/// Vulkan and DX12 offer each): ranks that take adapters in turn want cards of their own.
fn cards(all: &'static [wgpu::Adapter]) -> Vec<&'static wgpu::Adapter> {
    let place = |adapter: &wgpu::Adapter| {
        let info = adapter.get_info();
        let of_use = unsuitable(adapter).is_none();
        (info.backend, if of_use { info.device_pci_bus_id } else { String::new() })
    };
    let places: Vec<_> = all.iter().map(place).collect();
    all.iter().enumerate().filter(|(n, _)| !is_repeated(&places, *n)).map(|(_, adapter)| adapter).collect()
}

/// Returns `true` if an adapter, by backend and place on the bus, is one before it. Software
/// renderers have no place, and none is given for those of no use.
fn is_repeated<B: PartialEq>(places: &[(B, String)], number: usize) -> bool {
    let (backend, place) = &places[number];
    !place.is_empty() && places[..number].iter().any(|(other, at)| at == place && other != backend)
}

/// One of the usable adapters of the best kind there is; ranks take them in turn.
fn best(all: &[&'static wgpu::Adapter], local_rank: usize) -> Result<&'static wgpu::Adapter, DeviceError> {
    let usable: Vec<_> = all.iter().copied().filter(|adapter| unsuitable(adapter).is_none()).collect();
    let Some(best) = usable.iter().map(|adapter| kind(adapter)).min() else {
        let refused = adapters().iter().enumerate().map(|adapter| (numbered(adapter), unsuitable(adapter.1)));
        let why: Vec<_> = refused.map(|(name, why)| format!("{name}: {}", why.unwrap_or_default())).collect();
        return Err(DeviceError::NoAdapter { why: why.join("; ") });
    };
    let best: Vec<_> = usable.into_iter().filter(|adapter| kind(adapter) == best).collect();
    Ok(best[local_rank % best.len()])
}

/// Index and name of an adapter.
fn numbered((index, adapter): (usize, &wgpu::Adapter)) -> String {
    format!("{index}: {}", adapter.get_info().name)
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

/// Returns the bytes of the adapter's largest device-local heap (Vulkan), or of its recommended
/// working set (Metal); `None` where the driver does not report them (DirectX).
#[must_use]
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
    #[cfg(target_vendor = "apple")]
    {
        use objc2_metal::MTLDevice;
        // SAFETY: the device is only asked how much memory it can use, and lives as long as the
        // adapter.
        let hal = unsafe { adapter.as_hal::<wgpu::hal::api::Metal>() }?;
        Some(hal.raw_device().recommendedMaxWorkingSetSize()).filter(|&bytes| bytes > 0)
    }
    #[cfg(not(any(target_os = "linux", target_os = "windows", target_os = "android", target_vendor = "apple")))]
    {
        let _ = adapter;
        None
    }
}

/// Returns a warning if `selector` takes a software renderer although this host has a hardware GPU,
/// which no Vulkan driver offers here.
///
/// `None` for a selector that names an adapter, and if an environment variable restricts the
/// drivers (`VK_DRIVER_FILES`, `VK_ICD_FILENAMES`, `VK_LOADER_DRIVERS_SELECT`): then the renderer
/// was asked for. Display devices of virtual machines and of server boards do not count.
#[must_use]
pub fn unused_hardware(selector: &AdapterSelector) -> Option<String> {
    let variables = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_LOADER_DRIVERS_SELECT"];
    if *selector != AdapterSelector::Auto || variables.iter().any(|name| std::env::var_os(name).is_some()) {
        return None;
    }
    let mut usable = adapters().iter().filter(|adapter| unsuitable(adapter).is_none()).peekable();
    usable.peek()?;
    if usable.any(|adapter| adapter.get_info().device_type != wgpu::DeviceType::Cpu) {
        return None;
    }
    Some(warning(&hardware(Path::new("/"))?))
}

fn warning(hardware: &str) -> String {
    format!(
        "this host has a GPU ({hardware}) that no Vulkan driver offers, and a software renderer takes the work, which is \
         many times slower; install the GPU's Vulkan driver or, in a job or container, make all of it visible \
         (NVIDIA: NVIDIA_DRIVER_CAPABILITIES=all, libGLX_nvidia or libEGL_nvidia; Slurm: --gpus-per-node); \
         `VK_DRIVER_FILES` chooses the renderer without this warning"
    )
}

/// PCI vendors of GPUs with Vulkan drivers.
const VENDORS: [(&str, &str); 4] =
    [("0x10de", "NVIDIA"), ("0x1002", "AMD"), ("0x8086", "Intel"), ("0x1ed5", "Moore Threads")];

/// Returns a hardware GPU below the root directory `root` of a Linux system.
fn hardware(root: &Path) -> Option<String> {
    let names = |directory: &str| {
        let entries = fs::read_dir(root.join(directory)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(card) = names("dev").iter().find(|name| name.strip_prefix("nvidia").is_some_and(is_number)) {
        return Some(format!("/dev/{card}"));
    }
    names("dev/dri").iter().filter(|name| name.starts_with("renderD")).find_map(|node| {
        let device = root.join("sys/class/drm").join(node).join("device");
        let read = |name: &str| fs::read_to_string(device.join(name)).ok();
        let (vendor, class) = (read("vendor")?, read("class")?);
        // Class 3: display controllers, and accelerators that are listed as such.
        let (_, vendor) = VENDORS.iter().find(|(id, _)| vendor.trim() == *id && class.trim().starts_with("0x03"))?;
        Some(format!("{vendor}, /dev/dri/{node}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_of_two_backends_is_one() {
        let places = [("vulkan", "01"), ("vulkan", "02"), ("vulkan", ""), ("dx12", "02"), ("dx12", "01"), ("dx12", "")];
        let places = places.map(|(backend, place)| (backend, place.to_string()));
        let repeated: Vec<_> = (0..6).map(|number| is_repeated(&places, number)).collect();
        assert_eq!(repeated, [false, false, false, true, true, false]);
        // Two drivers of one backend are two adapters, as they always were.
        assert!(!is_repeated(&[("vulkan", "01".into()), ("vulkan", "01".into())], 1));
    }

    /// Returns a host with files in `/dev` and with render nodes of a PCI vendor and class.
    fn host(files: &[&str], nodes: &[(&str, &str, &str)]) -> Option<String> {
        let unique = std::thread::current().name().map(|name| name.replace("::", "-")).unwrap_or_default();
        let root = std::env::temp_dir().join(format!("meshloom-{}-{unique}", std::process::id()));
        fs::create_dir_all(root.join("dev/dri")).unwrap();
        for file in files {
            fs::write(root.join("dev").join(file), "").unwrap();
        }
        for (node, vendor, class) in nodes {
            let device = root.join("sys/class/drm").join(node).join("device");
            fs::create_dir_all(&device).unwrap();
            fs::write(root.join("dev/dri").join(node), "").unwrap();
            fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
            fs::write(device.join("class"), format!("{class}\n")).unwrap();
        }
        let found = hardware(&root);
        fs::remove_dir_all(&root).unwrap();
        found
    }

    #[test]
    fn hardware_is_known_by_its_files() {
        assert_eq!(host(&["nvidiactl", "nvidia-uvm", "nvidia3"], &[]).as_deref(), Some("/dev/nvidia3"));
        let amd = host(&[], &[("renderD128", "0x1a03", "0x030000"), ("renderD129", "0x1002", "0x038000")]);
        assert_eq!(amd.as_deref(), Some("AMD, /dev/dri/renderD129"));
        assert!(host(&[], &[("renderD128", "0x8086", "0x030000")]).is_some());
        assert!(warning("AMD, /dev/dri/renderD129").contains("(AMD, /dev/dri/renderD129)"));
    }

    #[test]
    fn displays_of_virtual_machines_and_boards_are_no_hardware() {
        assert_eq!(host(&["null", "nvidiactl"], &[]), None);
        // virtio, VMware, QXL, Hyper-V, ASPEED, and an Intel device that is not a display.
        for (vendor, class) in [
            ("0x1af4", "0x038000"),
            ("0x15ad", "0x030000"),
            ("0x1b36", "0x030000"),
            ("0x1414", "0x030000"),
            ("0x1a03", "0x030000"),
            ("0x8086", "0x120000"),
        ] {
            assert_eq!(host(&[], &[("renderD128", vendor, class)]), None, "{vendor}");
        }
    }

    #[test]
    fn a_renderer_that_was_asked_for_is_not_warned_of() {
        for selector in ["llvmpipe", "0", "0000:3b:00.0"] {
            assert_eq!(unused_hardware(&selector.parse().unwrap()), None);
        }
    }
}
