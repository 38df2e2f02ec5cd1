//! Copies between buffers, and between arrays and memory of the host.

/// A copy from one buffer to another, each with the byte where it begins.
pub(super) struct BufferCopy<'a> {
    pub from: (&'a wgpu::Buffer, u64),
    pub to: (&'a wgpu::Buffer, u64),
    pub bytes: u64,
}

impl BufferCopy<'_> {
    /// Encodes the copy.
    pub fn encode(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.copy_buffer_to_buffer(self.from.0, self.from.1, self.to.0, self.to.1, self.bytes);
    }
}

/// Which way data goes through a staging buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StagingDirection {
    /// The device writes, the host reads.
    ToHost,
    /// The host writes, the device reads.
    ToDevice,
}

impl StagingDirection {
    pub fn usage(self) -> wgpu::BufferUsages {
        match self {
            StagingDirection::ToHost => wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            StagingDirection::ToDevice => wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
        }
    }

    /// Returns the mode in which the host maps such a buffer.
    pub fn map_mode(self) -> wgpu::MapMode {
        match self {
            StagingDirection::ToHost => wgpu::MapMode::Read,
            StagingDirection::ToDevice => wgpu::MapMode::Write,
        }
    }
}
