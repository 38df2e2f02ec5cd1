//! Import of memory on systems where Vulkan cannot.

use std::sync::Arc;

use super::copy_queues::CopyQueues;
use super::host_pages::HostPages;
use super::options::CopyQueueChoice;

/// A device that does not exist on this system.
pub(super) struct ImportingDevice {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub copies: Option<CopyQueues>,
}

pub(super) fn open_device(
    _adapter: &wgpu::Adapter,
    _descriptor: &wgpu::DeviceDescriptor<'_>,
    _wanted: CopyQueueChoice,
) -> Option<ImportingDevice> {
    None
}

pub(super) fn import(
    _device: &wgpu::Device,
    _families: &[u32],
    pages: &Arc<HostPages>,
) -> Result<wgpu::Buffer, String> {
    Err(format!("{} bytes of pages cannot be imported on this system", pages.bytes()))
}
