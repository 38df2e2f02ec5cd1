//! Queues for copies on systems where no device has them.

use std::convert::Infallible;

use super::buffer_copy::{BufferCopy, StagingDirection};
use super::error::DeviceError;

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
pub(super) struct CopyCompletion(Infallible);

impl CopyCompletion {
    pub fn is_done(&self) -> Result<bool, DeviceError> {
        match self.0 {}
    }

    pub fn wait(&self) {
        match self.0 {}
    }
}
