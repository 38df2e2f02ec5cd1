//! Import of memory on systems where Vulkan cannot.

use std::sync::Arc;

use super::open_device::RawDevice;
use super::{CopyQueueChoice, HostPages};

pub(super) fn open_device(
    _adapter: &wgpu::Adapter,
    _descriptor: &wgpu::DeviceDescriptor<'_>,
    _wanted: CopyQueueChoice,
) -> Option<RawDevice> {
    None
}

pub(super) fn import(
    _device: &wgpu::Device,
    _families: &[u32],
    pages: &Arc<HostPages>,
) -> Result<wgpu::Buffer, String> {
    Err(format!("{} bytes of pages cannot be imported on this system", pages.bytes()))
}
