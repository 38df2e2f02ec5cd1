//! Vulkan buffers that are not of wgpu.
//!
//! The unsafe code of this file relies on one fact: a buffer over imported memory keeps the owner
//! of the memory until the buffer is destroyed.

use std::any::Any;

use ash::vk;
use wgpu::hal::{api, vulkan};

/// A Vulkan buffer with its memory; its handles are null until they exist.
pub(super) struct OwnBuffer {
    device: ash::Device,
    pub buffer: vk::Buffer,
    pub memory: vk::DeviceMemory,
    /// Owner of imported memory, dropped after the Vulkan memory that was imported from it.
    _owner: Box<dyn Any + Send + Sync>,
}

impl OwnBuffer {
    pub fn new(device: &ash::Device, owner: Box<dyn Any + Send + Sync>) -> OwnBuffer {
        let (buffer, memory) = (vk::Buffer::null(), vk::DeviceMemory::null());
        OwnBuffer { device: device.clone(), buffer, memory, _owner: owner }
    }

    /// Hands the buffer to wgpu.
    ///
    /// # Safety
    /// It is bound to its memory, and is of this device with this size and these usages.
    pub unsafe fn into_wgpu(self, device: &wgpu::Device, descriptor: &wgpu::BufferDescriptor<'_>) -> wgpu::Buffer {
        let raw = self.buffer;
        // SAFETY: the buffer lives until wgpu calls the closure.
        let buffer = unsafe { vulkan::Buffer::from_raw_externally_owned(raw, Box::new(move || drop(self))) };
        // SAFETY: as the caller promises.
        unsafe { device.create_buffer_from_hal::<api::Vulkan>(buffer, descriptor) }
    }
}

impl Drop for OwnBuffer {
    fn drop(&mut self) {
        // SAFETY: the handles are this value's own or null. wgpu drops the value when the device
        // has finished with the buffer, and before it destroys the device.
        unsafe {
            self.device.destroy_buffer(self.buffer, None);
            self.device.free_memory(self.memory, None);
        }
    }
}

/// Returns the description of a buffer that queues of `families` use.
pub(super) fn shared_by(families: &[u32]) -> vk::BufferCreateInfo<'_> {
    match families {
        [one, others @ ..] if others.iter().any(|other| other != one) => {
            vk::BufferCreateInfo::default().sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(families)
        }
        _ => vk::BufferCreateInfo::default(),
    }
}

/// Returns a memory type among those of `bits` with the first of `wanted` flags that any has.
pub(super) fn memory_type(device: &vulkan::Device, bits: u32, wanted: [vk::MemoryPropertyFlags; 2]) -> Option<u32> {
    let instance = device.shared_instance().raw_instance();
    // SAFETY: the physical device belongs to the instance.
    let properties = unsafe { instance.get_physical_device_memory_properties(device.raw_physical_device()) };
    let flags = |kind: u32| properties.memory_types[kind as usize].property_flags;
    wanted.into_iter().find_map(|wanted| {
        (0..properties.memory_type_count).find(|&kind| bits >> kind & 1 == 1 && flags(kind).contains(wanted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_shared_by_the_families_that_use_them() {
        for families in [&[][..], &[0, 0]] {
            assert_eq!(shared_by(families).sharing_mode, vk::SharingMode::EXCLUSIVE);
        }
        let shared = shared_by(&[0, 3]);
        assert_eq!((shared.sharing_mode, shared.queue_family_index_count), (vk::SharingMode::CONCURRENT, 2));
    }
}
