//! Hardware GPUs that no driver offers, so that work falls to a software renderer.

use std::fs;
use std::path::Path;

use super::adapter::{AdapterSelector, adapters, unsuitable};

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
