//! Pages of host memory that processes share, and their import into a Vulkan device.
//!
//! All unsafe code of shared pages is in this file. It relies on three facts:
//! - A mapping stays valid until it is dropped: the file is sealed, so that it cannot shrink.
//! - Bytes are reached through raw pointers and atomic words only, as other processes may change
//!   them at any time.
//! - A Vulkan buffer over imported pages keeps their mapping until the buffer is destroyed.

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ash::ext::external_memory_host;
use ash::vk;
use wgpu::hal::{api, vulkan};

const HANDLE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;
const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw() | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

/// The mapping of a memory file of this process or of another process of the host.
pub(crate) struct HostPages {
    file: File,
    place: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value, and its bytes may be reached from any thread.
unsafe impl Send for HostPages {}
// SAFETY: the value hands out raw pointers and atomic words only.
unsafe impl Sync for HostPages {}

/// Returns the last error of the system if a call returned a negative number.
fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

impl HostPages {
    /// Creates `bytes` zeroed bytes, which the system reserves at once.
    pub fn create(bytes: usize) -> io::Result<HostPages> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero byte.
        let descriptor = checked(unsafe { libc::memfd_create(c"meshloom".as_ptr(), flags) })?;
        // SAFETY: the descriptor is new and has no other owner.
        let file = unsafe { File::from_raw_fd(descriptor) };
        // Memory that is missing must be an error here, not a signal at the first access.
        // SAFETY: the descriptor is open.
        checked(unsafe { libc::fallocate(descriptor, 0, 0, bytes as libc::off_t) })?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: as above.
        checked(unsafe { libc::fcntl(descriptor, libc::F_ADD_SEALS, seals) })?;
        HostPages::map(file)
    }

    /// Opens the pages behind file descriptor `descriptor` of process `process` of this host.
    pub fn open(process: u32, descriptor: u32) -> io::Result<HostPages> {
        let file = File::options().read(true).write(true).open(format!("/proc/{process}/fd/{descriptor}"))?;
        // SAFETY: the descriptor is open.
        let seals = checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) })?;
        if seals & libc::F_SEAL_SHRINK == 0 {
            return Err(io::Error::other("the file is not sealed"));
        }
        HostPages::map(file)
    }

    fn map(file: File) -> io::Result<HostPages> {
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: the system chooses a place that is free.
        let place = unsafe { libc::mmap(null_mut(), bytes, access, shared, file.as_raw_fd(), 0) };
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let place = NonNull::new(place.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(HostPages { file, place, bytes })
    }

    /// Returns the number by which other processes [open](Self::open) the pages.
    pub fn descriptor(&self) -> u32 {
        self.file.as_raw_fd().cast_unsigned()
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the address of byte `offset`, which must lie inside.
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.bytes, "byte {offset} of {}", self.bytes);
        // SAFETY: the byte lies in the mapping.
        unsafe { self.place.add(offset) }
    }

    /// Returns word `index` of 8 bytes.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.bytes / 8, "word {index} of {} bytes", self.bytes);
        // SAFETY: the word lies in the mapping, is aligned since the mapping begins at a page, and
        // all processes access it as an atomic word.
        unsafe { self.place.cast::<AtomicU64>().add(index).as_ref() }
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's own. Failure would only keep the pages.
        unsafe { libc::munmap(self.place.as_ptr().cast(), self.bytes) };
    }
}

/// Opens a Vulkan device that can import host pages; `None` if the driver cannot or refuses.
pub(super) fn open_device(
    adapter: &wgpu::Adapter,
    descriptor: &wgpu::DeviceDescriptor<'_>,
) -> Option<(wgpu::Device, wgpu::Queue)> {
    // SAFETY: the handles are used while the adapter lives, and nothing is destroyed.
    let hal = unsafe { adapter.as_hal::<api::Vulkan>() }?;
    if !can_import(&hal) {
        return None;
    }
    let add = |arguments: vulkan::CreateDeviceCallbackArgs<'_, '_, '_>| {
        arguments.extensions.push(external_memory_host::NAME);
    };
    let wgpu::DeviceDescriptor { required_features: features, required_limits: limits, memory_hints, .. } = descriptor;
    // SAFETY: the driver offers the extension, which changes nothing else.
    let open = unsafe { hal.open_with_callback(*features, limits, memory_hints, Some(Box::new(add))) }.ok()?;
    // SAFETY: the device is of this adapter and was opened with these features.
    unsafe { adapter.create_device_from_hal(open, descriptor) }.ok()
}

/// Returns `true` if the driver imports host memory into buffers.
fn can_import(adapter: &vulkan::Adapter) -> bool {
    let (shared, physical) = (adapter.shared_instance(), adapter.raw_physical_device());
    let instance = shared.raw_instance();
    let versions = [shared.instance_api_version(), adapter.physical_device_capabilities().properties().api_version];
    if versions.into_iter().any(|version| version < vk::API_VERSION_1_1) {
        return false;
    }
    // SAFETY: the physical device belongs to the instance.
    let extensions = unsafe { instance.enumerate_device_extension_properties(physical) }.unwrap_or_default();
    if !extensions.iter().any(|offered| offered.extension_name_as_c_str() == Ok(external_memory_host::NAME)) {
        return false;
    }
    let mut found = vk::ExternalBufferProperties::default();
    let wanted = vk::PhysicalDeviceExternalBufferInfo::default().usage(USAGE).handle_type(HANDLE);
    // SAFETY: as above; both are of Vulkan 1.1.
    unsafe { instance.get_physical_device_external_buffer_properties(physical, &wanted, &mut found) };
    let features = found.external_memory_properties.external_memory_features;
    features.contains(vk::ExternalMemoryFeatureFlags::IMPORTABLE)
        && !features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY)
}

