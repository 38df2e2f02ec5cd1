//! Device memory that ranks share, in builds that have no driver library to look for.

use std::convert::Infallible;
use std::sync::Arc;

/// Whether this build has a library to look for.
pub(crate) const IS_BUILT: bool = false;

/// A file descriptor of memory.
pub(crate) type MemoryFile = Infallible;

/// A device that no library knows.
pub(crate) struct PeerDriver(Infallible);

impl PeerDriver {
    pub fn open(_info: &wgpu::AdapterInfo) -> Result<Arc<PeerDriver>, String> {
        Err("this build lacks the feature `gpu-direct`, which needs Linux".into())
    }

    pub fn copy(self: &Arc<Self>, _copies: &[PeerCopy<'_>]) -> Result<PeerCopies, String> {
        match self.0 {}
    }
}

/// A copy of bytes of one memory to another.
#[allow(dead_code, reason = "no driver reads it in this build")]
pub(crate) struct PeerCopy<'a> {
    pub from: &'a PeerMemory,
    pub from_byte: u64,
    pub to: &'a PeerMemory,
    pub to_byte: u64,
    pub bytes: u64,
}

/// Copies that never begin.
pub(crate) struct PeerCopies(Infallible);

impl PeerCopies {
    pub fn is_done(&self) -> Result<bool, String> {
        match self.0 {}
    }
}

/// Memory that does not exist in this build.
pub(crate) struct PeerMemory(Infallible);

impl PeerMemory {
    pub fn create(driver: &Arc<PeerDriver>, _bytes: usize) -> Result<PeerMemory, String> {
        match driver.0 {}
    }

    pub fn open(_driver: &Arc<PeerDriver>, file: &MemoryFile, _bytes: usize) -> Result<PeerMemory, String> {
        match *file {}
    }

    pub fn export(&self) -> Result<MemoryFile, String> {
        match self.0 {}
    }

    pub(super) fn import(self: &Arc<Self>, _device: &wgpu::Device, _families: &[u32]) -> Result<wgpu::Buffer, String> {
        match self.0 {}
    }

    pub fn bytes(&self) -> usize {
        match self.0 {}
    }
}
