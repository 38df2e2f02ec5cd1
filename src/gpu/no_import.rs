//! Import of memory on systems where Vulkan cannot.

use std::sync::Arc;

use super::host_pages::HostPages;

pub(super) fn open_device(
    _adapter: &wgpu::Adapter,
    _descriptor: &wgpu::DeviceDescriptor<'_>,
) -> Option<(wgpu::Device, wgpu::Queue)> {
    None
}

pub(super) fn import(_device: &wgpu::Device, pages: &Arc<HostPages>) -> Result<wgpu::Buffer, String> {
    Err(format!("{} bytes of pages cannot be imported on this system", pages.bytes()))
}