/// A Vulkan buffer over pages; its handles are null until they exist.
struct Imported {
    device: ash::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    /// Dropped after the memory that was imported from it.
    _pages: Arc<HostPages>,
}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: the handles are this value's own or null. wgpu drops the value when the device
        // has finished with the buffer, and before it destroys the device.
        unsafe {
            self.device.destroy_buffer(self.buffer, None);
            self.device.free_memory(self.memory, None);
        }
    }
}

/// Imports `pages` into `device` as a buffer for copies.
///
/// # Errors
/// The reason, if the device was not opened by [`open_device`] or the driver refuses.
pub(super) fn import(device: &wgpu::Device, pages: &Arc<HostPages>) -> Result<wgpu::Buffer, String> {
    let refused = |result: vk::Result| format!("the driver refuses to import pages ({result})");
    // SAFETY: the handles are used while the device lives, and it is not destroyed.
    let hal = unsafe { device.as_hal::<api::Vulkan>() }.ok_or("the device is not a Vulkan device")?;
    if !hal.enabled_device_extensions().contains(&external_memory_host::NAME) {
        return Err("the device cannot import pages".into());
    }
    let (raw, pointer) = (hal.raw_device(), pages.place.as_ptr().cast());
    let extension = external_memory_host::Device::new(hal.shared_instance().raw_instance(), raw);
    let mut kinds = vk::MemoryHostPointerPropertiesEXT::default();
    // SAFETY: the extension is enabled, and the pages are mapped.
    unsafe { (extension.fp().get_memory_host_pointer_properties_ext)(raw.handle(), HANDLE, pointer, &mut kinds) }
        .result()
        .map_err(refused)?;

    let (buffer, memory) = (vk::Buffer::null(), vk::DeviceMemory::null());
    let mut imported = Imported { device: raw.clone(), buffer, memory, _pages: pages.clone() };
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(HANDLE);
    let info = vk::BufferCreateInfo::default().size(pages.bytes as u64).usage(USAGE).push_next(&mut external);
    // SAFETY: the device is alive; `imported` destroys the buffer.
    imported.buffer = unsafe { raw.create_buffer(&info, None) }.map_err(refused)?;
    // SAFETY: the buffer is of this device.
    let needed = unsafe { raw.get_buffer_memory_requirements(imported.buffer) };
    let kind = memory_kind(&hal, needed.memory_type_bits & kinds.memory_type_bits);
    let kind = kind.filter(|_| needed.size <= pages.bytes as u64).ok_or("no memory type suits pages and buffer")?;
    let mut import = vk::ImportMemoryHostPointerInfoEXT::default().handle_type(HANDLE).host_pointer(pointer);
    let info = vk::MemoryAllocateInfo::default()
        .allocation_size(pages.bytes as u64)
        .memory_type_index(kind)
        .push_next(&mut import);
    // SAFETY: the pages stay mapped until `imported`, which frees the memory, drops them.
    imported.memory = unsafe { raw.allocate_memory(&info, None) }.map_err(refused)?;
    // SAFETY: both are of this device, and the memory is as large as the buffer needs.
    unsafe { raw.bind_buffer_memory(imported.buffer, imported.memory, 0) }.map_err(refused)?;

    let buffer = imported.buffer;
    // SAFETY: the buffer lives until wgpu calls the closure.
    let buffer = unsafe { vulkan::Buffer::from_raw_externally_owned(buffer, Box::new(move || drop(imported))) };
    let descriptor = wgpu::BufferDescriptor {
        label: Some("meshloom::pages"),
        size: pages.bytes as u64,
        usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    };
    // SAFETY: the buffer is of this device, has this size and these usages, and is initialized.
    Ok(unsafe { device.create_buffer_from_hal::<api::Vulkan>(buffer, &descriptor) })
}

/// Returns a coherent memory type among those of `bits`, cached if possible.
fn memory_kind(device: &vulkan::Device, bits: u32) -> Option<u32> {
    let instance = device.shared_instance().raw_instance();
    // SAFETY: the physical device belongs to the instance.
    let properties = unsafe { instance.get_physical_device_memory_properties(device.raw_physical_device()) };
    let coherent = vk::MemoryPropertyFlags::HOST_COHERENT;
    let cached = coherent | vk::MemoryPropertyFlags::HOST_CACHED;
    let flags = |kind: u32| properties.memory_types[kind as usize].property_flags;
    let find =
        |wanted| (0..properties.memory_type_count).find(|&kind| bits >> kind & 1 == 1 && flags(kind).contains(wanted));
    find(cached).or_else(|| find(coherent))
}
