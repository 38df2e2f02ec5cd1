//! Import of memory that was not allocated by Vulkan into a Vulkan device.

use std::any::Any;
use std::ffi::{CStr, c_void};
#[cfg(feature = "gpu-direct")]
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use ash::ext::external_memory_host;
use ash::khr::external_memory_fd;
use ash::vk;
use wgpu::hal::{api, vulkan};

use super::copy_queues::{self, CopyQueues, QueueFamily};
use super::open_device::RawDevice;
use super::vulkan_buffer::{OwnBuffer, memory_type, shared_by};
use super::{CopyQueueChoice, HostPages};

const HANDLE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;
const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw() | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

/// Opens a Vulkan device that can import host pages, with the queues for copies that are wanted if
/// the driver opens it with them; `None` if the driver cannot import pages or refuses.
pub(super) fn open_device(
    adapter: &wgpu::Adapter,
    descriptor: &wgpu::DeviceDescriptor<'_>,
    wanted: CopyQueueChoice,
) -> Option<RawDevice> {
    // SAFETY: the handles are used while the adapter lives, and nothing is destroyed.
    let hal = unsafe { adapter.as_hal::<api::Vulkan>() }?;
    if !can_import(&hal) {
        return None;
    }
    let copies = copy_queues::family(&hal, wanted);
    open_with(adapter, &hal, descriptor, copies).or_else(|| open_with(adapter, &hal, descriptor, None))
}

/// Opens the device with queues for copies of a family, or without.
fn open_with(
    adapter: &wgpu::Adapter,
    hal: &vulkan::Adapter,
    descriptor: &wgpu::DeviceDescriptor<'_>,
    copies: Option<QueueFamily>,
) -> Option<RawDevice> {
    let takes_files = cfg!(feature = "gpu-direct") && offers(hal, external_memory_fd::NAME);
    let add = |arguments: vulkan::CreateDeviceCallbackArgs<'_, '_, '_>| {
        arguments.extensions.push(external_memory_host::NAME);
        if takes_files && !arguments.extensions.contains(&external_memory_fd::NAME) {
            arguments.extensions.push(external_memory_fd::NAME);
        }
        arguments.queue_create_infos.extend(copies.and_then(QueueFamily::create_info));
    };
    let wgpu::DeviceDescriptor { required_features: features, required_limits: limits, memory_hints, .. } = descriptor;
    // SAFETY: the driver offers the extensions, which change nothing else.
    let open = unsafe { hal.open_with_callback(*features, limits, memory_hints, Some(Box::new(add))) }.ok()?;
    // SAFETY: the device is of this adapter and was opened with these features.
    let (device, queue) = unsafe { adapter.create_device_from_hal(open, descriptor) }.ok()?;
    let copies = copies.and_then(|family| CopyQueues::new(&device, &queue, family));
    Some(RawDevice { device, queue, copies })
}

/// Returns `true` if the driver has an extension.
fn offers(adapter: &vulkan::Adapter, extension: &CStr) -> bool {
    let instance = adapter.shared_instance().raw_instance();
    // SAFETY: the physical device belongs to the instance.
    let offered = unsafe { instance.enumerate_device_extension_properties(adapter.raw_physical_device()) };
    offered.unwrap_or_default().iter().any(|offered| offered.extension_name_as_c_str() == Ok(extension))
}

/// Returns `true` if the driver imports host memory into buffers.
fn can_import(adapter: &vulkan::Adapter) -> bool {
    let (shared, physical) = (adapter.shared_instance(), adapter.raw_physical_device());
    let instance = shared.raw_instance();
    let versions = [shared.instance_api_version(), adapter.physical_device_capabilities().properties().api_version];
    if versions.into_iter().any(|version| version < vk::API_VERSION_1_1) {
        return false;
    }
    if !offers(adapter, external_memory_host::NAME) {
        return false;
    }
    let mut found = vk::ExternalBufferProperties::default();
    let wanted = vk::PhysicalDeviceExternalBufferInfo::default().usage(USAGE).handle_type(HANDLE);
    // SAFETY: the physical device belongs to the instance; the call is of Vulkan 1.1.
    unsafe { instance.get_physical_device_external_buffer_properties(physical, &wanted, &mut found) };
    let features = found.external_memory_properties.external_memory_features;
    features.contains(vk::ExternalMemoryFeatureFlags::IMPORTABLE)
        && !features.contains(vk::ExternalMemoryFeatureFlags::DEDICATED_ONLY)
}

/// Memory that Vulkan imports.
pub(super) enum Source {
    /// Mapped pages of the host.
    Pages(*mut c_void),
    /// A file descriptor of memory of the device.
    #[cfg(feature = "gpu-direct")]
    File(OwnedFd),
}

