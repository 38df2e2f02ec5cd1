//! Queues for copies on systems where no device has them.

use std::convert::Infallible;

use super::array::RawArray;
use super::command::BufferCopy;
use super::device::Gpu;
use super::error::DeviceError;
use super::staging::StagingDirection;

/// Queues that do not exist on this system.
pub(super) struct CopyQueues(Infallible);

impl CopyQueues {
    pub fn count(&self) -> u32 {
        match self.0 {}
    }

    pub fn families(&self) -> &[u32] {
        match self.0 {}
    }

    pub fn copy(
        &self,
        _direction: StagingDirection,
        _array: (&Gpu, &RawArray),
        _copies: &[BufferCopy<'_>],
    ) -> Result<CopyCompletion, DeviceError> {
        match self.0 {}
    }

    pub fn buffer(
        &self,
        _device: &wgpu::Device,
        _descriptor: &wgpu::BufferDescriptor<'_>,
    ) -> Result<wgpu::Buffer, String> {
        match self.0 {}
    }
}

/// Completion of copies that do not exist on this system.
pub(crate) struct CopyCompletion(Infallible);

impl CopyCompletion {
    pub fn is_done(&self) -> bool {
        match self.0 {}
    }
}