/// Imports `pages` into `device` as a buffer for copies.
///
/// # Errors
/// The reason, if the device was not opened by [`open_device`] or the driver refuses.
///
/// Queues of all `families` use it.
pub(super) fn import(device: &wgpu::Device, families: &[u32], pages: &Arc<HostPages>) -> Result<wgpu::Buffer, String> {
    let source = Source::Pages(pages.at(0).as_ptr().cast());
    import_source((device, families), source, pages.bytes() as u64, Box::new(pages.clone()))
}

fn refused(result: vk::Result) -> String {
    format!("the Vulkan driver refuses to import memory ({result})")
}

/// Imports `bytes` bytes of `source`, which `owner` keeps, for queues of these families.
///
/// # Errors
/// The reason, if the device was not opened by [`open_device`] or the driver refuses.
pub(super) fn import_source(
    (device, families): (&wgpu::Device, &[u32]),
    source: Source,
    bytes: u64,
    owner: Box<dyn Any + Send + Sync>,
) -> Result<wgpu::Buffer, String> {
    // SAFETY: the handles are used while the device lives, and it is not destroyed.
    let hal = unsafe { device.as_hal::<api::Vulkan>() }.ok_or("the device is not a Vulkan device")?;
    let (extension, handle_type) = match source {
        Source::Pages(_) => (external_memory_host::NAME, HANDLE),
        #[cfg(feature = "gpu-direct")]
        Source::File(_) => (external_memory_fd::NAME, vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD),
    };
    if !hal.enabled_device_extensions().contains(&extension) {
        return Err(format!("the device lacks {}", extension.to_string_lossy()));
    }
    let raw = hal.raw_device();
    let mut imported = OwnBuffer::new(raw, owner);
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(handle_type);
    let info = shared_by(families).size(bytes).usage(USAGE).push_next(&mut external);
    // SAFETY: the device is alive; `imported` destroys the buffer.
    imported.buffer = unsafe { raw.create_buffer(&info, None) }.map_err(refused)?;
    // SAFETY: the buffer is of this device.
    let needed = unsafe { raw.get_buffer_memory_requirements(imported.buffer) };
    if needed.size > bytes {
        return Err(format!("a buffer over {bytes} bytes needs {} bytes of memory", needed.size));
    }
    imported.memory = allocate(&hal, source, bytes, needed.memory_type_bits)?;
    // SAFETY: both are of this device, and the memory is as large as the buffer needs.
    unsafe { raw.bind_buffer_memory(imported.buffer, imported.memory, 0) }.map_err(refused)?;

    let descriptor = wgpu::BufferDescriptor {
        label: Some("meshloom::imported"),
        size: bytes,
        usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    };
    // SAFETY: the buffer is of this device, has this size and these usages, and is initialized.
    Ok(unsafe { imported.into_wgpu(device, &descriptor) })
}

/// Makes Vulkan memory of a source, of a type among `types`.
fn allocate(hal: &vulkan::Device, source: Source, bytes: u64, types: u32) -> Result<vk::DeviceMemory, String> {
    let (raw, info) = (hal.raw_device(), vk::MemoryAllocateInfo::default().allocation_size(bytes));
    let no_type = "no memory type suits the imported memory and its buffer";
    match source {
        Source::Pages(pointer) => {
            let extension = external_memory_host::Device::new(hal.shared_instance().raw_instance(), raw);
            let mut kinds = vk::MemoryHostPointerPropertiesEXT::default();
            let properties = extension.fp().get_memory_host_pointer_properties_ext;
            // SAFETY: the extension is enabled, and the pages are mapped.
            unsafe { properties(raw.handle(), HANDLE, pointer, &mut kinds) }.result().map_err(refused)?;
            let coherent = vk::MemoryPropertyFlags::HOST_COHERENT;
            let wanted = [coherent | vk::MemoryPropertyFlags::HOST_CACHED, coherent];
            let kind = memory_type(hal, types & kinds.memory_type_bits, wanted).ok_or(no_type)?;
            let mut import = vk::ImportMemoryHostPointerInfoEXT::default().handle_type(HANDLE).host_pointer(pointer);
            // SAFETY: the pages stay mapped until their owner is dropped, after the memory.
            unsafe { raw.allocate_memory(&info.memory_type_index(kind).push_next(&mut import), None) }.map_err(refused)
        }
        #[cfg(feature = "gpu-direct")]
        Source::File(file) => {
            let wanted = [vk::MemoryPropertyFlags::DEVICE_LOCAL, vk::MemoryPropertyFlags::empty()];
            let kind = memory_type(hal, types, wanted).ok_or(no_type)?;
            let mut import = vk::ImportMemoryFdInfoKHR::default()
                .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD)
                .fd(file.as_raw_fd());
            let info = info.memory_type_index(kind).push_next(&mut import);
            // SAFETY: the extension is enabled, and the descriptor is of memory of this device.
            let memory = unsafe { raw.allocate_memory(&info, None) }.map_err(refused)?;
            // The descriptor belongs to Vulkan now.
            let _ = file.into_raw_fd();
            Ok(memory)
        }
    }
}
